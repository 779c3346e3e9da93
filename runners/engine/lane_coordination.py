"""How one run shares the lanes of a pipeline with other runs: it reads their entries, takes lanes and gives them back.

`decide_change` is pure and decides what to do. A step counts only after it is recorded.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from runners.engine.batch_planner import BatchPlanner
from runners.model.clock import Clock
from runners.model.entry import Entry, OwnerBody
from runners.model.pipeline_state import PipelineState
from runners.state.journal import Journal, Lease
from runners.state.location import StateLocation
from runners.state.ownership import describe_owner, is_dead
from runners.state.process_locks import end_orphan

LOOKS = 10
"""How often during a lease a run looks for entries of the other runs."""
LATE = 3
"""After how many missed intervals a run no longer knows which other runs were silent."""
log = logging.getLogger("wherry")


@dataclass(eq=False, kw_only=True)
class LaneCoordination:
    """One of the runs that share a pipeline. Only the thread that owns progress uses it."""

    journal: Journal
    tenure: Lease
    place: StateLocation
    lanes: Sequence[str]
    definition: str = ""
    """The hash of the definition, which all these runs have."""
    frees: bool = True
    follows: bool = False
    bury: Callable[[OwnerBody], None] = end_orphan
    """Ends processes that an ousted owner may have left running."""
    again: Callable[[BatchPlanner, Collection[str]], BatchPlanner] = lambda source, _: source
    """Returns the planner after it read the backlogs of these origins again, for lanes that another run had."""

    def __post_init__(self) -> None:
        self.clock: Clock = self.tenure.clock
        self.view = LaneView(me=self.journal.owner, lanes=self.lanes, frees=self.frees, follows=self.follows)
        self.every = self.tenure.busy / LOOKS
        self.next = self.clock.elapsed()
        self._met: frozenset[str] = frozenset()
        """The owners that were present when this run last read the backlogs."""
        self._last_signs: dict[str, tuple[int, float]] = {}
        """The last entry of each other run, and when this run first saw it, by the clock."""

    @property
    def alone(self) -> bool:
        return len(self.journal.state.owners) == 1

    @property
    def has_newcomers(self) -> bool:
        """Whether another run joined since this run last read the backlogs. It may have seen more rows."""
        return any(owner.owner not in self._met for owner in self.journal.state.owners)

    def note_survey(self) -> None:
        """Note that all present runs have seen the same rows."""
        self._met = frozenset(owner.owner for owner in self.journal.state.owners)

    @property
    def left(self) -> OwnerBody | None:
        """A silent owner that keeps its lanes nevertheless, or None."""
        state = self.journal.state
        kept = (state.find_owner(name) for name in self.view.silent if not self.view.frees and state.lanes_of(name))
        return next(kept, None)

    @property
    def has_nothing_to_open(self) -> bool:
        """Whether the first run follows, and has no rows yet that give a schema."""
        owner = self.journal.state.owner or OwnerBody()
        return not self.may_open and bool(owner.follow and owner.ready)

    @property
    def may_open(self) -> bool:
        """Whether this run may open the pipeline: it came first, or another run opened it with the same definition."""
        owner = self.journal.state.owner or OwnerBody()
        return owner.owner == self.view.me or self.journal.state.opened.hash == self.definition

    def await_opening(self, ends: Callable[[], bool]) -> None:
        """Return when this run may open the pipeline, when there is nothing to open, or when `ends` is true."""
        while not (ends() or self.may_open or self.has_nothing_to_open):
            self.clock.wait(min(1.0, self.every))
            self.read_others()
            self.change_lanes()
            if self.clock.elapsed() >= self.tenure.due:
                self.journal.renew(busy=False)

    def begin(self) -> None:
        """Ask for a share of the lanes, with the lease of a busy run."""
        self.journal.record(Entry(kind="renew", body={"lease": self.tenure.busy, "ready": True}))

    def release_lanes(self) -> None:
        """Give all lanes back, maybe for long, with the lease of an idle run."""
        lanes = list(self.journal.state.lanes_of(self.view.me))
        given = [Entry(kind="give", body={"lanes": lanes, "done": False})] if lanes else []
        self.journal.record(*given, Entry(kind="renew", body={"lease": self.tenure.idle, "ready": False}))

    def read_others(self) -> None:
        """Read the entries of the other runs. Raises `Fenced` if they ousted this run."""
        self.journal.refresh()
        now = self.clock.elapsed()
        if now > self.next + LATE * self.every:  # a run that did not look for long cannot know which runs were silent
            self._last_signs.clear()
        self.next = now + self.every
        self._note_signs(now)

    def change_lanes(self, busy: Collection[str] = (), exhausted: Collection[str] = ()) -> Sequence[str]:
        """Change lanes as `decide_change` decides. Return the lanes that were taken."""
        taken: list[str] = []
        while True:
            self._note_signs(self.clock.elapsed())
            silent = frozenset(self._list_silent(self.clock.elapsed()))
            over = frozenset() if self.has_newcomers else frozenset(exhausted)
            self.view = replace(self.view, silent=silent, busy=frozenset(busy), exhausted=over)
            change = decide_change(self.journal.state, self.view)
            gone = [owner for owner in self.journal.state.owners if owner.owner in change.oust]
            if not change:
                return taken
            if self.journal.attempt(*_make_entries(change)):
                taken += change.take
                for owner in gone:
                    log.warning(
                        "%s is dead, or was silent for a whole lease: other runs take its lanes", describe_owner(owner)
                    )
                    self.bury(owner)

    def _note_signs(self, now: float) -> None:
        for owner in self.journal.state.owners:
            if self._last_signs.get(owner.owner, (0, now))[0] != owner.heard:
                self._last_signs[owner.owner] = (owner.heard, now)

    def _list_silent(self, now: float) -> Iterator[str]:
        for owner in self.journal.state.owners:
            over = owner.lease is not None and now - self._last_signs[owner.owner][1] >= owner.lease
            if owner.owner != self.view.me and (over or is_dead(owner, self.place)):
                yield owner.owner

    def list_kept_lanes(self) -> Collection[str]:
        """Return the lanes in which this run may plan a batch: those that it holds and no other run waits for."""
        state = self.journal.state
        fair = divide_lanes(state, self.view)
        return {lane for lane in state.lanes_of(self.view.me) if fair.get(lane, self.view.me) == self.view.me}

    @property
    def unfinished(self) -> bool:
        """Whether this run may still get lanes of other runs."""
        return has_unfinished(self.journal.state, self.view)


def _make_entries(change: LaneChange) -> Iterator[Entry]:
    if change.oust:
        yield Entry(kind="oust", body={"owners": list(change.oust)})
    if change.done:
        yield Entry(kind="give", body={"lanes": list(change.done), "done": True})
    if change.give:
        yield Entry(kind="give", body={"lanes": list(change.give), "done": False})
    if change.take:
        yield Entry(kind="take", body={"lanes": list(change.take)})


@dataclass(frozen=True, kw_only=True)
class LaneView:
    """What one run knows in addition to the ledger."""

    me: str
    lanes: Sequence[str]
    """The lanes of the definition, in the order in which they are dealt."""
    silent: Collection[str] = ()
    """The owners that are dead, or were silent for a whole lease."""
    busy: Collection[str] = ()
    """The lanes with a batch of this run in flight."""
    exhausted: Collection[str] = ()
    """The lanes in which this run has nothing left."""
    frees: bool = True
    """Whether this run takes the lanes of a silent owner."""
    follows: bool = False
    """Whether this run follows, so that no lane is ever done for it."""


@dataclass(frozen=True, kw_only=True)
class LaneChange:
    """What to record, in this order. Empty if every lane has its right owner."""

    oust: tuple[str, ...] = ()
    """The owners to oust."""
    done: tuple[str, ...] = ()
    """The lanes to give back because nothing is left in them."""
    give: tuple[str, ...] = ()
    take: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.oust or self.done or self.give or self.take)


def deal_lanes(lanes: Sequence[str], owners: Sequence[str]) -> Mapping[str, str]:
    """Deal the lanes to the owners in turn."""
    return {lane: owners[place % len(owners)] for place, lane in enumerate(lanes)} if owners else {}


def list_lanes(state: PipelineState, lanes: Sequence[str]) -> Sequence[str]:
    """Return the lanes of the definition, and lanes with an open batch that it no longer has."""
    known = frozenset(lanes)
    return [*lanes, *sorted(lane for lane, each in state.lanes.items() if each.open and lane not in known)]


def divide_lanes(state: PipelineState, view: LaneView) -> Mapping[str, str]:
    """Return the right owner of each lane, among the owners that are ready and not silent.

    Lanes that a silent owner keeps are left out.
    """
    ready = [owner.owner for owner in state.owners if owner.ready and owner.owner not in view.silent]
    kept = {lane for lane, held in state.held.items() if held.owner in view.silent and not view.frees}
    return deal_lanes([lane for lane in list_lanes(state, view.lanes) if lane not in kept], ready)


def decide_change(state: PipelineState, view: LaneView) -> LaneChange:
    """Return what this run does next.

    A lane changes its owner only between batches, or when its owner is ousted. Any run may oust an owner that is silent
    and has no lanes.
    """
    oust = tuple(name for name in view.silent if state.find_owner(name) and (view.frees or not state.lanes_of(name)))
    if oust:
        return LaneChange(oust=oust)
    fair = divide_lanes(state, view)
    idle = [lane for lane in state.lanes_of(view.me) if lane not in view.busy and not state.get_lane(lane).open]
    done = tuple(lane for lane in idle if lane in view.exhausted)
    give = tuple(lane for lane in idle if lane not in done and fair.get(lane, view.me) != view.me)
    free = [lane for lane, owner in fair.items() if owner == view.me and lane not in state.held]
    return LaneChange(done=done, give=give, take=tuple(lane for lane in free if view.follows or lane not in state.done))


def has_unfinished(state: PipelineState, view: LaneView) -> bool:
    """Whether this run may still get a lane.

    Such a lane is not done. Its owner does not follow, and gives it back now, or when it ends or dies.
    """
    endless = {owner.owner for owner in state.owners if owner.follow and owner.owner not in view.silent}
    fair = divide_lanes(state, view)
    left = [
        lane
        for lane in list_lanes(state, view.lanes)
        if lane not in state.done and (view.frees or fair.get(lane) == view.me)
    ]
    return any(lane not in state.held or state.held[lane].owner not in endless for lane in left)
