"""The destination that appends rows to a Delta table, merges them into it, or replaces it.

Each commit has the labels of its batches.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from typing import ClassVar

from destinations.capabilities import (
    NEWEST,
    ConfirmsBatches,
    DeliveryAccount,
    GrowsColumns,
    HasDemands,
    KnowsNewest,
    NeedsMaintenance,
    ProvesDeliveries,
    ReadBack,
    ReadsBack,
    SharesPlace,
    StopsWriters,
)
from destinations.delta.history import describe_dropped, find_newest, make_account
from destinations.delta.lock import hold_thread_lock
from destinations.delta.log import LocalLog, OwnCommits, StoreLog
from destinations.delta.options import DeltaOptions
from destinations.delta.schema import (
    DeclaredTable,
    list_growth_statements,
    list_impossible,
    list_misfits,
    list_unclear,
    make_rules,
)
from destinations.delta.table import TargetTable, make
from destinations.delta.writers import TRIES, PendingAppend, RowsWithText, append_rows, commit_by_spark, merge_rows
from destinations.destination import (
    Demands,
    DestinationError,
    Identity,
    Misfit,
    OpenDestination,
    Rule,
    Unsure,
    Written,
    make_other_place_error,
    make_unsure_error,
)
from destinations.labels import BatchLabel, Label
from origins.batch_rows import BatchRows
from origins.lazy import DataFrame, SparkSession, T, spark_errors
from origins.names import quote_name, quote_text
from origins.secret import put_references
from stages.deduplicate import Deduplicate
from stages.expressions import list_columns
from stages.stage import Stage

_FENCE = "wherry.fence"
"""The property that a fence sets to a new value."""
_PATIENCE = 10.0
"""How long a fence waits for another process's write, in seconds."""
_NEWEST = 50
"""How many of its newest versions a write checks before it begins, to see whether another writer replaced them."""

_AGAIN = {
    "append": "gets the rows again; rows that it has already will be there twice",
    "merge": "merges the rows again; each key keeps the row with the highest sequence, or else the last to arrive",
    "replace": "gets the rows again; the run's first batch replaces the table",
}


@dataclass(frozen=True, kw_only=True)
class Delta(DeltaOptions, ProvesDeliveries, ReadsBack):
    """Writes rows to a Delta table, and creates the table if it is missing. Give its `path` or its name as `table`.

    Example:
        delta:
          path: tables/orders
          mode: merge
          keys: [id]
          sequence_by: at
          apply_as_deletes: "status = 'deleted'"
    """

    remembers: ClassVar[bool] = True
    guarantee: ClassVar[str] = (
        "effectively once: each commit records the id of its batch, and after a crash Wherry looks for it in the table"
    )

    @property
    def again(self) -> str:
        return _AGAIN[self.mode]

    @property
    def takes_several(self) -> bool:
        return self.mode == "append" and not self.stamp

    @property
    def ordered(self) -> bool:
        return self.mode == "merge" and self.sequence_by is None

    def is_still(self, spark: SparkSession, known: Identity, newest: str) -> bool:
        table = TargetTable.find(spark, self.sql_name, self.found_here)
        if table is None or table.id != known.id:
            return False
        return not newest or any(commit.has_label(newest) for commit in table.log.list_commits(spark, -1))

    def list_labels(self, spark: SparkSession) -> Iterator[BatchLabel]:
        table = TargetTable.find(spark, self.sql_name, self.found_here)
        commits = table.log.list_commits(spark, -1) if table else iter(())
        return (label for each in itertools.islice(commits, NEWEST) for label in each.labels)

    def open(self) -> OpenDelta:
        return OpenDelta(destination=self)

    @property
    def read_back(self) -> ReadBack:
        return self._read_rows

    def _read_rows(self, spark: SparkSession, labels: Sequence[Label], schema: T.StructType) -> DataFrame:
        return spark.sql(f"SELECT {', '.join(map(quote_name, schema.names))} FROM {self.sql_name}")

    def account(self, spark: Callable[[], SparkSession], pipeline: str) -> DeliveryAccount:
        return make_account(self.sql_name, self.found_here, self.mode, spark, pipeline)


