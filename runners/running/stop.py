"""Stopping a run: by signals, of which the first drains and a second cancels, or through the ledger from elsewhere.

Draining may have a deadline; when it is over, what is in flight is cancelled as if somebody had forced it.
"""

from __future__ import annotations

import contextlib
import logging
import signal
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from types import FrameType
from typing import Protocol

from origins.errors import WherryError
from origins.quantities import parse_seconds
from runners.model.clock import Clock
from runners.model.entry import Entry, StopBody
from runners.model.pipeline_state import PipelineState
from runners.model.spec import PipelineSpec
from runners.spark.session import obtain_for
from runners.state.journal import Journal
from runners.state.ledger import Conflict, Ledger
from runners.state.location import StateLocation
from runners.state.progress import apply_entries, read_body

TICK = 0.2
"""How often it is looked whether a stop was forced or a deadline is over, in seconds."""
FORCED_AT_ONCE, FORCED_SOON = 1.0, 30.0
"""Seconds until a run sees a forced stop: with a local ledger, and with a ledger that Spark reads."""
log = logging.getLogger("wherry")


class Stoppable(Protocol):
    """What can be asked to stop; the dispatcher is."""

    journal: Journal
    clock: Clock

    @property
    def asked_to_stop(self) -> str:
        """The reason of a stop; empty until then."""

    @property
    def stop_asked(self) -> float | None:
        """When it was asked first, by its clock."""

    @property
    def forced(self) -> bool:
        """Whether what is in flight is cancelled."""

    def request_stop(self, reason: str, *, force: bool = False) -> None:
        """Stop after what is in flight, or with `force` at once."""


@contextlib.contextmanager
def stop_on_signals(dispatcher: Stoppable) -> Iterator[None]:
    """While in here SIGINT and SIGTERM stop the dispatcher; only the main thread can listen to them."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def request_stop(number: int, frame: FrameType | None) -> None:
        again = bool(dispatcher.asked_to_stop)
        dispatcher.request_stop(f"signal {signal.Signals(number).name}", force=again)

    with handle_signals(request_stop):
        yield


@contextlib.contextmanager
def handle_signals(
    handle: Callable[[int, FrameType | None], None], numbers: Iterable[int] = (signal.SIGINT, signal.SIGTERM)
) -> Iterator[None]:
    """While in here this is called on these signals."""
    before = {number: signal.signal(number, handle) for number in numbers}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextlib.contextmanager
def force_in_time(
    ledger: Ledger,
    dispatcher: Stoppable,
    cancel_work: Callable[[], None],
    *,
    every: float,
    drain: float = 0.0,
    beside: Callable[[], None] = lambda: None,
) -> Iterator[None]:
    """While in here what is in flight is cancelled as soon as a stop is forced: by a second signal, by another thread,
    through the ledger, or because draining took longer than `drain` seconds, if that is not 0.

    The ledger is looked into every so many seconds, beside the dispatcher, which hears only between two batches. A look
    that fails is no harm. What is cancelled may begin something else, so it is cancelled until this is left. `beside`
    is called each time, and must be quick.
    """
    over = threading.Event()
    watch = _StopWatch(ledger, dispatcher, every=every, drain=drain)

    def watch_ledger() -> None:
        while not over.wait(min(every, TICK)):
            watch.check()
            with contextlib.suppress(Exception):  # whatever it is, a stop must still be heard
                beside()
            if dispatcher.forced:
                with contextlib.suppress(Exception):  # a Spark that is gone has nothing left to cancel
                    cancel_work()

    thread = threading.Thread(target=watch_ledger, name="wherry-force", daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


class _StopWatch:
    """Whether it is time to force a stop."""

    def __init__(self, ledger: Ledger, dispatcher: Stoppable, *, every: float, drain: float) -> None:
        self._ledger, self._dispatcher, self._every, self._drain = ledger, dispatcher, every, drain
        self._seen = dispatcher.journal.state.seq
        self._looked = time.monotonic()
        self._due: float | None = None
        """When draining has to be over, by the dispatcher's clock."""

    def check(self) -> None:
        """Force the stop if it is."""
        dispatcher = self._dispatcher
        if dispatcher.forced:
            return
        if time.monotonic() - self._looked >= self._every:
            self._read_stops()
            self._looked = time.monotonic()
        asked = dispatcher.stop_asked
        if self._drain and asked is not None:
            self._finish_by(asked + self._drain)
        if self._due is not None and dispatcher.clock.elapsed() >= self._due and not dispatcher.forced:
            log.warning("the time to finish open batches is over; the run cancels them")
            dispatcher.request_stop("asked to stop", force=True)

    def _read_stops(self) -> None:
        with contextlib.suppress(WherryError):
            for entry in self._ledger.read(self._seen):
                self._seen = max(self._seen, entry.seq)
                body = read_body(entry, StopBody) if entry.kind == "stop" else StopBody()
                within = body.get("within")
                if body.get("force"):
                    self._dispatcher.request_stop(body["reason"], force=True)
                elif within is not None:
                    self._finish_by(self._dispatcher.clock.elapsed() + within)

    def _finish_by(self, moment: float) -> None:
        self._due = moment if self._due is None else min(self._due, moment)


def stop(pipeline: PipelineSpec, reason: str, *, force: bool = False, within: str = "") -> bool:
    """Ask a run of this pipeline, in any process, to stop; whether there was a run."""
    place = StateLocation.of(pipeline)
    spark = obtain_for(pipeline) if place.needs_spark else None
    after = parse_seconds(within) if within else None
    return ask_to_stop(place.open_ledger(spark), reason, force=force, within=after).owner is not None


def ask_to_stop(ledger: Ledger, reason: str, *, force: bool = False, within: float | None = None) -> PipelineState:
    """Ask the run of the pipeline to stop; gives the state as it was then. It hears at its next entry; with `force`
    within seconds, and leaves what is in flight as it is; with `within` it does so after so many seconds.

    Nobody is asked when nobody runs it.
    """
    while True:
        state = apply_entries(ledger.read())
        if state.owner is None:
            return state
        try:
            how = {"force": True} if force else {} if within is None else {"within": within}
            body = {"reason": reason, **how}
            ledger.append([Entry(kind="stop", epoch=state.epoch, body=body)], after=state.seq)
        except Conflict:
            continue
        return state
