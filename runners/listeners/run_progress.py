"""How far a run is, in words: for a terminal, for a log and for a notebook."""

from __future__ import annotations

import contextlib
import contextvars
import importlib
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from datetime import timedelta
from typing import Any

from origins.batch import Batch
from origins.quick_dataclass import dataclass
from runners.model.clock import Clock
from runners.model.events import (
    BatchCancelled,
    BatchPlanned,
    BatchRests,
    BatchResumed,
    BatchSettled,
    Event,
    Listener,
    RunEnded,
    RunStarted,
    RunStopping,
)
from runners.model.text import escape_line, format_batches, format_count, name_batch
from runners.spark.start import is_starting

BEGINS = "opening the state, origins and tables"
"""What a run does before its first batch, unless it starts Spark."""
MOST_NAMED = 3
"""So many batches in flight are named."""


@dataclass
class LaneProgress:
    """What is known of a lane."""

    since: float
    """When its first batch was planned."""
    waiting: int | None = None
    """How many batches waited for it when the run began, where that is known."""
    batches: int = 0
    rows: int = 0
    nacked: int = 0
    label: str = ""
    """What is being carried."""

    def estimate_left(self, now: float) -> timedelta | None:
        """How long it takes at the present speed; None if that is unknown."""
        if self.waiting is None or not self.batches:
            return None
        more = max(0, self.waiting - self.batches)
        return timedelta(seconds=round((now - self.since) / self.batches * more))

    def compute_rate(self, now: float) -> float:
        """Rows a second."""
        return self.rows / max(now - self.since, 0.001)


class RunProgress:
    """A listener that knows how far a run is."""

    def __init__(
        self,
        name: str,
        *,
        doing: str = BEGINS,
        batches: int | None = None,
        clock: Clock | None = None,
        starts_spark: Callable[[], bool] = is_starting,
    ) -> None:
        self.clock = clock or Clock()
        self.lanes: dict[str, LaneProgress] = {}
        self.in_flight: Mapping[str, Batch] = {}
        """The batches that are open, by their plans. Another one takes its place whenever one begins or ends."""
        self.doing = doing
        """In words; another command than a run says so itself."""
        self._name, self._starts_spark = name, starts_spark
        self._batches = batches
        """How many batches there are in all, where the caller knows."""
        self._waiting: dict[str, int] = {}
        self._begins, self._ends = True, False
        self._began = self.clock.elapsed()

    def __call__(self, event: Event) -> None:
        if isinstance(event, RunStarted):
            self.doing, self._waiting, self._begins = "", dict(event.waiting), False
        elif isinstance(event, BatchPlanned | BatchResumed):
            self._get_lane(event.batch.lane).label = event.batch.span.label
            self.in_flight = {**self.in_flight, event.batch.plan: event.batch}
        elif isinstance(event, BatchRests):
            self._get_lane(event.batch.lane).label = f"waits {event.seconds:.0f} s for its next attempt"
        elif isinstance(event, BatchSettled) and not event.owed:
            lane = self._get_lane(event.batch.lane)
            lane.batches += 1
            lane.rows += event.counts["read"]
            lane.nacked += event.counts["nacked"]
            self._land(event.batch)
        elif isinstance(event, BatchCancelled):
            self._land(event.batch)
        elif isinstance(event, RunStopping):
            self.doing, self._ends = f"stopping ({describe_stop(event)})", True
        elif isinstance(event, RunEnded):
            self.doing, self._ends = event.status, True

    def describe(self) -> str:
        """The run in one line, with the batches in flight."""
        return ", ".join(self.list_facts()) + self._name_in_flight()

    def list_facts(self) -> Iterator[str]:
        """What the run does, how many batches and rows it has settled, and for how long it works."""
        seconds = int(self.clock.elapsed() - self._began)
        doing = "starting Spark" if self._starts_spark() and not self._ends else self.doing
        if self._begins and not self.lanes:
            yield f"{self._name}: {doing} … {seconds} s"
            return
        yield f"{self._name}: {doing}" if doing else self._name
        lanes = [*self.lanes.values()]
        yield format_progress(sum(lane.batches for lane in lanes), self._batches)
        rows, nacked = sum(lane.rows for lane in lanes), sum(lane.nacked for lane in lanes)
        if rows:
            yield format_count(rows) + (f", {nacked:,} refused" if nacked else "")
        yield str(timedelta(seconds=seconds))

    def _name_in_flight(self) -> str:
        batches = [*self.in_flight.values()]
        if not batches:
            return ""
        labels = [f" ({batch.span.label})" if batch.span.label else "" for batch in batches]
        named = [
            f"{name_batch(batch.number, batch.lane, {*self.lanes, *self._waiting})}{label}"
            for batch, label in zip(batches, labels, strict=True)
        ]
        more = [f"{len(named) - MOST_NAMED} more"] if len(named) > MOST_NAMED else []
        return f"; in flight: {', '.join([*named[:MOST_NAMED], *more])}"

    def _land(self, batch: Batch) -> None:
        self.in_flight = {plan: each for plan, each in self.in_flight.items() if plan != batch.plan}

    def _get_lane(self, name: str) -> LaneProgress:
        if name not in self.lanes:
            self.lanes[name] = LaneProgress(since=self.clock.elapsed(), waiting=self._waiting.get(name))
        return self.lanes[name]


def format_progress(batches: int, whole: int | None) -> str:
    """So many batches, of so many where that is known; there may be more than was thought."""
    return format_batches(batches) if whole is None else f"{batches:,}/{max(whole, batches):,} batches"


def describe_stop(stopping: RunStopping) -> str:
    """Why a run stops; where that is a signal, also what a second one does."""
    return stopping.reason + ("; a second signal cancels open batches" if stopping.reason.startswith("signal ") else "")


@contextlib.contextmanager
def call_every(seconds: float, show: Callable[[], None]) -> Iterator[None]:
    """Call a function again and again in a thread of its own until this is left. An error in it ends the thread."""
    over = threading.Event()

    def call() -> None:
        with contextlib.suppress(Exception):
            while not over.wait(seconds):
                show()

    thread = threading.Thread(target=contextvars.copy_context().run, args=[call], name="wherry-progress", daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


OFTEN = 1.0
"""The seconds between two looks at a run."""


@contextlib.contextmanager
def show_in_notebook(name: str) -> Iterator[list[Listener]]:
    """Below the cell, a line that goes on changing while the run works. Outside of a notebook there is no listener.

    A notebook that cannot show it changes nothing for the run.
    """
    handle = _open_display(f"{name}: {BEGINS}")
    if handle is None:
        yield []
        return
    progress = RunProgress(name)

    def show() -> None:
        handle.update({"text/plain": escape_line(progress.describe())}, raw=True)

    with call_every(OFTEN, show):
        yield [progress]
    with contextlib.suppress(Exception):
        show()


def _open_display(line: str) -> Any:
    """A display of IPython's that can be changed; None where there is no notebook."""
    python = sys.modules.get("IPython")
    with contextlib.suppress(Exception):
        if python is not None and getattr(python.get_ipython(), "kernel", None) is not None:
            display = importlib.import_module("IPython.display").display
            return display({"text/plain": escape_line(line)}, raw=True, display_id=True)
    return None
