"""Parquet files with other types than the schema: which values fit, and what happens to the others."""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from pyarrow import parquet

from origins.errors import OriginError
from origins.files import Files
from origins.files.changes import STOPS, SchemaChanged
from origins.nack import REFUSED
from tests.origins.test_on_change import describe_row, plan_batch, read_both_ways

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark


@dataclass(frozen=True)
class Lost:
    """A value that does not fit, as JSON."""

    found: Any


BIG = 5_000_000_000
TEXTS = pa.map_(pa.string(), pa.string())
TYPED: dict[str, tuple[pa.Array, str, list[Any]]] = {
    "text as a number": (
        pa.array(["17", "six", str(BIG), "", None]),
        "int",
        [17, Lost("six"), Lost(str(BIG)), Lost(""), None],
    ),
    "a wider number": (pa.array([17, BIG, None]), "int", [17, Lost(BIG), None]),
    "a number as a smaller one": (pa.array([17, 300], pa.int32()), "tinyint", [17, Lost(300)]),
    "a broken number": (pa.array([2.5, 3e19]), "bigint", [Lost(2.5), Lost(3e19)]),
    "a finer decimal": (
        pa.array([Decimal("1.500"), Decimal("1.505")]),
        "decimal(10,2)",
        [Decimal("1.50"), Lost(1.505)],
    ),
    "a decimal as a number": (pa.array([Decimal("300"), Decimal(BIG)]), "int", [300, Lost(BIG)]),
    "a number as a decimal": (pa.array([17, BIG]), "decimal(5,2)", [Decimal("17.00"), Lost(BIG)]),
    "a finer float": (pa.array([0.5, 0.1234567890123, 1e300]), "float", [0.5, Lost(0.1234567890123), Lost(1e300)]),
    "a number as text": (pa.array([17, BIG]), "string", ["17", str(BIG)]),
    "a list as text": (pa.array([[1, 2], []]), "string", ["[1,2]", "[]"]),
    "text as a day": (pa.array(["2026-01-02", "soon"]), "date", [date(2026, 1, 2), Lost("soon")]),
    "a time as a day": (
        pa.array([datetime(2026, 1, 2), datetime(2026, 1, 2, 3)]),
        "date",
        [date(2026, 1, 2), Lost("2026-01-02T03:00:00.000")],
    ),
    "a number as a day": (pa.array([2026], pa.int32()), "date", [Lost(2026)]),
    "a day as a number": (pa.array([date(2026, 1, 2)]), "int", [Lost("2026-01-02")]),
    "a truth as a number": (pa.array([True]), "int", [Lost(True)]),
    "a struct as a number": (pa.array([{"x": 1}, None]), "int", [Lost({"x": 1}), None]),
    "text in a struct": (
        pa.array([{"x": "1", "y": 2}, {"x": "no", "y": 3}, None]),
        "struct<x: int>",
        [{"x": 1}, Lost({"x": "no", "y": 3}), None],
    ),
    "text in a list": (
        pa.array([["1", None], ["1", "no"], None]),
        "array<int>",
        [[1, None], Lost(["1", "no"]), None],
    ),
    "text in a map": (
        pa.array([[("a", "1")], [("b", "no")]], TEXTS),
        "map<string, int>",
        [{"a": 1}, Lost({"b": "no"})],
    ),
}


def lay_out_cases() -> tuple[pa.Table, str, dict[int, tuple[str, Any]]]:
    """Return a file with a column for each case, its schema, and the case and the expected value of each row.

    A row has a value in the column of its case only.
    """
    count = sum(len(column) for column, _, _ in TYPED.values())
    columns, kinds = {"id": pa.array(range(count), pa.int32())}, ["id int"]
    expected: dict[int, tuple[str, Any]] = {}
    for at, (case, (column, kind, values)) in enumerate(TYPED.items()):
        before, after = len(expected), count - len(expected) - len(column)
        columns[f"v{at}"] = pa.concat_arrays([pa.nulls(before, column.type), column, pa.nulls(after, column.type)])
        kinds.append(f"v{at} {kind}")
        expected |= {before + row: (case, value) for row, value in enumerate(values)}
    return pa.table(columns), ", ".join(kinds), expected


