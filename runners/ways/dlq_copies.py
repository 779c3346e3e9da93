"""The DLQ that a run has open, with its fallback and its copies. A copy may have stages, which its rows pass first."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from destinations.dead_letters import CopiedDlq, DlqCopy, FallibleDlq, make_dlq_schema
from destinations.destination import Destination, OpenDestination
from destinations.dlq import DLQ, FALLBACK
from origins.batch import Batch
from origins.batch_rows import BatchRows, compute_once
from origins.lazy import DataFrame, SparkSession, T
from runners.ways.stage_chain import StageChain, apply_chain, make_empty_rows, make_labels
from stages.rows import Rows


def open_dlq(
    opened: Mapping[str, OpenDestination], copies: Sequence[Destination], assume: str
) -> Mapping[str, OpenDestination]:
    """Return the DLQ and its fallback, if it has one, by name. Both are open, and get the copies."""
    ends = {name: opened[name] for name in (DLQ, FALLBACK) if name in opened}
    if FALLBACK in ends:
        ends[DLQ] = FallibleDlq(kept=ends[DLQ])
    if not copies:
        return ends
    opened_copies = [_open_copy(each.as_copy()) for each in copies]
    return {
        name: CopiedDlq(kept=each, copies=opened_copies, assume=assume, is_fallback=name == FALLBACK)
        for name, each in ends.items()
    }


def _open_copy(destination: Destination) -> DlqCopy:
    name, opened = destination.name or destination.place, destination.open()
    if not destination.stages:
        return DlqCopy(name=name, opened=opened)
    chain = StageChain.of(destination.stages, {})

    def select(rows: BatchRows, batch: Batch) -> BatchRows:
        return SelectedRows(rows, chain, make_labels(batch))

    def find_schema(spark: SparkSession) -> T.StructType:
        return apply_chain(make_empty_rows(spark, make_dlq_schema()), chain.common, {}, checked=True).schema

    return DlqCopy(name=name, opened=opened, select=select, find_schema=find_schema)


@dataclass(frozen=True)
class SelectedRows(BatchRows):
    """The rows after stages, none of which may refuse a row. If one does, the query raises."""

    rows: BatchRows
    chain: StageChain
    labels: Mapping[str, str | int | datetime]

    @compute_once
    def frame(self) -> DataFrame:
        frame = self.rows.frame()
        rows = Rows.begin(frame, tuple(frame.columns), self.labels, Rows.take_clean, explains=False)
        return apply_chain(rows, self.chain.common, {}).take_clean()
