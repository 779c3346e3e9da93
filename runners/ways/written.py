"""The way for any batch: every row is written with its verdict, and read again for each destination."""

from __future__ import annotations

from collections.abc import Sequence

from runners.model.tasks import Prepared
from runners.ways.deciding import BatchDecision
from runners.ways.row_outcomes import by_arrow, group_by_arrow
from runners.ways.way import Candidate, Way


class WrittenWay(Way[BatchDecision, Prepared]):
    """All rows are written, and their groups are read from what was written.

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
