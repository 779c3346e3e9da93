"""Planned batches: what they are, what was decided about their rows, and the counts of these rows.

The counts satisfy an equation. For every destination: read + changed = delivered + filtered + nacked.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from datetime import datetime
from typing import Any, TypedDict, cast

from origins.batch import Batch, Json, Span
from runners.model.nack_window import NackWindow, WindowBody


def pick_fields(cls: type, body: Mapping[str, Any]) -> dict[str, Any]:
    """Return the entries of a stored body that are fields of the class.

    A newer version may have stored more names, and an older version fewer.
    """
    return {each.name: body[each.name] for each in fields(cls) if each.name in body}


StageCountBody = TypedDict("StageCountBody", {"stage": str, "in": int, "out": int, "filtered": int, "nacked": int})
"""What one stage did to a batch, with the names of reports and the ledger."""


class BranchBody(TypedDict):
    """One destination's side of the equation, as the ledger stores it."""

    expected: int
    filtered: int
    changed: int


class _DecidedCounts(TypedDict):
    read: int
    nacked: int
    branches: Mapping[str, BranchBody]
    stages: Sequence[StageCountBody]


class CountsBody(_DecidedCounts, total=False):
    """What was decided about a batch's rows, as the ledger stores it."""

    findings: Mapping[str, Json]


class SettledCounts(TypedDict, total=False):
    """What happened to a batch's rows, as the ledger stores it. Earlier versions may have left names out."""

    read: int
    nacked: int
    branches: Mapping[str, BranchBody]
    stages: Sequence[StageCountBody]
    findings: Mapping[str, Json]
    delivered: Mapping[str, int | None]
    """The rows that each destination took. None if the number is not known."""
    discarded: int
    discards: Mapping[str, str]
    """For discarded rows of the DLQ: the reason, and the name of the person that discarded them."""
    dlq_bytes: int | None
    fallback: int
    """The refused rows that went to the fallback because the DLQ failed."""
    balanced: bool | str
    """True, False, or `unknown`."""
    owed: Sequence[str]
    """The destinations that had not confirmed the batch."""
    way: str
    """The way that the batch took."""


@dataclass(frozen=True, kw_only=True)
class StageCount:
    """What one stage did to a batch."""

    stage: str
    entered: int
    left: int
    filtered: int = 0
    nacked: int = 0

    def json(self) -> StageCountBody:
        """Return the count with the names of reports and the ledger."""
        body = {"in": self.entered, "out": self.left, **vars(self)}
        return cast(StageCountBody, {name: body[name] for name in StageCountBody.__annotations__})

    @staticmethod
    def of(value: StageCountBody) -> StageCount:
        """Make the count from what the ledger stores."""
        return StageCount(entered=value["in"], left=value["out"], **pick_fields(StageCount, value))


@dataclass(frozen=True, kw_only=True)
class BranchCounts:
    """One destination's side of the equation."""

    expected: int
    """The rows that were decided for the destination."""
    filtered: int = 0
    changed: int = 0
    """By how many rows stages changed the number, other than by filtering. Negative if stages returned fewer rows."""


@dataclass(frozen=True, kw_only=True)
class Counts:
    """What was decided about a batch's rows, before any row was delivered."""

    read: int
    nacked: int = 0
    branches: Mapping[str, BranchCounts] = field(default_factory=dict)
    stages: Sequence[StageCount] = ()
    findings: Mapping[str, Json] = field(default_factory=dict)
    """What stages found out about the batch, by stage. Each stage defines the form of its findings."""

    def is_balanced(self, delivered: Mapping[str, int]) -> bool:
        """Whether every row is accounted for at each of these destinations, by the destination's reported count."""
        return all(
            self.read + branch.changed == delivered[name] + branch.filtered + self.nacked
            for name, branch in self.branches.items()
            if name in delivered
        )

    @property
    def filtered(self) -> int:
        """The rows that were filtered on the way to the first destination."""
        return next((branch.filtered for branch in self.branches.values()), 0)

    def json(self) -> CountsBody:
        """Return the counts as the ledger stores them."""
        branches = {name: cast(BranchBody, vars(branch).copy()) for name, branch in self.branches.items()}
        stages = [stage.json() for stage in self.stages]
        body: CountsBody = {"read": self.read, "nacked": self.nacked, "branches": branches, "stages": stages}
        return {**body, "findings": dict(self.findings)} if self.findings else body

    @staticmethod
    def of(value: CountsBody) -> Counts:
        """Make the counts from what the ledger stores."""
        branches = {name: BranchCounts(**branch) for name, branch in value["branches"].items()}
        stages = tuple(map(StageCount.of, value["stages"]))
        return Counts(**{**pick_fields(Counts, value), "branches": branches, "stages": stages})


