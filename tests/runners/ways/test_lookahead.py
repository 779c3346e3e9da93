"""Batches that are described before their turn, without Spark."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from concurrent.futures import Future
from dataclasses import dataclass, field, replace
from datetime import datetime, timezone
from typing import Any, cast

import pytest

from origins.batch import Batch, Span
from runners.model.planned_batch import PlannedBatch
from runners.spark.session_pool import SessionPool
from runners.ways.batch_source import Lookahead

SPARK: Any = object()
BATCH = Batch(
    pipeline="orders", run="r", origin="rows", lane="0", number=2, plan="p2", span=Span(start=1, end=2), schema="{}",
    time=datetime(2026, 1, 1, tzinfo=timezone.utc), first=False, definition="",
)  # fmt: skip
PLAN = PlannedBatch(batch=BATCH, destinations=("orders",), straight=True)


@dataclass
class HelperDouble:
    """A helper thread that runs its work at once, and a pool that notes which work is tagged."""

    tagged: list[Any] = field(default_factory=list)

    def submit(self, function: Any, *arguments: Any) -> Future[Any]:
        future: Future[Any] = Future()
        try:
            future.set_result(function(*arguments))
        except ValueError as error:
            future.set_exception(error)
        return future

    def get_helpers(self) -> HelperDouble:
        return self

    @contextlib.contextmanager
    def tag_thread(self, spark: Any) -> Iterator[None]:
        self.tagged.append(spark)
        yield


@pytest.fixture
def lookahead() -> Lookahead:
    """Return a lookahead that has described a batch."""
    found = Lookahead(cast("SessionPool", HelperDouble()))
    found.begin(PLAN, SPARK, lambda _, plan: f"rows of {plan.batch.plan}")
    return found


def test_an_expected_batch_is_described_once(lookahead: Lookahead) -> None:
    """Its description is returned once, for the session in which it was made."""
    assert lookahead.take(PLAN, SPARK) == "rows of p2"
    assert lookahead.take(PLAN, SPARK) is None


@pytest.mark.parametrize(
    ("plan", "spark"),
    [
        (replace(PLAN, batch=replace(BATCH, plan="other")), SPARK),
        (replace(PLAN, straight=False), SPARK),
        (PLAN, object()),
    ],
    ids=["another batch", "another way", "another session"],
)
def test_a_description_for_another_batch_way_or_session_is_dropped(
    lookahead: Lookahead, plan: PlannedBatch, spark: Any
) -> None:
    """It is not kept for later."""
    assert lookahead.take(plan, spark) is None
    assert lookahead.take(PLAN, SPARK) is None


def test_an_error_of_an_early_description_is_raised_only_in_the_turn_of_the_batch() -> None:
    """Until then, the batch counts as not described."""
    found = Lookahead(cast("SessionPool", HelperDouble()))
    found.begin(PLAN, SPARK, lambda *_: int("x"))
    assert found.take(PLAN, SPARK) is None


def test_early_work_is_cancelled_with_the_run() -> None:
    """The helper's thread has the tag of the run."""
    helpers = HelperDouble()
    Lookahead(cast("SessionPool", helpers)).begin(PLAN, SPARK, lambda *_: "rows")
    assert helpers.tagged == [SPARK]
