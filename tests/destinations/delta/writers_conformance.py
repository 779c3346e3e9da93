"""The promises of every way of appending to a Delta table, as tests.

The fixture `spark` is a session on this machine.
"""

from __future__ import annotations

import json
import re
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from destinations.conformance import make_label
from destinations.delta.delta import Delta, OpenDelta
from destinations.delta.direct_commit import MetadataChanged
from destinations.delta.log import LocalLog
from destinations.delta.table import TargetTable
from destinations.delta.writers import DeltaWriter, PendingAppend, SparkAppend
from destinations.destination import Written
from destinations.labels import Deadline, Late
from origins.batch import JSON
from origins.batch_rows import BatchRows, FrameRows
from origins.crash_points import watch_points

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

COLUMNS = {
    "id": "id",
    "small": "cast(id as byte)",
    "middle": "cast(id as short)",
    "whole": "cast(id as int)",
    "text": "if(id = 1, NULL, concat('é', id))",
    "amount": "cast(id / 4 as decimal(9,2))",
    "share": "cast(id / 4 as float)",
    "ratio": "id / 8",
    "day": "date_add(date'1969-12-30', cast(id as int))",
    "at": "timestamp'1969-12-31 23:59:59.250' + make_interval(0, 0, 0, 0, 0, 0, id)",
    "nothing": "cast(NULL as string)",
    "fine": "cast(id / 10000000000 as decimal(38,10))",
    "zero": "if(id = 0, double('-0.0'), -id)",
    "endless": "if(id = 3, double('Infinity'), id)",
    "raw": "if(id = 3, NULL, encode(cast(id as string), 'utf-8'))",
    "inner": """cast(if(id = 2, NULL, named_struct('a', id, 'b', named_struct('c', concat('t', id))))
        as struct<a:bigint,b:struct<c:string>>)""",
}
"""A column of each type that Delta compares, except of booleans, for which Spark writes no bounds."""


class DeltaWriterConformance(ABC):
    """The promises of `destinations.delta.writers.DeltaWriter`."""

    @abstractmethod
    def writer(self) -> DeltaWriter:
        """Return the writer."""

    @abstractmethod
    def rows(self, frame: DataFrame, folder: Path) -> BatchRows:
        """Return the rows in the form that the writer takes. The folder does not exist yet."""

    def test_the_table_gets_exactly_the_given_rows(self, spark: SparkSession, tmp_path: Path) -> None:
        """Each row is in the table once, with the same values, and the writer counts the rows."""
        orders, frame = Delta(path=str(tmp_path / "orders")).open(), make_rows(spark, 4)
        written = self.append(orders, frame, tmp_path / "rows")
        there = spark.table(orders.destination.sql_name)
        assert written is not None
        assert written.rows == there.count() == 4
        assert there.exceptAll(frame).isEmpty()

    def test_the_statistics_in_the_log_equal_sparks(self, spark: SparkSession, tmp_path: Path) -> None:
        """They are the rows, the NULLs, and the lowest and highest value of each column."""
        ours, sparks = (Delta(path=str(tmp_path / name)).open() for name in ("ours", "sparks"))
        self.append(ours, make_rows(spark, 4), tmp_path / "rows")
        write(SparkAppend(), sparks, FrameRows(make_rows(spark, 4)))
        assert read_statistics(ours) == read_statistics(sparks)

    def test_one_commit_has_every_label(self, spark: SparkSession, tmp_path: Path) -> None:
        """It is an append, and its metrics equal the result of the writer."""
        orders = Delta(path=str(tmp_path / "orders")).open()
        frame, labels = make_rows(spark, 4), [make_label(lane="a"), make_label(lane="b")]
        before = open_table(orders, frame)
        append = PendingAppend(spark=spark, table=before, rows=self.rows(frame, tmp_path / "rows"), labels=labels)
        written = self.writer().write(append)
        (commit,) = LocalLog(Path(orders.destination.place)).list_commits(spark, before.log.find_latest(spark) - 1)
        assert commit.measure_written() == written
        assert (commit.operation, commit.parameters["mode"]) == ("WRITE", "Append")
        assert all(commit.has_label(each.key) for each in labels)

    def test_a_write_without_rows_adds_no_row(self, spark: SparkSession, tmp_path: Path) -> None:
        """The writer reports 0 rows."""
        orders = Delta(path=str(tmp_path / "orders")).open()
        written = self.append(orders, make_rows(spark, 4).where("id > 9"), tmp_path / "rows")
        assert written is not None
        assert (written.rows, spark.table(orders.destination.sql_name).count()) == (0, 0)

    def test_a_write_after_the_deadline_leaves_nothing(self, spark: SparkSession, tmp_path: Path) -> None:
        """The lease has ended, so the table gets no version and no row."""
        orders, late = Delta(path=str(tmp_path / "orders")).open(), Deadline(left=lambda: -1.0)
        with pytest.raises(Late):
            self.append(orders, make_rows(spark, 4), tmp_path / "rows", late)
        assert LocalLog(Path(orders.destination.place)).find_latest() == 0
        assert spark.table(orders.destination.sql_name).count() == 0

    def append(
        self, orders: OpenDelta, frame: DataFrame, folder: Path, deadline: Deadline | None = None
    ) -> Written | None:
        """Make the table if it is missing, and append the rows to it."""
        open_table(orders, frame)
        return write(self.writer(), orders, self.rows(frame, folder), deadline)