@dataclass(eq=False)
class OpenDelta(
    OpenDestination, ConfirmsBatches, GrowsColumns, HasDemands, KnowsNewest, NeedsMaintenance, SharesPlace, StopsWriters
):
    """The table of a Delta destination that a run has open."""

    destination: Delta
    _table: TargetTable | None = None
    _known: Identity | None = None
    """The table's identity when an earlier run opened it."""
    _tidied: int | None = None
    """The version of the last compaction of small files; None if Wherry has not looked for it yet."""
    _own: OwnCommits = field(default_factory=OwnCommits)
    _shared: bool = False

    def share(self) -> None:
        self._shared = True

    def expects(self, known: Identity) -> None:
        self._known = known

    def newest(self, pipeline: str) -> BatchLabel | None:
        table = self._table
        if table is None or not isinstance(table.log, LocalLog | StoreLog):
            return None
        return find_newest(table.log, table.version, pipeline)

    def ensure_place(self, spark: SparkSession, schema: T.StructType | None) -> Identity:
        table = self.find_table(spark)
        known = self._known
        if known is not None and known.id and not self.destination.replaces and (table is None or table.id != known.id):
            raise make_other_place_error(self.destination.place, gone=table is None)
        if schema is not None:
            columns = self._columns(schema)
            missing = self.destination.list_missing_columns(schema)
            self._refuse([*missing, *list_impossible(columns), *list_unclear(spark, self.destination, schema)])
            if table is None:
                table = make(spark, self.destination, columns)
            misfits = list_misfits(spark, self.destination, columns, table.read_declared(spark))
            self._refuse([*misfits, *describe_dropped(spark, table, columns)] if misfits else ())
        if table is None:
            return Identity(place=self.destination.place)
        self._table = table
        return Identity(place=self.destination.place, id=table.id, version=table.version)

    def grow(self, spark: SparkSession, schema: T.StructType) -> None:
        table = self.find_table(spark)
        if table is None:
            return
        for statement in list_growth_statements(self._columns(schema), table.schema, self.destination.sql_name):
            try:
                with hold_thread_lock(table.id), table.hold_commits():
                    spark.sql(statement).collect()
            except spark_errors.PySparkException as error:
                message = str(error).splitlines()[0]
                raise Misfit(
                    f"The table {self.destination.place} cannot take the new columns or types of the rows: {message}",
                    hint="The destination wrote nothing. Remove the cause, or alter the table yourself:\n  "
                    f"{statement}",
                ) from error

    def demands(self, spark: SparkSession, schema: T.StructType) -> Sequence[Stage]:
        if self._table is None and self.find_table(spark) is None:
            declared = DeclaredTable(schema=self._columns(schema), checks={}, generated={}, identities={})
        else:
            declared = self._require_table(spark).read_declared(spark)
        return _make_demands(self.destination, declared, schema)

    def write(self, spark: SparkSession, rows: BatchRows, labels: Sequence[Label]) -> Written:
        table, deadline = self._require_table(spark), labels[0].deadline
        self._own.check(table.log, _NEWEST)
        if deadline is not None:
            deadline.secure()
        stamp, mode = self.destination.stamp, self.destination.mode
        stamped = RowsWithText(rows, stamp, _format_stamp(labels)) if stamp else rows
        append = PendingAppend(spark=spark, table=table, rows=stamped, labels=labels, shared=self._shared)
        adds = mode == "append" and not append.replaces
        try:
            written = append_rows(append) if adds else self._change_rows(append)
        except spark_errors.AnalysisException as error:
            self._see_whether_it_fits(spark, rows.schema, error)
            raise
        if mode == "merge" and written.version is None:
            return Written(rows=rows.frame().count())  # the table did not have to change, so no commit counts the rows
        self._own.note(table.log, written.version, labels, written.mark)
        return written

    def confirm(self) -> None:
        table = self._table
        if table is not None and self._own.any and (table.is_there or isinstance(table.log, StoreLog)):
            self._own.check(table.log)

    def close(self) -> None:
        if self._table is not None:
            self._table.close()

    def find(self, spark: SparkSession, label: Label, identity: Identity) -> Written | None:
        known = self._table
        table = known if known is not None and known.refresh() else self.find_table(spark)
        if table is None:
            raise self._make_unsure(label, "the table is missing")
        if table.id != identity.id:
            raise self._make_unsure(label, "the table was replaced after the run opened it")
        undone, oldest = "", table.version + 1
        for commit in table.log.list_commits(spark, identity.version):
            if commit.has_label(label.key):
                if undone:
                    raise self._make_unsure(
                        label, f"version {commit.version} has it, but a later version undid that: {undone}"
                    )
                written = commit.measure_written()
                return dataclasses.replace(written, rows=None, bytes=None) if len(commit.labels) > 1 else written
            oldest = commit.version
            if commit.undoes or (self.destination.replaces and commit.overwrites):
                undone = f"{commit.operation}, version {commit.version}"
        if oldest != identity.version + 1:
            raise self._make_unsure(
                label, f"its history no longer reaches back to version {identity.version}, where the run began"
            )
        return None

    @property
    def needs_maintenance(self) -> bool:
        return self.destination.optimize is not None

    def maintain(self, spark: SparkSession) -> None:
        table = self._table
        if self.destination.optimize is None or table is None:
            return
        if self._tidied is None:
            self._tidied = table.find_optimized(spark, self.destination.optimize)
        if table.version - self._tidied < self.destination.optimize:
            return
        self._tidied = table.version
        with self._take_turn(table), table.hold_commits():
            spark.sql(f"OPTIMIZE {self.destination.sql_name}").collect()

    def fence(self, spark: SparkSession, token: str) -> None:
        table = self._require_table(spark)
        with hold_thread_lock(f"{table.id} fence"):  # two fences at once would conflict
            for _ in range(TRIES):  # another writer may commit at the same time
                if table.mark(spark, {_FENCE: token}, _PATIENCE):
                    return
                if not isinstance(table.log, StoreLog) or not table.can_mark(spark):
                    break
            if self._shared and table.may_lose_commits(spark):
                raise DestinationError(
                    f"Only Spark can fence {table.location}, and Spark might replace the commits of the other runs.",
                    hint="The destination wrote nothing. Set run.assignment to single; or use a table with plain "
                    "columns and without constraints.",
                )
            with table.hold_commits(_PATIENCE):
                properties = f"{quote_text(_FENCE)} = {quote_text(token)}"
                spark.sql(f"ALTER TABLE {self.destination.sql_name} SET TBLPROPERTIES ({properties})")

    def find_table(self, spark: SparkSession) -> TargetTable | None:
        return TargetTable.find(spark, self.destination.sql_name, self.destination.found_here)

    def _require_table(self, spark: SparkSession) -> TargetTable:
        """Return the table. Raise if another table has replaced it."""
        known = self._table
        if known is not None and known.stands:
            return known
        table = self.find_table(spark)
        if table is None or (known is not None and table.id != known.id):
            raise DestinationError(
                f"The table {self.destination.place} "
                f"{'is missing' if table is None else 'was replaced by another table'}.",
                hint="The destination wrote nothing. Put the table back; or run again, if the table is right as it is.",
            )
        self._table = table
        return table

    def _see_whether_it_fits(self, spark: SparkSession, rows: T.StructType, error: Exception) -> None:
        """Raise `Misfit` if another writer changed the table's columns, so that such rows no longer fit."""
        table = self.find_table(spark)
        if table is None or self._table is None or table.id != self._table.id:
            return
        self._table = table
        try:
            self._refuse(list_misfits(spark, self.destination, self._columns(rows), table.read_declared(spark)))
        except Misfit as misfit:
            raise misfit from error

    def _columns(self, rows: T.StructType) -> T.StructType:
        stamp = [T.StructField(self.destination.stamp, T.StringType())] if self.destination.stamp else []
        return type(rows)([*self.destination.select_written_columns(rows), *stamp])

    def _take_turn(self, table: TargetTable) -> AbstractContextManager[None]:
        """Hold a lock against the writes of this process that would conflict with this one."""
        return nullcontext() if self.destination.mode == "append" else hold_thread_lock(table.id)

    def _change_rows(self, append: PendingAppend) -> Written:
        """Have Spark merge the rows into the table, or replace rows with them."""
        delta, table = self.destination, append.table

        def commit(rows: DataFrame) -> None:
            if append.replaces:
                table.replace(rows, append.tag, append.replaces)
            elif delta.mode == "merge":
                merge_rows(delta, rows, append.tag)
            elif any(label.batch.first for label in append.labels):
                table.replace(rows, append.tag, delta.where)
            else:
                table.append(rows, append.tag)

        with self._take_turn(table):
            return commit_by_spark(append, commit)

    def _refuse(self, problems: Sequence[str]) -> None:
        if problems:
            raise Misfit("\n  ".join([f"The rows do not fit the table {self.destination.place}:", *problems]))

    def _make_unsure(self, label: Label, why: str) -> Unsure:
        return make_unsure_error(label, f"{why} ({self.destination.place})")


