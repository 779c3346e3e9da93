"""A Delta table that a stage asks, as it was when the batch was planned."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from origins.batch import JSON
from origins.errors import WherryError
from origins.names import SCHEME, TABLE, no_such_table, quoted

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_NO_DELTA = ("DELTA_TABLE_ONLY_OPERATION", "PATH_NOT_FOUND")
"""How Spark says that what is there is no Delta table, or that files of it are gone."""


class TableError(WherryError):
    """A table that a stage asks is not there, or is none that can be asked."""

    code = "TABLE"


@dataclass(frozen=True, kw_only=True)
class PinnedTable:
    """A Delta table, by its `path` or by its name as `table`."""

    path: str | None = field(default=None, metadata={"path": True})
    """Where the table lies; relative to the definition."""
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
        return f"delta.{quoted(self.path if SCHEME.match(self.path) else os.path.abspath(self.path))}"

    def version(self, spark: SparkSession) -> JSON:
        """Its newest version. Raises `TableError` when there is no such table."""
        from pyspark.errors import AnalysisException

        try:
            newest = spark.sql(f"DESCRIBE HISTORY {self._sql_name} LIMIT 1").select("version").collect()
        except AnalysisException as error:
            raise self._unusable(error) from error
        return {"version": newest[0]["version"]} if newest else None

    def rows(self, spark: SparkSession, pin: JSON) -> DataFrame | None:
        """Its rows at the version that was pinned, or as it is now; None when there is no such table and nothing was
        pinned."""
        from pyspark.errors import AnalysisException

        at = f" VERSION AS OF {int(pin['version'])}" if pin else ""
        try:
            rows = spark.sql(f"SELECT * FROM {self._sql_name}{at}")
            rows.schema  # noqa: B018 -- on Spark Connect it is the schema that analyses
        except AnalysisException as error:
            if not pin and _cannot_be_asked(error):
                return None
            raise self._unusable(error, at) from error
        return rows

    def missing(self) -> TableError:
        """What to say where the table is needed and is not there."""
        return TableError(f"There is no Delta table {self.place}.", hint="Put it back, or name another one.")

    def _unusable(self, error: Exception, at: str = "") -> TableError:
        if _cannot_be_asked(error):
            return self.missing()
        why = re.sub(r"\s*SQLSTATE: \w+.*$", "", str(error).splitlines()[0])
        return TableError(
            f"{self.place}{at.lower()} cannot be asked: {why}",
            hint="What is asked is a Delta table, whose version can be pinned; a stage sql can join any other.",
        )


def _cannot_be_asked(error: Exception) -> bool:
    return no_such_table(error) or any(condition in str(error) for condition in _NO_DELTA)
