"""Lines of JSON that this process reads equal the rows of Spark. All other lines are left to Spark."""

from __future__ import annotations

import random
import re
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from pyspark.sql.types import StructType

from origins.errors import OriginError
from origins.files import Files
from origins.files.in_process import parse_rows
from origins.nack import REFUSED
from origins.names import is_one_disk
from origins.origin import PLACE
from origins.schema import parse_schema
from tests.origins.files.test_files import plan_batch, read_by_spark

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SIMPLE = ("boolean", "tinyint", "smallint", "int", "bigint", "double", "string", "date", "timestamp", "timestamp_ntz")
DECIMALS = ("decimal(5,2)", "decimal(38,0)", "decimal(38,38)")
NUMBERS = [
    "0", "-0", "1", "-1", "7", "127", "128", "255", "-128", "-129", "32767", "32768", "2147483647", "2147483648",
    "-2147483648", "9223372036854775807", "9223372036854775808", "-9223372036854775809",
    "99999999999999999999999999999999999999", "1.0", "1.5", "0.1", "-0.0", "1e2", "1E-2", "123.45", "123.456", "1.10",
    "1.100", "999.99", "999.995", "1000", "1e5", "0.1e1", "1e39", "1e400", "-1e400", "1e-400", "0.30000000000000004",
    "5e-324", "1.7976931348623157e308", "123456789012345678", "0.00000000000000000000000000000000000001",
    "1.00000000000000000000000000000000000000000001", "01", "+1", ".5", "1.", "NaN", "Infinity", "-Infinity", "0x1",
    "1_000",
]  # fmt: skip
TIMES = [
    "2026-01-02", "2026-1-2", "2026-02-30", "0000-01-01", "0001-01-01", "9999-12-31", "10000-01-01", "-0001-01-01",
    "1582-10-10", "2026-01-02T", "2026-01-02T03:04:05", "2026-01-02T03:04:05Z", "2026-01-02T03:04:05.1",
    "2026-01-02T03:04:05.123456Z", "2026-01-02T03:04:05.1234567", "2026-01-02T24:00:00", "2026-01-02T23:59:60",
    "2026-01-02T03:04", "2026-01-02T03:04:05+01:00", "2026-01-02T03:04:05+19:00", "1900-01-01T00:00:00",
    "1582-10-10T00:00:00Z", "0001-01-01T00:00:00", "9999-12-31T23:59:59.999999Z",
]  # fmt: skip
TEXTS = [
    '""', '" "', '"x"', '"1"', '"1.5"', '"true"', '"null"', '"NaN"', '"Infinity"', '"2026-01-02 03:04:05"', '"ä"',
    '"😀"', r'"\ud83d\ude00"', r'"\ud83d"', r'"\u0000"', r'"\u00e4\n\t\"\\\/"', r'"\x"', '"\x7f"', '"\u2028"', '"\t"',
    '"2026-01-02\\n"', '"AAAA"', "'x'", "x", '"x', '"now"', '"epoch"', '"2026-01-02T03:04:05\\u005a"',
    '"\u0662026-01-02"', '"\ufeff"', '"2026-01-02\\u0000"', r'"\\ud800"', r'"\\ud83d\ude00"', r'"\ude00\ud83d"',
]  # fmt: skip
OTHERS = ["true", "false", "null", "True", "[]", "{}", "[1]", '{"a": 1}', ""]
TOKENS = [*NUMBERS, *(f'"{each}"' for each in TIMES), *TEXTS, *OTHERS]
LINES = [
    "{}", " {} ", "\t{}\t", "[]", "[{}]", "null", "1", '"x"', "{} {}", "{},{}", "{},", "{", "}", '{"n" 1}',
    '{"n": 1} x',
    '{"n": 1, "n": 2}', '{"n": 1, "n": 1}', '{"N": 1}', '{"n": 1, "N": 1}', '{"m": 1}', '{"n": 1, "m": 2}', "{n: 1}",
    '{"n": 1, "m": "x"}', '{"n": 1, "m": [1]}', '{"n": 1, "m": {"n": 2}}', '{"n": 1, "m": null}', '{"n": 1, "m": 1e5}',
    '{"n": 1, "m": 1, "m": 2}', r'{"\u006e": 1}', r'{"\u006E": 1, "n": 2}', '{"n": 1,}', '{"n": 1 /* one */}', "# n",
    '{"n": 1}\r', "", " ", "\t", "\x0b", "\xa0", "\ufeff", '\ufeff{"n": 1}', '{"n": 1}\x00', '{"n":\xa01}', '{"": 1}',
    f'{{"n": 1, "{"m" * 2_000}": 1}}', f'{{"n": 1, "m": {"9" * 2_000}}}', f'{{"n": 1, "m": {"9" * 20}}}',
    r'{"n": 1, "m": "\ud800"}', r'{"n": 1, "\udfff": 1}', '{"n": 1, "m": 1e400}',
    '{"n": 1, "m": "' + "x" * 100_000 + '"}',
]  # fmt: skip


