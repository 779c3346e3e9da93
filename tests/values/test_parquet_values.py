"""Parquet files of every type and encoding: their values are exact, or the file is refused with a sentence."""

from __future__ import annotations

import contextlib
import math
import struct
from collections.abc import Callable, Mapping
from datetime import date, datetime, timedelta, timezone
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from pyarrow import parquet

from origins.files import Files
from origins.nack import REFUSED
from runners.pipeline import Pipeline
from tests.origins.test_on_change import plan_batch

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark
EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)
FIRST, LAST = datetime(2, 1, 1), datetime(9999, 12, 31, 23, 59, 59, 999999)
COLUMNS: dict[str, pa.Array] = {
    "flag": pa.array([True, False, None, True]),
    "tiny": pa.array([-128, 127, None, 0], pa.int8()),
    "small": pa.array([-(2**15), 2**15 - 1, None, 0], pa.int16()),
    "whole": pa.array([-(2**31), 2**31 - 1, None, 0], pa.int32()),
    "big": pa.array([-(2**63), 2**63 - 1, None, 0], pa.int64()),
    "unsigned8": pa.array([0, 255, None, 128], pa.uint8()),
    "unsigned16": pa.array([0, 65_535, None, 32_768], pa.uint16()),
    "unsigned32": pa.array([0, 2**32 - 1, None, 2**31], pa.uint32()),
    "unsigned64": pa.array([0, 2**64 - 1, None, 2**63], pa.uint64()),
    "single": pa.array([0.1, -0.0, None, math.inf], pa.float32()),
    "double": pa.array([0.1, -0.0, None, 5e-324], pa.float64()),
    "no number": pa.array([math.nan, -math.inf, None, 1e308], pa.float64()),
    "text": pa.array(["", "ä\U0001f600", None, "a\0\ufffe\uffff"]),
    "long text": pa.array(["x" * 5_000, "", None, "y"], pa.large_string()),
    "words": pa.array(["a", "b", None, "a"]).dictionary_encode(),
    "no words": pa.array([None, None, None, None], pa.string()).dictionary_encode(),
    "bytes": pa.array([b"", b"\0\xff", None, b"PAR1"]),
    "fixed bytes": pa.array([b"abcd", b"\0\0\0\0", None, b"\xff\xff\xff\xff"], pa.binary(4)),
    "decimal in 32 bits": pa.array([Decimal("9999999.99"), Decimal("-0.01"), None, 0], pa.decimal128(9, 2)),
    "decimal in 64 bits": pa.array([Decimal("9999999999999999.99"), Decimal("-0.01"), None, 0], pa.decimal128(18, 2)),
    "decimal in bytes": pa.array([Decimal("9" * 38), Decimal("-" + "9" * 38), None, 0], pa.decimal128(38, 0)),
    "fine decimal": pa.array([Decimal("0." + "3" * 38), Decimal("-0." + "9" * 38), None, 0], pa.decimal128(38, 38)),
    "day": pa.array([date(1, 1, 1), date(9999, 12, 31), None, date(1582, 10, 14)]),
    "millis": pa.array([datetime(1900, 1, 1), datetime(2262, 4, 12), None, EPOCH], pa.timestamp("ms", "UTC")),
    "micros": pa.array([FIRST, LAST, None, datetime(1969, 12, 31, 23, 59, 59, 999999)], pa.timestamp("us", "UTC")),
    "elsewhere": pa.array([datetime(1900, 1, 1), datetime(2999, 1, 1), None, EPOCH], pa.timestamp("us", "Asia/Tokyo")),
    "local": pa.array([FIRST, LAST, None, datetime(2026, 3, 29, 2, 30)], pa.timestamp("us")),
    "local millis": pa.array([FIRST, datetime(9999, 1, 1), None, datetime(1582, 10, 4)], pa.timestamp("ms")),
    "list": pa.array([[], [1, None, 2], None, [None]], pa.list_(pa.int32())),
    "lists": pa.array([[[1], [], None], [], None, [[None]]], pa.list_(pa.list_(pa.int64()))),
    "map": pa.array([[], [("a", 1), ("b", None)], None, [("", 0)]], pa.map_(pa.string(), pa.int32())),
    "map of lists": pa.array([[], [(1, ["x", None])], None, [(2, [])]], pa.map_(pa.int32(), pa.list_(pa.string()))),
    "record": pa.array(
        [{"x": 1, "y": None}, {"x": None, "y": "b"}, None, {"x": 0, "y": ""}],
        pa.struct([("x", pa.int64()), ("y", pa.string())]),
    ),
    "records": pa.array(
        [[{"x": [1]}, None], [], None, [{"x": None}]], pa.list_(pa.struct([("x", pa.list_(pa.int8()))]))
    ),
    "name with. odd `signs`": pa.array([1, 2, None, 3]),
}  # fmt: skip
"""Columns of all types that Spark reads, with extreme values."""
WRITERS: dict[str, dict[str, Any]] = {
    **{f"compressed by {name}": {"compression": name} for name in ("none", "snappy", "gzip", "zstd", "lz4")},
    "version 1.0": {"version": "1.0"},
    "version 2.6": {"version": "2.6"},
    "pages of version 2": {"data_page_version": "2.0"},
    "pages of version 2, packed": {"data_page_version": "2.0", "compression": "zstd"},
    "small pages": {"data_page_size": 64, "write_batch_size": 8},
    "small row groups": {"row_group_size": 7},
    "no dictionary": {"use_dictionary": False},
    "a small dictionary": {"dictionary_pagesize_limit": 64, "write_batch_size": 8},
    "no statistics": {"write_statistics": False},
    "an index of pages": {"write_page_index": True},
    "sums of pages": {"write_page_checksum": True},
    "no schema of Arrow": {"store_schema": False},
    "lists in the old form": {"use_compliant_nested_type": False},
    "decimals as numbers": {"store_decimal_as_integer": True},
}
ENCODED = {
    **{name: ("n", name) for name in ("PLAIN", "DELTA_BINARY_PACKED")},
    **{f"text {name}": ("text", name) for name in ("PLAIN", "DELTA_LENGTH_BYTE_ARRAY", "DELTA_BYTE_ARRAY")},
    "flag RLE": ("flag", "RLE"),
}
"""A column and its encoding."""


