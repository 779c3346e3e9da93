"""The pipeline as its ledger knows it, and how a snapshot keeps it."""

from __future__ import annotations

import json
from dataclasses import fields, replace
from typing import Any

import pytest

from destinations.destination import Identity
from runners.model.entry import Settled
from runners.model.nack_window import NackWindow
from runners.model.pipeline_state import CLEAN, LaneHolder, LaneState, PipelineState, is_aside, is_replay
from tests.runners.state.ledger.conformance import NOWHERE
from tests.runners.state.ledger.test_progress import DECISION, plan

LANE = LaneState(
    offset=10,
    number=3,
    committed=2,
    committed_at="2026-01-01T00:00:00+00:00",
    window=NackWindow(rows=3, nacks=(2,)),
    clean=4,
    open=replace(plan(3), decision=replace(DECISION, sections=2, again=True), published=True),
    told=plan(2),
    tried=1,
    since="2026-01-01T00:00:00+00:00",
)
FULL = PipelineState(
    seq=0,  # the number of the snapshot itself, which nobody stores in its body
    epoch=5,
    pipeline="orders",
    opened={"destinations": {"table": {"place": "tables/orders", "id": "t", "version": 7}}},
    owners=({"owner": "one", "lease": 60.0}, {"owner": "two", "lease": 20.0}),
    held={
        "0": LaneHolder(owner="one", epoch=4),
        "1": LaneHolder(owner="two", epoch=5),
        "2": LaneHolder(owner="one", epoch=4),
    },
    done=frozenset({"1"}),
    ended={"status": "failed"},
    stopping="asked to stop",
    lanes={"0": LANE},
    forgotten=(("0", 1, 2),),
    midway=True,
    config={"window": 5},
    backfills={"||": {"name": "backfill-1", "at": "2026-01-01T00:00:00+00:00"}},
    jumps=(("0", 2),),
    accepted=frozenset({"ROWS_GONE p1"}),
    replay={"at": "2026-01-01T00:00:00+00:00", "body": {"fix": {"sql": "SELECT 1"}}, "decided": True},
    fallen={"p1": 3},
    paused={"number": 3, "limit": "rows", "reason": "too many", "lane": "0", "at": "2026-01-01T00:00:00+00:00"},
)


def test_a_snapshot_keeps_all_that_is_known() -> None:
    """Each field, through JSON and back."""
    assert PipelineState.of(json.loads(json.dumps(FULL.json()))) == FULL


@pytest.mark.parametrize(("full", "empty"), [(FULL, PipelineState()), (LANE, LaneState())], ids=["state", "lane"])
def test_each_field_is_tried_by_the_test_of_the_snapshot(
    full: PipelineState | LaneState, empty: PipelineState | LaneState
) -> None:
    """None has the value that it has at the beginning; the number of a snapshot is its own."""
    same = {each.name for each in fields(full) if getattr(full, each.name) == getattr(empty, each.name)}
    assert same <= {"seq"}


def test_a_snapshot_of_an_older_version_lacks_what_came_later() -> None:
    """It is as at the beginning."""
    body = json.loads(json.dumps(FULL.json()))
    for name in ("config", "jumps", "accepted", "paused", "replay", "fallen"):
        del body[name]
    for name in ("tried", "since"):
        del body["lanes"]["0"][name]
    lane = replace(LANE, tried=0, since="")
    later: dict[str, Any] = {"config": {}, "jumps": (), "accepted": frozenset(), "paused": None, "replay": None}
    later["fallen"] = {}
    assert PipelineState.of(body) == replace(FULL, lanes={"0": lane}, **later)


def test_a_lane_is_careful_until_enough_batches_were_clean() -> None:
    """A new one is not."""
    assert [LaneState(clean=clean).careful for clean in (0, CLEAN - 1, CLEAN)] == [True, True, False]
    assert not PipelineState().get_lane("new").careful


def test_a_batch_that_was_rewound_is_not_carried() -> None:
    """Of its lane, and with a number in the span, whose both ends count."""
    batch = Settled(lane="0", number=1, plan="p", run="r", at="", span=NOWHERE, counts={})
    others = [replace(batch, number=2), replace(batch, number=3), replace(batch, lane="1")]
    assert [FULL.is_carried(each) for each in (batch, *others)] == [False, False, True, True]


def test_owners_are_found_with_their_lanes() -> None:
    """The one that came first is the owner."""
    assert (FULL.owner, FULL.lanes_of("one"), FULL.lanes_of("nobody")) == (FULL.owners[0], ("0", "2"), ())
    assert (FULL.find_owner("two"), FULL.find_owner("nobody"), PipelineState().owner) == (FULL.owners[1], None, None)


def test_destinations_are_what_they_were_when_the_last_run_opened() -> None:
    """By this they are asked for a batch that is open."""
    assert FULL.identities == {"table": Identity(place="tables/orders", id="t", version=7)}


@pytest.mark.parametrize(
    ("lane", "replay", "aside"),
    [("0", False, False), ("dlq/files", True, True), ("backfill-1/0", False, True), ("dlq", False, False)],
)
def test_lanes_beside_those_of_the_origin_are_known_by_their_names(lane: str, replay: bool, aside: bool) -> None:
    """Those of replays and of backfills."""
    assert (is_replay(lane), is_aside(lane)) == (replay, aside)
