"""The right to carry a pipeline for a while: its owner renews it with each entry, and its runners begin no write
without it. Durations, on the one clock of this process; nothing is read or written here."""

from __future__ import annotations

import threading
from collections.abc import Callable

from destinations.deadline import Late
from runners.clock import Clock

IDLE = 10
"""How many times longer the lease of an owner is that has nothing in flight, or has yet to open the pipeline."""
RENEWALS = 3
"""How often a lease could be renewed before it is over: so many words may be late, but for one."""
ENOUGH = 1 / 4
"""The share of a lease that must be left for a write to begin; with less one waits for the next word."""
PATIENCE = 30.0
"""How many seconds one waits for it."""


class Tenure:
    """One owner's lease. The dispatcher's thread renews it; runners ask how much is left of it."""

    def __init__(self, clock: Clock, seconds: float) -> None:
        self.clock = clock
        self.busy = seconds
        """How long the lease is while batches are in flight."""
        self.idle = IDLE * seconds
        """How long it is otherwise."""
        self.lease = self.idle
        """How long it is now, as the ledger says."""
        self.until = float("-inf")
        """When it is over, by the clock."""
        self.lost = False
        """Whether somebody else has the pipeline."""
        self.wake: Callable[[], None] = lambda: None
        """How to make the owner renew it at once."""
        self._changed = threading.Condition()

    @property
    def due(self) -> float:
        """When it is time for a word, by the clock."""
        return self.until - self.lease + self.lease / RENEWALS

    def renewed(self, began: float, lease: float) -> None:
        """An entry of ours has landed, whose append began then: nobody has seen it before."""
        with self._changed:
            self.lease, self.until = lease, began + lease
            self._changed.notify_all()

    def lose(self) -> None:
        """Somebody else has it."""
        with self._changed:
            self.lost, self.until = True, float("-inf")
            self._changed.notify_all()

    def left(self) -> float:
        """How many seconds are left of it; none, or less, once it is over."""
        return self.until - self.clock.elapsed()

    def secure(self) -> None:
        """Return while enough of it is left to begin a write. A machine that has slept renews it first. Raises `Late`
        if it is over, and stays so."""
        if self._holds() or self.lost:
            self._check()
            return
        self.wake()
        with self._changed:
            self._changed.wait_for(lambda: self.lost or self._holds(), timeout=PATIENCE)
        self._check()

    def _holds(self) -> bool:
        return self.left() >= min(self.busy, self.lease) * ENOUGH

    def _check(self) -> None:
        if self.lost or self.left() <= 0:
            raise Late()
