"""Where the rows of planned batches come from, and the stages that they pass on their way out."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, TypeAlias

from destinations.destination import Destination
from origins.batch import Batch
from origins.errors import OriginError
from origins.origin import BATCH, Origin
from runners.few_rows import is_small
from runners.line import Common, Differs, Line, labels_of, passing
from runners.plan import Plan
from runners.state import REPLAY, is_replay

if TYPE_CHECKING:
    import pyarrow
    from pyspark.sql import DataFrame, SparkSession

    from runners.counting import Tally
    from stages.rows import Straight

AnyRows: TypeAlias = "DataFrame | pyarrow.Table"
"""Rows that Spark is going to read, or that were read in this process."""


@dataclass
class Reading:
    """All origins of a run, and the way of each one's rows."""

    origins: Mapping[str, Origin]
    destinations: Mapping[str, Destination]
    """By all names that they have or had."""
    lines: Mapping[str, Line] = field(default_factory=dict)
    """The stages of each origin's rows, once the run is open."""
    definition: str = ""
    """The hash of the definition that this run carries with."""
    before: Mapping[str, Line] = field(default_factory=dict)
    """The same stages before the run is open, without what destinations demand."""
    _differing: set[str] = field(default_factory=set)
    """The origins of which a stage asks what differs from batch to batch."""

    def origin(self, batch: Batch) -> Origin:
        """Where the batch's rows are read."""
        found = self.origins.get(REPLAY if is_replay(batch.lane) else batch.origin)
        if found is None:
            raise OriginError(f"There is no origin '{batch.origin}' any more.", hint="Put it back under that name.")
        return found

    def line(self, plan: Plan) -> Line:
        """The way of a batch's rows; those of the DLQ go to some destinations only, and what the others would refuse
        is nobody's concern."""
        line = self.lines[plan.batch.origin]
        if not is_replay(plan.batch.lane):
            return line
        return replace(line, branches={name: line.branches[name] for name in plan.destinations})

    def is_known(self, plan: Plan) -> bool:
        """Whether the stages that the batch was planned with are those of this run."""
        origin = plan.batch.origin
        return plan.batch.definition == self.definition and (origin in self.lines or origin in self.before)

    def is_few(self, plan: Plan) -> bool:
        """Whether the batch's rows are surely few, behind all stages as well."""
        return is_small(plan.batch) and not any(step.stage.changes_rows for step in self.line(plan).steps)

    def fetched(self, spark: SparkSession, batch: Batch, *, places: bool = False) -> DataFrame:
        """A batch's rows as they are read."""
        return self.origin(batch).fetch(spark, own(batch), places=places)

    def nothing(self, spark: SparkSession, batch: Batch) -> Straight:
        """No rows, with the columns that the batch's rows have when they are read."""
        from pyspark.sql.types import StructType

        from stages.rows import Straight

        nothing = spark.createDataFrame([], StructType.fromJson(json.loads(batch.schema)))
        return Straight.begin(nothing, columns(batch), labels_of(batch), lambda frame, _: frame)

    def ready(self, spark: SparkSession, plan: Plan) -> tuple[AnyRows, Tally]:
        """The rows of a straight batch, read already where that takes no Spark, and who counts them."""
        from runners.counting import Tally

        here = self._here(spark, plan)
        return self.straight(spark, plan) if here is None else (here, Tally.of_rows(self.line(plan), here.num_rows))

    def straight(self, spark: SparkSession, plan: Plan) -> tuple[DataFrame, Tally]:
        """The rows of a straight batch as Spark reads them, and who counts them."""
        from runners.counting import Tally
        from stages.rows import Straight

        batch, line = plan.batch, self.lines.get(plan.batch.origin) or self.before[plan.batch.origin]
        tally = Tally.of(line, self.origin(batch).count(own(batch)))
        rows = Straight.begin(self.fetched(spark, batch), columns(batch), labels_of(batch), tally.observe)
        return passing(rows, line.common, plan.pins).frame, tally

    def together(self, spark: SparkSession, plans: Sequence[Plan]) -> tuple[AnyRows, Sequence[Tally]] | None:
        """The rows of straight batches of one origin in one piece, and who counts those of each; None where each batch
        has to be described for itself."""
        import pyarrow as pa

        from runners.counting import Tally

        tables = []
        for plan in plans:
            here = self._here(spark, plan)
            if here is None:
                return self._in_one(spark, plans)
            tables.append(here)
        line = self.lines[plans[0].batch.origin]
        return pa.concat_tables(tables), [Tally.of_rows(line, table.num_rows) for table in tables]

    def _in_one(self, spark: SparkSession, plans: Sequence[Plan]) -> tuple[DataFrame, Sequence[Tally]] | None:
        """As one frame."""
        from runners.counting import Tally
        from stages.rows import Straight

        first, batches = plans[0], [plan.batch for plan in plans]
        line = self.lines[first.batch.origin]
        alike = all((plan.pins, plan.batch.schema) == (first.pins, first.batch.schema) for plan in plans)
        if not alike or not line.by_row or first.batch.origin in self._differing:
            return None
        frame = self.origin(first.batch).fetch_several(spark, [own(batch) for batch in batches])
        if frame is None:
            return None
        tallies = Tally.of_several(line, len(batches))
        begun = Straight.begin(frame, columns(first.batch), Common(batches), tallies[0].observe, kept=(BATCH,))
        try:
            return passing(begun, line.common, first.pins).frame.drop(BATCH), tallies
        except Differs:
            self._differing.add(first.batch.origin)
            return None

    def _here(self, spark: SparkSession, plan: Plan) -> pyarrow.Table | None:
        """The rows of a straight batch, read in this process; None where they have to pass a stage, or have to be read
        by Spark."""
        (name,) = plan.destinations
        if self.line(plan).steps or not self.is_few(plan) or not self.destinations[name].takes_by("write_here"):
            return None
        return self.origin(plan.batch).fetch_here(spark, own(plan.batch))


def own(batch: Batch) -> Batch:
    """The batch as its origin knows it: with the origin's own name of the lane."""
    return replace(batch, lane=batch.lane.rpartition("/")[2])


def columns(batch: Batch) -> tuple[str, ...]:
    """The names of the columns that the batch was planned with."""
    return tuple(field["name"] for field in json.loads(batch.schema)["fields"])
