"""Rows are appended to a Delta table, merged into it, or put in its place; each commit carries its batches' labels."""

from __future__ import annotations

import contextlib
import dataclasses
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, Literal

from destinations.account import Account
from destinations.delta_demands import demanded
from destinations.delta_fit import unclear, unfit
from destinations.delta_growth import growth
from destinations.delta_log import LocalLog, OwnCommits, tag
from destinations.delta_merge import Merge, insisting
from destinations.delta_options import check, missing
from destinations.delta_rules import Declared
from destinations.delta_schema import impossible, needs_mapping
from destinations.delta_short import in_memory, with_text
from destinations.delta_table import Layout, Table, make
from destinations.delta_witness import account, newest
from destinations.destination import (
    Destination,
    DestinationError,
    Identity,
    Label,
    Misfit,
    Unsure,
    Written,
    other_than_known,
)
from destinations.table_lock import alone
from origins.batch import JSON
from origins.crash_points import within
from origins.names import SCHEME, quoted, text
from stages.stage import Stage

if TYPE_CHECKING:
    import pyarrow
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

_PROPERTIES = {"delta.checkpointInterval": "100"}
"""Of every table that is made: a checkpoint after each tenth commit doubles what a small append costs."""
_MERGED = {"delta.isolationLevel": "Serializable"}
"""Of one that is made for merges: otherwise Delta lets others append the keys that a merge is about to add."""
_FENCE = "wherry.fence"
"""The property of which a new value is a fence."""
_PATIENCE = 10.0
"""How long a fence waits for another process's write, in seconds."""
_NEWEST = 50
"""At so many of its newest versions a write looks before it begins: whether they are still its own."""

_AGAIN = {
    "append": "gets the rows again; those that it has will be there twice",
    "merge": "merges the rows again; each key keeps one row, the highest in sequence or else the last to come",
    "replace": "gets the rows again; those of the run's first batch take the place of what is there",
}


@dataclass
class _Held:
    table: Table | None = None
    known: Identity | None = None
    """What it was when an earlier run opened it."""
    tidied: int | None = None
    """The version at which small files were put together, as far as that has been looked for."""
    own: OwnCommits = field(default_factory=OwnCommits)


