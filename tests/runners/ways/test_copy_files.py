"""A parquet batch whose rows no stage changes is decided by its refused and filtered rows. Other rows are copied."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from datetime import datetime, timezone
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from pyarrow import parquet

from destinations.delta.writers import FileAppend
from runners.spark.own_session import make_own_session as own_session
from runners.state import prepared_store
from runners.state.prepared_store import FolderStore
from tests.runners.ways import test_one_pass
from tests.runners.ways.test_one_pass import WHOLE
from tests.scenarios.conftest import Place, place

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

__all__ = ["place"]
pytestmark = [pytest.mark.spark]

SCHEMA = pa.schema(
    [("id", pa.int64()), ("email", pa.string()), ("amount", pa.float64()), ("at", pa.timestamp("us", "UTC"))]
)
PIPELINE = """
name: orders
origin:
  files: {path: "landing/*.parquet", format: parquet, schema: "id long, email string, amount double, at timestamp"}
stages:
  - filter: "id <> 4"
  - expect: [{expect_column_values_to_be_between: {column: amount, min_value: 0}}]
  - filter: "id <> 7"
  - expect: [{expect_column_values_to_not_be_null: {column: email}}]
    when: id > 5
  - require: {known: "email <> 'nobody'"}
destinations:
  - delta: {path: tables/orders}
  - delta: {path: tables/stamped, stamp: _batch}
dlq: {window: 0}
run: {batch: {files: FILES}}
"""


def find_outcome(place: Place, files: int = 2, **limits: int) -> tuple[Any, ...]:
    return test_one_pass.find_outcome(place, files, PIPELINE, **limits)


def make_order(number: int, **other: Any) -> dict[str, Any]:
    at = datetime(2026, 1, 1, 0, 0, number % 60, tzinfo=timezone.utc)
    return {"id": number, "email": f"A{number}", "amount": number / 2, "at": at, **other}


def write_file(place: Place, name: str, rows: Sequence[Mapping[str, Any]], **options: Any) -> Path:
    """Write a file of these rows. Files are older in the order in which they are written."""
    (place.folder / "landing").mkdir(exist_ok=True)
    file = place.folder / "landing" / name
    parquet.write_table(pa.Table.from_pylist(list(rows), SCHEMA), file, **options)
    moment = 1_700_000_000 + len(os.listdir(file.parent))
    os.utime(file, (moment, moment))
    return file


def write_files(place: Place) -> None:
    """Write three files and an empty one.

    Rows are delivered, filtered before and after a refusing stage, and refused in three ways. One file has only good
    rows.
    """
    write_file(
        place,
        "a.parquet",
        [
            make_order(1),
            make_order(2, amount=-1.0),
            make_order(3, amount=None),
            make_order(4),
            make_order(10, email="nobody"),
        ],
    )
    write_file(
        place,
        "b %20ä:.parquet",
        [
            make_order(5, amount=-1.0),
            make_order(6),
            make_order(7),
            make_order(8, amount=-3.0, email="é"),
            make_order(11, email=None),
        ],
    )
    write_file(place, "c.parquet", [make_order(9)])
    write_file(place, "d.parquet", [])


def note_writes(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return a list that notes how the live rows of each batch are written."""
    names: list[str] = []
    write, copy = FolderStore.write, FolderStore.copy

    def noted(store: FolderStore, name: str, frame: DataFrame) -> int | None:
        names.append("picked" if "-live-" in name else "whole")
        return write(store, name, frame)

    def copied(store: FolderStore, name: str, files: Mapping[Path, Sequence[int]], schema: StructType) -> int | None:
        names.append("copied")
        return copy(store, name, files, schema)

    monkeypatch.setattr(FolderStore, "write", noted)
    monkeypatch.setattr(FolderStore, "copy", copied)
    return names


def set_setting(monkeypatch: pytest.MonkeyPatch, key: str, value: str) -> None:
    """Give this setting to the sessions of runners."""

    def set_up(spark: SparkSession, time_zone: str) -> SparkSession:
        session = own_session(spark, time_zone)
        session.conf.set(key, value)
        return session

    monkeypatch.setattr("runners.spark.session_pool.make_own_session", set_up)


