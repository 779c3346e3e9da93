"""Whether a run may take the pipeline: from nobody, from one that is dead, or after a whole lease without a word.

Times of day are compared only to refuse: two clocks may differ by minutes. To take, a whole lease must pass on this
machine's own clock, from the moment at which the owner's last entry was seen here.
"""

from __future__ import annotations

import logging
import socket
from dataclasses import field
from datetime import datetime

from origins.quick_dataclass import dataclass
from runners.model.clock import Clock
from runners.model.entry import OwnerBody
from runners.model.errors import Owned
from runners.model.pipeline_state import PipelineState
from runners.state.journal import Journal
from runners.state.location import StateLocation
from runners.state.process_locks import StateLock, identify_host, is_process_alive

PAUSE = 1.0
"""How long one waits between two looks for a word of the owner, in seconds."""
_WAIT = "Wait for it, or stop it:  wherry stop FILE"
log = logging.getLogger("wherry")


@dataclass(kw_only=True)
class Takeover:
    """A run that wants a pipeline, or a share of its lanes."""

    pipeline: str
    place: StateLocation
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
        if self._can_join(journal.state):
            return True
        if not owners and self.assignment == "single" and self.lock.path != self.place.lock:
            raise Owned(f"{self.pipeline} is running already on this host.", hint=_WAIT)
        for owner in owners:
            self._await_end(journal, owner)
        return False

    def _can_join(self, state: PipelineState) -> bool:
        """Whether all who have it share its lanes as this run would, nobody asked them to stop, and somebody may be
        alive."""
        who = state.owners
        alike = all((owner.get("assignment"), owner.get("hash")) == (self.assignment, self.hash) for owner in who)
        alive = any(not is_dead(owner, self.place, self.lock) for owner in who)
        return self.assignment != "single" and not state.stopping and alike and alive

    def _await_end(self, journal: Journal, owner: OwnerBody) -> None:
        """Return once this owner is not waited for any more."""
        name = owner["owner"]
        if owner.get("assignment") == "local_only" and not self.take_over and journal.state.lanes_of(name):
            raise make_kept_error(self.pipeline, journal.state, owner)
        if self._is_free(owner) or self._outlasted.get(name) == owner["heard"]:
            return
        strange = bool(self._present) and (name not in self._present or name in self._outlasted)
        if strange or owner.get("lease") is None or has_live_lease(owner, self.clock):
            raise self._make_owned_error(owner)
        log.warning(
            "%s belongs to %s, which was last heard at %s: waiting %.0f s for a sign of it",
            self.pipeline,
            describe_owner(owner),
            owner["heard_at"],
            owner["lease"],
        )
        self._present = self._present or frozenset(other["owner"] for other in journal.state.owners)
        if not self._is_silent(journal, owner):
            raise self._make_owned_error(journal.state.find_owner(name) or journal.state.owner or owner)
        self._outlasted[name] = owner["heard"]

    def _is_free(self, owner: OwnerBody) -> bool:
        """Whether nothing is to be waited for."""
        if owner.get("ownership") == "off" or is_dead(owner, self.place, self.lock):
            return True
        return bool(self.take_over) and owner["host"] != socket.gethostname()

    def _is_silent(self, journal: Journal, owner: OwnerBody) -> bool:
        """Whether this owner says nothing for a whole lease."""
        until = self.clock.elapsed() + (owner["lease"] or 0.0)
        over = False
        while not over:
            self.clock.wait(max(0.0, min(PAUSE, until - self.clock.elapsed())))
            over = self.clock.elapsed() >= until
            journal.catch_up()
            now = journal.state.find_owner(owner["owner"])
            if now is None:
                return journal.state.owner is None
            if is_dead(now, self.place, self.lock):
                return True
            if now["heard"] != owner["heard"]:
                return False
        return True

    def _make_owned_error(self, owner: OwnerBody) -> Owned:
        if owner["host"] == socket.gethostname():
            return Owned(
                f"{self.pipeline} is running already on this host: process {owner['pid']}, since {owner['at']}, last "
                f"heard at {owner['heard_at']}.",
                hint=_WAIT,
            )
        return Owned(
            f"{self.pipeline} is running on another host: {describe_owner(owner)}, since {owner['at']}, last heard at "
            f"{owner['heard_at']}.",
            hint=f'{_WAIT}\nIf that run has surely ended:  --take-over "why you know"',
        )


def make_kept_error(pipeline: str, state: PipelineState, owner: OwnerBody) -> Owned:
    lanes = ", ".join(state.lanes_of(owner["owner"]))
    return Owned(
        f"Lanes {lanes} of {pipeline} belong to {describe_owner(owner)}, since {owner['at']}, last heard at "
        f"{owner['heard_at']}. With run.assignment local_only no other run takes them over by itself.",
        hint=f'{_WAIT}\nIf that run has surely ended:  --take-over "why you know"',
    )


def is_run(state: PipelineState, place: StateLocation, clock: Clock) -> bool:
    """Whether the pipeline is running, as far as that is known without waiting."""
    return any(is_owner_alive(owner, place, clock) for owner in state.owners)


def is_owner_alive(owner: OwnerBody, place: StateLocation, clock: Clock) -> bool:
    if is_dead(owner, place):
        return False
    if owner.get("ownership") == "off" and owner["boot"] == identify_host()["boot"]:
        return is_process_alive(owner["pid"], owner["started"])
    return owner.get("ownership") == "off" or has_live_lease(owner, clock)


def has_live_lease(owner: OwnerBody, clock: Clock) -> bool:
    """Whether the owner's lease is not over yet, by the time of day on both machines. One that knows no lease seems to
    be alive for ever."""
    lease = owner.get("lease")
    if lease is None:
        return owner.get("ownership") != "off"
    silent = (clock.now() - datetime.fromisoformat(owner["heard_at"])).total_seconds()
    return bool(silent < lease)


def is_dead(owner: OwnerBody, place: StateLocation, mine: StateLock | None = None) -> bool:
    """Whether the owner is surely dead: it ran on this host, and nobody but `mine` has the lock that it had.

    A file that is missing proves nothing. A state in a directory has its locks beside it. Of a state elsewhere they are
    in a folder for temporary files. Another host of this name has another such folder, and so may another process of
    this host. There only the very file that the owner recorded proves anything.
    """
    if owner["host"] != socket.gethostname() or owner.get("ownership") == "off":
        return False
    file = place.lock.with_name(str(owner.get("lock") or place.lock.name))
    identity = "" if place.directory is not None else str(owner.get("lock_file") or "")
    if place.directory is None and (not identity or owner["boot"] != identify_host()["boot"]):
        return False
    if mine is not None and mine.path == file:
        return identity in ("", mine.identity)
    return StateLock(file).is_held(identity) is False


def describe_owner(owner: OwnerBody) -> str:
    return f"{owner['host']}, process {owner['pid']}"
