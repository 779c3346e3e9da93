"""The ledger as a Delta table of a catalog, written through Spark.

A commit takes about 0.3 s, wherever Spark can write.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from datetime import datetime, timezone

from origins.errors import list_spark_errors
from origins.lazy import DataFrame, F, SparkSession
from origins.names import is_no_such_table, quote_name
from runners.model.entry import Entry, Settled
from runners.model.error_kinds import classify
from runners.model.text import summarise_error
from runners.spark.session import reconnect
from runners.state.ledger import (
    BODIES,
    ENTRIES,
    MOST,
    SETTLED,
    Columns,
    LedgerError,
    LedgerTable,
    Row,
    TableLedger,
    to_row,
)


class SparkLedger(TableLedger["CatalogTable"]):
    """A ledger with its entries in `table`, its history in `<table>_history`, and large bodies in `<table>_bodies`.

    It works with classic Spark and with Spark Connect. Any number of sessions may append if the storage keeps two
    commits apart. On a local disk, only sessions of one JVM may append.
    """

    def __init__(self, spark: SparkSession, table: str) -> None:
        super().__init__(
            CatalogTable(spark, quote_table(table), ENTRIES),
            CatalogTable(spark, quote_table(table, "_history"), SETTLED),
            CatalogTable(spark, quote_table(table, "_bodies"), BODIES),
        )
        self._table = table

    @property
    def place(self) -> str:
        return self._table

    def read(self, after: int = 0) -> list[Entry]:
        with self._lock:
            return self._read_later(after)

    def _is_fresh(self, after: int) -> bool:
        return True  # the condition of the commit decides

    def _commit(self, rows: Sequence[Row], after: int, *, replaces: bool) -> None:
        last = f"(SELECT coalesce(max(seq), 0) FROM {self._entries.name})"
        is_last = f"if({last} = {int(after)}, true, cast(raise_error('the last entry is another one') AS boolean))"
        self._entries.commit(rows, is_last, replaces=replaces)

    def _commit_bodies(self, rows: Sequence[Row]) -> None:
        self._bodies.commit(rows, "true")

    def _remember(self, settled: Sequence[Settled]) -> None:
        numbers = [batch.number for batch in settled]
        near = f"SELECT plan FROM {self._settled.name} WHERE number BETWEEN {min(numbers)} AND {max(numbers)}"
        rows = {batch.plan: to_row(batch) for batch in settled}
        self._settled.commit(list(rows.values()), f"plan NOT IN ({near})")


PROPERTIES = {
    "delta.isolationLevel": "Serializable",
    "delta.checkpointInterval": "100",
    "delta.dataSkippingNumIndexedCols": "1",
    "delta.deletedFileRetentionDuration": "interval 1 days",
    "delta.logRetentionDuration": "interval 7 days",
}
"""The properties of a ledger's tables in a catalog.

