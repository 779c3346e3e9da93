"""Moves refused rows from the fallback back into the DLQ, batch by batch, each row once."""

from __future__ import annotations

import re
import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timezone
from typing import Any

from destinations.capabilities import find_read_back, stop_writers
from destinations.dead_letters import ensure_dlq, make_dlq_schema, match_id, query_dlq, select_lacking, stream_fallback
from destinations.delta.delta import Delta
from destinations.destination import Destination, DestinationError, Identity, OpenDestination
from destinations.dlq import DLQ, FALLBACK
from destinations.labels import Label
from origins.batch import Batch, Span
from origins.batch_rows import BatchRows, FrameRows, TableRows, to_python_rows
from origins.codec import encode
from origins.crash_points import reach
from origins.errors import clean_up_by
from origins.lazy import F, pa
from origins.names import quote_text
from origins.spark_versions import make_arrow_schema
from runners.model.entry import Entry, MergeBody, Settled
from runners.model.text import join_some
from runners.running.work import OpenRun, Work
from runners.state.journal import list_settled_ever

_FEW = 10_000
"""The number of refused rows that this process reads at once, from one or several batches."""
_NAMED = 5
"""The number of batches that an error names."""


@dataclass
class FallbackMerge(Work):
    """The open batches, and then the refused rows that wait in the fallback: they move into the DLQ."""

    plans = False

    source: Destination
    """The fallback."""
    rows: int = 0
    """The number of rows that it has moved."""
    batches: int = 0
    """The number of batches that it has moved."""
    lacking: list[str] = field(default_factory=list)
    """The batches of which the fallback has too few rows."""
    exceeding: list[str] = field(default_factory=list)
    """The batches of which the fallback has too many rows."""

    def complete(self, run: OpenRun) -> None:
        """Move the waiting rows until all are moved or the run is stopped.

        The DLQ is fenced first, so that no failed write succeeds later. Then Wherry writes only the rows that the DLQ
        lacks, so a repeated merge adds nothing.

        Raises `DestinationError` if the fallback has too few or too many rows of a batch. All other batches are merged
        before that.
        """
        journal, fallen = run.journal, dict(run.journal.state.fallen)
        if not fallen:
            return
        journal.renew(busy=False)  # the longest lease: a batch may have many refused rows
        opened = run.dlq.open()
        with clean_up_by(opened.close):
            opened.expects(journal.state.identities.get(DLQ, Identity(place="")))
            ensure_dlq(opened, run.spark)
            stop_writers(opened, run.spark, uuid.uuid4().hex)
            known = {settled.plan: settled for settled in list_settled_ever(journal)}
            for group in self._group(fallen):
                if run.is_stopped():
                    return
                self._merge_group(run, opened, {plan: known[plan] for plan in group}, fallen)
        self._check_whole()

    def _group(self, fallen: Mapping[str, int]) -> Iterator[Sequence[str]]:
        """Yield groups of plans whose rows are read together."""
        group, waiting = list[str](), 0
        for plan, rows in fallen.items():
            if group and waiting + rows > _FEW:
                yield group
                group, waiting = [], 0
            group.append(plan)
            waiting += rows
        yield group

    def _merge_group(
        self, run: OpenRun, opened: OpenDestination, group: Mapping[str, Settled], fallen: Mapping[str, int]
    ) -> None:
        few = sum(fallen[plan] for plan in group) <= _FEW
        found = self._read_few(run, group) if few else {}
        for plan, settled in group.items():
            if run.is_stopped():
                return
            rows, count = _select_few(run, plan, found[plan]) if few else self._read_many(run, settled)
            if count == fallen[plan]:
                self._merge_batch(run, opened, settled, rows, count)
            else:
                batch = f"batch {settled.number} of lane {settled.lane} ({count:,} instead of {fallen[plan]:,})"
                (self.lacking if count < fallen[plan] else self.exceeding).append(batch)

    def _merge_batch(
        self, run: OpenRun, opened: OpenDestination, settled: Settled, rows: BatchRows, expected: int
    ) -> None:
        label = Label(batch=_make_batch(run.pipeline.name, settled), destination=DLQ, deadline=run.deadline())
        reach("before-dlq", DLQ)
        if rows.count() != 0:
            opened.write(run.spark, rows, [label])
        reach("after-dlq", DLQ)
        body = encode(MergeBody(plans=[settled.plan], rows=expected))
        run.journal.record(Entry(kind="merge", lane=settled.lane, plan=settled.plan, body=body))
        run.journal.compact()
        self.rows += expected
        self.batches += 1

    def _read_few(self, run: OpenRun, group: Mapping[str, Settled]) -> Mapping[str, Mapping[str, Mapping[str, Any]]]:
        """Read the rows of these batches, by plan and id. Leaves out rows of other batches."""
        name, found = run.pipeline.name, dict[str, dict[str, Mapping[str, Any]]]((plan, {}) for plan in group)
        labels = [label_waiting(name, each) for each in group.values()]
        for table in stream_fallback(self.source, lambda: run.spark, labels):
            for row in to_python_rows(table):
                plan = row["plan"]
                if plan in found and row["pipeline"] == name and re.fullmatch(match_id(plan), row["id"] or ""):
                    found[plan][row["id"]] = row
        return found

    def _read_many(self, run: OpenRun, settled: Settled) -> tuple[BatchRows, int]:
        """Return the rows of a batch that the DLQ lacks, and how many rows the batch has, without reading them here."""
        pipeline, dlq = run.pipeline.name, run.dlq
        assert isinstance(dlq, Delta), "no other DLQ has a fallback"
        read_back = find_read_back(self.source)
        assert read_back is not None, "a DLQ has no other fallback"
        frame = read_back(run.spark, [label_waiting(pipeline, settled)], make_dlq_schema())
        mine = (F.col("plan") == settled.plan) & (F.col("pipeline") == pipeline)
        is_one = F.col("id").rlike(f"^{match_id(settled.plan)}$")
        rows = frame.where(mine & is_one).dropDuplicates(["id"])
        lacking = select_lacking(run.spark, dlq, rows, _make_batch(pipeline, settled))
        return FrameRows(lacking), rows.count()

    def _check_whole(self) -> None:
        if not (self.lacking or self.exceeding):
            return
        problems, advice = list[str](), list[str]()
        if self.lacking:
            problems.append(f"too few rows of {join_some(self.lacking, _NAMED)}")
            advice.append("Put the fallback back from a backup")
        if self.exceeding:
            problems.append(f"too many rows of {join_some(self.exceeding, _NAMED)}")
            advice.append("Remove the rows that Wherry did not write from the fallback")
        raise DestinationError(
            f"The fallback {self.source.place} has {', and '.join(problems)}.",
            hint=f"{'. '.join(advice)}. Then merge again. Wherry has merged all other batches.",
        )


def _select_few(run: OpenRun, plan: str, found: Mapping[str, Mapping[str, Any]]) -> tuple[BatchRows, int]:
    """Return the rows that the DLQ lacks, and how many rows the batch has."""
    query = f"SELECT id FROM {{table}} WHERE plan = {quote_text(plan)}"
    there = {row["id"] for row in query_dlq(run.dlq, lambda: run.spark, query)}
    lacking = [row for id_, row in found.items() if id_ not in there]
    schema = make_arrow_schema(make_dlq_schema())
    return TableRows(run.spark, pa.Table.from_pylist(lacking, schema), make_dlq_schema()), len(found)


def label_waiting(pipeline: str, settled: Settled) -> Label:
    """Return the label with which the fallback got the refused rows of a batch."""
    return Label(batch=_make_batch(pipeline, settled), destination=FALLBACK)


def _make_batch(pipeline: str, settled: Settled) -> Batch:
    """Return the batch for the label of its refused rows."""
    return Batch(
        pipeline=pipeline,
        run=settled.run,
        origin="",
        lane=settled.lane,
        number=settled.number,
        plan=settled.plan,
        span=Span(start=None, end=None),
        schema="",
        time=datetime.now(timezone.utc),
    )
