"""The schema that a definition writes is the one that Spark would read."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from pyspark.sql.types import StructType

from origins.errors import OriginError
from origins.schema import make_empty_frame, parse_schema

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark
WORDS = (
    "boolean tinyint byte smallint short int integer bigint long float real double string binary date timestamp "
    "timestamp_ltz timestamp_ntz Bigint STRING"
)
PLAIN = [f"c {word}" for word in WORDS.split(" ")]
WRITTEN = [
    *PLAIN,
    ", ".join(f"c{at} {column.partition(' ')[2]}" for at, column in enumerate(PLAIN)),
    "  id   long ,\n name\tstring ",
    "`id` long, `select` string, from int, _x int",
    "id decimal(10,2), name string",
    "id long not null",
    "id long comment 'a, b'",
    "id: long, name: string",
    "`unit price` long",
    "tags array<string>",
    "place struct<x: int, y: int>",
    "id long, ID long",
    "c interval",
    "c void",
]


@pytest.mark.connect
@pytest.mark.parametrize("text", WRITTEN)
def test_it_is_what_spark_understands(spark: SparkSession, text: str) -> None:
    """By name and type; in a table that is read every column may be NULL."""
    its = spark.createDataFrame([], text).schema
    assert [(each.name, each.dataType, each.nullable) for each in parse_schema(spark, text, "here")] == [
        (each.name, each.dataType, True) for each in its
    ]


@pytest.mark.parametrize(
    "text", ["id", "grün long", "id long,", "id lang", "id long long", "id long; x int", "`id long", "1d long"]
)
def test_what_spark_does_not_understand_is_an_error(spark: SparkSession, text: str) -> None:
    """With an example of how it is written."""
    with pytest.raises(OriginError, match="is not valid"):
        parse_schema(spark, text, "here")


def test_plain_columns_are_understood_without_spark(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    """A session that has just begun takes a second to read its first."""
    monkeypatch.setattr(type(spark), "createDataFrame", None)
    found = parse_schema(spark, {"id": "long", "at": "timestamp"}, "here")
    assert found == StructType.fromDDL("id long, at timestamp")


def test_a_timestamp_is_what_the_session_says(spark: SparkSession) -> None:
    """One may be told that it has no zone."""
    spark.conf.set("spark.sql.timestampType", "TIMESTAMP_NTZ")
    assert [each.dataType.simpleString() for each in parse_schema(spark, "at timestamp", "here")] == ["timestamp_ntz"]


@pytest.mark.connect
@pytest.mark.parametrize(
    "text",
    [
        *PLAIN,
        "c void",
        "c interval",
        "c variant",
        "c decimal(38,9), `unit price` map<string,array<int>>, p struct<x: int, `y z`: struct<t: timestamp>>",
        "c long not null, d string",
        "p struct<x: int not null>",
        "c string comment 'a word'",
    ],
)
def test_an_empty_frame_has_the_schema_and_no_rows(spark: SparkSession, text: str) -> None:
    """Types, what may be NULL, and what is noted beside the columns are as Spark has them."""
    schema = StructType(spark.createDataFrame([], text).schema.fields)
    frame = make_empty_frame(spark, schema)
    assert (frame.schema.json(), frame.isEmpty()) == (schema.json(), True)


def test_an_empty_frame_without_columns_has_none(spark: SparkSession) -> None:
    """A file without columns has such a schema."""
    assert make_empty_frame(spark, StructType([])).columns == []


def test_an_empty_frame_asks_for_no_pandas(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    """`createDataFrame` loads it."""
    monkeypatch.setattr(type(spark), "createDataFrame", None)
    assert make_empty_frame(spark, StructType().add("id", "long").add("at", "date")).columns == ["id", "at"]
