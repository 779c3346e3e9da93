"""Lanes that are ready at the same time share one write. Pure: nothing is read, written or waited for here."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from runners.crew import Finished
from runners.flight import Flight
from runners.outcome import Alone, Carry, Failed, Outcome, Shared, Task, Together
from runners.source import Source

MOST = 16
"""How many batches go together at most: Spark looks at the rows of each before it begins."""


def may_share(flight: Flight, source: Source | None) -> bool:
    """Whether this batch may be written together with others: it goes straight, its destination takes several, and it
    was not parted from others before."""
    if source is None or flight.alone or not isinstance(flight.task, Carry):
        return False
    return source.shares(flight.plan.batch.lane)


def grouped(flights: Sequence[Flight], source: Source | None) -> Iterator[Sequence[Flight]]:
    """The flights in their order, those together that may share a write."""
    sharing: dict[str, list[Flight]] = {}
    for flight in flights:
        if may_share(flight, source):
            sharing.setdefault(flight.plan.batch.origin, []).append(flight)
    for flight in flights:
        together = sharing.get(flight.plan.batch.origin, []) if may_share(flight, source) else [flight]
        if together and together[0] is flight:
            for first in range(0, len(together), MOST):
                yield together[first : first + MOST]


def joined(tasks: Sequence[Task]) -> Task:
    """One task for all of them."""
    carries = [task for task in tasks if isinstance(task, Carry)]
    return Together(carries=carries) if len(tasks) > 1 else tasks[0]


def parted(outcome: Outcome, lanes: Sequence[str]) -> Iterator[Finished]:
    """The outcome of a task, for each of its lanes."""
    for lane in lanes:
        if isinstance(outcome, Shared):
            yield lane, outcome.landed[lane]
        elif len(lanes) == 1 or isinstance(outcome, Alone | Failed):
            yield lane, outcome
        else:
            raise TypeError(f"no outcome of a shared task: {outcome}")
