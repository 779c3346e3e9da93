"""A batch of parquet whose rows no stage changes is decided by a look, and comes out as one that is written whole."""

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
from runners.spark.session import make_own_session as own_session
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


def outcome(place: Place, files: int = 2, **limits: int) -> tuple[Any, ...]:
    return test_one_pass.outcome(place, files, PIPELINE, **limits)


def order(number: int, **other: Any) -> dict[str, Any]:
    at = datetime(2026, 1, 1, 0, 0, number % 60, tzinfo=timezone.utc)
    return {"id": number, "email": f"A{number}", "amount": number / 2, "at": at, **other}


def land(place: Place, name: str, rows: Sequence[Mapping[str, Any]], **options: Any) -> Path:
    """A file of these rows; its age is its place in the order of names."""
    (place.folder / "landing").mkdir(exist_ok=True)
    file = place.folder / "landing" / name
    parquet.write_table(pa.Table.from_pylist(list(rows), SCHEMA), file, **options)
    moment = 1_700_000_000 + len(os.listdir(file.parent))
    os.utime(file, (moment, moment))
    return file


def landed(place: Place) -> None:
    """Rows that are delivered, filtered before and behind a stage that refuses others, and refused in three ways; and
    a file of good ones alone, and one of none."""
    land(
        place,
        "a.parquet",
        [order(1), order(2, amount=-1.0), order(3, amount=None), order(4), order(10, email="nobody")],
    )
    land(
        place,
        "b %20ä:.parquet",
        [order(5, amount=-1.0), order(6), order(7), order(8, amount=-3.0, email="é"), order(11, email=None)],
    )
    land(place, "c.parquet", [order(9)])
    land(place, "d.parquet", [])


