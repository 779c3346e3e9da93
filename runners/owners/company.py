"""The runs that share the lanes of a pipeline, as one of them sees the others: it listens to them, takes lanes and
gives them back. What is to be done is decided in `assignment`; each step is recorded before it counts."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import replace

from origins.batch import JSON
from runners.clock import Clock
from runners.journal import Journal
from runners.ledgers.entry import Entry
from runners.owners.assignment import Change, View, next_change, shares, unfinished
from runners.owners.ownership import end_orphan
from runners.owners.taking import is_dead, named
from runners.owners.tenure import Tenure
from runners.place import Place
from runners.source import Source

LOOKS = 10
"""How often in a lease one looks what the others have recorded."""
LATE = 3
"""Who looks so many times later than that has not listened."""
log = logging.getLogger("wherry")


class Company:
    """One run among those that share a pipeline. Used by the thread that owns progress alone."""

    def __init__(
        self,
        *,
        journal: Journal,
        tenure: Tenure,
        place: Place,
        lanes: Sequence[str],
        definition: str = "",
        frees: bool = True,
        follows: bool = False,
        bury: Callable[[Mapping[str, JSON]], None] = end_orphan,
    ) -> None:
        self.journal = journal
        self.clock: Clock = tenure.clock
        self.place = place
        self.definition = definition
        """The hash of the definition, which is that of all of them."""
        self.bury = bury
        """Ends what an owner that is ousted may have left running."""
        self.again: Callable[[Source, Collection[str]], Source] = lambda source, _: source
        """The same to plan from, with what waits at these origins now, for lanes that were another run's."""
        self.view = View(me=journal.owner, lanes=lanes, frees=frees, follows=follows)
        self.every = tenure.busy / LOOKS
        self.next = self.clock.elapsed()
        """When it is time to look."""
        self._met: frozenset[str] = frozenset()
        """Who was there when this run looked at what waits."""
        self._heard: dict[str, tuple[int, float]] = {}
        """The last word of each of the others, and when it was first seen, by the clock."""

    @property
    def alone(self) -> bool:
        """Whether there are no others."""
        return len(self.journal.state.owners) == 1

    @property
    def strangers(self) -> bool:
        """Whether somebody came since this run looked at what waits: he may have seen more."""
        return any(owner["owner"] not in self._met for owner in self.journal.state.owners)

    def surveys(self) -> None:
        """What is looked at from now on is what all see who are here now."""
        self._met = frozenset(owner["owner"] for owner in self.journal.state.owners)

    @property
    def left(self) -> Mapping[str, JSON] | None:
        """An owner that says nothing any more and keeps its lanes all the same; None if there is none."""
        state = self.journal.state
        kept = (state.owned_by(name) for name in self.view.silent if not self.view.frees and state.lanes_of(name))
        return next(kept, None)

    @property
    def has_nothing_to_open(self) -> bool:
        """Whether who came first follows, and has seen nothing yet from which a schema could be told."""
        owner = self.journal.state.owner or {}
        return not self.may_open and bool(owner.get("follow") and owner.get("ready"))

    @property
    def may_open(self) -> bool:
        """Whether this run may open the pipeline: the others have, with the same definition, or it came first."""
        owner = self.journal.state.owner or {}
        return owner.get("owner") == self.view.me or self.journal.state.opened.get("hash") == self.definition

    def await_opening(self, ends: Callable[[], bool]) -> None:
        """Return once this run may open the pipeline, or there is nothing to open, or `ends` says that it is not to."""
        while not (ends() or self.may_open or self.has_nothing_to_open):
            self.clock.wait(min(1.0, self.every))
            self.look()
            self.change()
            if self.journal.tenure and self.clock.elapsed() >= self.journal.tenure.due:
                self.journal.renew(busy=False)

    def begin(self) -> None:
        """Ask for a share, with the lease of one that is at work."""
        lease = self.journal.tenure.busy if self.journal.tenure else None
        self.journal.record(Entry(kind="renew", body={"lease": lease, "ready": True}))

    def rest(self) -> None:
        """Give all lanes back for a while that may be long, with the lease of one that is idle."""
        lanes = list(self.journal.state.lanes_of(self.view.me))
        lease = self.journal.tenure.idle if self.journal.tenure else None
        given = [Entry(kind="give", body={"lanes": lanes, "done": False})] if lanes else []
        self.journal.record(*given, Entry(kind="renew", body={"lease": lease, "ready": False}))

    def look(self) -> None:
        """Hear what the others have said. Raises `Fenced` when they have ousted this run."""
        self.journal.refresh()
        now = self.clock.elapsed()
        if now > self.next + LATE * self.every:  # who did not listen, asleep say, cannot tell who was silent
            self._heard.clear()
        self.next = now + self.every
        self._note(now)

    def change(self, busy: Collection[str] = (), exhausted: Collection[str] = ()) -> Sequence[str]:
        """Do what is to be done about the lanes; those that were taken."""
        taken: list[str] = []
        while True:
            self._note(self.clock.elapsed())
            silent = frozenset(self._silent(self.clock.elapsed()))
            over = frozenset() if self.strangers else frozenset(exhausted)
            self.view = replace(self.view, silent=silent, busy=frozenset(busy), exhausted=over)
            change = next_change(self.journal.state, self.view)
            gone = [owner for owner in self.journal.state.owners if owner["owner"] in change.oust]
            if not change:
                return taken
            if self.journal.attempt(*_entries(change)):
                taken += change.take
                for owner in gone:
                    log.warning("%s is dead, or said nothing for a whole lease: others take its lanes", named(owner))
                    self.bury(owner)

    def _note(self, now: float) -> None:
        for owner in self.journal.state.owners:
            if self._heard.get(owner["owner"], (0, now))[0] != owner["heard"]:
                self._heard[owner["owner"]] = (owner["heard"], now)

    def _silent(self, now: float) -> Iterator[str]:
        for owner in self.journal.state.owners:
            over = owner["lease"] is not None and now - self._heard[owner["owner"]][1] >= owner["lease"]
            if owner["owner"] != self.view.me and (over or is_dead(owner, self.place)):
                yield owner["owner"]

    def keeps(self) -> Collection[str]:
        """The lanes of which this run may plan a batch: its own, but for those that others wait for."""
        state = self.journal.state
        fair = shares(state, self.view)
        return {lane for lane in state.lanes_of(self.view.me) if fair.get(lane, self.view.me) == self.view.me}

    @property
    def unfinished(self) -> bool:
        """Whether lanes of the others may come to this run still."""
        return unfinished(self.journal.state, self.view)


def _entries(change: Change) -> Iterator[Entry]:
    if change.oust:
        yield Entry(kind="oust", body={"owners": list(change.oust)})
    if change.done:
        yield Entry(kind="give", body={"lanes": list(change.done), "done": True})
    if change.give:
        yield Entry(kind="give", body={"lanes": list(change.give), "done": False})
    if change.take:
        yield Entry(kind="take", body={"lanes": list(change.take)})
