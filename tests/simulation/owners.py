"""Many hosts that want one pipeline.

They freeze and continue at any moment, sleep through their leases, and their clocks differ. The dispatcher, the
journal, the lease and the rules of takeovers are the real ones.
"""

from __future__ import annotations

import random
from collections.abc import Generator
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

from destinations.labels import Late
from origins.batch import JSON
from runners.model.errors import Fenced, Owned
from runners.model.spec import FOR_EVER, RetryOptions
from runners.state.journal import Journal, Lease
from runners.state.location import StateLocation
from runners.state.ownership import Takeover
from runners.state.process_locks import StateLock
from tests.manual_clock import ManualClock
from tests.simulation.world import Broken, Killed, Process, SharedLedger, Transaction, World

LEASE = 10.0
PLACE = StateLocation(directory=Path("/nowhere"), schema="", name="numbers")


class HostClock(ManualClock):
    """The clocks of one host. Each host's clocks begin at another value, and all run at the same speed."""

    def __init__(self, world: Owners) -> None:
        skew = timedelta(minutes=world.rng.uniform(-20, 20))
        super().__init__(time=datetime.now(timezone.utc) + skew, seconds=world.rng.uniform(0, 1e6))
        self.world = world

    def wait(self, seconds: float) -> None:
        self.world.passes(seconds * self.world.rng.choice([1, 10]))
        self.world.meanwhile()


class Owner(Process):
    """A process on a separate host."""

    world: Owners

    def acquire(self) -> None:
        world = self.world
        self.frozen = False
        self.host = f"host-{len(world.clocks)}"
        self.clock = HostClock(world)
        world.clocks.append(self.clock)
        self.tenure = Lease(self.clock, LEASE)
        journal = self.journal = Journal(SharedLedger(world, world.ledger), self.tenure)
        self.take(journal, {"host": self.host, "boot": "", "pid": 1, "started": "", "jvm": None})

    def take(self, journal: Journal, who: dict[str, JSON]) -> None:
        """Take the pipeline as soon as that is allowed."""
        world = self.world
        taking = Takeover(pipeline="numbers", place=PLACE, lock=StateLock(PLACE.lock), clock=self.clock)
        if world.protections.lease:
            journal.acquire({"pipeline": "numbers", **who}, may=taking.may)
        else:
            journal.acquire({"pipeline": "numbers", **who})

    def begin(self, key: str, transaction: Transaction) -> Generator[None, None, None]:
        """Make the frame, let the JVM read the table, and then read the clock. Other processes may act in between."""
        world = self.world
        if world.protections.deadline and self.tenure.count_seconds_left() <= 0:
            raise Broken("late")
        until = world.now + self.tenure.count_seconds_left()
        yield

        def in_time() -> bool:
            return not world.protections.deadline or world.now < until

        if not world.protections.judged_last:
            self._check(in_time())
            yield
        else:
            transaction.in_time = in_time
        transaction.fences = transaction.table.fences
        self.transactions[key] = transaction
        yield
        if not transaction.in_time():
            del self.transactions[key]
        self._check(transaction.in_time())
        transaction.in_time = lambda: True

    def _check(self, in_time: bool) -> None:
        if not in_time:
            raise Broken("late") from Late()


class Owners(World):
    """The hosts, with a time that is common to all."""

    lands = 0.1
    """The probability, at each moment, that a write of a frozen or dead process lands."""

    def __init__(self, rng: random.Random, **shape: Any) -> None:
        super().__init__(rng, retries=True, **shape)
        self.now = 0.0
        self.clocks: list[ManualClock] = []
        self.owners: list[Owner] = []
        self.waits = False
        """Whether a process waits for an entry of the owner."""
        self.fenced = 0
        self.refused = 0

    def run(self) -> None:
        """Run until all rows are processed, and all processes that had the pipeline have ended."""
        for _ in range(20_000):
            done = [owner for owner in self.owners if owner.over and self._carried(owner)]
            if done:
                self._wake_all(done[0])
                return
            self._goes_on()
        raise AssertionError("the load never ends")

    def _goes_on(self) -> None:
        awake = [owner for owner in self.owners if not owner.frozen]
        dice = self.rng.random()
        if self.orphans and dice < 0.1:
            self._orphan_ends()
        elif not awake and (not self.owners or dice < 0.6):
            self._starts()
        elif not awake:
            self._thaws(self.rng.choice(self.owners))
        elif self.faults and dice < 0.2:
            self.faults -= 1
            self._goes_wrong(self.rng.choice(awake))
        else:
            self._moves(self.rng.choice(awake))

    def _goes_wrong(self, owner: Owner) -> None:
        what = self.rng.choice(["freeze", "freeze", "sleep", "another", "kill"])
        if what == "freeze":
            owner.frozen = True
        elif what == "sleep":
            self.passes(self.rng.uniform(0, 100 * LEASE))
        elif what == "another":
            self._starts()
        else:
            self._ends(owner)

    def passes(self, seconds: float) -> None:
        """Let time pass for all processes, including sleeping ones. The JVM of a frozen Python process may continue."""
        self.now += seconds
        for clock in self.clocks:
            clock.move(seconds)
        for owner in [owner for owner in self.owners if owner.frozen]:
            for transaction in owner.transactions.values():
                if self.rng.random() < self.lands:
                    transaction.land()

    def meanwhile(self) -> None:
        """Let the other processes act while one waits for an entry. One of them may continue from its freeze."""
        for owner in [*self.owners]:
            if owner.frozen and self.rng.random() < 0.01:
                self._thaws(owner)
            elif not owner.frozen:
                self._moves(owner)

    def _starts(self) -> None:
        """Start a process that wants the pipeline. It is refused while the owner is alive."""
        if self.waits:
            return
        self.waits = True
        try:
            self.alive = True
            self.owners.append(Owner(self, self.definition))
        except Owned:
            self.refused += 1
        except Killed:
            pass
        finally:
            self.waits = False

    def _thaws(self, owner: Owner) -> None:
        owner.frozen = False
        self._moves(owner)

    def _moves(self, owner: Owner) -> None:
        """Let a process take one step, after which it may end."""
        if not self.waits:
            self.passes(self.rng.uniform(0, LEASE / 10))
        owner.dispatcher.resting.retry = RetryOptions(attempts=FOR_EVER, most="3s", within="10000d")
        patience = owner.dispatcher.patience()
        due = patience is not None and patience <= 0
        try:
            if owner.worker_pool.work and self.rng.random() < (0.5 if due else 0.7):
                owner.worker_pool.step(self.rng.choice(sorted(owner.worker_pool.work)))
            else:
                owner.turn()
        except Fenced:
            self.fenced += 1
            self._ends(owner)
        except Killed:
            self._ends(owner)
        if owner.over and not self._carried(owner):
            self._ends(owner)

    def _ends(self, owner: Owner) -> None:
        """End the process. Its JVM may continue."""
        if owner in self.owners:
            self.owners.remove(owner)
        self.definition += self.rng.random() < 0.3
        self.orphans += owner.transactions.values()

    def _wake_all(self, winner: Owner) -> None:
        """End the processes that believe to have the pipeline after all rows are processed.

        Each gets an error, and no more writes land.
        """
        self.faults = 0
        self.owners.remove(winner)
        for owner in [*self.owners]:
            before = self.fenced
            for _ in range(2_000):
                if owner not in self.owners:
                    break
                self._thaws(owner)
            assert self.fenced == before + 1, "an owner that was replaced ends otherwise"
        while self.orphans:
            self._orphan_ends()
