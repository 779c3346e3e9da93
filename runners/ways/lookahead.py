"""Batches that Wherry describes before their turn, while the previous batch of their lane is written."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import field
from typing import TYPE_CHECKING, Any, TypeVar

from origins.quick_dataclass import dataclass

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from runners.model.planned_batch import PlannedBatch
    from runners.spark.session_pool import SessionPool

T = TypeVar("T")
Describe = Callable[["SparkSession", "PlannedBatch"], T]


@dataclass(frozen=True, kw_only=True)
class _Coming:
    plan: PlannedBatch
    spark: SparkSession
    description: Future[Any]


@dataclass
class Lookahead:
    """For each lane, the batch that most likely comes next.

    Batches that cannot be described early are described in their turn.
    """

    sessions: SessionPool
    _coming: dict[str, _Coming] = field(default_factory=dict)

    def begin(self, plan: PlannedBatch, spark: SparkSession, describe: Describe[T]) -> None:
        """Describe this batch in another thread, in the same session."""
        coming = self.sessions.get_helpers().submit(self._describe, spark, plan, describe)
        self._coming[plan.batch.lane] = _Coming(plan=plan, spark=spark, description=coming)

    def take(self, plan: PlannedBatch, spark: SparkSession) -> Any:
        """Return the description of this batch in this session.

        It is None if another batch was expected, or an error occurred. Forget what was described for the batch's lane.
        """
        coming = self._coming.pop(plan.batch.lane, None)
        if coming is None or coming.plan != plan or coming.spark is not spark or coming.description.exception():
            return None
        return coming.description.result()

    def _describe(self, spark: SparkSession, plan: PlannedBatch, describe: Describe[T]) -> T:
        with self.sessions.tag_thread(spark):
            return describe(spark, plan)
