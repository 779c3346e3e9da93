"""What each run of a pipeline is doing, as a small file in the state's folder that other processes read."""

from __future__ import annotations

import json
import os
from collections.abc import Collection, Mapping
from pathlib import Path

from origins.batch import Json


def write_activity(folder: Path, run: str, facts: Mapping[str, Json]) -> None:
    """Put the facts in the place of the run's earlier ones, all at once."""
    folder.mkdir(exist_ok=True, mode=0o700)
    new = folder / f".{run}"
    new.write_text(json.dumps(facts), encoding="utf-8")
    os.replace(new, _get_file(folder, run))


def read_activities(folder: Path, runs: Collection[str]) -> Mapping[str, Mapping[str, Json]]:
    """The facts of these runs, as far as they wrote some that can be read."""
    found = {}
    for run in runs:
        try:
            facts = json.loads(_get_file(folder, run).read_text(encoding="utf-8"))
        except (OSError, ValueError):
            continue
        if isinstance(facts, dict):
            found[run] = facts
    return found


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
