"""Stopping a run: by signals, of which the first drains and a second cancels, or through the ledger from elsewhere."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Callable, Iterator
from types import FrameType

from origins.errors import WherryError
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


@contextlib.contextmanager
def ledger_forces(
    ledger: Ledger, dispatcher: Dispatcher, cancel_work: Callable[[], None], *, every: float
) -> Iterator[None]:
    """While in here a stop in the ledger that is forced cancels what is in flight: the ledger is looked into every so
    many seconds, beside the dispatcher, which hears only between two batches. A look that fails is no harm."""
    over = threading.Event()
    seen = dispatcher.journal.state.seq

    def watch() -> None:
        while not over.wait(every):
            with contextlib.suppress(WherryError):
                forced = [entry for entry in ledger.read(seen) if entry.kind == "stop" and entry.body.get("force")]
                if forced:
                    dispatcher.request_stop(str(forced[0].body["reason"]), force=True)
                    cancel_work()
                    return

    thread = threading.Thread(target=watch, name="wherry-force", daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def ask_to_stop(ledger: Ledger, reason: str, *, force: bool = False) -> State:
    """Ask whoever runs the pipeline to stop; gives the state as it was then. It hears at its next entry; with `force`
    within seconds, and leaves what is in flight as it is.

    Nobody is asked when nobody runs it.
    """
    while True:
        state = fold_all(ledger.read())
        if state.owner is None:
            return state
        try:
            body = {"reason": reason, **({"force": True} if force else {})}
            ledger.append([Entry(kind="stop", epoch=state.epoch, body=body)], after=state.seq)
        except Conflict:
            continue
        return state
