"""Which run has each shared lane, and how lanes change hands."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field, replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from origins.codec import encode
from runners.engine.lane_coordination import LaneView, deal_lanes, decide_change, has_unfinished
from runners.model.entry import Entry
from runners.model.pipeline_state import PipelineState
from runners.state.progress import apply_entry
from tests.runners.state.ledger.test_progress import make_planned

SIX = ("0", "1", "2", "3", "4", "5")


@dataclass
class Game:
    """A ledger, and the owners that share a pipeline."""

    state: PipelineState = PipelineState()  # noqa: RUF009  (it is frozen)
    lanes: Sequence[str] = SIX
    silent: set[str] = field(default_factory=set)
    frees: bool = True

    def says(self, owner: str, kind: str, **body: object) -> None:
        """Record an entry of this owner."""
        epoch = self.state.epoch + (kind in ("acquire", "take"))
        self.state = apply_entry(
            self.state, Entry(kind=kind, owner=owner, epoch=epoch, seq=self.state.seq + 1, body=body)
        )

    def joins(self, *owners: str) -> None:
        """Let these owners join and ask for lanes."""
        for owner in owners:
            self.says(owner, "acquire", pipeline="orders", joins=bool(self.state.owners), lease=60)
            self.says(owner, "renew", lease=60, ready=True)

    def view(self, owner: str, busy: Collection[str] = (), exhausted: Collection[str] = ()) -> LaneView:
        """Return what this owner knows."""
        return LaneView(
            me=owner,
            lanes=self.lanes,
            silent=sorted(self.silent - {owner}),
            busy=busy,
            exhausted=exhausted,
            frees=self.frees,
        )

    def turn(self, owner: str, busy: Collection[str] = (), exhausted: Collection[str] = ()) -> bool:
        """Record the next change of this owner. Return whether it had one to make."""
        change = decide_change(self.state, self.view(owner, busy, exhausted))
        if change.oust:
            self.says(owner, "oust", owners=list(change.oust))
        for lanes, done in ((change.done, True), (change.give, False)):
            if lanes:
                self.says(owner, "give", lanes=list(lanes), done=done)
        if change.take:
            self.says(owner, "take", lanes=list(change.take))
        return bool(change)

    def settles(self, rounds: int = 10) -> None:
        """Let every owner that is not silent make its changes, until no changes are left."""
        for _ in range(rounds):
            heard = [each.owner for each in self.state.owners if each.owner not in self.silent]
            changed = [self.turn(owner) for owner in heard]
            if not any(changed):
                return
        raise AssertionError("they never agree")

    @property
    def held(self) -> dict[str, str]:
        """The owner of each lane."""
        return {lane: self.state.held[lane].owner for lane in sorted(self.state.held)}


OWNERS = st.lists(st.sampled_from("abcdef"), min_size=1, max_size=6, unique=True)


@given(lanes=st.integers(1, 20), owners=OWNERS)
def test_lanes_are_dealt_evenly(lanes: int, owners: list[str]) -> None:
    """Each lane has an owner. No owner has two lanes more than another."""
    fair = deal_lanes([str(lane) for lane in range(lanes)], owners)
    counts = [Counter(fair.values())[owner] for owner in owners]
    assert len(fair) == lanes
    assert max(counts) - min(counts) <= 1


@pytest.mark.promise("CN-26")
@settings(max_examples=500)
@given(data=st.data(), owners=OWNERS)
def test_after_any_events_each_lane_ends_with_its_right_owner(data: st.DataObject, owners: list[str]) -> None:
    """Owners join, leave, fall silent and act in any order, some with batches in flight. In the end all agree."""
    game = Game()
    for _ in range(data.draw(st.integers(0, 30))):
        owner = data.draw(st.sampled_from(owners))
        here = game.state.find_owner(owner) is not None
        what = data.draw(st.sampled_from(["comes", "leaves", "falls silent", "acts", "acts", "acts"]))
        if what == "comes" and not here:
            game.joins(owner)
            game.silent.discard(owner)
        elif what == "leaves" and here and owner not in game.silent:
            game.says(owner, "release", status="succeeded")
        elif what == "falls silent" and here:
            game.silent.add(owner)
        elif here and owner not in game.silent:
            held = game.state.lanes_of(owner)
            busy = data.draw(st.sets(st.sampled_from(held))) if held else set()
            game.turn(owner, busy)
            assert busy <= set(game.state.lanes_of(owner)), "a lane changed hands in the middle of a batch"
    heard = [each.owner for each in game.state.owners if each.owner not in game.silent]
    game.settles()
    assert game.held == (dict(deal_lanes(SIX, heard)) if heard else game.held)


@pytest.mark.promise("CN-27")
def test_the_lanes_of_a_silent_owner_are_dealt_to_the_others() -> None:
    """Each lane gets an epoch that no owner had before."""
    game = Game()
    game.joins("a", "b", "c")
    game.settles()
    before = dict(game.state.held)
    game.silent.add("b")
    game.settles()
    assert game.held == dict(deal_lanes(SIX, ["a", "c"]))
    assert all(game.state.held[lane].epoch > before[lane].epoch for lane in ("1", "4"))


@pytest.mark.promise("CN-28")
def test_local_lanes_stay_with_a_silent_owner_until_a_run_may_take_them() -> None:
    """The others share the remaining lanes. A run that was started with `frees` takes the local lanes."""
    game = Game(frees=False)
    game.joins("a", "b", "c")
    game.settles()
    game.silent.add("b")
    game.settles()
    assert {lane for lane, owner in game.held.items() if owner == "b"} == {"1", "4"}
    assert {owner for lane, owner in game.held.items() if lane not in ("1", "4")} == {"a", "c"}
    game.frees = True
    game.turn("a")
    assert game.state.find_owner("b") is None


def test_any_owner_ousts_a_silent_owner_without_lanes() -> None:
    """This is also true of local lanes.

    No lane is taken, and no run waits for the silent owner to open the pipeline.
    """
    game = Game(frees=False)
    game.says("a", "acquire", pipeline="orders", joins=False, lease=600)
    game.joins("b")
    game.silent.add("a")
    game.turn("b")
    assert [each.owner for each in game.state.owners] == ["b"]


def test_an_owner_that_is_not_ready_gets_no_lanes() -> None:
    """It is still opening the pipeline, so its lanes would be idle."""
    game = Game()
    game.joins("a")
    game.says("b", "acquire", pipeline="orders", joins=True, lease=600)
    game.settles()
    assert set(game.held.values()) == {"a"}


def test_a_finished_lane_is_taken_again_when_another_owner_joins() -> None:
    """The new owner wants to process the rows that have arrived since."""
    game = Game()
    game.joins("a")
    game.settles()
    game.turn("a", exhausted=SIX)
    assert (game.held, game.state.done) == ({}, frozenset(SIX))
    assert not game.turn("a")
    game.joins("b")
    game.settles()
    assert set(game.held) == set(SIX)


def test_a_lane_with_an_open_batch_is_dealt_even_if_the_definition_no_longer_has_it() -> None:
    """An owner must finish the batch, so the lane keeps its owner while the batch is open."""
    game = Game()
    old = replace(make_planned(1), batch=replace(make_planned(1).batch, lane="9"))
    game.joins("a")
    game.settles()
    entry = Entry(kind="plan", lane="9", plan="p1", owner="x", seq=game.state.seq + 1, body=encode(old))
    game.state = apply_entry(game.state, entry)
    game.settles()
    assert game.held["9"] == "a"
    game.joins("b", "c", "d", "e", "f", "g")
    game.turn("a")
    assert game.held["9"] == "a"


@pytest.mark.parametrize("frees", [True, False])
def test_a_run_that_ends_waits_for_the_lanes_that_it_may_get(frees: bool) -> None:
    """Where lanes stay local, it can get no lanes of the others."""
    game = Game(frees=frees)
    game.joins("a", "b")
    game.settles()
    game.turn("a", exhausted=SIX)
    assert has_unfinished(game.state, game.view("a")) is frees
    game.turn("b", exhausted=SIX)
    assert not has_unfinished(game.state, game.view("a"))


def test_a_run_that_joins_waits_for_its_share_of_local_lanes_unless_their_owner_dies() -> None:
    """The owner gives the lanes back one by one, as their batches end."""
    game = Game(frees=False)
    game.joins("a")
    game.settles()
    game.joins("b")
    assert has_unfinished(game.state, game.view("b"))
    game.turn("a", busy=["0", "1", "2", "3", "4"])
    game.turn("b")
    assert game.state.lanes_of("b") == ("5",)
    game.silent.add("a")
    game.turn("b", exhausted=["5"])
    assert not has_unfinished(game.state, game.view("b"))


def test_no_run_waits_for_a_run_that_follows() -> None:
    """The lanes of a run that follows are never done. If that run dies, the other runs take its lanes."""
    game = Game()
    game.says("f", "acquire", pipeline="orders", joins=False, lease=60, follow=True)
    game.says("f", "renew", lease=60, ready=True)
    game.joins("a")
    game.settles()
    game.turn("a", exhausted=SIX)
    assert not has_unfinished(game.state, game.view("a"))
    game.silent.add("f")
    assert has_unfinished(game.state, game.view("a"))
