"""The ways in which rows are appended to a Delta table, the cheapest first, and the MERGE. Each is one commit with
the tag."""

from __future__ import annotations

import contextlib
import json
import uuid
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import cached_property
from typing import TYPE_CHECKING

from destinations.delta.data_files import AdoptableFiles
from destinations.delta.direct_append import DirectWrite, collect_arrow
from destinations.delta.direct_commit import Overwritten
from destinations.delta.log import make_tag
from destinations.delta.options import DeltaOptions
from destinations.delta.table import TargetTable
from destinations.destination import Deadline, DestinationError, Label, Late, Written
from origins.batch_rows import BatchRows
from origins.crash_points import reach_within
from origins.errors import has_condition, list_spark_errors
from origins.names import HIDDEN, quote_name
from origins.quick_dataclass import dataclass

if TYPE_CHECKING:
    import pyarrow
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


def merge_rows(delta: DeltaOptions, rows: DataFrame, tag: str) -> None:
    """Merge the rows into the table, in a commit that carries the tag.

    Nobody else may write in the rows' session meanwhile: its configuration says what the commit carries.
    """
    from pyspark.sql import functions as F

    spark, view = rows.sparkSession, f"{HIDDEN}{uuid.uuid4().hex}"
    names = delta.select_written_columns(rows.schema).names
    deletes = F.coalesce(F.expr(delta.apply_as_deletes or "false"), F.lit(False)).alias(_DELETES)
    rows.select(*[F.col(quote_name(name)) for name in names], deletes).createOrReplaceTempView(view)
    try:
        with _tag_commits(spark, tag):
            spark.sql(_format_merge(delta, names, view)).collect()
    finally:
        spark.catalog.dropTempView(view)


def _format_merge(delta: DeltaOptions, names: Sequence[str], source: str) -> str:
    keys = {key.lower() for key in delta.keys}
    same = " AND ".join(f"{_THERE}.{quote_name(key)} = {_HERE}.{quote_name(key)}" for key in delta.keys)
    newer = ""
    if delta.sequence_by is not None:
        own, its = (f"{side}.{quote_name(delta.sequence_by)}" for side in (_HERE, _THERE))
        newer = f" AND ({its} IS NULL OR {own} >= {its})"
    listed = ", ".join(map(quote_name, names))
    values = ", ".join(f"{_HERE}.{quote_name(name)}" for name in names)
    changed = [quote_name(name) for name in names if name.lower() not in keys]
    changes = ", ".join(f"{name} = {_HERE}.{name}" for name in changed)
    clauses = [f"MERGE INTO {delta.sql_name} AS {_THERE} USING {source} AS {_HERE} ON {same}"]
    if delta.apply_as_deletes is not None:
        clauses.append(f"WHEN MATCHED AND {_HERE}.{_DELETES}{newer} THEN DELETE")
    if changes:
        clauses.append(f"WHEN MATCHED AND NOT {_HERE}.{_DELETES}{newer} THEN UPDATE SET {changes}")
    clauses.append(f"WHEN NOT MATCHED AND NOT {_HERE}.{_DELETES} THEN INSERT ({listed}) VALUES ({values})")
    return " ".join(clauses)


def commit_persistently(commit: Callable[[], None], landed: Callable[[], bool]) -> None:
    """Commit, and again when others' commits got in between, unless it turns out to have landed all the same."""
    for left in reversed(range(TRIES)):
        try:
            return commit()
        except list_spark_errors() as error:
            if not left or not has_condition(error, *_CONFLICTS):
                raise
            if landed():
                return None
    raise AssertionError("the last try returns or raises")


@contextlib.contextmanager
def _tag_commits(spark: SparkSession, tag: str) -> Iterator[None]:
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


@dataclass(frozen=True, kw_only=True)
class PendingAppend:
    """Rows that are to be added to a table, and what their commit says."""

    spark: SparkSession
    table: TargetTable
    rows: BatchRows
    labels: Sequence[Label]
    shared: bool = False
    """Whether other runs write the table at the same time."""

    @property
    def key(self) -> str:
        return self.labels[0].key

    @property
    def tag(self) -> str:
        return make_tag(self.labels)

    @property
    def instead(self) -> str:
        """The condition for the rows that make room for these; empty where none do."""
        first = self.labels[0]
        return first.batch.instead.get(first.destination, "")

    @property
    def deadline(self) -> Deadline | None:
        return self.labels[0].deadline

    @cached_property
    def frame(self) -> DataFrame:
        """The rows as Spark reads them."""
        return self.rows.frame()

    @property
    def fits_here(self) -> bool:
        """Whether this process can commit rows of these columns."""
        return self.short is not None and self.short.can_take(json.loads(self.frame.schema.json()))

    def guard_rows(self) -> AbstractContextManager[DataFrame]:
        """The rows as Spark reads them. Their write raises `Late` where it begins too late."""
        return nullcontext(self.frame) if self.deadline is None else self.deadline.guard_rows(self.frame)

    @cached_property
    def adoptable(self) -> AdoptableFiles | None:
        """The files that have the rows, if the table can have them as they are."""
        paths = self.rows.files() if self.short is not None else None
        found = AdoptableFiles.of(list(paths.values())) if paths else None
        fits = found is not None and self.short is not None and self.short.can_take(found.columns, spelled=True)
        return found if fits else None

    @cached_property
    def short(self) -> DirectWrite | None:
        """The write that this process commits, which begins when it is first asked for; None where only Spark can."""
        short = self.table.get_direct_table(self.spark)
        return None if short is None else short.begin()


