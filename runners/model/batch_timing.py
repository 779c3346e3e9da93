"""Where a batch's time goes, from its plan until it is settled, and how large batches are made by that. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from destinations.dlq import DLQ
from origins.batch import Limits
from runners.model.tasks import CountSpan, Deliver, Explain, Landed, Outcome, Prepare, Task

PHASES = ("plan", "read", "write", "dlq", "ledger", "rest")
"""What time is spent on. `read` is reading and stages, as far as they are apart from the write: a straight batch is
read while it is written. `dlq` is what its write takes longer than those beside it, and `rest` the wait before a batch
is tried again."""


class BatchTiming:
    """One batch's time; the time between two marks belongs to the phase of the later mark."""

    def __init__(self, now: float) -> None:
        self.spent = dict.fromkeys(PHASES, 0.0)
        self._last = now

    def mark(self, phase: str, now: float) -> None:
        """Until now it was this."""
        self.spent[phase] += now - self._last
        self._last = now

    @property
    def work_seconds(self) -> float:
        """All but the rests."""
        return sum(self.spent.values()) - self.spent["rest"]

    def note_task(self, task: Task, outcome: Outcome, now: float) -> None:
        """Until now a runner worked on the task, or had it waiting."""
        if isinstance(outcome, Landed) and outcome.beside:
            self._last += min(outcome.beside, now - self._last)
        if isinstance(outcome, Landed) and outcome.described:
            described = min(outcome.described, now - self._last)
            self.spent["read"] += described
            self._last += described
        if isinstance(outcome, Landed) and outcome.outlasted:
            self.mark("write", max(self._last, now - outcome.outlasted))
            self.mark("dlq", now)
        self.mark(_find_phase(task), now)


def add_times(totals: Mapping[str, float], spent: Mapping[str, float], before: Mapping[str, float]) -> dict[str, float]:
    """The totals with the time since the batch's last report."""
    return {phase: totals[phase] + spent.get(phase, 0.0) - before.get(phase, 0.0) for phase in PHASES}


def _find_phase(task: Task) -> str:
    if isinstance(task, Prepare | CountSpan):
        return "read"
    if isinstance(task, Explain) or (isinstance(task, Deliver) and list(task.names) == [DLQ]):
        return "dlq"
    return "write"


FIRST = 1 / 16
"""The share of the limits that a lane's first batch is given: how long it will take nobody knows."""
LEAST = 1 / 65_536
"""The least share; of a limit there is always one."""
NEAR = (0.7, 1.2)
"""A batch that took this much of what was asked for is as large as it should be."""
SHRINK, GROW = 1 / 8, 2.0
"""How much smaller and larger than the last batch the next one may be."""


class BatchSizing:
    """The share of the limits that each lane's next batch is given; all of them where nothing was asked for."""

    def __init__(self, target: float = 0.0) -> None:
        self.target = target
        """How many seconds a batch is to take; 0: as long as it does."""
        self.shares: dict[str, float] = {}

    def limit(self, lane: str, most: Limits) -> Limits:
        """What the lane's next batch may hold."""
        if not self.target:
            return most
        share = self.shares.get(lane, FIRST)
        given = {name: limit for name, limit in vars(most).items() if limit is not None}
        return replace(most, **{name: max(1, int(limit * share)) for name, limit in given.items()})

    def note_time(self, lane: str, seconds: float, *, full: bool) -> None:
        """A batch took so long. One that was not full says nothing of how much larger the next one could be."""
        used = seconds / self.target if self.target else 1.0
        if NEAR[0] <= used <= NEAR[1] or (used < 1 and not full):
            return
        share = self.shares.get(lane, FIRST) * min(GROW, max(SHRINK, 1 / used if used else GROW))
        self.shares[lane] = min(1.0, max(LEAST, share))
