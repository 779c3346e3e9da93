"""The way for a large batch: Spark writes its rows once, apart by what becomes of them."""

from __future__ import annotations

from collections.abc import Sequence

from runners.model.tasks import Prepared
from runners.state.decided_rows import APART
from runners.ways.deciding import BatchDecision
from runners.ways.way import Candidate, Way


class Apart(Way[BatchDecision, Prepared]):
    """Spark writes the live, the refused and the filtered rows into files of their own, in one pass.

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
