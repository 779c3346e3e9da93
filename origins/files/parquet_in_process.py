"""Parquet files on this machine that have just the columns that are wanted, with just these types: what this process
reads there is what Spark reads, and rows can be taken over without Spark."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from pathlib import Path

from origins.lazy import T, pa, pc

_PLAIN = frozenset({
    "boolean", "byte", "short", "integer", "long", "float", "double", "string", "binary", "date", "timestamp",
})  # fmt: skip
LEGACY = frozenset({b"org.apache.spark.legacyDateTime", b"org.apache.spark.legacyINT96"})
"""What Spark notes in a file in which days of long ago are others than they seem."""
_SINCE = -25_567
"""1900 in days from 1970; Spark may read earlier days as others, by its settings and by the writer."""
_MICROS = 86_400_000_000
ROWS = 8_192
"""How many rows are read at a time: few, for they may be wide."""


class ReadsOtherwise(Exception):
    """There is a value that Spark may read otherwise."""


def is_plain(file: Path, schema: T.StructType) -> bool:
    """Whether the file has these columns and no others, of types that this process reads as Spark does."""
    from pyarrow import ArrowException

    try:
        found = open_file(file)
        columns = {column.name: column for column in found.schema_arrow}
    except (ArrowException, OSError):
        return False
    if LEGACY & set(found.metadata.metadata or ()) or sorted(found.schema_arrow.names) != sorted(schema.names):
        return False
    wanted = [(field, columns[field.name].type) for field in schema]
    return len(columns) == len(schema.names) and all(_is_alike(field, kind, found) for field, kind in wanted)


def read_pieces(file: Path, schema: T.StructType, without: Sequence[int]) -> Iterator[pa.Table]:
    """The rows of such a file in their order, without those that have these numbers, which rise from 0. Raises
    `ReadsOtherwise` at a value that Spark may read as another."""
    from pyspark.sql.pandas.types import to_arrow_schema

    wanted, first = to_arrow_schema(schema, timezone="UTC"), 0
    for batch in open_file(file).iter_batches(ROWS):
        table = pa.Table.from_batches([batch]).select(schema.names).cast(wanted)
        if any(map(_is_old, table.columns)):
            raise ReadsOtherwise(f"{file} has a day before 1900.")
        end = first + table.num_rows
        gone = without[bisect_left(without, first) : bisect_left(without, end)]
        yield _drop_rows(table, [number - first for number in gone])
        first = end


def count_rows(file: Path) -> int:
    """How many rows the file has."""
    rows: int = open_file(file).metadata.num_rows
    return rows


def open_file(file: Path) -> pa.parquet.ParquetFile:
    """The file, of which moments that Spark wrote in its own way do not overflow."""
    from pyarrow import parquet

    return parquet.ParquetFile(file, coerce_int96_timestamp_unit="us")


def _is_alike(field: T.StructField, found: pa.DataType, file: pa.parquet.ParquetFile) -> bool:
    """Whether a column with the type that Arrow reads has the type that is wanted, as Spark reads it."""
    from pyspark.sql.pandas.types import to_arrow_type

    kind = field.dataType.jsonValue()
    if field.metadata or not isinstance(kind, str) or not (kind in _PLAIN or kind.startswith("decimal")):
        return False
    if kind != "timestamp":
        same = {pa.large_string(): pa.string(), pa.large_binary(): pa.binary()}.get(found, found)
        return bool(same == to_arrow_type(field.dataType))
    if not pa.types.is_timestamp(found):
        return False
    columns = [file.schema.column(at) for at in range(len(file.schema))]
    old = next(column.physical_type for column in columns if column.path == field.name) == "INT96"
    return found.unit in ("ms", "us") and (found.tz is not None) != old


def _is_old(column: pa.ChunkedArray) -> bool:
    if not pa.types.is_date(column.type) and not pa.types.is_timestamp(column.type):
        return False
    days = pa.types.is_date(column.type)
    least = pc.min(column.cast(pa.int32() if days else pa.int64())).as_py()
    return least is not None and least < (_SINCE if days else _SINCE * _MICROS)


def _drop_rows(table: pa.Table, gone: Sequence[int]) -> pa.Table:
    """The table without the rows with these numbers, which rise."""
    if not gone:
        return table
    begins, ends = [0, *(number + 1 for number in gone)], [*gone, table.num_rows]
    return pa.concat_tables(
        [table.slice(begin, end - begin) for begin, end in zip(begins, ends, strict=True)]
    ).combine_chunks()
