"""A ledger in memory: for tests, and for pipelines that need to remember nothing."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from dataclasses import replace

from runners.ledgers.entry import Entry, Settled
from runners.ledgers.ledger import Conflict, Ledger
from runners.ledgers.ledger_rows import Row, entries_of, row_of, settled_of


class MemoryLedger(Ledger):
    """Holds for all threads of this process, and ends with it. Whoever shares the object shares the ledger."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._entries: list[Row] = []
        self._settled: dict[str, Row] = {}

    def read(self, after: int = 0) -> list[Entry]:
        with self._lock:
            rows = [row for row in self._entries if row["seq"] > after]
        return entries_of(self.place, rows)

    def append(self, entries: Sequence[Entry], *, after: int) -> list[Entry]:
        numbered = [replace(entry, seq=seq) for seq, entry in enumerate(entries, after + 1)]
        rows = [row_of(entry) for entry in numbered]
        with self._lock:
            self._check_end(after)
            self._entries.extend(rows)
        return numbered

    def compact(self, snapshot: Entry, settled: Sequence[Settled], *, after: int) -> Entry:
        numbered = replace(snapshot, seq=after + 1)
        row, history = row_of(numbered), [row_of(each) for each in settled]
        with self._lock:
            self._check_end(after)
            for each in history:
                self._settled.setdefault(each["plan"], each)
            self._entries = [row]
        return numbered

    def history(self) -> Iterator[Settled]:
        with self._lock:
            rows = list(self._settled.values())
        return map(settled_of, rows)

    @property
    def place(self) -> str:
        return "memory"

    def _check_end(self, after: int) -> None:
        last = self._entries[-1]["seq"] if self._entries else 0
        if last != after:
            raise Conflict(f"The ledger's last entry is {last}, and {after} was expected.")
