"""Each line of an unusual file is a row or is refused unchanged, exactly once, in each way of reading."""

from __future__ import annotations

import bz2
import gzip
import json
import random
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from pyarrow import parquet

from origins.errors import OriginError
from origins.files import Files, file_systems
from origins.nack import REFUSED
from origins.origin import PLACE
from tests.origins.files.test_columns import plan_batch
from tests.origins.files.test_files import read_by_spark

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, Row, SparkSession

pytestmark = pytest.mark.spark
SCHEMA = "id int, note string"
HEAD = b"id,note\n"
BIG = 50 << 20


def collect_in_order(frame: DataFrame) -> list[Row]:
    return frame.orderBy(f"{PLACE}.part", f"{PLACE}.block", f"{PLACE}.row").collect()


def describe_rows(rows: Sequence[Row]) -> list[Any]:
    """Return good rows as values, and refused rows as their raw content."""
    return [row[REFUSED].raw if row[REFUSED] else (row.id, row.note) for row in rows]


def compress_zstd(content: bytes) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.CompressedOutputStream(sink, "zstd") as out:
        out.write(content)
    return bytes(sink.getvalue())


CSV: dict[str, tuple[bytes, Mapping[str, Any], list[Any]]] = {
    "CRLF": (b"id,note\r\n1,a\r\n2,b\r\n", {}, [(1, "a"), (2, "b")]),
    "CR": (b"id,note\r1,a\r2,b", {}, [(1, "a"), (2, "b")]),
    "a byte order mark": ("\ufeffid,note\n1,ü\n".encode(), {}, [(1, "ü")]),
    "only a byte order mark": ("\ufeff".encode(), {}, []),
    "nothing": (b"", {}, []),
    "only a header": (b"id,note", {}, []),
    "blank lines": (b"\n \nid,note\n\n1,a\n \t\n\n", {}, [(1, "a")]),
    "Latin-1 that is said": ("id,note\n1,grün\n".encode("latin-1"), {"encoding": "ISO-8859-1"}, [(1, "grün")]),
    "Latin-1 that is not said": ("id,note\n1,grün\n2,b\n".encode("latin-1"), {}, ["1,gr\ufffdn", (2, "b")]),
    "UTF-16": ("id,note\n1,ü\n2,b\n".encode("utf-16"), {"encoding": "UTF-16", "multiLine": True}, [(1, "ü"), (2, "b")]),
    "a quote over lines": (HEAD + b'1,"a\nb"\n2,c\n', {}, ['1,"a', 'b"', (2, "c")]),
    "an open quote in front": (b'note,id\n"a,1\n"b",2\n', {}, ['"a,1', (2, "b")]),
    "an open quote at the end": (HEAD + b'1,"a""b"\n2,"b', {}, [(1, 'a"b'), '2,"b']),
    "a quote in the middle": (HEAD + b'1,5" pipe\n2,"c"\n', {}, [(1, '5" pipe'), (2, "c")]),
    "another quote": (HEAD + b"1,'a;\n2,'b;'\n3,\"c\n", {"quote": "'"}, ["1,'a;", (2, "b;"), (3, '"c')]),
    "no quotes at all": (HEAD + b'1,"a\n', {"quote": ""}, [(1, '"a')]),
    "a quote over lines, with multiLine": (HEAD + b'1,"a\nb"\n2,c\n', {"multiLine": True}, [(1, "a\nb"), (2, "c")]),
    "an open quote, with multiLine": (HEAD + b'1,"a\n2,b\n', {"multiLine": True}, ['id,note\n1,"a\n2,b\n']),
    "Latin-1, with multiLine": (HEAD + b"1,\xff\n2,b\n", {"multiLine": True}, ["1,\ufffd", (2, "b")]),
    "many fields": (HEAD + b"1," + b"x," * 30_000 + b"\n2,b\n", {}, ["1," + "x," * 30_000, (2, "b")]),
    "a long line": (HEAD + b"1," + b"x" * BIG + b"\n2,b\n", {}, [(1, "x" * BIG), (2, "b")]),
    "a long field in quotes": (HEAD + b'1,"' + b'x""' * 500_000 + b'"\n', {}, [(1, 'x"' * 500_000)]),
    "another separator": (b"id;;note\n1;;a\n2;;\"b\n", {"sep": ";;"}, [(1, "a"), '2;;"b']),
    "no header": (b'1,a\n2,"b\n', {"header": False}, [(1, "a"), '2,"b']),
    "comments": (b'#"\nid,note\n#1,"a\n2,b\n3,"c\n', {"comment": "#"}, [(2, "b"), '3,"c']),
}  # fmt: skip
JSON: dict[str, tuple[bytes, Mapping[str, Any], list[Any]]] = {
    "CRLF": (b'{"id": 1}\r\n\r\n{"id": 2}\r\n', {}, [(1, None), (2, None)]),
    "a byte order mark": ('\ufeff{"id": 1}\n'.encode(), {}, [(1, None)]),
    "nothing": (b"", {}, []),
    "Latin-1": (b'{"note": "gr\xfcn"}\n{"id": 2}\n', {}, ['{"note": "gr\ufffdn"}', (2, None)]),
    "an array": (b'[{"id": 1}, {"id": 2}]\n', {}, ['[{"id": 1}, {"id": 2}]']),
    "printed over lines": (b'{\n "id": 1,\n "note": "a"\n}\n', {}, ["{", ' "id": 1,', ' "note": "a"', "}"]),
    "an array, with multiLine": (b'[{"id": 1},\n {"id": 2}]\n', {"multiLine": True}, [(1, None), (2, None)]),
    "a long line": (b'{"id": 1, "note": "' + b"x" * BIG + b'"}\n', {}, [(1, "x" * BIG)]),
    "control characters": (b'{"id": 1}\n\0\n\x0b\n{"id": 2}\n', {}, [(1, None), "\0", "\x0b", (2, None)]),
    "a line that is cut short": (b'{"id": 1}\n{"id": 2, "no', {}, [(1, None), '{"id": 2, "no']),
}  # fmt: skip
LONG = "a long line"
FOLDERS = [
    (kind, options, [what for what, (_, given, _) in odd.items() if given == options and what != LONG])
    for kind, odd in (("csv", CSV), ("json", JSON))
    for options in {str(options): options for _, options, _ in odd.values()}.values()
]
"""The cases with the same options, which are files of one folder."""


