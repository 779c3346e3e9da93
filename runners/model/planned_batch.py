"""A batch that is planned: what it is, and what was decided of its rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import TypedDict

from origins.batch import Batch, Json, Span
from runners.model.counts import Counts, CountsBody, SettledCounts
from runners.model.entry import SpanBody
from runners.model.nack_window import NackWindow, WindowBody


class _Decision(TypedDict):
    path: str
    counts: CountsBody
    window: WindowBody | None
    sections: int
    bases: Mapping[str, int]


class DecisionBody(_Decision, total=False):
    """Of `prepared`: a decided batch, as the ledger keeps it."""

    again: bool
    way: str
    keeps_filtered: bool


class _Plan(TypedDict):
    origin: str
    lane: str
    number: int
    plan: str
    run: str
    span: SpanBody
    schema: str
    time: str
    definition: str
    first: bool
    pins: Mapping[str, Json]
    destinations: Sequence[str]
    straight: bool


class PlanBody(_Plan, total=False):
    """Of `plan`: a planned batch, as the ledger keeps it."""

    decision: DecisionBody | None
    published: bool
    instead: Mapping[str, str]


class _Settle(TypedDict):
    offset: Json
    counts: SettledCounts
    window: WindowBody | None
    clean: int
    owed: Sequence[str]


class SettleBody(_Settle, total=False):
    """Of `settle`."""

    way: str
    """Which way the batch took; not there where an earlier run wrote it straight and died before it settled it."""


@dataclass(frozen=True, kw_only=True)
class DecidedBatch:
    """A prepared batch: where its rows lie, and what was decided about them."""

    path: str
    counts: Counts
    window: NackWindow
    sections: int = 1
    """How many frames of it are there: one, and one more behind each stage that changes rows."""
    bases: Mapping[str, int] = field(default_factory=dict)
    """For each group of rows in which one was refused, what to add to a row's number to get its place."""
    again: bool = False
    """Whether it was decided before, so that the DLQ may have some of its refused rows already."""
    way: str = ""
    """Which way decided it; nothing where the version that did so kept no way."""
    keeps_filtered: bool = False
    """Whether its path has the filtered rows as well."""

    @property
    def filtered(self) -> int:
        """How many filtered rows are to be stored: one that several destinations filtered counts for each."""
        return sum(stage.filtered for stage in self.counts.stages) if self.keeps_filtered else 0

    def json(self) -> DecisionBody:
        """As the ledger keeps it."""
        body: DecisionBody = {
            "path": self.path,
            "counts": self.counts.json(),
            "window": self.window.json(),
            "sections": self.sections,
            "bases": dict(self.bases),
        }
        if self.again:
            body["again"] = True
        if self.way:
            body["way"] = self.way
        if self.keeps_filtered:
            body["keeps_filtered"] = True
        return body

    @staticmethod
    def of(value: DecisionBody) -> DecidedBatch:
        """From the ledger."""
        return DecidedBatch(
            path=value["path"],
            counts=Counts.of(value["counts"]),
            window=NackWindow.of(value["window"]),
            sections=value["sections"],
            bases=value["bases"],
            again=value.get("again", False),
            way=value.get("way", ""),
            keeps_filtered=value.get("keeps_filtered", False),
        )


@dataclass(frozen=True, kw_only=True)
class PlannedBatch:
    """A batch that was planned, and what is known of it."""

    batch: Batch
    destinations: tuple[str, ...]
    straight: bool
    pins: Mapping[str, Json] = field(default_factory=dict)
    """What its stages must find the same whenever it is computed."""
    decision: DecidedBatch | None = None
    published: bool = False
    """Whether its offset is committed already while some destinations still owe it."""

    def is_same_batch(self, other: PlannedBatch) -> bool:
        """Whether both plan the same batch; the id of a plan and the moment of planning are its own."""
        return replace(self, batch=replace(self.batch, plan=other.batch.plan, time=other.batch.time)) == other

    def json(self) -> PlanBody:
        """As the ledger keeps it."""
        batch, span = self.batch, self.batch.span
        body: PlanBody = {
            "origin": batch.origin,
            "lane": batch.lane,
            "number": batch.number,
            "plan": batch.plan,
            "run": batch.run,
            "span": {"start": span.start, "end": span.end, "parts": list(span.parts), "label": span.label},
            "schema": batch.schema,
            "time": batch.time.isoformat(),
            "definition": batch.definition,
            "first": batch.first,
            "pins": dict(self.pins),
            "destinations": list(self.destinations),
            "straight": self.straight,
            "decision": self.decision.json() if self.decision else None,
            "published": self.published,
        }
        if batch.instead:
            body["instead"] = dict(batch.instead)
        return body

    @staticmethod
    def of(pipeline: str, value: PlanBody) -> PlannedBatch:
        """From the ledger."""
        span, decision = value["span"], value.get("decision")
        batch = Batch(
            pipeline=pipeline,
            run=value["run"],
            origin=value["origin"],
            lane=value["lane"],
            number=value["number"],
            plan=value["plan"],
            span=Span(start=span["start"], end=span["end"], parts=tuple(span["parts"]), label=span["label"]),
            schema=value["schema"],
            time=datetime.fromisoformat(value["time"]),
            first=value["first"],
            definition=value["definition"],
            instead=value.get("instead", {}),
        )
        return PlannedBatch(
            batch=batch,
            destinations=tuple(value["destinations"]),
            straight=value["straight"],
            pins=value["pins"],
            decision=DecidedBatch.of(decision) if decision else None,
            published=value.get("published", False),
        )
