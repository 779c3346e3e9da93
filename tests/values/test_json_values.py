"""Every way to a row of JSON gives the exact value, or refuses the line. Spark's own reader is the measure of texts."""

from __future__ import annotations

import gzip
import json
import random
from collections.abc import Mapping, Sequence
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from origins.files import Files
from origins.files.changes import Changes
from origins.files.json_lines import LINE, judge_json_text, parse_lines
from origins.files.json_text import JsonChanges
from origins.nack import REFUSED
from tests.origins.test_on_change import plan_batch
from tests.values.json_cases import (
    COLUMNS,
    DECIMALS,
    NUMBERS,
    SCHEMA,
    TEXTS,
    WRONG,
    find_changed,
    fits,
    list_lines,
    make_number,
    make_text,
    number_lines,
)

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    Rows = Mapping[int, Mapping[str, Any]]

LINES = list_lines()
WAYS: dict[str, tuple[dict[str, Any], bool]] = {
    "straight": ({}, False),
    "decided": ({}, True),
    "other values are rescued": ({"on_change": {"other": "rescue"}}, True),
    "extra keys are rescued": ({"on_change": {"extra": "rescue"}}, False),
}


def collect_rows(frame: DataFrame) -> Rows:
    """Return the rows that are not refused, by their id."""
    rows = [row.asDict(recursive=True) for row in frame.collect()]
    return {row["id"]: row for row in rows if row.get(REFUSED) is None and row["id"] is not None}


def read_by_spark(spark: SparkSession, folder: Path, lines: Sequence[str]) -> Rows:
    """Return the texts that Spark's own reader gives."""
    folder.mkdir()
    (folder / "a.json").write_text("\n".join(lines), encoding="utf-8")
    kinds = ", ".join(f"{name} {COLUMNS[name]}" for name in TEXTS)
    return collect_rows(spark.read.schema(f"id int, {kinds}, s struct<text: string>").json(str(folder)))


def read_by_way(spark: SparkSession, folder: Path, lines: Sequence[str], way: str) -> Rows:
    options, places = WAYS[way]
    folder.mkdir()
    (folder / "a.json").write_text("\n".join([*lines, WRONG]), encoding="utf-8")
    files = Files(**{"path": str(folder), "format": "json", "schema": SCHEMA, **options})
    return collect_rows(files.fetch(spark, [plan_batch(spark, files)], places=places).frame())


def read_as_messages(spark: SparkSession, lines: Sequence[str]) -> Rows:
    """Return the rows of Kafka's messages, parsed by the same function."""
    frame = spark.createDataFrame([(line,) for line in lines], f"{LINE} string")
    schema = spark.createDataFrame([], SCHEMA).schema
    wrong = JsonChanges(schema=schema, changes=Changes.of("json", {}, given=True), options={})
    is_bad = judge_json_text(wrong).is_bad
    return collect_rows(parse_lines(frame, wrong, keep_blank=True).where(f"not ({is_bad})").select(*schema.names))


def find_other_texts(rows: Rows, measure: Rows, lines: Sequence[str]) -> list[Any]:
    """Return the lines whose texts differ from what Spark's own reader gives."""

    def get_texts(row: Mapping[str, Any]) -> Any:
        return normalize([*(row[name] for name in TEXTS), (row["s"] or {}).get("text")])

    return [(lines[at], row) for at, row in rows.items() if get_texts(row) != get_texts(measure[at])]


def normalize(value: Any) -> Any:
    """Return the value with objects and arrays that are text in one form. Their numbers stay as they are written."""
    if isinstance(value, Mapping):
        return {key: normalize(each) for key, each in value.items()}
    if isinstance(value, list):
        return [*map(normalize, value)]
    try:
        found = json.loads(value, parse_float=Number, parse_int=Number, strict=False)
    except (TypeError, ValueError):
        return value
    return found if isinstance(found, dict | list) else value


class Number(str):
    """The text of a number, which differs from the same text in quotes."""

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Number) and str(self) == str(other)

    __hash__ = str.__hash__


def is_plain_line(line: str) -> bool:
    """Return whether a line has one of the columns with only texts, or a plain decimal that fits its column."""
    value = json.loads(line.replace("'", '"'), parse_float=str, parse_int=str)
    name = [*value][-1]
    kind = DECIMALS.get(name)
    if kind is None:
        return name in TEXTS and len(value) == 2
    written = value[name]
    return (
        isinstance(written, str) and written in NUMBERS and "e" not in written.lower() and fits(Decimal(written), *kind)
    )


@pytest.fixture
def measure(spark: SparkSession, tmp_path: Path) -> Rows:
    return read_by_spark(spark, tmp_path / "measure", LINES)


def must_be_read(line: str) -> bool:
    try:
        return is_plain_line(line)
    except ValueError:
        return False


