"""The ways to append rows to a Delta table, with the cheapest first, and the MERGE.

Each way makes one commit with the tag.
"""

from __future__ import annotations

import json
import uuid
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import cached_property

from destinations.delta.data_files import AdoptableFiles
from destinations.delta.direct_append import DirectWrite, collect_arrow
from destinations.delta.direct_commit import Overwritten
from destinations.delta.log import format_for_clause, make_tag
from destinations.delta.options import DeltaOptions
from destinations.delta.table import TargetTable
from destinations.destination import DestinationError, Written
from destinations.labels import Deadline, Label, Late
from origins.batch_rows import BatchRows, compute_once
from origins.crash_points import reach_within
from origins.errors import clean_up_by, has_condition, list_spark_errors
from origins.lazy import DataFrame, F, SparkSession, deltalake, pa
from origins.names import HIDDEN, quote_name, quote_text

TRIES = 5
"""How often a commit is tried if commits of other writers conflict with it."""
_CONFLICTS = (
    "DELTA_CONCURRENT_APPEND",
    "DELTA_CONCURRENT_DELETE_DELETE",
    "DELTA_CONCURRENT_DELETE_READ",
    "DELTA_CONCURRENT_TRANSACTION",
    "DELTA_CONCURRENT_WRITE",
)
"""Delta's errors if another writer committed rows at the same time.

A change of metadata is not one, since it may be a fence.
"""

_THERE = HIDDEN + "there"
_HERE = HIDDEN + "here"
_DELETES = HIDDEN + "deletes"


def merge_rows(delta: DeltaOptions, rows: DataFrame, tag: str) -> None:
    """Merge the rows into the table, in a commit with the tag. The condition of a clause carries the tag."""
    spark, view = rows.sparkSession, f"{HIDDEN}{uuid.uuid4().hex}"
    names = delta.select_written_columns(rows.schema).names
    deletes = F.coalesce(F.expr(delta.apply_as_deletes or "false"), F.lit(False)).alias(_DELETES)
    rows.select(*[F.col(quote_name(name)) for name in names], deletes).createOrReplaceTempView(view)
    with clean_up_by(lambda: spark.catalog.dropTempView(view)):
        spark.sql(_format_merge(delta, names, view, tag)).collect()


def _format_merge(delta: DeltaOptions, names: Sequence[str], source: str, tag: str) -> str:
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
    # It is always true, and names a column: Spark removes a condition without columns before Delta records it.
    tagged = f"CAST({_HERE}.{_DELETES} AS STRING) <> {quote_text(format_for_clause(tag))}"
    clauses.append(f"WHEN NOT MATCHED AND NOT {_HERE}.{_DELETES} AND {tagged} THEN INSERT ({listed}) VALUES ({values})")
    return " ".join(clauses)


def commit_persistently(commit: Callable[[], None], has_landed: Callable[[], bool]) -> None:
    """Commit, and try again after a conflict with other commits, unless the first try succeeded after all."""
    for left in reversed(range(TRIES)):
        try:
            return commit()
        except list_spark_errors() as error:
            if not left or not has_condition(error, *_CONFLICTS):
                raise
            if has_landed():
                return None
    raise AssertionError("the last try returns or raises")


@dataclass(frozen=True, kw_only=True)
class PendingAppend:
    """The rows to append to a table, with the labels for their commit."""

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
    def replaces(self) -> str:
        """The condition for the rows that these rows replace; empty if they replace none."""
        first = self.labels[0]
        return first.batch.replaces.get(first.destination, "")

    @property
    def deadline(self) -> Deadline | None:
        return self.labels[0].deadline

    @cached_property
    def frame(self) -> DataFrame:
        """The rows as Spark reads them."""
        return self.rows.frame()

    @property
    def fits_here(self) -> bool:
        """Whether this process can commit rows with these columns."""
        table = self.rows.table()
        columns = self.frame.schema.json() if table is None else deltalake.Schema.from_arrow(table.schema).to_json()
        return self.direct is not None and self.direct.can_take(json.loads(columns))

    def guard_rows(self) -> AbstractContextManager[DataFrame]:
        """Give the rows as Spark reads them. Their write raises `Late` if it begins too late."""
        return nullcontext(self.frame) if self.deadline is None else self.deadline.guard_rows(self.frame)

    @cached_property
    def adoptable(self) -> AdoptableFiles | None:
        """The files that already have the rows, if the table can take them unchanged; else None."""
        paths = self.rows.files() if self.direct is not None else None
        found = AdoptableFiles.of(list(paths.values())) if paths else None
        fits = found is not None and self.direct is not None and self.direct.can_take(found.columns, spelled=True)
        return found if fits else None

    @cached_property
    def direct(self) -> DirectWrite | None:
        """The write without Spark, which begins at the first access; None if only Spark can commit."""
        direct = self.table.get_direct_table(self.spark)
        return None if direct is None else direct.begin()


