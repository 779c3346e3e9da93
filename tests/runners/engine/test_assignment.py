"""Whose each shared lane is, and how lanes change hands."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field, replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from runners.engine.lane_coordination import LaneChange, LaneView, deal_lanes, decide_change, has_unfinished
from runners.model.entry import Entry
from runners.model.pipeline_state import PipelineState
from runners.state.progress import apply_entry
from tests.runners.state.ledger.test_progress import plan

SIX = ("0", "1", "2", "3", "4", "5")


@dataclass
class Game:
    """A ledger, and those who share what it is about."""

    state: PipelineState = PipelineState()  # noqa: RUF009  (it is frozen)
    lanes: Sequence[str] = SIX
    silent: set[str] = field(default_factory=set)
    frees: bool = True

    def says(self, owner: str, kind: str, **body: object) -> None:
        """An entry of this owner."""
        epoch = self.state.epoch + (kind in ("acquire", "take"))
        self.state = apply_entry(
            self.state, Entry(kind=kind, owner=owner, epoch=epoch, seq=self.state.seq + 1, body=body)
        )

    def joins(self, *owners: str) -> None:
        """They come, and want lanes."""
        for owner in owners:
            self.says(owner, "acquire", pipeline="orders", joins=bool(self.state.owners), lease=60)
            self.says(owner, "renew", lease=60, ready=True)

    def view(self, owner: str, busy: Collection[str] = (), exhausted: Collection[str] = ()) -> LaneView:
        """What this owner knows."""
        return LaneView(
            me=owner,
            lanes=self.lanes,
            silent=sorted(self.silent - {owner}),
            busy=busy,
            exhausted=exhausted,
            frees=self.frees,
        )

    def turn(self, owner: str, busy: Collection[str] = (), exhausted: Collection[str] = ()) -> bool:
        """One change of this owner, if there is one to make."""
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
        """Everybody who can be heard does what he has to, until nothing is left to do."""
        for _ in range(rounds):
            heard = [each["owner"] for each in self.state.owners if each["owner"] not in self.silent]
            changed = [self.turn(owner) for owner in heard]
            if not any(changed):
                return
        raise AssertionError("they never agree")

    @property
    def held(self) -> dict[str, str]:
        """Who has which lane."""
        return {lane: self.state.held[lane].owner for lane in sorted(self.state.held)}


OWNERS = st.lists(st.sampled_from("abcdef"), min_size=1, max_size=6, unique=True)


@given(lanes=st.integers(1, 20), owners=OWNERS)
def test_lanes_are_dealt_like_cards(lanes: int, owners: list[str]) -> None:
    """Each lane is somebody's, and nobody has two more than another."""
    fair = deal_lanes([str(lane) for lane in range(lanes)], owners)
    counts = [Counter(fair.values())[owner] for owner in owners]
    assert len(fair) == lanes
    assert max(counts) - min(counts) <= 1


@pytest.mark.promise("CN-26")
@settings(max_examples=500)
@given(data=st.data(), owners=OWNERS)
def test_whatever_happens_each_lane_ends_with_whose_it_is(data: st.DataObject, owners: list[str]) -> None:
    """They come, leave, fall silent and act in any order, some with batches on their way; in the end all agree."""
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
    heard = [each["owner"] for each in game.state.owners if each["owner"] not in game.silent]
    game.settles()
    assert game.held == (dict(deal_lanes(SIX, heard)) if heard else game.held)


def test_who_comes_gets_lanes_once_their_batches_have_ended() -> None:
    """One at a time: it never waits for all of them."""
    game = Game()
    game.joins("a")
    game.settles()
    game.joins("b")
    game.turn("a", busy={"1", "3"})
    game.turn("b")
    assert game.held == {"0": "a", "1": "a", "2": "a", "3": "a", "4": "a", "5": "b"}
    game.settles()
    assert game.held == {"0": "a", "1": "b", "2": "a", "3": "b", "4": "a", "5": "b"}


def test_who_leaves_gives_all_lanes_back_at_once() -> None:
    """With the entry that says that it leaves; the next to act takes them."""
    game = Game()
    game.joins("a", "b")
    game.settles()
    game.says("b", "release", status="stopped")
    assert set(game.held.values()) == {"a"}
    game.turn("a")
    assert set(game.held) == set(SIX)


