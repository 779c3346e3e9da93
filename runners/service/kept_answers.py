"""Answers that take long to compute, kept as long as nothing has changed that they are about."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Generic, TypeVar

T = TypeVar("T")
_MOST = 100


@dataclass
class KeptAnswers(Generic[T]):
    """The answers that were asked for last. Any number of threads may ask; each answer is computed once."""

    _lock: threading.Lock = field(default_factory=threading.Lock)
    _kept: OrderedDict[Hashable, Future[T]] = field(default_factory=OrderedDict)

    def get(self, key: Hashable, compute: Callable[[], T]) -> T:
        """Return the answer for this key. It is computed now if nobody asked for it before, and kept unless it fails.

        Another thread that asks for it meanwhile waits for it.
        """
        with self._lock:
            known = self._kept.get(key)
            answer = self._kept.setdefault(key, Future())
            self._kept.move_to_end(key)
            while len(self._kept) > _MOST:
                self._kept.popitem(last=False)
        if known is None:
            try:
                answer.set_result(compute())
            except BaseException as error:  # noqa: BLE001 -- all who wait for it get the error
                with self._lock:
                    self._kept.pop(key, None)
                answer.set_exception(error)
        return answer.result()