def read_cases(
    spark: SparkSession, folder: Path, kind: str, options: Mapping[str, Any], cases: Sequence[str]
) -> tuple[dict[str, list[Any]], dict[str, list[Row]]]:
    """Return what each case gives if its lines are decided in order, and its rows as they are read straight."""
    folder.mkdir()
    for what in cases:
        (folder / what).write_bytes({"csv": CSV, "json": JSON}[kind][what][0])
    files = Files(path=str(folder), format=kind, schema=SCHEMA, options=options, metadata=["file_name"])
    plan = plan_batch(spark, files)
    decided = collect_in_order(read_by_spark(spark, files, plan, places=True))
    straight = read_by_spark(spark, files, plan).collect()
    assert all(row[REFUSED].message.startswith(f"{row[PLACE].part}: ") for row in decided if row[REFUSED])
    assert all(row[PLACE].part == row.file_name for row in decided)
    one, other = (
        {what: [row for row in rows if row.file_name == what] for what in cases} for rows in (decided, straight)
    )
    return {what: describe_rows(rows) for what, rows in one.items()}, other


@pytest.mark.promise("CD-16")
@pytest.mark.parametrize("looked_at", [True, False])
def test_no_line_of_an_unusual_file_is_lost(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, looked_at: bool
) -> None:
    """Each line is a row or is refused unchanged, in order. This also holds if Spark has to check the lines."""
    if not looked_at:
        monkeypatch.setattr(file_systems, "_sum_sizes", lambda _: 1 << 40)
    for number, (kind, options, cases) in enumerate(FOLDERS):
        decided, straight = read_cases(spark, tmp_path / str(number), kind, options, cases)
        expected = {what: {"csv": CSV, "json": JSON}[kind][what][2] for what in cases}
        assert decided == expected
        clean = {what: rows for what, rows in expected.items() if not any(isinstance(each, str) for each in rows)}
        assert {what: describe_rows(straight[what]) for what in clean} == clean
        assert [what for what in cases if any(row[REFUSED] for row in straight[what]) == (what in clean)] == []


