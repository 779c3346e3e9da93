"""A crash at a named point: the process ends there, or an exception is raised."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NoReturn

from runners.events import BatchRests, Event, RunStopping
from runners.journal import Journal
from runners.ledgers.entry import Entry
from runners.owners.ownership import host_identity
from runners.pipeline import Pipeline
from runners.place import Place
from stages.halving import FAILS

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SOON = 0.15
"""How many seconds after Spark was given a write it is in the midst of it."""
ENOUGH = 60.0
"""After so many seconds one destination waits no more for another."""
EVENTS = {RunStopping: "draining", BatchRests: "resting"}
"""The points that are heard as events."""


class Raised(Exception):
    """What is raised at a point, in the place of a death."""


def die() -> NoReturn:
    """End this process as `kill -9` would."""
    os.kill(os.getpid(), signal.SIGKILL)
    raise AssertionError("nobody survives this")


@dataclass
class Crash:
    """Watches the points, and ends what is being done at one of them; is a listener too."""

    point: str
    end: Callable[[], NoReturn] | None = die
    """What ends the process; None raises."""
    plan: int = 1
    """It happens to the how-manieth batch that this process plans, or later; 0: to what an earlier one left open."""
    steal: Callable[[], None] = lambda: None
    """Takes the pipeline as another owner would."""
    happened: bool = False
    """Whether the point was reached."""
    _plans: int = 0
    _begun: list[str] = field(default_factory=list)
    """The destinations whose writes have begun."""
    _wrote: threading.Event = field(default_factory=threading.Event)
    _pending: bool = False

    def hear(self, event: Event) -> None:
        """As a listener."""
        self(EVENTS.get(type(event), ""), "", None)

    def __call__(self, point: str, of: str, rows: Any) -> Any:
        """As a watcher of the points."""
        self._plans += point == "after-plan"
        if self._plans < self.plan - (self.point == "before-plan"):
            return rows
        provoke = getattr(self, "_" + self.point.replace("-", "_"), None)
        if provoke is not None:
            return provoke(point, of, rows)
        if point == self.point:
            self._end()
        return rows

    def _end(self) -> None:
        self.happened = True
        if self.end is not None:
            self.end()
        raise Raised(f"at {self.point}")

    def _in_write(self, point: str, of: str, rows: Any) -> Any:
        if self._pending and point == "after-write":
            self._end()
        if point != "in-write":
            return rows
        if rows is None:
            self._end()
        self.happened = True
        if self.end is None:
            return rows.where(f"isnotnull(raise_error('{FAILS}{Raised.__name__} at {self.point}'))")
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

    def _draining(self, point: str, of: str, rows: Any) -> Any:
        if point == "after-plan" and not self.happened:
            self.happened = True
            os.kill(os.getpid(), signal.SIGTERM)
        if point == "draining" and self.happened:
            self._end()
        return rows

    def _resting(self, point: str, of: str, rows: Any) -> Any:
        if point == "before-write":
            raise ConnectionError("a server is away")
        if point == "resting":
            self._end()
        return rows

    def _lost_lease(self, point: str, of: str, rows: Any) -> Any:
        if point == "before-write" and not self.happened:
            self.happened = True
            self.steal()
            if self.end is not None:
                self.end()
        return rows


def taken_by_another(pipeline: Pipeline, spark: SparkSession | None) -> None:
    """Record another owner, as one would that took the pipeline over and then died."""
    place = Place.of(pipeline)
    journal = Journal(place.ledger(spark if place.needs_spark else None))
    body = {**host_identity(), "pipeline": pipeline.name, "run": "another", "jvm": None, "ownership": "on"}
    taken = Entry(
        kind="acquire",
        epoch=journal.state.epoch + 1,
        owner="another",
        body={**body, "lock": None, "lease": 60.0, "take_over": "", "replay": None, "ruling": {}, "finish": False},
    )
    journal.ledger.append([taken], after=journal.state.seq)
