"""A Delta table that a stage reads at the version of the batch's plan, and the keys that find its rows."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from origins.batch import JSON
from origins.errors import WherryError, has_condition
from origins.lazy import DataFrame, SparkSession, T, spark_errors
from origins.names import TABLE, is_no_such_table, make_absolute, quote_name
from origins.problems import refuse_unknown
from stages.expressions import suggest_name
from stages.rows import Rows, can_be_ordered
from stages.stage import check_columns

_NO_DELTA = ("DELTA_TABLE_ONLY_OPERATION", "PATH_NOT_FOUND")
"""Spark's conditions for a place that is not a Delta table, or whose files are missing."""


class TableError(WherryError):
    """A table that a stage reads is missing, or cannot be read."""

    code = "TABLE"


@refuse_unknown
@dataclass(frozen=True, kw_only=True)
class PinnedTable:
    """A Delta table, by its `path` or by its name as `table`."""

    path: str | None = field(default=None, metadata={"path": True})
    """The path of the table; relative to the definition."""
    table: str | None = field(default=None, metadata={"like": "main.shop.customers"})
    """Its name in a catalog; this or `path`."""

    def __post_init__(self) -> None:
        if bool(self.path) == bool(self.table):
            raise ValueError("path: expected either path or table, got " + ("both" if self.path else "neither"))
        if self.table and not TABLE.fullmatch(self.table):
            raise ValueError(f"table: expected a name such as catalog.schema.table, got {self.table!r}")

    @property
    def place(self) -> str:
        """Return the table's name for a person."""
        return self.table or self.path or ""

    @property
    def _sql_name(self) -> str:
        if self.path is None:
            return self.table or ""
        return f"delta.{quote_name(make_absolute(self.path))}"

    def find_version(self, spark: SparkSession) -> JSON:
        """Return its newest version. Raise `TableError` if the table does not exist."""
        try:
            newest = spark.sql(f"DESCRIBE HISTORY {self._sql_name} LIMIT 1").select("version").collect()
        except spark_errors.AnalysisException as error:
            raise self._make_unusable_error(error) from error
        return {"version": newest[0]["version"]} if newest else None

    def read_rows(self, spark: SparkSession, pin: JSON) -> DataFrame | None:
        """Return its rows at the pinned version, or now without a pin.

        Return None without a pin if the table does not exist.
        """
        at = f" VERSION AS OF {int(pin['version'])}" if pin else ""
        try:
            rows = spark.sql(f"SELECT * FROM {self._sql_name}{at}")
            rows.schema  # noqa: B018 -- on Spark Connect the query is analysed only when its schema is read
        except spark_errors.AnalysisException as error:
            if not pin and _is_unusable(error):
                return None
            raise self._make_unusable_error(error, at) from error
        return rows

    def make_missing_error(self) -> TableError:
        """Return the error for a table that is needed and missing."""
        return TableError(f"The Delta table {self.place} was not found.", hint="Put it back, or correct the name.")

    def _make_unusable_error(self, error: Exception, at: str = "") -> TableError:
        if _is_unusable(error):
            return self.make_missing_error()
        why = re.sub(r"\s*SQLSTATE: \w+.*$", "", str(error).splitlines()[0])
        return TableError(
            f"{self.place}{at.lower()} cannot be read: {why}",
            hint="This stage needs a Delta table, since it reads one version. The stage sql can join other tables.",
        )


def _is_unusable(error: Exception) -> bool:
    return is_no_such_table(error) or has_condition(error, *_NO_DELTA)


def spell_keys(keys: Iterable[str], rows: Rows) -> list[str]:
    """Return the keys as the rows spell them. Raise ValueError for a name that is not a column."""
    keys = list(keys)
    check_columns(keys, rows)
    spelled = [rows.spell_name(key) for key in keys]
    for key in spelled:
        kind = rows.schema[key].dataType
        if not can_be_ordered(kind):
            raise ValueError(
                f"column {key} is {kind.simpleString()}, and values of that type are never equal; choose another key"
            )
    return spelled


def find_column(name: str, table: T.StructType, place: str) -> str:
    """Return the column as the table spells it. Raise ValueError, with the nearest name, if the table has none."""
    names = {own.lower(): own for own in table.names}
    if name.lower() not in names:
        raise ValueError(f"{place} has no column '{name}'; {suggest_name(name, table.names)}")
    return names[name.lower()]


def match_keys(on: Mapping[str, str], rows: Rows, table: T.StructType, place: str) -> Mapping[str, str]:
    """Return the keys as the rows spell them, each with the matching column of the table.

    Raise ValueError for two columns whose types cannot be compared.
    """
    met = dict(zip(spell_keys(on, rows), [find_column(theirs, table, place) for theirs in on.values()], strict=True))
    for own, theirs in met.items():
        one, other = rows.schema[own].dataType, table[theirs].dataType
        alike = (T.NumericType, (T.StringType, T.CharType, T.VarcharType))
        if one != other and not any(isinstance(one, kinds) and isinstance(other, kinds) for kinds in alike):
            message = f"column {own} is {one.simpleString()}, and {theirs} of {place} is {other.simpleString()}"
            raise ValueError(f"{message}; cast it before")
    return met
