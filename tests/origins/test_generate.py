"""The origin `generate` makes orders from their numbers."""

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


def generate_orders(spark: SparkSession, origin: Generate) -> DataFrame:
    """Return all orders of lane 0."""
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
def test_invalid_options_are_refused(options: dict[str, Any], says: str) -> None:
    """The error names the valid values."""
    with pytest.raises(ValueError, match=f"^{says}"):
        Generate(**options)


@pytest.mark.spark
def test_an_order_is_the_same_in_every_lane_and_batch(spark: SparkSession) -> None:
    """Its content depends only on its number."""
    alone = {row.id: row for row in generate_orders(spark, Generate(rows=9, bad=0.5)).collect()}
    shared = {row.id: row for row in generate_orders(spark, Generate(rows=9, bad=0.5, lanes=2)).collect()}
    assert sorted(alone) == list(range(1, 10))
    assert shared == {number: alone[number] for number in (1, 3, 5, 7, 9)}


@pytest.mark.spark
def test_another_seed_gives_other_orders(spark: SparkSession) -> None:
    """The place differs too, so a pipeline does not continue with other rows by accident."""
    one, other = Generate(rows=9), Generate(rows=9, seed=8)
    assert generate_orders(spark, one).collect() != generate_orders(spark, other).collect()
    assert one.place != other.place


@pytest.mark.spark
def test_a_share_of_the_orders_is_bad(spark: SparkSession) -> None:
    """A bad order has no valid amount, a negative amount, or no email. All other orders are valid."""
    good = "email like '%@example.org' and try_cast(amount as decimal(10,2)) > 0 and quantity between 1 and 9"
    for bad, least, most in ((0.0, 0, 0), (0.1, 850, 1150), (1.0, 10_000, 10_000)):
        found = generate_orders(spark, Generate(rows=10_000, bad=bad)).where(f"({good}) is not true").count()
        assert least <= found <= most, bad


@pytest.mark.spark
def test_without_orders_there_is_no_batch(spark: SparkSession) -> None:
    """No rows wait."""
    origin = dataclasses.replace(Generate(), rows=0)
    backlog = origin.survey(spark, Progress())
    assert backlog.take("0", None, Limits()) is None
