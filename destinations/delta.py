"""Rows are appended to a Delta table; each commit carries the labels of its batches."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, Literal

from destinations.delta_log import tag
from destinations.delta_schema import impossible, lacking, misfits, needs_mapping
from destinations.delta_table import Table, make
from destinations.destination import Destination, DestinationError, Identity, Label, Misfit, Unsure, Written
from origins.names import quoted, text

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructField, StructType

_TABLE = re.compile(r"(?:[^\W\d]\w*|\d\w*|`(?:``|[^`])+`)(?:\.(?:\w+|`(?:``|[^`])+`)){0,3}")
_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+:")
_PROPERTIES = {"delta.checkpointInterval": "100"}
"""Of every table that is made: a checkpoint after each tenth commit doubles what a small append costs."""
_PATIENCE = 10.0
"""How long a fence waits for another process's write, in seconds."""

_ASKED = "WHERRY_ASKED"
"""What the error of a write says that got past the table's own checks."""


@dataclass
class _Held:
    table: Table | None = None


@dataclass(frozen=True, kw_only=True)
class Delta(Destination):
    """Appends rows to a Delta table, which is made if it is missing. Give its `path` or its name as `table`."""

    remembers: ClassVar[bool] = True
    guarantee: ClassVar[str] = (
        "effectively once: each commit carries the id of its batch, and after a crash the table is asked for it"
    )

    path: str | None = field(default=None, metadata={"path": True})
    """Where the table lies; relative to the definition."""
    table: str | None = field(default=None, metadata={"like": "main.shop.orders"})
    """Its name in a catalog; this or `path`."""
    mode: Literal["append"] = "append"
    """Every batch is added to what is there."""
    properties: Mapping[str, str] = field(default_factory=dict)
    """Table properties for a table that is made; one that is there keeps its own."""

    _held: _Held = field(default_factory=_Held, init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        if bool(self.path) == bool(self.table):
            raise ValueError("path: expected either path or table, got " + ("both" if self.path else "neither"))
        if self.table and not _TABLE.fullmatch(self.table):
            raise ValueError(f"table: expected a name such as catalog.schema.table, got {self.table!r}")
        if self.mode != "append":
            raise ValueError(f"mode: expected append, got {self.mode!r}")

    @property
    def place(self) -> str:
        if self.table:
            return self.table
        assert self.path is not None
        return self.path if _SCHEME.match(self.path) else os.path.abspath(self.path)

    @property
    def folder(self) -> Path | None:
        """Where the table lies on this machine, if its path is one of this machine; Spark may see another one."""
        if self.table:
            return None
        local = self.place.removeprefix("file:")
        return None if _SCHEME.match(local) else Path("/" + local.lstrip("/"))

    @property
    def sql_name(self) -> str:
        """The table as it is named in SQL."""
        return self.table or f"delta.{quoted(self.place)}"

    def open(self, spark: SparkSession, schema: StructType | None) -> Identity:
        table = Table.find(spark, self.sql_name)
        if schema is not None:
            self._refuse(impossible(schema))
            table = table or make(spark, self.sql_name, schema, self._properties(schema), self.folder)
            self._refuse(self._misfits(spark, schema))
        if table is None:
            return Identity(place=self.place)
        self._held.table = table
        return Identity(place=self.place, id=table.id, version=table.version)

    def write(self, spark: SparkSession, rows: DataFrame, labels: Sequence[Label]) -> Written:
        table = self._standing(spark)
        with table.held():
            before = table.version
            table.append(rows, tag(labels))
        return table.written(spark, labels[0].key, before)

    def find(self, spark: SparkSession, label: Label, identity: Identity) -> Written | None:
        known = self._held.table
        table = known if known is not None and known.refresh() else Table.find(spark, self.sql_name)
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
                return replace(written, rows=None, bytes=None) if commit.shared else written
            oldest = commit.version
            undone = f"{commit.operation}, version {commit.version}" if commit.undoes else undone
        if oldest != identity.version + 1:
            raise self._unsure(
                label, f"its history does not go on from version {identity.version}, where the run began"
            )
        return None

    def fence(self, spark: SparkSession, token: str) -> None:
        with self._standing(spark).held(_PATIENCE):
            spark.sql(f"ALTER TABLE {self.sql_name} SET TBLPROPERTIES ('wherry.fence' = {text(token)})")

    def _standing(self, spark: SparkSession) -> Table:
        """The table, which must be the one that it was."""
        known = self._held.table
        if known is not None and known.stands:
            return known
        found = Table.find(spark, self.sql_name)
        if found is None or (known is not None and found.id != known.id):
            raise DestinationError(
                f"The table {self.place} {'is gone' if found is None else 'was replaced by another one'}.",
                hint="Nothing was written. Put it back; or run again, if it is right as it is now.",
            )
        self._held.table = found
        return found

    def _properties(self, schema: StructType) -> Mapping[str, str]:
        mapping = {"delta.columnMapping.mode": "name"} if needs_mapping(schema) else {}
        return {**_PROPERTIES, **mapping, **self.properties}

    def _misfits(self, spark: SparkSession, schema: StructType) -> list[str]:
        there = spark.table(self.sql_name).schema
        problems = misfits(schema, there, self.sql_name)
        missing = lacking(schema, there)
        fitting = [field for field in schema if field.name not in problems]
        if missing and not _fills(spark, self.sql_name, fitting):
            problems |= {
                name: f"{name}: the table wants it in every row (NOT NULL); add it, with_columns: {{{name}: …}}"
                for name in missing
            }
        return list(problems.values())

    def _refuse(self, problems: Sequence[str]) -> None:
        if problems:
            raise Misfit("\n  ".join([f"The rows do not fit the table {self.place}:", *problems]))

    def _unsure(self, label: Label, why: str) -> Unsure:
        batch = label.batch
        return Unsure(
            f"{label.destination} cannot say whether it has batch {batch.number} of lane {batch.lane}: {why} "
            f"({self.place}).",
            hint="Look whether its rows are there, and say so:  --assume delivered  or  --assume missing",
        )


def _fills(spark: SparkSession, table: str, fields: Sequence[StructField]) -> bool:
    """Whether the table itself gives the columns that these lack. It is asked by a write whose only row raises."""
    from pyspark.sql import functions as F

    row = [F.raise_error(F.lit(_ASKED)).cast(field.dataType).alias(field.name) for field in fields]
    try:
        spark.range(1).select(*row).writeTo(table).append()
    except Exception as error:
        if _ASKED not in str(error) and "NOT_NULL" not in str(error):
            raise
        return _ASKED in str(error)
    raise AssertionError("a row that raises was written")
