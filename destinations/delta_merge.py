"""A merge of rows into a Delta table, as one statement; and what is tried again when somebody else got in between."""

from __future__ import annotations

import contextlib
import uuid
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from origins.names import HIDDEN, quoted

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

TRIES = 5
"""How often a commit is tried that meets commits of others."""
_CONFLICTS = (
    "DELTA_CONCURRENT_APPEND",
    "DELTA_CONCURRENT_DELETE_DELETE",
    "DELTA_CONCURRENT_DELETE_READ",
    "DELTA_CONCURRENT_TRANSACTION",
    "DELTA_CONCURRENT_WRITE",
)
"""How Delta says that others' rows got in between. A change of metadata is no such thing: it may be a fence."""

_TAG = "spark.databricks.delta.commitInfo.userMetadata"
_THERE = HIDDEN + "there"
_HERE = HIDDEN + "here"
_DELETES = HIDDEN + "deletes"


@dataclass(frozen=True, kw_only=True)
class Merge:
    """What becomes of a row whose keys the table has, and of one whose keys it has not."""

    keys: Sequence[str]
    sequence_by: str | None = None
    deletes: str | None = None
    """The condition under which a row takes away what it finds."""

    def run(self, rows: DataFrame, names: Sequence[str], table: str, tag: str) -> None:
        """Merge these columns of the rows into the table, in a commit that carries the tag.

        Nobody else may write in the rows' session meanwhile: its configuration says what the commit carries.
        """
        from pyspark.sql import functions as F

        spark, view = rows.sparkSession, f"{HIDDEN}{uuid.uuid4().hex}"
        deletes = F.coalesce(F.expr(self.deletes or "false"), F.lit(False)).alias(_DELETES)
        rows.select(*[F.col(quoted(name)) for name in names], deletes).createOrReplaceTempView(view)
        try:
            with _tagged(spark, tag):
                spark.sql(self.statement(names, table, view)).collect()
        finally:
            spark.catalog.dropTempView(view)

    def statement(self, names: Sequence[str], table: str, source: str) -> str:
        """The merge in SQL."""
        keys = {key.lower() for key in self.keys}
        same = " AND ".join(f"{_THERE}.{quoted(key)} = {_HERE}.{quoted(key)}" for key in self.keys)
        newer = ""
        if self.sequence_by is not None:
            own, its = (f"{side}.{quoted(self.sequence_by)}" for side in (_HERE, _THERE))
            newer = f" AND ({its} IS NULL OR {own} >= {its})"
        changes = ", ".join(f"{quoted(name)} = {_HERE}.{quoted(name)}" for name in names if name.lower() not in keys)
        values = ", ".join(f"{_HERE}.{quoted(name)}" for name in names)
        clauses = [f"MERGE INTO {table} AS {_THERE} USING {source} AS {_HERE} ON {same}"]
        if self.deletes is not None:
            clauses.append(f"WHEN MATCHED AND {_HERE}.{_DELETES}{newer} THEN DELETE")
        if changes:
            clauses.append(f"WHEN MATCHED AND NOT {_HERE}.{_DELETES}{newer} THEN UPDATE SET {changes}")
        listed = ", ".join(map(quoted, names))
        clauses.append(f"WHEN NOT MATCHED AND NOT {_HERE}.{_DELETES} THEN INSERT ({listed}) VALUES ({values})")
        return " ".join(clauses)


def insisting(commit: Callable[[], None], landed: Callable[[], bool]) -> None:
    """Commit, and again when others' commits got in between, unless it turns out to have landed all the same."""
    for left in reversed(range(TRIES)):
        try:
            return commit()
        except Exception as error:
            if not left or not any(sign in str(error) for sign in _CONFLICTS):
                raise
            if landed():
                return None
    raise AssertionError("the last try returns or raises")


@contextlib.contextmanager
def _tagged(spark: SparkSession, tag: str) -> Iterator[None]:
    """What this session commits in here carries the tag."""
    before = spark.conf.get(_TAG, None)
    spark.conf.set(_TAG, tag)
    try:
        yield
    finally:
        if before is None:
            spark.conf.unset(_TAG)
        else:
            spark.conf.set(_TAG, before)
