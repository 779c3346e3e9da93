"""The way for a clean batch: its rows go directly to its only destination. A successful write is the whole decision."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from destinations.destination import OpenDestination, Written
from destinations.labels import Deadline, Label
from origins.batch_rows import BatchRows, TableRows
from origins.crash_points import reach
from origins.lazy import SparkSession
from runners.model.error_kinds import classify, is_large, is_refusal
from runners.model.planned_batch import PlannedBatch
from runners.model.tasks import Declined, Landed
from runners.ways.batch_source import BatchReader
from runners.ways.row_outcomes import StateTally
from runners.ways.way import Candidate, Way
from stages.stage import Stage, is_repeatable

DescribedRows: TypeAlias = "tuple[BatchRows, StateTally]"
"""The rows of a batch after its stages, and their tally."""


class Straight(Way["Commit", "Landed | Declined"]):
    """Writes a batch directly. The write raises at the first refused row, and no row of the batch is then written."""

    name = "straight"

    def why_not(self, batch: Candidate) -> str:
        return next(list_prepare_reasons(batch), "")

    def carry(self, batches: Sequence[Candidate], work: Commit) -> Landed | Declined:
        (batch,) = batches
        assert batch.plan is not None
        began = time.monotonic()
        rows, tally = work.describe(batch)
        described = time.monotonic() - began
        try:
            written = work.write(batches, rows)
        except Exception as error:
            if not work.is_refusal(error):
                raise
            if is_large(error):
                work.reading.begin_claims(batch.plan)
            elif not is_refusal(error):
                work.reading.ask_demands(work.spark, batch.plan.batch)
            return Declined(reason="a row is refused, or fails, or has a large value")
        (name,) = batch.plan.destinations
        return Landed(written={name: written}, counts=tally.count(written.rows)[0], described=described)


@dataclass(frozen=True, kw_only=True)
class Commit:
    """What a way needs whose write is the decision."""

    spark: SparkSession
    reading: BatchReader
    opened: Mapping[str, OpenDestination]
    """The open destinations by all names that they have or had."""
    deadline: Callable[[], Deadline | None]
    """Returns the end of the time in which a write may begin; None if there is none."""
    also: Sequence[str] = ()
    """More texts of errors that pass by themselves, beside the known ones."""
    describe_rows: Callable[[PlannedBatch], DescribedRows]
    """Returns the rows of a straight batch as Spark reads them, perhaps described before their turn.

    The way `grouped` describes the rows of its batches together, and does not call it.
    """

    def describe(self, batch: Candidate) -> DescribedRows:
        """Return the rows and their tally. They are already read if that needs no Spark."""
        assert batch.plan is not None
        table = read_here(batch, self.spark)
        if table is not None:
            return table, StateTally.make_counted(batch.chain, [table.count()])
        return self.describe_rows(batch.plan)

    def write(self, batches: Sequence[Candidate], rows: BatchRows) -> Written:
        """Write the rows of these batches to their only destination, in one commit that names each batch."""
        plans = [batch.plan for batch in batches if batch.plan is not None]
        (name,) = plans[0].destinations
        labels = [Label(batch=plan.batch, destination=name, deadline=self.deadline()) for plan in plans]
        reach("before-write", name)
        written = self.opened[name].write(self.spark, rows, labels)
        reach("after-write", name)
        reach("after-writes")
        return written

    def is_refusal(self, error: Exception) -> bool:
        """Whether the write met a row that a stage refuses, at which a stage raises, or that has a large value."""
        return is_refusal(error) or is_large(error) or classify(error, self.also).is_row


def list_prepare_reasons(batch: Candidate) -> Iterator[str]:
    """Return why every batch is decided and written under the state before it is delivered.

    It returns nothing if clean batches can be written directly.
    """
    destinations = batch.destinations
    if len(destinations) > 1:
        yield f"there are {len(destinations)} destinations"
    for destination in destinations:
        if not destination.remembers and len(destinations) == 1:
            yield f"{destination.name} cannot say whether it has a batch"
    if not batch.origin.repeatable:
        yield f"{batch.origin.name} may give other rows when a batch is read again"
    if batch.keeps_filtered and batch.chain.steps:
        yield "keep_filtered stores the rows that stages filter"
    for step in batch.chain.steps:
        if not is_repeatable(step.stage):
            yield f"{step.name} may answer differently when it is run again"
        if step.stage.prepares:
            yield f"{step.name} {step.stage.prepares}"
        if step.stage.needs_places:
            yield f"{step.name} needs the order in which rows were read"


def read_here(batch: Candidate, spark: SparkSession) -> TableRows | None:
    """Return the rows of a small batch, read in this process.

    It is None if a stage may change or refuse one of them, or if only Spark can read them.
    """
    stages = [step.stage for step in batch.chain.steps]
    if any(type(stage).leaves is Stage.leaves for stage in stages) or not batch.is_small or batch.rows is None:
        return None
    table = batch.rows.table()
    if table is None or not all(stage.leaves(table) for stage in stages):
        return None
    return TableRows(spark, table, batch.rows.schema)
