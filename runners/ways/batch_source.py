"""The source of planned batches: origins, stages, and the current demands of the destinations.

A batch may be described before its turn, while the previous batch of its lane is written.
"""

from __future__ import annotations

import contextlib
import functools
import json
import operator
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import TYPE_CHECKING, Any, TypeVar

from destinations.capabilities import list_demands
from destinations.destination import Demands, Destination
from origins.batch import Batch, Span
from origins.batch_rows import BatchRows
from origins.capabilities import name_source
from origins.errors import OriginError, list_spark_errors
from origins.lazy import DataFrame, F, SparkSession, T
from origins.origin import RowSource
from origins.protection import Protection
from runners.model.error_kinds import classify
from runners.model.pipeline_state import REPLAY, is_replay
from runners.model.planned_batch import PlannedBatch
from runners.ways.row_outcomes import StateTally
from runners.ways.stage_chain import StageChain, apply_chain, list_upkeep, make_empty_rows, make_labels
from stages.expressions import put_in
from stages.query import Schemas
from stages.rows import Rows
from stages.stage import Stage

if TYPE_CHECKING:
    from runners.spark.session_pool import SessionPool


Described = TypeVar("Described")
Describe = Callable[["SparkSession", PlannedBatch], Described]


@dataclass
class BatchReader:
    """The origins of a run, and the stages of each origin's rows."""

    origins: Mapping[str, RowSource]
    destinations: Mapping[str, Destination]
    """The destinations by all names that they have or had, with the DLQ and its fallback."""
    chains: Mapping[str, StageChain] = field(default_factory=dict)
    """The stages of each origin's rows, once the run is open."""
    definition: str = ""
    """The hash of this run's definition."""
    before: Mapping[str, StageChain] = field(default_factory=dict)
    """The same stages before the run is open, without the demands of destinations."""
    protection: Protection = Protection()
    """Masks the rows that are shown."""
    claiming: set[str] = field(default_factory=set)
    """The lanes in which this run met a large value, or a reference to a large value."""
    fit_large_rows: Callable[[], None] = lambda: None
    """Prepares Spark's sessions for rows with such values."""
    schemas: Schemas = field(default_factory=dict)
    """The columns after stages, as batches of this run found them."""
    fix: Callable[[StageChain, Span], StageChain] | None = None
    """Returns the stages of a replay's rows, from the stages of their origin's rows."""

    def find_origin(self, batch: Batch) -> RowSource:
        """Return the origin from which the batch's rows are read."""
        found = self.origins.get(REPLAY if is_replay(batch.lane) else batch.origin)
        if found is None:
            raise OriginError(
                f"The definition no longer has the origin '{batch.origin}'.",
                hint="Put the origin back under that name.",
            )
        return found

    def name_source(self, batch: Batch) -> str:
        """Return where all rows of the batch came from; empty if each row has a part, or if the origin is gone."""
        return name_source(self.origins.get(REPLAY if is_replay(batch.lane) else batch.origin), batch.span)

    def find_chain(self, plan: PlannedBatch) -> StageChain:
        """Return the stages of a batch's rows.

        Rows of the DLQ go only to some destinations. The demands of other destinations do not apply to them.
        """
        chain = self.chains[plan.batch.origin]
        if not is_replay(plan.batch.lane):
            return chain
        own = chain.narrow(plan.destinations)
        return own if self.fix is None else self.fix(own, plan.batch.span)

    def find_known_chain(self, plan: PlannedBatch) -> StageChain:
        """Return the stages of a batch's rows, also before the run is open."""
        return self.chains.get(plan.batch.origin) or self.before[plan.batch.origin]

    def is_known(self, plan: PlannedBatch) -> bool:
        """Whether the batch was planned with the stages of this run."""
        origin = plan.batch.origin
        return plan.batch.definition == self.definition and (origin in self.chains or origin in self.before)

    def begin_claims(self, plan: PlannedBatch) -> None:
        """From now on, put large values of the batch's lane into their store, and read them from it."""
        chain = self.find_known_chain(plan)
        for upkeep in list_upkeep([chain]):
            upkeep.note_user(chain, plan.batch.pipeline)
        self.fit_large_rows()
        self.claiming.add(plan.batch.lane)

    def fetch_rows(self, spark: SparkSession, batch: Batch, *, places: bool = False) -> BatchRows:
        """Return a batch's rows as they are read."""
        return self.find_origin(batch).fetch(spark, [strip_lane_prefix(batch)], places=places)

    def make_empty_rows(self, spark: SparkSession, batch: Batch) -> Rows:
        """Return an empty frame with the columns that the batch's rows have when they are read."""
        return make_empty_rows(spark, T.StructType.fromJson(json.loads(batch.schema)), make_labels(batch))

    def read_straight_frame(
        self, spark: SparkSession, plan: PlannedBatch, read: BatchRows | None = None
    ) -> tuple[DataFrame, StateTally]:
        """Return the rows of a straight batch as Spark reads them, and their tally."""
        batch, chain = plan.batch, self.find_known_chain(plan)
        read = read or self.fetch_rows(spark, batch)
        tally = StateTally(chain, read.count(), given=read.count_given())
        rows = tally.begin(read.frame(), list_columns(batch), make_labels(batch), self.schemas)
        rows = replace(rows, claims=batch.lane in self.claiming)
        return tally.end(apply_chain(rows, chain.common, plan.pins)), tally

    def ask_demands(self, spark: SparkSession, batch: Batch) -> None:
        """Use the current constraints of the destinations. A table may have got one after the run began."""
        chain = self.chains[batch.origin].with_demands({})
        rows = apply_chain(self.make_empty_rows(spark, batch), chain.common, {})
        leaving = {name: apply_chain(rows, steps, {}).schema for name, steps in chain.branches.items()}
        demands = {name: list_demands_now(spark, self.destinations[name], schema) for name, schema in leaving.items()}
        self.chains = {**self.chains, batch.origin: chain.with_demands(demands)}


