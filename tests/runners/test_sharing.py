"""Which batches are written together."""

from __future__ import annotations

import pytest

from origins.batch import Batch, Span
from runners.flight import Flight, begin
from runners.outcome import Alone, Carry, Failed, Prepare, Refused, Shared, Together
from runners.plan import Plan
from runners.sharing import MOST, grouped, joined, may_share, parted
from runners.source import Feed, Source
from runners.state import Lane
from tests.runners.test_dispatcher import Rows


def flight(lane: str, *, straight: bool = True, origin: str = "rows", alone: bool = False) -> Flight:
    """A batch of this lane that was just planned."""
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
    begun = begin(Plan(batch=batch, destinations=("orders",), straight=straight), Lane())
    return Flight(plan=begun.plan, lane=begun.lane, task=begun.task, alone=alone)


def source(**feeds: tuple[bool, list[str]]) -> Source:
    """Origins with their lanes; whether their batches may be written together."""
    return Source(
        pipeline="orders",
        run="r",
        definition="",
        destinations=("orders",),
        feeds=[
            Feed(origin=name, lanes={lane: lane for lane in lanes}, schema="", backlog=Rows(1), shares=shares)
            for name, (shares, lanes) in feeds.items()
        ],
    )


def lanes(flights: list[Flight], source: Source) -> list[list[str]]:
    """The groups, by their lanes."""
    return [[each.plan.batch.lane for each in group] for group in grouped(flights, source)]


def test_straight_batches_of_one_origin_go_together() -> None:
    """In the order in which they wait; those of another origin have other columns."""
    flights = [flight("a"), flight("x", origin="other"), flight("b"), flight("y", origin="other"), flight("c")]
    both = source(rows=(True, ["a", "b", "c"]), other=(True, ["x", "y"]))
    assert lanes(flights, both) == [["a", "b", "c"], ["x", "y"]]


def test_who_cannot_be_written_with_others_goes_alone() -> None:
    """One that is decided first, one that was parted from others, and all of an origin whose batches may not."""
    flights = [flight("a"), flight("b", straight=False), flight("c", alone=True), flight("d"), flight("x", origin="o")]
    mixed = source(rows=(True, ["a", "b", "c", "d"]), o=(False, ["x"]))
    assert lanes(flights, mixed) == [["a", "d"], ["b"], ["c"], ["x"]]


def test_without_anything_to_plan_from_nothing_is_shared() -> None:
    """A run that only finishes what an earlier one left has no origin open yet."""
    assert not may_share(flight("a"), None)


def test_no_more_than_sixteen_go_together() -> None:
    """The seventeenth begins another group."""
    names = [f"{number:02}" for number in range(17)]
    groups = lanes([flight(name) for name in names], source(rows=(True, names)))
    assert [len(group) for group in groups] == [MOST, 1]


def test_one_batch_is_a_task_as_ever() -> None:
    """Only several are a task for several."""
    one, other = Carry(plan=flight("a").plan), Carry(plan=flight("b").plan)
    assert joined([one]) is one
    assert joined([one, other]) == Together(carries=[one, other])


def test_each_lane_hears_its_own() -> None:
    """Of a write that landed its own figures; of one that failed or was given up, the same as the others."""
    landed = {"a": object(), "b": object()}
    failed = Failed(error=ValueError("no"))
    assert list(parted(Shared(landed=landed), ["a", "b"])) == list(landed.items())  # type: ignore[arg-type]
    assert list(parted(failed, ["a", "b"])) == [("a", failed), ("b", failed)]
    assert list(parted(Alone(), ["a", "b"])) == [("a", Alone()), ("b", Alone())]


def test_what_is_no_answer_to_a_shared_task_is_an_error() -> None:
    """A runner that says that one of several was refused has not said which."""
    with pytest.raises(TypeError, match="no outcome of a shared task"):
        list(parted(Refused(), ["a", "b"]))


def test_a_prepared_batch_is_never_joined() -> None:
    """It is a task by itself."""
    prepare = Prepare(plan=flight("a").plan)
    assert joined([prepare]) is prepare