@pytest.mark.parametrize("files", [1, 2, 4])
def test_the_copying_way_gives_the_same_as_the_writing_way(
    place: Place, files: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rows, counts, results of rules and the DLQ are the same, for one file and for several.

    One table takes files over, and the rows of the other table get a stamp.
    """
    write_files(place)
    with monkeypatch.context() as patched:
        whole = note_writes(patched)
        expected = find_outcome(place, files, **WHOLE)
    assert set(whole) == {"whole"}
    figures, rows, refused = expected
    assert (figures[:4], [len(each) for each in rows]) == (("succeeded", True, 11, 5), [4, 4])
    assert [row["position"] for row in refused] == {1: [2, 5, 1, 4, 5], 2: [2, 5, 6, 9, 10], 4: [2, 5, 6, 9, 10]}[files]
    names = note_writes(monkeypatch)
    assert find_outcome(place, files) == expected
    assert set(names) == {"copied"}


def test_positions_are_right_if_spark_reads_a_file_in_parts(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """Several tasks read the file, and each begins in the middle."""
    bad = [3, 1_000, 5_555, 5_556, 19_999]
    rows = [make_order(number, amount=-1.0 if number in bad else 1.0) for number in range(20_000)]
    write_file(place, "a.parquet", rows, row_group_size=1_000)
    write_file(place, "b.parquet", [make_order(20_000, amount=-1.0)])
    set_setting(monkeypatch, "spark.sql.files.maxPartitionBytes", "20000")
    names = note_writes(monkeypatch)
    report = place.carry(PIPELINE.replace("FILES", "2"), small_bytes=0)
    assert (report.balanced, report.nacked, report.filtered, names) == (True, 6, 2, ["copied"])
    assert [row["position"] for row in place.refused()] == [number + 1 for number in [*bad, 20_000]]
    assert place.ids("tables/orders") == [number for number in range(20_000) if number not in [*bad, 4, 7]]


@pytest.mark.long
def test_a_lane_with_too_many_other_rows_is_no_longer_copied(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """Looking for such rows costs as much as writing all rows. The run uses other ways, with the same result."""
    write_files(place)
    expected = find_outcome(place, 1)
    names = note_writes(monkeypatch)
    assert find_outcome(place, 1, copied_others=5) == expected
    assert names == ["copied"] * 4
    assert find_outcome(place, 1, copied_others=4) == expected
    assert names[4:] == ["picked"] * 4


def test_a_long_refused_row_is_not_picked(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """It would have to pass through this process."""
    write_files(place)
    expected = find_outcome(place, 4)
    names = note_writes(monkeypatch)
    assert find_outcome(place, 4, picked_row_bytes=10) == expected
    assert names == ["picked", "whole"]


def test_days_of_another_calendar_are_written_by_spark(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """The copy notices them, and its files are deleted."""
    write_file(
        place,
        "a.parquet",
        [make_order(1), make_order(2, amount=-1.0), make_order(3, at=datetime(1899, 12, 31, tzinfo=timezone.utc))],
    )
    names = note_writes(monkeypatch)
    report = place.carry(PIPELINE.replace("FILES", "1"), small_bytes=0)
    assert (report.balanced, report.nacked, names) == (True, 1, ["copied", "picked"])
    assert place.ids("tables/orders") == [1, 3]
    (file,) = (place.folder / "tables" / "orders").glob("*.parquet")
    assert parquet.read_metadata(file).num_rows == 2


def test_rows_that_this_process_cannot_read_are_written_by_spark(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """Arrow has limits that Spark does not have."""

    def raising(*_: object) -> None:
        raise pa.ArrowInvalid("input array too large")

    write_file(place, "a.parquet", [make_order(1), make_order(2, amount=-1.0), make_order(3)])
    names = note_writes(monkeypatch)
    monkeypatch.setattr(prepared_store, "read_pieces", raising)
    report = place.carry(PIPELINE.replace("FILES", "1"), small_bytes=0)
    assert (report.balanced, report.nacked, names) == (True, 1, ["copied", "picked"])
    assert place.ids("tables/orders") == [1, 3]


def test_many_small_files_become_few(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """At most one file for each processor is written. Every row keeps its position."""
    for number in range(20, 60):
        write_file(place, f"{number}.parquet", [make_order(number), make_order(100 + number, amount=-1.0)])
    names = note_writes(monkeypatch)
    report = place.carry(PIPELINE.replace("FILES", "40"), small_bytes=0)
    assert (report.balanced, report.read, report.nacked, names) == (True, 80, 40, ["copied"])
    assert len(list((place.folder / "tables" / "orders").glob("*.parquet"))) <= (os.cpu_count() or 1)
    assert place.ids("tables/orders") == list(range(20, 60))
    assert [row["position"] for row in place.refused()] == list(range(2, 81, 2))


@pytest.mark.parametrize(
    ("rows", "said"), [([{"id": 8}], "changed"), ([{"x": 8}], "changed"), ([], "gone")], ids=["rows", "columns", "gone"]
)
def test_a_file_that_changes_while_it_is_copied_stops_the_run(
    place: Place, rows: list[dict[str, int]], said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The rows that were judged would not be the rows that are delivered."""
    file = write_file(place, "a.parquet", [make_order(1), make_order(2, amount=-1.0)])
    copy = FolderStore.copy

    def replaced(store: FolderStore, *arguments: Any) -> int | None:
        file.unlink()
        if rows:
            parquet.write_table(pa.Table.from_pylist(rows, SCHEMA if "id" in rows[0] else None), file)
        return copy(store, *arguments)

    monkeypatch.setattr(FolderStore, "copy", replaced)
    report = place.carry(PIPELINE.replace("FILES", "1"), small_bytes=0)
    assert report.error is not None
    assert (report.status, said in report.error.message) == ("failed", True), report.error.message
    assert not (place.folder / "tables" / "orders").exists() or place.ids("tables/orders") == []


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("stages:\n", "stages:\n  - cast: {email: string}\n"),
        ("stages:\n", "stages:\n  - drop: [email]\n  - with_columns: {email: \"'x'\"}\n"),
        ("stages:\n", "stages:\n  - select: [email, id, amount, at]\n"),
        ("format: parquet,", "format: parquet, metadata: [file_name],"),
        ("format: parquet,", "format: parquet, options: {mergeSchema: true},"),
    ],
)
def test_rows_that_a_batch_changes_are_written_by_spark(
    place: Place, before: str, after: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A stage changes, drops or moves a column, or a column is not in the file."""
    write_files(place)
    names = note_writes(monkeypatch)
    report = place.carry(PIPELINE.replace("FILES", "4").replace(before, after), small_bytes=0)
    assert (report.balanced, report.read, names) == (True, 11, ["picked"])


def test_nothing_is_copied_if_spark_may_read_other_rows_than_arrow(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Spark might judge other timestamps."""
    write_files(place)
    names = note_writes(monkeypatch)
    set_setting(monkeypatch, "spark.sql.parquet.int96TimestampConversion", "true")
    report = place.carry(PIPELINE.replace("FILES", "4"), small_bytes=0)
    assert (report.balanced, report.read, names) == (True, 11, ["picked"])


def test_an_open_batch_is_finished_from_its_copied_files(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """The source files may be gone. The decision stays the same."""

    def away(*_: object) -> None:
        raise RuntimeError("the disk is away")

    write_files(place)
    with monkeypatch.context() as patched:
        patched.setattr(FileAppend, "write", away)
        report = place.carry(PIPELINE.replace("FILES", "4"), small_bytes=0)
    assert report.status == "failed"
    for file in (place.folder / "landing").iterdir():
        file.unlink()
    names = note_writes(monkeypatch)
    report = place.carry(small_bytes=0)
    assert (report.status, report.balanced, names) == ("succeeded", True, [])
    assert place.ids("tables/orders") == place.ids("tables/stamped") == [1, 3, 6, 9]
    assert [row["position"] for row in place.refused()] == [2, 5, 6, 9, 10]
