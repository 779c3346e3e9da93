"""Brings refused rows from the fallback back into the DLQ, batch by batch, each row once."""

from __future__ import annotations

import re
import uuid
from collections.abc import Callable, Mapping
from dataclasses import field
from datetime import datetime, timezone
from typing import TYPE_CHECKING

from destinations.dead_letters import dlq_schema, ensure_dlq, match_id, query_dlq, select_lacking, stream_dlq
from destinations.delta.delta import Delta
from destinations.destination import Deadline, DestinationError, Identity, Label, OpenDestination
from destinations.dlq import DLQ, FALLBACK
from origins.batch import Batch, Span
from origins.batch_rows import BatchRows, FrameRows, TableRows, to_python_rows
from origins.crash_points import reach
from origins.nack import DLQ_COLUMNS
from origins.names import quote_text
from origins.quick_dataclass import dataclass
from runners.model.entry import Entry, MergeBody, Settled
from runners.model.errors import Refusal
from runners.model.text import format_count
from runners.state.journal import Journal, list_settled_ever

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_FEW = 10_000
"""So many refused rows of a batch are read in this process."""
_COLUMNS = ", ".join(f"`{column.split(' ')[0]}`" for column in DLQ_COLUMNS.split(", "))
_NAMED = 5
"""So many batches are named in an error."""


@dataclass
class FallbackMerge:
    """The merge of a fallback into its DLQ, by a run that owns the pipeline."""

    pipeline: str
    dlq: Delta
    fallback: Delta | None
    journal: Journal
    spark: SparkSession
    deadline: Deadline | None
    rows: int = 0
    """How many rows it has brought back."""
    batches: int = 0
    """Of how many batches."""
    lacking: list[str] = field(default_factory=list)
    """The batches that the fallback does not have whole."""

    def merge(self, is_stopped: Callable[[], bool]) -> None:
        """Bring back what waits, until it is done or stopped.

        The DLQ is fenced first, so that no write that failed lands later. Then it is asked which rows it has, and gets
        those that it lacks: twice is once. Raises `DestinationError` where rows of a batch are missing in the fallback;
        all other batches are merged then.
        """
        fallen = dict(self.journal.state.fallen)
        if not fallen:
            return
        if self.fallback is None:
            place = self.journal.state.opened.get("destinations", {}).get(FALLBACK, {}).get("place", "the fallback")
            raise Refusal(
                f"{format_count(sum(fallen.values()), 'refused row waits', 'refused rows wait')} in {place}, but the "
                "definition has no fallback.",
                hint="Put `on_failure: fallback` and `fallback:` back under `dlq:`, and merge again.",
            )
        self.journal.renew(busy=False)  # the longest lease: a batch may have many refused rows
        opened = self.dlq.open()
        try:
            opened.expects(self.journal.state.identities.get(DLQ, Identity(place="")))
            ensure_dlq(opened, self.spark)
            opened.fence(self.spark, uuid.uuid4().hex)
            known = {settled.plan: settled for settled in list_settled_ever(self.journal)}
            for plan, expected in fallen.items():
                if is_stopped():
                    return
                self._merge_batch(opened, known[plan], expected)
        finally:
            opened.close()
        self._check_whole()

    def _merge_batch(self, opened: OpenDestination, settled: Settled, expected: int) -> None:
        rows = self._read_rows(settled, expected)
        if rows is None:
            self.lacking.append(f"batch {settled.number} of lane {settled.lane}")
            return
        label = Label(batch=_make_batch(self.pipeline, settled), destination=DLQ, deadline=self.deadline)
        reach("before-dlq", DLQ)
        if rows.count() != 0:
            opened.write(self.spark, rows, [label])
        reach("after-dlq", DLQ)
        body: MergeBody = {"plans": [settled.plan], "rows": expected}
        self.journal.record(Entry(kind="merge", lane=settled.lane, plan=settled.plan, body=body))
        self.journal.compact()
        self.rows += expected
        self.batches += 1

    def _read_rows(self, settled: Settled, expected: int) -> BatchRows | None:
        """The refused rows of the batch that the DLQ lacks; None where the fallback does not have all that it got."""
        return self._read_few(settled, expected) if expected <= _FEW else self._read_many(settled, expected)

    def _read_few(self, settled: Settled, expected: int) -> BatchRows | None:
        import pyarrow as pa
        from pyspark.sql.pandas.types import to_arrow_schema

        assert self.fallback is not None
        mine = f"plan = {quote_text(settled.plan)}"
        query = f"SELECT {_COLUMNS} FROM {{table}} WHERE {mine} AND pipeline = {quote_text(self.pipeline)}"
        is_one = re.compile(match_id(settled.plan)).fullmatch
        found: dict[str, Mapping[str, object]] = {}
        for table in stream_dlq(self.fallback, lambda: self.spark, query):
            found.update({row["id"]: row for row in to_python_rows(table) if is_one(row["id"] or "")})
        if len(found) != expected:
            return None
        there = query_dlq(self.dlq, lambda: self.spark, f"SELECT id FROM {{table}} WHERE {mine}")
        for row in there:
            found.pop(row["id"], None)
        schema = to_arrow_schema(dlq_schema(), timezone="UTC")
        return TableRows(self.spark, pa.Table.from_pylist([*found.values()], schema), dlq_schema())

    def _read_many(self, settled: Settled, expected: int) -> BatchRows | None:
        from pyspark.sql import functions as F

        assert self.fallback is not None
        frame = self.spark.sql(f"SELECT {_COLUMNS} FROM {self.fallback.sql_name}")
        mine = (F.col("plan") == settled.plan) & (F.col("pipeline") == self.pipeline)
        is_one = F.col("id").rlike(f"^{match_id(settled.plan)}$")
        rows = frame.where(mine & is_one).dropDuplicates(["id"])
        if rows.count() != expected:
            return None
        return FrameRows(select_lacking(self.spark, self.dlq, rows, _make_batch(self.pipeline, settled)))

    def _check_whole(self) -> None:
        if not self.lacking:
            return
        more = len(self.lacking) - _NAMED
        named = f"{', '.join(self.lacking[:_NAMED])}{f' and {more} more' if more > 0 else ''}"
        assert self.fallback is not None
        raise DestinationError(
            f"The fallback {self.fallback.place} does not have exactly the rows that it got of {named}.",
            hint="Put the fallback back from a backup, and merge again. Wherry has merged all other batches.",
        )


def _make_batch(pipeline: str, settled: Settled) -> Batch:
    """What the label of the batch's refused rows says."""
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
