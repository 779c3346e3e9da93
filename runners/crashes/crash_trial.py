"""Somebody's own pipeline, crashed and carried on, with a state, a dead letter queue and destinations of its own.

`python -m runners.crashes.crash_trial FILE FOLDER POINT PLAN` is the process that dies.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from destinations.delta import Delta
from destinations.destination import LANE, Destination
from destinations.discard import Discard
from destinations.files import Files
from origins.crash_points import watched
from origins.files import Files as FilesRead
from origins.origin import Origin
from runners.audits.finding import Audit
from runners.crashes.crashing import Crash, taken_by_another
from runners.errors import Refusal
from runners.events import BatchPlanned, Event
from runners.line import named
from runners.pipeline import Pipeline

if TYPE_CHECKING:
    from runners.report import Report

BATCHES = 3
"""After so many batches a run stops: what comes later is carried no differently."""
LATER = {"after-fence": "after-writes", "after-ask": "after-writes", "after-claim": "before-write"}
"""The points that only a run reaches which comes behind a crash, and where that happens."""
KILLED = -9


@dataclass(frozen=True)
class CrashTrial:
    """A definition, and an empty folder for all that is written."""

    file: Path
    folder: Path

    def pipeline(self) -> Pipeline:
        """The pipeline, which writes into the folder alone."""
        return apart(Pipeline.load(self.file), self.folder)

    def crash(self, point: str) -> bool:
        """Carry in a process of its own, which dies at the point; whether it came there. Raises `Refusal` when it
        cannot be carried."""
        self.pipeline()  # a definition that is wrong says so here
        if point in LATER and not self._died(LATER[point], plan=1):
            return False
        return self._died(point, plan=0 if point in LATER else 1)

    def finish(self) -> tuple[Report, Audit]:
        """Go on where it died, and look."""
        pipeline = self.pipeline()
        return run(pipeline, None), pipeline.audit()

    def _died(self, point: str, *, plan: int) -> bool:
        command = [
            sys.executable,
            "-m",
            "runners.crashes.crash_trial",
            str(self.file),
            str(self.folder),
            point,
            str(plan),
        ]
        ended = subprocess.run(command, capture_output=True, text=True, check=False)
        if ended.returncode not in (0, KILLED):
            raise Refusal(
                f"{self.file} cannot be carried, even without a crash:\n{ended.stderr.strip()[-2000:]}",
                hint="Mend what it says, and try it by  wherry run  first.",
            )
        return ended.returncode == KILLED


def apart(pipeline: Pipeline, folder: Path) -> Pipeline:
    """The same pipeline, but all that it writes lies in the folder, and nobody is told of it."""
    given = named(pipeline.destinations)
    destinations = [_apart(each, folder / name) for name, each in given.items()]
    dead = pipeline.dlq.destination
    return replace(
        pipeline,
        origin=pipeline.origin and _quiet(pipeline.origin),
        origins=[_quiet(each) for each in pipeline.origins],
        destinations=[replace(each, name=name) for name, each in zip(given, destinations, strict=True)],
        dlq=replace(
            pipeline.dlq, window=0, threshold=1, limits={}, destination=dead if isinstance(dead, Discard) else None
        ),
        state=str(folder / "state"),
        hooks=(),
        schedule=None,
    )


def _apart(destination: Destination, place: Path) -> Destination:
    """One of the same kind in this place; a table to which rows are added, where the kind is not one of tables or
    folders."""
    place = place / LANE if destination.by_lane and LANE not in place.name else place
    if isinstance(destination, Delta):
        return replace(destination, path=str(place), table=None, was=None)
    if isinstance(destination, Files):
        return replace(destination, path=str(place), was=None)
    return Delta(path=str(place), stages=destination.stages)


def _quiet(origin: Origin) -> Origin:
    """One that is not told what was carried, and so keeps it."""
    if isinstance(origin, FilesRead):
        return replace(origin, after="keep", move_to=None)
    if origin.listens:
        raise Refusal(
            f"The origin {origin.place} does something when rows were carried, and a trial must change nothing there.",
            hint="Try a copy of the definition that reads files or a table.",
        )
    return origin


def run(pipeline: Pipeline, crash: Crash | None) -> Report:
    """Carry a few batches."""
    planned = 0

    def enough(event: Event) -> None:
        nonlocal planned
        planned += isinstance(event, BatchPlanned)
        if isinstance(event, BatchPlanned) and planned == BATCHES:
            pipeline.stop("enough for a trial")

    return pipeline.run(listeners=[enough] if crash is None else [crash.hear, enough])


def main(words: Sequence[str]) -> None:
    """Carry, and die at the point."""
    file, folder, point, plan = words
    pipeline = CrashTrial(Path(file), Path(folder)).pipeline()
    crash = Crash(point, plan=int(plan), steal=lambda: taken_by_another(pipeline, None))
    with watched(crash):
        run(pipeline, crash)


if __name__ == "__main__":
    main(sys.argv[1:])
