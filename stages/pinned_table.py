"""A Delta table that a stage asks, as it was when the batch was planned, and the keys by which its rows are found."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import field
from typing import TYPE_CHECKING

from origins.batch import JSON
from origins.errors import WherryError, has_condition
from origins.lazy import T, spark_errors
from origins.names import TABLE, is_no_such_table, make_absolute, quote_name
from origins.quick_dataclass import dataclass
from stages.expressions import suggest_name
from stages.ordering import can_be_ordered
from stages.stage import check_columns

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from stages.rows import Rows


_NO_DELTA = ("DELTA_TABLE_ONLY_OPERATION", "PATH_NOT_FOUND")
"""How Spark says that what is there is no Delta table, or that files of it are gone."""


class TableError(WherryError):
    """A table that a stage asks is not there, or is none that can be asked."""

    code = "TABLE"


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
        """The table as a person would name it."""
        return self.table or self.path or ""

    @property
    def _sql_name(self) -> str:
        if self.path is None:
            return self.table or ""
        return f"delta.{quote_name(make_absolute(self.path))}"

    def find_version(self, spark: SparkSession) -> JSON:
        """Its newest version. Raises `TableError` when there is no such table."""
        try:
            newest = spark.sql(f"DESCRIBE HISTORY {self._sql_name} LIMIT 1").select("version").collect()
        except spark_errors.AnalysisException as error:
            raise self._unusable_error(error) from error
        return {"version": newest[0]["version"]} if newest else None

    def read_rows(self, spark: SparkSession, pin: JSON) -> DataFrame | None:
        """Its rows at the version that was pinned, or as it is now; None when there is no such table and nothing was
        pinned."""
        at = f" VERSION AS OF {int(pin['version'])}" if pin else ""
        try:
            rows = spark.sql(f"SELECT * FROM {self._sql_name}{at}")
            rows.schema  # noqa: B018 -- on Spark Connect it is the schema that analyses
        except spark_errors.AnalysisException as error:
            if not pin and _is_unusable(error):
                return None
            raise self._unusable_error(error, at) from error
        return rows

    def make_missing_error(self) -> TableError:
        """What to say where the table is needed and is not there."""
        return TableError(f"The Delta table {self.place} was not found.", hint="Put it back, or correct the name.")

    def _unusable_error(self, error: Exception, at: str = "") -> TableError:
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
    """The keys as the rows spell them. Raises ValueError for a column that is none."""
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
    """The column as the table spells it. Raises ValueError, with the nearest, when it has none."""
    names = {own.lower(): own for own in table.names}
    if name.lower() not in names:
        raise ValueError(f"{place} has no column '{name}'; {suggest_name(name, table.names)}")
    return names[name.lower()]


def match_keys(on: Mapping[str, str], rows: Rows, table: T.StructType, place: str) -> Mapping[str, str]:
    """The keys as the rows spell them, each with the column of the table that it meets. Raises ValueError for two
    that cannot meet."""
    met = dict(zip(spell_keys(on, rows), [find_column(theirs, table, place) for theirs in on.values()], strict=True))
    for own, theirs in met.items():
        one, other = rows.schema[own].dataType, table[theirs].dataType
        alike = (T.NumericType, (T.StringType, T.CharType, T.VarcharType))
        if one != other and not any(isinstance(one, kinds) and isinstance(other, kinds) for kinds in alike):
            message = f"column {own} is {one.simpleString()}, and {theirs} of {place} is {other.simpleString()}"
            raise ValueError(f"{message}; cast it before")
    return met
