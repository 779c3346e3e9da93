"""How many refused rows wait, and whether that is more than `dlq.budget` allows."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from destinations.dead_letters import count_dead_letters, query_dlq
from destinations.destination import Destination, DestinationError
from origins.quick_dataclass import dataclass
from runners.model.errors import BudgetExceeded
from runners.state.journal import Journal, list_decided

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@dataclass
class RefusedBudget:
    """Counts what waits once, and then adds what each batch refuses. So it costs a batch nothing.

    Before it says that the budget is exceeded, it counts again: rows may have been discarded meanwhile.
    """

    limit: int
    count: Callable[[], int]
    """How many refused rows wait now."""
    _waiting: int | None = None

    def check(self, refused: int = 0) -> BudgetExceeded | None:
        """Why no batch may follow one in which so many rows were refused; None if one may."""
        counts = self._waiting is None
        self._waiting = self.count() if self._waiting is None else self._waiting + refused
        if self._waiting > self.limit and not counts:
            self._waiting = self.count()
        return BudgetExceeded(self._waiting, self.limit) if self._waiting > self.limit else None


def count_waiting_rows(
    dlq: Destination, spark: Callable[[], SparkSession], journal: Journal, *, has_fallback: bool
) -> int:
    """How many refused rows wait, in the DLQ and in its fallback; in a DLQ that is broken none, if it has one."""
    fallen = sum(journal.state.fallen.values())
    try:
        refused = count_dead_letters(dlq, spark) or 0
        return fallen + (count_undecided(refused, dlq, spark, journal) if refused else 0)
    except DestinationError:
        if not has_fallback:
            raise
        return fallen


def count_undecided(refused: int, dlq: Destination, spark: Callable[[], SparkSession], journal: Journal) -> int:
    """How many of the rows in the DLQ were neither replayed nor discarded."""
    known = list_decided(journal).ids
    if not known:
        return refused
    return sum(row["id"] not in known for row in query_dlq(dlq, spark, "SELECT id FROM {table}"))
