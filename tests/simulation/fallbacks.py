"""A world whose DLQ is sometimes down, with a fallback and merges that may die."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any, Literal, TypeAlias

from destinations.delta import Delta
from destinations.dlq import DLQ, FALLBACK, Dlq
from runners.model.entry import Entry
from runners.state.journal import Journal
from tests.simulation.world import Broken, Commit, Table, Transaction, World

Kind: TypeAlias = Literal["table", "folder", "sink"]
"""A table may get the rows of a batch twice. A folder gets them once. A sink has no memory and cannot be fenced."""
WITH_FALLBACK = Dlq(window=0, on_failure="fallback", fallback=Delta(path="/refused"))


class FallbackWorld(World):
    """A world in which refused rows may wait in the fallback until they are merged."""

    def __init__(
        self,
        rng: random.Random,
        *,
        outages: int = 3,
        fences: bool = True,
        asks: bool = True,
        kind: Kind = "table",
        **shape: Any,
    ) -> None:
        super().__init__(rng, dlq=WITH_FALLBACK, **shape)
        self.short: list[str] = []
        """The batches for which a merge did not find exactly the waiting rows."""
        self.tables[FALLBACK] = Table(once=kind == "folder", forgets=kind == "sink")
        self.opened = {"destinations": {FALLBACK: {"place": "", "id": "", "version": 0}}}
        self.outages = outages
        """How many more times the DLQ goes down."""
        self.down = False
        self.fences = fences
        """Whether a merge fences the DLQ first."""
        self.asks = asks
        """Whether a merge asks the DLQ which rows it has."""

    def check_dlq(self, name: str, key: str = "", rows: Sequence[int] = ()) -> None:
        if name != DLQ:
            return
        if self.down:
            self.down = self.rng.random() < 0.7
        elif self.outages and self.rng.random() < 0.3:
            self.outages -= 1
            self.down = True
        if self.down:
            if key and not self.retries and self.rng.random() < 0.3:  # with a retry, the same run fences it
                table = self.tables[DLQ]
                self.orphans.append(Transaction(table, Commit(key, list(rows)), table.fences))
            raise Broken("the DLQ is down")

    def _the_rest_is_done(self) -> bool:
        """Merge three times, while late writes land. Each merge except the last may die at any moment."""
        while self.taken_over:
            self._thaw()
        for last in (False, False, True):
            self.merge(may_die=not last)
            if self.orphans and self.rng.random() < 0.5:
                self._orphan_ends()
        return super()._the_rest_is_done()

    def _orphan_ends(self) -> None:
        """Let few late writes land now, so that some land after a merge."""
        if self.rng.random() < 0.1:
            super()._orphan_ends()

    def merge(self, *, may_die: bool) -> None:
        """Merge as `FallbackMerge` does."""
        journal, dlq = Journal(self.ledger), self.tables[DLQ]
        dlq.fences += self.fences
        for plan in journal.state.fallen:
            own, waiting = f"{plan}/{DLQ}", f"{plan}/{FALLBACK}"
            rows = {row for commit in self.tables[FALLBACK].commits if commit.key == waiting for row in commit.rows}
            there = {row for commit in dlq.commits if commit.key == own for row in commit.rows} if self.asks else set()
            if len(rows) != journal.state.fallen[plan]:
                self.short.append(plan)
            if may_die and self.rng.random() < 0.3:
                return
            dlq.commits.append(Commit(own, sorted(rows - there)))
            if may_die and self.rng.random() < 0.3:
                return
            entry = Entry(kind="merge", plan=plan, body={"plans": [plan], "rows": len(rows)})
            self.ledger.append([entry], after=self.ledger.read()[-1].seq)