class DirectWriterConformance(DeltaWriterConformance):
    """The further promises of a writer that commits in this process."""

    def test_a_write_after_a_fence_fails(self, spark: SparkSession, tmp_path: Path) -> None:
        """Another owner fences the table right before the commit."""
        orders, other = (Delta(path=str(tmp_path / "orders")).open() for _ in range(2))
        frame = make_rows(spark, 4)
        open_table(other, frame)

        def fence(point: str, of: str, rows: object) -> object:
            other.fence(spark, point)
            return rows

        with watch_points(fence), pytest.raises(MetadataChanged):
            self.append(orders, frame, tmp_path / "rows")
        assert spark.table(orders.destination.sql_name).count() == 0

    @pytest.mark.parametrize(
        ("columns", "more"),
        [("id bigint, text string", "PARTITIONED BY (text)"), ("id bigint NOT NULL, text string", "")],
    )
    def test_a_table_that_the_writer_declines_is_left_unchanged(
        self, spark: SparkSession, tmp_path: Path, columns: str, more: str
    ) -> None:
        """The table demands more than files."""
        spark.sql(f"CREATE TABLE delta.`{tmp_path / 'orders'}` ({columns}) USING delta {more}").collect()
        orders, frame = Delta(path=str(tmp_path / "orders")).open(), make_rows(spark, 4).select("id", "text")
        append = make_append(orders, self.rows(frame, tmp_path / "rows"))
        assert not self.writer().can_take(append)
        assert LocalLog(Path(orders.destination.place)).find_latest() == 0
        assert [*(tmp_path / "orders").rglob("*.parquet")] == []

    def test_rows_with_other_types_leave_no_file(self, spark: SparkSession, tmp_path: Path) -> None:
        """The writer may notice the types before the write or during it."""
        orders, frame = Delta(path=str(tmp_path / "orders")).open(), make_rows(spark, 4)
        open_table(orders, frame)
        other = self.rows(frame.withColumn("id", frame["id"].cast("string")), tmp_path / "rows")
        append = make_append(orders, other)
        assert not self.writer().can_take(append) or self.writer().write(append) is None
        assert [*(tmp_path / "orders").glob("*.parquet")] == []


def make_rows(spark: SparkSession, count: int) -> DataFrame:
    """Return this many rows with a column of each type."""
    return spark.range(0, count, 1, 1).selectExpr(*[f"{value} AS {name}" for name, value in COLUMNS.items()])


def open_table(orders: OpenDelta, frame: DataFrame) -> TargetTable:
    """Return the table. Make it for these rows if it is missing."""
    orders.ensure_place(frame.sparkSession, frame.schema)
    found = TargetTable.find(frame.sparkSession, orders.destination.sql_name, orders.destination.folder)
    assert found is not None
    return found


def make_append(orders: OpenDelta, rows: BatchRows, deadline: Deadline | None = None) -> PendingAppend:
    """Return an append of the rows under a new label."""
    spark = rows.frame().sparkSession
    table = TargetTable.find(spark, orders.destination.sql_name, orders.destination.folder)
    assert table is not None
    return PendingAppend(spark=spark, table=table, rows=rows, labels=[replace(make_label(), deadline=deadline)])


def write(writer: DeltaWriter, orders: OpenDelta, rows: BatchRows, deadline: Deadline | None = None) -> Written | None:
    """Write the rows with this writer. Make the table if it is missing."""
    open_table(orders, rows.frame())
    append = make_append(orders, rows, deadline)
    assert writer.can_take(append)
    return writer.write(append)


def read_statistics(orders: OpenDelta) -> list[Mapping[str, JSON]]:
    """Return the statistics of the files in the newest version, with moments cut to milliseconds."""
    log = LocalLog(Path(orders.destination.place))
    lines = map(json.loads, log.path_of(log.find_latest()).read_text(encoding="utf-8").splitlines())
    found = [json.loads(cut_moments(line["add"]["stats"])) for line in lines if "add" in line]
    return [{name: value for name, value in each.items() if name != "tightBounds"} for each in found]


def cut_moments(stats: str) -> str:
    """Return the statistics with moments cut to milliseconds, as Spark writes them."""
    return re.sub(r"(T[0-9:]{8}\.[0-9]{3})[0-9]{3}Z", r"\1Z", stats)
