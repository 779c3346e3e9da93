"""The state that a run leaves: a ledger, a table and a DLQ with processed batches. Written without Spark."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import pyarrow
from deltalake import CommitProperties, DeltaTable, write_deltalake

from destinations.delta import Delta
from destinations.delta.log import make_tag
from destinations.destination import Destination
from destinations.labels import Label
from origins.batch import Batch, Span
from origins.codec import encode
from origins.memory import Memory
from runners.model.entry import Entry
from runners.model.planned_batch import BranchCounts, Counts, PlannedBatch
from runners.pipeline import Pipeline
from runners.state.delta_ledger import DeltaLedger
from runners.state.journal import Journal
from runners.state.process_locks import identify_host
from tests.runners.running.letterbox import append_letters, make_letters


def make_batch(number: int, *, lane: str = "0", start: Any = None, end: Any = None, plan: str = "") -> Batch:
    """A batch of the lane. By default it starts where the previous batch ends."""
    begin = (number - 1) * 10 or None
    return Batch(
        pipeline="orders",
        run="r",
        origin="origin",
        lane=lane,
        number=number,
        plan=plan or f"{lane}-p{number}",
        span=Span(start=start if start is not None else begin, end=end if end is not None else number * 10, label="x"),
        schema="{}",
        time=datetime(2026, 1, 1, tzinfo=timezone.utc),
    )


def append_rows(folder: Path, rows: Sequence[int], labels: Sequence[Label] = ()) -> None:
    """Append these ids in one commit, with the tag of these labels."""
    properties = CommitProperties(custom_metadata={"userMetadata": make_tag(labels)}) if labels else None
    table = pyarrow.table({"id": pyarrow.array(rows, pyarrow.int64())})
    write_deltalake(folder, table, mode="append", commit_properties=properties)


@dataclass
class Carried:
    """A pipeline with tables and a DLQ. Each batch has three rows, and `nacked` of them are refused."""

    folder: Path
    names: Sequence[str] = ("orders",)
    destinations: Sequence[Destination] | None = None
    journal: Journal = field(init=False)

    def __post_init__(self) -> None:
        self.journal = Journal(DeltaLedger(self.folder / "state" / "ledger"))
        self.journal.acquire({**vars(identify_host()), "pipeline": "orders", "run": "r", "jvm": None})
        (self.folder / "state" / "lock").touch()
        for name in self.names:
            if not self.table(name).exists():
                append_rows(self.table(name), [])

    def table(self, name: str = "orders") -> Path:
        """Return the path of a destination's table."""
        return self.folder / name

    @property
    def dlq(self) -> Path:
        """The path of the DLQ."""
        return self.folder / "state" / "dlq"

    @property
    def pipeline(self) -> Pipeline:
        """The pipeline's definition."""
        return Pipeline(
            name="orders",
            origin=Memory(name="origin", schema="id long"),
            destinations=self.destinations or [Delta(path=str(self.table(name)), name=name) for name in self.names],
            state=str(self.folder / "state"),
        )

    def record_opening(self) -> None:
        """Record what a run records of its destinations when it opens them."""
        known = {
            name: {"place": str(self.table(name)), "id": str(DeltaTable(self.table(name)).metadata().id), "version": 0}
            for name in self.names
        }
        self.journal.record(Entry(kind="open", body={"pipeline": "orders", "destinations": known}))

    def carry(self, *numbers: int, **how: Any) -> None:
        """Process these batches as a run does: plan, write and settle each."""
        for number in numbers:
            self.plan(number, **_pick_options(how, "lane", "start", "end", "plan"))
            self.land(number, **_pick_options(how, "lane", "plan", "nacked", "to"))
            self.settle(number, **_pick_options(how, "lane", "start", "end", "plan", "nacked", "owed"))

    def plan(self, number: int, *, destinations: Sequence[str] | None = None, **which: Any) -> None:
        """Record the plan of a batch."""
        of = make_batch(number, **which)
        planned = PlannedBatch(batch=of, destinations=tuple(destinations or self.names), straight=False)
        self.journal.record(Entry(kind="plan", lane=of.lane, plan=of.plan, body=encode(planned)))

    def land(self, number: int, *, nacked: int = 0, to: Sequence[str] | None = None, **which: Any) -> None:
        """Write a batch's rows, and its refused rows to the DLQ."""
        of = make_batch(number, **which)
        ids = [number * 10 + place for place in range(nacked + 1, 4)]
        for name in self.names if to is None else to:
            if ids:
                append_rows(self.table(name), ids, [Label(batch=of, destination=name)])
        if nacked:
            append_letters(self.dlq, make_letters(*range(1, nacked + 1), plan=of.plan, number=number, lane=of.lane))

    def settle(
        self,
        number: int,
        *,
        nacked: int = 0,
        owed: Sequence[str] = (),
        counts: Mapping[str, Any] | None = None,
        **of: Any,
    ) -> None:
        """Record that a batch is settled."""
        which = make_batch(number, **of)
        decided = Counts(
            read=3, nacked=nacked, branches={name: BranchCounts(expected=3 - nacked) for name in self.names}
        )
        delivered = {name: 3 - nacked for name in self.names if name not in owed}
        body = {
            "offset": which.span.end,
            "counts": {**encode(decided), "delivered": delivered, "discarded": 0, "balanced": True, **(counts or {})},
            "window": {"rows": 0, "nacks": []},
            "clean": 1,
            "owed": list(owed),
        }
        self.journal.record(Entry(kind="settle", lane=which.lane, plan=which.plan, body=body))

    def compact(self) -> None:
        """Compact the ledger's entries."""
        self.journal.compact(every=1)

    def list_codes(self) -> list[tuple[str, str | None, int | None]]:
        """Audit the pipeline. Return each problem's code, destination and first batch."""
        return [(each.code, each.destination, each.number) for each in self.pipeline.audit().problems]


def append_several(folder: Path, *batches: tuple[str, int]) -> None:
    """Append batches of several lanes in one commit."""
    labels = [Label(batch=make_batch(number, lane=lane), destination="orders") for lane, number in batches]
    append_rows(folder, [number * 10 + place for _, number in batches for place in (1, 2, 3)], labels)


def _pick_options(how: Mapping[str, Any], *names: str) -> dict[str, Any]:
    return {name: value for name, value in how.items() if name in names}
