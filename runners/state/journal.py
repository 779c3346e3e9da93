"""The owner's pen: everything a run records goes through here, while its lease says that it still owns the pipeline."""

from __future__ import annotations

import contextlib
import gc
import threading
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from destinations.destination import Late
from origins.crash_points import reach_recording
from origins.quick_dataclass import dataclass
from runners.model.clock import Clock
from runners.model.entry import EndedBody, Entry, OwnerBody, Settled
from runners.model.errors import Fenced
from runners.model.pipeline_state import PipelineState, is_replay
from runners.state.ledger import Conflict, Ledger, LedgerError
from runners.state.progress import apply_entries, list_settled_among

COMPACT_EVERY = 200
"""How many entries the ledger has at least before they are put together."""
LANES_AN_ENTRY = 10
"""The most lanes of a snapshot for each of these entries: more lanes make no entry dearer."""


class Journal:
    """The ledger in the hands of one process, with the state that follows from it."""

    def __init__(self, ledger: Ledger, tenure: Lease | None = None) -> None:
        self.ledger = ledger
        self.tenure = tenure
        """The lease of the owner that writes through this journal; None where a scheduler keeps other runs away."""
        self.owner = uuid.uuid4().hex
        self._tail: list[Entry] = []
        self._before = PipelineState()
        """The state behind the snapshot with which the tail begins; the first one, where it begins with none."""
        self._lost: Fenced | None = None
        """Why nothing is recorded through this any more."""
        self._history: dict[str, Settled] | None = None
        """What was settled before the tail, by plan; read when it is asked for, and then kept."""
        self.state = PipelineState()
        self._take_in(ledger.read())

    def acquire(
        self, body: Mapping[str, Any], *, may: Callable[[Journal], bool] = lambda _: False
    ) -> Sequence[OwnerBody]:
        """Become an owner, under the next epoch, and return the owners before, which can record nothing any more.

        `may` looks at the state, and raises if this process must not take the pipeline. It is asked again if another
        process was faster. If it is true, this process joins the owners and takes nothing from them.
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
        """Record the entries, all or none; they are durable when this returns.

        With them go `plans`, unless somebody has asked to stop meanwhile; whether they went is returned. Raises
        `Fenced`, with nothing recorded, when somebody else has acquired the pipeline.
        """
        self._check()
        asked, again = self.state.stopping, False
        while ours := [*entries, *(plans if self.state.stopping == asked else ())]:
            ours = [*self._shorten_lease(ours), *ours]
            owned = [replace(entry, epoch=self.state.epoch, owner=self.owner) for entry in ours]
            if again:
                self.preview_state(owned)  # raises where they were recorded after all, and are part of a snapshot now
            again = True
            kinds = [entry.kind for entry in owned]
            reach_recording("before", kinds)
            if self._append(owned):
                reach_recording("after", kinds)
                break
        return self.state.stopping == asked

    def attempt(self, *entries: Entry) -> bool:
        """Record the entries, unless another process has recorded something meanwhile, so that it has to be decided
        again; whether they are recorded. A lane is taken under the next epoch."""
        self._check()
        epochs = {"take": self.state.epoch + 1}
        owned = [replace(entry, epoch=epochs.get(entry.kind, self.state.epoch), owner=self.owner) for entry in entries]
        return self._append(owned)

    def _append(self, entries: Sequence[Entry]) -> bool:
        """Whether they landed; else what others have recorded instead is taken in."""
        began = self._elapsed()
        try:
            self._take_in(self.ledger.append(entries, after=self.state.seq))
        except Conflict:
            self.refresh()
            return False
        self._note_renewed(began)
        return True

    def renew(self, *, busy: bool) -> None:
        """Say that we are alive. An owner with nothing in flight takes a long lease, and has seldom to say so."""
        if self.tenure is not None:
            lease = self.tenure.busy if busy else self.tenure.idle
            self.record(Entry(kind="renew", body={"lease": lease}))

    def catch_up(self) -> None:
        """Read the entries that other processes recorded."""
        self._take_in(self.ledger.read(self.state.seq))

    @property
    def is_shared(self) -> bool:
        """Whether others may have lanes of the pipeline beside us."""
        mine = self.state.find_owner(self.owner)
        return mine is not None and mine.get("assignment", "single") != "single"

    @property
    def tail(self) -> Sequence[Entry]:
        """The entries that were not put together yet, in their order."""
        return tuple(self._tail)

    def preview_state(self, entries: Sequence[Entry]) -> PipelineState:
        """The state as it would be with these entries recorded."""
        first = self.state.seq + 1
        return apply_entries((replace(entry, seq=first + index) for index, entry in enumerate(entries)), self.state)

    def refresh(self) -> None:
        """Take in what others recorded, a request to stop for example. Raises `Fenced` when they took over."""
        self.catch_up()
        if self.state.find_owner(self.owner) is not None:
            return
        if self.tenure is not None:
            self.tenure.lose()
        taker, ended = self.state.owner or OwnerBody(), self.state.ended or EndedBody()
        who = f"{taker.get('host', 'unknown host')}, process {taker.get('pid', '?')}, at {taker.get('at', '?')}"
        self._lost = Fenced(
            f"Another process took this pipeline over: {who}."
            if taker
            else f"Another process took this pipeline over, and released it at {ended.get('at', '?')}.",
            hint="This run stops here. No row is lost: the other process continues from the same ledger.",
        )
        raise self._lost

    def _check(self) -> None:
        if self._lost is not None:
            raise self._lost

    def compact(self, *, every: int = COMPACT_EVERY) -> None:
        """Put the entries together once there are many, later where there are many lanes; the state stays the same."""
        if len(self._tail) < max(every, len(self.state.lanes) // LANES_AN_ENTRY):
            return
        entry = Entry(kind="snapshot", epoch=self.state.epoch, owner=self.owner, body=self.state.json())
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
        """All settled batches that still count as carried. The history is read once."""
        if self._history is None:
            self._history = _load_history(self.ledger, self._tail)
        known = {**self._history, **{settled.plan: settled for settled in list_settled_among(self._tail)}}
        return [settled for settled in known.values() if self.state.is_carried(settled)]

    def _elapsed(self) -> float:
        return self.tenure.clock.elapsed() if self.tenure else 0.0

    def _note_renewed(self, began: float) -> None:
        """An entry of ours has landed: the lease counts from before it was written."""
        mine = self.state.find_owner(self.owner)
        if self.tenure is not None and mine is not None:
            self.tenure.note_renewal(began, mine["lease"] or 0.0)

    def _shorten_lease(self, entries: Sequence[Entry]) -> Sequence[Entry]:
        """With the first plan after a rest goes word that the lease is short again."""
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
    """All batches that a ledger ever settled, each once; also those that were rewound."""
    kept = _load_history(journal.ledger, journal.tail)
    kept.update({settled.plan: settled for settled in list_settled_among(journal.tail)})
    return list(kept.values())


def find_newest_label(journal: Journal, destination: str) -> str:
    """What the destination calls the newest batch of which it got rows (`Label.key`); nothing if there is none."""
    got = [batch for batch in list_settled_ever(journal) if batch.counts.get("delivered", {}).get(destination)]
    return f"{max(got, key=lambda batch: batch.at).plan}/{destination}" if got else ""


def _load_history(ledger: Ledger, entries: Sequence[Entry]) -> dict[str, Settled]:
    """The history, by plan. Raises `LedgerError` when it lacks what was settled last before the snapshot."""
    with _pause_collector():
        history = {settled.plan: settled for settled in ledger.history()}
    known = apply_entries(entries[:1]) if entries and entries[0].kind == "snapshot" else PipelineState()
    for name, lane in known.lanes.items():
        if lane.told is not None and lane.told.batch.plan not in history:
            raise LedgerError(
                f"The history of the ledger at {ledger.place} is missing or an older copy: it lacks batch "
                f"{lane.told.batch.number} of lane {name}, which was settled.",
                hint="Put it back from a backup. The run processed nothing, since the history lists delivered batches.",
            )
    return history


@contextlib.contextmanager
def _pause_collector() -> Iterator[None]:
    """Do not look for cycles while much is read that has none: that takes longer than to read it."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