def _format_stamp(labels: Sequence[Label]) -> str:
    if len(labels) > 1:
        raise DestinationError("A stamp names one batch, but this write has rows of several.")
    return f"{labels[0].batch.lane}/{labels[0].batch.number}"


def _make_demands(delta: DeltaOptions, table: DeclaredTable, rows: T.StructType) -> Sequence[Stage]:
    """Return the stages that rows pass before they are written; none if the table takes every row.

    The table demands nothing of a row that only deletes another row.
    """
    if delta.stamp:
        table = dataclasses.replace(table, identities={**table.identities, delta.stamp.lower(): True})
    theirs = make_rules(table, delta.select_written_columns(rows), updates=delta.mode == "merge")
    if delta.apply_as_deletes:
        spared = f"coalesce(({delta.apply_as_deletes}), false)"
        theirs = [dataclasses.replace(rule, holds=f"{spared} OR coalesce({rule.holds}, false)") for rule in theirs]
    rules = [*_own_rules(delta, rows), *theirs]
    stages: list[Stage] = [Demands(rules=rules)] if rules else []
    if delta.mode == "merge":
        stages.append(Deduplicate(keys=delta.keys, sequence_by=_make_sequence_sql(delta)))
    return stages


def _make_sequence_sql(delta: DeltaOptions) -> str | None:
    """Return the expression that decides which of two rows is later.

    If both have one sequence, a row that stays wins.
    """
    by = quote_name(delta.sequence_by) if delta.sequence_by else None
    if by is None or not delta.apply_as_deletes:
        return by
    return f"struct({by}, NOT coalesce(({delta.apply_as_deletes}), false))"


def _own_rules(delta: DeltaOptions, rows: T.StructType) -> Iterator[Rule]:
    for key in delta.keys:
        reason = f"key {key} is NULL, and a merge matches rows by it"
        yield Rule(code="KEY", holds=f"{quote_name(key)} IS NOT NULL", reason=reason)
    if delta.sequence_by:
        reason = f"{delta.sequence_by} is NULL, and a merge compares rows by it (sequence_by)"
        yield Rule(code="SEQUENCE", holds=f"{quote_name(delta.sequence_by)} IS NOT NULL", reason=reason)
    if delta.where:
        asked = list_columns(delta.where)
        shows = [field.name for field in rows if field.name.lower() in asked]
        reason = f"the row does not match where ({put_references(delta.where)})"
        yield Rule(code="WHERE", holds=delta.where, reason=reason, shows=shows)
