"""The ledger as a Delta table of a catalog, written through Spark: wherever Spark can write, some 0.3 s a commit."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from runners.ledgers.bodies import apart, together
from runners.ledgers.catalog_table import CatalogTable, in_sql
from runners.ledgers.entry import Entry, Settled
from runners.ledgers.landing import land
from runners.ledgers.ledger import Ledger, LedgerError
from runners.ledgers.ledger_rows import BODIES, ENTRIES, SETTLED, Row, entries_of, row_of, settled_of
from runners.ledgers.tidying import tidy

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class SparkLedger(Ledger):
    """The entries in `table`, the history in `<table>_history`, large bodies in `<table>_bodies`; on both Sparks.

    Any number of sessions may append where the storage keeps two commits apart; on a local disk those of one JVM.
    """

    def __init__(self, spark: SparkSession, table: str) -> None:
        self._entries = CatalogTable(spark, in_sql(table), ENTRIES)
        self._settled = CatalogTable(spark, in_sql(table, "_history"), SETTLED)
        self._bodies = CatalogTable(spark, in_sql(table, "_bodies"), BODIES)
        self._table = table

    def read(self, after: int = 0) -> list[Entry]:
        return self._look(after)[0]

    def append(self, entries: Sequence[Entry], *, after: int) -> list[Entry]:
        def commit(numbered: Sequence[Entry]) -> None:
            self._commit(numbered, after)

        return land(entries, after=after, fresh=True, look=self._look, commit=commit)

    def compact(self, snapshot: Entry, settled: Sequence[Settled], *, after: int) -> Entry:
        def commit(numbered: Sequence[Entry]) -> None:
            self._remember(settled)
            self._commit(numbered, after, instead=True)

        (landed,) = land([snapshot], after=after, fresh=False, look=self._look, commit=commit)
        tidy(self._entries, self._settled, self._bodies, first=landed.seq)
        return landed

    def history(self) -> Iterator[Settled]:
        return map(settled_of, self._settled.rows("true"))

    @property
    def place(self) -> str:
        return self._table

    def _look(self, after: int) -> tuple[list[Entry], int]:
        rows = self._rows(after)
        try:
            later = entries_of(self.place, together(self.place, rows, self._bodies.rows))
        except LedgerError:
            if self._rows(after) == rows:
                raise
            return self._look(after)  # what was missing was compacted away while it was read
        return later, later[-1].seq if later else self._entries.highest("seq")

    def _rows(self, after: int) -> list[Row]:
        return sorted(self._entries.rows(f"seq > {int(after)}"), key=lambda row: row["seq"])

    def _commit(self, entries: Sequence[Entry], after: int, *, instead: bool = False) -> None:
        """The large bodies first, so that no entry is there without its own."""
        rows, bodies = apart([row_of(entry) for entry in entries])
        if bodies:
            self._bodies.commit(bodies, "true")
        self._entries.commit(rows, self._last_is(after), instead=instead)

    def _last_is(self, after: int) -> str:
        last = f"(SELECT coalesce(max(seq), 0) FROM {self._entries.name})"
        return f"if({last} = {int(after)}, true, cast(raise_error('the last entry is another one') AS boolean))"

    def _remember(self, settled: Sequence[Settled]) -> None:
        """Put them into the history, but for those that it has. Those lie near by their numbers."""
        if settled:
            numbers = [each.number for each in settled]
            near = f"SELECT plan FROM {self._settled.name} WHERE number BETWEEN {min(numbers)} AND {max(numbers)}"
            rows = {each.plan: row_of(each) for each in settled}
            self._settled.commit(list(rows.values()), f"plan NOT IN ({near})")
