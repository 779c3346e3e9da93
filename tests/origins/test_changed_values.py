"""Values that Spark's parsers and casts would change without an error are refused or rescued."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from pyarrow import parquet
from pyspark.sql.types import (
    ArrayType,
    ByteType,
    DateType,
    DoubleType,
    FloatType,
    IntegerType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from origins.files import Files, file_systems
from origins.files.in_process import are_all_plain, are_lines_plain, parse_rows
from origins.nack import REFUSED
from tests.origins.test_on_change import plan_batch, read_both_ways, read_decided

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SCHEMA = (
    "x double, f float, t tinyint, at timestamp, d date, note string, "
    "a array<double>, s struct<x: double, y: int>, m map<string, float>"
)
ALIKE = StructType(
    [
        StructField("x", DoubleType()),
        StructField("f", FloatType()),
        StructField("t", ByteType()),
        StructField("at", TimestampType()),
        StructField("d", DateType()),
        StructField("note", StringType()),
        StructField("a", ArrayType(DoubleType())),
        StructField("s", StructType([StructField("x", DoubleType()), StructField("y", IntegerType())])),
        StructField("m", MapType(StringType(), FloatType())),
    ]
)
"""The same schema, made without Spark."""
FLAT = StructType([field for field in ALIKE if field.name in ("x", "t", "at", "d", "note")])
NARROW = b'{"t": 200}'
"""Only Spark's reader finds this value, from the parsed columns."""
KEPT: dict[bytes, dict[str, Any]] = {
    rb'{"x": Infinity}': {"x": float("inf")},
    rb'{"x": "-Infinity", "a": [Infinity, "Infinity"]}': {"x": -float("inf"), "a": [float("inf")] * 2},
    rb'{"x": 1e300, "f": 3e38, "t": -128}': {"x": 1e300, "t": -128},
    rb'{"x": 1e-400}': {"x": 0.0},
    rb'{"note": "x, Infinity, 1e400, \"x\": 1e400"}': {"note": 'x, Infinity, 1e400, "x": 1e400'},
    rb'{"note": "\ud83d\ude00"}': {"note": "\U0001f600"},
    rb'{"note": "\\ud800"}': {"note": r"\ud800"},
    rb'{"note": "\u0000\b"}': {"note": "\0\b"},
    rb'{"d": "2026-01-02\n"}': {},
    rb'{"note": "note"}': {"note": "note"},
    rb'{"new": 1, "new": 2}': {},
    rb'{"m": {"k": 1, "K": 2}}': {"m": {"k": 1.0, "K": 2.0}},
    '{"note": "\ufffd"}'.encode(): {"note": "\ufffd"},
}
VALUES = {
    b'{"x": 1e400}': "column x: '1e400' is not a double",
    b'{"x": -1e400, "note": "Infinity"}': "column x: '-1e400' is not a double",
    b'{"x": ' + b"9" * 400 + b"}": "is not a double",
    b'{"f": 1e39}': "column f: '1e39' is not a float",
    b'{"f": ' + b"9" * 40 + b"}": "is not a float",
    b'{"x": Infinity, "f": 1e39}': "column f: '1e39' is not a float",
    b'{"a": [1, Infinity, 1e400]}': "is not an array<double>",
    b'{"s": {"x": 1e400}}': "column s",
    b'{"m": {"k": 1e39}}': "column m",
    NARROW: "column t: '200' is not a tinyint",
    rb'{"d": "2026-01-02\u0000"}': "is not a date",
    rb'{"at": "\b2026-01-02T03:04:05"}': "is not a timestamp",
    b'{"d": "2026-01-02\x7f"}': "is not a date",
}
NO_TEXT = [
    rb'{"note": "\ud800"}', rb'{"note": "\uDBFFx"}', rb'{"note": "\ude00\ud83d"}', rb'{"note": "\\\ud800"}',
    rb'{"note": "\\ud83d\ude00"}', rb'{"new": "\udfff"}', b'{"note": "0\xc0\xaf"}', b'{"note": "1\xe0\x80\xaf"}',
    b'{"note": "2\xf5\x80\x80\x80"}', b'{"note": "3\xed\xa0\x80"}', b'{"note": "4\xff"}',
]  # fmt: skip
DOUBLED = {
    b'{"note": "a", "note": "b"}': "note",
    b'{"note": "a", "note": "a"}': "note",
    b'{"x": 1, "X": 2}': "x",
    b'{"a": [1], "a": [2]}': "a",
    b'{"s": {"y": 1, "y": 2}}': "s.y",
    b'{"m": {"k": 1, "k": 2}}': "m.k",
    rb'{"note": "a", "n\u006fte": "b"}': "note",
}
BAD = [*VALUES, *NO_TEXT, *DOUBLED]
TWICE = "an object has this key more than once, but only one value can be kept: "


