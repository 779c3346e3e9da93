"""The statistics in a table's log of adopted files, and that the table keeps those files, without Spark."""

from __future__ import annotations

import json
import math
import os
import time
from datetime import date
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, Schema
from pyarrow import parquet

from destinations.delta.data_files import COLUMNS, AdoptableFiles, bring, describe_files, measure_file, write
from destinations.delta.direct_commit import FolderPlace
from origins.delta_actions import FieldBody, FileBody, NestedBody


def describe_columns(**kinds: Any) -> NestedBody:
    """Return columns of these types, as Delta describes them."""
    fields: list[FieldBody] = [
        {"name": name, "type": kind, "nullable": True, "metadata": {}} for name, kind in kinds.items()
    ]
    return {"type": "struct", "fields": fields}


def describe_column(kind: str) -> NestedBody:
    """Return the column of a table with one column."""
    return describe_columns(v=kind)


def read_noted(file: Path, fields: NestedBody) -> dict[str, Any]:
    """Return the statistics of a file in the log. Each number in them is the text from the log."""
    (told,) = describe_files({file.name: file}, fields)
    found: dict[str, Any] = json.loads(str(told["stats"]), parse_float=str, parse_int=str)
    return found


def write_file(folder: Path, rows: pa.Table) -> Path:
    """Write a file with these rows."""
    write([rows], rows.schema, "{}", folder / "rows.parquet")
    return folder / "rows.parquet"


BOUNDLESS = {
    "a NaN": pa.array([1.5, math.nan]),
    "a long text with the last character behind its first 32": pa.array(["a", "x" * 32 + "\U0010ffff" * 2]),
    "a day after 9999": pa.array([0, 2_932_897], pa.int32()).cast(pa.date32()),
    "a day before the year 1": pa.array([0, -719_163], pa.int32()).cast(pa.date32()),
    "a moment after 9999": pa.array([0, 253_402_300_800_000_000], pa.timestamp("us", "UTC")),
    "bytes that are no text": pa.array([b"a", b"\xff"]).cast(pa.string(), safe=False),
}


@pytest.mark.parametrize("values", BOUNDLESS)
def test_a_file_has_the_bounds_of_all_columns_or_of_none(tmp_path: Path, values: str) -> None:
    """If other columns had bounds, `deltalake` would miss the rows with these values."""
    column = BOUNDLESS[values]
    rows = pa.table({"id": [1, 2], "v": column})
    kind = {"double": "double", "string": "string", "date32[day]": "date"}.get(str(column.type), "timestamp")
    found = read_noted(write_file(tmp_path, rows), describe_columns(id="long", v=kind))
    assert found == {"numRecords": "2", "nullCount": {"id": "0", "v": "0"}}


def test_the_first_32_columns_of_the_table_have_statistics(tmp_path: Path) -> None:
    """Each column in a struct counts, and so does a list. The order in the file has no effect."""
    inner = pa.array([{f"s{at}": at for at in range(20)}])
    plain = {f"v{at}": [at] for at in range(20)}
    rows = pa.table({**dict(reversed(plain.items())), "l": [[1]], "s": inner})
    listed = {"type": "array", "elementType": "long", "containsNull": True}
    fields = describe_columns(
        s=describe_columns(**{f"s{at}": "long" for at in range(20)}), l=listed, **dict.fromkeys(plain, "long")
    )
    found = read_noted(write_file(tmp_path, rows), fields)
    assert list(found["minValues"]["s"]) == [f"s{at}" for at in range(20)]
    assert list(found["minValues"]) == ["s", *(f"v{at}" for at in range(11))]
    assert found["nullCount"].keys() == found["minValues"].keys()


def append(folder: Path, files: list[FileBody]) -> None:
    place = FolderPlace(folder)
    place.append(place.versions.open_head()[1], files, "tag", lambda: None)


@pytest.mark.parametrize("text", ["𠮷", "\U000e0041", "\U0010ffff", 'a\u2028\x85"\\\n'])
def test_a_reader_that_skips_files_finds_a_text_of_any_characters(tmp_path: Path, text: str) -> None:
    """This holds for a value and for a column's name, with characters that JSON can write as two escapes."""
    folder, fields = tmp_path / "notes", describe_columns(**{text: "string"})
    DeltaTable.create(str(folder), Schema.from_json(json.dumps(fields)))
    table = pa.table({text: [text]})
    write([table], table.schema, "{}", folder / "rows.parquet")
    append(folder, describe_files({"rows.parquet": folder / "rows.parquet"}, fields))
    found = DeltaTable(str(folder))
    assert found.to_pyarrow_table(filters=[(text, "=", text)]).num_rows == 1
    assert pa.table(found.get_add_actions(flatten=True))[f"max.{text}"].to_pylist() == [text]


