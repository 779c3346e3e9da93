"""Where a batch's time goes: all of it, from the moment at which it is planned to that at which it is settled."""

from __future__ import annotations

from collections.abc import Mapping

from destinations.dlq import DLQ
from runners.outcome import Count, Deliver, Explain, Landed, Outcome, Prepare, Task

PHASES = ("plan", "read", "write", "dlq", "ledger", "rest")
"""What time is spent on. `read` is reading and stages, as far as they are apart from the write: a straight batch is
read while it is written. `dlq` is what its write takes longer than those beside it, and `rest` the wait before a batch
is tried again."""


class Watch:
    """One batch's time; whatever passes between two marks belongs to the phase that the later one names."""

    def __init__(self, now: float) -> None:
        self.spent = dict.fromkeys(PHASES, 0.0)
        self._last = now

    def mark(self, phase: str, now: float) -> None:
        """Until now it was this."""
        self.spent[phase] += now - self._last
        self._last = now

    @property
    def worked(self) -> float:
        """All but the rests."""
        return sum(self.spent.values()) - self.spent["rest"]

    def carried(self, task: Task, outcome: Outcome, now: float) -> None:
        """Until now a runner worked on the task, or had it waiting."""
        if isinstance(outcome, Landed) and outcome.described:
            described = min(outcome.described, now - self._last)
            self.spent["read"] += described
            self._last += described
        if isinstance(outcome, Landed) and outcome.outlasted:
            self.mark("write", max(self._last, now - outcome.outlasted))
            self.mark("dlq", now)
        self.mark(_phase(task), now)


def added(totals: Mapping[str, float], spent: Mapping[str, float], before: Mapping[str, float]) -> dict[str, float]:
    """The totals with what was spent since the batch was told of before."""
    return {phase: totals[phase] + spent.get(phase, 0.0) - before.get(phase, 0.0) for phase in PHASES}


def _phase(task: Task) -> str:
    if isinstance(task, Prepare | Count):
        return "read"
    if isinstance(task, Explain) or (isinstance(task, Deliver) and list(task.names) == [DLQ]):
        return "dlq"
    return "write"
