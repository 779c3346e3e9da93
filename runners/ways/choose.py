"""Which way a batch takes: the first one that can, in this order."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field, replace
from typing import TYPE_CHECKING, Any, TypeVar

from origins.quick_dataclass import dataclass
from runners.model.spec import WAYS
from runners.model.tasks import Declined, Prepared
from runners.ways.copy_files import CopyFiles
from runners.ways.grouped import Grouped
from runners.ways.in_process import InProcess
from runners.ways.one_pass import OnePass
from runners.ways.straight import Straight
from runners.ways.way import Candidate, Way
from runners.ways.written import WrittenWay

if TYPE_CHECKING:
    from runners.ways.deciding import BatchDecision

Work = TypeVar("Work")
Result = TypeVar("Result")

GROUPED, STRAIGHT = Grouped(), Straight()
COMMITTING = (GROUPED, STRAIGHT)
"""The ways whose write is the decision. The planner of the batch chooses between them."""
WRITTEN = WrittenWay()
DECIDING: Sequence[Way[BatchDecision, Prepared]] = (InProcess(), CopyFiles(), OnePass(), WRITTEN)
"""Decided first, delivered after. The last one can always."""

EVERY: Sequence[Way[Any, Any]] = (*COMMITTING, *DECIDING)


def list_ways_off(ways: Sequence[str]) -> frozenset[str]:
    """The ways that no batch takes where only these may be taken; all may where none is named."""
    return frozenset(WAYS) - {*ways, WRITTEN.name} if ways else frozenset()


def list_reasons(batch: Candidate) -> Mapping[str, str]:
    """For each way why it cannot carry the batch; nothing where it can."""
    return {way.name: why_not(batch, way) for way in EVERY}


def why_not(batch: Candidate, way: Way[Work, Result]) -> str:
    """Why a way does not carry the batch; nothing if it can."""
    return way.why_not(batch) or (f"run.ways leaves {way.name} out" if way.name in batch.declined else "")


def choose(batch: Candidate, ways: Sequence[Way[Work, Result]]) -> Way[Work, Result]:
    """The first of the ways that can carry the batch. It looks at what is dear to ask last."""
    return next(way for way in ways if way.name not in batch.declined and not way.why_not(batch))


def carry(
    batch: Candidate, ways: Sequence[Way[Work, Result]], work: Work
) -> tuple[Way[Work, Result], Result, Mapping[str, Declined]]:
    """Carry the batch by the first way that does not decline it: which one, what came of it, and who declined."""
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
    """Which ways declined batches of a lane, so that the next ones do not try them in vain."""

    _declined: dict[str, dict[str, Declined]] = field(default_factory=dict)

    def of(self, lane: str) -> frozenset[str]:
        """The ways that the lane's next batch need not try."""
        return frozenset(self._declined.get(lane, ()))

    def note(self, lane: str, declined: Mapping[str, Declined], *, clean: bool) -> None:
        """A batch of the lane was carried, after these ways had declined it; `clean` if no row of it was refused."""
        kept = {name: each for name, each in self._declined.get(lane, {}).items() if not (clean and each.until_clean)}
        self._declined[lane] = {**kept, **{name: each for name, each in declined.items() if each.remember}}