def test_a_file_of_any_name_is_found(tmp_path: Path) -> None:
    """The log holds the name encoded as in a URL."""
    folder, name = tmp_path / "notes", "part 50%25=é#?.parquet"
    DeltaTable.create(str(folder), Schema.from_json(json.dumps(describe_column("long"))))
    rows = pa.table({"v": [1]})
    write([rows], rows.schema, "{}", folder / name)
    files = describe_files({name: folder / name}, describe_column("long"))
    append(folder, files)
    assert files[0]["path"] == "part%2050%2525%3D%C3%A9%23%3F.parquet"
    assert DeltaTable(str(folder)).to_pyarrow_table()["v"].to_pylist() == [1]


def test_numbers_that_may_be_nan_have_no_bounds_in_the_file_itself(tmp_path: Path) -> None:
    """Such bounds leave NaN out, and a reader that orders NaN above all numbers would skip it."""
    inner = pa.array([{"a": math.nan, "b": 1}, {"a": 1.0, "b": 2}])
    footer = parquet.read_metadata(write_file(tmp_path, pa.table({"v": [1.0, math.nan], "s": inner})))
    noted = [footer.row_group(0).column(at) for at in range(footer.num_columns)]
    assert [(each.path_in_schema, each.is_stats_set) for each in noted] == [("v", False), ("s.a", False), ("s.b", True)]


@pytest.mark.parametrize(
    ("word", "value"),
    [
        ("org.apache.spark.legacyDateTime", ""),
        ("org.apache.spark.legacyINT96", ""),
        ("org.apache.spark.version", "2.4.8"),
        ("org.apache.spark.version", "3.0.3"),
    ],
)
def test_files_with_days_of_another_calendar_are_not_adopted(tmp_path: Path, word: str, value: str) -> None:
    """The days in their footers differ from the days that Spark reads."""
    described = {COLUMNS: json.dumps(describe_column("date")), "org.apache.spark.version": "3.1.0"}
    plain = pa.schema([("v", pa.date32())], described)
    parquet.write_table(pa.table({"v": [date(1500, 1, 1)]}, plain), tmp_path / "plain.parquet")
    legacy = plain.with_metadata({**described, word: value})
    parquet.write_table(pa.table({"v": [date(1500, 1, 1)]}, legacy), tmp_path / "legacy.parquet")
    assert AdoptableFiles.of([tmp_path / "plain.parquet"]) is not None
    assert AdoptableFiles.of([tmp_path / "legacy.parquet"]) is None
    assert AdoptableFiles.of([tmp_path / "plain.parquet", tmp_path / "legacy.parquet"]) is None


def test_files_prepared_long_ago_outlive_a_vacuum(tmp_path: Path) -> None:
    """The vacuum read the table before the files came, and deletes unknown files that are older than a week."""
    folder, prepared = tmp_path / "orders", tmp_path / "rows.parquet"
    DeltaTable.create(str(folder), Schema.from_json(json.dumps(describe_column("long"))))
    table = pa.table({"v": [1]})
    write([table], table.schema, "{}", prepared)
    os.utime(prepared, (time.time() - 800_000,) * 2)
    early = DeltaTable(str(folder))
    bring({"part.parquet": prepared}, folder)
    append(folder, describe_files({"part.parquet": folder / "part.parquet"}, describe_column("long")))
    early.vacuum(retention_hours=168, dry_run=False, full=True)
    assert DeltaTable(str(folder)).to_pyarrow_table()["v"].to_pylist() == [1]


SPARKS = {"numRecords": 3, "minValues": {"v": 0.5}, "maxValues": {"v": 2.5}, "nullCount": {"v": 1}}


