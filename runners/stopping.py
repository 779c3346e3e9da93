"""Stopping a run: by signals, of which the first drains and a second cancels, or through the ledger from elsewhere.

Draining may have a deadline; when it is over, what is in flight is cancelled as if somebody had forced it.
"""

from __future__ import annotations

import contextlib
import logging
import signal
import threading
import time
from collections.abc import Callable, Iterator
from types import FrameType
from typing import TYPE_CHECKING

from origins.errors import WherryError
from runners.ledgers.entry import Entry
from runners.ledgers.ledger import Conflict, Ledger
from runners.progress import fold_all
from runners.state import State

if TYPE_CHECKING:
    from runners.dispatcher import Dispatcher

TICK = 0.2
"""How often it is looked whether a stop was forced or a deadline is over, in seconds."""
log = logging.getLogger("wherry")


@contextlib.contextmanager
def signals_stop(dispatcher: Dispatcher) -> Iterator[None]:
    """While in here SIGINT and SIGTERM stop the dispatcher; only the main thread can listen to them."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def heard(number: int, frame: FrameType | None) -> None:
        again = bool(dispatcher.asked_to_stop)
        dispatcher.request_stop(f"signal {signal.Signals(number).name}", force=again)

    before = {number: signal.signal(number, heard) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextlib.contextmanager
def forced_in_time(
    ledger: Ledger, dispatcher: Dispatcher, cancel_work: Callable[[], None], *, every: float, drain: float = 0.0
) -> Iterator[None]:
    """While in here what is in flight is cancelled as soon as a stop is forced: by a second signal, by another thread,
    through the ledger, or because draining took longer than `drain` seconds, if that is not 0.

    The ledger is looked into every so many seconds, beside the dispatcher, which hears only between two batches. A look
    that fails is no harm. What is cancelled may begin something else, so it is cancelled until this is left.
    """
    over = threading.Event()
    watch = _Watch(ledger, dispatcher, every=every, drain=drain)

    def watching() -> None:
        while not over.wait(min(every, TICK)):
            watch.look()
            if dispatcher.forced:
                with contextlib.suppress(Exception):  # a Spark that is gone has nothing left to cancel
                    cancel_work()

    thread = threading.Thread(target=watching, name="wherry-force", daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


class _Watch:
    """Whether it is time to force a stop."""

    def __init__(self, ledger: Ledger, dispatcher: Dispatcher, *, every: float, drain: float) -> None:
        self._ledger, self._dispatcher, self._every, self._drain = ledger, dispatcher, every, drain
        self._seen = dispatcher.journal.state.seq
        self._looked = time.monotonic()
        self._due: float | None = None
        """When draining has to be over, by the dispatcher's clock."""

    def look(self) -> None:
        """Force the stop if it is."""
        dispatcher = self._dispatcher
        if dispatcher.forced:
            return
        if time.monotonic() - self._looked >= self._every:
            self._read()
            self._looked = time.monotonic()
        asked = dispatcher.stop_asked
        if self._drain and asked is not None:
            self._finish_by(asked + self._drain)
        if self._due is not None and dispatcher.clock.elapsed() >= self._due and not dispatcher.forced:
            log.warning("the time is over in which batches in flight could finish; they are cancelled")
            dispatcher.request_stop("asked to stop", force=True)

    def _read(self) -> None:
        with contextlib.suppress(WherryError):
            for entry in self._ledger.read(self._seen):
                self._seen = max(self._seen, entry.seq)
                if entry.kind == "stop" and entry.body.get("force"):
                    self._dispatcher.request_stop(str(entry.body["reason"]), force=True)
                elif entry.kind == "stop" and entry.body.get("within") is not None:
                    self._finish_by(self._dispatcher.clock.elapsed() + entry.body["within"])

    def _finish_by(self, moment: float) -> None:
        self._due = moment if self._due is None else min(self._due, moment)


def ask_to_stop(ledger: Ledger, reason: str, *, force: bool = False, within: float | None = None) -> State:
    """Ask whoever runs the pipeline to stop; gives the state as it was then. It hears at its next entry; with `force`
    within seconds, and leaves what is in flight as it is; with `within` it does so after so many seconds.

    Nobody is asked when nobody runs it.
    """
    while True:
        state = fold_all(ledger.read())
        if state.owner is None:
            return state
        try:
            how = {"force": True} if force else {} if within is None else {"within": within}
            body = {"reason": reason, **how}
            ledger.append([Entry(kind="stop", epoch=state.epoch, body=body)], after=state.seq)
        except Conflict:
            continue
        return state
