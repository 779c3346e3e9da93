"""Whether a run may take the pipeline: from nobody, from one that is dead, or after a whole lease without a word.

Times of day are compared only to refuse: two clocks may differ by minutes. To take, a whole lease must pass on this
machine's own clock, from the moment at which the owner's last entry was seen here.
"""

from __future__ import annotations

import logging
import socket
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime

from origins.batch import JSON
from runners.clock import Clock
from runners.errors import Owned
from runners.journal import Journal
from runners.ownership import StateLock, host_identity, process_alive
from runners.place import Place
from runners.progress import State

PAUSE = 1.0
"""How long one waits between two looks for a word of the owner, in seconds."""
log = logging.getLogger("wherry")


@dataclass(kw_only=True)
class Taking:
    """A run that wants a pipeline."""

    pipeline: str
    place: Place
    lock: StateLock
    """The lock that this run has: the state's, or one of its own where somebody has that."""
    clock: Clock
    take_over: str = ""
    """Why its owner on another host is surely gone."""
    _outlasted: tuple[str, int] | None = None
    """The owner for which a whole lease was waited, and its last word."""

    def may(self, journal: Journal) -> None:
        """Return once it may be taken; waits for a word of its owner, up to a lease. Raises `Owned` as soon as the
        owner is seen to live."""
        owner = journal.state.owner
        if owner is None and self.lock.path != self.place.lock:
            raise Owned(f"{self.pipeline} is being run already, on this host.", hint="Wait for it, or stop it first.")
        if owner is None or self._is_free(owner) or self._outlasted == (owner["owner"], journal.state.heard):
            return
        if self._outlasted or owner.get("lease") is None or seems_alive(journal.state, self.clock):
            raise self._owned(journal.state)
        log.warning(
            "%s is run by %s, which has said nothing since %s: waiting %.0f s for a word of it",
            self.pipeline,
            named(owner),
            journal.state.heard_at,
            owner["lease"],
        )
        if not self._is_silent(journal):
            raise self._owned(journal.state)
        self._outlasted = (owner["owner"], journal.state.heard)

    def _is_free(self, owner: Mapping[str, JSON]) -> bool:
        """Whether nothing is to be waited for."""
        if owner.get("ownership") == "off" or is_dead(owner, self.place, self.lock):
            return True
        return bool(self.take_over) and owner["host"] != socket.gethostname()

    def _is_silent(self, journal: Journal) -> bool:
        """Whether its owner says nothing for a whole lease."""
        before, until = journal.state, self.clock.elapsed() + (journal.state.owner or {})["lease"]
        over = False
        while not over:
            self.clock.wait(max(0.0, min(PAUSE, until - self.clock.elapsed())))
            over = self.clock.elapsed() >= until
            journal.look()
            owner = journal.state.owner
            if owner is None or is_dead(owner, self.place, self.lock):
                return True
            if journal.state.heard != before.heard:
                return False
        return True

    def _owned(self, state: State) -> Owned:
        owner = state.owner or {}
        if owner["host"] == socket.gethostname():
            return Owned(
                f"{self.pipeline} is being run already, on this host: process {owner['pid']}, since {owner['at']}; "
                f"its last word is of {state.heard_at}.",
                hint="Wait for it, or stop it first.",
            )
        return Owned(
            f"{self.pipeline} is run by another host: {named(owner)}, since {owner['at']}; "
            f"its last word is of {state.heard_at}.",
            hint='Wait for it, or stop it first. If that run is surely gone:  --take-over "why you know"',
        )


def lives(state: State, place: Place, clock: Clock) -> bool:
    """Whether somebody runs the pipeline, as far as that can be told without waiting for a word."""
    owner = state.owner
    if owner is None or is_dead(owner, place):
        return False
    if owner.get("ownership") == "off" and owner["boot"] == host_identity()["boot"]:
        return process_alive(owner["pid"], owner["started"])
    return owner.get("ownership") == "off" or seems_alive(state, clock)


def seems_alive(state: State, clock: Clock) -> bool:
    """Whether the owner's lease is not over yet, by the time of day on both machines. One that knows no lease seems to
    be alive for ever."""
    owner = state.owner
    if owner is None:
        return False
    lease = owner.get("lease")
    if lease is None:
        return owner.get("ownership") != "off"
    silent = (clock.now() - datetime.fromisoformat(state.heard_at)).total_seconds()
    return bool(silent < lease)


def is_dead(owner: Mapping[str, JSON], place: Place, mine: StateLock | None = None) -> bool:
    """Whether the owner is surely dead: it ran on this host, and nobody but `mine` has the lock that it had.

    Of a state elsewhere the lock lies in a folder for temporary files: there another host of this name has another one,
    and a file that is missing was cleaned away.
    """
    if owner["host"] != socket.gethostname() or owner.get("ownership") == "off":
        return False
    file = place.lock.with_name(str(owner.get("lock") or place.lock.name))
    if place.directory is None and (owner["boot"] != host_identity()["boot"] or not file.exists()):
        return False
    return (mine is not None and mine.path == file) or not StateLock(file).held()


def named(owner: Mapping[str, JSON]) -> str:
    """The owner, as a person would name it."""
    return f"{owner['host']}, process {owner['pid']}"
