"""Writes that do not delay a run. A separate thread makes them from a queue of fixed size.

Items that do not fit are dropped.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Sequence
from typing import Generic, TypeVar

T = TypeVar("T")


class BackgroundWriter(Generic[T]):
    """Passes items to `write` in another thread, several at once if they arrive faster than they are written.

    `put` never waits. If `write` raises or never returns, only the items are lost.
    """

    def __init__(self, write: Callable[[Sequence[T]], None], *, room: int = 1_000) -> None:
        self.dropped = 0
        """How many items were lost. They are not written later."""
        self.error = ""
        """Why the last lost items were not written, in short."""
        self._write = write
        self._items: queue.Queue[T] = queue.Queue(maxsize=room)
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None

    def put(self, item: T) -> None:
        """Queue the item for writing, if there is room."""
        try:
            self._items.put_nowait(item)
        except queue.Full:
            self._drop(1, "the queue was full, since earlier entries were not written yet")
            return
        with self._lock:
            if self._thread is None:
                self._thread = threading.Thread(target=self._work, name="wherry-background-writer", daemon=True)
                self._thread.start()

    def flush(self, seconds: float) -> bool:
        """Return whether all items are written or lost. Wait for that at most so many seconds."""
        done = self._items.all_tasks_done
        with done:
            return done.wait_for(lambda: not self._items.unfinished_tasks, seconds)

    def _work(self) -> None:
        while items := self._take_waiting():
            try:
                self._write(items)
            except Exception as error:  # noqa: BLE001 -- the edge of the thread: what it loses is counted
                why = " ".join(str(error).split()) or type(error).__name__
                self._drop(len(items), f"{why[:300]}…" if len(why) > 300 else why)
            for _ in items:
                self._items.task_done()

    def _take_waiting(self) -> list[T]:
        """Return the waiting items. If there are none, the thread ends, and the next item starts another thread."""
        items: list[T] = []
        with self._lock:
            while not self._items.empty():
                items.append(self._items.get_nowait())
            if not items:
                self._thread = None
        return items

    def _drop(self, count: int, why: str) -> None:
        with self._lock:
            self.dropped += count
            self.error = why
