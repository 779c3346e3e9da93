"""How many refused rows wait, and whether `dlq.budget` allows that."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from destinations.dead_letters import count_dead_letters, stream_dlq
from destinations.destination import Destination, DestinationError
from origins.errors import list_spark_errors
from origins.lazy import SparkSession
from runners.model.entry import Entry
from runners.model.errors import BudgetExceeded
from runners.model.planned_batch import SettleBody
from runners.state.journal import Journal, list_decided
from runners.state.progress import read_body


@dataclass
class RefusedBudget:
    """Counts the waiting rows once, and then adds the rows that each batch refuses.

    Before it reports that the budget is exceeded, it counts again, because rows may have been discarded meanwhile. It
    gets the entries that settle batches before the ledger has them. After an error it counts everything again.
    """

    limit: int
    count: Callable[[Sequence[Entry]], int]
    """Returns how many refused rows wait now, with the rows of the batches that these entries settle."""
    _waiting: int | None = None

    def check(self, settled: Sequence[Entry] = ()) -> BudgetExceeded | None:
        """Return why no batch may follow after these entries, or None if a batch may follow."""
        known, self._waiting = self._waiting, None
        waiting = self.count(settled) if known is None else known + count_refused(settled)
        if waiting > self.limit and known is not None:
            waiting = self.count(settled)
        self._waiting = waiting
        return BudgetExceeded(waiting, self.limit) if waiting > self.limit else None


@dataclass(frozen=True, kw_only=True)
class WaitingRows:
    """The refused rows that wait, in the DLQ and in its fallback.

    A broken DLQ counts as empty if it has a fallback.
    """

    dlq: Destination
    fallback: Destination | None
    spark: Callable[[], SparkSession]
    journal: Journal

    def count(self, settled: Sequence[Entry] = ()) -> int:
        """Return how many rows wait, with the rows of the batches that these entries settle."""
        fallen = {**self.journal.state.fallen, **_list_new_fallen(settled)}
        return sum(fallen.values()) + self._count_dlq()

    def _count_dlq(self) -> int:
        try:
            refused = count_dead_letters(self.dlq, self.spark) or 0
            return count_undecided(refused, self.dlq, self.spark, self.journal)
        except list_spark_errors(DestinationError):
            if self.fallback is None:
                raise
            return 0


def count_refused(settled: Sequence[Entry]) -> int:
    """Return how many rows of these batches were refused."""
    return sum(read_body(entry, SettleBody).counts.nacked for entry in settled)


def count_undecided(refused: int, dlq: Destination, spark: Callable[[], SparkSession], journal: Journal) -> int:
    """Return how many of the rows in the DLQ were neither replayed nor discarded."""
    decided = list_decided(journal).ids
    if not (refused and decided):
        return refused
    tables = stream_dlq(dlq, spark, "SELECT id FROM {table}")
    return sum(id_ not in decided for each in tables for id_ in each["id"].to_pylist())


def _list_new_fallen(settled: Sequence[Entry]) -> Mapping[str, int]:
    """Return how many rows went to the fallback, by the plans that these entries settle."""
    counts = {entry.plan: read_body(entry, SettleBody).counts.fallback for entry in settled}
    return {plan: rows for plan, rows in counts.items() if rows}
