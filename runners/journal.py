"""The owner's pen: everything a run records goes through here, once it is sure that it still owns the pipeline."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from origins.batch import JSON
from origins.crash_points import recording
from runners.errors import Fenced
from runners.ledgers.entry import Entry, Settled
from runners.ledgers.ledger import Conflict, Ledger, LedgerError
from runners.owners.tenure import Tenure
from runners.progress import fold_all, settled_among
from runners.state import State

COMPACT_EVERY = 200
"""How many entries lie in the ledger before they are put together."""


class Journal:
    """The ledger in the hands of one process, with the state that follows from it."""

    def __init__(self, ledger: Ledger, tenure: Tenure | None = None) -> None:
        self.ledger = ledger
        self.tenure = tenure
        """The lease of whoever owns the pipeline through this; None where a scheduler keeps others away."""
        self.owner = uuid.uuid4().hex
        self._tail: list[Entry] = ledger.read()
        self._before = State()
        self._lost: Fenced | None = None
        """Why nothing is recorded through this any more."""
        self._history: dict[str, Settled] | None = None
        """What was settled before the tail, by plan; read when it is asked for, and then kept."""
        self.state = fold_all(self._tail)

    def acquire(
        self, body: Mapping[str, JSON], *, may: Callable[[Journal], bool] = lambda _: False
    ) -> Sequence[Mapping[str, JSON]]:
        """Become an owner, under the next epoch. Whoever owned it before can record nothing any more; gives who that
        was.

        `may` looks at the state, and raises if it is not for us to take it; it is asked again when somebody else was
        quicker. Where it is true we join those who own it, and take nothing from them.
        """
        lease = self.tenure.idle if self.tenure else None
        while True:
            joins = may(self)
            before, began = self.state.owners, self._now()
            how = {**body, "lease": lease, "joins": joins}
            entry = Entry(kind="acquire", epoch=self.state.epoch + 1, owner=self.owner, body=how)
            try:
                self._took(self.ledger.append([entry], after=self.state.seq))
            except Conflict:
                self.look()
            else:
                self._renewed(began)
                return () if joins else before

    def record(self, *entries: Entry, plans: Sequence[Entry] = ()) -> bool:
        """Record the entries, all or none; they are durable when this returns.

        With them go `plans`, unless somebody has asked to stop meanwhile; whether they went is returned. Raises
        `Fenced`, with nothing recorded, when somebody else has acquired the pipeline.
        """
        self._check()
        asked = self.state.stopping
        while ours := [*entries, *(plans if self.state.stopping == asked else ())]:
            ours = [*self._shortened(ours), *ours]
            owned = [replace(entry, epoch=self.state.epoch, owner=self.owner) for entry in ours]
            began, kinds = self._now(), [entry.kind for entry in owned]
            recording("before", kinds)
            try:
                self._took(self.ledger.append(owned, after=self.state.seq))
            except Conflict:
                self.refresh()
            else:
                self._renewed(began)
                recording("after", kinds)
                break
        return self.state.stopping == asked

    def attempt(self, *entries: Entry) -> bool:
        """Record the entries, unless somebody else has recorded something meanwhile, so that it has to be decided
        again; whether they are recorded. A lane is taken under the next epoch."""
        self._check()
        epochs = {"take": self.state.epoch + 1}
        owned = [replace(each, epoch=epochs.get(each.kind, self.state.epoch), owner=self.owner) for each in entries]
        began = self._now()
        try:
            self._took(self.ledger.append(owned, after=self.state.seq))
        except Conflict:
            self.refresh()
            return False
        self._renewed(began)
        return True

    def renew(self, *, busy: bool) -> None:
        """Say that we are alive. An owner with nothing in flight takes a long lease, and has seldom to say so."""
        if self.tenure is not None:
            lease = self.tenure.busy if busy else self.tenure.idle
            self.record(Entry(kind="renew", body={"lease": lease}))

    def look(self) -> None:
        """Take in what others recorded, whoever owns the pipeline."""
        self._took(self.ledger.read(self.state.seq))

    @property
    def shares(self) -> bool:
        """Whether others may have lanes of the pipeline beside us."""
        mine = self.state.owned_by(self.owner)
        return mine is not None and mine.get("assignment", "single") != "single"

    @property
    def tail(self) -> Sequence[Entry]:
        """The entries that were not put together yet, in their order."""
        return tuple(self._tail)

    def foreseen(self, entries: Sequence[Entry]) -> State:
        """The state as it would be with these entries recorded."""
        first = self.state.seq + 1
        return fold_all((replace(entry, seq=first + index) for index, entry in enumerate(entries)), self.state)

    def refresh(self) -> None:
        """Take in what others recorded, a request to stop for example. Raises `Fenced` when they took over."""
        self.look()
        if self.state.owned_by(self.owner) is not None:
            return
        if self.tenure is not None:
            self.tenure.lose()
        taker, ended = self.state.owner or {}, self.state.ended or {}
        who = f"{taker.get('host', 'unknown host')}, process {taker.get('pid', '?')}, at {taker.get('at', '?')}"
        self._lost = Fenced(
            f"Another process took this pipeline over: {who}."
            if taker
            else f"Another process took this pipeline over, and has let it go at {ended.get('at', '?')}.",
            hint="This run stops here. Nothing of it is lost: the other one goes on from the same ledger.",
        )
        raise self._lost

    def _check(self) -> None:
        if self._lost is not None:
            raise self._lost

    def compact(self, *, every: int = COMPACT_EVERY) -> None:
        """Put the entries together once there are many; the state stays the same."""
        if len(self._tail) < every:
            return
        entry = Entry(kind="snapshot", epoch=self.state.epoch, owner=self.owner, body=self.state.json())
        settled = list(settled_among(self._tail, self._before))
        try:
            landed = self.ledger.compact(entry, settled, after=self.state.seq)
        except Conflict:
            self.refresh()
            return
        if self._history is not None:
            self._history.update({each.plan: each for each in settled})
        self._tail = [landed]
        self._before = State()
        self.state = fold_all(self._tail)

    def settled(self) -> Sequence[Settled]:
        """All settled batches that still count as carried. The history is read once."""
        if self._history is None:
            self._history = _remembered(self.ledger, self._tail)
        return _counting(self._history, self._tail, self.state)

    def _now(self) -> float:
        return self.tenure.clock.elapsed() if self.tenure else 0.0

    def _renewed(self, began: float) -> None:
        """An entry of ours has landed: the lease counts from before it was written."""
        mine = self.state.owned_by(self.owner)
        if self.tenure is not None and mine is not None:
            self.tenure.renewed(began, mine["lease"])

    def _shortened(self, entries: Sequence[Entry]) -> Sequence[Entry]:
        """With the first plan after a rest goes word that the lease is short again."""
        if self.tenure is None or self.tenure.lease == self.tenure.busy:
            return ()
        planned = any(entry.kind == "plan" for entry in entries)
        return [Entry(kind="renew", body={"lease": self.tenure.busy})] if planned else ()

    def _took(self, entries: Sequence[Entry]) -> None:
        if entries and entries[0].kind == "snapshot":
            self._tail, self._before, self._history = [], State(), None
        self._tail.extend(entries)
        self.state = fold_all(entries, self.state)


def settled_ever(journal: Journal) -> Sequence[Settled]:
    """All batches that a ledger ever settled, each once; also those that were rewound."""
    kept = _remembered(journal.ledger, journal.tail)
    kept.update({settled.plan: settled for settled in settled_among(journal.tail)})
    return list(kept.values())


def newest_of(journal: Journal, destination: str) -> str:
    """What the destination calls the newest batch of which it got rows (`Label.key`); nothing if there is none."""
    got = [each for each in settled_ever(journal) if each.counts.get("delivered", {}).get(destination)]
    return f"{max(got, key=lambda each: each.at).plan}/{destination}" if got else ""


def carried(ledger: Ledger, entries: Sequence[Entry], state: State) -> Sequence[Settled]:
    """All settled batches of a ledger that still count, each once; `entries` are all that it holds."""
    return _counting(_remembered(ledger, entries), entries, state)


def _remembered(ledger: Ledger, entries: Sequence[Entry]) -> dict[str, Settled]:
    """The history, by plan. Raises `LedgerError` when it lacks what was settled last before the snapshot."""
    history = {settled.plan: settled for settled in ledger.history()}
    known = fold_all(entries[:1]) if entries and entries[0].kind == "snapshot" else State()
    for name, lane in known.lanes.items():
        if lane.told is not None and lane.told.batch.plan not in history:
            raise LedgerError(
                f"The history of the ledger at {ledger.place} is gone or is an older one: it lacks batch "
                f"{lane.told.batch.number} of lane {name}, which was settled.",
                hint="Put it back as it was, from a backup; nothing was carried, for what was carried is told by it.",
            )
    return history


def _counting(history: Mapping[str, Settled], entries: Sequence[Entry], state: State) -> Sequence[Settled]:
    kept = {**history, **{settled.plan: settled for settled in settled_among(entries)}}
    return [settled for settled in kept.values() if state.carried(settled)]
