"""Stopping a run: by signals, of which the first drains and a second cancels, or through the ledger from elsewhere."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Callable, Iterator
from types import FrameType

from runners.dispatcher import Dispatcher
from runners.entry import Entry
from runners.ledger import Conflict, Ledger
from runners.progress import State, fold_all


@contextlib.contextmanager
def signals_stop(dispatcher: Dispatcher, cancel_work: Callable[[], None]) -> Iterator[None]:
    """While in here SIGINT and SIGTERM stop the dispatcher; only the main thread can listen to them."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def heard(number: int, frame: FrameType | None) -> None:
        again = bool(dispatcher.asked_to_stop)
        dispatcher.request_stop(f"signal {signal.Signals(number).name}", force=again)
        if again:
            threading.Thread(target=cancel_work, name="wherry-cancel", daemon=True).start()

    before = {number: signal.signal(number, heard) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def ask_to_stop(ledger: Ledger, reason: str) -> State:
    """Ask whoever runs the pipeline to stop; it hears at its next entry. Gives the state as it was then.

    Nobody is asked when nobody runs it.
    """
    while True:
        state = fold_all(ledger.read())
        if state.owner is None:
            return state
        try:
            ledger.append([Entry(kind="stop", epoch=state.epoch, body={"reason": reason})], after=state.seq)
        except Conflict:
            continue
        return state
