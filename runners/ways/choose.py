"""The choice of the way for a batch: the first way in this order that can take it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from runners.model.tasks import Prepared
from runners.ways.apart import Apart
from runners.ways.deciding import BatchDecision
from runners.ways.grouped import Grouped
from runners.ways.straight import Straight
from runners.ways.way import Candidate, Way
from runners.ways.written import WrittenWay

GROUPED, STRAIGHT = Grouped(), Straight()
COMMITTING = (GROUPED, STRAIGHT)
"""The ways whose write is the decision. The batch's planner chooses between them."""
WRITTEN = WrittenWay()
DECIDING: Sequence[Way[BatchDecision, Prepared]] = (Apart(), WRITTEN)
"""The ways that decide a batch before its delivery. The last one takes every batch."""

EVERY: Sequence[Way[Any, Any]] = (*COMMITTING, *DECIDING)


def list_reasons(batch: Candidate) -> Mapping[str, str]:
    """Return, for each way, why it cannot take the batch; empty if it can."""
    return {way.name: way.why_not(batch) for way in EVERY}


def choose(batch: Candidate) -> Way[BatchDecision, Prepared]:
    """Return the first way that can decide the batch."""
    return next(way for way in DECIDING if not batch.thresholds.leaves_out(way.name) and not way.why_not(batch))