def read_in_process(line: str, schema: StructType, *, extra: bool = False, missing: bool = False) -> Any:
    """Return the rows that this process reads from a line, or None."""
    content = line.encode("utf-8", "surrogatepass")
    return parse_rows(content, schema, extra=extra, missing=missing, zone=lambda: "UTC")


def read_by_both(spark: SparkSession, folder: Path, files: Files, lines: Sequence[str]) -> tuple[list[str], list[str]]:
    """Return the rows of a file of these lines, as this process and as Spark read them. Spark must refuse none."""
    folder.mkdir(exist_ok=True)
    (folder / "lines").write_text("\n".join(lines), encoding="utf-8", newline="")
    batch = plan_batch(spark, files)
    mine, its = files.fetch(spark, [batch]).table(), read_by_spark(spark, files, batch)
    assert mine is not None
    assert REFUSED not in its.columns or its.where(f"{REFUSED} is not null").count() == 0
    found = its.drop(REFUSED).toArrow()
    assert mine.schema.equals(found.schema)
    return format_rows(mine), format_rows(found)


def format_rows(rows: pa.Table) -> list[str]:
    """Return the rows as texts.

    A zero keeps its sign, and dates and times are numbers, since Python lacks some of them.
    """
    numbers = {pa.date32(): pa.int32(), pa.timestamp("us"): pa.int64(), pa.timestamp("us", "UTC"): pa.int64()}
    columns = [column.cast(numbers.get(column.type, column.type)).to_pylist() for column in rows.columns]
    return [str(row) for row in zip(*columns, strict=True)]


@pytest.mark.spark
def test_a_value_is_read_as_spark_reads_it(spark: SparkSession, tmp_path: Path) -> None:
    """The test uses very many values for each type, as far as this process reads them for it."""
    columns = {f"c{at}": kind for at, kind in enumerate((*SIMPLE, *DECIMALS))}
    text = ", ".join(f"{name} {kind}" for name, kind in columns.items())
    schema = parse_schema(spark, text, "here")
    read = [
        line
        for name in columns
        for token in TOKENS
        if read_in_process(line := f'{{"{name}": {token}}}', schema) is not None
    ]
    assert {name for name in columns if sum(f'"{name}"' in line for line in read) > 1} == {*columns}
    zoned = [line for line in read if re.search(r'(Z|\\u005a)"?}', line)]
    files = Files(path=str(tmp_path / "in"), format="json", schema=text)
    for some in ([line for line in read if line not in zoned], zoned):
        mine, its = read_by_both(spark, tmp_path / "in", files, some)
        assert [each for each in zip(some, mine, its, strict=True) if each[1] != each[2]] == []