class DeltaWriter(ABC):
    """One way of appending rows. What it declines leaves nothing behind, and goes another way."""

    @abstractmethod
    def can_take(self, append: PendingAppend) -> bool:
        """Whether the rows can go this way, as far as that shows. Starts no Spark job."""

    @abstractmethod
    def write(self, append: PendingAppend) -> Written | None:
        """Append all rows in one commit, or nothing; None, with nothing written, if they cannot go this way after all.

        Called where `can_take` is true. Raises `Late` if the deadline is over.
        """


@dataclass(frozen=True)
class DirectAppend(DeltaWriter):
    """This process writes the rows as one file, and one more in the table's log."""

    collects: int = 4 << 20
    """Up to so many bytes of a batch, rows that Spark computes are collected."""

    def can_take(self, append: PendingAppend) -> bool:
        from deltalake import Schema

        if append.short is None or append.adoptable is not None:
            return False
        table, size = append.rows.table(), append.rows.size()
        if table is not None:
            return append.short.can_take(json.loads(Schema.from_arrow(table.schema).to_json()))
        is_small = size is not None and size <= self.collects * len(append.labels)
        return is_small and append.fits_here

    def write(self, append: PendingAppend) -> Written | None:
        short, table = append.short, append.rows.table()
        table = collect_arrow(append.frame) if table is None else table
        fitted = None if short is None or table is None else short.fit_rows(table)
        if short is None or fitted is None:
            return None
        if not fitted.num_rows:
            return Written(rows=0)
        return _commit_here(append, lambda check: short.commit(fitted, append.tag, check))


@dataclass(frozen=True)
class FileAppend(DeltaWriter):
    """This process commits files that Spark wrote: those that have the rows already, by a hard link where possible, or
    else new ones."""

    def can_take(self, append: PendingAppend) -> bool:
        if append.short is None:
            return False
        return append.adoptable is not None or (not append.table.is_under_spark and append.fits_here)

    def write(self, append: PendingAppend) -> Written | None:
        short, adoptable = append.short, append.adoptable
        if short is None:
            return None
        if adoptable is None:
            return self._write_new(append, short)
        if not adoptable.rows:
            return Written(rows=0)
        return _commit_here(append, lambda check: short.take(adoptable, append.tag, check))

    def _write_new(self, append: PendingAppend, short: DirectWrite) -> Written | None:
        """Have Spark write the rows as files below the table's place."""
        with append.guard_rows() as rows:
            files = short.write_by_spark(rows)
        if not files:  # Spark commits nothing where there are no rows
            if append.frame.isEmpty():
                return Written(rows=0)
            raise DestinationError(
                f"Spark wrote files for {append.table.location}, and its log does not name them.",
                hint="The table has none of these rows. Run again.",
            )
        return _commit_here(append, lambda check: short.commit_staged(files, append.tag, check), waits=True)


@dataclass(frozen=True)
class SparkAppend(DeltaWriter):
    """Spark writes the rows and commits them."""

    def can_take(self, append: PendingAppend) -> bool:
        return True

    def write(self, append: PendingAppend) -> Written:
        if append.shared and append.table.may_lose_commits(append.spark):
            raise DestinationError(
                f"Only Spark can append these rows to {append.table.location}, and Spark might replace the "
                "commits of the other runs that share its lanes.",
                hint="The destination wrote nothing. Set run.assignment to single; or use a table with plain columns "
                "and without constraints.",
            )
        return commit_by_spark(append, lambda rows: append.table.append(rows, append.tag))


def commit_by_spark(append: PendingAppend, commit: Callable[[DataFrame], None]) -> Written:
    """Have Spark do this with the rows, and again when other commits got in between; what it left in the table."""
    table = append.table

    def attempt() -> None:
        with append.guard_rows() as timed:
            commit(reach_within("in-write", timed, append.labels[0].destination))

    with table.hold_commits():
        before = table.version
        commit_persistently(attempt, lambda: table.find_written(append.spark, append.key, before).version is not None)
    return table.find_written(append.spark, append.key, before)


def _commit_here(
    append: PendingAppend, commit: Callable[[Callable[[], None]], Written], *, waits: bool = False
) -> Written | None:
    """Commit without Spark; None where a thread of this process commits through Spark, unless this `waits` for it.
    Whether it landed, if it raises, the table's log says."""
    table, before, deadline = append.table, append.table.version, append.deadline
    with table.hold_apart(waits=waits) as held:
        if not held:
            return None
        try:
            written = commit(deadline.check if deadline else lambda: None)
        except (Late, Overwritten):
            raise
        except Exception:
            written = table.find_written(append.spark, append.key, before)
            if written.version is None:
                raise
    table.version = max(table.version, written.version or 0)
    return written


WRITERS: Sequence[DeltaWriter] = (DirectAppend(), FileAppend(), SparkAppend())
"""In the order in which they are asked; the last one takes everything."""


def append_rows(append: PendingAppend) -> Written:
    for writer in WRITERS:
        written = writer.write(append) if writer.can_take(append) else None
        if written is not None:
            return written
    raise AssertionError("the last writer accepts every batch")


@dataclass(frozen=True)
class RowsWithText(BatchRows):
    """Rows with one more column, which has this text in each of them."""

    rows: BatchRows
    column: str
    text: str

    def frame(self) -> DataFrame:
        return self._frame

    def table(self) -> pyarrow.Table | None:
        return self._table

    def count(self) -> int | None:
        return self.rows.count()

    def size(self) -> int | None:
        return self.rows.size()

    @cached_property
    def _frame(self) -> DataFrame:
        from pyspark.sql import functions as F

        return self.rows.frame().withColumn(self.column, F.lit(self.text))

    @cached_property
    def _table(self) -> pyarrow.Table | None:
        import pyarrow as pa

        table = self.rows.table()
        if table is None:
            return None
        return table.append_column(self.column, pa.repeat(pa.scalar(self.text, pa.string()), table.num_rows))
