"""Users' functions and the packages that their modules need."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from origins.functions import FunctionMissing, forget_own_modules, list_imported_packages, load_function, load_text

MODULE = """
import json
import numpy as np
from beside import helper
from stages import nack

def score(rows):
    from sklearn.linear_model import Ridge
    return rows
"""


def test_the_packages_of_a_function_are_the_imports_of_its_files(tmp_path: Path) -> None:
    """Imports of files beside it are included. Packages of Python or sent with the function are left out."""
    (tmp_path / "scoring.py").write_text(MODULE.replace("from beside import helper", ""))
    assert list_imported_packages(load_function(f"{tmp_path}/scoring:score")) == {"numpy", "sklearn"}
    (tmp_path / "both.py").write_text(MODULE)
    (tmp_path / "beside.py").write_text("import pyarrow.compute\n\ndef helper(): ...\n")
    assert list_imported_packages(load_function(f"{tmp_path}/both:score")) == {"numpy", "sklearn", "pyarrow"}


def test_a_module_is_run_as_python_runs_it(tmp_path: Path) -> None:
    """Annotations stay values, and a declared encoding is obeyed. Its text from elsewhere is run in the same way."""
    text = "# coding: latin-1\ndef name(x: int = 1): return 'é'\n"
    (tmp_path / "plain.py").write_bytes(text.encode("latin-1"))
    found = load_function(f"{tmp_path}/plain:name")
    again = load_text(text.partition("\n")[2], tmp_path / "plain.py", prefer="name")
    assert (found(), again()) == ("é", "é")
    assert found.__annotations__ == again.__annotations__ == {"x": int}


def test_a_forgotten_file_is_loaded_again_with_its_imports_beside_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Until then it is loaded once. Imports of a module that raises are not kept either."""
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    module, beside = tmp_path / "first.py", tmp_path / "second_of_first.py"
    good = "from second_of_first import NAME\n\ndef give(): return NAME\n"
    module.write_text(good)
    beside.write_text("NAME = 'a'\n")
    assert load_function(f"{tmp_path}/first:give")() == "a"
    beside.write_text("NAME = 'b'\n")
    assert load_function(f"{tmp_path}/first:give")() == "a"
    forget_own_modules()
    module.write_text(f"{good}raise ValueError\n")
    with pytest.raises(FunctionMissing, match="raises ValueError"):
        load_function(f"{tmp_path}/first:give")
    beside.write_text("NAME = 'c'\n")
    module.write_text(good)
    assert load_function(f"{tmp_path}/first:give")() == "c"
    forget_own_modules()
