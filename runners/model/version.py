"""The version of Wherry."""

from __future__ import annotations

import re
from pathlib import Path


def find_version() -> str:
    """The installed version, or that of the source tree we run from."""
    import importlib.metadata

    try:
        return importlib.metadata.version("wherry")
    except importlib.metadata.PackageNotFoundError:
        project = Path(__file__).parents[2] / "pyproject.toml"
        text = project.read_text(encoding="utf-8") if project.exists() else ""
        found = re.search(r'^version = "(.+)"$', text, re.MULTILINE)
        return found.group(1) if found else "unknown"
