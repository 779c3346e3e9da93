"""The owner's pen: everything a run records goes through here, once it is sure that it still owns the pipeline."""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from dataclasses import replace

from origins.batch import JSON
from runners.entry import Entry, Settled
from runners.errors import Fenced
from runners.ledger import Conflict, Ledger
from runners.progress import State, fold_all, settled_among, snapshot

COMPACT_EVERY = 200
"""How many entries lie in the ledger before they are put together."""


class Journal:
    """The ledger in the hands of one process, with the state that follows from it."""

    def __init__(self, ledger: Ledger) -> None:
        self.ledger = ledger
        self.owner = uuid.uuid4().hex
        self._tail: list[Entry] = ledger.read()
        self._before = State()
        self._history: dict[str, Settled] | None = None
        """What was settled before the tail, by plan; read when it is asked for, and then kept."""
        self.state = fold_all(self._tail)

    def acquire(self, body: Mapping[str, JSON]) -> None:
        """Become the owner, under the next epoch. Whoever owned it before can record nothing any more."""
        while True:
            entry = Entry(kind="acquire", epoch=self.state.epoch + 1, owner=self.owner, body=body)
            try:
                self._took(self.ledger.append([entry], after=self.state.seq))
            except Conflict:
                self._took(self.ledger.read(self.state.seq))
            else:
                return

    def record(self, *entries: Entry, plans: Sequence[Entry] = ()) -> bool:
        """Record the entries, all or none; they are durable when this returns.

        With them go `plans`, unless somebody has asked to stop meanwhile; whether they went is returned. Raises
        `Fenced`, with nothing recorded, when somebody else has acquired the pipeline.
        """
        asked = self.state.stopping
        while ours := [*entries, *(plans if self.state.stopping == asked else ())]:
            owned = [replace(entry, epoch=self.state.epoch, owner=self.owner) for entry in ours]
            try:
                self._took(self.ledger.append(owned, after=self.state.seq))
            except Conflict:
                self.refresh()
            else:
                break
        return self.state.stopping == asked

    def foreseen(self, entries: Sequence[Entry]) -> State:
        """The state as it would be with these entries recorded."""
        first = self.state.seq + 1
        return fold_all((replace(entry, seq=first + index) for index, entry in enumerate(entries)), self.state)

    def refresh(self) -> None:
        """Take in what others recorded, a request to stop for example. Raises `Fenced` when they took over."""
        self._took(self.ledger.read(self.state.seq))
        owner = self.state.owner
        if owner is None or owner["owner"] != self.owner:
            taker = owner or {}
            raise Fenced(
                f"Another process took this pipeline over: {taker.get('host', 'unknown host')}, "
                f"process {taker.get('pid', '?')}, at {taker.get('at', '?')}.",
                hint="This run stops here. Nothing of it is lost: the other one goes on from the same ledger.",
            )

    def compact(self, *, every: int = COMPACT_EVERY) -> None:
        """Put the entries together once there are many; the state stays the same."""
        if len(self._tail) < every:
            return
        entry = Entry(kind="snapshot", epoch=self.state.epoch, owner=self.owner, body=snapshot(self.state))
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
            self._history = {settled.plan: settled for settled in self.ledger.history()}
        return _counting(self._history, self._tail, self.state)

    def _took(self, entries: Sequence[Entry]) -> None:
        if entries and entries[0].kind == "snapshot":
            self._tail, self._before, self._history = [], State(), None
        self._tail.extend(entries)
        self.state = fold_all(entries, self.state)


def carried(ledger: Ledger, entries: Sequence[Entry], state: State) -> Sequence[Settled]:
    """All settled batches of a ledger that still count, each once; `entries` are all that it holds."""
    return _counting({settled.plan: settled for settled in ledger.history()}, entries, state)


def _counting(history: Mapping[str, Settled], entries: Sequence[Entry], state: State) -> Sequence[Settled]:
    kept = {**history, **{settled.plan: settled for settled in settled_among(entries)}}
    return [settled for settled in kept.values() if state.carried(settled)]
