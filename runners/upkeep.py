"""Destinations keep house beside the batches: in one thread, one after the other."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from concurrent.futures import Future, ThreadPoolExecutor

from runners.outcome import Landed, Outcome, Shared
from runners.session import in_short

log = logging.getLogger("wherry")


class Upkeep:
    """Lets destinations that were written to keep house; one that still does is left to it."""

    def __init__(self, keeps: Callable[[str], bool], tend: Callable[[str], None]) -> None:
        self._keeps = keeps
        """Whether there is ever anything to do at the destination of this name."""
        self._tend = tend
        self._thread = ThreadPoolExecutor(1, "wherry-upkeep")
        self._last: dict[str, Future[None]] = {}

    def behind(self, outcome: Outcome) -> None:
        """Something was written, or not; it is not waited for."""
        for name in _written(outcome):
            last = self._last.get(name)
            if self._keeps(name) and (last is None or last.done()):
                self._last[name] = self._thread.submit(self._tended, name)

    def close(self) -> None:
        """Wait until the house is kept."""
        self._thread.shutdown()

    def _tended(self, name: str) -> None:
        try:
            self._tend(name)
        except Exception as error:  # the edge of the thread: no row depends on this
            log.warning("%s: its housekeeping failed and will be tried again: %s", name, in_short(error))


def _written(outcome: Outcome) -> Iterable[str]:
    """The destinations that were written to."""
    if isinstance(outcome, Shared):
        return {name for landed in outcome.landed.values() for name in landed.written}
    return list(outcome.written) if isinstance(outcome, Landed) else ()
