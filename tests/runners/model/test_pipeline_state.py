"""The state of a pipeline, and how a snapshot keeps it."""

from __future__ import annotations

import json
from dataclasses import fields, replace
from typing import Any

import pytest

from destinations.destination import Identity
from origins.codec import decode, encode
from runners.model.entry import BegunBackfill, DestinationBody, OpenBody, OwnerBody, PauseBody, PinnedReplay, Settled
from runners.model.nack_window import DlqSettings, NackWindow
from runners.model.pipeline_state import CLEAN, LaneHolder, LaneState, PipelineState, is_aside, is_replay
from runners.model.planned_batch import SettledCounts
from tests.runners.state.ledger.conformance import NOWHERE
from tests.runners.state.ledger.test_progress import DECISION, make_planned

LANE = LaneState(
    offset=10,
    number=3,
    committed=2,
    committed_at="2026-01-01T00:00:00+00:00",
    window=NackWindow(rows=3, nacks=(2,)),
    clean=4,
    open=replace(make_planned(3), decision=replace(DECISION, sections=2, again=True), published=True),
    settled=make_planned(2),
    tried=1,
    since="2026-01-01T00:00:00+00:00",
)
FULL = PipelineState(
    seq=0,  # the number of the snapshot itself, which its body does not have
    epoch=5,
    pipeline="orders",
    opened=OpenBody(destinations={"table": DestinationBody(place="tables/orders", id="t", version=7)}),
    owners=(OwnerBody(owner="one", lease=60.0), OwnerBody(owner="two", lease=20.0)),
    held={
        "0": LaneHolder(owner="one", epoch=4),
        "1": LaneHolder(owner="two", epoch=5),
        "2": LaneHolder(owner="one", epoch=4),
    },
    done=frozenset({"1"}),
    ended={"status": "failed"},
    stopping="asked to stop",
    forced=True,
    lanes={"0": LANE},
    forgotten=(("0", 1, 2),),
    midway=True,
    config=DlqSettings(window=5),
    backfills={"||": BegunBackfill(name="backfill-1", at="2026-01-01T00:00:00+00:00")},
    jumps=(("0", 2),),
    accepted=frozenset({"ROWS_GONE p1"}),
    replay=PinnedReplay(at="2026-01-01T00:00:00+00:00", body={"fix": {"sql": "SELECT 1"}}, decided=True),
    fallen={"p1": 3},
    paused=PauseBody(number=3, limit="rows", reason="too many", lane="0", at="2026-01-01T00:00:00+00:00"),
)


def test_a_snapshot_keeps_every_field() -> None:
    """Each field is written as JSON and read back."""
    assert decode(PipelineState, json.loads(json.dumps(encode(FULL)))).name_pipeline() == FULL


@pytest.mark.parametrize(("full", "empty"), [(FULL, PipelineState()), (LANE, LaneState())], ids=["state", "lane"])
def test_each_field_has_a_value_in_the_test_of_the_snapshot(
    full: PipelineState | LaneState, empty: PipelineState | LaneState
) -> None:
    """No field has its initial value, except the number of the snapshot."""
    same = {each.name for each in fields(full) if getattr(full, each.name) == getattr(empty, each.name)}
    assert same <= {"seq"}


def test_a_snapshot_of_an_older_version_lacks_later_fields() -> None:
    """These fields have their initial values."""
    body = json.loads(json.dumps(encode(FULL)))
    for name in ("config", "jumps", "accepted", "paused", "replay", "fallen", "forced"):
        del body[name]
    for name in ("tried", "since"):
        del body["lanes"]["0"][name]
    lane = replace(LANE, tried=0, since="")
    later: dict[str, Any] = {
        "config": DlqSettings(),
        "jumps": (),
        "accepted": frozenset(),
        "paused": None,
        "replay": None,
    }
    later |= {"fallen": {}, "forced": False}
    assert decode(PipelineState, body).name_pipeline() == replace(FULL, lanes={"0": lane}, **later)


def test_a_lane_is_careful_until_enough_batches_had_no_refused_row() -> None:
    """A new lane is not careful."""
    assert [LaneState(clean=clean).careful for clean in (0, CLEAN - 1, CLEAN)] == [True, True, False]
    assert not PipelineState().get_lane("new").careful


def test_a_rewound_batch_does_not_count_as_processed() -> None:
    """It is in the same lane, and its number is in the span. Both ends of the span count."""
    batch = Settled(lane="0", number=1, plan="p", run="r", at="", span=NOWHERE, counts=SettledCounts())
    others = [replace(batch, number=2), replace(batch, number=3), replace(batch, lane="1")]
    assert [FULL.is_carried(each) for each in (batch, *others)] == [False, False, True, True]


def test_owners_are_found_with_their_lanes() -> None:
    """The first owner is the owner of the pipeline."""
    assert (FULL.owner, FULL.lanes_of("one"), FULL.lanes_of("nobody")) == (FULL.owners[0], ("0", "2"), ())
    assert (FULL.find_owner("two"), FULL.find_owner("nobody"), PipelineState().owner) == (FULL.owners[1], None, None)


def test_destinations_have_the_identities_of_the_last_opening() -> None:
    """With these identities they are asked for an open batch."""
    assert FULL.identities == {"table": Identity(place="tables/orders", id="t", version=7)}


@pytest.mark.parametrize(
    ("lane", "replay", "aside"),
    [("0", False, False), ("dlq/files", True, True), ("backfill-1/0", False, True), ("dlq", False, False)],
)
def test_lanes_of_replays_and_backfills_are_known_by_their_names(lane: str, replay: bool, aside: bool) -> None:
    """Lanes of the origin are neither."""
    assert (is_replay(lane), is_aside(lane)) == (replay, aside)
