"""A ledger in memory, for tests and for pipelines that keep no state."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from dataclasses import replace

from runners.model.entry import Entry, Settled
from runners.state.ledger import Conflict, Ledger, Row, to_entries, to_row, to_settled


class MemoryLedger(Ledger):
    """A ledger for all threads of this process that share the object. It ends with the process."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._entries: list[Row] = []
        self._settled: dict[str, Row] = {}

    def read(self, after: int = 0) -> list[Entry]:
        with self._lock:
            rows = [row for row in self._entries if row["seq"] > after]
        return to_entries(self.place, rows)

    def append(self, entries: Sequence[Entry], *, after: int) -> list[Entry]:
        numbered = [replace(entry, seq=seq) for seq, entry in enumerate(entries, after + 1)]
        rows = [to_row(entry) for entry in numbered]
        with self._lock:
            self._check_end(after)
            self._entries.extend(rows)
        return numbered

    def compact(self, snapshot: Entry, settled: Sequence[Settled], *, after: int) -> Entry:
        numbered = replace(snapshot, seq=after + 1)
        row, history = to_row(numbered), [to_row(each) for each in settled]
        with self._lock:
            self._check_end(after)
            for each in history:
                self._settled.setdefault(each["plan"], each)
            self._entries = [row]
        return numbered

    def history(self, since: str = "") -> Iterator[Settled]:
        with self._lock:
            rows = [row for row in self._settled.values() if row["at"] >= since]
        return (to_settled(self.place, row) for row in rows)

    @property
    def place(self) -> str:
        return "memory"

    def _check_end(self, after: int) -> None:
        last = self._entries[-1]["seq"] if self._entries else 0
        if last != after:
            raise Conflict(f"The ledger's last entry is {last}, and {after} was expected.")
