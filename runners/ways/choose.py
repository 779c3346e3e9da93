"""The choice of the way for a batch: the first way in this order that can take it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field, replace
from typing import Any

from origins.quick_dataclass import dataclass
from runners.model.spec import WAYS
from runners.model.tasks import Declined, Prepared
from runners.ways.apart import Apart
from runners.ways.deciding import BatchDecision
from runners.ways.grouped import Grouped
from runners.ways.in_process import InProcess
from runners.ways.straight import Straight
from runners.ways.way import Candidate, Result, Way, Work
from runners.ways.written import WrittenWay

GROUPED, STRAIGHT = Grouped(), Straight()
COMMITTING = (GROUPED, STRAIGHT)
"""The ways whose write is the decision. The batch's planner chooses between them."""
WRITTEN = WrittenWay()
DECIDING: Sequence[Way[BatchDecision, Prepared]] = (InProcess(), Apart(), WRITTEN)
"""The ways that decide a batch before its delivery. The last one takes every batch."""

EVERY: Sequence[Way[Any, Any]] = (*COMMITTING, *DECIDING)


def list_ways_off(ways: Sequence[str]) -> frozenset[str]:
    """Return the ways that no batch takes if only these may be used. If `ways` is empty, all may be used."""
    return frozenset(WAYS) - {*ways, WRITTEN.name} if ways else frozenset()


def list_reasons(batch: Candidate) -> Mapping[str, str]:
    """Return, for each way, why it cannot take the batch; empty if it can."""
    return {way.name: way.why_not(batch) for way in EVERY}


def choose(batch: Candidate, ways: Sequence[Way[Work, Result]]) -> Way[Work, Result]:
    """Return the first of the ways that can take the batch. Costly checks come last."""
    return next(way for way in ways if way.name not in batch.declined and not way.why_not(batch))


def carry(
    batch: Candidate, ways: Sequence[Way[Work, Result]], work: Work
) -> tuple[Way[Work, Result], Result, Mapping[str, Declined]]:
    """Process the batch by the first way that does not decline it.

    Return this way, its result, and the ways that declined.
    """
    declined: dict[str, Declined] = {}
    while True:
        way = choose(batch, ways)
        result = way.carry([batch], work)
        if not isinstance(result, Declined):
            return way, result, declined
        declined[way.name] = result
        batch = replace(batch, declined=batch.declined | {way.name})


@dataclass
class DeclinedWays:
    """The ways that declined batches of a lane, so that later batches do not try them in vain."""

    _declined: dict[str, dict[str, Declined]] = field(default_factory=dict)

    def of(self, lane: str) -> frozenset[str]:
        """Return the ways that the lane's next batch need not try."""
        return frozenset(self._declined.get(lane, ()))

    def note(self, lane: str, declined: Mapping[str, Declined]) -> None:
        """Record that these ways declined a batch of the lane."""
        remembered = {name: each for name, each in declined.items() if each.remember}
        self._declined[lane] = {**self._declined.get(lane, {}), **remembered}
