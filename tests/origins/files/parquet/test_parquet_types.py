"""How types in a parquet file differ from the types in the schema."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, cast

import pyarrow as pa
import pytest
from pyarrow import parquet
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    DataType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    MapType,
    ShortType,
    StringType,
    TimestampNTZType,
    TimestampType,
    VariantType,
)

from origins.errors import OriginError
from origins.files.listing import parse_pattern
from origins.files.parquet_rows import find_nanos
from origins.files.parquet_values import differs, is_read_as, list_differences
from tests.origins.files.test_growth import make_struct

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

INT, LONG, TEXT, REAL = IntegerType(), LongType(), StringType(), DoubleType()


def test_differences_are_reported_by_path_at_any_depth() -> None:
    """The case of names does not matter.

    Fields inside a missing column, or one of another type, are not reported too.
    """
    want = make_struct(
        id=INT,
        s=make_struct(a=INT, b=INT),
        items=ArrayType(make_struct(c=INT)),
        tags=MapType(TEXT, INT),
        z=make_struct(d=INT),
    )
    found = make_struct(
        ID=LONG, S=make_struct(A=TEXT, e=INT), items=ArrayType(make_struct(c=REAL, f=INT)), tags=MapType(TEXT, TEXT)
    )
    assert list(list_differences(want, found)) == [
        ("wider", "id", "id as bigint instead of int"),
        ("other", "s.a", "s.a as string instead of int"),
        ("missing", "s.b", "s.b"),
        ("extra", "s.e", "s.e"),
        ("other", "items.c", "items.c as double instead of int"),
        ("extra", "items.f", "items.f"),
        ("other", "tags", "tags as string instead of int"),
        ("missing", "z", "z"),
    ]


@pytest.mark.parametrize(
    ("want", "found"),
    [
        (make_struct(a=INT), TEXT),
        (TEXT, make_struct(a=INT)),
        (ArrayType(INT), INT),
        (ArrayType(INT), MapType(TEXT, INT)),
        (MapType(INT, INT), MapType(TEXT, INT)),
    ],
)
def test_a_nested_type_differs_from_a_simple_one(want: DataType, found: DataType) -> None:
    """A map with keys of another type differs too."""
    assert [(kind, path) for kind, path, _ in list_differences(make_struct(v=want), make_struct(v=found))] == [
        ("other", "v")
    ]
    assert differs(make_struct(v=want), make_struct(v=found))


@pytest.mark.parametrize(
    ("want", "found", "expected"),
    [
        (LONG, INT, True),
        (REAL, INT, True),
        (REAL, FloatType(), True),
        (DecimalType(12, 2), INT, True),
        (DecimalType(12, 3), DecimalType(10, 2), True),
        (TimestampType(), TimestampNTZType(), True),
        (TimestampNTZType(), TimestampType(), True),
        (TimestampNTZType(), DateType(), True),
        (TEXT, BinaryType(), True),
        (VariantType(), make_struct(a=INT), True),
        (INT, LONG, False),
        (ShortType(), INT, False),
        (REAL, LONG, False),
        (INT, DecimalType(5, 2), False),
        (REAL, DecimalType(5, 2), False),
        (INT, DateType(), False),
        (DateType(), INT, False),
        (LONG, TimestampNTZType(), False),
        (TimestampType(), DateType(), False),
        (INT, BooleanType(), False),
        (TEXT, INT, False),
    ],
)
def test_a_type_is_read_as_another_if_every_value_stays_the_same(
    want: DataType, found: DataType, expected: bool
) -> None:
    """Types whose values Spark's reader would change do not count. Spark decides about unknown types."""
    assert is_read_as(want, found) is expected


def test_nanoseconds_are_refused_on_serverless(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Serverless compute of Databricks takes no such setting. The error names the file and the column."""
    monkeypatch.setenv("DATABRICKS_RUNTIME_VERSION", "client.4.9")
    parquet.write_table(pa.table({"at": pa.array([1], pa.timestamp("ns"))}), tmp_path / "a.parquet")
    spark = cast("SparkSession", SimpleNamespace(conf=None))
    with pytest.raises(OriginError, match=r"a\.parquet has times in nanoseconds in the column at, and serverless"):
        find_nanos(spark, parse_pattern(f"{tmp_path}/*.parquet"), "a.parquet")