def make_files(folder: Path, lines: list[bytes], **options: Any) -> Files:
    (folder / "a.json").write_bytes(b"\n".join(lines) + b"\n")
    return Files(**{"path": str(folder), "format": "json", "schema": SCHEMA, **options})


def list_refused(spark: SparkSession, origin: Files) -> tuple[set[str], dict[str, str]]:
    """Return the lines refused by the straight reading, and by the decided reading with messages."""
    plan = plan_batch(spark, origin)
    straight = {row[REFUSED].raw for row in origin.fetch(spark, [plan]).frame().collect() if row[REFUSED]}
    rows = [row[REFUSED] for row in read_decided(spark, plan, origin) if row[REFUSED]]
    return {normalise_line(raw) for raw in straight if raw}, {normalise_line(row.raw): row.message for row in rows}


def normalise_line(line: str) -> str:
    """Return the line with a single replacement character for each group of invalid bytes."""
    return re.sub("\ufffd+", "\ufffd", line)


def decode_line(line: bytes) -> str:
    """Return a line as Spark decodes it."""
    return normalise_line(line.decode("utf-8", "replace"))


@pytest.mark.spark
@pytest.mark.promise("CD-16")
@pytest.mark.parametrize("looked_at", [True, False])
def test_a_value_that_json_would_change_is_refused_in_both_ways(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, looked_at: bool
) -> None:
    """A similar value that is read unchanged is not refused."""
    if not looked_at:
        monkeypatch.setattr(file_systems, "_sum_sizes", lambda _: 1 << 40)
    straight, why = list_refused(spark, make_files(tmp_path, [*KEPT, *BAD]))
    assert why.keys() == {decode_line(line) for line in BAD}
    assert why.keys() - {decode_line(NARROW)} <= straight <= why.keys()
    assert [row[REFUSED].raw for row in read_both_ways(spark, make_files(tmp_path, [NARROW]))] == [decode_line(NARROW)]
    for line, said in VALUES.items():
        assert said in why[decode_line(line)]
    for line in NO_TEXT:
        assert "some bytes are not valid UTF-8" in why[decode_line(line)], line
    for line, key in DOUBLED.items():
        assert f"{TWICE}{key}" in why[decode_line(line)]


@pytest.mark.spark
@pytest.mark.parametrize("looked_at", [True, False])
def test_a_value_that_only_looks_changed_is_read(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, looked_at: bool
) -> None:
    """The value is read as written. A scan of a small file saves Spark the check."""
    if not looked_at:
        monkeypatch.setattr(file_systems, "_sum_sizes", lambda _: 1 << 40)
    rows = read_both_ways(spark, make_files(tmp_path, list(KEPT)))
    for row, expected in zip(rows, KEPT.values(), strict=True):
        found = row.asDict(recursive=True)
        assert found[REFUSED] is None
        assert {name: found[name] for name in expected} == expected