def written(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """How live rows were written, batch by batch."""
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


def with_setting(monkeypatch: pytest.MonkeyPatch, key: str, value: str) -> None:
    """The sessions of runners have this setting."""

    def set_up(spark: SparkSession, time_zone: str) -> SparkSession:
        session = own_session(spark, time_zone)
        session.conf.set(key, value)
        return session

    monkeypatch.setattr("runners.spark.session_pool.make_own_session", set_up)


@pytest.mark.parametrize("files", [1, 2, 4])
def test_a_look_and_a_copy_give_what_two_passes_give(place: Place, files: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows, figures, findings, and the DLQ with the place of every row, of one file and of several; in a table that
    takes files over, and in one whose rows get a stamp."""
    landed(place)
    with monkeypatch.context() as patched:
        whole = written(patched)
        expected = outcome(place, files, **WHOLE)
    assert set(whole) == {"whole"}
    figures, rows, refused = expected
    assert (figures[:4], [len(each) for each in rows]) == (("succeeded", True, 11, 5), [4, 4])
    assert [row["position"] for row in refused] == {1: [2, 5, 1, 4, 5], 2: [2, 5, 6, 9, 10], 4: [2, 5, 6, 9, 10]}[files]
    names = written(monkeypatch)
    assert outcome(place, files) == expected
    assert set(names) == {"copied"}


def test_places_are_right_where_spark_reads_a_file_in_parts(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """By several tasks, each of which begins in the midst of it."""
    bad = [3, 1_000, 5_555, 5_556, 19_999]
    rows = [order(number, amount=-1.0 if number in bad else 1.0) for number in range(20_000)]
    land(place, "a.parquet", rows, row_group_size=1_000)
    land(place, "b.parquet", [order(20_000, amount=-1.0)])
    with_setting(monkeypatch, "spark.sql.files.maxPartitionBytes", "20000")
    names = written(monkeypatch)
    report = place.carry(PIPELINE.replace("FILES", "2"), small_bytes=0)
    assert (report.balanced, report.nacked, report.filtered, names) == (True, 6, 2, ["copied"])
    assert [row["position"] for row in place.refused()] == [number + 1 for number in [*bad, 20_000]]
    assert place.ids("tables/orders") == [number for number in range(20_000) if number not in [*bad, 4, 7]]


@pytest.mark.long
def test_of_many_that_are_not_as_the_others_a_lane_is_copied_no_more(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    """To look for them costs what to write them does; the run goes on in the other ways, and comes to the same."""
    landed(place)
    expected = outcome(place, 1)
    names = written(monkeypatch)
    assert outcome(place, 1, copied_others=5) == expected
    assert names == ["copied"] * 4
    assert outcome(place, 1, copied_others=4) == expected
    assert names[4:] == ["picked"] * 4


def test_a_refused_row_that_is_long_is_not_looked_for(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """It would have to pass through this process."""
    landed(place)
    expected = outcome(place, 4)
    names = written(monkeypatch)
    assert outcome(place, 4, picked_row_bytes=10) == expected
    assert names == ["picked", "whole"]


def test_days_of_long_ago_are_written_by_spark(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """They are found out when they are copied, and nothing is left of that."""
    land(
        place, "a.parquet", [order(1), order(2, amount=-1.0), order(3, at=datetime(1899, 12, 31, tzinfo=timezone.utc))]
    )
    names = written(monkeypatch)
    report = place.carry(PIPELINE.replace("FILES", "1"), small_bytes=0)
    assert (report.balanced, report.nacked, names) == (True, 1, ["copied", "picked"])
    assert place.ids("tables/orders") == [1, 3]
    (file,) = (place.folder / "tables" / "orders").glob("*.parquet")
    assert parquet.read_metadata(file).num_rows == 2


def test_what_cannot_be_read_here_is_written_by_spark(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """Arrow has limits that Spark has not."""

    def raising(*_: object) -> None:
        raise pa.ArrowInvalid("input array too large")

    land(place, "a.parquet", [order(1), order(2, amount=-1.0), order(3)])
    names = written(monkeypatch)
    monkeypatch.setattr(prepared_store, "read_pieces", raising)
    report = place.carry(PIPELINE.replace("FILES", "1"), small_bytes=0)
    assert (report.balanced, report.nacked, names) == (True, 1, ["copied", "picked"])
    assert place.ids("tables/orders") == [1, 3]


def test_many_small_files_become_few(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """As many as there are threads, as Spark would write them; and every row keeps its place."""
    for number in range(20, 60):
        land(place, f"{number}.parquet", [order(number), order(100 + number, amount=-1.0)])
    names = written(monkeypatch)
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
    """What was judged is not what would be delivered."""
    file = land(place, "a.parquet", [order(1), order(2, amount=-1.0)])
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
def test_rows_that_do_not_leave_as_they_came_are_written_by_spark(
    place: Place, before: str, after: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A stage has changed, dropped or moved a column, or not all columns lie in the file."""
    landed(place)
    names = written(monkeypatch)
    report = place.carry(PIPELINE.replace("FILES", "4").replace(before, after), small_bytes=0)
    assert (report.balanced, report.read, names) == (True, 11, ["picked"])


@pytest.mark.parametrize(
    "setting", ["spark.sql.files.ignoreCorruptFiles", "spark.sql.parquet.int96TimestampConversion"]
)
def test_where_spark_may_read_something_else_nothing_is_copied(
    place: Place, setting: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It might judge fewer rows than there are, or other moments."""
    landed(place)
    names = written(monkeypatch)
    with_setting(monkeypatch, setting, "true")
    report = place.carry(PIPELINE.replace("FILES", "4"), small_bytes=0)
    assert (report.balanced, report.read, names) == (True, 11, ["picked"])


def test_a_batch_that_was_left_open_is_finished_from_what_was_copied(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Though the files that were read are gone by then: what was decided is not decided anew."""

    def away(*_: object) -> None:
        raise RuntimeError("the disk is away")

    landed(place)
    with monkeypatch.context() as patched:
        patched.setattr(FileAppend, "write", away)
        report = place.carry(PIPELINE.replace("FILES", "4"), small_bytes=0)
    assert report.status == "failed"
    for file in (place.folder / "landing").iterdir():
        file.unlink()
    names = written(monkeypatch)
    report = place.carry(small_bytes=0)
    assert (report.status, report.balanced, names) == ("succeeded", True, [])
    assert place.ids("tables/orders") == place.ids("tables/stamped") == [1, 3, 6, 9]
    assert [row["position"] for row in place.refused()] == [2, 5, 6, 9, 10]
