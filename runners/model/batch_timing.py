"""How a batch's time is spent until it is settled, and the size of later batches that follows from it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from destinations.dlq import DLQ
from origins.batch import Limits
from runners.model.tasks import CountSpan, Deliver, Explain, Landed, Outcome, Prepare, Task

PHASES = ("plan", "read", "write", "dlq", "ledger", "rest")
"""The phases of a batch's time.

`read` is the time for reading and stages, as far as it is separate from the write: a straight batch is read while it is
written. `dlq` is how much longer the DLQ's write takes than the parallel writes. `rest` is the wait before a retry.
"""


class BatchTiming:
    """The time of one batch. The time between two marks belongs to the phase of the later mark."""

    def __init__(self, now: float) -> None:
        self.spent = dict.fromkeys(PHASES, 0.0)
        self._last = now

    def mark(self, phase: str, now: float) -> None:
        """Count the time since the last mark for this phase."""
        self.spent[phase] += now - self._last
        self._last = now

    @property
    def work_seconds(self) -> float:
        """The time of all phases except `rest`."""
        return sum(self.spent.values()) - self.spent["rest"]

    def note_task(self, task: Task, outcome: Outcome, now: float) -> None:
        """Count the time until now as a runner's work on the task, or as the task's wait for a runner."""
        if isinstance(outcome, Landed) and outcome.described:
            described = min(outcome.described, now - self._last)
            self.spent["read"] += described
            self._last += described
        if isinstance(outcome, Landed) and outcome.outlasted:
            self.mark("write", max(self._last, now - outcome.outlasted))
            self.mark("dlq", now)
        self.mark(_find_phase(task), now)


def add_times(totals: Mapping[str, float], spent: Mapping[str, float], before: Mapping[str, float]) -> dict[str, float]:
    """Return the totals with the time since the batch's last report added."""
    return {phase: totals[phase] + spent.get(phase, 0.0) - before.get(phase, 0.0) for phase in PHASES}


def _find_phase(task: Task) -> str:
    if isinstance(task, Prepare | CountSpan):
        return "read"
    if isinstance(task, Explain) or (isinstance(task, Deliver) and list(task.names) == [DLQ]):
        return "dlq"
    return "write"


FIRST = 1 / 16
"""The share of the limits for a lane's first batch, since its duration is not known yet."""
LEAST = 1 / 65_536
"""The smallest share. Each limit stays at least 1."""
NEAR = (0.7, 1.2)
"""A batch has the right size if it took between these fractions of the target."""
SHRINK, GROW = 1 / 8, 2.0
"""The smallest and largest factor between a batch's share and that of the next batch."""


class BatchSizing:
    """The share of the limits that each lane's next batch gets. Without a target, it gets the whole limits."""

    def __init__(self, target: float = 0.0) -> None:
        self.target = target
        """How many seconds a batch should take. 0 means that there is no target."""
        self.shares: dict[str, float] = {}

    def limit(self, lane: str, most: Limits) -> Limits:
        """Return the limits of the lane's next batch."""
        if not self.target:
            return most
        share = self.shares.get(lane, FIRST)
        given = {name: limit for name, limit in vars(most).items() if limit is not None}
        return replace(most, **{name: max(1, int(limit * share)) for name, limit in given.items()})

    def note_time(self, lane: str, seconds: float, *, full: bool) -> None:
        """Record how long a batch took. A fast batch that was not full does not raise the share."""
        used = seconds / self.target if self.target else 1.0
        if NEAR[0] <= used <= NEAR[1] or (used < 1 and not full):
            return
        share = self.shares.get(lane, FIRST) * min(GROW, max(SHRINK, 1 / used if used else GROW))
        self.shares[lane] = min(1.0, max(LEAST, share))