@dataclass(frozen=True, kw_only=True)
class Delta(Destination):
    """Brings rows into a Delta table, which is made if it is missing. Give its `path` or its name as `table`."""

    remembers: ClassVar[bool] = True
    guarantee: ClassVar[str] = (
        "effectively once: each commit carries the id of its batch, and after a crash the table is asked for it"
    )

    path: str | None = field(default=None, metadata={"path": True})
    """Where the table lies; relative to the definition."""
    table: str | None = field(default=None, metadata={"like": "main.shop.orders"})
    """Its name in a catalog; this or `path`."""
    mode: Literal["append", "merge", "replace"] = "append"
    """Rows are added; take the place of those with the same keys; or take, from a run's first batch on, that of all."""
    keys: Sequence[str] = ()
    """The columns by which a merge finds the row that is there."""
    sequence_by: str | None = None
    """The column that says which of two rows is later: the highest wins. By default the one that arrives last does."""
    apply_as_deletes: str | None = None
    """A condition: a row for which it is true takes away the one with its keys."""
    except_column_list: Sequence[str] = ()
    """Columns that a merge may look at and does not write."""
    where: str | None = None
    """What a run replaces, as a condition; by default all. Rows that do not match are refused."""
    partition_by: Sequence[str] = ()
    """The columns by which a table that is made is partitioned."""
    cluster_by: Sequence[str] = ()
    """The columns by which a table that is made is clustered."""
    properties: Mapping[str, str] = field(default_factory=dict)
    """Table properties for a table that is made; one that is there keeps its own."""
    comment: str | None = None
    """What the catalog says of a table that is made."""
    stamp: str | None = field(default=None, metadata={"like": "_batch"})
    """A column that says of each row which batch brought it, as `lane/number`."""

    optimize: int | None = None
    """After how many commits the table's small files are put together, beside the batches; by default never."""

    _held: _Held = field(default_factory=_Held, init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        check(self)

    @property
    def place(self) -> str:
        if self.table:
            return self.table
        assert self.path is not None
        return self.path if SCHEME.match(self.path) else os.path.abspath(self.path)

    @property
    def folder(self) -> Path | None:
        """Where the table lies on this machine, if its path is one of this machine; Spark may see another one."""
        if self.table:
            return None
        local = self.place.removeprefix("file:")
        return None if SCHEME.match(local) else Path("/" + local.lstrip("/"))

    @property
    def sql_name(self) -> str:
        """The table as it is named in SQL."""
        return self.table or f"delta.{quoted(self.place)}"

    @property
    def again(self) -> str:
        return _AGAIN[self.mode]

    @property
    def replaces(self) -> bool:
        return self.mode == "replace"

    @property
    def takes_several(self) -> bool:
        return self.mode == "append" and not self.stamp

    @property
    def keeps_house(self) -> bool:
        return self.optimize is not None

    @property
    def ordered(self) -> bool:
        return self.mode == "merge" and self.sequence_by is None

    def written(self, rows: StructType) -> StructType:
        """The columns of such rows that are written."""
        left_out = {name.lower() for name in self.except_column_list}
        return type(rows)([field for field in rows if field.name.lower() not in left_out])

    def expects(self, known: Identity) -> None:
        self._held.known = known

    def is_still(self, spark: SparkSession, known: Identity, newest: str) -> bool:
        table = Table.find(spark, self.sql_name, self.folder)
        if table is None or table.id != known.id:
            return False
        return not newest or any(commit.carries(newest) for commit in table.log.commits(spark, -1))

    def newest(self, pipeline: str) -> Mapping[str, JSON] | None:
        table = self._held.table
        return newest(table.log, table.version, pipeline) if table and isinstance(table.log, LocalLog) else None

    def open(self, spark: SparkSession, schema: StructType | None) -> Identity:
        table = Table.find(spark, self.sql_name, self.folder)
        known = self._held.known
        if known is not None and known.id and not self.replaces and (table is None or table.id != known.id):
            raise other_than_known(self.place, gone=table is None)
        if schema is not None:
            columns = self._columns(schema)
            self._refuse([*missing(self, schema), *impossible(columns), *unclear(spark, self, schema)])
            table = table or make(spark, self.sql_name, columns, self._layout(columns), self.folder)
            self._refuse(unfit(spark, self, columns, table.declared(spark)))
        if table is None:
            return Identity(place=self.place)
        self._held.table = table
        return Identity(place=self.place, id=table.id, version=table.version)

    def grow(self, spark: SparkSession, schema: StructType) -> None:
        from pyspark.errors import PySparkException

        table = Table.find(spark, self.sql_name, self.folder)
        statements = growth(self._columns(schema), table.schema, self.sql_name) if table else []
        for statement in statements:
            assert table is not None
            try:
                with alone(table.id), table.held():
                    spark.sql(statement).collect()
            except PySparkException as error:
                said = str(error).splitlines()[0]
                raise Misfit(
                    f"The table {self.place} cannot grow with its rows: {said}",
                    hint=f"Nothing was written. Do by hand what is in the way, or alter the table:\n  {statement}",
                ) from error

    def demands(self, spark: SparkSession, schema: StructType) -> Sequence[Stage]:
        if self._held.table is None and Table.find(spark, self.sql_name, self.folder) is None:
            return demanded(
                self, Declared(schema=self._columns(schema), checks={}, generated={}, identities={}), schema
            )
        return demanded(self, self._standing(spark).declared(spark), schema)

    def write(self, spark: SparkSession, rows: DataFrame, labels: Sequence[Label]) -> Written:
        from pyspark.errors import AnalysisException

        table, key, deadline = self._writable(spark), labels[0].key, labels[0].deadline
        if deadline is not None:
            deadline.secure()
        given, rows = rows, self._stamped(rows, labels)
        if self.mode == "append" and all(label.few for label in labels):
            written = table.append_here(spark, rows, tag(labels), key, deadline)
            if written is not None:
                return self._noted(table, written, labels)
        if self.mode == "merge" and all(label.few for label in labels):
            rows = in_memory(rows)
        with self._turn(table):
            before = table.version
            try:
                insisting(
                    lambda: self._commit(table, rows, labels),
                    lambda: table.written(spark, key, before).version is not None,
                )
            except AnalysisException as error:
                self._see_whether_it_fits(spark, given.schema, error)
                raise
        written = table.written(spark, key, before)
        if self.mode == "merge" and written.version is None:
            return Written(rows=rows.count())  # nothing in the table had to change, so there is no commit that counts
        return self._noted(table, written, labels)

    def write_here(
        self, spark: SparkSession, rows: pyarrow.RecordBatchReader, labels: Sequence[Label]
    ) -> Written | None:
        if self.mode != "append":
            return None
        table, deadline = self._writable(spark), labels[0].deadline
        if deadline is not None:
            deadline.secure()
        if self.stamp:
            rows = with_text(rows, self.stamp, _stamp(labels))
        written = table.append_here(spark, rows, tag(labels), labels[0].key, deadline)
        return written and self._noted(table, written, labels)

    def write_files(self, spark: SparkSession, files: Sequence[Path], label: Label) -> Written | None:
        if self.mode != "append" or self.stamp:
            return None
        table = self._writable(spark)
        if label.deadline is not None:
            label.deadline.secure()
        written = table.adopt(spark, files, tag([label]), label.key, label.deadline)
        return written and self._noted(table, written, [label])

    def confirm(self) -> None:
        table = self._held.table
        if table is not None and self._held.own.any and table.is_there:
            self._held.own.check(table.log)

    def find(self, spark: SparkSession, label: Label, identity: Identity) -> Written | None:
        known = self._held.table
        table = known if known is not None and known.refresh() else Table.find(spark, self.sql_name, self.folder)
        if table is None:
            raise self._unsure(label, "the table is gone")
        if table.id != identity.id:
            raise self._unsure(label, "another table has taken the place of the one that the run opened")
        undone, oldest = "", table.version + 1
        for commit in table.log.commits(spark, identity.version):
            if commit.carries(label.key):
                if undone:
                    raise self._unsure(label, f"version {commit.version} has it, and then came {undone}")
                written = commit.written()
                return dataclasses.replace(written, rows=None, bytes=None) if commit.shared else written
            oldest = commit.version
            if commit.undoes or (self.replaces and commit.overwrites):
                undone = f"{commit.operation}, version {commit.version}"
        if oldest != identity.version + 1:
            raise self._unsure(
                label, f"its history does not go on from version {identity.version}, where the run began"
            )
        return None

    def account(self, spark: Callable[[], SparkSession], pipeline: str) -> Account:
        return account(self.sql_name, self.folder, self.mode, spark, pipeline)

    def tend(self, spark: SparkSession) -> None:
        table = self._held.table
        if self.optimize is None or table is None:
            return
        if self._held.tidied is None:
            self._held.tidied = table.optimized(spark, self.optimize)
        if table.version - self._held.tidied < self.optimize:
            return
        self._held.tidied = table.version
        with self._turn(table):
            spark.sql(f"OPTIMIZE {self.sql_name}").collect()

    def fence(self, spark: SparkSession, token: str) -> None:
        table = self._standing(spark)
        with alone(f"{table.id} fence"):  # two fences at once are in each other's way
            if table.mark(spark, {_FENCE: token}, _PATIENCE):
                return
            with table.held(_PATIENCE):
                spark.sql(f"ALTER TABLE {self.sql_name} SET TBLPROPERTIES ({text(_FENCE)} = {text(token)})")

    def _standing(self, spark: SparkSession) -> Table:
        """The table, which must be the one that it was."""
        known = self._held.table
        if known is not None and known.stands:
            return known
        found = Table.find(spark, self.sql_name, self.folder)
        if found is None or (known is not None and found.id != known.id):
            raise DestinationError(
                f"The table {self.place} {'is gone' if found is None else 'was replaced by another one'}.",
                hint="Nothing was written. Put it back; or run again, if it is right as it is now.",
            )
        self._held.table = found
        return found

    def _writable(self, spark: SparkSession) -> Table:
        """The table, if nobody has replaced what this process brought into it last."""
        table = self._standing(spark)
        self._held.own.check(table.log, _NEWEST)
        return table

    def _noted(self, table: Table, written: Written, labels: Sequence[Label]) -> Written:
        """What was written, which this process remembers from now on."""
        self._held.own.note(table.log, written.version, labels)
        return written

    def _see_whether_it_fits(self, spark: SparkSession, rows: StructType, error: Exception) -> None:
        """Raise `Misfit` if somebody has changed the table's columns so that such rows do not fit any more."""
        found = Table.find(spark, self.sql_name, self.folder)
        if found is None or self._held.table is None or found.id != self._held.table.id:
            return
        self._held.table = found
        try:
            self._refuse(unfit(spark, self, self._columns(rows), found.declared(spark)))
        except Misfit as misfit:
            raise misfit from error

    def _columns(self, rows: StructType) -> StructType:
        """The columns of a table for such rows."""
        from pyspark.sql.types import StringType, StructField

        stamp = [StructField(self.stamp, StringType())] if self.stamp else []
        return type(rows)([*self.written(rows), *stamp])

    def _stamped(self, rows: DataFrame, labels: Sequence[Label]) -> DataFrame:
        from pyspark.sql import functions as F

        if not self.stamp:
            return rows
        return rows.withColumn(self.stamp, F.lit(_stamp(labels)))

    @contextlib.contextmanager
    def _turn(self, table: Table) -> Iterator[None]:
        """Let no write into the table that would be in the way of this one."""
        with contextlib.nullcontext() if self.mode == "append" else alone(table.id), table.held():
            yield

    def _commit(self, table: Table, rows: DataFrame, labels: Sequence[Label]) -> None:
        deadline = labels[0].deadline
        with contextlib.nullcontext(rows) if deadline is None else deadline.upon(rows) as timed:
            timed = within("in-write", timed, labels[0].destination)
            if self.mode == "merge":
                merge = Merge(keys=self.keys, sequence_by=self.sequence_by, deletes=self.apply_as_deletes)
                merge.run(timed, self.written(rows.schema).names, table.name, tag(labels))
            elif self.replaces and any(label.batch.first for label in labels):
                table.replace(timed, tag(labels), self.where)
            else:
                table.append(timed, tag(labels))

    def _layout(self, schema: StructType) -> Layout:
        mapping = {"delta.columnMapping.mode": "name"} if needs_mapping(schema) else {}
        merged = _MERGED if self.mode == "merge" else {}
        return Layout(
            partition_by=self.partition_by,
            cluster_by=self.cluster_by,
            properties={**_PROPERTIES, **merged, **mapping, **self.properties},
            comment=self.comment,
        )

    def _refuse(self, problems: Sequence[str]) -> None:
        if problems:
            raise Misfit("\n  ".join([f"The rows do not fit the table {self.place}:", *problems]))

    def _unsure(self, label: Label, why: str) -> Unsure:
        batch = label.batch
        return Unsure(
            f"{label.destination} cannot say whether it has batch {batch.number} of lane {batch.lane}: {why} "
            f"({self.place}).",
            hint='Look whether its rows are there, and say so:  wherry run FILE --assume delivered --reason "…"  '
            'or  wherry run FILE --assume missing --reason "…"',
        )


def _stamp(labels: Sequence[Label]) -> str:
    if len(labels) > 1:
        raise DestinationError("A stamp names one batch, and this write brings the rows of several.")
    return f"{labels[0].batch.lane}/{labels[0].batch.number}"