@pytest.mark.spark
def test_a_value_that_json_would_change_is_rescued(spark: SparkSession, tmp_path: Path) -> None:
    """The original value is kept. A line with invalid text is kept as a whole."""
    lines = [*VALUES, NO_TEXT[0]]
    policies = {"wider": "rescue", "other": "rescue", "corrupt": "rescue"}
    rows = read_both_ways(spark, make_files(tmp_path, lines, on_change=policies))
    kept = [json.loads(row["_rescued"]) for row in rows]
    assert kept[:6] == [
        {"x": "1e400"}, {"x": "-1e400"}, {"x": "9" * 400}, {"f": "1e39"}, {"f": "9" * 40}, {"f": "1e39"},
    ]  # fmt: skip
    assert kept[9] == {"t": 200}
    assert kept[-1] == {"_line": decode_line(NO_TEXT[0])}
    assert [row.x for row in rows[:6]] == [None, None, None, None, None, float("inf")]
    assert all(row[name] is None for row in rows[3:] for name in ("f", "t", "at", "d", "a", "s", "m"))


@pytest.mark.spark
def test_the_last_value_of_a_doubled_key_may_be_kept(spark: SparkSession, tmp_path: Path) -> None:
    """The definition must allow it. A key in another case is a different kind of change."""
    lines = [line for line in DOUBLED if b"X" not in line and b"m" not in line]
    rows = read_both_ways(spark, make_files(tmp_path, lines, on_change={"doubled": "keep_last"}))
    assert [(row.note, row.a, row.s and row.s.y) for row in rows] == [
        ("b", None, None),
        ("a", None, None),
        (None, [2.0], None),
        (None, None, 2),
        ("b", None, None),
    ]


