"""Which parquet files this process reads, and that Spark reads the same rows."""

from __future__ import annotations

import random
from collections.abc import Sequence
from datetime import date, datetime, timezone
from decimal import Decimal
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import pyarrow as pa
import pytest
from pyarrow import parquet
from pyspark.sql import types as T

from origins.errors import OriginError
from origins.files.listing import parse_pattern
from origins.files.parquet_rows import ReadsOtherwise, count_rows, find_nanos, is_plain, parse_few, read_pieces
from origins.spark_settings import INT96_SHIFTED

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

KINDS = {
    "yes": T.BooleanType(),
    "tiny": T.ByteType(),
    "small": T.ShortType(),
    "whole": T.IntegerType(),
    "long": T.LongType(),
    "share": T.FloatType(),
    "ratio": T.DoubleType(),
    "text": T.StringType(),
    "raw": T.BinaryType(),
    "amount": T.DecimalType(38, 18),
    "price": T.DecimalType(9, 2),
    "day": T.DateType(),
    "at": T.TimestampType(),
    "a.b": T.StringType(),
}
SCHEMA = T.StructType([T.StructField(name, kind) for name, kind in KINDS.items()])
VALUES: dict[str, Sequence[Any]] = {
    "yes": (True, False),
    "tiny": (127, -128),
    "small": (32_767, -32_768),
    "whole": (2**31 - 1, -(2**31)),
    "long": (2**63 - 1, -(2**63)),
    "share": (1.5, float("-inf")),
    "ratio": (-0.0, float("nan")),
    "text": ("é", "", "\u2028", "a" * 5_000),
    "raw": (b"\x00\xff", b""),
    "amount": (Decimal("99999999999999999999.999999999999999999"), Decimal("-0.000000000000000001")),
    "price": (Decimal("-9999999.99"), Decimal("0.00")),
    "day": (date(1900, 1, 1), date(9999, 12, 31)),
    "at": (datetime(1900, 1, 1, tzinfo=timezone.utc), datetime(9999, 12, 30, 23, 59, 59, 999_999, timezone.utc)),
    "a.b": ("x", "y"),
}


def make_long(*names: str) -> T.StructType:
    return T.StructType([T.StructField(name, T.LongType()) for name in names])


def write_columns(folder: Path, **columns: pa.Array) -> Path:
    """Write a file with these columns."""
    parquet.write_table(pa.table(columns), folder / "a.parquet")
    return folder / "a.parquet"


@pytest.mark.parametrize(
    ("kind", "column"),
    [
        (T.StringType(), pa.array(["x"], pa.large_string())),
        (T.BinaryType(), pa.array([b"x"], pa.large_binary())),
        (T.TimestampType(), pa.array([1], pa.timestamp("us", "UTC"))),
        (T.TimestampType(), pa.array([1], pa.timestamp("ms", "Europe/Berlin"))),
        (T.DecimalType(9, 2), pa.array([Decimal("1.00")], pa.decimal128(9, 2))),
        (T.LongType(), pa.array([None], pa.int64())),
    ],
)
def test_a_column_that_spark_reads_unchanged_is_plain(tmp_path: Path, kind: T.DataType, column: pa.Array) -> None:
    """Any writer may have written it. Text may have any size, and a moment may have any zone."""
    assert is_plain(write_columns(tmp_path, value=column), T.StructType([T.StructField("value", kind)]))