@pytest.mark.parametrize("kind", ["csv", "json"])
def test_a_line_of_many_megabytes_is_read(spark: SparkSession, tmp_path: Path, kind: str) -> None:
    """This holds for both ways of reading."""
    decided, straight = read_cases(spark, tmp_path / "in", kind, {}, [LONG])
    assert decided[LONG] == describe_rows(straight[LONG]) == {"csv": CSV, "json": JSON}[kind][LONG][2]


PACKED: Mapping[str, Callable[[bytes], bytes]] = {".gz": gzip.compress, ".bz2": bz2.compress, ".zst": compress_zstd}


@pytest.mark.parametrize(
    ("kind", "content"), [("csv", b'id,note\n1,a\n2,"b\n'), ("json", b'{"id": 1, "note": "a"}\n{"id": 2, "note')]
)
def test_compressed_files_are_read_completely_or_not_at_all(
    spark: SparkSession, tmp_path: Path, kind: str, content: bytes
) -> None:
    """They are read line by line. A truncated file fails with its name, and gives no rows."""
    for ending, pack in PACKED.items():
        (tmp_path / f"x{ending}").write_bytes(pack(content))
    files = Files(path=str(tmp_path), format=kind, schema=SCHEMA)
    rows = collect_in_order(files.fetch(spark, [plan_batch(spark, files)], places=True).frame())
    assert describe_rows(rows) == [(1, "a"), content.splitlines()[-1].decode()] * len(PACKED)
    (tmp_path / "x.zst").write_bytes(compress_zstd(content)[: len(compress_zstd(content)) // 2])
    with pytest.raises(Exception, match=r"x\.zst"):
        files.fetch(spark, [plan_batch(spark, files)], places=True).frame().collect()


def test_a_header_in_another_encoding_is_an_error(spark: SparkSession, tmp_path: Path) -> None:
    """No column becomes NULL."""
    (tmp_path / "odd.csv").write_bytes("id,gr\u00fcn\n".encode("latin-1"))
    files = Files(path=str(tmp_path), format="csv", schema=SCHEMA)
    with pytest.raises(OriginError, match=r"header of .*odd.csv is not text in UTF-8"):
        files.fetch(spark, [plan_batch(spark, files)]).frame()


def test_parquet_columns_are_read_by_name(spark: SparkSession, tmp_path: Path) -> None:
    """They may have any order and case, a narrower type, and may be nullable or not."""
    required = pa.schema([pa.field("id", pa.int32(), nullable=False), pa.field("note", pa.string())])
    parquet.write_table(pa.table({"ID": pa.array([1], pa.int32()), "note": ["a"]}), tmp_path / "a")
    parquet.write_table(pa.table({"Note": ["b"], "id": pa.array([2], pa.int32())}), tmp_path / "b")
    parquet.write_table(pa.Table.from_pylist([{"id": 3, "note": None}], schema=required), tmp_path / "c")
    parquet.write_table(pa.table({"id": pa.array([], pa.int32()), "note": pa.array([], pa.string())}), tmp_path / "d")
    files = Files(path=str(tmp_path), format="parquet", schema="id long, note string")
    rows = files.fetch(spark, [plan_batch(spark, files)]).frame().collect()
    assert sorted((row.id, row.note) for row in rows) == [(1, "a"), (2, "b"), (3, None)]


@pytest.mark.parametrize("kind", ["bigint", "decimal(10,2)"])
def test_a_parquet_file_with_another_type_fails_with_its_name(spark: SparkSession, tmp_path: Path, kind: str) -> None:
    """Values that do not fit do not become NULL."""
    spark.sql(f"select cast(1 as {kind}) as id, 'a' as note").write.parquet(f"{tmp_path}/x")
    files = Files(path=f"{tmp_path}/x", format="parquet", schema=SCHEMA)
    with pytest.raises(Exception, match=r"part-.*parquet"):
        files.fetch(spark, [plan_batch(spark, files)]).frame().collect()


FRAGMENTS = [
    b'"', b'""', b",", b",,", b"{", b"}", b"[", b"]", b":", b"\\", b"\\n", b" ", b"\t", b"\0", b"\x0b", b"#", b"'",
    b"a", b"1", b"-7", b"1.5", b"null", b"x" * 300, "ü".encode(), "😀".encode(), b"\xff", "\ufeff".encode(),
    b'{"id": 1}', b'{"id": "x"}', b'{"id": 2, "note": "a,b"}', b'{"note": "\\"}"}', b"1,a", b'2,"b,c"', b"x,y", b'3,"d',
]  # fmt: skip
ENDS = [b"\n", b"\n", b"\r\n", b"\r"]
WHITE = {"csv": "".join(map(chr, range(33))), "json": " \t"}
"""The characters of a blank line."""


def draw_file(chance: random.Random) -> bytes:
    """Return a file whose lines are made of fragments."""
    lines = [b"".join(chance.choices(FRAGMENTS, k=chance.randint(0, 5))) for _ in range(chance.randint(0, 30))]
    return b"".join(line + chance.choice(ENDS) for line in lines)[: None if chance.random() < 0.7 else -1]


def split_lines(kind: str, content: bytes) -> list[str]:
    """Return the lines that are not blank."""
    decoded = content.decode("utf-8", "replace").removeprefix("\ufeff")
    lines = [line for line in re.split("\r\n|\r|\n", decoded) if line.strip(WHITE[kind])]
    return lines[1:] if kind == "csv" else lines


def fits(kind: str, line: str, row: Row) -> bool:
    """Return whether a line can be this good row."""
    if kind == "json":
        found = json.loads(line)
        return isinstance(found, dict) and row.id == found.get("id")
    if '"' in line:
        return True
    number, note = line.split(",")
    return (row.id, row.note) == (int(number) if number else None, note or None)


@pytest.mark.promise("CD-16")
@pytest.mark.parametrize("kind", ["csv", "json"])
def test_every_line_of_a_random_file_is_a_row_or_refused(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    """It appears once, in its place, with its file and raw content.

    A file with a refused line never counts as clean. Spark checks the lines, and splits files over tasks.
    """
    monkeypatch.setattr(file_systems, "_sum_sizes", lambda _: 1 << 40)
    spark.conf.set("spark.sql.files.maxPartitionBytes", "700")
    spark.conf.set("spark.sql.files.openCostInBytes", "1")
    chance = random.Random(f"{kind} False")
    contents = {f"f{number:02}": HEAD * (kind == "csv") + draw_file(chance) for number in range(60)}
    for name, content in contents.items():
        (tmp_path / name).write_bytes(content)
    files = Files(path=str(tmp_path), format=kind, schema=SCHEMA, metadata=["file_name"])
    plan = plan_batch(spark, files)
    decided, straight = (
        collect_in_order(files.fetch(spark, [plan], places=True).frame()),
        files.fetch(spark, [plan]).frame().collect(),
    )
    for name, content in contents.items():
        rows = [row for row in decided if row[PLACE].part == name]
        lines = split_lines(kind, content)
        assert len(rows) == len(lines), name
        for row, line in zip(rows, lines, strict=True):
            assert row.file_name == name
            assert row[REFUSED].raw == line if row[REFUSED] else fits(kind, line, row), (name, line)
    spoilt = {row.file_name for row in decided if row[REFUSED]}
    assert {row.file_name for row in straight if row[REFUSED]} == spoilt
    one, other = (
        sorted(str((row.file_name, row.id, row.note)) for row in rows if row.file_name not in spoilt)
        for rows in (decided, straight)
    )
    assert one == other
    assert len(spoilt) > 10
