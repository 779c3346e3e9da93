"""Which lanes are whose, where several runs share a pipeline: what one of them does next about it. Pure."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from runners.state import State


@dataclass(frozen=True, kw_only=True)
class View:
    """What one run knows beside the ledger."""

    me: str
    lanes: Sequence[str]
    """The lanes of the definition, in the order in which they are dealt out."""
    silent: Collection[str] = ()
    """The owners that are dead, or have said nothing for a whole lease."""
    busy: Collection[str] = ()
    """The lanes of which it has a batch on its way."""
    exhausted: Collection[str] = ()
    """The lanes in which it has carried all that there was."""
    frees: bool = True
    """Whether the lanes of an owner that is silent are taken from it."""
    follows: bool = False
    """Whether it goes on for ever, so that no lane is ever done for it."""


@dataclass(frozen=True, kw_only=True)
class Change:
    """What to record, in this order; nothing, where all is as it should be."""

    oust: tuple[str, ...] = ()
    """Owners that own nothing any more."""
    done: tuple[str, ...] = ()
    """Lanes given back since all of them is carried."""
    give: tuple[str, ...] = ()
    """Lanes given back for others."""
    take: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.oust or self.done or self.give or self.take)


def dealt(lanes: Sequence[str], owners: Sequence[str]) -> Mapping[str, str]:
    """The lanes, dealt out to the owners like cards."""
    return {lane: owners[place % len(owners)] for place, lane in enumerate(lanes)} if owners else {}


def every_lane(state: State, lanes: Sequence[str]) -> Sequence[str]:
    """The lanes of the definition, and those with an open batch that it has no more."""
    return [*lanes, *sorted(lane for lane, each in state.lanes.items() if each.open and lane not in lanes)]


def shares(state: State, view: View) -> Mapping[str, str]:
    """Whose each lane should be, among those who are ready and heard; but for those of which nobody may be robbed."""
    ready = [owner["owner"] for owner in state.owners if owner.get("ready") and owner["owner"] not in view.silent]
    kept = {lane for lane, held in state.held.items() if held.owner in view.silent and not view.frees}
    return dealt([lane for lane in every_lane(state, view.lanes) if lane not in kept], ready)


def next_change(state: State, view: View) -> Change:
    """What this run does next. Lanes change hands between batches only, or when their owner is ousted; one that is
    silent and holds nothing is ousted by anybody."""
    oust = tuple(name for name in view.silent if state.owned_by(name) and (view.frees or not state.lanes_of(name)))
    if oust:
        return Change(oust=oust)
    fair = shares(state, view)
    idle = [lane for lane in state.lanes_of(view.me) if lane not in view.busy and not state.lane(lane).open]
    done = tuple(lane for lane in idle if lane in view.exhausted)
    give = tuple(lane for lane in idle if lane not in done and fair.get(lane, view.me) != view.me)
    free = [lane for lane, owner in fair.items() if owner == view.me and lane not in state.held]
    return Change(done=done, give=give, take=tuple(lane for lane in free if view.follows or lane not in state.done))


def unfinished(state: State, view: View) -> bool:
    """Whether there is a lane that may come to this run still: one that is not done, of somebody who does not go on
    for ever by himself, and who gives it back now or whenever he ends or dies."""
    endless = {owner["owner"] for owner in state.owners if owner.get("follow") and owner["owner"] not in view.silent}
    fair = shares(state, view)
    left = [
        lane
        for lane in every_lane(state, view.lanes)
        if lane not in state.done and (view.frees or fair.get(lane) == view.me)
    ]
    return any(lane not in state.held or state.held[lane].owner not in endless for lane in left)
