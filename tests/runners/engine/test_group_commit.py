"""Which batches are written together."""

from __future__ import annotations

from origins.batch import Batch, Span
from runners.engine.batch_machine import BatchInFlight, begin_flight
from runners.engine.batch_planner import BatchPlanner, OriginFeed
from runners.engine.work_in_flight import group_flights, join_tasks, split_outcome
from runners.model.pipeline_state import LaneState
from runners.model.planned_batch import PlannedBatch
from runners.model.tasks import Declined, Failed, GroupWritten, WriteGroup, WriteStraight
from tests.runners.engine.test_dispatcher import Rows


def make_flight(
    lane: str, *, straight: bool = True, origin: str = "rows", declined: frozenset[str] = frozenset()
) -> BatchInFlight:
    """Return a batch of this lane that was just planned."""
    batch = Batch(
        pipeline="orders",
        run="r",
        origin=origin,
        lane=lane,
        number=1,
        plan=f"plan-{lane}",
        span=Span(start=None, end=1),
        schema="",
        time=None,  # type: ignore[arg-type]
    )
    begun = begin_flight(PlannedBatch(batch=batch, destinations=("orders",), straight=straight), LaneState())
    return BatchInFlight(plan=begun.plan, lane=begun.lane, task=begun.task, declined=declined)


def make_source(**feeds: tuple[bool, list[str]]) -> BatchPlanner:
    """Return a planner with these origins. Each has lanes, and whether its batches may be written together."""
    return BatchPlanner(
        pipeline="orders",
        run="r",
        definition="",
        destinations=("orders",),
        feeds=[
            OriginFeed(origin=name, lanes={lane: lane for lane in lanes}, schema="", backlog=Rows(1), shares=shares)
            for name, (shares, lanes) in feeds.items()
        ],
    )


def list_groups(flights: list[BatchInFlight], source: BatchPlanner) -> list[list[str]]:
    """Return the groups, by their lanes."""
    return [[each.plan.batch.lane for each in group] for group in group_flights(flights, source, most=16)]


def test_straight_batches_of_one_origin_go_together() -> None:
    """They keep the order in which they wait. Batches of another origin have other columns."""
    flights = [
        make_flight("a"),
        make_flight("x", origin="other"),
        make_flight("b"),
        make_flight("y", origin="other"),
        make_flight("c"),
    ]
    both = make_source(rows=(True, ["a", "b", "c"]), other=(True, ["x", "y"]))
    assert list_groups(flights, both) == [["a", "b", "c"], ["x", "y"]]


def test_a_batch_that_cannot_share_a_write_goes_alone() -> None:
    """Such a batch is decided first, was declined in a group, or has an origin whose batches may not share a write."""
    flights = [
        make_flight("a"),
        make_flight("b", straight=False),
        make_flight("c", declined=frozenset({"grouped"})),
        make_flight("d"),
        make_flight("x", origin="o"),
    ]
    mixed = make_source(rows=(True, ["a", "b", "c", "d"]), o=(False, ["x"]))
    assert list_groups(flights, mixed) == [["a", "d"], ["b"], ["c"], ["x"]]


def test_no_more_than_sixteen_go_together() -> None:
    """The seventeenth begins another group."""
    names = [f"{number:02}" for number in range(17)]
    groups = list_groups([make_flight(name) for name in names], make_source(rows=(True, names)))
    assert [len(group) for group in groups] == [16, 1]


def test_one_batch_is_a_plain_task() -> None:
    """Several batches become one group task."""
    one, other = WriteStraight(plan=make_flight("a").plan), WriteStraight(plan=make_flight("b").plan)
    assert join_tasks([one]) is one
    assert join_tasks([one, other]) == WriteGroup(writes=[one, other])


def test_each_lane_gets_the_outcome_of_its_batch() -> None:
    """Each batch of a landed write has separate figures.

    After a failed or declined write, all batches have the same outcome.
    """
    landed = {"a": object(), "b": object()}
    failed = Failed(error=ValueError("no"))
    assert list(split_outcome(GroupWritten(outcomes=landed), ["a", "b"])) == list(landed.items())  # type: ignore[arg-type]
    assert list(split_outcome(failed, ["a", "b"])) == [("a", failed), ("b", failed)]
    parted = Declined(reason="one scan cannot read them all", way="grouped")
    assert list(split_outcome(parted, ["a", "b"])) == [("a", parted), ("b", parted)]
