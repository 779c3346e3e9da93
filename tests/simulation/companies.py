"""Several hosts that share the lanes of one pipeline.

They come and leave, freeze and continue, die, and take lanes of the others. The dispatcher, the journal, the lease and
the rules by which lanes change hands are the real ones.
"""

from __future__ import annotations

import contextlib
import random
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

from origins.batch import JSON
from runners.engine.batch_machine import DeliveryRules
from runners.engine.lane_coordination import LaneCoordination
from runners.model.entry import Entry, Settled
from runners.model.errors import Fenced
from runners.model.pipeline_state import PipelineState
from runners.model.spec import FOR_EVER, RetryOptions
from runners.state.journal import Journal
from runners.state.ownership import Takeover
from runners.state.process_locks import StateLock
from runners.state.progress import apply_entry
from tests.runners.state.ledger.memory_ledger import MemoryLedger
from tests.simulation.owners import LEASE, PLACE, Owner, Owners
from tests.simulation.world import Killed

HASH = "definition"
UNOPENED = "later/0"
"""A lane of an origin that cannot be opened yet."""


class Watched(MemoryLedger):
    """A ledger that checks that only the owner of a lane records entries of it."""

    def __init__(self) -> None:
        super().__init__()
        self.known = PipelineState()
        self.moves = 0
        """How many entries gave or took lanes, or ousted owners."""
        self.settled: Counter[str] = Counter()
        """How often each batch was settled completely."""
        self.most_owners = 0
        """The largest number of owners at one time."""

    def append(self, entries: Sequence[Entry], *, after: int) -> list[Entry]:
        landed = super().append(entries, after=after)
        for entry in landed:
            before, self.known = self.known, apply_entry(self.known, entry)
            self.moves += entry.kind in ("give", "take", "oust")
            self.settled.update([entry.plan] if entry.kind == "settle" and not entry.body["owed"] else ())
            self.most_owners = max(self.most_owners, len(self.known.owners))
            assert not entry.lane or before.held[entry.lane].owner == entry.owner, "of a lane that is another's"
            assert entry.kind != "take" or not set(entry.body["lanes"]) & before.held.keys(), "taken from its owner"
        return landed

    def compact(self, snapshot: Entry, settled: Sequence[Settled], *, after: int) -> Entry:
        landed = super().compact(snapshot, settled, after=after)
        self.known = apply_entry(self.known, landed)
        return landed


class Partner(Owner):
    """A process that shares the lanes with others."""

    world: SharingHosts

    def take(self, journal: Journal, who: dict[str, JSON]) -> None:
        lock = StateLock(PLACE.lock)
        how: dict[str, JSON] = {"assignment": self.world.assignment, "hash": HASH}
        taking = Takeover(pipeline="numbers", place=PLACE, lock=lock, clock=self.clock, **how)
        journal.acquire({"pipeline": "numbers", **who, **how}, may=taking.may)

    def recover(self) -> None:
        self.coordination = _TestedCoordination(
            self,
            journal=self.journal,
            tenure=self.tenure,
            place=PLACE,
            lanes=[*self.world.lanes, UNOPENED],
            definition=HASH,
            frees=self.world.assignment == "round_robin",
            bury=lambda *_: None,
        )
        self.dispatcher.rules = DeliveryRules(dlq=self.world.dlq, delivery=self.dispatcher.rules.delivery)
        self.finishing = False
        self.waits = True
        """Whether it must wait until another process has opened the pipeline."""

    def turn(self) -> None:
        if self.waits:
            self._join()
            return
        finished, self.worker_pool.finished = self.worker_pool.finished, []
        if self.dispatcher.take_turn(finished):
            return
        if self.finishing and not self.dispatcher.stopping:
            self.finishing = False
            self.dispatcher.planning.coordination = None
            self.coordination.release_lanes()
            self._open()
            return
        self.over = True
        status = "failed" if self.dispatcher.errors else "stopped" if self.dispatcher.stopping else "succeeded"
        self.journal.record(Entry(kind="release", body={"status": status}))

    def _join(self) -> None:
        if not self.coordination.may_open:
            self.coordination.read_others()
            self.coordination.change_lanes()
            return
        self.waits = False
        if not self.coordination.alone:
            self._open()
            return
        self.finishing = True
        self._begin()

    def _open(self) -> None:
        self.opened = True
        body = {"pipeline": "numbers", "run": "", "hash": HASH}
        self.journal.record(Entry(kind="open", body=body))
        self.dispatcher.planning.source = self._source()
        self._begin()

    def _begin(self) -> None:
        self.coordination.begin()
        self.dispatcher.planning.coordination = self.coordination


