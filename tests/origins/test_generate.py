"""`generate`: orders made up from their numbers."""

from __future__ import annotations

import dataclasses
from datetime import datetime, timezone
from typing import TYPE_CHECKING, Any

import pytest

from origins.batch import Batch, Limits, Span
from origins.generate import Generate
from origins.origin import Progress

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def orders(spark: SparkSession, origin: Generate) -> DataFrame:
    """All orders of lane 0."""
    backlog = origin.survey(spark, Progress())
    span, schema = backlog.take("0", None, Limits()), origin.columns(spark, backlog)
    assert isinstance(span, Span)
    assert schema is not None
    time = datetime(2026, 1, 1, tzinfo=timezone.utc)
    return origin.fetch(
        spark,
        [Batch(pipeline="p", run="r", origin="o", lane="0", number=1, plan="x", span=span, schema=schema, time=time)],
    ).frame()


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"rows": -1}, "rows: expected 0 or more, got -1"),
        ({"bad": 1.5}, r"bad: expected a share from 0 to 1, got 1\.5"),
        ({"bad": -0.1}, "bad: expected a share from 0 to 1"),
    ],
)
def test_options_that_cannot_be_are_refused(options: dict[str, Any], says: str) -> None:
    """With what was expected."""
    with pytest.raises(ValueError, match=f"^{says}"):
        Generate(**options)


@pytest.mark.spark
def test_an_order_is_the_same_in_every_lane_and_batch(spark: SparkSession) -> None:
    """Its number alone says what is in it."""
    alone = {row.id: row for row in orders(spark, Generate(rows=9, bad=0.5)).collect()}
    shared = {row.id: row for row in orders(spark, Generate(rows=9, bad=0.5, lanes=2)).collect()}
    assert sorted(alone) == list(range(1, 10))
    assert shared == {number: alone[number] for number in (1, 3, 5, 7, 9)}


@pytest.mark.spark
def test_another_seed_gives_other_orders(spark: SparkSession) -> None:
    """And the place says so, so that a pipeline does not go on with other rows unasked."""
    one, other = Generate(rows=9), Generate(rows=9, seed=8)
    assert orders(spark, one).collect() != orders(spark, other).collect()
    assert one.place != other.place


@pytest.mark.spark
@pytest.mark.parametrize(("bad", "least", "most"), [(0.0, 0, 0), (0.1, 850, 1150), (1.0, 10_000, 10_000)])
def test_a_share_of_them_is_bad(spark: SparkSession, bad: float, least: int, most: int) -> None:
    """With an amount that is no number or is negative, or without an email; all others are in order."""
    good = "email like '%@example.org' and try_cast(amount as decimal(10,2)) > 0 and quantity between 1 and 9"
    found = orders(spark, Generate(rows=10_000, bad=bad)).where(f"({good}) is not true").count()
    assert least <= found <= most


@pytest.mark.spark
def test_no_orders_are_no_batch(spark: SparkSession) -> None:
    """Nothing waits."""
    origin = dataclasses.replace(Generate(), rows=0)
    backlog = origin.survey(spark, Progress())
    assert backlog.take("0", None, Limits()) is None
    assert backlog.behind("0", None) == ""
