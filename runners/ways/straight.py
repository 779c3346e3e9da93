"""The ways for clean batches, alone or of several lanes: a successful write to the only destination decides them."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

from destinations.destination import OpenDestination, Written
from destinations.labels import Deadline, Label
from origins.batch import Batch
from origins.batch_rows import BatchRows, FrameRows, TableRows
from origins.capabilities import FetchesAhead
from origins.crash_points import reach
from origins.lazy import SparkSession, pa
from origins.protection import Protection
from runners.model.error_kinds import classify, is_large, is_refusal
from runners.model.planned_batch import Counts, PlannedBatch
from runners.model.tasks import Declined, GroupWritten, Landed
from runners.model.text import summarise_error
from runners.ways.batch_source import BatchReader, list_columns, strip_lane_prefix, sum_sizes
from runners.ways.row_outcomes import StateTally
from runners.ways.stage_chain import CommonLabels, apply_chain
from runners.ways.way import Candidate, Way
from stages.stage import Stage, is_repeatable

log = logging.getLogger("wherry")

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


class Grouped(Way[Commit, "GroupWritten | Declined"]):
    """Writes batches of several lanes together.

    If a batch fails before the write, it fails again when it is written alone.
    """

    name = "grouped"

    def why_not(self, batch: Candidate) -> str:
        because = Straight().why_not(batch)
        if because:
            return because
        if batch.lanes == 1:
            return "there is one lane"
        for destination in batch.destinations:
            if not destination.takes_several:
                return f"{destination.name} takes one batch in a write"
        beyond = (step.name for step in batch.chain.steps if step.stage.gathers or step.stage.changes_rows)
        return next((f"{name} needs more than one row" for name in beyond), "")

    def carry(self, batches: Sequence[Candidate], work: Commit) -> GroupWritten | Declined:
        began = time.monotonic()
        try:
            rows = self._describe(batches, work)
        except Exception as error:  # noqa: BLE001 -- each batch raises it again when it is alone
            return _part(batches, error, work.reading.protection)
        if isinstance(rows, Declined):
            return rows
        described = time.monotonic() - began
        try:
            written = work.write(batches, rows[0])
        except Exception as error:  # noqa: BLE001 -- the answer has it
            if work.is_refusal(error):
                return Declined(reason="a row is refused, or fails")
            return replace(_part(batches, error, work.reading.protection), error=error)
        (name,) = batches[0].chain.branches
        figures = zip(_batches(batches), _split_rows(rows[1].count(written.rows), written.rows), strict=True)
        landed = {
            batch.lane: Landed(written={name: replace(written, rows=got)}, counts=counts, described=described)
            for batch, (counts, got) in figures
        }
        return GroupWritten(outcomes=landed)

    def _describe(self, batches: Sequence[Candidate], work: Commit) -> tuple[BatchRows, StateTally] | Declined:
        """Return the rows of all batches together, and their tally."""
        read: list[TableRows] = []
        for batch in batches:
            table = read_here(batch, work.spark)
            if table is None:
                return self._describe_frame(batches, work)
            read.append(table)
        joined = TableRows(work.spark, pa.concat_tables([each.rows for each in read]), read[0].schema)
        return joined, StateTally.make_counted(batches[0].chain, [each.count() for each in read])

    def _describe_frame(self, batches: Sequence[Candidate], work: Commit) -> tuple[BatchRows, StateTally] | Declined:
        """Return the rows as one frame, which Spark reads in one scan."""
        first, planned = batches[0], _batches(batches)
        assert first.plan is not None
        mine = [strip_lane_prefix(batch) for batch in planned]
        plans = [batch.plan for batch in batches if batch.plan is not None]
        alike = all((plan.pins, plan.batch.schema) == (first.plan.pins, first.plan.batch.schema) for plan in plans)
        if not alike or not (isinstance(first.origin, FetchesAhead) and first.origin.joins(mine)):
            return Declined(reason="one scan cannot read them all")
        labels = CommonLabels(planned)
        tally = StateTally(first.chain, batches=len(batches))
        frame = first.origin.fetch(work.spark, mine).frame()
        begun = tally.begin(frame, list_columns(planned[0]), labels, work.reading.schemas)
        rows = tally.end(apply_chain(begun, first.chain.common, first.plan.pins))
        if labels.differing:
            return Declined(
                reason=f"a stage uses :{labels.differing[0]}, which differs between the batches", remember=True
            )
        return FrameRows(rows, sum_sizes(batch.size for batch in batches)), tally


def _split_rows(counted: Sequence[Counts], delivered: int | None) -> Iterator[tuple[Counts, int | None]]:
    """Yield the equation of each batch with the number of its rows that the destination got.

    The destination reports only the total. If the figures do not add up, the first batch gets the difference.
    """
    name = next(iter(counted[0].branches))
    expected = [counts.branches[name].expected for counts in counted]
    beyond = 0 if delivered is None else delivered - sum(expected)
    for number, (counts, rows) in enumerate(zip(counted, expected, strict=True)):
        yield counts, None if delivered is None else rows + (0 if number else beyond)


def _batches(batches: Sequence[Candidate]) -> Sequence[Batch]:
    return [batch.plan.batch for batch in batches if batch.plan is not None]


def _part(batches: Sequence[Candidate], error: Exception, protection: Protection) -> Declined:
    message = protection.mask_error(error, summarise_error(error))
    log.warning("the batches of %s lanes are written one by one: %s", len(batches), message)
    return Declined(reason=message)