@pytest.mark.spark
@pytest.mark.parametrize("way", WAYS)
def test_a_value_is_exact_or_refused(spark: SparkSession, tmp_path: Path, measure: Rows, way: str) -> None:
    """A text is as in the line, and a decimal is the same number. Plain values are read."""
    rows = read_by_way(spark, tmp_path / "in", LINES, way)
    assert find_other_texts(rows, measure, LINES) == []
    assert [*find_changed(LINES, rows)] == []
    assert [line for at, line in enumerate(LINES) if must_be_read(line) and at not in rows] == []


@pytest.mark.spark
def test_a_message_is_exact_or_refused(spark: SparkSession, measure: Rows) -> None:
    """Kafka's JSON is always parsed from its text."""
    rows = read_as_messages(spark, LINES)
    assert find_other_texts(rows, measure, LINES) == []
    assert [*find_changed(LINES, rows)] == []
    assert [line for at, line in enumerate(LINES) if must_be_read(line) and at not in rows] == []


@pytest.mark.spark
def test_a_whole_file_is_exact(spark: SparkSession, tmp_path: Path) -> None:
    """This holds for an array of objects over several lines, in a packed file."""
    lines = number_lines(['{"id": #, "text": 1.10, "s": {"text": 1e400}}', '{"id": #, "a": [-0]}'])
    content = f"[{', '.join(lines)}]".replace("}, {", "},\n{").encode()
    (tmp_path / "a.json.gz").write_bytes(gzip.compress(content))
    files = Files(path=str(tmp_path), format="json", schema=SCHEMA, options={"multiLine": True})
    for places in (False, True):
        rows = collect_rows(files.fetch(spark, [plan_batch(spark, files)], places=places).frame())
        assert (rows[0]["text"], rows[0]["s"]["text"], rows[1]["a"]) == ("1.10", "1e400", ["-0"])


@pytest.mark.spark
def test_a_number_beside_the_mark_of_numbers_is_refused(spark: SparkSession) -> None:
    """The line has a number in a column of text, and the character that marks numbers."""
    lines = number_lines(['{"id": #, "text": 1.10, "other": "\ufdd0"}', r'{"id": #, "text": 1.10, "n\uFDD0": 1}'])
    assert [*read_as_messages(spark, [*lines, '{"id": 2}'])] == [2]


@pytest.mark.spark
def test_a_number_beside_a_comment_keeps_its_text(spark: SparkSession, tmp_path: Path) -> None:
    """Quotes in a comment begin no string."""
    lines = number_lines(
        ['{"id": #, /* it\'s 2 */ "text": 1.10/* " */, "a": [1.50 /**/]}', '{"id": #, "text": 1e5} // it\'s']
    )
    (tmp_path / "a.json").write_text("\n".join([*lines, WRONG]))
    files = Files(path=str(tmp_path), format="json", schema=SCHEMA, options={"allowComments": True})
    rows = collect_rows(files.fetch(spark, [plan_batch(spark, files)], places=True).frame())
    assert [(row["text"], row["a"]) for row in rows.values()] == [("1.10", ["1.50"]), ("1e5", None)]


@pytest.mark.spark
def test_a_decimal_that_is_only_too_fine_is_rescued_alone(spark: SparkSession, tmp_path: Path) -> None:
    """The other columns of its line are read."""
    (tmp_path / "a.json").write_text('{"id": 1, "price": 1e-3, "text": 2e50}\n{"id": 2, "price": 1234567890123.50}')
    files = Files(path=str(tmp_path), format="json", schema=SCHEMA, on_change={"other": "rescue", "wider": "rescue"})
    rows = collect_rows(files.fetch(spark, [plan_batch(spark, files)], places=True).frame())
    assert [(row["price"], row["text"], row["_rescued"]) for row in rows.values()] == [
        (None, "2e50", '{"price":0.001}'),
        (None, None, '{"price":1234567890123.5}'),
    ]


@pytest.mark.spark
def test_leading_zeros_stay(spark: SparkSession, tmp_path: Path) -> None:
    """An option allows them."""
    (tmp_path / "a.json").write_text(f'{{"id": 1, "text": 007, "price": 01.50}}\n{WRONG}')
    files = Files(path=str(tmp_path), format="json", schema=SCHEMA, options={"allowNumericLeadingZeros": True})
    rows = collect_rows(files.fetch(spark, [plan_batch(spark, files)], places=True).frame())
    assert (rows[1]["text"], rows[1]["price"]) == ("007", Decimal("1.50"))


@pytest.mark.spark
def test_random_numbers_and_characters_are_exact_or_refused(spark: SparkSession, tmp_path: Path) -> None:
    """They stand in every column, in one file."""
    chance = random.Random(46)
    lines = list_lines([make_number(chance) for _ in range(150)] + [make_text(chance) for _ in range(100)])
    measure = read_by_spark(spark, tmp_path / "measure", lines)
    for way in ("straight", "decided", "other values are rescued"):
        rows = read_by_way(spark, tmp_path / way, lines, way)
        assert find_other_texts(rows, measure, lines) == []
        assert [*find_changed(lines, rows)] == []
        assert len(rows) > len(lines) / 2
