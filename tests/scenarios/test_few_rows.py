"""Spark computes a small batch once to decide it, and is not used again to deliver the decided rows."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import pytest

import origins.batch_rows
from runners import PipelineFailed
from tests.scenarios.conftest import ORDERS, Place, make_order

pytestmark = [pytest.mark.spark]

TWO = ORDERS.replace("dlq:", "  - delta: {path: tables/large}\n    stages: [filter: amount > 2]\ndlq:")


def test_rows_that_a_table_cannot_get_from_memory_are_read_by_spark(place: Place) -> None:
    """Only one of the two tables can get them from memory. Both have every row with the same values."""
    place.spark.sql(
        f"CREATE TABLE delta.`{place.folder / 'tables/large'}` (id bigint, email string, amount decimal(10,2)) "
        "USING delta PARTITIONED BY (id)"
    )
    place.land("a.json", [make_order(1), make_order(2), make_order(3)])
    report = place.load(TWO).run()
    assert (report.delivered, report.balanced) == ({"orders": 3, "large": 2}, True)
    rows = sorted(place.rows("tables/large"), key=lambda row: row["id"])
    assert rows == [row for row in sorted(place.rows("tables/orders"), key=lambda row: row["id"]) if row["id"] > 1]


@pytest.mark.parametrize(
    ("definition", "blank", "sizes"),
    [(ORDERS, ("", " "), (0, 0, 2)), (TWO, (), (1, 0, 2, 0))],
    ids=["straight, blank lines", "decided, no byte"],
)
def test_a_file_without_rows_hides_no_row_of_its_batch(
    place: Place, definition: str, blank: Sequence[str], sizes: Sequence[int]
) -> None:
    """The table gets the rows of the files behind it, in a straight and in a decided batch."""
    numbers = itertools.count(1)
    for at, size in enumerate(sizes):
        place.land(f"{at}.json", [make_order(next(numbers), amount="3") for _ in range(size)] or blank)
    report = place.load(definition.replace("files: 1}", "files: 9}")).run()
    assert (report.read, report.batches, report.balanced) == (sum(sizes), 1, True)
    assert place.ids("tables/orders") == [*range(1, sum(sizes) + 1)]


def lose_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make Spark lose the last row of each table that this process gives to it."""
    make = origins.batch_rows.make_frame
    monkeypatch.setattr(origins.batch_rows, "make_frame", lambda spark, rows, kinds: make(spark, rows[:-1], kinds))


@pytest.mark.promise("CD-16")
def test_a_row_that_spark_loses_stops_a_straight_batch(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """The batch is delivered before its rows are counted, so the run stops behind it, and the audit names it."""
    place.land("a.json", [make_order(1), make_order(2, email=None), make_order(3)])
    place.land("b.json", [make_order(4)])
    lose_rows(monkeypatch)
    pipeline = place.load(ORDERS)
    with pytest.raises(
        PipelineFailed, match=r"the counts of batch 1 .* do not add up: read 3, .* filtered 1"
    ) as failed:
        pipeline.run()
    assert (failed.value.report.batches, failed.value.report.balanced) == (1, False)
    assert "UNBALANCED" in {problem.code for problem in pipeline.audit().problems}


@pytest.mark.promise("CD-16")
@pytest.mark.parametrize(
    ("amount", "limits"),
    [("1", {}), ("x", {"ways": ["written"], "small_bytes": 0})],
    ids=["clean", "refused, written by Spark"],
)
def test_a_row_that_spark_loses_stops_a_decided_batch_before_its_delivery(
    place: Place, monkeypatch: pytest.MonkeyPatch, amount: str, limits: dict[str, Any]
) -> None:
    """A later run delivers all its rows."""
    place.land("a.json", [make_order(1), make_order(2, amount=amount), make_order(3)])
    with monkeypatch.context() as context:
        lose_rows(context)
        error = place.carry(TWO, **limits).error
        assert error is not None
        assert "Spark saw 2 of the 3 rows of batch 1 of lane 0 (a.json)" in error.message
    assert not (place.folder / "tables/orders").exists() or place.ids("tables/orders") == []
    report = place.carry(TWO, **limits)
    assert (report.read, report.balanced) == (3, True)
    assert place.ids("tables/orders") == ([1, 2, 3] if amount == "1" else [1, 3])