`Serializable` makes a condition hold until the commit. Nothing is removed for a day.
"""

_TYPES = {"long": "bigint", "integer": "int", **{kind: kind for kind in ("string", "double", "timestamp")}}


class CatalogTable(LedgerTable):
    """A table of a catalog. Any number of threads may use it."""

    def __init__(self, spark: SparkSession, name: str, columns: Columns, what: str = "ledger") -> None:
        self.spark = spark
        self.name = self.place = name
        """The table's name in SQL, from `quote_table`."""
        self.columns = columns
        self.what = what
        self._there = self._is_checked = False

    def refresh(self) -> None:
        """Do nothing. Spark reads the newest version each time."""

    def rows(self, first: int = 0, last: int = MOST) -> list[Row]:
        return self._select_rows(f"{next(iter(self.columns))} BETWEEN {int(first)} AND {int(last)}")

    def _select_rows(self, condition: str) -> list[Row]:
        try:
            table = self.spark.read.table(self.name)
            if not self._is_checked:
                self._check(table)
            rows = [row.asDict() for row in table.filter(condition).collect()]
        except LedgerError:
            raise
        except list_spark_errors() as error:
            if is_no_such_table(error):
                return []
            if classify(error).is_session_lost:
                reconnect(self.spark)
                return self._select_rows(condition)
            raise LedgerError(f"The ledger {self.name} cannot be read: {summarise_error(error)}.") from error
        if rows and rows[0].keys() != self.columns.keys():  # another process changed the table
            self._check(table)
        return rows

    def _check(self, table: DataFrame) -> None:
        """Raise `LedgerError` unless it is a table of a ledger."""
        self.check_columns(table.schema.json(), lambda: (row.asDict() for row in table.select("format").collect()))
        self._there = self._is_checked = True

    def find_highest(self, column: str) -> int:
        rows = self._select_rows(f"{column} = (SELECT max({column}) FROM {self.name})")
        return max((row[column] for row in rows), default=0)

    def commit(self, rows: Sequence[Row], condition: str, *, replaces: bool = False) -> None:
        """Add the rows for which the condition holds. With `replaces`, replace all other rows by them.

        What the condition reads of this table cannot change before the commit has landed. Create the table if it is
        missing. Raise `LedgerError` unless the commit surely landed. The caller must then look.
        """
        try:
            self._make()
            writer = self._make_frame(rows).filter(F.expr(condition)).writeTo(self.name)
            writer.overwrite(F.lit(True)) if replaces else writer.append()
        except list_spark_errors() as error:  # after any error, the commit may have landed
            if classify(error).is_session_lost:
                reconnect(self.spark)
            raise LedgerError(
                f"The ledger {self.name} cannot be written: {summarise_error(error)}.",
                hint="Check that this user may write there. The ledger is whole, and a later run continues.",
            ) from error

    def add(self, rows: Sequence[Row]) -> None:
        def append() -> None:
            self._make()
            self._make_frame(rows).writeTo(self.name).append()

        try:
            append()
        except list_spark_errors() as error:
            if not classify(error).is_session_lost:
                raise
            reconnect(self.spark)
            append()

    def _make_frame(self, rows: Sequence[Row]) -> DataFrame:
        kinds = {name: _TYPES[kind] for name, kind in self.columns.items()}
        return make_frame(self.spark, json.dumps(rows, default=datetime.isoformat), kinds)

    def select(self, query: str, *beside: LedgerTable) -> list[Row]:
        return [
            # Spark gives times in this machine's zone, without naming it
            {name: each.astimezone(timezone.utc) if isinstance(each, datetime) else each for name, each in row.items()}
            for row in (found.asDict() for found in self.spark.sql(query).collect())
        ]

    def remove(self, condition: str) -> None:
        if self.exists():
            self.spark.sql(f"DELETE FROM {self.name} WHERE {condition}").collect()

    def count_files(self) -> int:
        return int(self.spark.sql(f"DESCRIBE DETAIL {self.name}").collect()[0]["numFiles"]) if self.exists() else 0

    def optimize(self) -> None:
        self.spark.sql(f"OPTIMIZE {self.name}").collect()

    def vacuum(self) -> None:
        self.spark.sql(f"VACUUM {self.name}").collect()

    def exists(self) -> bool:
        self._there = self._there or self.spark.catalog.tableExists(self.name)
        return self._there

    def _make(self) -> None:
        if not self.exists():
            columns = ", ".join(f"{name} {_TYPES[kind]}" for name, kind in self.columns.items())
            properties = ", ".join(f"'{key}' = '{value}'" for key, value in PROPERTIES.items())
            self.spark.sql(
                f"CREATE TABLE IF NOT EXISTS {self.name} ({columns}) USING delta TBLPROPERTIES ({properties})"
            )
            self._there = True


def make_frame(spark: SparkSession, rows: str, columns: Mapping[str, str]) -> DataFrame:
    """Return the rows, which are a list in JSON, as a frame of these columns.

    They are one literal: nothing in them is read as SQL, and no Python worker starts.
    """
    fields = ",".join(f"{name}:{kind}" for name, kind in columns.items())
    return spark.range(0, 1, 1, 1).select(F.inline(F.from_json(F.lit(rows), f"array<struct<{fields}>>")))


def quote_table(name: str, ending: str = "") -> str:
    """Quote every part of a table's name, which has one to three parts. Append the ending to the last part."""
    parts = [part[1:-1].replace("``", "`") if part[0] == "`" else part for part in re.findall(_PART, name)]
    return ".".join(map(quote_name, [*parts[:-1], parts[-1] + ending]))


_PART = re.compile(r"`(?:[^`]|``)+`|[^.`]+")