@pytest.mark.promise("CD-16")
@pytest.mark.parametrize("policy", ["nack", "rescue"])
def test_a_parquet_value_fits_if_the_new_type_keeps_it_unchanged(
    spark: SparkSession, tmp_path: Path, policy: str
) -> None:
    """It is delivered with the new type.

    Any other value is rescued, or its row is refused with file, column and value.
    """
    table, schema, expected = lay_out_cases()
    parquet.write_table(table, tmp_path / "a")
    changes = {"missing": "evolve", "wider": policy, "other": policy}
    files = Files(path=str(tmp_path), format="parquet", schema=schema, on_change=changes)
    rows = [row.asDict(recursive=True) for row in read_both_ways(spark, files)]
    for row, (case, value) in zip(rows, expected.values(), strict=True):
        name = f"v{[*TYPED].index(case)}"
        refused = row.get(REFUSED)
        lost = refused["raw"] if refused else row.get("_rescued")
        assert isinstance(value, Lost) == bool(lost), (case, value, lost)
        if not lost:
            assert row[name] == value, case
            continue
        assert json.loads(lost)[name] == value.found, case
        if not refused:
            assert row[name] is None, case
        else:
            assert (refused["code"], refused["message"].startswith(f"a: column {name}: '")) == ("PARSE", True), case


@pytest.mark.promise("CD-16")
def test_a_parquet_file_with_another_type_stops_the_run(spark: SparkSession, tmp_path: Path) -> None:
    """This is the default, and the error names the file, the column and both types.

    Spark's reader would change some values.
    """
    for case, (column, kind, _) in TYPED.items():
        (folder := tmp_path / case).mkdir()
        parquet.write_table(pa.table({"V": column}), folder / "a")
        files = Files(path=str(folder), format="parquet", schema=f"v {kind}", on_change={"missing": "evolve"})
        with pytest.raises(SchemaChanged, match=r"/a has the column v.* as \S+ instead of \w+"):
            raise AssertionError(f"{case}: {read_both_ways(spark, files)}")


def test_each_kind_of_change_in_parquet_follows_its_policy(spark: SparkSession, tmp_path: Path) -> None:
    """The values are a number that is too wide, in a wider column or one of text, and text that is no number."""
    parquet.write_table(pa.table({"id": [1, BIG]}), tmp_path / "a")
    parquet.write_table(pa.table({"id": ["2", "six", str(BIG)]}), tmp_path / "b")
    wide = {"id": str(BIG)}
    files = {"path": str(tmp_path), "format": "parquet", "schema": "id int"}
    rescued = Files(**files, on_change={"wider": "rescue", "other": "nack"})  # type: ignore[arg-type]
    assert [describe_row(row) for row in read_both_ways(spark, rescued)] == [
        (1,),
        (None, {"id": BIG}),
        (2,),
        "PARSE",
        (None, wide),
    ]
    kept = Files(**files, on_change={"wider": "nack", "other": "rescue"})  # type: ignore[arg-type]
    assert [describe_row(row) for row in read_both_ways(spark, kept)] == [
        (1,),
        "PARSE",
        (2,),
        (None, {"id": "six"}),
        "PARSE",
    ]
    stops = Files(**{**files, "path": f"{tmp_path}/b"}, on_change={"other": "rescue"})  # type: ignore[arg-type]
    with pytest.raises(Exception, match=f"{STOPS}b: column id: '{BIG}' is not an int"):
        read_both_ways(spark, stops)


def test_the_verdict_on_a_parquet_row_does_not_depend_on_the_used_columns(spark: SparkSession, tmp_path: Path) -> None:
    """Spark reads only the requested columns. The verdict requests all columns with other types."""
    parquet.write_table(pa.table({"id": ["1", "six"], "note": ["a", "b"]}), tmp_path / "a")
    files = Files(path=str(tmp_path), format="parquet", schema="id int, note string", on_change={"other": "nack"})
    frame = files.fetch(spark, [plan_batch(spark, files)]).frame()
    for used in (["id"], ["note"], []):
        assert [row.good for row in frame.selectExpr(*used, f"{REFUSED} is null as good").collect()] == [True, False]


def test_a_parquet_column_without_values_fits_any_type(spark: SparkSession, tmp_path: Path) -> None:
    """pandas writes such a column for None values. It is no change, even if changes stop the run."""
    kinds = {"A": "string", "B": "int", "C": "timestamp", "D": "array<int>"}
    parquet.write_table(
        pa.table({"id": pa.array([1], pa.int32()), **dict.fromkeys(kinds, pa.nulls(1))}), tmp_path / "a"
    )
    schema = ", ".join(["id int", *(f"{name.lower()} {kind}" for name, kind in kinds.items())])
    files = Files(path=str(tmp_path), format="parquet", schema=schema)
    assert [describe_row(row) for row in read_both_ways(spark, files)] == [(1, None, None, None, None)]