@pytest.mark.parametrize(
    ("sparks", "bounds", "nulls"),
    [
        (SPARKS, ({"k": 1, "v": 0.5}, {"k": 3, "v": 2.5}), {"k": 0, "v": 1}),
        ({**SPARKS, "maxValues": {"v": "NaN"}}, None, {"k": 0, "v": 1}),
        ({**SPARKS, "maxValues": {}}, None, {"k": 0, "v": 1}),
        ({**SPARKS, "minValues": {}, "maxValues": {}, "nullCount": {"v": 3}}, ({"k": 1}, {"k": 3}), {"k": 0, "v": 3}),
    ],
)
def test_statistics_of_spark_complete_the_footer(tmp_path: Path, sparks: Any, bounds: Any, nulls: Any) -> None:
    """The file's values differ from those statistics, and Wherry reads none of them."""
    file = write_file(tmp_path, pa.table({"k": pa.array([1, 2, 3], pa.int64()), "v": [7.0, 8.0, 9.0]}))
    measured = measure_file(file, describe_columns(k="long", v="double"), json.dumps(sparks))
    stats = json.loads(measured.text)
    assert measured.read == ()
    assert stats.pop("nullCount") == nulls
    assert stats.pop("numRecords") == 3
    assert stats == ({} if bounds is None else dict(zip(("minValues", "maxValues"), bounds, strict=True)))


@pytest.mark.parametrize(
    ("least", "highest", "expected"),
    [
        ("2026-05-01T01:02:03.004Z", "2026-05-01T01:02:03.004Z", ("2026-05-01T01:02:03.004Z", "01:02:03.004999Z")),
        (
            "2026-05-01T06:32:03.000+05:30",
            "2026-05-01T06:32:03.000+05:30",
            ("2026-05-01T01:02:03.000Z", "01:02:03.000999Z"),
        ),
        (
            "1850-01-01T00:53:28.999+00:53:28",
            "1850-01-01T00:00:00.000-00:53:28",
            ("1850-01-01T00:00:00.999Z", "00:53:28.000999Z"),
        ),
        ("9999-12-31T23:59:59.999Z", "9999-12-31T23:59:59.999Z", ("9999-12-31T23:59:59.999Z", "23:59:59.999999Z")),
    ],
)
def test_moments_of_spark_are_recorded_in_utc_with_the_digits_that_spark_cut_off(
    tmp_path: Path, least: str, highest: str, expected: tuple[str, str]
) -> None:
    """Readers need not know zones with seconds, or that a moment may be later than the recorded one."""
    file = write_file(tmp_path, pa.table({"v": pa.array([1, 2], pa.timestamp("us", "UTC"))}))
    sparks = {"minValues": {"v": least}, "maxValues": {"v": highest}, "nullCount": {"v": 0}}
    stats = json.loads(measure_file(file, describe_column("timestamp"), json.dumps(sparks)).text)
    assert (stats["minValues"]["v"], stats["maxValues"]["v"].partition("T")[2]) == expected


@pytest.mark.parametrize(
    ("kind", "least", "highest"),
    [
        ("timestamp", "-0043-03-15T00:00:00.000Z", "2026-01-01T00:00:00.000Z"),
        ("timestamp", "2026-01-01T00:00:00.000Z", "+10000-01-01T00:00:00.000Z"),
        ("timestamp", "0001-01-01T00:30:00.000+05:30", "2026-01-01T00:00:00.000Z"),
        ("timestamp", "2026-01-01T00:00:00.000Z", "9999-12-31T23:30:00.000-05:30"),
        ("string", "a", "b\ufffd"),
        ("string", "\ufffd", "😀"),
    ],
)
def test_an_end_that_readers_understand_differently_leaves_a_file_without_bounds(
    tmp_path: Path, kind: str, least: str, highest: str
) -> None:
    """It is a year without four digits in UTC, or bytes for which Spark has recorded a replacement."""
    values = pa.array([1, 2], pa.timestamp("us", "UTC")) if kind == "timestamp" else pa.array(["a", "b"])
    sparks = {"minValues": {"v": least}, "maxValues": {"v": highest}, "nullCount": {"v": 0}}
    file = write_file(tmp_path, pa.table({"v": values}))
    measured = measure_file(file, describe_column(kind), json.dumps(sparks))
    assert json.loads(measured.text) == {"numRecords": 2, "nullCount": {"v": 0}}


@pytest.mark.parametrize("kind", ["float", "double"])
def test_the_highest_zero_that_spark_recorded_has_no_sign(tmp_path: Path, kind: str) -> None:
    """Spark treats both zeros as equal, and some readers order `-0.0` below `0.0`."""
    file = write_file(tmp_path, pa.table({"v": [-1.5, -0.0]}))
    sparks = {"minValues": {"v": -1.5}, "maxValues": {"v": -0.0}, "nullCount": {"v": 0}}
    stats = json.loads(measure_file(file, describe_column(kind), json.dumps(sparks)).text, parse_float=str)
    assert stats["maxValues"] == {"v": "0.0"}