@dataclass
class Lookahead:
    """For each lane, the batch that most likely comes next.

    Batches that cannot be described early are described in their turn.
    """

    sessions: SessionPool
    _coming: dict[str, tuple[PlannedBatch, SparkSession, Future[Any]]] = field(default_factory=dict)
    """By lane: the batch, the session in which it is described, and its description."""

    def begin(self, plan: PlannedBatch, spark: SparkSession, describe: Describe[Described]) -> None:
        """Describe this batch in another thread, in the same session."""
        description = self.sessions.get_helpers().submit(self._describe, spark, plan, describe)
        self._coming[plan.batch.lane] = (plan, spark, description)

    def take(self, plan: PlannedBatch, spark: SparkSession) -> Any:
        """Return the description of this batch in this session.

        It is None if another batch was expected, or an error occurred. Forget what was described for the batch's lane.
        """
        known, session, description = self._coming.pop(plan.batch.lane, (None, None, None))
        if description is None or known != plan or session is not spark or description.exception():
            return None
        return description.result()

    def _describe(self, spark: SparkSession, plan: PlannedBatch, describe: Describe[Described]) -> Described:
        with self.sessions.tag_thread(spark):
            return describe(spark, plan)


def sum_sizes(sizes: Iterable[int | None]) -> int | None:
    """Return the sum of these sizes; None if one is unknown."""
    known = list(sizes)
    return None if None in known else sum(each or 0 for each in known)


def strip_lane_prefix(batch: Batch) -> Batch:
    """Return the batch as its origin knows it: with the name that the origin gave to the lane."""
    return replace(batch, lane=batch.lane.rpartition("/")[2])


def list_columns(batch: Batch) -> tuple[str, ...]:
    """Return the names of the columns that the batch was planned with."""
    return tuple(field["name"] for field in json.loads(batch.schema)["fields"])


def list_demands_now(spark: SparkSession, destination: Destination, rows: T.StructType) -> Sequence[Stage]:
    """Return the stages that such rows pass before they are written."""
    with contextlib.closing(destination.open()) as opened:
        return list_demands(opened, spark, rows)


def would_refuse(
    spark: SparkSession, destination: Destination, rows: DataFrame, labels: Mapping[str, str | int | datetime]
) -> bool:
    """Whether the destination would refuse one of these rows, which were decided for it. It writes nothing.

    Raises `Misfit` if the destination no longer takes such rows at all.
    """
    with contextlib.closing(destination.open()) as opened:
        opened.ensure_place(spark, rows.schema)
        demands = [stage for stage in list_demands(opened, spark, rows.schema) if isinstance(stage, Demands)]
    holds = [F.expr(put_in(rule.holds, labels)) for stage in demands for rule in stage.rules]
    if not holds:
        return False
    broken = functools.reduce(operator.or_, [~F.coalesce(each, F.lit(False)) for each in holds])
    try:
        return bool(rows.where(broken).limit(1).collect())
    except list_spark_errors() as error:
        if classify(error).is_row:
            return True
        raise
