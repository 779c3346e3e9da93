"""The rows of a decided batch, read by this process from their files."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest
from pyspark import SparkContext
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import IntegerType, LongType, StringType, StructField, StructType

from origins.batch_rows import BatchRows
from runners.model.nack_window import NackWindow
from runners.model.planned_batch import BranchCounts, Counts, DecidedBatch
from runners.state.decided_rows import LIVE, NACKED, RefusedRows, select_rows_for
from runners.state.prepared_store import FolderStore

NO_SPARK = cast("SparkSession", None)
ROW = StructType([StructField("id", LongType())])
PLACE = [StructField("part", StringType()), StructField("block", LongType()), StructField("row", LongType())]
STATE = StructField("state", IntegerType())


def store_rows(folder: Path, columns: Sequence[StructField], *rows: Mapping[str, Any]) -> FolderStore:
    """Store rows of a decided batch as its first section."""
    store = FolderStore(folder)
    store.put("p-0", rows, StructType(list(columns)))
    return store


def make_decision(*branches: str, nacked: int = 0, **more: Any) -> DecidedBatch:
    """Return a decision of one section for these destinations."""
    counts = Counts(read=9, nacked=nacked, branches={name: BranchCounts(expected=1) for name in branches})
    return DecidedBatch(path="p", counts=counts, window=NackWindow(), **{"sections": 1, "bases": {}, **more})


def list_ids(rows: BatchRows) -> list[int]:
    table = rows.table()
    assert table is not None
    return [row["id"] for row in table.to_pylist()]


def test_a_destination_gets_the_rows_that_no_stage_removed(tmp_path: Path) -> None:
    """Filtered and refused rows are left out."""
    rows = [{"state": state, "live": {"id": at} if state == 0 else None} for at, state in enumerate((0, 1, -1, 0))]
    store = store_rows(tmp_path, [STATE, StructField("live", ROW)], *rows)
    assert list_ids(select_rows_for(NO_SPARK, store, make_decision("a", "b"), "b")) == [0, 3]


def test_a_destination_with_separate_stages_gets_the_rows_of_these_stages(tmp_path: Path) -> None:
    """Rows that its stages filtered are left out."""
    columns = [STATE, StructField("live", ROW), StructField("b1", ROW), StructField("f1", IntegerType())]
    rows = [{"state": 0, "live": {"id": at}, "b1": {"id": 10 + at}, "f1": at % 2} for at in range(4)]
    store = store_rows(tmp_path, columns, *rows)
    decision = make_decision("a", "b")
    assert list_ids(select_rows_for(NO_SPARK, store, decision, "a")) == [0, 1, 2, 3]
    assert list_ids(select_rows_for(NO_SPARK, store, decision, "b")) == [10, 12]


def test_rows_in_separate_files_come_with_these_files(tmp_path: Path) -> None:
    """All rows in these files are live."""
    store = store_rows(tmp_path, [STATE], {"state": -1})
    store.put(f"p{LIVE}-0", [{"id": 7}, {"id": 8}], ROW)
    rows = select_rows_for(NO_SPARK, store, make_decision("a"), "a")
    assert list_ids(rows) == [7, 8]
    assert [*(rows.files() or {}).values()] == [*(tmp_path / f"p{LIVE}-0").iterdir()]


def test_rows_in_mixed_files_have_no_files(tmp_path: Path) -> None:
    """A file with other rows cannot be used for these rows."""
    store = store_rows(tmp_path, [STATE, StructField("live", ROW)], {"state": 0, "live": {"id": 1}})
    rows = select_rows_for(NO_SPARK, store, make_decision("a"), "a")
    assert (rows.files(), rows.count()) == (None, 1)


def test_a_refused_row_has_its_position_in_the_batch(tmp_path: Path) -> None:
    """The position is computed from its block and its number in the block."""
    nack = StructType([StructField("code", StringType())])
    rows = [
        {"part": "x", "block": 0, "row": 0, "state": 0, NACKED: None},
        {"part": "x", "block": 0, "row": 1, "state": -1, NACKED: {"code": "A"}},
        {"part": "y", "block": 5, "row": 2, "state": -2, NACKED: {"code": "B"}},
    ]
    store = store_rows(tmp_path, [*PLACE, STATE, StructField(NACKED, nack)], *rows)
    decision = make_decision(nacked=2, bases={"0:0#x": 1, "0:5#y": 10})
    table = RefusedRows(NO_SPARK, store, decision).table()
    assert table is not None
    assert table.to_pylist() == [
        {"nack": {"code": "A"}, "part": "x", "position": 2},
        {"nack": {"code": "B"}, "part": "y", "position": 12},
    ]


@pytest.mark.parametrize("more", [{"nacked": 10_001}, {"sections": 2}, {"again": True}])
def test_many_or_scattered_refused_rows_are_left_to_spark(tmp_path: Path, more: Mapping[str, Any]) -> None:
    """This process does not read them."""
    store = store_rows(tmp_path, [*PLACE, STATE, StructField(NACKED, ROW)])
    assert RefusedRows(NO_SPARK, store, make_decision(**more)).table() is None


def test_the_number_of_refused_rows_is_the_counted_number(tmp_path: Path) -> None:
    """It does not matter whether they are read."""
    rows = RefusedRows(NO_SPARK, FolderStore(tmp_path), make_decision(nacked=3))
    assert rows.count() == replace(rows).count() == 3


def test_refused_rows_are_read_before_a_column_needs_a_spark_session(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A column needs a running Spark, and reading the rows starts it."""

    class Unread(FolderStore):
        def read(self, spark: SparkSession, name: str) -> DataFrame:
            raise InterruptedError("Spark starts here.")

    monkeypatch.setattr(SparkContext, "_active_spark_context", None)
    rows = RefusedRows(NO_SPARK, Unread(tmp_path), make_decision(nacked=1, bases={"0:0#x": 1}))
    with pytest.raises(InterruptedError, match="Spark starts here"):
        rows.frame()
