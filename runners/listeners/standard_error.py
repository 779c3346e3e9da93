"""Log lines on standard error, written beside what says them."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Sequence

import click

from runners.listeners.scribe import Scribe

ROOM, PATIENCE = 10_000, 5.0
"""So many log lines wait to be written at most, and so many seconds a command that ends waits for them."""


class Lines(logging.Handler):
    """Log records as lines of standard error, wherever that is by then: above a progress bar too.

    That nobody reads them any more stops nothing, and nothing waits for whoever reads them slowly.
    """

    def __init__(self) -> None:
        super().__init__()
        self._scribe = Scribe(_written, room=ROOM)
        self._lost = 0

    def emit(self, record: logging.LogRecord) -> None:
        self._scribe.put(self.format(record))

    def flush(self) -> None:
        """Wait a little for those that are still being written, and say how many were not."""
        if self._scribe.flush(PATIENCE) and self._scribe.dropped > self._lost:
            lost, self._lost = self._scribe.dropped - self._lost, self._scribe.dropped
            _written([f"{lost:,} log lines were not written: standard error was read too slowly"])


def _written(lines: Sequence[str]) -> None:
    with contextlib.suppress(OSError):
        click.echo("\n".join(lines), err=True)


def flush() -> None:
    """Wait a little for log lines that are still being written."""
    for handler in logging.getLogger("wherry").handlers:
        handler.flush()
