"""Stops a run: by signals, or from another process through the ledger.

The first signal lets open batches finish, and a second signal cancels them. Finishing may have a deadline; after it
Wherry cancels the open batches.
"""

from __future__ import annotations

import contextlib
import logging
import signal
import threading
import time
from collections.abc import Callable, Iterator
from types import FrameType
from typing import TYPE_CHECKING, Protocol

from origins.codec import encode
from origins.errors import WherryError
from origins.quantities import parse_seconds
from runners.model.entry import Entry, StopBody
from runners.model.pipeline_state import PipelineState
from runners.model.spec import PipelineSpec
from runners.spark.session import obtain_for
from runners.state.ledger import Conflict, Ledger
from runners.state.location import StateLocation
from runners.state.progress import apply_entries, read_body

if TYPE_CHECKING:
    from runners.engine.dispatcher import Dispatcher

TICK = 0.2
"""The seconds between two checks for a forced stop or a passed deadline."""
FORCED_AT_ONCE, FORCED_SOON = 1.0, 3.0
"""The seconds until a run sees a forced stop: with a ledger in a local folder, and with any other ledger."""
PATIENCE = 2.0
"""The seconds that cancelled work has to end after a forced stop. Spark may be planning, which nothing can cancel."""
LEAVE = 4.0
"""The seconds after a forced stop in which a run waits for its threads. Then it leaves those that still work."""
ENDED = 6.0
"""The seconds after a forced stop in which the process of a command ends, also if some work does not end."""
_CALLS: list[Callable[[], None]] = []
"""What to call as soon as a run of this process is forced to stop."""
log = logging.getLogger("wherry")


class Stoppable(Protocol):
    """A run that signals can stop, here or on a server."""

    @property
    def asked_to_stop(self) -> str:
        """Why it was asked to stop; empty if it was not."""

    def request_stop(self, reason: str, *, force: bool = False) -> None:
        """Ask it to stop. A signal handler calls this."""


@contextlib.contextmanager
def stop_on_signals(run: Stoppable) -> Iterator[None]:
    """Stop the run on SIGINT and SIGTERM until the context ends. Only the main thread can listen to signals."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def request_stop(number: int, frame: FrameType | None) -> None:
        again = bool(run.asked_to_stop)
        run.request_stop(f"signal {signal.Signals(number).name}", force=again)
        if again:
            _notify_forced()

    with handle_signals(request_stop):
        yield


@contextlib.contextmanager
def handle_signals(handle: Callable[[int, FrameType | None], None]) -> Iterator[None]:
    """Call `handle` on SIGINT and SIGTERM until the context ends."""
    before = {number: signal.signal(number, handle) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextlib.contextmanager
def call_when_forced(call: Callable[[], None]) -> Iterator[None]:
    """In this block, call this function as soon as a run of this process is forced to stop.

    A signal handler may call it, and more than once.
    """
    _CALLS.append(call)
    try:
        yield
    finally:
        _CALLS.remove(call)


def _notify_forced() -> None:
    for call in tuple(_CALLS):
        call()


@contextlib.contextmanager
def force_in_time(
    ledger: Ledger,
    dispatcher: Dispatcher,
    cancel_work: Callable[[], None],
    *,
    every: float,
    drain: float = 0.0,
    cut_calls: Callable[[], None] = lambda: None,
) -> Iterator[None]:
    """Cancel the work in flight as soon as a stop is forced, until the context ends.

    A second signal, another thread or the ledger may force it. It is also forced if finishing takes longer than `drain`
    seconds, unless that is 0.

    A thread reads the ledger every so many seconds, because the dispatcher reads it only between two batches. A failed
    read does no harm. Cancelled work may begin more work, so it is cancelled repeatedly until the context ends.

    That thread may have to wait for Spark itself. Another thread calls `cut_calls` repeatedly once the stop was forced
    `PATIENCE` seconds ago.
    """
    over = threading.Event()
    watch = _StopWatch(ledger, dispatcher, every=every, drain=drain)

    def watch_ledger() -> None:
        while not over.wait(min(every, TICK)):
            watch.check()
            if dispatcher.forced:
                _notify_forced()
                with contextlib.suppress(Exception):  # a lost Spark has no work left to cancel
                    cancel_work()

    def watch_time() -> None:
        while not over.wait(min(every, TICK)):
            if is_forced_for(dispatcher, PATIENCE):
                with contextlib.suppress(Exception):  # a stop must work after any error here
                    cut_calls()

    first = threading.Thread(target=watch_ledger, name="wherry-force", daemon=True)
    threads = [first, threading.Thread(target=watch_time, name="wherry-cut", daemon=True)]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        over.set()
        while first.is_alive() and not is_forced_for(dispatcher, LEAVE):
            first.join(TICK)


def is_forced_for(dispatcher: Dispatcher, seconds: float) -> bool:
    """Whether the stop was forced at least so many seconds ago."""
    since = dispatcher.force_asked
    return since is not None and dispatcher.clock.elapsed() - since >= seconds


def finish_unless(is_late: Callable[[], bool], finish: Callable[[], None]) -> bool:
    """Finish in a separate thread, and return True at the end of that. Return False as soon as it is too late for it.

    The thread is then left behind. `finish` must not raise.
    """
    thread = threading.Thread(target=finish, name="wherry-finish", daemon=True)
    thread.start()
    while thread.is_alive():
        thread.join(TICK)
        if thread.is_alive() and is_late():
            return False
    return True


class _StopWatch:
    def __init__(self, ledger: Ledger, dispatcher: Dispatcher, *, every: float, drain: float) -> None:
        self._ledger, self._dispatcher, self._every, self._drain = ledger, dispatcher, every, drain
        self._seen = dispatcher.journal.state.seq
        self._looked = time.monotonic()
        self._due: float | None = None
        """When finishing must end, by the dispatcher's clock."""

    def check(self) -> None:
        """Force the stop if it is time."""
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
                within = body.within
                if body.force:
                    self._dispatcher.request_stop(body.reason, force=True)
                elif within is not None:
                    self._finish_by(self._dispatcher.clock.elapsed() + within)

    def _finish_by(self, moment: float) -> None:
        self._due = moment if self._due is None else min(self._due, moment)


def stop(pipeline: PipelineSpec, reason: str, *, force: bool = False, within: str = "") -> bool:
    """Ask a run of this pipeline, in any process, to stop. Return whether a run was active."""
    place = StateLocation.of(pipeline)
    spark = obtain_for(pipeline) if place.needs_spark else None
    after = parse_seconds(within) if within else None
    return ask_to_stop(place.open_ledger(spark), reason, force=force, within=after).owner is not None


def ask_to_stop(ledger: Ledger, reason: str, *, force: bool = False, within: float | None = None) -> PipelineState:
    """Ask the run of the pipeline, if one is active, to stop. Return the state at that time.

    The run sees the request at its next entry. With `force` it sees it within seconds and leaves its open batches. With
    `within` it does so after this many seconds.
    """
    while True:
        state = apply_entries(ledger.read())
        if state.owner is None:
            return state
        try:
            body = StopBody(reason=reason, force=force, within=None if force else within)
            ledger.append([Entry(kind="stop", epoch=state.epoch, body=encode(body))], after=state.seq)
        except Conflict:
            continue
        return state