class DeltaWriter(ABC):
    """One way to append rows. If it declines rows, it leaves nothing behind, and another way is used."""

    @abstractmethod
    def can_take(self, append: PendingAppend) -> bool:
        """Whether the rows can be written this way, as far as that is known. It starts no Spark job."""

    @abstractmethod
    def write(self, append: PendingAppend) -> Written | None:
        """Append all rows in one commit, or nothing.

        Return None, with nothing written, if the rows cannot be written this way after all. Called only if `can_take`
        is true. Raises `Late` if the deadline has passed.
        """


@dataclass(frozen=True)
class FileAppend(DeltaWriter):
    """The way in which this process commits files.

    It takes files that already have the rows, by a hard link if possible. It writes few rows as one file. Otherwise
    Spark writes new files.
    """

    collects: int = 4 << 20
    """The largest size per batch, in bytes, up to which this process collects rows that Spark computes."""

    def can_take(self, append: PendingAppend) -> bool:
        if append.direct is None:
            return False
        if append.adoptable is not None:
            return True
        return (self.is_few(append) or not append.table.is_under_spark) and append.fits_here

    def write(self, append: PendingAppend) -> Written | None:
        direct, adoptable = append.direct, append.adoptable
        if direct is None:
            return None
        if adoptable is not None:
            return _commit_here(append, adoptable.rows, lambda check: direct.take(adoptable, append.tag, check))
        written = self._write_few(append, direct) if self.is_few(append) else None
        if written is None and not append.table.is_under_spark:
            written = self._write_by_spark(append, direct)
        return written

    def is_few(self, append: PendingAppend) -> bool:
        """Whether this process has the rows, or can collect them."""
        size = append.rows.size()
        return append.rows.table() is not None or (size is not None and size <= self.collects * len(append.labels))

    def _write_few(self, append: PendingAppend, direct: DirectWrite) -> Written | None:
        """Write the rows as one file. Return None if some of their values need Spark."""
        table = append.rows.table()
        table = collect_arrow(append.frame) if table is None else table
        fitted = None if table is None else direct.fit_rows(table)
        if fitted is None:
            return None
        return _commit_here(append, fitted.num_rows, lambda check: direct.commit(fitted, append.tag, check))

    def _write_by_spark(self, append: PendingAppend, direct: DirectWrite) -> Written | None:
        """Have Spark write the rows as files below the table's place."""
        with append.guard_rows() as rows:
            files = direct.write_by_spark(rows)
        if not files and not append.frame.isEmpty():  # Spark commits nothing if there are no rows
            raise DestinationError(
                f"Spark wrote files for {append.table.location}, and its log does not name them.",
                hint="The table has none of these rows. Run again.",
            )
        return _commit_here(
            append, len(files), lambda check: direct.commit_staged(files, append.tag, check), waits=True
        )


@dataclass(frozen=True)
class SparkAppend(DeltaWriter):
    """The way in which Spark writes the rows and commits them."""

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
    """Have Spark commit the rows, again after each conflict. Return what it left in the table."""
    table = append.table

    def attempt() -> None:
        with append.guard_rows() as timed:
            commit(reach_within("in-write", timed, append.labels[0].destination))

    with table.hold_commits():
        before = table.version
        commit_persistently(attempt, lambda: table.find_written(append.spark, append.key, before).version is not None)
    return table.find_written(append.spark, append.key, before)


def _commit_here(
    append: PendingAppend, count: int, commit: Callable[[Callable[[], None]], Written], *, waits: bool = False
) -> Written | None:
    """Commit without Spark, unless the count of rows or files is 0.

    Return None if a thread of this process is committing through Spark, unless `waits` is true. If the commit raises,
    the table's log shows whether it succeeded.
    """
    if not count:
        return Written(rows=0)
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


WRITERS: Sequence[DeltaWriter] = (FileAppend(), SparkAppend())
"""The writers in the order in which they are asked. The last one takes everything."""


def append_rows(append: PendingAppend) -> Written:
    for writer in WRITERS:
        written = writer.write(append) if writer.can_take(append) else None
        if written is not None:
            return written
    raise AssertionError("the last writer accepts every batch")


@dataclass(frozen=True)
class RowsWithText(BatchRows):
    """Rows with one more column, which has the same text in each row."""

    rows: BatchRows
    column: str
    text: str

    @compute_once
    def frame(self) -> DataFrame:
        return self.rows.frame().withColumn(self.column, F.lit(self.text))

    @compute_once
    def table(self) -> pa.Table | None:
        table = self.rows.table()
        if table is None:
            return None
        return table.append_column(self.column, pa.repeat(pa.scalar(self.text, pa.string()), table.num_rows))

    def count(self) -> int | None:
        return self.rows.count()

    def size(self) -> int | None:
        return self.rows.size()
