"""What a long suite has found so far, in a file: whole at every moment, wherever the suite is broken off."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any


def keep(file: Path, found: Any) -> None:
    """Put this in the place of what is there, at once."""
    new = file.with_suffix(".new")
    new.write_text(json.dumps(found), encoding="utf-8")
    os.replace(new, file)
