"""A batch that is planned: what it is, and what was decided of its rows."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime

from origins.batch import JSON, Batch, Span
from runners.counts import Counts
from runners.nack_window import NackWindow


@dataclass(frozen=True, kw_only=True)
class Decision:
    """A prepared batch: where its rows lie, and what was decided about them."""

    path: str
    counts: Counts
    window: NackWindow
    sections: int = 1
    """How many frames of it lie there: one, and one more behind each stage that changes rows."""
    bases: Mapping[str, int] = field(default_factory=dict)
    """For each group of rows in which one was refused, what to add to a row's number to get its place."""
    again: bool = False
    """Whether it was decided before, so that the DLQ may have some of its refused rows already."""

    def json(self) -> dict[str, JSON]:
        """As the ledger keeps it."""
        return {
            "path": self.path,
            "counts": self.counts.json(),
            "window": self.window.json(),
            "sections": self.sections,
            "bases": dict(self.bases),
            **({"again": True} if self.again else {}),
        }

    @staticmethod
    def of(value: JSON) -> Decision:
        """From the ledger."""
        return Decision(
            path=value["path"],
            counts=Counts.of(value["counts"]),
            window=NackWindow.of(value["window"]),
            sections=value["sections"],
            bases=value["bases"],
            again=value.get("again", False),
        )


@dataclass(frozen=True, kw_only=True)
class Plan:
    """A batch that was planned, and what is known of it."""

    batch: Batch
    destinations: tuple[str, ...]
    straight: bool
    pins: Mapping[str, JSON] = field(default_factory=dict)
    """What its stages must find the same whenever it is computed."""
    decision: Decision | None = None
    published: bool = False
    """Whether its offset is committed already while some destinations still owe it."""

    def is_for(self, other: Plan) -> bool:
        """Whether this is a plan for the same batch; its id, and the moment at which it was made, are its own."""
        return replace(self, batch=replace(self.batch, plan=other.batch.plan, time=other.batch.time)) == other

    def json(self) -> dict[str, JSON]:
        """As the ledger keeps it."""
        batch, span = self.batch, self.batch.span
        return {
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

    @staticmethod
    def of(pipeline: str, value: JSON) -> Plan:
        """From the ledger."""
        span = value["span"]
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
        )
        return Plan(
            batch=batch,
            destinations=tuple(value["destinations"]),
            straight=value["straight"],
            pins=value["pins"],
            decision=Decision.of(value["decision"]) if value.get("decision") else None,
            published=value.get("published", False),
        )
