"""What every kind of work has in common: old rows are in lanes of their own."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, cast

import pytest

from destinations.memory import Memory
from origins.batch import Limits, Span
from origins.generate import Generate
from runners.engine.batch_planner import BatchPlanner, OriginFeed
from runners.model.pipeline_state import LaneState
from runners.pipeline import Pipeline
from runners.running.work import OpenRun, PastLane, WaitingBatches, Work
from tests.manual_clock import ManualClock
from tests.runners.running.open_run import make_open_run

SPANS = [Span(start=at, end=at + 1, parts=(), label="") for at in range(3)]
FEED = OriginFeed(
    origin="made",
    lanes={"0": "0"},
    schema="s",
    backlog=Generate().survey(cast("Any", None), cast("Any", None)),
    straight=True,
    shares=True,
    whole=True,
    pins=lambda: {"stage": 1},
)
SOURCE = BatchPlanner(pipeline="orders", run="r", definition="", destinations=("a", "b"), feeds=[FEED])
LANE = PastLane(origin="made", name="backfill-1/0", lane="0", batches=[(span, ("a",)) for span in SPANS])


@dataclass(frozen=True, kw_only=True)
class Again(Work):
    """Work that processes these lanes."""

    lanes: tuple[PastLane, ...]

    def select_rows(self, run: OpenRun) -> tuple[PastLane, ...]:
        return self.lanes


def make_source(work: Work) -> BatchPlanner:
    pipeline = Pipeline(name="orders", origin=Generate(name="made"), destinations=[Memory(name="a"), Memory(name="b")])
    return work.make_source(SOURCE, make_open_run(pipeline))


def test_old_rows_take_the_place_of_waiting_rows() -> None:
    """Ordinary work keeps the planner. Other work has only its lanes, of origins that the run has opened."""
    gone = replace(LANE, origin="gone", name="backfill-1/1")
    assert make_source(WaitingBatches()) is SOURCE
    assert make_source(Again(lanes=(LANE, gone))).lanes == ("backfill-1/0",)
    assert make_source(Work()).lanes == ()


def test_a_lane_gives_its_batches_in_order() -> None:
    """It begins after the offset that the lane has. The limits of batches do not matter."""
    lane = replace(LANE, start="q/9")
    assert lane.take("0", "q/9", Limits(rows=0)) == SPANS[0]
    assert lane.take("0", SPANS[0].end, Limits(rows=0)) == SPANS[1]
    assert lane.take("0", SPANS[2].end, Limits(rows=0)) is None


def test_a_batch_without_a_destination_is_passed_over() -> None:
    """Every other batch goes to its own destinations."""
    first, second, third = SPANS
    source = make_source(Again(lanes=(replace(LANE, batches=[(first, ()), (second, ("b",)), (third, ("a", "b"))]),)))
    found, state = [], LaneState()
    while (span := source.take(LANE.name, state.offset)) is not None:
        plan = source.plan(LANE.name, state, span, ManualClock().now(), first=False)
        found.append((plan.batch.span, plan.destinations))
        state = replace(state, offset=span.end)
    assert found == [(second, ("b",)), (third, ("a", "b"))]


def test_an_unknown_offset_never_starts_a_lane_from_its_beginning() -> None:
    """Its rows would be delivered twice."""
    with pytest.raises(KeyError):
        LANE.take("0", "unknown", Limits())


@pytest.mark.parametrize(
    ("changes", "straight", "shares"),
    [({}, True, True), ({"replaces": {"a": "x = 1"}}, True, False), ({"name": "dlq/made"}, False, False)],
    ids=["backfill", "redo", "replay"],
)
def test_a_lane_goes_straight_only_if_its_rows_may(changes: dict[str, Any], straight: bool, shares: bool) -> None:
    """One write never brings rows that replace others, and no row of the DLQ is written before it is decided."""
    lane = replace(LANE, **changes)
    source = make_source(Again(lanes=(lane,)))
    plan = source.plan(lane.name, LaneState(), SPANS[0], ManualClock().now(), first=False)
    assert (plan.straight, source.may_group(lane.name)) == (straight, shares)
    assert plan.batch.replaces == lane.replaces


def test_a_plan_has_the_pins_of_the_stages_and_of_the_work() -> None:
    """So a batch is computed in the same way after a crash."""
    source = make_source(Again(lanes=(replace(LANE, pins={":fix": "k"}),)))
    plan = source.plan(LANE.name, LaneState(), SPANS[0], ManualClock().now(), first=False)
    assert plan.pins == {"stage": 1, ":fix": "k"}