@pytest.mark.spark
def test_a_whole_file_with_a_changed_value_is_refused(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """This applies to `multiLine`. A file whose literals only look changed is read."""
    values = list(VALUES)
    bad = [values[0], values[5], values[10], NO_TEXT[0], NO_TEXT[6], list(DOUBLED)[4]]
    for index, line in enumerate(bad):
        (tmp_path / f"{index}.json").write_bytes(b'[{"note": "first"},\n ' + line + b"]\n")
    (tmp_path / "good.json").write_bytes(b'[{"x": Infinity},\n {"x": "Infinity"}]\n')
    origin = Files(path=str(tmp_path), format="json", schema=SCHEMA, options={"multiLine": True})
    for looked_at in (True, False):
        if not looked_at:
            monkeypatch.setattr(file_systems, "_sum_sizes", lambda _: 1 << 40)
        straight, why = list_refused(spark, origin)
        assert len(straight) == len(why) == len(bad)
        assert {message.partition(":")[0] for message in why.values()} == {f"{index}.json" for index in range(len(bad))}


@pytest.mark.parametrize("line", BAD)
def test_no_scan_without_spark_treats_a_changed_value_as_clean(tmp_path: Path, line: bytes) -> None:
    """This holds for reading here and for reading by Spark. Spark's reader itself finds a bad `tinyint`."""
    (tmp_path / "a").write_bytes(b'{"note": "a"}\n' + line + b"\n")
    seen = [tmp_path / "a"]
    assert line == NARROW or not are_all_plain(seen, ALIKE, extra=False, missing=False)
    assert line == NARROW or not are_lines_plain(
        seen, ALIKE, extra=False, missing=False, doubled=True, whole_file=False
    )
    here = ALIKE if b'"f"' in line else FLAT
    assert parse_rows(line, here, extra=False, missing=False, zone=lambda: "UTC") is None


CSV_KEPT = ["1.5,1.5,2026-01-02,7,a", " 1.5 ,\t2,2026-01-02 , 7,b", "Infinity,-inf,,,c", "NaN,3e38,,,d", "1e-400,,,,e"]
CSV_BAD = {
    "1e400,1,,,a": "column x: '1e400' is not a double",
    f"{'9' * 400},1,,,a": "is not a double",
    "1,1e39,,,a": "column f: '1e39' is not a float",
    "1\0,1,,,a": "is not a double",
    "1,\x081,,,a": "is not a float",
    "1,1,2026-01-02\x7f,,a": "is not a date",
    "1,1,,7\x1f,a": "is not an int",
}


@pytest.mark.spark
@pytest.mark.promise("CD-16")
@pytest.mark.parametrize("multi_line", [True, False])
def test_a_value_that_csv_would_change_is_refused_in_both_ways(
    spark: SparkSession, tmp_path: Path, multi_line: bool
) -> None:
    """Blanks around a value, and an infinite value written as such, are read."""
    (tmp_path / "a.csv").write_text("\n".join(["x,f,d,n,note", *CSV_KEPT, *CSV_BAD]) + "\n", newline="")
    schema, options = "x double, f float, d date, n int, note string", {"multiLine": multi_line}
    csv = {"path": str(tmp_path), "format": "csv", "schema": schema, "options": options}
    plan = plan_batch(spark, Files(**csv))  # type: ignore[arg-type]
    straight = Files(**csv).fetch(spark, [plan]).frame()  # type: ignore[arg-type]
    assert straight.where(f"{REFUSED} is not null").count() == len(CSV_BAD)
    rows = read_decided(spark, plan, Files(**csv))  # type: ignore[arg-type]
    assert [row.note for row in rows if not row[REFUSED]] == list("abcde")
    assert {row[REFUSED].raw for row in rows if row[REFUSED]} == CSV_BAD.keys()
    for row in rows[len(CSV_KEPT) :]:
        assert CSV_BAD[row[REFUSED].raw] in row[REFUSED].message
    kept = read_both_ways(spark, Files(**csv, on_change={"wider": "rescue", "other": "rescue"}))  # type: ignore[arg-type]
    assert [json.loads(row["_rescued"]) for row in kept[len(CSV_KEPT) :]] == [
        {"x": "1e400"}, {"x": "9" * 400}, {"f": "1e39"}, {"x": "1\0"}, {"f": "\x081"}, {"d": "2026-01-02\x7f"},
        {"n": "7\x1f"},
    ]  # fmt: skip
    assert [row.x for row in kept[len(CSV_KEPT) :]] == [None, None, 1.0, None, 1.0, 1.0, 1.0]


@pytest.mark.spark
def test_invalid_bytes_in_a_csv_files_encoding_are_refused(spark: SparkSession, tmp_path: Path) -> None:
    """This holds for the straight and for the decided reading."""
    (tmp_path / "a.csv").write_bytes(b"id,note\n1,a\n2,x\xe4\n")
    origin = Files(path=str(tmp_path), format="csv", schema="id int, note string", options={"encoding": "US-ASCII"})
    plan = plan_batch(spark, origin)
    assert any(row[REFUSED] for row in origin.fetch(spark, [plan]).frame().collect())
    assert [row[REFUSED] is None for row in read_decided(spark, plan, origin)] == [True, False]


@pytest.mark.spark
def test_invalid_bytes_in_a_json_files_encoding_are_refused(spark: SparkSession, tmp_path: Path) -> None:
    """This holds for the straight and for the decided reading."""
    options = {"encoding": "US-ASCII", "lineSep": "\n"}
    origin = make_files(tmp_path, [b'{"note": "a"}', b'{"note": "\xe4"}'], options=options)
    straight, why = list_refused(spark, origin)
    assert straight
    assert why.keys() == {'{"note": "\xe4"}'}


@pytest.mark.spark
def test_text_in_parquet_that_a_cast_would_change_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    """A column of text is read as a number."""
    parquet.write_table(pa.table({"x": ["1", "1e400", "Infinity", "1\0"]}), tmp_path / "a")
    origin = Files(path=str(tmp_path), format="parquet", schema="x double", on_change={"other": "nack"})
    assert [row[REFUSED] is None for row in read_both_ways(spark, origin)] == [True, False, True, False]
