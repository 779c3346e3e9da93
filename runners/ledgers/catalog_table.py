"""A Delta table of a catalog, through Spark; every commit fails if what its condition read has changed meanwhile."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import TYPE_CHECKING

from origins.names import quoted
from runners.causes import forgotten
from runners.ledgers.ledger import LedgerError
from runners.ledgers.ledger_rows import ENTRIES, Columns, Row, check_format, columns_of, not_ours
from runners.ledgers.tidying import KEPT_DAYS
from runners.reconnecting import reconnect
from runners.session import in_short

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

PROPERTIES = {
    "delta.isolationLevel": "Serializable",
    "delta.checkpointInterval": "100",
    "delta.dataSkippingNumIndexedCols": "1",
    "delta.deletedFileRetentionDuration": f"interval {KEPT_DAYS} days",
    "delta.logRetentionDuration": "interval 7 days",
}
"""Serializable is what makes a condition hold up to the commit; nothing is removed for seven days."""

_TYPES = {"long": "bigint", "integer": "int", "string": "string"}


class CatalogTable:
    """The table, made by its first commit. For any number of threads."""

    def __init__(self, spark: SparkSession, name: str, columns: Columns) -> None:
        self.spark = spark
        self.name = name
        """As it stands in SQL: `in_sql`."""
        self.columns = columns
        self._there = False

    def rows(self, condition: str) -> list[Row]:
        """The rows for which the condition holds, in no order. Raises `LedgerError` if it is not one of our tables."""
        try:
            table = self._table()
            return [] if table is None else [row.asDict() for row in table.filter(condition).collect()]
        except LedgerError:
            raise
        except Exception as error:  # Spark's errors have no common type on its two clients
            if forgotten(error):
                reconnect(self.spark)
                return self.rows(condition)
            raise LedgerError(f"The ledger {self.name} cannot be read: {in_short(error)}.") from error

    def highest(self, column: str) -> int:
        """The highest value of a column; 0 where there are no rows."""
        found = self.rows(f"{column} = (SELECT max({column}) FROM {self.name})") if self._exists() else []
        return max((row[column] for row in found), default=0)

    def commit(self, rows: Sequence[Row], condition: str, *, instead: bool = False) -> None:
        """Add those of the rows for which the condition holds, or put them in the place of all others.

        What the condition reads of this table is as it reads it until the commit has landed. Makes the table if it is
        missing. Raises `LedgerError` unless it landed for sure: then look.
        """
        from pyspark.sql import functions as F

        try:
            self._make()
            writer = self._frame(rows).filter(F.expr(condition)).writeTo(self.name)
            writer.overwrite(F.lit(True)) if instead else writer.append()
        except Exception as error:  # whatever it was, it may have landed
            if forgotten(error):
                reconnect(self.spark)
            raise LedgerError(
                f"The ledger {self.name} cannot be written: {in_short(error)}.",
                hint="May this user write there? What it holds is whole, and a later run goes on.",
            ) from error

    def remove(self, condition: str) -> None:
        """Remove the rows for which the condition holds."""
        if self._exists():
            self.spark.sql(f"DELETE FROM {self.name} WHERE {condition}").collect()

    def files(self) -> int:
        """How many files the table has."""
        return int(self.spark.sql(f"DESCRIBE DETAIL {self.name}").collect()[0]["numFiles"]) if self._exists() else 0

    def optimize(self) -> None:
        """Put small files together."""
        self.spark.sql(f"OPTIMIZE {self.name}").collect()

    def vacuum(self) -> None:
        """Remove files that have not been part of the table for seven days."""
        self.spark.sql(f"VACUUM {self.name}").collect()

    def _frame(self, rows: Sequence[Row]) -> DataFrame:
        """The rows, which travel as one literal: nothing in them is read as SQL, and no Python worker is started."""
        from pyspark.sql import functions as F

        fields = ",".join(f"{name}:{_TYPES[kind]}" for name, kind in self.columns.items())
        return self.spark.range(0, 1, 1, 1).select(
            F.inline(F.from_json(F.lit(json.dumps(rows)), f"array<struct<{fields}>>"))
        )

    def _table(self) -> DataFrame | None:
        if not self._exists():
            return None
        table = self.spark.read.table(self.name)
        found = columns_of(table.schema.json())
        if found != self.columns:
            if found.get("format") == ENTRIES["format"]:
                check_format(
                    self.name, max((row["format"] or 0 for row in table.select("format").collect()), default=0)
                )
            raise not_ours(self.name, self.columns, found)
        return table

    def _exists(self) -> bool:
        self._there = self._there or self.spark.catalog.tableExists(self.name)
        return self._there

    def _make(self) -> None:
        if not self._exists():
            columns = ", ".join(f"{name} {_TYPES[kind]}" for name, kind in self.columns.items())
            properties = ", ".join(f"'{key}' = '{value}'" for key, value in PROPERTIES.items())
            self.spark.sql(
                f"CREATE TABLE IF NOT EXISTS {self.name} ({columns}) USING delta TBLPROPERTIES ({properties})"
            )
            self._there = True


def in_sql(name: str, ending: str = "") -> str:
    """A table's name, of one to three parts, with every part quoted, and an ending put to the last."""
    parts = [part[1:-1].replace("``", "`") if part[0] == "`" else part for part in re.findall(_PART, name)]
    return ".".join(map(quoted, [*parts[:-1], parts[-1] + ending]))


_PART = re.compile(r"`(?:[^`]|``)+`|[^.`]+")
