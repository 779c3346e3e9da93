"""Signals: the first one drains, a second one cancels what Spark is doing."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Callable, Iterator
from types import FrameType

from runners.dispatcher import Dispatcher


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
