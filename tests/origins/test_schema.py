"""A schema in a definition is parsed as Spark parses it."""

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
def test_a_schema_is_parsed_as_by_spark(spark: SparkSession) -> None:
    """The names and types are equal. Every column of read rows is nullable."""
    for text in WRITTEN:
        its = spark.createDataFrame([], text).schema
        found = [(each.name, each.dataType, each.nullable) for each in parse_schema(spark, text, "here")]
        assert found == [(each.name, each.dataType, True) for each in its], text


def test_a_schema_that_spark_cannot_parse_is_an_error(spark: SparkSession) -> None:
    """The error names the schema and has an example."""
    for text in ("id", "grün long", "id long,", "id lang", "id long long", "id long; x int", "`id long", "1d long"):
        with pytest.raises(OriginError, match=f"is not valid: {text}"):
            parse_schema(spark, text, "here")


def test_plain_columns_are_parsed_without_spark(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    """A new session takes a second to parse its first schema."""
    monkeypatch.setattr(type(spark), "createDataFrame", None)
    found = parse_schema(spark, {"id": "long", "at": "timestamp"}, "here")
    assert found == StructType.fromDDL("id long, at timestamp")


def test_the_type_of_a_timestamp_follows_the_session(spark: SparkSession) -> None:
    """A session may be set to timestamps without a zone."""
    spark.conf.set("spark.sql.timestampType", "TIMESTAMP_NTZ")
    assert [each.dataType.simpleString() for each in parse_schema(spark, "at timestamp", "here")] == ["timestamp_ntz"]


EMPTY = [
    ", ".join(f"c{at} {column.partition(' ')[2]}" for at, column in enumerate(PLAIN)),
    "c void",
    "c interval",
    "c variant",
    "c decimal(38,9), `unit price` map<string,array<int>>, p struct<x: int, `y z`: struct<t: timestamp>>",
    "c long not null, d string",
    "p struct<x: int not null>",
    "c string comment 'a word'",
]


@pytest.mark.connect
def test_an_empty_frame_has_the_schema_and_no_rows(spark: SparkSession) -> None:
    """The types, nullability and metadata of its columns equal those in Spark."""
    for text in EMPTY:
        schema = StructType(spark.createDataFrame([], text).schema.fields)
        frame = make_empty_frame(spark, schema)
        assert (frame.schema.json(), frame.isEmpty()) == (schema.json(), True), text


def test_an_empty_frame_may_have_no_columns(spark: SparkSession) -> None:
    """A file without columns has such a schema."""
    assert make_empty_frame(spark, StructType([])).columns == []


def test_an_empty_frame_needs_no_pandas(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    """`createDataFrame` imports pandas."""
    monkeypatch.setattr(type(spark), "createDataFrame", None)
    assert make_empty_frame(spark, StructType().add("id", "long").add("at", "date")).columns == ["id", "at"]
