"""The journal through which a run records everything, and the lease by which the run owns its pipeline."""

from __future__ import annotations

import contextlib
import gc
import threading
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from destinations.labels import Late
from origins.codec import encode
from origins.crash_points import reach_recording
from runners.model.clock import Clock
from runners.model.entry import Entry, OwnerBody, Settled
from runners.model.errors import Fenced
from runners.model.pipeline_state import PipelineState, is_replay
from runners.state.ledger import Conflict, Ledger, LedgerError
from runners.state.progress import apply_entries, list_settled_among

COMPACT_EVERY = 200
"""How many entries the ledger has at least before they are compacted."""
LANES_AN_ENTRY = 10
"""How many lanes a snapshot has at most for each compacted entry.

With more lanes, compaction waits for more entries.
"""


class Journal:
    """The access of one process to the ledger, with the state that follows from the entries."""

    def __init__(self, ledger: Ledger, tenure: Lease | None = None) -> None:
        self.ledger = ledger
        self.tenure = tenure
        """The lease of the owner that writes through this journal. None if a scheduler keeps other runs away."""
        self.owner = uuid.uuid4().hex
        self._tail: list[Entry] = []
        self._before = PipelineState()
        """The state after the snapshot with which the tail begins, or the first state if it begins with no snapshot."""
        self._lost: Fenced | None = None
        """Why nothing can be recorded through this journal any longer."""
        self._history: dict[str, Settled] | None = None
        """The batches that were settled before the tail, by plan. They are read at the first use, and then kept."""
        self.state = PipelineState()
        self._take_in(ledger.read())

    def acquire(
        self, body: Mapping[str, Any], *, may: Callable[[Journal], bool] = lambda _: False
    ) -> Sequence[OwnerBody]:
        """Become an owner under the next epoch. Return the owners before, which can record nothing any longer.

        `may` checks the state, and raises if this process must not take the pipeline. It is called again if another
        process was faster. If it returns true, this process joins the owners and takes nothing from them.
        """
        lease = self.tenure.idle if self.tenure else None
        while True:
            joins = may(self)
            before, began = self.state.owners, self._elapsed()
            how = {**body, "lease": lease, "joins": joins}
            entry = Entry(kind="acquire", epoch=self.state.epoch + 1, owner=self.owner, body=how)
            try:
                self._take_in(self.ledger.append([entry], after=self.state.seq))
            except Conflict:
                self.catch_up()
            else:
                self._note_renewed(began)
                return () if joins else before

    def record(self, *entries: Entry, plans: Sequence[Entry] = ()) -> bool:
        """Record all entries or none. They are durable when this returns.

        `plans` are recorded with them, unless a stop was requested meanwhile. Return whether they were recorded. Raise
        `Fenced`, with nothing recorded, if another process has acquired the pipeline.
        """
        self._check()
        asked, again = self.state.stopping, False
        while ours := [*entries, *(plans if self.state.stopping == asked else ())]:
            ours = [*self._shorten_lease(ours), *ours]
            owned = [replace(entry, epoch=self.state.epoch, owner=self.owner) for entry in ours]
            if again:
                self.preview_state(owned)  # raises if they were recorded after all, and are part of a snapshot now
            again = True
            kinds = [entry.kind for entry in owned]
            reach_recording("before", kinds)
            if self._append(owned):
                reach_recording("after", kinds)
                break
        return self.state.stopping == asked

    def attempt(self, *entries: Entry) -> bool:
        """Record the entries, unless another process recorded something meanwhile. Return whether they are recorded.

        If not, the caller must decide again. A lane is taken under the next epoch.
        """
        self._check()
        epochs = {"take": self.state.epoch + 1}
        owned = [replace(entry, epoch=epochs.get(entry.kind, self.state.epoch), owner=self.owner) for entry in entries]
        return self._append(owned)

    def _append(self, entries: Sequence[Entry]) -> bool:
        """Append the entries, and return whether they landed. If not, take in what other processes recorded instead."""
        began = self._elapsed()
        try:
            self._take_in(self.ledger.append(entries, after=self.state.seq))
        except Conflict:
            self.refresh()
            return False
        self._note_renewed(began)
        return True

    def renew(self, *, busy: bool) -> None:
        """Renew the lease. An owner with nothing in flight takes a long lease, which it seldom has to renew."""
        if self.tenure is not None:
            lease = self.tenure.busy if busy else self.tenure.idle
            self.record(Entry(kind="renew", body={"lease": lease}))

    def catch_up(self) -> None:
        """Read the entries that other processes recorded."""
        self._take_in(self.ledger.read(self.state.seq))

    @property
    def is_shared(self) -> bool:
        """Whether other runs may hold lanes of the pipeline too."""
        mine = self.state.find_owner(self.owner)
        return mine is not None and mine.assignment != "single"

    @property
    def tail(self) -> Sequence[Entry]:
        """The entries since the last snapshot, including it, in their order."""
        return tuple(self._tail)

    def preview_state(self, entries: Sequence[Entry]) -> PipelineState:
        """Return the state that would follow if these entries were recorded."""
        first = self.state.seq + 1
        return apply_entries((replace(entry, seq=first + index) for index, entry in enumerate(entries)), self.state)

    def refresh(self) -> None:
        """Take in what other processes recorded, for example a request to stop.

        Raise `Fenced` if this owner lost the pipeline.
        """
        self.catch_up()
        if self.state.find_owner(self.owner) is not None:
            return
        if self.tenure is not None:
            self.tenure.lose()
        taker, ended = self.state.owner, self.state.ended or {}
        self._lost = Fenced(
            f"Another process took this pipeline over: {taker.host}, process {taker.pid}, at {taker.at}."
            if taker
            else f"Another process took this pipeline over, and released it at {ended.get('at', '?')}.",
            hint="This run stops here. No row is lost: the other process continues from the same ledger.",
        )
        raise self._lost

    def _check(self) -> None:
        if self._lost is not None:
            raise self._lost

    def compact(self, *, every: int = COMPACT_EVERY) -> None:
        """Replace the entries by a snapshot once there are many. With many lanes, it happens later.

        The state stays the same.
        """
        if len(self._tail) < max(every, len(self.state.lanes) // LANES_AN_ENTRY):
            return
        entry = Entry(kind="snapshot", epoch=self.state.epoch, owner=self.owner, body=encode(self.state))
        first = 1 if self._tail[0].kind == "snapshot" else 0
        settled = list(list_settled_among(self._tail[first:], self._before))
        try:
            landed = self.ledger.compact(entry, settled, after=self.state.seq)
        except Conflict:
            self.refresh()
            return
        if self._history is not None:
            self._history.update({batch.plan: batch for batch in settled})
        self._tail = [landed]
        self._before = self.state = apply_entries(self._tail)

    def list_settled(self) -> Sequence[Settled]:
        """Return all settled batches that still count as carried. The history is read once."""
        if self._history is None:
            self._history = _load_history(self.ledger, self._tail)
        known = {**self._history, **{settled.plan: settled for settled in list_settled_among(self._tail)}}
        return [settled for settled in known.values() if self.state.is_carried(settled)]

    def _elapsed(self) -> float:
        return self.tenure.clock.elapsed() if self.tenure else 0.0

    def _note_renewed(self, began: float) -> None:
        """Note that an entry of this owner landed. The lease counts from before the entry was written."""
        mine = self.state.find_owner(self.owner)
        if self.tenure is not None and mine is not None:
            self.tenure.note_renewal(began, mine.lease or 0.0)

    def _shorten_lease(self, entries: Sequence[Entry]) -> Sequence[Entry]:
        """Return the entry that makes the lease short again, if these entries have the first plan after idle time."""
        if self.tenure is None or self.tenure.lease == self.tenure.busy:
            return ()
        planned = any(entry.kind == "plan" for entry in entries)
        return [Entry(kind="renew", body={"lease": self.tenure.busy})] if planned else ()

    def _take_in(self, entries: Sequence[Entry]) -> None:
        later = entries
        if entries and entries[0].kind == "snapshot":
            self._before = self.state = apply_entries(entries[:1])
            self._tail, self._history, later = [], None, entries[1:]
        self._tail.extend(entries)
        self.state = apply_entries(later, self.state)


def list_settled_ever(journal: Journal) -> Sequence[Settled]:
    """Return all batches that the ledger ever settled, each once, including batches that were rewound."""
    kept = _load_history(journal.ledger, journal.tail)
    kept.update({settled.plan: settled for settled in list_settled_among(journal.tail)})
    return list(kept.values())


def find_newest_label(journal: Journal, destination: str) -> str:
    """Return the destination's key (`Label.key`) of the newest batch of which it got rows. Empty if there is none."""
    got = [batch for batch in list_settled_ever(journal) if batch.counts.delivered.get(destination)]
    return f"{max(got, key=lambda batch: batch.at).plan}/{destination}" if got else ""


def _load_history(ledger: Ledger, entries: Sequence[Entry]) -> dict[str, Settled]:
    """Return the history, by plan.

    Raise `LedgerError` if it lacks a batch that was settled last before the snapshot.
    """
    with _pause_collector():
        history = {settled.plan: settled for settled in ledger.history()}
    known = apply_entries(entries[:1]) if entries and entries[0].kind == "snapshot" else PipelineState()
    for name, lane in known.lanes.items():
        if lane.settled is not None and lane.settled.batch.plan not in history:
            raise LedgerError(
                f"The history of the ledger at {ledger.place} is missing or an older copy: it lacks batch "
                f"{lane.settled.batch.number} of lane {name}, which was settled.",
                hint="Put it back from a backup. The run processed nothing, since the history lists delivered batches.",
            )
    return history


@contextlib.contextmanager
def _pause_collector() -> Iterator[None]:
    """Pause the garbage collector while many values without cycles are read. It takes longer than reading them."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


@dataclass(frozen=True, kw_only=True)
class DecidedLetters:
    """The ids of rows that were replayed or discarded."""

    replayed: frozenset[str] = frozenset()
    discarded: frozenset[str] = frozenset()

    def __contains__(self, letter: object) -> bool:
        return letter in self.replayed or letter in self.discarded

    @property
    def ids(self) -> frozenset[str]:
        return self.replayed | self.discarded


def list_decided(journal: Journal) -> DecidedLetters:
    """Return the rows that were replayed or discarded so far. The history is read only if there was a replay."""
    lanes = journal.state.lanes
    return collect_decided(journal.list_settled()) if any(is_replay(lane) for lane in lanes) else DecidedLetters()


def collect_decided(settled: Iterable[Settled]) -> DecidedLetters:
    """Return the rows that these batches replayed or discarded."""
    replayed: set[str] = set()
    discarded: set[str] = set()
    for batch in settled:
        if is_replay(batch.lane):
            (discarded if batch.counts.discards else replayed).update(map(str, batch.span.parts))
    return DecidedLetters(replayed=frozenset(replayed), discarded=frozenset(discarded))


IDLE = 10
"""How many times longer the lease is for an owner that has nothing in flight, or has not opened the pipeline yet."""
RENEWALS = 3
"""How many renewals of a lease become due before it ends. All but one of them may be late."""
ENOUGH = 1 / 4
"""The share of a lease that must be left when a write begins. With less, the writer waits for the next renewal."""
PATIENCE = 30.0
"""How many seconds a writer waits for that renewal."""


class Lease:
    """The lease of one owner. The dispatcher's thread renews it, and runners check how much of it is left."""

    def __init__(self, clock: Clock, seconds: float) -> None:
        self.clock = clock
        self.busy = seconds
        """How long the lease is while batches are in flight."""
        self.idle = IDLE * seconds
        """How long the lease is at other times."""
        self.lease = self.idle
        """How long the lease is now, as recorded in the ledger."""
        self.until = float("-inf")
        """When the lease ends, by the clock."""
        self.lost = False
        """Whether another process has the pipeline."""
        self.wake: Callable[[], None] = lambda: None
        """Makes the owner renew the lease at once."""
        self._changed = threading.Condition()

    @property
    def due(self) -> float:
        """When the next renewal is due, by the clock."""
        return self.until - self.lease + self.lease / RENEWALS

    def note_renewal(self, began: float, lease: float) -> None:
        """Note that an entry of this owner landed. Its append began at `began`, so no process has seen it before."""
        with self._changed:
            self.lease, self.until = lease, began + lease
            self._changed.notify_all()

    def lose(self) -> None:
        """Note that another process has the pipeline."""
        with self._changed:
            self.lost, self.until = True, float("-inf")
            self._changed.notify_all()

    def count_seconds_left(self) -> float:
        """Return how many seconds of the lease are left. After its end, the number is zero or negative."""
        return self.until - self.clock.elapsed()

    def secure(self) -> None:
        """Return once enough of the lease is left to begin a write.

        After the machine was suspended, the lease is renewed first. Raise `Late` if the lease has ended and is not
        renewed.
        """
        if self._is_enough() or self.lost:
            self._check()
            return
        self.wake()
        with self._changed:
            self._changed.wait_for(lambda: self.lost or self._is_enough(), timeout=PATIENCE)
        self._check()

    def _is_enough(self) -> bool:
        return self.count_seconds_left() >= min(self.busy, self.lease) * ENOUGH

    def _check(self) -> None:
        if self.lost or self.count_seconds_left() <= 0:
            raise Late()
