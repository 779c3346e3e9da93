"""The way for any batch: Spark writes every row with its verdict, and reads it again for each destination."""

from __future__ import annotations

from collections.abc import Sequence

from runners.model.tasks import Prepared
from runners.ways.deciding import BatchDecision
from runners.ways.row_outcomes import group_by_spark
from runners.ways.way import Candidate, Way


class WrittenWay(Way[BatchDecision, Prepared]):
    """Spark writes all rows, and counts them meanwhile.

    If one is refused, Spark reads them again to find the refused rows.
    """

    name = "written"

    def why_not(self, batch: Candidate) -> str:
        return ""

    def carry(self, batches: Sequence[Candidate], work: BatchDecision) -> Prepared:
        (batch,) = batches
        work.write(work.described, {f"f{index}": own for index, own in enumerate(batch.chain.branches.values())})
        seen = [each for each in work.seen if each is not None]
        if len(seen) == len(work.sections):
            return work.decide_seen(seen)
        return work.decide_by([group_by_spark(work.store.read(work.spark, section)) for section in work.sections])
