"""A row with any values survives the conversion to JSON text and back."""

from __future__ import annotations

import datetime as dt
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from origins.nack import encode_payload, restore
from origins.names import quote_name

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark

NAMES = st.lists(
    st.text("abAB.`'\"\\ äß#%{}[]:,\n-_$0", min_size=1, max_size=6), min_size=1, max_size=4, unique_by=str.lower
)
EVERY_CHARACTER = st.text(st.characters(codec="utf-8"), max_size=8)


def draw_scalars() -> st.SearchStrategy[tuple[Any, st.SearchStrategy[Any]]]:
    """Return a strategy for a type and values of the type."""
    from pyspark.sql import types as T

    day = st.dates(dt.date(1, 1, 1), dt.date(9999, 12, 31))
    moment = st.datetimes(dt.datetime(1900, 1, 2), dt.datetime(2200, 1, 1))
    number = st.decimals(allow_nan=False, allow_infinity=False, places=9).filter(lambda d: abs(d) < 10**29)
    return st.sampled_from(
        [
            (T.StringType(), EVERY_CHARACTER),
            (T.BinaryType(), st.binary(max_size=6).map(bytearray)),
            (T.BooleanType(), st.booleans()),
            (T.ByteType(), st.integers(-(2**7), 2**7 - 1)),
            (T.LongType(), st.integers(-(2**63), 2**63 - 1)),
            (T.FloatType(), st.floats(width=32)),
            (T.DoubleType(), st.floats()),
            (T.DecimalType(38, 9), number),
            (T.DateType(), day),
            (T.TimestampType(), moment),
            (T.TimestampNTZType(), moment),
            (T.DayTimeIntervalType(), st.timedeltas(dt.timedelta(days=-9999), dt.timedelta(days=9999))),
        ]
    )


def draw_nested(
    inner: st.SearchStrategy[tuple[Any, st.SearchStrategy[Any]]],
) -> st.SearchStrategy[tuple[Any, st.SearchStrategy[Any]]]:
    """Return a strategy for arrays, maps and structs of these values."""
    from pyspark.sql import types as T

    def array(of: tuple[Any, Any]) -> tuple[Any, Any]:
        return T.ArrayType(of[0]), st.lists(st.none() | of[1], max_size=3)

    def mapping(of: tuple[Any, Any]) -> tuple[Any, Any]:
        return T.MapType(T.StringType(), of[0]), st.dictionaries(EVERY_CHARACTER, st.none() | of[1], max_size=3)

    def numbered(of: tuple[Any, Any]) -> tuple[Any, Any]:
        return T.MapType(T.LongType(), of[0]), st.dictionaries(st.integers(-9, 9), st.none() | of[1], max_size=3)

    def struct(of: tuple[list[str], Any]) -> tuple[Any, Any]:
        names, kind = of
        return T.StructType([T.StructField(name, kind[0]) for name in names]), st.tuples(
            *[st.none() | kind[1]] * len(names)
        )

    return inner.map(array) | inner.map(mapping) | inner.map(numbered) | st.tuples(NAMES, inner).map(struct)


@st.composite
def draw_tables(draw: st.DrawFn) -> tuple[Any, list[tuple[Any, ...]]]:
    """Return a schema and forty rows with it."""
    from pyspark.sql import types as T

    columns = draw(st.lists(st.recursive(draw_scalars(), draw_nested, max_leaves=4), min_size=1, max_size=5))
    names = draw(st.lists(NAMES.map("".join), min_size=len(columns), max_size=len(columns), unique_by=str.lower))
    schema = T.StructType([T.StructField(name, kind) for name, (kind, _) in zip(names, columns, strict=True)])
    row = st.tuples(*[st.none() | values for _, values in columns])
    return schema, draw(st.lists(row, min_size=40, max_size=40))


@pytest.mark.promise("X5", "DQ-02")
@settings(max_examples=12, deadline=None, suppress_health_check=list(HealthCheck))
@given(table=draw_tables())
def test_every_row_is_restored_unchanged(spark: SparkSession, table: tuple[Any, list[tuple[Any, ...]]]) -> None:
    """This holds for nested values, NULLs at every depth, NaN, extremes of every type, and unusual names."""
    schema, rows = table
    ways = restore_rows(spark.createDataFrame(rows, schema)).collect()
    assert [repr(way.after) for way in ways] == [repr(way.before) for way in ways]


