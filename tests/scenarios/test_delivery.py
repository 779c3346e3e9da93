"""Delivery to several destinations, one of which fails in between."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import pytest

from destinations.delta import Delta
from destinations.destination import Destination, Identity, Label, Written
from tests.scenarios.conftest import ORDERS, Place, order

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

pytestmark = [pytest.mark.spark, pytest.mark.connect]


@dataclass(frozen=True, kw_only=True)
class Flaky(Destination):
    """A Delta table that is down for its first write."""

    remembers = True

    table: Delta
    writes: list[int] = field(default_factory=list)

    @property
    def place(self) -> str:
        return self.table.place

    def open(self, spark: SparkSession, schema: StructType | None) -> Identity:
        return self.table.open(spark, schema)

    def write(self, spark: SparkSession, rows: DataFrame, labels: Sequence[Label]) -> Written:
        self.writes.append(1)
        if len(self.writes) == 1:
            raise RuntimeError("the table is down")
        return self.table.write(spark, rows, labels)

    def find(self, spark: SparkSession, label: Label, identity: Identity) -> Written | None:
        return self.table.find(spark, label, identity)


@pytest.mark.promise("SS-09", "CD-11", "CD-27")
def test_after_all_a_restart_brings_the_batch_to_the_one_that_failed(place: Place) -> None:
    """The offset stayed; the first destination has the batch once, and the second gets what was prepared."""
    place.land("a.json", [order(1), order(2, amount="x")])
    pipeline = place.load(ORDERS)
    flaky = Flaky(table=Delta(path=str(place.folder / "tables/other")), name="other")
    pipeline = replace(pipeline, destinations=[*pipeline.destinations, flaky])
    failed = pipeline.run(check=False)
    assert failed.error is not None
    assert "the table is down" in failed.error.message
    assert failed.batches == 0
    report = pipeline.run()
    assert (report.batches, report.delivered, report.balanced) == (1, {"orders": 1, "other": 1}, True)
    assert (place.ids("tables/orders"), place.ids("tables/other"), len(place.refused())) == ([1], [1], 1)


@pytest.mark.promise("SS-08", "X1")
def test_after_any_the_offset_is_committed_and_the_other_is_owed(place: Place) -> None:
    """The report says who owes, and the status what; a restart pays."""
    place.land("a.json", [order(1)])
    pipeline = place.load(ORDERS)
    flaky = Flaky(table=Delta(path=str(place.folder / "tables/other")), name="other")
    pipeline = replace(pipeline, destinations=[flaky, *pipeline.destinations], delivery="after_any")
    failed = pipeline.run(check=False)
    assert (failed.batches, failed.destinations["other"].owed, failed.destinations["orders"].owed) == (1, 1, 0)
    assert [each["owed"] for each in pipeline.status()["open"]] == [True]
    report = pipeline.run()
    assert report.status == "succeeded"
    assert (place.ids("tables/orders"), place.ids("tables/other")) == ([1], [1])