class SpanBody(TypedDict):
    """What a batch was read from."""

    start: Json
    end: Json
    parts: Sequence[Json]
    label: str


def read_span(body: SpanBody) -> Span:
    """Return the span that the ledger stores."""
    return Span(**{**pick_fields(Span, body), "parts": tuple(body["parts"])})


class _Decision(TypedDict):
    path: str
    counts: CountsBody
    window: WindowBody | None
    sections: int
    bases: Mapping[str, int]


class DecisionBody(_Decision, total=False):
    """The body of `prepared`: a decided batch, as the ledger stores it."""

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
    """The body of `plan`: a planned batch, as the ledger stores it."""

    decision: DecisionBody | None
    published: bool
    instead: Mapping[str, str]
    job: Mapping[str, str]
    reads: str


class _Settle(TypedDict):
    offset: Json
    counts: SettledCounts
    window: WindowBody | None
    clean: int
    owed: Sequence[str]


class SettleBody(_Settle, total=False):
    """The body of `settle`."""

    way: str
    """The way that the batch took. Absent if an earlier run wrote it straight and ended before settling it."""


@dataclass(frozen=True, kw_only=True)
class DecidedBatch:
    """A prepared batch: where its rows are stored, and what was decided about them."""

    path: str
    counts: Counts
    window: NackWindow
    sections: int = 1
    """How many frames are stored: one, and one more after each stage that changes rows."""
    bases: Mapping[str, int] = field(default_factory=dict)
    """For each group of rows with a refused row: the number to add to a row's number to get its place."""
    again: bool = False
    """Whether the batch was decided before. The DLQ may then have some of its refused rows."""
    way: str = ""
    """The way that decided the batch. Empty if an older version decided it without recording the way."""
    keeps_filtered: bool = False
    """Whether the path also stores the filtered rows."""

    @property
    def filtered(self) -> int:
        """How many filtered rows are stored. A row that several destinations filtered counts once for each."""
        return sum(stage.filtered for stage in self.counts.stages) if self.keeps_filtered else 0

    def json(self) -> DecisionBody:
        """Return the decision as the ledger stores it."""
        made = {"counts": self.counts.json(), "window": self.window.json(), "bases": dict(self.bases)}
        left_out = [name for name in ("again", "way", "keeps_filtered") if not getattr(self, name)]
        return cast(DecisionBody, {name: each for name, each in {**vars(self), **made}.items() if name not in left_out})

    @staticmethod
    def of(value: DecisionBody) -> DecidedBatch:
        """Make the decision from what the ledger stores."""
        made = {"counts": Counts.of(value["counts"]), "window": NackWindow.of(value["window"])}
        return DecidedBatch(**{**pick_fields(DecidedBatch, value), **made})


@dataclass(frozen=True, kw_only=True)
class PlannedBatch:
    """A batch that was planned, and what is known about it."""

    batch: Batch
    destinations: tuple[str, ...]
    straight: bool
    pins: Mapping[str, Json] = field(default_factory=dict)
    """Facts that its stages must find the same in every computation."""
    decision: DecidedBatch | None = None
    published: bool = False
    """Whether the offset is already committed while some destinations still owe the batch."""

    def is_same_batch(self, other: PlannedBatch) -> bool:
        """Whether both plan the same batch. The plan's id and the time of planning are ignored."""
        return replace(self, batch=replace(self.batch, plan=other.batch.plan, time=other.batch.time)) == other

    def json(self) -> PlanBody:
        """Return the plan as the ledger stores it."""
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
        if batch.replaces:
            body["instead"] = dict(batch.replaces)
        if batch.job:
            body["job"] = dict(batch.job)
        if batch.reads:
            body["reads"] = batch.reads
        return body

    @staticmethod
    def of(pipeline: str, value: PlanBody) -> PlannedBatch:
        """Make the plan from what the ledger stores."""
        decision = value.get("decision")
        made = {
            "pipeline": pipeline,
            "span": read_span(value["span"]),
            "time": datetime.fromisoformat(value["time"]),
            "replaces": value.get("instead", {}),
        }
        return PlannedBatch(
            batch=Batch(**{**pick_fields(Batch, value), **made}),
            destinations=tuple(value["destinations"]),
            straight=value["straight"],
            pins=value["pins"],
            decision=DecidedBatch.of(decision) if decision else None,
            published=value.get("published", False),
        )
