"""Functions of the user's own: what their modules need."""

from __future__ import annotations

from pathlib import Path

from origins.functions import list_imported_packages, load_function

MODULE = """
import json
import numpy as np
from beside import helper
from stages import nack

def score(rows):
    from sklearn.linear_model import Ridge
    return rows
"""


def test_the_packages_of_a_function_are_those_that_its_files_import(tmp_path: Path) -> None:
    """Also those that a file beside it imports. What comes with Python or is sent with the function is left out."""
    (tmp_path / "scoring.py").write_text(MODULE.replace("from beside import helper", ""))
    assert list_imported_packages(load_function(f"{tmp_path}/scoring:score")) == {"numpy", "sklearn"}
    (tmp_path / "both.py").write_text(MODULE)
    (tmp_path / "beside.py").write_text("import pyarrow.compute\n\ndef helper(): ...\n")
    assert list_imported_packages(load_function(f"{tmp_path}/both:score")) == {"numpy", "sklearn", "pyarrow"}