def find_form(value: Any) -> Any:
    """Return a value in a form in which values of Arrow and of Spark are equal, also not-a-number and -0."""
    if isinstance(value, float):
        return struct.pack("<d", value) if value == value else "not a number"
    if isinstance(value, datetime):
        return (value.replace(tzinfo=timezone.utc) - EPOCH) // timedelta(microseconds=1)
    if isinstance(value, Mapping):
        return {key: find_form(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [*map(find_form, value)]
    return bytes(value) if isinstance(value, bytearray) else value


def find_written_form(column: pa.Array) -> list[Any]:
    """Return the values of a column of Arrow in that form."""
    if pa.types.is_timestamp(column.type) and column.type.tz:
        column = column.cast(pa.timestamp(column.type.unit, "UTC"))
    values = column.to_pylist()
    return [find_form(dict(each) if pa.types.is_map(column.type) and each is not None else each) for each in values]


def read_ways(spark: SparkSession, folder: Path, schema: str | None = None) -> list[list[Any]]:
    """Return the rows by Spark's own reader, by the way that reads them at once, and by the one row by row."""
    files = Files(path=str(folder), format="parquet", schema=schema)
    plan = plan_batch(spark, files)
    found = []
    for places in (False, True):
        rows = files.fetch(spark, [plan], places=places).frame().collect()
        assert [row[REFUSED] for row in rows if row.asDict().get(REFUSED) is not None] == []
        found.append(rows)
    reader = spark.read.schema(schema) if schema else spark.read
    return [reader.parquet(str(folder)).collect(), *found]


def test_each_type_is_exact(spark: SparkSession, tmp_path: Path) -> None:
    """A column has the values that were written, and those that Spark's own reader gives."""
    parquet.write_table(
        pa.table({"number": range(4), **COLUMNS}), tmp_path / "a.parquet", store_decimal_as_integer=True
    )
    for rows in read_ways(spark, tmp_path):
        values = sorted((row.asDict(recursive=True) for row in rows), key=lambda row: int(row["number"]))
        wrong = {
            name: ([row[name] for row in values], column.to_pylist())
            for name, column in COLUMNS.items()
            if [find_form(row[name]) for row in values] != find_written_form(column)
        }
        assert wrong == {}


@pytest.mark.parametrize("encodings", [False, True])
def test_each_form_of_a_file_is_exact(spark: SparkSession, tmp_path: Path, encodings: bool) -> None:
    """Codecs, page versions and encodings change no value. All files are one batch."""
    count = 50
    table = pa.table(
        {
            "n": [number * number * (-1) ** number for number in range(count)],
            "x": [number / 7 for number in range(count)],
            "text": [None if number % 5 == 0 else f"t{number % 3}" * (number % 4) for number in range(count)],
            "flag": [number % 3 == 0 for number in range(count)],
            "price": pa.array([Decimal(number).scaleb(-2) for number in range(count)], pa.decimal128(9, 2)),
            "list": [[number] * (number % 3) for number in range(count)],
        }
    )
    ways = {name: {"use_dictionary": False, "column_encoding": dict([each])} for name, each in ENCODED.items()}
    writers = ways if encodings else WRITERS
    for name, options in writers.items():
        parquet.write_table(
            table.append_column("file", pa.array([name] * count)), tmp_path / f"{name}.parquet", **options
        )
    parquet.write_table(table.append_column("file", pa.array([""] * count)).slice(0, 0), tmp_path / "no rows.parquet")
    for rows in read_ways(spark, tmp_path):
        written = sorted((name, *map(str, row.values())) for name in writers for row in table.to_pylist())
        assert sorted((row.file, *(str(row[name]) for name in table.column_names)) for row in rows) == written


def test_old_moments_of_96_bits_are_exact(spark: SparkSession, tmp_path: Path) -> None:
    """Spark and Impala wrote them before 2020, with a number of nanoseconds and a Julian day."""
    moments = [datetime(1677, 9, 22), datetime(2262, 4, 11), datetime(1969, 12, 31, 23, 59, 59, 999999), None]
    table = pa.table({"number": range(4), "at": pa.array(moments, pa.timestamp("us"))})
    parquet.write_table(table, tmp_path / "a.parquet", use_deprecated_int96_timestamps=True)
    for rows in read_ways(spark, tmp_path):
        assert [find_form(row.at) for row in sorted(rows)] == find_written_form(table["at"])


UNKNOWN: dict[str, pa.Array] = {
    "half": pa.array([1.5], pa.float16()),
    "time": pa.array([1], pa.time64("ns")),
    "uuid": pa.array([bytes([*[0] * 15, 7])], pa.uuid()),
    "wide decimal": pa.array([Decimal(1)], pa.decimal256(50, 2)),
    "split float": pa.array([0.5]),
    "split number": pa.array([7]),
}
"""Columns that some versions of Spark do not read."""
SPLIT = {"split float": 0.5, "split number": 7}
"""Columns whose bytes are written apart, which some versions do not read either."""
WHOLE = {**SPLIT, "half": 1.5, "uuid": bytearray(bytes([*[0] * 15, 7]))}
"""The values of those that a version may read."""


def test_a_type_that_spark_does_not_read_is_exact_or_refused(spark: SparkSession, tmp_path: Path) -> None:
    """A value of it never becomes another one."""
    for name, column in UNKNOWN.items():
        (folder := tmp_path / name).mkdir()
        options = {"use_dictionary": False, "column_encoding": "BYTE_STREAM_SPLIT"} if name in SPLIT else {}
        parquet.write_table(pa.table({"x": column}), folder / "a.parquet", **options)
        read: list[list[Any]] = []
        with contextlib.suppress(Exception):  # a run says what is wrong
            read = read_ways(spark, folder)
        assert [rows[0].x for rows in read] in ([], [WHOLE.get(name)] * 3)


def make_file(folder: Path, **options: Any) -> bytes:
    """Return a file of parquet with a thousand rows, without a codec and a dictionary."""
    table = pa.table({"id": range(1_000), "text": [f"text {number}" for number in range(1_000)]})
    parquet.write_table(table, folder / "good", compression="none", use_dictionary=False, **options)
    return (folder / "good").read_bytes()


BAD: dict[str, Callable[[bytes], bytes]] = {
    "no parquet": lambda whole: b"id,text\n1,a\n",
    "half a file": lambda whole: whole[: len(whole) // 2],
    "a footer of two gigabytes": lambda whole: whole[:-8] + (2**31 - 1).to_bytes(4, "little") + b"PAR1",
    "noise in the head of a page": lambda whole: whole[:4] + b"\xff" * 60 + whole[64:],
    "noise in the lengths of texts": lambda whole: whole[:12_000] + b"\xee" * 1_500 + whole[13_500:],
}
DEFINITION = """
name: bad
origin:
  files: {path: "in/*.parquet", format: parquet, schema: "id bigint, text string"}
destinations:
  - delta: {path: tables/bad}
"""


@pytest.mark.parametrize("name", [*BAD, "noise in a page with a sum"])
def test_a_broken_file_ends_the_run_with_a_sentence(spark: SparkSession, tmp_path: Path, name: str) -> None:
    """The error names the file. No row of it is delivered."""
    (tmp_path / "in").mkdir()
    whole = make_file(tmp_path, write_page_checksum=name not in BAD)
    spoil = BAD.get(name) or (lambda whole: whole[:2_000] + bytes(500) + whole[2_500:])
    (tmp_path / "in" / "broken.parquet").write_bytes(spoil(whole))
    (tmp_path / "pipeline.yaml").write_text(DEFINITION, encoding="utf-8")
    report = Pipeline.load(tmp_path / "pipeline.yaml").run(check=False)
    assert report.error is not None, report
    said = f"{report.error.message} {report.error.hint}"
    assert "broken.parquet" in said
    assert "\tat " not in said
    assert (report.status, report.read, report.error.code) == ("failed", 0, "CARRY")


def test_a_file_without_a_byte_has_no_rows(spark: SparkSession, tmp_path: Path) -> None:
    """Writers that were stopped leave such files. Spark's reader passes over them too."""
    (tmp_path / "empty.parquet").write_bytes(b"")
    parquet.write_table(pa.table({"id": [1]}), tmp_path / "full.parquet")
    assert [[row.id for row in rows] for rows in read_ways(spark, tmp_path, "id bigint")] == [[1]] * 3
