"""Rows in memory, for tests of pipelines."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from destinations.conformance import RememberingConformance, Row, make_label
from destinations.memory import Memory
from origins.batch_rows import FrameRows

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark


@pytest.mark.promise("HP-13")
class TestMemory(RememberingConformance):
    @pytest.fixture
    def destination(self) -> Memory:
        return Memory()

    def content(self, spark: SparkSession, destination: Memory) -> list[Row]:
        return destination.rows


def test_rows_keep_the_order_of_the_writes(spark: SparkSession) -> None:
    """A test can check which rows came first."""
    memory = Memory()
    memory.write(spark, FrameRows(spark.range(5, 6)), [make_label()])
    memory.write(spark, FrameRows(spark.range(3, 4)), [make_label()])
    assert memory.rows == [{"id": 5}, {"id": 3}]


def test_instances_hold_separate_rows(spark: SparkSession) -> None:
    """Two destinations of one pipeline do not share rows."""
    one, other = Memory(name="one"), Memory(name="other")
    one.write(spark, FrameRows(spark.range(1)), [make_label()])
    assert other.rows == []


def test_the_returned_list_is_a_copy(spark: SparkSession) -> None:
    """A test that changes the list does not change the destination."""
    memory = Memory()
    memory.write(spark, FrameRows(spark.range(1)), [make_label()])
    memory.rows.clear()
    assert memory.rows == [{"id": 0}]