class _TestedCoordination(LaneCoordination):
    """A coordination that does not wait for entries of the others if the test turns the lease off."""

    def __init__(self, partner: Partner, **how: Any) -> None:
        super().__init__(**how)
        self.partner = partner

    def _list_silent(self, now: float) -> Iterator[str]:
        if self.partner.world.protections.lease:
            yield from super()._list_silent(now)
        else:
            yield from (owner.owner for owner in self.journal.state.owners if owner.owner != self.view.me)


class SharingHosts(Owners):
    """Up to `most` partners at once, with a time that is common to all."""

    ledger: Watched
    lands = 0.001

    def __init__(self, rng: random.Random, *, assignment: str = "round_robin", most: int = 3, **shape: Any) -> None:
        super().__init__(rng, **shape)
        self.ledger = Watched()
        self.assignment = assignment
        self.most = most
        """The largest number of partners that are awake at once. With more partners, less time passes in one step."""
        self.partners: list[Partner] = []
        self.stopped = 0

    def run(self) -> None:
        """Run until all rows are processed, and all partners that had lanes have ended."""
        for _ in range(40_000 + 100 * len(self.lanes)):
            if all(self.ledger.known.get_lane(lane).offset == self.rows for lane in self.lanes):
                self._ends_well()
                return
            self._goes_on()
        raise AssertionError("the load never ends")

    def _goes_on(self) -> None:
        awake = [partner for partner in self.partners if not partner.frozen]
        frozen = [partner for partner in self.partners if partner.frozen]
        dice = self.rng.random()
        if self.orphans and dice < self.lands:
            self._orphan_ends()
        elif frozen and dice < 3 * self.lands:
            self._thaws(self.rng.choice(frozen))
        elif len(awake) < self.most and (not awake or dice < 0.2):
            self._join()
        elif self.faults and dice < 0.3:
            self.faults -= 1
            self._goes_wrong(self.rng.choice(awake))
        else:
            self._moves(self.rng.choice(awake))

    def _join(self) -> None:
        self.alive = True
        with contextlib.suppress(Killed):
            self.partners.append(Partner(self, self.definition))

    def _goes_wrong(self, owner: Owner) -> None:
        what = self.rng.choice(["freeze", "freeze", "sleep", "stop", "kill", "kill"])
        if what == "freeze":
            owner.frozen = True
        elif what == "sleep":
            self.passes(self.rng.uniform(0, 100 * LEASE))
        elif what == "stop":
            self.stopped += 1
            owner.dispatcher.request_stop("asked")
        else:
            self._ends(owner)

    def passes(self, seconds: float) -> None:
        self.owners = list(self.partners)
        super().passes(seconds)

    def _moves(self, owner: Owner) -> None:
        self.passes(self.rng.uniform(0, LEASE / 10 / self.most))
        also = ("fenced", "TimeoutError")
        owner.dispatcher.resting.retry = RetryOptions(attempts=FOR_EVER, most="3s", within="10000d", also=also)
        try:
            if owner.worker_pool.work and self.rng.random() < 0.6:
                owner.worker_pool.step(self.rng.choice(sorted(owner.worker_pool.work)))
            else:
                owner.turn()
        except Fenced:
            self.fenced += 1
            self._ends(owner)
        except Killed:
            self._ends(owner)
        if owner.over:
            self._ends(owner)

    def _ends(self, owner: Owner) -> None:
        self.partners = [partner for partner in self.partners if partner is not owner]
        self.orphans += owner.transactions.values()

    def _ends_well(self) -> None:
        """Let all remaining partners end after all rows are processed, by themselves or as fenced."""
        self.faults = 0
        for _ in range(40_000):
            if not self.partners:
                break
            self._thaws(self.rng.choice(self.partners))
        assert not self.partners, "somebody waits for ever"
        while self.orphans:
            self._orphan_ends()
