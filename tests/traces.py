"""What Wherry leaves on a disk, compared with the page that names it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from fnmatch import fnmatchcase
from pathlib import Path

PAGE = Path(__file__).parents[1] / "runners/docs/reference/files-that-wherry-makes.md"
STATE, TABLE, FILES, VALUES, MACHINE, PROBES = (
    "The state",
    "In a Delta table",
    "In a folder of `files`",
    "In a store of large values (`claim`)",
    "On the machine of a run",
    "Probes",
)


def list_patterns(heading: str) -> list[str]:
    """Return the names in the first column of the table below this heading of the page."""
    part = PAGE.read_text(encoding="utf-8").partition(f"## {heading}\n")[2].partition("\n## ")[0]
    rows = [line.split(" | ")[0] for line in part.splitlines() if line.startswith("| `")]
    return [name for row in rows for name in re.findall(r"`([^`]+)`", row)]


def list_places(folder: Path) -> Iterator[tuple[Path, str]]:
    """Yield the folders that Wherry fills below this one, each with the heading of its table in the page."""
    for place in (each for each in folder.rglob("*") if each.is_dir()):
        if (place / "ledger" / "_delta_log").is_dir():
            yield place, STATE
        elif (place / "_delta_log").is_dir():
            yield place, TABLE
        elif (place / "_wherry.json").is_file() and (place / "_writing").is_dir():
            yield place, FILES
        elif (place / "key").is_file() and (place / "users").is_dir():
            yield place, VALUES


def list_unnamed(folder: Path) -> list[str]:
    """Return what Wherry put below this folder and the page does not name."""
    patterns = {heading: list_patterns(heading) for heading in (STATE, TABLE, FILES, VALUES)}
    return [
        f"{heading}: {each.relative_to(folder)}"
        for place, heading in list_places(folder)
        for each in place.iterdir()
        if not any(fnmatchcase(each.name, pattern) for pattern in patterns[heading])
    ]