@pytest.mark.parametrize(
    ("kind", "column"),
    [
        (T.LongType(), pa.array([1], pa.int32())),
        (T.LongType(), pa.array([1], pa.uint64())),
        (T.DoubleType(), pa.array([1], pa.float32())),
        (T.DecimalType(10, 2), pa.array([Decimal("1.00")], pa.decimal128(9, 2))),
        (T.StringType(), pa.array([b"x"], pa.binary())),
        (T.StringType(), pa.array(["x"]).dictionary_encode()),
        (T.TimestampType(), pa.array([1], pa.timestamp("us"))),
        (T.TimestampType(), pa.array([1], pa.timestamp("ns", "UTC"))),
        (T.TimestampType(), pa.array([1], pa.date32())),
        (T.TimestampNTZType(), pa.array([1], pa.timestamp("us"))),
        (T.ArrayType(T.LongType()), pa.array([[1]], pa.list_(pa.int64()))),
        (T.StructType([T.StructField("a", T.LongType())]), pa.array([{"a": 1}])),
        (T.VarcharType(3), pa.array(["x"])),
    ],
)
def test_a_column_that_might_be_read_differently_is_left_to_spark(
    tmp_path: Path, kind: T.DataType, column: pa.Array
) -> None:
    """It has another type, a time without a zone, or nested values."""
    assert not is_plain(write_columns(tmp_path, value=column), T.StructType([T.StructField("value", kind)]))


@pytest.mark.parametrize("names", [["id"], ["id", "more", "third"], ["id", "More"], ["id", "other"]])
def test_a_file_must_have_exactly_the_requested_columns(tmp_path: Path, names: list[str]) -> None:
    """The names must match exactly, and may have any order."""
    file = write_columns(tmp_path, more=pa.array([1]), id=pa.array([2]))
    assert is_plain(file, make_long("id", "more"))
    assert not is_plain(file, make_long(*names))
    (table,) = read_pieces(file, make_long("id", "more"), [])
    assert table.to_pylist() == [{"id": 2, "more": 1}]


def test_a_column_given_twice_is_left_to_spark(tmp_path: Path) -> None:
    """Wherry cannot match such columns by name."""
    table = pa.table([pa.array([1]), pa.array([2])], names=["id", "id"])
    parquet.write_table(table, tmp_path / "a.parquet")
    assert not is_plain(tmp_path / "a.parquet", make_long("id", "id"))


def test_a_file_that_is_not_parquet_is_left_to_spark(tmp_path: Path) -> None:
    """Spark reports what is wrong with it."""
    (tmp_path / "a.parquet").write_bytes(b"PAR1 rubbish")
    assert not is_plain(tmp_path / "a.parquet", make_long("id"))
    assert not is_plain(tmp_path / "b.parquet", make_long("id"))


@pytest.mark.parametrize(
    ("key", "value", "plain"),
    [
        ("legacyDateTime", "", False),
        ("legacyINT96", "", False),
        ("version", "2.4.8", False),
        ("version", "3.0.3", False),
        ("version", "3.1.0", True),
        ("version", "4.2.0", True),
    ],
)
def test_days_of_another_calendar_are_left_to_spark(tmp_path: Path, key: str, value: str, plain: bool) -> None:
    """The file's metadata names the calendar or the version of Spark."""
    noted = {f"org.apache.spark.{key}": value}
    parquet.write_table(pa.table({"id": [1]}).replace_schema_metadata(noted), tmp_path / "a.parquet")
    assert is_plain(tmp_path / "a.parquet", make_long("id")) is plain


@pytest.mark.parametrize(
    ("kind", "column"),
    [
        (T.DateType(), pa.array([0, -25_568], pa.date32())),
        (T.TimestampType(), pa.array([0, -25_567 * 86_400_000_000 - 1], pa.timestamp("us", "UTC"))),
    ],
)
def test_a_day_before_1900_is_left_to_spark(tmp_path: Path, kind: T.DataType, column: pa.Array) -> None:
    """Spark's settings decide which day it is."""
    schema = T.StructType([T.StructField("value", kind)])
    with pytest.raises(ReadsOtherwise, match="before 1900"):
        list(read_pieces(write_columns(tmp_path, value=column), schema, []))


