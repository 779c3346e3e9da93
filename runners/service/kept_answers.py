"""Answers that take long to compute, kept as long as nothing has changed that they are about."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable
from concurrent.futures import Future
from dataclasses import dataclass, field
from pathlib import Path
from typing import Generic, TypeVar

T = TypeVar("T")


def find_last_commit(table: Path) -> int | None:
    """Return a number that changes with each commit to a table in a folder. None if the table does not exist."""
    try:
        return (table / "_delta_log").stat().st_mtime_ns
    except OSError:
        return None


@dataclass
class KeptAnswers(Generic[T]):
    """The answers that were asked for last. Any number of threads may ask; each answer is computed once."""

    most: int = 100
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _kept: OrderedDict[Hashable, Future[T]] = field(default_factory=OrderedDict)

    def get(self, key: Hashable, compute: Callable[[], T], lasts: Callable[[T], bool] = lambda _: True) -> T:
        """Return the answer for this key. It is computed if it is not kept, and kept unless it fails or does not last.

        Another thread that asks for it meanwhile waits for it.
        """
        with self._lock:
            known = self._kept.get(key)
            answer = self._kept.setdefault(key, Future())
            self._kept.move_to_end(key)
            while len(self._kept) > self.most:
                self._kept.popitem(last=False)
        if known is None:
            try:
                made = compute()
                if not lasts(made):
                    self._forget(key)
                answer.set_result(made)
            except BaseException as error:  # noqa: BLE001 -- all who wait for it get the error
                self._forget(key)
                answer.set_exception(error)
        return answer.result()

    def _forget(self, key: Hashable) -> None:
        with self._lock:
            self._kept.pop(key, None)