@pytest.mark.spark
@pytest.mark.parametrize("policies", [{}, {"extra": "nack", "missing": "nack"}], ids=str)
def test_a_line_is_read_as_spark_reads_it(spark: SparkSession, tmp_path: Path, policies: dict[str, str]) -> None:
    """The test uses unusual lines, as far as this process reads them, with each policy for extra and missing keys."""
    columns = "n int, name string"
    schema, counts = parse_schema(spark, columns, "here"), dict.fromkeys(policies, True)
    read = [line for line in LINES if read_in_process(line, schema, **counts) is not None]
    files = Files(path=str(tmp_path / "in"), format="json", schema=columns, on_change=policies)
    mine, its = read_by_both(spark, tmp_path / "in", files, [*read, '{"n": 5, "name": "last"}'])
    assert mine == its
    assert len(mine) > 0


@pytest.mark.spark
def test_mixed_lines_are_read_as_spark_reads_them(spark: SparkSession, tmp_path: Path) -> None:
    """Values and lines have any order, and lines have any end."""
    chance = random.Random(7)
    schema = parse_schema(spark, "a bigint, b string, c double, d boolean, e date", "here")
    values = [chance.choice(TOKENS) for _ in range(4_000)]
    lines = [f'{{"{chance.choice("abcdefg")}": {one}, "{chance.choice("abcdefg")}": {two}}}' for one, two in
             zip(values[::2], values[1::2], strict=True)]  # fmt: skip
    read = [line for line in lines if read_in_process(line, schema) is not None]
    assert len(read) > 200
    files = Files(path=str(tmp_path / "in"), format="json", schema="a bigint, b string, c double, d boolean, e date")
    mine, its = read_by_both(
        spark, tmp_path / "in", files, [line + chance.choice(["", "\r", "\r\n", "\n  "]) for line in read]
    )
    assert mine == its
    assert len(mine) == len(read)


@pytest.mark.parametrize(
    "line",
    [
        '{"n": "1"}', '{"n": 1.0}', '{"n": true}', '{"n": 2147483648}', '{"n": 1, "n": 1}', '{"N": 1}', "[1]", "x",
        '{"name": 1}', '{"name": "\\ud83d"}', '{"at": "2026-02-30T00:00:00Z"}', '{"at": "2026-01-02"}', '{"m": [1]}',
        '{"n": 1} {"n": 2}', "\ufeff{}", '{"x": NaN}', '{"x": 1e400}', '{"x": -0}', '{"n": 1}\n{"n"', "\udc80",
        '{"at": "2026-01-02T03:04:05Z"}\n{"at": "2026-01-02T03:04:05"}', '{"m": ' + "[" * 5_000 + "]" * 5_000 + "}",
    ],
)  # fmt: skip
def test_a_line_that_is_not_plain_leaves_the_file_to_spark(line: str) -> None:
    """The line may be bad or only unusual, and Spark decides which."""
    schema = make_plain("n integer", "name string", "x double", "at timestamp")
    assert read_in_process('{"n": 1}', schema).num_rows == 1
    assert read_in_process('{"n": 1}\n' + line, schema) is None


def test_times_without_a_zone_are_read_only_in_a_session_in_utc() -> None:
    """In other zones a local time may be missing or occur twice when clocks change."""
    line, schema = b'{"at": "2026-03-29T02:30:00"}', make_plain("at timestamp")

    def read(line: bytes, zone: str) -> pa.Table | None:
        return parse_rows(line, schema, extra=False, missing=False, zone=lambda: zone)

    assert [read(line, zone) is not None for zone in ("UTC", "CET")] == [True, False]
    assert read(line.replace(b'"}', b'Z"}'), "CET") is not None


@pytest.mark.parametrize("kind", ["float", "binary", "variant"])
def test_columns_of_other_types_are_left_to_spark(kind: str) -> None:
    """This holds even if no line has a value for such a column."""
    assert read_in_process("{}", make_plain("n integer", f"c {kind}")) is None


BEYOND: list[dict[str, Any]] = [
    {"options": {"multiLine": True}},
    {"options": {"timestampFormat": "yyyy"}},
    {"on_change": {"extra": "rescue"}},
    {"schema": {"n": "array<int>"}},
    {"format": "csv"},
    {"format": "text", "schema": "n string"},
]


