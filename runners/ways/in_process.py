"""The way for a small batch: this process collects its rows, so Spark computes nothing twice."""

from __future__ import annotations

from collections.abc import Sequence

from runners.model.tasks import Declined, Prepared
from runners.ways import row_outcomes
from runners.ways.deciding import BatchDecision
from runners.ways.row_outcomes import group_by_arrow
from runners.ways.way import Candidate, Way


class InProcess(Way[BatchDecision, Prepared]):
    """This process collects the rows with their verdicts, counts them, and writes them."""

    name = "in_process"

    def why_not(self, batch: Candidate) -> str:
        if not batch.keeps_few:
            return "Spark may not run on this machine, and the state is in no object store"
        if batch.changing:
            return f"{batch.changing} gives other rows than it gets"
        if batch.plan is not None and not batch.is_small:
            return f"it may have more than {batch.thresholds.small_bytes:,} bytes"
        return ""

    def carry(self, batches: Sequence[Candidate], work: BatchDecision) -> Prepared | Declined:
        table = None if work.sections else work.store.write_few(f"{work.name}-0", work.described)
        if table is None:
            return Declined(reason="its types, or the number of its rows, need Spark")
        work.record_section(work.described)
        return work.decide_by([group_by_arrow(table)], lambda _, columns: row_outcomes.by_arrow(table, columns))
