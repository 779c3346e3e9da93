"""Keep the results of a long suite in a file. The file is whole at every moment, even if the suite is interrupted."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any


def replace_file(file: Path, found: Any) -> None:
    """Replace the content of the file atomically."""
    new = file.with_suffix(".new")
    new.write_text(json.dumps(found), encoding="utf-8")
    os.replace(new, file)
