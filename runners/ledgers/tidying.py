"""Keeping a ledger's tables small: few files in the history, and none for ever that nobody needs."""

from __future__ import annotations

import contextlib
from typing import Protocol

FILES = 64
"""How many files a history may have. Every compaction that settled something adds one."""
KEPT_DAYS = 7
"""How long a file stays that is not part of its table any more: somebody may be reading."""


class Table(Protocol):
    """What both kinds of ledger tables can do."""

    def files(self) -> int:
        """How many files the table has."""

    def optimize(self) -> None:
        """Put small files together."""

    def vacuum(self) -> None:
        """Remove files that have not been part of the table for `KEPT_DAYS`."""

    def remove(self, condition: str) -> None:
        """Remove the rows for which the condition holds."""


def tidy(entries: Table, settled: Table, bodies: Table, *, first: int) -> None:
    """Remove the bodies of entries before `first`; once in `FILES` compactions put the history together and sweep.

    What goes wrong here costs space and time only, and the next compaction makes up for it.
    """
    with contextlib.suppress(Exception):
        bodies.remove(f"seq < {first}")
        if settled.files() > FILES:
            settled.optimize()
            for table in (settled, entries, bodies):
                table.vacuum()
