"""The list of pipelines, kept ready: reading the states of 200 pipelines takes longer than a reader should wait."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from runners.model.clock import Clock

T = TypeVar("T")
FRESH, SHARE = 2.0, 4.0
"""After how many seconds a reader lets the list be read again, and after how many times the seconds that it took."""


@dataclass(kw_only=True)
class Overview(Generic[T]):
    """What `read` returns, at most some seconds old while there are readers. Only the first reader waits for it."""

    read: Callable[[], T]
    clock: Clock
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _reading: threading.Lock = field(default_factory=threading.Lock)
    _kept: Sequence[T] = ()
    _at: float = 0.0
    _took: float = 0.0
    _changes: int = 0
    """How often it was made to expire. A list that was begun before a change is not kept."""

    def get(self) -> T:
        """Return the list as it was some seconds ago. Raises what `read` raises if there is no earlier list."""
        with self._lock:
            kept, age = self._kept, self.clock.elapsed() - self._at - self._took * SHARE
        if not kept:
            with self._reading:
                kept = self._kept
                return kept[0] if kept else self._renew()
        if age >= FRESH and self._reading.acquire(blocking=False):
            threading.Thread(target=self._renew_beside, name="wherry-overview", daemon=True).start()
        return kept[0]

    def expire(self) -> None:
        """Let the next reader wait for a new list, because something was changed."""
        with self._lock:
            self._kept = ()
            self._changes += 1

    def _renew_beside(self) -> None:
        try:
            self._renew()
        except Exception:  # noqa: BLE001 -- the next reader gets the error
            self.expire()
        finally:
            self._reading.release()

    def _renew(self) -> T:
        began, changes = self.clock.elapsed(), self._changes
        made = self.read()
        with self._lock:
            if self._changes == changes:
                self._kept, self._at, self._took = (made,), began, self.clock.elapsed() - began
        return made
