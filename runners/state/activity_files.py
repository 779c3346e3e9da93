"""What each run of a pipeline is doing, as a small file in the state's folder that other processes read."""

from __future__ import annotations

import json
import os
from collections.abc import Collection, Iterator, Mapping
from datetime import datetime
from pathlib import Path
from typing import Any

from origins.batch import Json


def write_activity(folder: Path, run: str, facts: Mapping[str, Json]) -> None:
    """Put the facts in the place of the run's earlier ones, all at once."""
    folder.mkdir(exist_ok=True, mode=0o700)
    new = folder / f".{run}"
    new.write_text(json.dumps(facts), encoding="utf-8")
    os.replace(new, _get_file(folder, run))


def read_activities(folder: Path, runs: Collection[str]) -> Mapping[str, Mapping[str, Json]]:
    """The facts of these runs, as far as they wrote some that this version can read."""
    found = {}
    for run in runs:
        try:
            facts = json.loads(_get_file(folder, run).read_text(encoding="utf-8"))
            datetime.fromisoformat(facts["at"])
            if all(each.keys() >= keys for each, keys in _list_parts(facts)):
                found[run] = facts
        except (OSError, ValueError, LookupError, TypeError, AttributeError):
            continue
    return found


def _list_parts(facts: Any) -> Iterator[tuple[Any, set[str]]]:
    """What is shown of the facts, each with the keys that it needs."""
    for thread in facts["threads"]:
        yield thread, {"doing", "batches", "rows", "seconds", "place"}
        yield from ((batch, {"lane", "number"}) for batch in thread["batches"])
    if facts["spark"] is not None:
        yield facts["spark"], {"jobs", "tasks", "done", "left"}


def remove_activity(folder: Path, run: str) -> None:
    """Forget the run. Twice is once."""
    _get_file(folder, run).unlink(missing_ok=True)


def sweep_activities(folder: Path, runs: Collection[str]) -> None:
    """Remove what runs left that were killed: all but these."""
    for file in folder.glob("*.json"):
        if file.stem not in runs:
            file.unlink(missing_ok=True)


def _get_file(folder: Path, run: str) -> Path:
    return folder / f"{run}.json"
