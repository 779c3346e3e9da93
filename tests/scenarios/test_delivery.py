"""Batches are delivered to several destinations although one of them fails."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import pytest

from destinations.delta import Delta
from destinations.delta.delta import OpenDelta
from destinations.destination import Destination, Identity, OpenDestination, Written
from destinations.labels import Label
from destinations.memory import Memory
from origins.batch_rows import BatchRows
from tests.scenarios.conftest import ORDERS, Place, make_order

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.types import StructType

pytestmark = [pytest.mark.spark, pytest.mark.connect]


@dataclass(frozen=True, kw_only=True)
class Flaky(Destination):
    """A Delta table whose first write fails."""

    remembers = True

    table: Delta
    writes: list[int] = field(default_factory=list)

    @property
    def place(self) -> str:
        return self.table.place

    def open(self) -> OpenFlaky:
        return OpenFlaky(table=self.table.open(), writes=self.writes)


@dataclass
class OpenFlaky(OpenDestination):
    """The open table of one run. Its writes are counted over all runs."""

    table: OpenDelta
    writes: list[int]

    def ensure_place(self, spark: SparkSession, schema: StructType | None) -> Identity:
        return self.table.ensure_place(spark, schema)

    def write(self, spark: SparkSession, rows: BatchRows, labels: Sequence[Label]) -> Written:
        self.writes.append(1)
        if len(self.writes) == 1:
            raise RuntimeError("the table is down")
        return self.table.write(spark, rows, labels)

    def find(self, spark: SparkSession, label: Label, identity: Identity) -> Written | None:
        return self.table.find(spark, label, identity)


@pytest.mark.promise("SS-09", "CD-11", "CD-27")
def test_after_all_a_restart_delivers_the_batch_to_the_destination_that_failed(place: Place) -> None:
    """The offset stays. The first destination has the batch once, and the second gets the prepared rows."""
    place.land("a.json", [make_order(1), make_order(2, amount="x")])
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
def test_after_any_commits_the_offset_while_one_destination_lacks_the_batch(place: Place) -> None:
    """The report counts the missing batch for the destination, and the status shows it as owed. The next run delivers
    it."""
    place.land("a.json", [make_order(1)])
    pipeline = place.load(ORDERS)
    flaky = Flaky(table=Delta(path=str(place.folder / "tables/other")), name="other")
    pipeline = replace(pipeline, destinations=[flaky, *pipeline.destinations], delivery="after_any")
    failed = pipeline.run(check=False)
    assert (failed.batches, failed.destinations["other"].owed, failed.destinations["orders"].owed) == (1, 1, 0)
    assert [each["owed"] for each in pipeline.status()["open"]] == [True]
    report = pipeline.run()
    assert report.status == "succeeded"
    assert (place.ids("tables/orders"), place.ids("tables/other")) == ([1], [1])


@dataclass(frozen=True, kw_only=True)
class Connected(Destination):
    """Rows in memory. Each run opens a separate connection to them."""

    rows: Memory = field(default_factory=Memory)
    connections: list[OpenConnected] = field(default_factory=list)
    says: Exception | None = None
    """The error that closing a connection raises."""

    @property
    def place(self) -> str:
        return "connected"

    def open(self) -> OpenConnected:
        self.connections.append(OpenConnected(self))
        return self.connections[-1]


class OpenConnected(OpenDestination):
    """One connection."""

    def __init__(self, destination: Connected) -> None:
        self.destination = destination
        self.closed = 0

    def ensure_place(self, spark: SparkSession, schema: StructType | None) -> Identity:
        return Identity(place=self.destination.place)

    def write(self, spark: SparkSession, rows: BatchRows, labels: Sequence[Label]) -> Written:
        assert not self.closed
        return self.destination.rows.write(spark, rows, labels)

    def close(self) -> None:
        self.closed += 1
        if self.destination.says is not None:
            raise self.destination.says


def test_each_run_opens_and_closes_one_connection(place: Place) -> None:
    """A run without new rows does so too."""
    place.land("a.json", [make_order(1)])
    connected = Connected(name="orders")
    pipeline = replace(place.load(ORDERS), destinations=[connected])
    pipeline.run()
    pipeline.run()
    assert [each.closed for each in connected.connections] == [1, 1]
    assert [row["id"] for row in connected.rows.rows] == [1]


def test_a_connection_that_cannot_be_closed_fails_the_run(place: Place) -> None:
    """Delivered rows stay delivered, and the report shows the error."""
    place.land("a.json", [make_order(1)])
    connected = Connected(name="orders", says=ConnectionResetError("no answer"))
    report = replace(place.load(ORDERS), destinations=[connected]).run(check=False)
    assert report.error is not None
    assert (report.status, report.delivered) == ("failed", {"orders": 1})
    assert "no answer" in report.error.message
