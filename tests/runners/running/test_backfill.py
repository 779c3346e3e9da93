"""Which batches a backfill repeats, and in which lanes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime, timezone
from typing import Any

import pytest

from destinations.memory import Memory
from origins.batch import Span
from origins.generate import Generate
from runners.engine.batch_planner import BatchPlanner, OriginFeed
from runners.model.entry import Entry, Settled
from runners.model.errors import Refusal
from runners.model.pipeline_state import LaneState
from runners.model.planned_batch import SettledCounts
from runners.pipeline import Pipeline
from runners.running.backfill import Backfill, Bound, parse_bound
from runners.state.journal import Journal
from tests.runners.running.open_run import make_open_run
from tests.runners.state.ledger.memory_ledger import MemoryLedger

NOON = datetime(2026, 1, 1, 12, tzinfo=timezone.utc)
A, B = Memory(name="a"), Memory(name="b")
PIPELINE = Pipeline(name="orders", origin=Generate(name="made", lanes=2), destinations=[A, B])


def make_settled(lane: str, number: int, minute: int) -> Settled:
    """Return a batch that was committed this many minutes after noon."""
    at = NOON.replace(minute=minute).isoformat()
    span, counts = Span(start=number - 1, end=number), SettledCounts(read=1)
    return Settled(lane=lane, number=number, plan=f"{lane}{number}", run="r", at=at, span=span, counts=counts)


CARRIED = [
    make_settled("0", 2, 3),
    make_settled("1", 1, 1),
    make_settled("0", 1, 2),
    make_settled("1", 2, 4),
    make_settled("backfill-1/0", 1, 2),
]


@pytest.mark.parametrize(
    ("start", "end", "found"),
    [
        (None, None, {"0": [1, 2], "1": [1, 2]}),
        (2, None, {"0": [2], "1": [2]}),
        (None, 1, {"0": [1], "1": [1]}),
        (NOON.replace(minute=2), NOON.replace(minute=3), {"0": [1, 2]}),
        (2, NOON.replace(minute=3), {"0": [2]}),
        (9, None, {}),
    ],
)
def test_batches_are_chosen_by_number_or_by_time(start: Bound, end: Bound, found: dict[str, list[int]]) -> None:
    """They are in the order of their lane, and both bounds are included. Batches of a backfill are not chosen."""
    past = Backfill(start=start, end=end, reason="a test").select_batches(CARRIED, NOON.replace(hour=13))
    assert {lane: [batch.number for batch in batches] for lane, batches in past.items()} == found


def test_batches_committed_after_the_backfill_began_do_not_count() -> None:
    """So a resumed backfill has the same batches as before."""
    past = Backfill(reason="a test").select_batches(CARRIED, NOON.replace(minute=2))
    assert {lane: [batch.number for batch in batches] for lane, batches in past.items()} == {"0": [1], "1": [1]}


@pytest.mark.parametrize(
    ("text", "meant"),
    [("12", 12), ("2026-01-01T12:00", NOON), ("2026-01-01T14:00+02:00", NOON), ("2026-01-01", NOON.replace(hour=0))],
)
def test_a_bound_is_a_number_or_a_time(text: str, meant: Bound) -> None:
    """A time is in UTC unless it has another zone."""
    assert parse_bound(text) == meant


def test_a_day_as_the_last_bound_includes_the_whole_day() -> None:
    """So `--from` and `--to` with one date mean that day."""
    day = Backfill(start=parse_bound("2026-01-01"), end=parse_bound("2026-01-01", last=True), reason="a test")
    assert set(day.select_batches(CARRIED, NOON.replace(hour=13))) == {"0", "1"}
    assert parse_bound("2026-01-01T12:00", last=True) == NOON
    assert parse_bound("12", last=True) == 12


def make_source(journal: Journal, backfill: Backfill) -> BatchPlanner:
    """Return the planner of the backfill for a pipeline with two lanes."""
    lanes = {lane: lane for lane in ("0", "1")}
    feed = OriginFeed(origin="made", lanes=lanes, schema="", backlog=Generate(lanes=2).survey(None, None))  # type: ignore[arg-type]
    usual = BatchPlanner(pipeline="orders", run="r", definition="", destinations=("a", "b"), feeds=[feed])
    return backfill.make_source(usual, make_open_run(PIPELINE, journal))


class Remembering(Journal):
    """A journal in which the batches above are settled."""

    def __init__(self, ledger: MemoryLedger) -> None:
        super().__init__(ledger)
        self.acquire({"pipeline": "orders"})

    def list_settled(self) -> list[Settled]:
        return CARRIED


def test_a_backfill_has_separate_lanes_and_can_be_resumed() -> None:
    """The same call gives the same lanes, also in another process. With `again` the lanes are new."""
    ledger = MemoryLedger()
    first = make_source(Remembering(ledger), Backfill(reason="a test"))
    lane = next(lane for lane in first.lanes if lane.endswith("/0"))
    assert lane.startswith("backfill-")
    one = first.take(lane, None)
    assert one is not None
    assert (one.start, one.end) == (0, 1)
    resumed = make_source(Remembering(ledger), Backfill(reason="another word for it"))
    assert resumed.lanes == first.lanes
    two = resumed.take(lane, one.end)
    assert two is not None
    assert (two.end, resumed.take(lane, two.end)) == (2, None)
    assert set(make_source(Remembering(ledger), Backfill(reason="a test", again=True)).lanes).isdisjoint(first.lanes)


def test_a_backfill_may_be_for_one_destination() -> None:
    """An unknown destination is refused."""
    journal = Remembering(MemoryLedger())
    source = make_source(journal, Backfill(only="b", reason="a test"))
    lane = source.lanes[0]
    span = source.take(lane, None)
    assert span is not None
    assert source.plan(lane, LaneState(), span, NOON, first=False).destinations == ("b",)
    with pytest.raises(Refusal, match="There is no destination 'c'; there are: a, b"):
        make_source(journal, Backfill(only="c", reason="a test"))


def test_the_batches_left_are_those_that_the_backfill_would_process() -> None:
    """Batches of an earlier call are left out, unless `again` is set. Listing them does not begin a backfill."""
    ledger = MemoryLedger()
    journal = Remembering(ledger)

    def left(backfill: Backfill) -> dict[str, list[int]]:
        return {
            lane: [batch.settled.number for batch in batches]
            for lane, batches in backfill.list_left(PIPELINE, journal).items()
        }

    past = Backfill(reason="a test")
    assert left(past) == {"0": [1, 2], "1": [1, 2]}
    assert not journal.state.backfills
    lanes = make_source(journal, past).lanes
    lane = next(lane for lane in lanes if lane.endswith("/0"))
    journal.record(Entry(kind="set", epoch=journal.state.epoch, body={"lanes": {lane: {"offset": 1}}}))
    assert left(past) == {"0": [2], "1": [1, 2]}
    journal.record(Entry(kind="set", epoch=journal.state.epoch, body={"lanes": {lane: {"offset": 2}}}))
    assert left(past) == {"1": [1, 2]}
    assert left(Backfill(again=True, reason="a test")) == {"0": [1, 2], "1": [1, 2]}


TWO = Pipeline(name="orders", origin=Generate(name="made"), destinations=[A, B])


class Delivered(Remembering):
    """A journal in which these destinations have these batches of lane 0. A backfill delivered the third to `b`."""

    BATCHES: Sequence[tuple[str, int, list[str]]] = (
        ("0", 1, ["a", "b"]),
        ("0", 2, ["a"]),
        ("0", 3, ["a"]),
        ("backfill-1/0", 3, ["b"]),
        ("0", 4, ["a"]),
    )

    def list_settled(self) -> list[Settled]:
        return [
            replace(
                make_settled(lane, number, number), counts=SettledCounts(read=10, delivered=dict.fromkeys(names, 10))
            )
            for lane, number, names in self.BATCHES
        ]


@pytest.mark.parametrize(
    ("given", "goes_to"),
    [
        ({}, {2: ["b"], 4: ["b"]}),
        ({"only": "b"}, {2: ["b"], 4: ["b"]}),
        ({"only": "a"}, {}),
        ({"only": "b", "again": True}, {1: ["b"], 2: ["b"], 3: ["b"], 4: ["b"]}),
    ],
)
def test_a_destination_gets_only_batches_that_it_lacks(given: dict[str, Any], goes_to: dict[int, list[str]]) -> None:
    """Batches from a run or another backfill are left out, unless `again` is set."""
    journal, past = Delivered(MemoryLedger()), Backfill(**given, reason="a test")
    lanes = {"0": "0"}
    feed = OriginFeed(origin="made", lanes=lanes, schema="", backlog=Generate().survey(None, None))  # type: ignore[arg-type]
    usual = BatchPlanner(pipeline="orders", run="r", definition="", destinations=("a", "b"), feeds=[feed])
    planner = past.make_source(usual, make_open_run(TWO, journal))
    (lane,) = planner.lanes
    found: dict[int, list[str]] = {}
    state = LaneState()
    while (span := planner.take(lane, state.offset)) is not None:
        planned = planner.plan(lane, state, span, NOON, first=False)
        found[int(str(span.end))] = list(planned.destinations)
        state = replace(state, offset=span.end)
    assert found == goes_to


def test_a_resumed_backfill_keeps_its_batches() -> None:
    """This holds although the destination now has some of them, and if the call lacks `again`."""
    ledger = MemoryLedger()
    journal = Delivered(ledger)
    begun = Backfill(only="b", again=True, reason="a test")

    def left(backfill: Backfill) -> list[int]:
        (batches,) = backfill.list_left(TWO, journal).values()
        return [batch.settled.number for batch in batches if batch.lacking]

    feed = OriginFeed(origin="made", lanes={"0": "0"}, schema="", backlog=Generate().survey(None, None))  # type: ignore[arg-type]
    usual = BatchPlanner(pipeline="orders", run="r", definition="", destinations=("a", "b"), feeds=[feed])
    (lane,) = begun.make_source(usual, make_open_run(TWO, journal)).lanes
    journal.record(Entry(kind="set", epoch=journal.state.epoch, body={"lanes": {lane: {"offset": 2}}}))
    assert left(begun) == left(replace(begun, again=False)) == [3, 4]
    journal.record(Entry(kind="set", epoch=journal.state.epoch, body={"lanes": {lane: {"offset": 4}}}))
    assert left(begun) == [1, 2, 3, 4]
    assert left(replace(begun, again=False)) == [2, 4]


def test_a_backfill_begins_again_after_its_lane_was_set_back() -> None:
    """The batch at which it stood is no longer settled. A destination gets no batch again that it has."""

    class Rewound(Delivered):
        BATCHES = (*Delivered.BATCHES[:3], ("backfill-1/0", 3, ["b"]))

    past = Backfill(only="b", reason="a test")
    ledger = MemoryLedger()
    journal = Delivered(ledger)
    feed = OriginFeed(origin="made", lanes={"0": "0"}, schema="", backlog=Generate().survey(None, None))  # type: ignore[arg-type]
    usual = BatchPlanner(pipeline="orders", run="r", definition="", destinations=("a", "b"), feeds=[feed])
    (lane,) = past.make_source(usual, make_open_run(TWO, journal)).lanes
    journal.record(Entry(kind="set", epoch=journal.state.epoch, body={"lanes": {lane: {"offset": 4}}}))
    rewound = Rewound(ledger)
    (batches,) = past.list_left(TWO, rewound).values()
    assert [batch.settled.number for batch in batches if batch.lacking] == [2]
    (anew,) = past.make_source(usual, make_open_run(TWO, rewound)).lanes
    assert anew != lane


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"only": "c"}, "There is no destination 'c'; there are: a"),
        ({"lane": "7"}, "Lane '7' has no settled batch; these lanes have: 0"),
    ],
)
def test_an_unknown_destination_or_lane_is_refused_before_the_backfill(given: dict[str, str], said: str) -> None:
    """The message lists the known ones."""
    journal = Remembering(MemoryLedger())
    journal.record(Entry(kind="set", epoch=journal.state.epoch, body={"lanes": {"0": {"offset": 1}}}))
    with pytest.raises(Refusal, match=said):
        Backfill(**given, reason="a test").list_left(PIPELINE, journal)  # type: ignore[arg-type]


def test_a_backfill_needs_a_reason() -> None:
    """An empty reason is refused."""
    with pytest.raises(Refusal, match="needs a reason"):
        Backfill(reason="")


def test_a_backfill_is_kept_by_a_compaction() -> None:
    """A snapshot has the names of its lanes."""
    ledger = MemoryLedger()
    journal = Remembering(ledger)
    first = make_source(journal, Backfill(reason="a test"))
    journal.record(*[Entry(kind="stop") for _ in range(10)])
    journal.compact(every=5)
    assert make_source(Remembering(ledger), Backfill(reason="a test")).lanes == first.lanes


class SetBack(Remembering):
    """A journal of a lane that was set back after its third batch. Its fourth batch ends where its first one does."""

    def list_settled(self) -> list[Settled]:
        again = make_settled("0", 4, 4)
        return [
            *(make_settled("0", number, number) for number in (1, 2, 3)),
            replace(again, span=replace(again.span, start=0, end=1)),
            make_settled("1", 1, 1),
        ]


def test_batches_with_the_same_end_are_refused() -> None:
    """Their offsets are equal. The advice names two ranges, and each of them is complete."""
    journal = SetBack(MemoryLedger())
    offsets = {"lanes": {"0": {"offset": 1}, "1": {"offset": 1}}}
    journal.record(Entry(kind="set", epoch=journal.state.epoch, body=offsets))
    with pytest.raises(Refusal, match="Batches 1 and 4 of lane 0 end at the same offset") as raised:
        Backfill(reason="a test", again=True).list_left(PIPELINE, journal)
    assert "--lane 0 --from 1 --to 3" in raised.value.hint
    assert "--lane 0 --from 4" in raised.value.hint

    def left(**bounds: int) -> list[int]:
        past = Backfill(reason="a test", again=True, lane="0", **bounds)  # type: ignore[arg-type]
        return [batch.settled.number for batch in past.list_left(PIPELINE, journal)["0"]]

    assert (left(start=1, end=3), left(start=4)) == ([1, 2, 3], [4])
    make_source(journal, Backfill(reason="a test", again=True, lane="1"))