DISCARDS = "discards"
"""What the counts of a plan have that carried its rows nowhere: why, and who said so."""


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
    """What was decided so far. The history of batches is read only where there was a replay at all."""
    lanes = journal.state.lanes
    return collect_decided(journal.list_settled()) if any(is_replay(lane) for lane in lanes) else DecidedLetters()


def collect_decided(settled: Iterable[Settled]) -> DecidedLetters:
    """What these batches have decided."""
    replayed: set[str] = set()
    discarded: set[str] = set()
    for batch in settled:
        if is_replay(batch.lane):
            (discarded if DISCARDS in batch.counts else replayed).update(map(str, batch.span["parts"]))
    return DecidedLetters(replayed=frozenset(replayed), discarded=frozenset(discarded))


IDLE = 10
"""How many times longer the lease of an owner is that has nothing in flight, or has yet to open the pipeline."""
RENEWALS = 3
"""How often a lease could be renewed before it is over: so many words may be late, but for one."""
ENOUGH = 1 / 4
"""The share of a lease that must be left for a write to begin; with less one waits for the next word."""
PATIENCE = 30.0
"""How many seconds one waits for it."""


class Lease:
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

    def note_renewal(self, began: float, lease: float) -> None:
        """An entry of ours has landed, whose append began then: nobody has seen it before."""
        with self._changed:
            self.lease, self.until = lease, began + lease
            self._changed.notify_all()

    def lose(self) -> None:
        """Another process has it."""
        with self._changed:
            self.lost, self.until = True, float("-inf")
            self._changed.notify_all()

    def seconds_left(self) -> float:
        """How many seconds are left of it; none, or less, once it is over."""
        return self.until - self.clock.elapsed()

    def secure(self) -> None:
        """Return while enough of it is left to begin a write. A machine that has slept renews it first. Raises `Late`
        if it is over, and stays so."""
        if self._is_enough() or self.lost:
            self._check()
            return
        self.wake()
        with self._changed:
            self._changed.wait_for(lambda: self.lost or self._is_enough(), timeout=PATIENCE)
        self._check()

    def _is_enough(self) -> bool:
        return self.seconds_left() >= min(self.busy, self.lease) * ENOUGH

    def _check(self) -> None:
        if self.lost or self.seconds_left() <= 0:
            raise Late()
