"""How a batch's time is spent until it is settled."""

from __future__ import annotations

from collections.abc import Mapping

from destinations.dlq import DLQ
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
