"""A run that replays rows of the DLQ, as far as it needs no Spark."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest

from destinations.delta import Delta
from destinations.dlq import DLQ, Dlq
from destinations.memory import Memory
from origins.capabilities import ReactsToCommits
from origins.codec import encode
from origins.generate import Generate
from origins.memory import Memory as Rows
from runners.engine.batch_machine import DeliveryRules, begin_flight, plan_transition
from runners.engine.batch_planner import BatchPlanner, OriginFeed
from runners.model.entry import Entry
from runners.model.errors import Refusal
from runners.model.nack_window import NackWindow
from runners.model.pipeline_state import LaneState
from runners.model.tasks import Prepared
from runners.pipeline import Pipeline
from runners.running.choice import Choice
from runners.running.replay import Replay, plan_replay
from runners.state.journal import Journal, list_decided
from runners.ways.stage_chain import StageChain
from runners.ways.task_executor import TaskExecutor
from tests.manual_clock import ManualClock
from tests.runners.engine.test_batch_machine import TWO, make_counts, make_landed
from tests.runners.engine.test_dispatcher import Bench
from tests.runners.running.letterbox import append_letters, make_letters
from tests.runners.running.open_run import make_open_run
from tests.runners.state.ledger.memory_ledger import MemoryLedger
from tests.runners.state.ledger.test_progress import make_planned, make_settle_entry

LANE = "dlq/origin"
DESTINATIONS = {"a": Memory(name="a"), "b": Memory(name="b")}
LINES = {"origin": StageChain.of([], DESTINATIONS), "other": StageChain.of([], DESTINATIONS)}


@pytest.fixture
def dlq(tmp_path: Path) -> Delta:
    """Three rows of one origin, a row of another, and a row that cannot be replayed."""
    rows = (
        make_letters(1, 2) + make_letters(3, delivered_to=["b"]) + make_letters(4, origin="other", number=2, plan="q")
    )
    append_letters(tmp_path / "state" / "dlq", rows + make_letters(5, original=None, original_schema=None))
    return Delta(path=str(tmp_path / "state" / "dlq"), name="dlq")


def make_journal() -> Journal:
    """Return the journal of a pipeline without batches."""
    made = Journal(MemoryLedger())
    made.acquire({"pipeline": "orders"})
    return made


def make_source(journal: Journal, dlq: Delta, replay: Replay) -> BatchPlanner:
    """Return the planner of the replay, for a pipeline with two origins and two destinations."""
    feeds = [
        OriginFeed(origin=name, lanes={name: name}, schema="s", backlog=cast("Any", None), straight=True)
        for name in ("origin", "other")
    ]
    usual = BatchPlanner(pipeline="orders", run="r", definition="", destinations=("a", "b"), feeds=feeds)
    pipeline = Pipeline(name="orders", origin=Rows(schema="id long"), destinations=[*DESTINATIONS.values()])
    return replay.make_source(usual, make_open_run(pipeline, journal, dlq, LINES))


def test_a_replay_needs_a_reason() -> None:
    """The ledger keeps it with the choice."""
    with pytest.raises(Refusal, match="needs a reason"):
        Replay(reason="")
    said = Replay(choice=Choice(code="CAST"), reason="mended").json()
    assert (said["code"], said["reason"]) == ("CAST", "mended")


@pytest.mark.promise("CD-30")
def test_each_origin_has_a_lane_of_rows_of_the_dlq(dlq: Delta) -> None:
    """The batches go to destinations that lack the rows. They are never written straight."""
    found = make_source(make_journal(), dlq, Replay(reason="a test"))
    assert list(found.lanes) == [LANE, "dlq/other"]
    span = found.take(LANE, None)
    assert span is not None
    first = found.plan(LANE, LaneState(), span, ManualClock().now(), first=False)
    assert (first.batch.span.parts, first.destinations, first.straight) == (("p/1", "p/2"), ("a", "b"), False)
    assert first.batch.origin == "origin"
    span = found.take(LANE, first.batch.span.end)
    assert span is not None
    second = found.plan(LANE, LaneState(), span, ManualClock().now(), first=False)
    assert (second.batch.span.parts, second.destinations) == (("p/3",), ("a",))
    assert found.take(LANE, second.batch.span.end) is None
    assert [notice for feed in found.feeds for notice in feed.backlog.notices] == [
        "1 row in the DLQ cannot be replayed: the DLQ did not keep the original rows (dlq.original is false)"
    ]


def test_only_settled_rows_are_replayed(dlq: Delta) -> None:
    """A batch that was planned and cancelled does not change its rows."""
    owner = make_journal()
    batch = replace(
        make_planned(1).batch, lane=LANE, span=replace(make_planned(1).batch.span, parts=("p/1", "p/2"), end="p/2")
    )
    planned = Entry(kind="plan", lane=LANE, plan="p1", body=encode(replace(make_planned(1), batch=batch)))
    owner.record(planned)
    assert list_decided(owner).ids == set()
    owner.record(Entry(kind="cancel", lane=LANE, plan="p1"), planned, replace(make_settle_entry(), lane=LANE))
    assert list_decided(owner).replayed == {"p/1", "p/2"}
    left = make_source(owner, dlq, Replay(reason="a test")).take(LANE, owner.state.get_lane(LANE).offset)
    assert left is not None
    assert left.parts == ("p/3",)


def test_a_replay_does_not_count_in_the_window() -> None:
    """All its rows may be refused again, though a single row would stop a run."""
    prepared = Prepared(path="x", counts=make_counts("orders", "latest", nacked=10), nacks=list(range(1, 11)))
    again = replace(TWO, batch=replace(TWO.batch, lane=LANE))
    step = plan_transition(begin_flight(again, LaneState(window=NackWindow())), prepared, DeliveryRules(dlq=Dlq()))
    assert [entry.kind for entry in step.entries] == ["prepared"]
    done = plan_transition(step.flight, make_landed("dlq", 10), DeliveryRules(dlq=Dlq()))
    assert (done.entries[0].body["window"], done.done) == ({"rows": 10, "nacks": []}, True)


def test_a_replay_begins_no_load() -> None:
    """A destination that a load replaces keeps its rows. A load that did not end continues after the replay."""
    bench = Bench()
    usual = bench.dispatcher.planning.source
    assert usual is not None
    bench.dispatcher.planning.source = replace(usual, feeds=[replace(usual.feeds[0], lanes={LANE: LANE})])
    bench.turn()
    first = bench.journal.state.open_plans[0].batch
    assert (first.lane, first.first) == (LANE, False)
    bench.turn(LANE)
    assert (bench.settled(), bench.journal.state.midway) == ([(LANE, 1)], False)
    midway = make_journal()
    midway.record(Entry(kind="plan", lane="0", plan="p1", body=encode(make_planned(1))), make_settle_entry())
    midway.acquire({"pipeline": "orders", "replay": {"reason": "a test"}})
    midway.record(Entry(kind="release", body={"status": "succeeded"}))
    assert midway.state.midway
    midway.acquire({"pipeline": "orders", "replay": None})
    midway.record(Entry(kind="release", body={"status": "succeeded"}))
    assert not midway.state.midway


def test_an_origin_is_not_notified_of_replayed_rows() -> None:
    """It would look for them among its files."""
    told: list[str] = []

    class Listening(Generate, ReactsToCommits):
        def committed(self, spark: object, batch: Any) -> None:
            told.append(batch.lane)

    runner = TaskExecutor(
        spark=cast("Any", None),
        group="",
        pipeline=Pipeline(name="orders", destinations=[]),
        origins={"origin": Listening()},
        destinations={DLQ: Memory()},
        opened={},
        store=cast("Any", None),
    )
    tell = runner.list_listening(cast("Any", None))["origin"]
    tell(make_planned(1).batch)
    tell(replace(make_planned(1).batch, lane=LANE))
    assert told == ["0"]


def test_a_replay_is_planned_without_spark(dlq: Delta, tmp_path: Path) -> None:
    """It is refused if a destination keeps the row that arrives last."""
    pipeline = Pipeline(
        name="orders",
        origin=Rows(name="origin", schema="id long"),
        destinations=[Memory(name="a")],
        state=str(tmp_path / "state"),
    )
    found = plan_replay(pipeline, Replay(reason="a test"))
    assert (found.plan.rows, len(found.left)) == (3, 2)
    merge = Delta(path=str(tmp_path / "t"), mode="merge", keys=["id"], name="a")
    with pytest.raises(Refusal, match="keeps the row that arrives last"):
        plan_replay(replace(pipeline, destinations=[merge]), Replay(reason="a test"))


def test_lanes_of_the_dlq_are_not_lanes_of_the_pipeline(tmp_path: Path) -> None:
    """`status` and `offsets` do not show them."""
    pipeline = Pipeline(
        name="orders", origin=Rows(schema="id long"), destinations=[Memory(name="a")], state=str(tmp_path / "state")
    )
    append_letters(tmp_path / "state" / "dlq", make_letters(1))
    pipeline.refused.discard(reason="a test")
    assert (pipeline.status()["lanes"], dict(pipeline.offsets.read().lanes)) == ({}, {})
