"""Every way into a Delta table brings the same rows, under the same promises."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import pyarrow as pa
import pytest
from deltalake import DeltaTable
from pyspark.sql.types import LongType, StringType, StructField, StructType

from destinations.conformance import make_label
from destinations.delta.direct_append import DirectTable
from destinations.delta.direct_commit import FolderPlace, MetadataChanged
from destinations.delta.log import LocalLog
from destinations.delta.table import TargetTable
from destinations.delta.writers import (
    WRITERS,
    AdoptFiles,
    DirectAppend,
    PendingAppend,
    RowsWithText,
    SparkAppend,
    append_rows,
)
from destinations.destination import Deadline, Late, Written
from origins.batch_rows import BatchRows, FrameRows, TableRows
from runners.state import prepared_store
from tests.destinations.delta.direct.test_adopt import InFiles, lying
from tests.destinations.delta.writers_conformance import DeltaWriterConformance, DirectWriterConformance

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

NO_SPARK = cast("SparkSession", None)
ROWS = pa.table({"id": pa.array([1, 2, 3], pa.int64()), "name": ["x", None, "z"]})
SCHEMA = StructType([StructField("id", LongType()), StructField("name", StringType())])


@pytest.mark.spark
class TestAdoptFiles(DirectWriterConformance):
    def writer(self) -> AdoptFiles:
        return AdoptFiles()

    def rows(self, frame: DataFrame, folder: Path) -> InFiles:
        return InFiles(frame.sparkSession, lying(frame.sparkSession, folder, frame))


@pytest.mark.spark
class TestDirectAppendOfRowsInThisProcess(DirectWriterConformance):
    def writer(self) -> DirectAppend:
        return DirectAppend()

    def rows(self, frame: DataFrame, folder: Path) -> TableRows:
        return TableRows(frame.sparkSession, frame.toArrow())


@pytest.mark.spark
class TestDirectAppendOfRowsThatSparkComputes(DirectWriterConformance):
    def writer(self) -> DirectAppend:
        return DirectAppend(collects=9)

    def rows(self, frame: DataFrame, folder: Path) -> FrameRows:
        return FrameRows(frame, 9)


@pytest.mark.spark
class TestSparkAppend(DeltaWriterConformance):
    def writer(self) -> SparkAppend:
        return SparkAppend()

    def rows(self, frame: DataFrame, folder: Path) -> FrameRows:
        return FrameRows(frame)


def test_the_last_writer_takes_everything() -> None:
    """So that each batch has a way."""
    assert isinstance(WRITERS[-1], SparkAppend)


@pytest.fixture
def table(tmp_path: Path) -> TargetTable:
    """A plain table, of which this process alone knows."""
    made = DeltaTable.create(str(tmp_path / "orders"), pa.schema([("id", pa.int64()), ("name", pa.string())]))
    log, found = LocalLog(tmp_path / "orders"), str(made.metadata().id)
    short = DirectTable(FolderPlace(tmp_path / "orders"), found)
    place = f"file:{tmp_path / 'orders'}"
    return TargetTable("orders", found, place, {}, SCHEMA.json(), log, log.find_newest(), short)


def write(table: TargetTable, rows: BatchRows, deadline: Deadline | None = None) -> Written:
    """Append the rows by the first writer that can."""
    return append_rows(append_to(table, rows, deadline))


def append_to(table: TargetTable, rows: BatchRows, deadline: Deadline | None = None) -> PendingAppend:
    labels = [replace(make_label(number=7), deadline=deadline)]
    return PendingAppend(spark=NO_SPARK, table=table, rows=rows, labels=labels)


def there(table: TargetTable) -> list[int]:
    """What lies in the table."""
    return sorted(DeltaTable(table.location.removeprefix("file:")).to_pyarrow_table()["id"].to_pylist())


def few_files(folder: Path) -> InFiles:
    """The rows in a file as Spark would have written it."""
    prepared_store.write_table(ROWS, SCHEMA, folder / "part-0.parquet")
    return InFiles(NO_SPARK, [folder / "part-0.parquet"])


def test_rows_of_this_process_are_appended_without_spark(table: TargetTable) -> None:
    """In whatever order their columns are, and in one version."""
    written = write(table, TableRows(NO_SPARK, ROWS.select(["name", "id"])))
    assert (written.rows, written.version, there(table)) == (3, 1, [1, 2, 3])


def test_files_are_taken_over_before_their_rows_are_read(table: TargetTable, tmp_path: Path) -> None:
    """They stay where they are, and the table has the very same ones."""
    rows = few_files(tmp_path / "rows")
    written = write(table, rows)
    assert (written.rows, there(table)) == (3, [1, 2, 3])
    (mine,), (its,) = rows.paths, [*(tmp_path / "orders").glob("*.parquet")]
    assert mine.samefile(its)


def test_the_stamp_stands_beside_rows_of_this_process(tmp_path: Path) -> None:
    """And files, which have no such column, are not taken over."""
    rows = RowsWithText(TableRows(NO_SPARK, ROWS), "batch", "0/7")
    assert rows.files() is None
    table = rows.table()
    assert table is not None
    assert table.column("batch").to_pylist() == ["0/7"] * 3


@pytest.mark.parametrize("rows", [TableRows(NO_SPARK, ROWS.rename_columns(["id", "other"])), FrameRows(cast("Any", 0))])
def test_rows_that_do_not_fit_are_declined(table: TargetTable, rows: BatchRows) -> None:
    """Other columns, and rows of which nobody knows how many they are."""
    for writer in (AdoptFiles(), DirectAppend()):
        assert not writer.can_take(append_to(table, rows))


def test_a_write_that_is_too_late_leaves_nothing_on_the_disk(table: TargetTable, tmp_path: Path) -> None:
    """In whichever form its rows came."""
    over = Deadline(left=lambda: -1.0)
    for rows in (TableRows(NO_SPARK, ROWS), few_files(tmp_path / "rows")):
        with pytest.raises(Late):
            write(table, rows, over)
    assert [*(tmp_path / "orders").glob("*.parquet")] == []


def test_a_fence_between_the_look_and_the_commit_keeps_rows_out(table: TargetTable, tmp_path: Path) -> None:
    """Though nobody asked for the rows before."""
    for rows in (TableRows(NO_SPARK, ROWS), few_files(tmp_path / "rows")):
        append = append_to(table, rows)
        assert append.short is not None
        assert DirectTable(FolderPlace(tmp_path / "orders"), table.id).mark({"wherry.fence": type(rows).__name__})
        with pytest.raises(MetadataChanged):
            append_rows(append)
    assert there(table) == []
