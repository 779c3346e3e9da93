"""The rows of a decided batch, grouped by their block and their outcome, with Spark and without."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from pyarrow import parquet

from origins.batch import JSON
from runners.state.prepared_store import FolderStore
from runners.ways.row_outcomes import group_by_arrow, group_by_spark

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

ROWS = [
    ("a.json", 0, 0, 0, 0),
    ("a.json", 0, 1, -2, 0),
    ("a.json", 0, 2, 0, 3),
    ("a.json", 0, 4, -2, 0),
    ("a.json", 128, 8589934592, 1, 0),
    ("b #%.json", 0, 17179869184, 0, 0),
    ("b #%.json", 0, 17179869185, -1, 0),
]


@pytest.fixture
def written(spark: SparkSession, tmp_path: Path) -> FolderStore:
    """Seven rows in three files, under the name `batch`."""
    frame = spark.createDataFrame(ROWS, "part string, block bigint, row bigint, state int, f0 int")
    store = FolderStore(tmp_path)
    store.write("batch", frame.selectExpr("*", "struct(row as id) as live").repartition(3))
    return store


def sort_groups(groups: Sequence[Mapping[str, JSON]]) -> list[list[JSON]]:
    """Return the groups in an order that does not depend on how they were made."""
    named = [sorted({**group, "refused": sorted(group["refused"])}.items()) for group in groups]
    return sorted(named, key=str)


def test_arrow_and_spark_give_the_same_groups(spark: SparkSession, written: FolderStore) -> None:
    """Names, counts, first rows and refused rows are the same."""
    here = group_by_arrow(parquet.read_table(written.root / "batch"))
    assert sort_groups(here) == sort_groups(group_by_spark(written.read(spark, "batch")))
    assert {(each["part"], each["block"], each["state"], each["f0"]): each["rows"] for each in here} == {
        ("a.json", 0, 0, 0): 1,
        ("a.json", 0, -2, 0): 2,
        ("a.json", 0, 0, 3): 1,
        ("a.json", 128, 1, 0): 1,
        ("b #%.json", 0, 0, 0): 1,
        ("b #%.json", 0, -1, 0): 1,
    }