@pytest.mark.promise("CN-27")
def test_the_lanes_of_one_that_is_silent_are_dealt_out_to_the_others() -> None:
    """Each under an epoch that nobody has had."""
    game = Game()
    game.joins("a", "b", "c")
    game.settles()
    before = dict(game.state.held)
    game.silent.add("b")
    game.settles()
    assert game.held == dict(deal_lanes(SIX, ["a", "c"]))
    assert all(game.state.held[lane].epoch > before[lane].epoch for lane in ("1", "4"))


@pytest.mark.promise("CN-28")
def test_local_lanes_stay_with_one_that_is_silent_until_told() -> None:
    """The others share the rest; whoever is told takes them."""
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


def test_one_that_is_silent_and_has_nothing_is_ousted_by_anybody() -> None:
    """Local or not: nothing is taken from it, and nobody waits for it to open the pipeline."""
    game = Game(frees=False)
    game.says("a", "acquire", pipeline="orders", joins=False, lease=600)
    game.joins("b")
    game.silent.add("a")
    game.turn("b")
    assert [each["owner"] for each in game.state.owners] == ["b"]


def test_one_that_is_not_ready_gets_no_lanes() -> None:
    """It opens the pipeline still, and lanes would rest meanwhile."""
    game = Game()
    game.joins("a")
    game.says("b", "acquire", pipeline="orders", joins=True, lease=600)
    game.settles()
    assert set(game.held.values()) == {"a"}


def test_a_lane_that_is_done_is_taken_again_when_somebody_comes() -> None:
    """Who comes wants to carry what there is by then."""
    game = Game()
    game.joins("a")
    game.settles()
    game.turn("a", exhausted=SIX)
    assert (game.held, game.state.done) == ({}, frozenset(SIX))
    assert not game.turn("a")
    game.joins("b")
    game.settles()
    assert set(game.held) == set(SIX)


def test_a_lane_with_an_open_batch_is_kept_and_dealt_out_though_the_definition_has_it_no_more() -> None:
    """Somebody has to finish the batch."""
    game = Game()
    old = replace(plan(1), batch=replace(plan(1).batch, lane="9"))
    game.joins("a")
    game.settles()
    entry = Entry(kind="plan", lane="9", plan="p1", owner="x", seq=game.state.seq + 1, body=old.json())
    game.state = apply_entry(game.state, entry)
    game.settles()
    assert game.held["9"] == "a"
    game.joins("b", "c", "d", "e", "f", "g")
    game.turn("a")
    assert game.held["9"] == "a"


@pytest.mark.parametrize("frees", [True, False])
def test_a_run_that_ends_waits_for_lanes_that_it_may_get(frees: bool) -> None:
    """Where lanes stay local it has none to wait for but its own."""
    game = Game(frees=frees)
    game.joins("a", "b")
    game.settles()
    game.turn("a", exhausted=SIX)
    assert has_unfinished(game.state, game.view("a")) is frees
    game.turn("b", exhausted=SIX)
    assert not has_unfinished(game.state, game.view("a"))


def test_who_joins_waits_for_its_share_of_local_lanes_unless_their_owner_dies_with_them() -> None:
    """They are given back one by one, as their batches end."""
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


def test_nobody_waits_for_a_run_that_goes_on_for_ever() -> None:
    """Its lanes are never done; should it die, whoever is there then takes them."""
    game = Game()
    game.says("f", "acquire", pipeline="orders", joins=False, lease=60, follow=True)
    game.says("f", "renew", lease=60, ready=True)
    game.joins("a")
    game.settles()
    game.turn("a", exhausted=SIX)
    assert not has_unfinished(game.state, game.view("a"))
    game.silent.add("f")
    assert has_unfinished(game.state, game.view("a"))


def test_nothing_is_done_where_all_is_as_it_should_be() -> None:
    """A change that is none is false."""
    game = Game()
    game.joins("a", "b")
    game.settles()
    assert decide_change(game.state, game.view("a")) == LaneChange()
    assert not LaneChange()
