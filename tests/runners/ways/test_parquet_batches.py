"""A batch of parquet files is written apart, and each refused row keeps its position."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from datetime import datetime, timezone
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from pyarrow import parquet

from runners.spark.own_session import make_own_session as own_session
from tests.runners.ways.test_apart import WHOLE, find_outcome, note_writes
from tests.scenarios.conftest import Place, place

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

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


def set_setting(monkeypatch: pytest.MonkeyPatch, key: str, value: str) -> None:
    """Give this setting to the sessions of runners."""

    def set_up(spark: SparkSession, time_zone: str) -> SparkSession:
        session = own_session(spark, time_zone)
        session.conf.set(key, value)
        return session

    monkeypatch.setattr("runners.spark.session_pool.make_own_session", set_up)


def test_parquet_rows_apart_give_the_same_as_whole_rows(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows, counts, results of rules and the DLQ are the same, for batches of two files.

    One table takes files over, and the rows of the other table get a stamp.
    """
    write_files(place)
    expected = find_outcome(place, 2, PIPELINE, ways=WHOLE)
    figures, rows, refused = expected
    assert (figures[:4], [len(each) for each in rows]) == (("succeeded", True, 11, 5), [4, 4])
    assert [row["position"] for row in refused] == [2, 5, 6, 9, 10]
    names = note_writes(monkeypatch)
    assert find_outcome(place, 2, PIPELINE) == expected
    assert set(names) == {"apart"}


def test_positions_are_right_if_spark_reads_a_file_in_parts(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """Several tasks read the file, and each begins in the middle."""
    bad = [3, 1_000, 5_555, 5_556, 19_999]
    rows = [make_order(number, amount=-1.0 if number in bad else 1.0) for number in range(20_000)]
    write_file(place, "a.parquet", rows, row_group_size=1_000)
    write_file(place, "b.parquet", [make_order(20_000, amount=-1.0)])
    set_setting(monkeypatch, "spark.sql.files.maxPartitionBytes", "20000")
    names = note_writes(monkeypatch)
    report = place.carry(PIPELINE.replace("FILES", "2"), small_bytes=0)
    assert (report.balanced, report.nacked, report.filtered, names) == (True, 6, 2, ["apart"])
    assert [row["position"] for row in place.refused()] == [number + 1 for number in [*bad, 20_000]]
    assert place.ids("tables/orders") == [number for number in range(20_000) if number not in [*bad, 4, 7]]


def test_days_of_another_calendar_arrive_unchanged(place: Place) -> None:
    """Spark writes them, and the table takes its file over."""
    old = datetime(1899, 12, 31, tzinfo=timezone.utc)
    write_file(place, "a.parquet", [make_order(1), make_order(2, amount=-1.0), make_order(3, at=old)])
    report = place.carry(PIPELINE.replace("FILES", "1"), small_bytes=0)
    assert (report.balanced, report.nacked) == (True, 1)
    found = {row["id"]: row["at"].timestamp() for row in place.rows("tables/orders")}
    assert found == {1: make_order(1)["at"].timestamp(), 3: old.timestamp()}
