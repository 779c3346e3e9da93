"""A pipeline that has carried batches, as a run leaves it: a ledger, a table, a DLQ; written without Spark."""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import pyarrow
from deltalake import CommitProperties, DeltaTable, write_deltalake

from destinations.delta import Delta
from destinations.delta.log import make_tag
from destinations.destination import Destination, Label
from origins.batch import Batch, Span
from origins.memory import Memory
from runners.model.entry import Entry
from runners.model.planned_batch import BranchCounts, Counts, PlannedBatch
from runners.pipeline import Pipeline
from runners.state.delta_ledger import DeltaLedger
from runners.state.journal import Journal
from runners.state.process_locks import identify_host
from tests.runners.running.letterbox import letters, post


def batch(number: int, *, lane: str = "0", start: Any = None, end: Any = None, plan: str = "") -> Batch:
    """A batch of the lane; by default the one behind the one before."""
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


def append(folder: Path, rows: Sequence[int], labels: Sequence[Label] = ()) -> None:
    """A commit of these ids, with the tag of these labels."""
    properties = CommitProperties(custom_metadata={"userMetadata": make_tag(labels)}) if labels else None
    table = pyarrow.table({"id": pyarrow.array(rows, pyarrow.int64())})
    write_deltalake(folder, table, mode="append", commit_properties=properties)


@dataclass
class Carried:
    """One pipeline with a table and a DLQ. Every batch has three rows, of which `nacked` are refused."""

    folder: Path
    names: Sequence[str] = ("orders",)
    destinations: Sequence[Destination] | None = None
    journal: Journal = field(init=False)

    def __post_init__(self) -> None:
        self.journal = Journal(DeltaLedger(self.folder / "state" / "ledger"))
        self.journal.acquire({**identify_host(), "pipeline": "orders", "run": "r", "jvm": None})
        (self.folder / "state" / "lock").touch()
        for name in self.names:
            if not self.table(name).exists():
                append(self.table(name), [])

    def table(self, name: str = "orders") -> Path:
        """Where a destination lies."""
        return self.folder / name

    @property
    def dlq(self) -> Path:
        """Where the refused rows lie."""
        return self.folder / "state" / "dlq"

    @property
    def pipeline(self) -> Pipeline:
        """As it is defined."""
        return Pipeline(
            name="orders",
            origin=Memory(name="origin", schema="id long"),
            destinations=self.destinations or [Delta(path=str(self.table(name)), name=name) for name in self.names],
            state=str(self.folder / "state"),
        )

    def opened(self) -> None:
        """What a run notes of its destinations when it opens them."""
        known = {
            name: {"place": str(self.table(name)), "id": str(DeltaTable(self.table(name)).metadata().id), "version": 0}
            for name in self.names
        }
        self.journal.record(Entry(kind="open", body={"pipeline": "orders", "destinations": known}))

    def carry(self, *numbers: int, **how: Any) -> None:
        """Batches as a run carries them: planned, written, settled."""
        for number in numbers:
            self.plan(number, **_only(how, "lane", "start", "end", "plan"))
            self.land(number, **_only(how, "lane", "plan", "nacked", "to"))
            self.settle(number, **_only(how, "lane", "start", "end", "plan", "nacked", "owed"))

    def plan(self, number: int, *, destinations: Sequence[str] | None = None, **which: Any) -> None:
        """Plan it."""
        of = batch(number, **which)
        planned = PlannedBatch(batch=of, destinations=tuple(destinations or self.names), straight=False)
        self.journal.record(Entry(kind="plan", lane=of.lane, plan=of.plan, body=planned.json()))

    def land(self, number: int, *, nacked: int = 0, to: Sequence[str] | None = None, **which: Any) -> None:
        """Write it, and what of it was refused."""
        of = batch(number, **which)
        ids = [number * 10 + place for place in range(nacked + 1, 4)]
        for name in self.names if to is None else to:
            if ids:
                append(self.table(name), ids, [Label(batch=of, destination=name)])
        if nacked:
            post(self.dlq, letters(*range(1, nacked + 1), plan=of.plan, number=number, lane=of.lane))

    def settle(
        self,
        number: int,
        *,
        nacked: int = 0,
        owed: Sequence[str] = (),
        counts: Mapping[str, Any] | None = None,
        **of: Any,
    ) -> None:
        """Settle it."""
        which = batch(number, **of)
        decided = Counts(
            read=3, nacked=nacked, branches={name: BranchCounts(expected=3 - nacked) for name in self.names}
        )
        delivered = {name: 3 - nacked for name in self.names if name not in owed}
        body = {
            "offset": which.span.end,
            "counts": {**decided.json(), "delivered": delivered, "discarded": 0, "balanced": True, **(counts or {})},
            "window": {"rows": 0, "nacks": []},
            "clean": 1,
            "owed": list(owed),
        }
        self.journal.record(Entry(kind="settle", lane=which.lane, plan=which.plan, body=body))

    def compacted(self) -> None:
        """Its entries are put together."""
        self.journal.compact(every=1)

    def codes(self) -> list[tuple[str, str | None, int | None]]:
        """What an audit finds: the code, the destination, the first batch."""
        return [(each.code, each.destination, each.number) for each in self.pipeline.audit().problems]


def several(folder: Path, *batches: tuple[str, int]) -> None:
    """One commit that brings the batches of several lanes."""
    labels = [Label(batch=batch(number, lane=lane), destination="orders") for lane, number in batches]
    append(folder, [number * 10 + place for _, number in batches for place in (1, 2, 3)], labels)


def other(one: Batch) -> Batch:
    """The same batch under another plan."""
    return replace(one, plan=uuid.uuid4().hex)


def _only(how: Mapping[str, Any], *names: str) -> dict[str, Any]:
    return {name: value for name, value in how.items() if name in names}
