"""The ledger as a Delta table in a folder, written without Spark: a commit takes a few milliseconds."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Literal

from runners.ledgers.bodies import apart, together
from runners.ledgers.entry import Entry, Settled
from runners.ledgers.landing import land
from runners.ledgers.ledger import Ledger, LedgerError
from runners.ledgers.ledger_rows import BODIES, ENTRIES, SETTLED, Row, entries_of, row_of, settled_of
from runners.ledgers.local_table import LocalTable
from runners.ledgers.tidying import tidy


class DeltaLedger(Ledger):
    """The entries in a Delta table at `path`; beside it the history, named `<path>_history`, and `<path>_bodies`.

    Any number of processes and threads may read and append. Meant for a disk of this host.
    """

    def __init__(self, path: str | Path) -> None:
        path = Path(path).absolute()
        self._entries = LocalTable(path, ENTRIES)
        self._settled = LocalTable(path.with_name(f"{path.name}_history"), SETTLED)
        self._bodies = LocalTable(path.with_name(f"{path.name}_bodies"), BODIES)
        self._seen: tuple[int | None, int] = (None, 0)
        """A version of the entries, and the last number in it."""
        self._lock = threading.Lock()

    def read(self, after: int = 0) -> list[Entry]:
        with self._lock:
            return self._look(after)[0]

    def append(self, entries: Sequence[Entry], *, after: int) -> list[Entry]:
        with self._lock:
            return self._land(entries, after, partial(self._commit, "append"))

    def compact(self, snapshot: Entry, settled: Sequence[Settled], *, after: int) -> Entry:
        with self._lock:
            (landed,) = self._land([snapshot], after, partial(self._replace, settled))
            tidy(self._entries, self._settled, self._bodies, first=landed.seq)
            return landed

    def history(self) -> Iterator[Settled]:
        with self._lock:
            self._settled.refresh()
            return map(settled_of, self._settled.rows())

    @property
    def place(self) -> str:
        return str(self._entries.path)

    def _land(self, entries: Sequence[Entry], after: int, commit: Callable[[Sequence[Entry]], None]) -> list[Entry]:
        fresh = self._seen == (self._entries.version, after)
        return land(entries, after=after, fresh=fresh, look=self._look, commit=commit)

    def _look(self, after: int) -> tuple[list[Entry], int]:
        self._entries.refresh()
        rows = list(self._entries.rows(f"seq > {int(after)}"))
        try:
            later = entries_of(self.place, together(self.place, rows, self._beside))
        except LedgerError:
            before = self._entries.version
            self._entries.refresh()
            if self._entries.version == before:
                raise
            return self._look(after)  # what was missing was compacted away while it was read
        last = later[-1].seq if later else self._entries.highest("seq")
        self._seen = (self._entries.version, last)
        return later, last

    def _beside(self, condition: str) -> Iterator[Row]:
        self._bodies.refresh()
        return self._bodies.rows(condition)

    def _commit(self, mode: Literal["append", "overwrite"], entries: Sequence[Entry]) -> None:
        """The large bodies first, so that no entry is there without its own."""
        rows, bodies = apart([row_of(entry) for entry in entries])
        if bodies:
            self._bodies.refresh()
            self._bodies.commit(bodies, "append")
        self._entries.commit(rows, mode)
        self._seen = (self._entries.version, entries[-1].seq)

    def _replace(self, settled: Sequence[Settled], entries: Sequence[Entry]) -> None:
        """The history first: there twice is once, so a process that dies in between has lost nothing."""
        self._remember(settled)
        self._commit("overwrite", entries)

    def _remember(self, settled: Sequence[Settled]) -> None:
        if settled:
            self._settled.refresh()
            numbers = [each.number for each in settled]
            near = self._settled.rows(f"number >= {min(numbers)} and number <= {max(numbers)}", ["plan"])
            known = {row["plan"] for row in near}
            new = {each.plan: row_of(each) for each in settled if each.plan not in known}
            if new:
                self._settled.commit(list(new.values()), "append")