@pytest.mark.parametrize("seed", range(20))
def test_all_rows_except_the_excluded_ones_are_read(tmp_path: Path, seed: int) -> None:
    """They are in order, across the ends of the pieces in which they are read."""
    chance = random.Random(seed)
    rows = chance.choice([1, 65_535, 65_536, 65_537, 200_000])
    borders = [each for each in (0, 65_535, 65_536, 131_071, 131_072, rows - 1) if each < rows]
    gone = {*chance.sample(range(rows), min(rows, 50)), *chance.sample(borders, len(borders) // 2)}
    parquet.write_table(
        pa.table({"id": range(rows)}), tmp_path / "a.parquet", row_group_size=chance.randint(10_000, rows + 10_000)
    )
    tables = list(read_pieces(tmp_path / "a.parquet", make_long("id"), sorted(gone)))
    assert count_rows(tmp_path / "a.parquet") == rows
    assert pa.concat_tables(tables)["id"].to_pylist() == [number for number in range(rows) if number not in gone]


def test_a_small_file_with_too_many_rows_is_left_to_spark(tmp_path: Path) -> None:
    """So is every file if Spark shifts moments, and a file that is cut short."""
    spark, shifted = (cast("SparkSession", SimpleNamespace(conf=conf)) for conf in ({}, {INT96_SHIFTED.key: "true"}))
    few, many = (write_columns(tmp_path, text=pa.array(["a" * 1_000] * rows)).read_bytes() for rows in (10, 10_000))
    schema = T.StructType([T.StructField("text", T.StringType())])
    assert len(many) < 100_000
    rows = [parse_few(spark, content, schema) for content in (few, many)]
    assert [table is not None and table.num_rows for table in rows] == [10, False]
    assert parse_few(shifted, few, schema) is None
    assert parse_few(spark, few[:-9], schema) is None


def draw_rows(seed: int) -> list[dict[str, Any]]:
    """Return rows with every type, at its ends and with NULL."""
    chance = random.Random(seed)
    return [{name: chance.choice([None, *values]) for name, values in VALUES.items()} for _ in range(300)]


@pytest.mark.spark
@pytest.mark.parametrize("writer", ["spark", "spark, whole moments", "arrow", "arrow, old moments"])
def test_spark_reads_the_same_rows(spark: SparkSession, tmp_path: Path, writer: str) -> None:
    """They have every type at its ends, and Spark and other writers wrote the files."""
    rows = draw_rows(7)
    if writer.startswith("spark"):
        kind = "TIMESTAMP_MICROS" if "whole" in writer else "INT96"
        frame = spark.createDataFrame([tuple(row.values()) for row in rows], SCHEMA).coalesce(1)
        spark.conf.set("spark.sql.parquet.outputTimestampType", kind)
        frame.write.parquet(str(tmp_path / "rows"))
        spark.conf.unset("spark.sql.parquet.outputTimestampType")
        (file,) = (tmp_path / "rows").glob("*.parquet")
    else:
        from pyspark.sql.pandas.types import to_arrow_schema

        file = tmp_path / "a.parquet"
        table = pa.Table.from_pylist(rows, to_arrow_schema(SCHEMA, timezone="UTC"))
        parquet.write_table(table, file, use_deprecated_int96_timestamps="old" in writer)
    assert is_plain(file, SCHEMA)
    here = pa.concat_tables(read_pieces(file, SCHEMA, []))
    there = spark.read.schema(SCHEMA).parquet(str(file)).toArrow()
    assert here.schema.types == there.schema.types
    assert list(map(repr, here.to_pylist())) == list(map(repr, there.to_pylist()))
    few = parse_few(spark, file.read_bytes(), SCHEMA)
    assert few is not None
    assert list(map(repr, few.to_pylist())) == list(map(repr, there.to_pylist()))


def test_nanoseconds_are_refused_on_serverless(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Serverless compute of Databricks takes no such setting. The error names the file and the column."""
    monkeypatch.setenv("DATABRICKS_RUNTIME_VERSION", "client.4.9")
    parquet.write_table(pa.table({"at": pa.array([1], pa.timestamp("ns"))}), tmp_path / "a.parquet")
    spark = cast("SparkSession", SimpleNamespace(conf=None))
    with pytest.raises(OriginError, match=r"a\.parquet has times in nanoseconds in the column at, and serverless"):
        find_nanos(spark, parse_pattern(f"{tmp_path}/*.parquet"), "a.parquet")