ONLY_IN_SQL = [
    "cast(X'FF41' as string)",
    "concat(char(0), 'AA==')",
    "map(cast(X'FE' as string), array(cast(X'EDA080' as string)))",
    "map(X'00', map(date'2026-01-01', 1))",
    "map(named_struct('a', 1, 'b', null), 'x')",
    "named_struct('a', 'x', 'A', 'y')",
    "named_struct('_corrupt_record', 'x')",
    "named_struct('s', cast(null as struct<t: string>))",
    "named_struct('s', named_struct('t', cast(null as string)))",
    "array(named_struct('t', cast(null as string)), null)",
    "timestamp'-0044-03-15 12:00:00.000001'",
    "timestamp_micros(9223372036854775807)",
    "timestamp_ntz'+10000-01-01 00:00:00.999999'",
    "date'-4712-01-01'",
    "cast('99999999999999999999999999999.999999999' as decimal(38, 9))",
    "cast('0.00000000000000000000000000000000000001' as decimal(38, 38))",
    "interval '1-2' year to month",
    "make_interval(1, 2, 3, 4, 5, 6, 7.000008)",
    "named_struct()",
    "null",
    "-0.0d",
    "float('nan')",
    "'a' collate UTF8_LCASE",
]


def test_values_that_python_cannot_hold_are_restored_unchanged(spark: SparkSession) -> None:
    """Only SQL can write these values."""
    columns = [f"c{at}" for at in range(len(ONLY_IN_SQL))]
    given = spark.sql(f"select {', '.join(map(' as '.join, zip(ONLY_IN_SQL, columns, strict=True)))}")
    shown = [f"hex(cast({way}.{name} as string))" for way in ("before", "after") for name in columns]
    (row,) = restore_rows(given).selectExpr(*shown).collect()
    before, after = row[: len(columns)], row[len(columns) :]
    assert [value for value, one, other in zip(ONLY_IN_SQL, before, after, strict=True) if one != other] == []


def test_a_plain_row_is_plain_json(spark: SparkSession) -> None:
    """The JSON shows the names of the columns, and values as usual."""
    frame = spark.sql(
        "select 7 as id, 'sieben' as amount, 1.50 as price, timestamp'2026-01-02 03:04:05.000006' as at, "
        "array('a', null) as tags, map('k', 1) as m, cast(null as string) as email"
    )
    (row,) = frame.selectExpr(encode_payload({name: name for name in frame.columns}, frame.schema)).collect()
    assert row[0] == (
        '{"id":7,"amount":"sieben","price":1.50,"at":"2026-01-02T03:04:05.000006Z",'
        '"tags":["a",null],"m":{"k":1},"email":null}'
    )


def test_a_name_that_looks_like_a_variable_is_kept(spark: SparkSession) -> None:
    """Spark does not replace it with a setting or an environment variable."""
    from pyspark.sql import functions as F

    names = ["${spark.app.name}", "${env:PATH}", "a${b}", "${"]
    frame = spark.range(1).select(*[F.lit(name).alias(name) for name in names])
    (row,) = restore_rows(frame).collect()
    assert row.after.asDict() == {name: name for name in names}


def test_text_that_does_not_fit_the_schema_raises(spark: SparkSession) -> None:
    """A payload that was edited by hand is an error, and gives no row of NULLs."""
    from pyspark.sql.types import LongType, StructType

    frame = spark.createDataFrame([('{"id": "seven"}',)], "text string")
    with pytest.raises(Exception, match="MALFORMED_RECORD"):
        frame.selectExpr(restore("text", StructType().add("id", LongType()))).collect()


def restore_rows(frame: DataFrame) -> DataFrame:
    """Return each row as the struct `before`, and as the struct `after` restored from text."""
    from pyspark.sql import functions as F

    text = encode_payload({name: quote_name(name) for name in frame.columns}, frame.schema)
    return frame.select(F.struct("*").alias("before"), F.expr(restore(text, frame.schema)).alias("after"))