@pytest.mark.spark
def test_options_beyond_plain_lines_are_left_to_spark(spark: SparkSession, tmp_path: Path) -> None:
    """The same file without these options is read here.

    A compressed file is left to Spark too, and a file whose folder gives a column.
    """

    def is_read_here(**options: Any) -> bool:
        files = Files(**{"path": str(tmp_path), "format": "json", "schema": "n int", **options})
        return files.fetch(spark, [plan_batch(spark, files)]).table() is not None

    (tmp_path / "a").write_text("{}\n")
    assert is_read_here()
    assert [more for more in BEYOND if is_read_here(**more)] == []
    for name in ("x/a.json.gz", "y/day=1/a.json"):
        (tmp_path / name).parent.mkdir(parents=True)
        (tmp_path / name).write_text("{}\n")
        assert not is_read_here(path=f"{tmp_path}/{name[0]}/**")


@pytest.mark.spark
@pytest.mark.parametrize("places", [False, True], ids=["straight", "decided"])
def test_stages_get_the_rows_that_were_read_here(spark: SparkSession, tmp_path: Path, places: bool) -> None:
    """They equal the rows of Spark, and each has its place in the file."""
    lines = [f'{{"n": {n}, "at": "2026-01-0{n}T01:02:03.000004Z", "price": {n}.50}}\n' for n in range(1, 8)]
    (tmp_path / "0.json").write_text("".join(lines[:3]))
    (tmp_path / "1.json").write_text("".join(lines[3:]))
    files = Files(path=str(tmp_path / "*"), format="json", schema="n bigint, at timestamp, price decimal(9,2)")
    batch = plan_batch(spark, files)
    here = files.fetch(spark, [batch], places=places).frame()
    there = read_by_spark(spark, files, batch, places=places).select(here.columns)
    if not places:
        assert here.schema == there.schema
        assert sorted(format_rows(here.toArrow())) == sorted(format_rows(there.toArrow()))
        return
    names = [name for name in here.columns if name != PLACE]
    place = [f"{PLACE}.part as part", f"row_number() over (partition by {PLACE}.part order by {PLACE}.row) as nth"]
    own, its = (sorted(map(str, frame.selectExpr(*names, *place).collect())) for frame in (here, there))
    assert own == its
    assert len(own) == len(lines)


@pytest.mark.spark
def test_many_lines_are_left_to_spark(spark: SparkSession, tmp_path: Path) -> None:
    """Spark reads a large file in several threads."""
    files = Files(path=str(tmp_path), format="json", schema="n int")
    for lines, is_here in ((1_000, True), (200_000, False)):
        (tmp_path / "a.json").write_text('{"n": 1}\n' * lines)
        assert (files.fetch(spark, [plan_batch(spark, files)]).table() is not None) == is_here


@pytest.mark.spark
def test_files_of_a_spark_with_another_disk_are_left_to_spark(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Spark could read another file under the same name."""
    (tmp_path / "a.json").write_text("{}\n")
    files = Files(path=str(tmp_path), format="json", schema="n int")
    assert is_one_disk(spark)
    monkeypatch.setattr("origins.files.files.is_one_disk", lambda _: False)
    assert files.fetch(spark, [plan_batch(spark, files)]).table() is None


@pytest.mark.spark
def test_a_file_that_changes_while_it_is_read_is_an_error(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its content differs from the planned content."""
    file = tmp_path / "a.json"
    file.write_text('{"n": 1}\n')
    files = Files(path=str(tmp_path), format="json", schema="n int")
    batch, read = plan_batch(spark, files), Path.read_bytes

    def late(path: Path) -> bytes:
        found = read(path)
        file.write_text('{"n": 1}\n{"n": 2}\n')
        return found

    monkeypatch.setattr(Path, "read_bytes", late)
    with pytest.raises(OriginError, match="has changed"):
        files.fetch(spark, [batch]).table()


def make_plain(*columns: str) -> StructType:
    """Return a schema, without Spark."""
    fields = [dict(zip(("name", "type"), column.split(), strict=True)) for column in columns]
    told = {"type": "struct", "fields": [{**field, "nullable": True, "metadata": {}} for field in fields]}
    return StructType.fromJson(told)
