"""A user's pipeline that is crashed and continued, with a separate state, DLQ and destinations.

`python -m runners.crashes.crash_trial FILE FOLDER POINT PLAN` is the process that is killed.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Sequence
from dataclasses import field, replace
from pathlib import Path
from typing import Any, NoReturn

from destinations.delta.delta import Delta
from destinations.destination import LANE, Destination
from destinations.discard import Discard
from destinations.files import Files
from origins.crash_points import watch_points
from origins.files.files import Files as FilesRead
from origins.lazy import SparkSession
from origins.origin import Origin
from origins.quick_dataclass import dataclass
from runners.model.entry import Entry
from runners.model.errors import Refusal
from runners.model.events import BatchPlanned, BatchRests, Event, RunStopping
from runners.model.run_report import Report
from runners.operations.audit.finding import Audit
from runners.pipeline import Pipeline
from runners.state.journal import Journal
from runners.state.ledger import Conflict
from runners.state.location import StateLocation
from runners.state.process_locks import identify_host
from runners.ways.stage_chain import name_destinations
from stages.bisection import FAILS

SOON = 0.15
"""How many seconds after Spark gets a write the process is ended. The write is then under way."""
ENOUGH = 60.0
"""How many seconds one destination waits for another at most."""
EVENTS = {RunStopping: "draining", BatchRests: "resting"}
"""The points that are received as events."""


class CrashRaised(Exception):
    """The error that is raised at a point instead of killing the process."""


def die() -> NoReturn:
    """End this process as `kill -9` would."""
    os.kill(os.getpid(), signal.SIGKILL)
    raise AssertionError("the process survived its own kill")


@dataclass
class CrashInjector:
    """Watches the points, and ends the work at one of them. It is also a listener."""

    point: str
    end: Callable[[], NoReturn] | None = die
    """Ends the process. If it is None, an error is raised."""
    plan: int = 1
    """From which batch on it happens, counted among the batches that this process plans.

    0 means a batch that an earlier process left open.
    """
    steal: Callable[[], None] = lambda: None
    """Takes the pipeline as another owner would."""
    happened: bool = False
    """Whether the point was reached."""
    _plans: int = 0
    _begun: list[str] = field(default_factory=list)
    """The destinations whose writes have begun."""
    _wrote: threading.Event = field(default_factory=threading.Event)
    _pending: bool = False

    def note_event(self, event: Event) -> None:
        """Handle an event, as a listener."""
        self(EVENTS.get(type(event), ""), "", None)

    def __call__(self, point: str, of: str, rows: Any) -> Any:
        """Handle a point, as a watcher of the points."""
        self._plans += point == "after-plan"
        if self._plans < self.plan - (self.point == "before-plan"):
            return rows
        provoke = {
            "in-write": self._in_write,
            "between-writes": self._between_writes,
            "draining": self._end_while_draining,
            "resting": self._end_while_resting,
            "lost-lease": self._lose_lease,
        }.get(self.point)
        if provoke is not None:
            return provoke(point, of, rows)
        if point == self.point:
            self._end()
        return rows

    def _end(self) -> None:
        self.happened = True
        if self.end is not None:
            self.end()
        raise CrashRaised(f"at {self.point}")

    def _in_write(self, point: str, of: str, rows: Any) -> Any:
        if self._pending and point == "after-write":
            self._end()
        if point != "in-write":
            return rows
        if rows is None:
            self._end()
        self.happened = True
        if self.end is None:
            return rows.where(f"isnotnull(raise_error('{FAILS}{CrashRaised.__name__} at {self.point}'))")
        self._pending = True
        threading.Timer(SOON, self.end).start()
        return rows

    def _between_writes(self, point: str, of: str, rows: Any) -> Any:
        if point == "after-write":
            self._wrote.set()
        if point == "before-write" and of not in self._begun:
            self._begun.append(of)
            if len(self._begun) > 1 and self._wrote.wait(ENOUGH):
                self._end()
        return rows

    def _end_while_draining(self, point: str, of: str, rows: Any) -> Any:
        if point == "after-plan" and not self.happened:
            self.happened = True
            os.kill(os.getpid(), signal.SIGTERM)
        if point == "draining" and self.happened:
            self._end()
        return rows

    def _end_while_resting(self, point: str, of: str, rows: Any) -> Any:
        if point == "before-write":
            raise ConnectionError("a server is down")
        if point == "resting":
            self._end()
        return rows

    def _lose_lease(self, point: str, of: str, rows: Any) -> Any:
        if point == "before-write" and not self.happened:
            self.happened = True
            self.steal()
            if self.end is not None:
                self.end()
        return rows


def take_by_another(pipeline: Pipeline, spark: SparkSession | None) -> None:
    """Record another owner, as if a process had taken the pipeline over and then died."""
    place = StateLocation.of(pipeline)
    journal = Journal(place.open_ledger(spark if place.needs_spark else None))
    body = {**identify_host(), "pipeline": pipeline.name, "run": "another", "jvm": None, "ownership": "on"}
    body |= {"lock": None, "lease": 0.0, "take_over": "", "replay": None, "ruling": {}, "finish": False}
    while True:
        taken = Entry(kind="acquire", epoch=journal.state.epoch + 1, owner="another", body=body)
        try:
            journal.ledger.append([taken], after=journal.state.seq)
            return
        except Conflict:  # a batch of another lane was recorded meanwhile
            journal.catch_up()


BATCHES = 3
"""After how many batches a run stops. Later batches are carried in the same way."""
LATER = {"after-fence": "after-writes", "after-ask": "after-writes", "after-claim": "before-write"}
"""The points that only a run after a crash reaches, each with the point of that crash."""
KILLED = -9


@dataclass(frozen=True)
class CrashTrial:
    """A definition, and an empty folder for everything that is written."""

    file: Path
    folder: Path

    def make_pipeline(self) -> Pipeline:
        """Return the pipeline, which writes only into the folder."""
        return redirect_pipeline(Pipeline.load(self.file), self.folder)

    def crash(self, point: str) -> bool:
        """Carry the pipeline in a separate process that dies at the point. Return whether it reached the point.

        Raise `Refusal` if the pipeline cannot be carried.
        """
        self.make_pipeline()  # raises if the definition is wrong
        if point in LATER and not self._run_until_death(LATER[point], plan=1):
            return False
        return self._run_until_death(point, plan=0 if point in LATER else 1)

    def finish(self) -> tuple[Report, Audit]:
        """Continue after the crash, and audit the result."""
        pipeline = self.make_pipeline()
        return run(pipeline, None), pipeline.audit()

    def _run_until_death(self, point: str, *, plan: int) -> bool:
        command = [sys.executable, "-m", "runners.crashes.crash_trial", str(self.file), str(self.folder)]
        ended = subprocess.run([*command, point, str(plan)], capture_output=True, text=True, check=False)
        if ended.returncode not in (0, KILLED):
            raise Refusal(
                f"The pipeline of {self.file} fails, even without a crash:\n{ended.stderr.strip()[-2000:]}",
                hint="Correct the error, and try  wherry run  first.",
            )
        return ended.returncode == KILLED


def redirect_pipeline(pipeline: Pipeline, folder: Path) -> Pipeline:
    """Return the same pipeline, but it writes only into the folder, and calls no hooks."""
    given = name_destinations(pipeline.destinations)
    destinations = [_redirect_destination(each, folder / name) for name, each in given.items()]
    dead = pipeline.dlq.destination
    return replace(
        pipeline,
        origin=pipeline.origin and _silence_origin(pipeline.origin),
        origins=[_silence_origin(each) for each in pipeline.origins],
        destinations=[replace(each, name=name) for name, each in zip(given, destinations, strict=True)],
        dlq=replace(
            pipeline.dlq,
            window=0,
            threshold=1,
            limits={},
            destination=dead if isinstance(dead, Discard) else None,
            copy=None,
        ),
        state=str(folder / "state"),
        hooks=(),
        schedule=None,
    )


def _redirect_destination(destination: Destination, place: Path) -> Destination:
    """Return a destination of the same kind in this place.

    For a kind without tables or folders, return a table to which rows are added.
    """
    place = place / LANE if destination.by_lane and LANE not in place.name else place
    if isinstance(destination, Delta):
        return replace(destination, path=str(place), table=None, was=None)
    if isinstance(destination, Files):
        return replace(destination, path=str(place), was=None)
    return Delta(path=str(place), stages=destination.stages)


def _silence_origin(origin: Origin) -> Origin:
    """Return an origin that changes nothing after a batch. Raise `Refusal` if the origin cannot do that."""
    if isinstance(origin, FilesRead):
        return replace(origin, after="keep", move_to=None)
    if origin.listens:
        raise Refusal(
            f"The origin {origin.place} changes its files after a batch, and a crash test must change nothing there.",
            hint="Test a copy of the definition that reads other files or a table.",
        )
    return origin


def run(pipeline: Pipeline, crash: CrashInjector | None) -> Report:
    """Carry a few batches."""
    planned = 0

    def enough(event: Event) -> None:
        nonlocal planned
        planned += isinstance(event, BatchPlanned)
        if isinstance(event, BatchPlanned) and planned == BATCHES:
            pipeline.stop("enough for a trial")

    return pipeline.run(listeners=[enough] if crash is None else [crash.note_event, enough])


def main(words: Sequence[str]) -> None:
    """Carry the pipeline, and die at the point."""
    file, folder, point, plan = words
    pipeline = CrashTrial(Path(file), Path(folder)).make_pipeline()
    crash = CrashInjector(point, plan=int(plan), steal=lambda: take_by_another(pipeline, None))
    with watch_points(crash):
        run(pipeline, crash)


if __name__ == "__main__":
    main(sys.argv[1:])
