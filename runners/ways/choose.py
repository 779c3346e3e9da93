"""The ways that decide a batch before its delivery, and the choice of the way for a batch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from runners.model.tasks import Prepared
from runners.state.decided_rows import APART
from runners.ways.deciding import BatchDecision
from runners.ways.row_outcomes import by_arrow, group_by_arrow
from runners.ways.straight import Grouped, Straight
from runners.ways.way import Candidate, Way


class Apart(Way[BatchDecision, Prepared]):
    """The way for a large batch. Spark writes its rows once, apart by what becomes of them.

    The files say how many rows there are. A Delta table can take over the files of the live rows.
    """

    name = APART

    def why_not(self, batch: Candidate) -> str:
        if batch.is_small:
            return f"it has at most {batch.thresholds.small_bytes:,} bytes"
        if batch.changing:
            return f"{batch.changing} gives other rows than it gets"
        for step in batch.chain.steps:
            if step.stage.gathers:
                return f"{step.name} needs more than one row"
            if step.stage.asks_outside:
                return f"{step.name} calls another system, which may notice that it is called twice"
        return "its destinations get different rows" if any(batch.chain.branches.values()) else ""

    def carry(self, batches: Sequence[Candidate], work: BatchDecision) -> Prepared:
        return work.decide_apart()


class WrittenWay(Way[BatchDecision, Prepared]):
    """The way for any batch. All rows are written with their verdicts, and read again for each destination.

    This process writes the rows of a small batch, so Spark computes nothing twice. Spark writes all others.
    """

    name = "written"

    def why_not(self, batch: Candidate) -> str:
        return ""

    def carry(self, batches: Sequence[Candidate], work: BatchDecision) -> Prepared:
        (batch,) = batches
        few = work.write_few() if batch.keeps_few and batch.is_small else None
        if few is not None:
            return work.decide_by([group_by_arrow(few)], lambda _, columns: by_arrow(few, columns))
        work.write(work.described)
        return work.decide_by([work.group_section(section) for section in work.sections])


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
