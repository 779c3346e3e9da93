"""The rows of a batch in each of their forms, and the conversion of Arrow tables to Python values without pandas."""

from __future__ import annotations

import functools
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any, TypeVar

from origins.lazy import DataFrame, SparkSession, T, pa
from origins.names import HIDDEN

S = TypeVar("S")
R = TypeVar("R")


def compute_once(method: Callable[[S], R]) -> Callable[[S], R]:
    """Make a method compute its result at the first call for an object. Later calls return the same result."""
    name = f"_{method.__name__}"

    @functools.wraps(method)
    def call(self: S) -> R:
        known: dict[str, R] = self.__dict__
        if name not in known:
            known[name] = method(self)
        return known[name]

    return call


class BatchRows(ABC):
    """The rows of one batch, or of several that are fetched together.

    `frame` always has the rows. Every other form is None if it needs a Spark job. A form is computed once, at the
    first call.
    """

    @property
    def schema(self) -> T.StructType:
        """Return the columns of the rows, without Wherry's hidden columns."""
        schema = self.frame().schema
        return type(schema)([field for field in schema if not field.name.startswith(HIDDEN)])

    @abstractmethod
    def frame(self) -> DataFrame:
        """Return the rows as a lazy frame of Spark."""

    def table(self) -> pa.Table | None:
        """Return the rows, read in this process, with the Arrow types of Spark's rows."""
        return None

    def files(self) -> Mapping[str, Path] | None:
        """Return the parquet files of this machine that have exactly these rows and columns, by their names."""
        return None

    def count(self) -> int | None:
        """Return the number of rows, if it is known without reading them."""
        return None

    def count_parts(self) -> Mapping[str, int] | None:
        """Return the number of rows of each part, if it is known without reading them.

        Row n of a part, from 0, then has `PLACE.block` 0 and `PLACE.row` n.
        """
        return None

    def count_given(self) -> int | None:
        """Return how many rows this process reads and gives to Spark for `frame`; None if Spark reads them itself.

        Wherry compares the number with the rows that Spark saw.
        """
        return None

    def size(self) -> int | None:
        """Return about how many bytes the uncompressed rows have at most; None if unknown."""
        return None


@dataclass(frozen=True)
class FrameRows(BatchRows):
    """Rows that Spark reads."""

    rows: DataFrame
    bytes: int | None = None
    """The result of `size`."""

    def frame(self) -> DataFrame:
        return self.rows

    def size(self) -> int | None:
        return self.bytes


@dataclass(frozen=True)
class TableRows(BatchRows):
    """A few rows in the memory of this process."""

    spark: SparkSession
    rows: pa.Table
    columns: T.StructType | None = None
    """The columns with Spark's types. By default Spark derives them from the table."""

    @property
    def schema(self) -> T.StructType:
        return super().schema if self.columns is None else self.columns

    @compute_once
    def frame(self) -> DataFrame:
        return make_frame(self.spark, self.rows, self.columns).coalesce(1)

    def table(self) -> pa.Table:
        return self.rows

    def count(self) -> int:
        return int(self.rows.num_rows)

    def count_given(self) -> int:
        return self.count()

    def size(self) -> int:
        return int(self.rows.nbytes)


def make_frame(spark: SparkSession, rows: pa.Table, columns: T.StructType | None = None) -> DataFrame:
    """Return a frame of all rows of a table.

    Spark stops reading at an empty chunk, except at the first one. The rows behind it would be lost, without an error.
    """
    filled = [each for each in rows.to_batches() if each.num_rows]
    table = pa.Table.from_batches(filled, rows.schema) if filled else rows.schema.empty_table()
    return spark.createDataFrame(table, columns)


_EPOCH = datetime.fromtimestamp(0, timezone.utc)


def to_python_rows(table: pa.Table) -> list[dict[str, Any]]:
    """Return the rows of a table as dictionaries.

    Times, which are microseconds in Delta, are converted separately. For times pyarrow would import pandas, and a cast
    would import `pyarrow.compute`. Each import takes longer than all the rest, and so would `pyarrow.table`.
    """
    times = [field.name for field in table.schema if pa.types.is_timestamp(field.type)]
    for name in times:
        chunks = [chunk.view(pa.int64()) for chunk in table[name].chunks]
        counted = pa.chunked_array(chunks, type=pa.int64())
        table = table.set_column(table.schema.get_field_index(name), name, counted)
    rows: list[dict[str, Any]] = table.to_pylist()
    for row in rows:
        row |= {name: _EPOCH + timedelta(microseconds=row[name]) for name in times if row[name] is not None}
    return rows
