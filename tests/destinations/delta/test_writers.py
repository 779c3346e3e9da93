"""All ways of writing to a Delta table bring the same rows, and keep the same promises."""

from __future__ import annotations

import stat
from collections.abc import Collection
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import pyarrow as pa
import pytest
from deltalake import DeltaTable
from pyspark.sql.types import LongType, StringType, StructField, StructType

from destinations.conformance import make_label
from destinations.delta.data_files import ColumnName, FileStatistics, measure_file
from destinations.delta.delta import Delta
from destinations.delta.direct_append import DirectTable
from destinations.delta.direct_commit import FolderPlace, MetadataChanged
from destinations.delta.lock import hold_table
from destinations.delta.log import LocalLog
from destinations.delta.table import TargetTable
from destinations.delta.writers import (
    WRITERS,
    FileAppend,
    PendingAppend,
    RowsWithText,
    SparkAppend,
    append_rows,
)
from destinations.destination import Written
from destinations.labels import Deadline, Late
from origins.batch_rows import BatchRows, FrameRows, TableRows
from origins.delta_actions import NestedBody
from runners.state import prepared_store
from tests.destinations.delta.direct.test_adopt import InFiles, write_files
from tests.destinations.delta.writers_conformance import (
    DeltaWriterConformance,
    DirectWriterConformance,
    make_append,
    make_rows,
    open_table,
    read_statistics,
)
from tests.destinations.delta.writers_conformance import write as write_by

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

NO_SPARK = cast("SparkSession", None)
ROWS = pa.table({"id": pa.array([1, 2, 3], pa.int64()), "name": ["x", None, "z"]})
SCHEMA = StructType([StructField("id", LongType()), StructField("name", StringType())])


@pytest.mark.spark
class TestFileAppendOfFilesThatAreThere(DirectWriterConformance):
    def writer(self) -> FileAppend:
        return FileAppend()

    def rows(self, frame: DataFrame, folder: Path) -> InFiles:
        return InFiles(frame.sparkSession, write_files(frame.sparkSession, folder, frame))


@pytest.mark.spark
class TestFileAppendOfFewRowsThatSparkComputes(DirectWriterConformance):
    def writer(self) -> FileAppend:
        return FileAppend(collects=9)

    def rows(self, frame: DataFrame, folder: Path) -> FrameRows:
        return FrameRows(frame, 9)


