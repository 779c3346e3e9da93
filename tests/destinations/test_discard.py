"""Discarded rows are counted."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from destinations.conformance import DestinationConformance, make_label
from destinations.discard import Discard
from origins.batch_rows import FrameRows

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark


class TestDiscard(DestinationConformance):
    @pytest.fixture
    def destination(self) -> Discard:
        return Discard()


def test_rows_are_counted(spark: SparkSession) -> None:
    """The count is known although the rows are thrown away."""
    assert Discard().write(spark, FrameRows(spark.range(12)), [make_label()]).rows == 12
