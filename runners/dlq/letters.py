"""Which rows of the DLQ were decided on since: carried again, or discarded. The ledger knows; no JVM is started."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from runners.journal import Journal
from runners.ledgers.entry import Settled
from runners.state import is_replay

DISCARDS = "discards"
"""What the counts of a plan have that carried its rows nowhere: why, and who said so."""


@dataclass(frozen=True, kw_only=True)
class Decided:
    """The ids of rows that wait for nobody any more."""

    replayed: frozenset[str] = frozenset()
    discarded: frozenset[str] = frozenset()

    def __contains__(self, letter: object) -> bool:
        return letter in self.replayed or letter in self.discarded

    @property
    def ids(self) -> frozenset[str]:
        """All of them."""
        return self.replayed | self.discarded


def decided(journal: Journal) -> Decided:
    """What was decided so far. The history of batches is read only where there was a replay at all."""
    lanes = journal.state.lanes
    return decided_in(journal.settled()) if any(is_replay(lane) for lane in lanes) else Decided()


def decided_in(settled: Iterable[Settled]) -> Decided:
    """What these batches have decided."""
    replayed: set[str] = set()
    discarded: set[str] = set()
    for batch in settled:
        if is_replay(batch.lane):
            (discarded if DISCARDS in batch.counts else replayed).update(batch.span["parts"])
    return Decided(replayed=frozenset(replayed), discarded=frozenset(discarded))
