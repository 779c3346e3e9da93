"""The way for clean batches of several lanes that are ready at the same time: if possible one read, and one commit."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace

from origins.batch import Batch
from origins.batch_rows import BatchRows, FrameRows, TableRows
from origins.capabilities import FetchesAhead
from origins.lazy import pa
from origins.protection import Protection
from runners.model.planned_batch import Counts
from runners.model.tasks import Declined, GroupWritten, Landed
from runners.model.text import summarise_error
from runners.ways.batch_source import list_columns, strip_lane_prefix, sum_sizes
from runners.ways.row_outcomes import StateTally
from runners.ways.stage_chain import CommonLabels, apply_chain
from runners.ways.straight import Commit, Straight, read_here
from runners.ways.way import Candidate, Way

log = logging.getLogger("wherry")


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
