"""Crashes a run at a named point: the process is killed, or an error is raised."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NoReturn

from origins.lazy import SparkSession
from runners.model.entry import Entry
from runners.model.events import BatchRests, Event, RunStopping
from runners.pipeline import Pipeline
from runners.state.journal import Journal
from runners.state.ledger import Conflict
from runners.state.location import StateLocation
from runners.state.process_locks import identify_host
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
    body = {**vars(identify_host()), "pipeline": pipeline.name, "run": "another", "jvm": None, "ownership": "on"}
    body |= {"lock": None, "lease": 0.0, "take_over": "", "replay": None, "ruling": {}, "finish": False}
    while True:
        taken = Entry(kind="acquire", epoch=journal.state.epoch + 1, owner="another", body=body)
        try:
            journal.ledger.append([taken], after=journal.state.seq)
            return
        except Conflict:  # a batch of another lane was recorded meanwhile
            journal.catch_up()


LATER = {"after-fence": "after-writes", "after-ask": "after-writes", "after-claim": "before-write"}
"""The points that only a run after a crash reaches, each with the point of that crash."""
