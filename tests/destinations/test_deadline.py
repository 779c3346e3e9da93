"""A write that begins after its deadline leaves nothing in the table, and a write in time is not affected."""

from __future__ import annotations

import json
import re
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.errors.exceptions.connect import SparkConnectGrpcException

from destinations.conformance import make_label
from destinations.delta import Delta
from destinations.delta.delta import OpenDelta
from destinations.delta.table import TargetTable
from destinations.labels import Deadline, Late
from origins.batch_rows import FrameRows
from tests.spark_errors import make_raised_error, make_spark_error

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class Asked:
    """A double of a frame that keeps the condition it is given."""

    def where(self, condition: str) -> Asked:
        self.condition = condition
        return self


def read_deadline(deadline: Deadline) -> float:
    """Return the moment in the condition of a guarded frame, in seconds."""
    rows: Any = Asked()
    with deadline.guard_rows(rows):
        found = re.search(r"< (-?\d+)L", rows.condition)
    assert found is not None
    return int(found[1]) / 1_000_000


def test_the_deadline_is_a_moment_on_sparks_clock() -> None:
    """Wherry adds the remaining time to the current time, and then the difference to Spark's clock."""
    assert read_deadline(Deadline(left=lambda: 40.0, now=lambda: 1_000.0)) == 1_040.0
    assert read_deadline(Deadline(left=lambda: 40.0, now=lambda: 1_000.0, ahead=-120.0)) == 920.0


def test_a_pause_while_the_deadline_is_computed_only_makes_it_earlier() -> None:
    """Wherry reads the time of day first, so an hour that passes after that does not extend the deadline."""
    asleep = [0.0]

    def now() -> float:
        asleep[0] += 3_600
        return 1_000.0

    assert read_deadline(Deadline(left=lambda: 40.0 - asleep[0], now=now)) < 1_000.0


def test_a_commit_without_spark_checks_the_clock_itself() -> None:
    """The check passes as long as any time is left."""
    left = [0.001]
    deadline = Deadline(left=lambda: left[0])
    deadline.check()
    left[0] = 0.0
    with pytest.raises(Late, match="lease ended"):
        deadline.check()


def test_only_the_deadlines_own_marker_counts_as_a_late_write() -> None:
    """Other errors pass unchanged: similar text raised by a row, and an error that quotes the plan."""
    rows: Any = Asked()
    with pytest.raises(SparkConnectGrpcException, match="wherry-late-1"), Deadline(left=lambda: 1.0).guard_rows(rows):
        raise make_raised_error("wherry-late-1")
    with pytest.raises(SparkConnectGrpcException, match="UNRESOLVED"), Deadline(left=lambda: 1.0).guard_rows(rows):
        raise make_spark_error("UNRESOLVED_COLUMN", f"no such column: Filter {rows.condition}")
    with pytest.raises(Late), Deadline(left=lambda: 1.0).guard_rows(rows):
        raise make_raised_error(re.findall(r"wherry-late-\w+", str(rows.condition))[0])


@pytest.fixture
def table(spark: SparkSession, tmp_path: Path) -> OpenDelta:
    """A table with one column and one row."""
    table = Delta(path=str(tmp_path / "orders")).open()
    table.ensure_place(spark, spark.range(1).schema)
    table.write(spark, FrameRows(spark.range(1)), [make_label(number=1)])
    return table


def read_ids(spark: SparkSession, table: OpenDelta) -> list[int]:
    """Return the sorted ids in the table."""
    return sorted(row[0] for row in spark.read.format("delta").load(table.destination.place).collect())


@pytest.mark.spark
@pytest.mark.connect
@pytest.mark.parametrize("how", [{"mode": "merge", "keys": ["id"]}, {"mode": "replace"}], ids=["merge", "replace"])
def test_a_write_in_time_succeeds_and_a_late_one_raises(
    spark: SparkSession, table: OpenDelta, how: dict[str, Any]
) -> None:
    """A late write leaves the table unchanged."""
    other = replace(table.destination, **how).open()
    first = replace(make_label(number=2).batch, first=True)
    for left, found in ((-1.0, [0]), (60.0, [0, 1, 2])):
        late = replace(make_label(), batch=first, deadline=Deadline(left=lambda left=left: left))  # type: ignore[misc]
        rows = spark.range(3)
        if left < 0:
            with pytest.raises(Late):
                other.write(spark, FrameRows(rows), [late])
        else:
            assert other.write(spark, FrameRows(rows), [late]).version is not None
        assert read_ids(spark, table) == found


@pytest.mark.spark
@pytest.mark.promise("CN-21")
def test_spark_takes_the_time_after_delta_has_read_the_table(spark: SparkSession, tmp_path: Path) -> None:
    """A process frozen before that read starts too late, and a process frozen after it meets the fence.

    Other versions of the table appear during the write. The version that Delta read exists before Spark takes the time,
    and appeared after the rows were described. On a slow machine the test shows less.
    """
    name = f"delta.`{tmp_path / 'orders'}`"

    spark.sql(f"CREATE TABLE {name} (id bigint, at bigint) USING delta")
    table = TargetTable.find(spark, name)
    assert table is not None
    described = time.time()
    rows = spark.range(3).selectExpr("id", "unix_micros(current_timestamp()) as at")
    with add_versions(tmp_path / "orders" / "_delta_log") as appeared:
        table.append(rows, "mine")
    seen = appeared[find_read_version(tmp_path / "orders" / "_delta_log")]
    taken = spark.sql(f"SELECT max(at) FROM {name}").collect()[0][0] / 1_000_000

    assert described < seen <= taken


@contextmanager
def add_versions(log: Path) -> Iterator[dict[int, float]]:
    """Add versions that change nothing while the block runs. Yield when each version was added."""
    nothing = json.dumps({"commitInfo": {"timestamp": 1, "operation": "STRANGER", "operationParameters": {}}})
    appeared: dict[int, float] = {}

    def appear() -> None:
        for version in range(1, 60):
            appeared[version] = time.time()  # before the write, since a reader may see the file at once
            with suppress(FileExistsError), (log / f"{version:020}.json").open("x") as file:
                file.write(nothing + "\n")
            begun.set()
            pause.wait(0.01)

    begun, pause, thread = threading.Event(), threading.Event(), threading.Thread(target=appear)
    thread.start()
    begun.wait()
    yield appeared
    thread.join()


def find_read_version(log: Path) -> int:
    """Return the version that the write read when it began."""
    for file in log.glob("*.json"):
        for line in file.read_text().splitlines():
            said = json.loads(line).get("commitInfo", {})
            if said.get("userMetadata") == "mine":
                return int(said["readVersion"])
    raise AssertionError("it is not there")
