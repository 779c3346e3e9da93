"""The progress of a run, in words for a terminal, a log and a notebook."""

from __future__ import annotations

import contextlib
import contextvars
import importlib
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from datetime import timedelta
from typing import Any

from origins.batch import Batch
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
"""How many batches in flight are named."""


class RunProgress:
    """A listener that follows the progress of a run."""

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
        self.in_flight: Mapping[str, Batch] = {}
        """The open batches, by their plans. The mapping is replaced whenever a batch begins or ends."""
        self.doing = doing
        """What the run does, in words. Commands other than a run set it themselves."""
        self.name, self._starts_spark = name, starts_spark
        self._batches = batches
        """How many batches there are in all; None if the caller does not know."""
        self._settled = self._rows = self._nacked = 0
        self._lanes: set[str] = set()
        self._begins, self._ends = True, False
        self._began = self.clock.elapsed()

    def __call__(self, event: Event) -> None:
        if isinstance(event, RunStarted):
            self.doing, self._begins = "", False
            self._lanes |= {*event.waiting}
            self._batches = self._batches or sum(event.waiting.values()) or None
        elif isinstance(event, BatchPlanned | BatchResumed):
            self._lanes.add(event.batch.lane)
            self.in_flight = {**self.in_flight, event.batch.plan: event.batch}
        elif isinstance(event, BatchRests):
            span = replace(event.batch.span, label=f"attempt {event.tried + 1} after {event.seconds:.0f} s")
            self.in_flight = {**self.in_flight, event.batch.plan: replace(event.batch, span=span)}
        elif isinstance(event, BatchSettled) and not event.owed:
            self._lanes.add(event.batch.lane)
            self._settled += 1
            self._rows += event.counts.read
            self._nacked += event.counts.nacked
            self._land(event.batch)
        elif isinstance(event, BatchCancelled):
            self._land(event.batch)
        elif isinstance(event, RunStopping):
            self.doing, self._ends = f"stopping ({describe_stop(event)})", True
        elif isinstance(event, RunEnded):
            self.doing, self._ends = event.status, True

    def describe(self) -> str:
        """Return the run in one line, with the batches in flight."""
        return ", ".join(self._list_facts()) + self._name_in_flight()

    def _list_facts(self) -> Iterator[str]:
        """Return what the run does, how many batches and rows it has settled, and how long it has worked."""
        seconds = int(self.clock.elapsed() - self._began)
        doing = "starting Spark" if self._starts_spark() and not self._ends else self.doing
        if self._begins and not self._lanes:
            yield f"{self.name}: {doing} … {seconds} s"
            return
        yield f"{self.name}: {doing}" if doing else self.name
        yield format_progress(self._settled, self._batches)
        if self._rows:
            yield format_count(self._rows) + (f", {self._nacked:,} refused" if self._nacked else "")
        yield str(timedelta(seconds=seconds))

    def _name_in_flight(self) -> str:
        batches = [*self.in_flight.values()]
        if not batches:
            return ""
        labels = [f" ({batch.span.label})" if batch.span.label else "" for batch in batches]
        named = [
            f"{name_batch(batch.number, batch.lane, self._lanes)}{label}"
            for batch, label in zip(batches, labels, strict=True)
        ]
        more = [f"{len(named) - MOST_NAMED} more"] if len(named) > MOST_NAMED else []
        return f"; in flight: {', '.join([*named[:MOST_NAMED], *more])}"

    def _land(self, batch: Batch) -> None:
        self.in_flight = {plan: each for plan, each in self.in_flight.items() if plan != batch.plan}


def format_progress(batches: int, whole: int | None) -> str:
    """Return how many batches are done, and of how many if that is known. There may be more than expected."""
    return format_batches(batches) if whole is None else f"{batches:,}/{max(whole, batches):,} batches"


def describe_stop(stopping: RunStopping) -> str:
    """Return why a run stops. If the reason is a signal, add what a second signal does."""
    return stopping.reason + ("; a second signal cancels open batches" if stopping.reason.startswith("signal ") else "")


@contextlib.contextmanager
def call_every(seconds: float, show: Callable[[], None]) -> Iterator[None]:
    """Call a function repeatedly in a separate thread until this block ends. An error in it ends the thread."""
    over = threading.Event()

    def call() -> None:
        with contextlib.suppress(Exception):  # the edge of the thread: a display that fails must not end the run
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
    """Show a line below the notebook's cell that changes while the run works. Elsewhere there is no listener.

    A notebook that cannot show the line has no effect on the run.
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
    with contextlib.suppress(Exception):  # code of the notebook, which must not change how the run ends
        show()


def _open_display(line: str) -> Any:
    """Return a display of IPython that can be changed; None outside of a notebook."""
    python = sys.modules.get("IPython")
    with contextlib.suppress(Exception):  # code of the notebook, without which there is no display
        if python is not None and getattr(python.get_ipython(), "kernel", None) is not None:
            display = importlib.import_module("IPython.display").display
            return display({"text/plain": escape_line(line)}, raw=True, display_id=True)
    return None
