"""Whether a run may take the pipeline: from nobody, from one that is dead, or after a whole lease without a word.

Times of day are compared only to refuse: two clocks may differ by minutes. To take, a whole lease must pass on this
machine's own clock, from the moment at which the owner's last entry was seen here.
"""

from __future__ import annotations

import logging
import socket
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime

from origins.batch import JSON
from runners.clock import Clock
from runners.errors import Owned
from runners.journal import Journal
from runners.owners.ownership import StateLock, host_identity, process_alive
from runners.place import Place
from runners.state import State

PAUSE = 1.0
"""How long one waits between two looks for a word of the owner, in seconds."""
_WAIT = "Wait for it, or stop it:  wherry stop FILE"
log = logging.getLogger("wherry")


@dataclass(kw_only=True)
class Taking:
    """A run that wants a pipeline, or a share of its lanes."""

    pipeline: str
    place: Place
    lock: StateLock
    """The lock that this run has: the state's, or one of its own where somebody has that, or where lanes are shared."""
    clock: Clock
    take_over: str = ""
    """Why its owner on another host is surely gone."""
    assignment: str = "single"
    """How it shares the lanes with others; `single`: it does not."""
    hash: str = ""
    """Of its definition: only runs of the same one share their lanes."""
    _present: frozenset[str] = frozenset()
    """The owners that there were when the first of them was waited for."""
    _outlasted: dict[str, int] = field(default_factory=dict)
    """The owners for each of which a whole lease was waited, and their last words."""

    def may(self, journal: Journal) -> bool:
        """Return once it may be taken, or is to be joined, which is true then; waits for a word of each owner, up to a
        lease. Raises `Owned` as soon as one that cannot be joined is seen to live."""
        owners = journal.state.owners
        if self._joins(journal.state):
            return True
        if not owners and self.assignment == "single" and self.lock.path != self.place.lock:
            raise Owned(f"{self.pipeline} is being run already, on this host.", hint=_WAIT)
        for owner in owners:
            self._outlast(journal, owner)
        return False

    def _joins(self, state: State) -> bool:
        """Whether all who have it share its lanes as this run would, nobody asked them to stop, and somebody may be
        alive."""
        who = state.owners
        alike = all((each.get("assignment"), each.get("hash")) == (self.assignment, self.hash) for each in who)
        alive = any(not is_dead(each, self.place, self.lock) for each in who)
        return self.assignment != "single" and not state.stopping and alike and alive

    def _outlast(self, journal: Journal, owner: Mapping[str, JSON]) -> None:
        """Return once this owner is not waited for any more."""
        name = owner["owner"]
        if owner.get("assignment") == "local_only" and not self.take_over and journal.state.lanes_of(name):
            raise kept(self.pipeline, journal.state, owner)
        if self._is_free(owner) or self._outlasted.get(name) == owner["heard"]:
            return
        strange = bool(self._present) and (name not in self._present or name in self._outlasted)
        if strange or owner.get("lease") is None or seems_alive(owner, self.clock):
            raise self._owned(owner)
        log.warning(
            "%s is run by %s, which has said nothing since %s: waiting %.0f s for a word of it",
            self.pipeline,
            named(owner),
            owner["heard_at"],
            owner["lease"],
        )
        self._present = self._present or frozenset(each["owner"] for each in journal.state.owners)
        if not self._is_silent(journal, owner):
            raise self._owned(journal.state.owned_by(name) or journal.state.owner or owner)
        self._outlasted[name] = owner["heard"]

    def _is_free(self, owner: Mapping[str, JSON]) -> bool:
        """Whether nothing is to be waited for."""
        if owner.get("ownership") == "off" or is_dead(owner, self.place, self.lock):
            return True
        return bool(self.take_over) and owner["host"] != socket.gethostname()

    def _is_silent(self, journal: Journal, owner: Mapping[str, JSON]) -> bool:
        """Whether this owner says nothing for a whole lease."""
        until = self.clock.elapsed() + owner["lease"]
        over = False
        while not over:
            self.clock.wait(max(0.0, min(PAUSE, until - self.clock.elapsed())))
            over = self.clock.elapsed() >= until
            journal.look()
            now = journal.state.owned_by(owner["owner"])
            if now is None:
                return journal.state.owner is None
            if is_dead(now, self.place, self.lock):
                return True
            if now["heard"] != owner["heard"]:
                return False
        return True

    def _owned(self, owner: Mapping[str, JSON]) -> Owned:
        if owner["host"] == socket.gethostname():
            return Owned(
                f"{self.pipeline} is being run already, on this host: process {owner['pid']}, since {owner['at']}; "
                f"its last word is of {owner['heard_at']}.",
                hint=_WAIT,
            )
        return Owned(
            f"{self.pipeline} is run by another host: {named(owner)}, since {owner['at']}; "
            f"its last word is of {owner['heard_at']}.",
            hint=f'{_WAIT}\nIf that run is surely gone:  --take-over "why you know"',
        )


def kept(pipeline: str, state: State, owner: Mapping[str, JSON]) -> Owned:
    """What is said of an owner whose lanes stay its own."""
    lanes = ", ".join(state.lanes_of(owner["owner"]))
    return Owned(
        f"Lanes {lanes} of {pipeline} belong to {named(owner)}, since {owner['at']}; run.assignment is "
        f"local_only, so nobody takes them over until told. Its last word is of {owner['heard_at']}.",
        hint=f'{_WAIT}\nIf that run is surely gone:  --take-over "why you know"',
    )


def lives(state: State, place: Place, clock: Clock) -> bool:
    """Whether somebody runs the pipeline, as far as that can be told without waiting for a word."""
    return any(owner_lives(owner, place, clock) for owner in state.owners)


def owner_lives(owner: Mapping[str, JSON], place: Place, clock: Clock) -> bool:
    """Whether this owner does."""
    if is_dead(owner, place):
        return False
    if owner.get("ownership") == "off" and owner["boot"] == host_identity()["boot"]:
        return process_alive(owner["pid"], owner["started"])
    return owner.get("ownership") == "off" or seems_alive(owner, clock)


def seems_alive(owner: Mapping[str, JSON], clock: Clock) -> bool:
    """Whether the owner's lease is not over yet, by the time of day on both machines. One that knows no lease seems to
    be alive for ever."""
    lease = owner.get("lease")
    if lease is None:
        return owner.get("ownership") != "off"
    silent = (clock.now() - datetime.fromisoformat(owner["heard_at"])).total_seconds()
    return bool(silent < lease)


def is_dead(owner: Mapping[str, JSON], place: Place, mine: StateLock | None = None) -> bool:
    """Whether the owner is surely dead: it ran on this host, and nobody but `mine` has the lock that it had.

    A file that is missing proves nothing. Of a state elsewhere the lock lies in a folder for temporary files: there
    another host of this name has another one.
    """
    if owner["host"] != socket.gethostname() or owner.get("ownership") == "off":
        return False
    file = place.lock.with_name(str(owner.get("lock") or place.lock.name))
    if place.directory is None and owner["boot"] != host_identity()["boot"]:
        return False
    return (mine is not None and mine.path == file) or StateLock(file).held() is False


def named(owner: Mapping[str, JSON]) -> str:
    """The owner, as a person would name it."""
    return f"{owner['host']}, process {owner['pid']}"
