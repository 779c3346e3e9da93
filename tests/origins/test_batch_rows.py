"""Rows that are in this process as a frame of Spark."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest
from pyspark.sql.types import LongType, StructType, TimestampType

from origins.batch_rows import TableRows

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


COLUMNS = StructType().add("id", LongType()).add("at", TimestampType())


def make_table(sizes: Sequence[int]) -> pa.Table:
    """Return a table with a chunk of each size, whose rows have the numbers from 0."""
    numbers, moment = itertools.count(), pa.timestamp("us", "UTC")
    chunks = [pa.array([next(numbers) for _ in range(size)], pa.int64()) for size in sizes]
    ids = pa.chunked_array(chunks, pa.int64())
    return pa.table({"id": ids, "at": pa.chunked_array([each.cast(moment) for each in chunks], moment)})


@pytest.mark.spark
@pytest.mark.connect
def test_a_frame_has_the_rows_behind_empty_chunks(spark: SparkSession) -> None:
    """Spark alone stops reading at an empty chunk."""
    for sizes in ((), (0,), (0, 0), (0, 0, 2), (1, 0, 2), (1, 0, 0, 2, 0)):
        frame = TableRows(spark, make_table(sizes), COLUMNS).frame()
        assert [row["id"] for row in frame.collect()] == [*range(sum(sizes))], sizes
