"""How many refused rows wait, how many bytes they have, and whether `dlq.budget` allows that."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence

from destinations.dead_letters import count_dead_letters, query_dlq, stream_dlq
from destinations.destination import Destination, DestinationError
from origins.errors import list_spark_errors
from origins.lazy import SparkSession
from origins.names import quote_text
from origins.quantities import parse_size
from origins.quick_dataclass import dataclass
from runners.model.entry import Entry
from runners.model.errors import BudgetExceeded
from runners.model.planned_batch import SettleBody
from runners.state.journal import Journal, list_decided
from runners.state.progress import read_body

_BYTES = " + ".join(f"CAST(coalesce(octet_length({each}), 0) AS bigint)" for each in ("`row`", "original", "message"))
"""The bytes of a row in a DLQ."""


@dataclass
class RefusedBudget:
    """Counts the waiting rows once, and then adds the rows that each batch refuses.

    Before it reports that the budget is exceeded, it counts again, because rows may have been discarded meanwhile. It
    gets the entries that settle batches before the ledger has them. After an error it counts everything again.
    """

    limit: int
    count: Callable[[Sequence[Entry]], int]
    """Returns how many refused rows wait now, or how many bytes they have."""
    add: Callable[[Sequence[Entry]], int]
    """Returns the part that is new with these entries."""
    size: str = ""
    """The budget as the definition gives it, if it is a number of bytes."""
    _waiting: int | None = None

    def check(self, settled: Sequence[Entry] = ()) -> BudgetExceeded | None:
        """Return why no batch may follow after these entries, or None if a batch may follow."""
        known, self._waiting = self._waiting, None
        waiting = self.count(settled) if known is None else known + self.add(settled)
        if waiting > self.limit and known is not None:
            waiting = self.count(settled)
        self._waiting = waiting
        return BudgetExceeded(waiting, self.limit, self.size) if waiting > self.limit else None


@dataclass(frozen=True, kw_only=True)
class WaitingRows:
    """The refused rows that wait, in the DLQ and in its fallback.

    A broken DLQ counts as empty if it has a fallback.
    """

    dlq: Destination
    fallback: Destination | None
    spark: Callable[[], SparkSession]
    journal: Journal

    def make_budget(self, budget: int | str) -> RefusedBudget:
        """Return a budget for the number of the rows or, if the budget is a size such as `500MiB`, for their bytes."""
        if isinstance(budget, str):
            return RefusedBudget(parse_size(budget), self.measure, self.measure_new, budget)
        return RefusedBudget(budget, self.count, count_refused)

    def count(self, settled: Sequence[Entry] = ()) -> int:
        """Return how many rows wait, with the rows of the batches that these entries settle."""

        def count_dlq() -> int:
            refused = count_dead_letters(self.dlq, self.spark) or 0
            return count_undecided(refused, self.dlq, self.spark, self.journal)

        return sum(self._list_fallen(settled).values()) + self._ask_dlq(count_dlq)

    def measure(self, settled: Sequence[Entry] = ()) -> int:
        """Return how many bytes the waiting rows have, with the rows of the batches that these entries settle."""
        fallen = self._list_fallen(settled)
        return self._measure_fallback(fallen) + self._ask_dlq(
            lambda: _add_undecided(_BYTES, self.dlq, self.spark, list_decided(self.journal).ids)
        )

    def measure_new(self, settled: Sequence[Entry]) -> int:
        """Return how many bytes of these batches wait. Only files with their rows are read."""
        fallen = _list_new_fallen(settled)
        kept = [entry.plan for entry in settled if entry.plan not in fallen]
        own = self._ask_dlq(lambda: _measure_plans(self.dlq, self.spark, kept)) if kept else 0
        return self._measure_fallback(fallen) + own

    def _measure_fallback(self, plans: Collection[str]) -> int:
        return _measure_plans(self.fallback, self.spark, plans) if plans and self.fallback is not None else 0

    def _list_fallen(self, settled: Sequence[Entry]) -> Mapping[str, int]:
        return {**self.journal.state.fallen, **_list_new_fallen(settled)}

    def _ask_dlq(self, ask: Callable[[], int]) -> int:
        try:
            return ask()
        except list_spark_errors(DestinationError):
            if self.fallback is None:
                raise
            return 0


def count_refused(settled: Sequence[Entry]) -> int:
    """Return how many rows of these batches were refused."""
    return sum(read_body(entry, SettleBody)["counts"]["nacked"] for entry in settled)


def count_undecided(refused: int, dlq: Destination, spark: Callable[[], SparkSession], journal: Journal) -> int:
    """Return how many of the rows in the DLQ were neither replayed nor discarded."""
    decided = list_decided(journal).ids
    return _add_undecided("1", dlq, spark, decided) if refused and decided else refused


def _add_undecided(what: str, dlq: Destination, spark: Callable[[], SparkSession], decided: Collection[str]) -> int:
    """Return the sum over all rows in the DLQ that were neither replayed nor discarded."""
    if not decided:
        return _query_sum(dlq, spark, f"SELECT sum({what}) AS n FROM {{table}}")
    tables = stream_dlq(dlq, spark, f"SELECT id, {what} AS n FROM {{table}}")
    pairs = (pair for each in tables for pair in zip(each["id"].to_pylist(), each["n"].to_pylist(), strict=True))
    return sum(number for id_, number in pairs if id_ not in decided)


def _measure_plans(table: Destination, spark: Callable[[], SparkSession], plans: Collection[str]) -> int:
    named = f"plan IN ({', '.join(map(quote_text, plans))})"
    return _query_sum(table, spark, f"SELECT sum({_BYTES}) AS n FROM {{table}} WHERE {named}")


def _query_sum(table: Destination, spark: Callable[[], SparkSession], query: str) -> int:
    return sum(row["n"] or 0 for row in query_dlq(table, spark, query))


def _list_new_fallen(settled: Sequence[Entry]) -> Mapping[str, int]:
    """Return how many rows went to the fallback, by the plans that these entries settle."""
    counts = {entry.plan: read_body(entry, SettleBody)["counts"].get("fallback", 0) for entry in settled}
    return {plan: rows for plan, rows in counts.items() if rows}
