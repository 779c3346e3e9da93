"""The way for any batch: Spark writes every row with its verdict, and reads it again for each destination."""

from __future__ import annotations

from collections.abc import Sequence

from runners.model.tasks import Prepared
from runners.ways.deciding import BatchDecision
from runners.ways.way import Candidate, Way


class WrittenWay(Way[BatchDecision, Prepared]):
    """Spark writes all rows, and their groups are read from what it wrote."""

    name = "written"

    def why_not(self, batch: Candidate) -> str:
        return ""

    def carry(self, batches: Sequence[Candidate], work: BatchDecision) -> Prepared:
        work.write(work.described)
        return work.decide_by([work.group_section(section) for section in work.sections])
