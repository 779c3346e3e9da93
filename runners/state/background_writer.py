"""Writes without delaying a run: in a thread beside, in a room of fixed size; what does not fit is dropped."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Sequence
from typing import Generic, TypeVar

T = TypeVar("T")


class BackgroundWriter(Generic[T]):
    """Hands items to `write`, several at a time where they came faster than they were written.

    `put` never waits. What `write` raises, and what it never comes back from, costs the items and nothing else.
    """

    def __init__(self, write: Callable[[Sequence[T]], None], *, room: int = 1_000) -> None:
        self.dropped = 0
        """How many items were not written, and never will be."""
        self.error = ""
        """Why the last ones were not, in short."""
        self._write = write
        self._items: queue.Queue[T] = queue.Queue(maxsize=room)
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None

    def put(self, item: T) -> None:
        """Have this written, if there is room."""
        try:
            self._items.put_nowait(item)
        except queue.Full:
            self._drop(1, "the queue was full, since earlier entries were not written yet")
            return
        with self._lock:
            if self._thread is None:
                self._thread = threading.Thread(target=self._work, name="wherry-scribe", daemon=True)
                self._thread.start()

    def flush(self, seconds: float) -> bool:
        """Whether all that was put is done with; waits so long for it, at most."""
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
        """What there is to write; where there is nothing the thread ends, and the next item begins another."""
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