@pytest.mark.spark
class TestFileAppendOfRowsThatSparkComputes(DirectWriterConformance):
    def writer(self) -> FileAppend:
        return FileAppend()

    def rows(self, frame: DataFrame, folder: Path) -> FrameRows:
        return FrameRows(frame)

    def test_its_files_are_in_the_tables_folder_after_the_close(self, spark: SparkSession, tmp_path: Path) -> None:
        """The folder in which Spark wrote them is removed."""
        orders = Delta(path=str(tmp_path / "orders")).open()
        open_table(orders, make_rows(spark, 4))
        append = make_append(orders, FrameRows(make_rows(spark, 4)))
        self.writer().write(append)
        append.table.close()
        (file,) = (tmp_path / "orders").rglob("*.parquet")
        assert (file.parent, stat.S_IMODE(file.stat().st_mode)) == (tmp_path / "orders", 0o644)
        assert {each.name for each in (tmp_path / "orders").iterdir()} == {"_delta_log", file.name}

    def test_values_missing_in_a_footer_have_bounds_in_every_batch(
        self, spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """A text too long for a footer is read from the first batch's file.

        Spark computes the bounds for later batches.
        """
        read: list[Collection[ColumnName]] = []

        def measure(file: Path, columns: NestedBody, sparks: str) -> FileStatistics:
            measured = measure_file(file, columns, sparks)
            read.append(measured.read)
            return measured

        monkeypatch.setattr("destinations.delta.direct_append.measure_file", measure)
        frame = spark.range(0, 3, 1, 1).selectExpr("id", "named_struct('c`d', repeat('é', 5000)) AS `a.b`")
        orders, sparks = (Delta(path=str(tmp_path / name)).open() for name in ("orders", "sparks"))
        open_table(orders, frame)
        append = make_append(orders, FrameRows(frame))
        write_by(SparkAppend(), sparks, FrameRows(frame))
        for _ in range(3):
            self.writer().write(append)
            assert read_statistics(orders) == read_statistics(sparks)
        assert read == [(("a.b", "c`d"),), (), ()]


@pytest.mark.spark
class TestSparkAppend(DeltaWriterConformance):
    def writer(self) -> SparkAppend:
        return SparkAppend()

    def rows(self, frame: DataFrame, folder: Path) -> FrameRows:
        return FrameRows(frame)


def test_the_last_writer_takes_all_rows() -> None:
    """So there is a writer for each batch."""
    assert isinstance(WRITERS[-1], SparkAppend)


@pytest.fixture
def table(tmp_path: Path) -> TargetTable:
    """A plain table that only this process knows."""
    made = DeltaTable.create(str(tmp_path / "orders"), pa.schema([("id", pa.int64()), ("name", pa.string())]))
    log, found = LocalLog(tmp_path / "orders"), str(made.metadata().id)
    direct = DirectTable(FolderPlace(tmp_path / "orders"), found)
    place = f"file:{tmp_path / 'orders'}"
    return TargetTable("orders", found, place, {}, SCHEMA.json(), log, log.find_latest(), direct)


def write(table: TargetTable, rows: BatchRows, deadline: Deadline | None = None) -> Written:
    """Append the rows by the first writer that can take them."""
    return append_rows(make_pending(table, rows, deadline))


def make_pending(table: TargetTable, rows: BatchRows, deadline: Deadline | None = None) -> PendingAppend:
    labels = [replace(make_label(number=7), deadline=deadline)]
    return PendingAppend(spark=NO_SPARK, table=table, rows=rows, labels=labels)


def read_ids(table: TargetTable) -> list[int]:
    """Return the sorted ids in the table."""
    return sorted(DeltaTable(table.location.removeprefix("file:")).to_pyarrow_table()["id"].to_pylist())


def write_few_files(folder: Path) -> InFiles:
    """Write the rows to a file as Spark would."""
    prepared_store.write_table(ROWS, SCHEMA, folder / "part-0.parquet")
    return InFiles(NO_SPARK, [folder / "part-0.parquet"])


def test_rows_in_memory_are_appended_without_spark(table: TargetTable) -> None:
    """Their columns may have any order, and the append makes one version."""
    written = write(table, TableRows(NO_SPARK, ROWS.select(["name", "id"])))
    assert (written.rows, written.version, read_ids(table)) == (3, 1, [1, 2, 3])


def test_files_are_adopted_before_their_rows_are_read(table: TargetTable, tmp_path: Path) -> None:
    """The originals remain, and the table links to the same files."""
    rows = write_few_files(tmp_path / "rows")
    written = write(table, rows)
    assert (written.rows, read_ids(table)) == (3, [1, 2, 3])
    (mine,), (its,) = rows.paths, [*(tmp_path / "orders").glob("*.parquet")]
    assert mine.samefile(its)


def test_a_stamp_is_added_to_rows_in_memory(tmp_path: Path) -> None:
    """Files lack the column of the stamp, so they are not adopted."""
    rows = RowsWithText(TableRows(NO_SPARK, ROWS), "batch", "0/7")
    assert rows.files() is None
    table = rows.table()
    assert table is not None
    assert table.column("batch").to_pylist() == ["0/7"] * 3


def test_rows_with_other_columns_are_left_to_spark(table: TargetTable) -> None:
    """Spark says why they do not fit."""
    assert not FileAppend().can_take(make_pending(table, TableRows(NO_SPARK, ROWS.rename_columns(["id", "other"]))))


def test_an_unknown_number_of_rows_joins_a_write_by_spark(table: TargetTable, tmp_path: Path) -> None:
    """The files of that write are committed by Spark, too."""
    unknown = make_pending(table, FrameRows(cast("Any", 0)))
    with hold_table(tmp_path / "orders"):
        assert not FileAppend().can_take(unknown)


def test_a_write_that_is_too_late_leaves_no_file(table: TargetTable, tmp_path: Path) -> None:
    """This holds for rows in memory and in files."""
    over = Deadline(left=lambda: -1.0)
    for rows in (TableRows(NO_SPARK, ROWS), write_few_files(tmp_path / "rows")):
        with pytest.raises(Late):
            write(table, rows, over)
    assert [*(tmp_path / "orders").glob("*.parquet")] == []


def test_a_fence_between_the_check_and_the_commit_keeps_rows_out(table: TargetTable, tmp_path: Path) -> None:
    """This holds for rows in memory and in files."""
    for rows in (TableRows(NO_SPARK, ROWS), write_few_files(tmp_path / "rows")):
        append = make_pending(table, rows)
        assert append.direct is not None
        assert DirectTable(FolderPlace(tmp_path / "orders"), table.id).mark({"wherry.fence": type(rows).__name__})
        with pytest.raises(MetadataChanged):
            append_rows(append)
    assert read_ids(table) == []
