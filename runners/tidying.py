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


def tidy(entries: Table, settled: Table) -> None:
    """Put the history together and sweep both tables, once in `FILES` compactions.

    What goes wrong here costs space and time only, and the next compaction makes up for it.
    """
    with contextlib.suppress(Exception):
        if settled.files() > FILES:
            settled.optimize()
            settled.vacuum()
            entries.vacuum()