def test_a_type_that_spark_cannot_read_fails_with_the_name_of_its_file(spark: SparkSession, tmp_path: Path) -> None:
    """Its values are not read as other values."""
    parquet.write_table(pa.table({"at": pa.array([1], pa.time64("ns"))}), tmp_path / "nanoseconds")
    for kind in ("timestamp", "string"):
        files = Files(path=str(tmp_path), format="parquet", schema=f"at {kind}", on_change={"other": "nack"})
        with pytest.raises(Exception, match="nanoseconds"):
            read_both_ways(spark, files)


@pytest.mark.parametrize("kind", ["timestamp", None])
def test_nanoseconds_are_read_as_microseconds(spark: SparkSession, tmp_path: Path, kind: str | None) -> None:
    """pandas writes such moments, with or without a zone.

    The schema may be inferred, and files of Spark are read beside them.
    """
    whole, told_in = [0, 1_700_000_000_123_456_000, -1_000], {"timestamp": "UTC", None: None}
    columns = {"at": pa.array([*whole, None], pa.timestamp("ns", told_in[kind])), "n": pa.array([1, 2, 3, 4])}
    parquet.write_table(pa.table(columns), tmp_path / "a")
    old = pa.table({"at": pa.array([5_000], pa.timestamp("us", told_in[kind])), "n": pa.array([5])})
    schema = f"at {kind}, n bigint" if kind else None
    if kind == "timestamp":
        parquet.write_table(old, tmp_path / "b", use_deprecated_int96_timestamps=True)
        whole = [*whole, 5_000_000]
    rows = read_both_ways(spark, Files(path=str(tmp_path), format="parquet", schema=schema))
    micros = [
        row.at and (row.at.replace(tzinfo=None) - datetime(1970, 1, 1)) // timedelta(microseconds=1) for row in rows
    ]
    assert micros[:3] == [value // 1_000 for value in whole[:3]]
    assert rows[3].at is None
    assert micros[4:] == [value // 1_000 for value in whole[3:]]
    assert rows[0].asDict().get(REFUSED) is None


def test_a_moment_that_microseconds_would_cut_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    """The message has the name of the file and all digits. The other rows of the file are read, also as text."""
    columns = {"at": pa.array([1_000, 1_001], pa.timestamp("ns")), "note": ["a", "b"]}
    parquet.write_table(pa.table(columns), tmp_path / "a")
    for kind, policies in (("timestamp", {}), ("string", {"other": "nack"})):
        files = Files(path=str(tmp_path), format="parquet", schema=f"at {kind}, note string", on_change=policies)
        good, bad = read_both_ways(spark, files)
        assert good.note == "a"
        assert good[REFUSED] is None
        assert json.loads(bad[REFUSED].raw) == {"at": 1001, "note": "b"}
        assert bad[REFUSED].message.startswith("a: column at: 1001 nanoseconds")


def test_nanoseconds_inside_a_nested_column_are_an_error(spark: SparkSession, tmp_path: Path) -> None:
    """The error names the file. It is not raised if the schema does not have the column."""
    columns = {"s": pa.array([{"at": 1}], pa.struct([("at", pa.timestamp("ns"))])), "n": pa.array([1])}
    parquet.write_table(pa.table(columns), tmp_path / "inside")
    with pytest.raises(OriginError, match="inside has times in nanoseconds inside the column s"):
        read_both_ways(spark, Files(path=str(tmp_path), format="parquet", schema="s struct<at: timestamp>, n bigint"))
    assert [
        describe_row(row)
        for row in read_both_ways(spark, Files(path=str(tmp_path), format="parquet", schema="n bigint"))
    ] == [(1,)]


def test_a_refused_parquet_row_is_shown_completely(spark: SparkSession, tmp_path: Path) -> None:
    """It has the columns that the schema leaves out. Rescued values are kept together with rescued columns."""
    parquet.write_table(pa.table({"ID": ["six"], "note": ["a"], "new": [[1]]}), tmp_path / "a")
    files = {"path": str(tmp_path), "format": "parquet", "schema": "id int, note string"}
    (refused,) = read_both_ways(spark, Files(**files, on_change={"other": "nack"}))  # type: ignore[arg-type]
    assert json.loads(refused[REFUSED].raw) == {"ID": "six", "note": "a", "new": [1]}
    rescued = Files(**files, on_change={"other": "rescue", "extra": "rescue"})  # type: ignore[arg-type]
    assert [describe_row(row) for row in read_both_ways(spark, rescued)] == [(None, "a", {"ID": "six", "new": [1]})]
