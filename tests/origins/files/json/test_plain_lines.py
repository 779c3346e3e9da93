"""A line of JSON counts as plain only if the exact checks would find nothing on it."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

import pytest
from pyspark.sql import functions as F
from pyspark.sql.types import ArrayType, LongType, StringType, StructField, StructType

from origins.files.bad_lines import CORRUPT
from origins.files.changes import Changes
from origins.files.json_lines import LINE, parse_lines
from origins.files.json_text import JsonChanges
from origins.files.json_written import PARSED
from tests.origins.files.json.test_keys import NAMES, is_refused, make_line

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pyspark.sql import SparkSession

SCHEMA = StructType([StructField(name, StringType()) for name in NAMES])
TAILS = ("", "", "", " ", ",", "}", '{"id": 2}', " {}", "x", ' "id":')


def make_wrong(*, schema: StructType = SCHEMA, options: Mapping[str, str] | None = None, **also: str) -> JsonChanges:
    policies = {"extra": "nack", "missing": "evolve", **also}
    return JsonChanges(schema=schema, changes=Changes.of("json", policies, given=True), options=options or {})


def find_plain(spark: SparkSession, lines: Sequence[bytes], wrong: JsonChanges, *, parsed: bool) -> list[bool | None]:
    """Return whether each line is plain, or None if it is not a JSON object."""
    kind = StructType([*wrong.schema, StructField(CORRUPT, StringType())])
    frame = spark.createDataFrame([(line,) for line in lines], "value binary").selectExpr(
        f"cast(value as string) {LINE}"
    )
    frame = frame.withColumn(PARSED, F.from_json(LINE, kind, {"columnNameOfCorruptRecord": CORRUPT}))
    is_plain = wrong.is_plain_sql(LINE, PARSED if parsed else None)
    return [row[0] for row in frame.selectExpr(f"if({PARSED}.{CORRUPT} is null, {is_plain}, null)").collect()]


@pytest.mark.spark
@pytest.mark.parametrize("parsed", [True, False])
def test_a_plain_line_is_one_object_with_the_right_keys(spark: SparkSession, parsed: bool) -> None:
    """The lines have any blanks, quotes and escapes, any values, and any text after the object."""
    chance = random.Random(11)
    made = [(*make_line(chance), chance.choice(TAILS)) for _ in range(20_000)]
    found = find_plain(spark, [(line + tail).encode() for line, _, tail in made], make_wrong(), parsed=parsed)
    taken = [each for each, plain in zip(made, found, strict=True) if plain]
    assert [line + tail for line, keys, tail in taken if tail.strip() or is_refused(keys, extra=True)] == []
    assert len(taken) > 100


@pytest.mark.spark
def test_bytes_that_are_no_text_are_not_plain(spark: SparkSession) -> None:
    """This also holds if the parser replaces them with a character."""
    assert find_plain(spark, [b'{"id":"\xe4"}', b'{"id":"\xc3\xa4"}'], make_wrong(), parsed=True) == [False, True]


@pytest.mark.spark
def test_a_line_without_a_key_is_not_plain_if_missing_keys_count(spark: SparkSession) -> None:
    """A key with NULL is not missing."""
    lines = [b'{"id":"1","name":null,"note":"y"}', b'{"id":"1","note":"y"}']
    assert find_plain(spark, lines, make_wrong(missing="nack"), parsed=True) == [True, False]


@pytest.mark.spark
def test_a_column_with_a_default_proves_no_key(spark: SparkSession) -> None:
    """The parser fills in the default if the key is missing, which would hide the key in another case."""
    default = {"EXISTS_DEFAULT": "'none'", "CURRENT_DEFAULT": "'none'"}
    schema = StructType([StructField("id", StringType()), StructField("name", StringType(), metadata=default)])
    lines = [b'{"id":"1","NAME":"x"}', b'{"id":"1","name":"x"}']
    assert find_plain(spark, lines, make_wrong(schema=schema), parsed=True) == [False, True]


@pytest.mark.parametrize("options", [{"allowcomments": "true"}, {"encoding": "US-ASCII"}, {"multiline": "true"}])
def test_no_line_is_plain_with_options_that_change_its_syntax(options: dict[str, str]) -> None:
    """A comment can contain text that looks like a key."""
    assert make_wrong(options=options).is_plain_sql(LINE, PARSED) == "false"


def test_no_line_is_plain_with_nested_columns() -> None:
    """Such lines have several objects, or commas in their arrays."""
    schema = StructType([StructField("id", ArrayType(LongType()))])
    assert make_wrong(schema=schema).is_plain_sql(LINE, PARSED) == "false"


def test_no_line_is_plain_with_a_column_whose_name_has_quotes() -> None:
    """The line `{"id":1,"x":2}` has the key `x`, and its text also looks like the key of such a column."""
    schema = StructType([StructField("id", StringType()), StructField('id":1,"x', StringType())])
    wrong = make_wrong(schema=schema)
    assert wrong.is_plain_sql(LINE, PARSED) == wrong.is_plain_sql(LINE) == "false"


@pytest.mark.spark
def test_a_key_is_refused_beside_a_column_whose_name_contains_it_in_quotes(spark: SparkSession) -> None:
    """The members of the line look like one key of that column."""
    schema = StructType([StructField("id", StringType()), StructField('id":1,"x', StringType())])
    lines = [('{"id":1,"x":2}',), ('{"id":1}',)]
    frame = parse_lines(spark.createDataFrame(lines, f"{LINE} string"), make_wrong(schema=schema))
    assert [row[0] for row in frame.selectExpr(f"{CORRUPT} is not null").collect()] == [True, False]
