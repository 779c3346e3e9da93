"""What a run carried: the same names in Python and in JSON."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from origins.batch import JSON, Batch
from origins.errors import WherryError
from origins.protection import Protection
from runners.definitions.secrets import without
from runners.errors import inaccessible
from runners.events import BatchRests, BatchSettled, Event, Noticed, rested
from runners.quality import Quality, Suites
from runners.session import in_short
from runners.watch import PHASES, added

MOST_NOTICES = 100


@dataclass(frozen=True, kw_only=True)
class DestinationReport:
    """One destination's side of a run. `owed` are batches that it has not confirmed."""

    read: int = 0
    """The rows of the batches that were for it."""
    delivered: int = 0
    filtered: int = 0
    nacked: int = 0
    owed: int = 0


@dataclass(frozen=True, kw_only=True)
class RunError:
    """Why a run failed."""

    cls: str
    code: str
    message: str
    hint: str = ""
    stage: str | None = None
    lane: str | None = None
    later: tuple[str, ...] = ()
    """What else went wrong while the run was being ended because of this, in a line each."""

    @staticmethod
    def of(
        error: Exception,
        secrets: Mapping[str, str] | None = None,
        protection: Protection = Protection(),
        later: Sequence[Exception] = (),
    ) -> RunError:
        """From what was raised, without the secrets; an error that is not ours is told in one line."""
        batch: Batch | None = getattr(error, "batch", None)
        error = inaccessible(error) or error
        ours = error if isinstance(error, WherryError) else WherryError(protection.words(error, in_short(error)))
        return RunError(
            cls=type(error).__name__,
            code=error.code if isinstance(error, WherryError) else "UNEXPECTED",
            message=ours.message,
            hint=ours.hint,
            stage=getattr(error, "stage", None),
            lane=batch.lane if batch else None,
            later=tuple(protection.words(each, in_short(each)) for each in later),
        ).mask(secrets or {})

    def __str__(self) -> str:
        parts = [self.message, self.hint, *(f"later: {each}" for each in self.later)]
        return "\n".join(part for part in parts if part)

    def mask(self, secrets: Mapping[str, str]) -> RunError:
        """The same, and no secret in its words."""
        message, hint, later = without(secrets, [self.message, self.hint, self.later])
        return replace(self, message=message, hint=hint, later=later)


@dataclass(frozen=True, kw_only=True)
class Beside:
    """What a page shows of a run that is no figure of it."""

    hash: str
    definition: JSON
    samples: Sequence[Mapping[str, JSON]]
    """Some of the refused rows, masked already."""


@dataclass(frozen=True, kw_only=True)
class Report:
    """How a run went: for every destination, read = delivered + filtered + nacked, but for `changed` rows."""

    pipeline: str
    run: str
    status: str
    """`succeeded`, `failed` or `stopped`."""
    reason: str = ""
    batches: int = 0
    read: int = 0
    filtered: int = 0
    nacked: int = 0
    discarded: int = 0
    changed: int = 0
    """Rows that stages added, or took away below zero, by giving other rows than they got."""
    balanced: bool | str = True
    """True, False, or `unknown` where the rows of a batch could not be counted any more."""
    destinations: Mapping[str, DestinationReport] = field(default_factory=dict)
    stages: tuple[Mapping[str, JSON], ...] = ()
    seconds: float = 0.0
    spent: Mapping[str, float] = field(default_factory=dict)
    """Where the batches' time went, in seconds: `plan`, `read`, `write`, `dlq`, `ledger`. What lanes do side by side is
    added up."""
    lanes: Mapping[str, Mapping[str, JSON]] = field(default_factory=dict)
    notices: tuple[str, ...] = ()
    """What was found at an origin and was not read; the first hundred."""
    quality: tuple[Mapping[str, JSON], ...] = ()
    """How each expectation fared that a stage has, over the run."""
    validations: tuple[Mapping[str, JSON], ...] = ()
    """What they found of the last batches, as Great Expectations writes a validation result."""
    error: RunError | None = None
    timeline: Mapping[str, JSON] = field(default_factory=dict, repr=False)
    """When each lane was at work, and on what; for pages and the run history."""
    snapshot: Mapping[str, JSON] | None = None
    """What a run that failed was doing: `lane`, `number`, `of`, `stage`, and up to 20 `rows` of the batch."""
    beside: Callable[[], Beside] | None = field(default=None, repr=False, compare=False)
    """Asked when a notebook shows the report."""

    @property
    def delivered(self) -> Mapping[str, int]:
        """The rows that each destination took."""
        return {name: destination.delivered for name, destination in self.destinations.items()}

    def mask(self, secrets: Mapping[str, str]) -> Report:
        """The same, and no secret in its free texts; names, ids, states and figures are what they are."""
        kept = self.snapshot
        return replace(
            self,
            reason=without(secrets, self.reason),
            notices=without(secrets, self.notices),
            error=self.error and self.error.mask(secrets),
            snapshot=kept and {**kept, "rows": without(secrets, kept["rows"])},
        )

    def json(self) -> dict[str, Any]:
        """As `wherry run --json` prints it."""
        error = self.error
        return {
            "pipeline": self.pipeline,
            "run": self.run,
            "status": self.status,
            "reason": self.reason,
            "batches": self.batches,
            "read": self.read,
            "filtered": self.filtered,
            "nacked": self.nacked,
            "discarded": self.discarded,
            "changed": self.changed,
            "balanced": self.balanced,
            "delivered": dict(self.delivered),
            "destinations": {name: vars(destination).copy() for name, destination in self.destinations.items()},
            "stages": [dict(stage) for stage in self.stages],
            "seconds": round(self.seconds, 3),
            "spent": {phase: round(seconds, 3) for phase, seconds in self.spent.items()},
            "lanes": {name: dict(lane) for name, lane in self.lanes.items()},
            "notices": list(self.notices),
            "quality": [dict(each) for each in self.quality],
            "validations": [dict(each) for each in self.validations],
            "error": None
            if error is None
            else {
                "class": error.cls,
                "code": error.code,
                "message": error.message,
                "hint": error.hint,
                "stage": error.stage,
                "lane": error.lane,
                "later": list(error.later),
            },
            "snapshot": self.snapshot,
        }

    def _repr_html_(self) -> str:
        from runners.reports.report_page import cell

        facts = {**self.json(), "timeline": self.timeline}
        beside = self.beside() if self.beside else Beside(hash="", definition=None, samples=())
        return cell({**facts, "report": facts, "definition": beside.hash}, beside.definition, beside.samples)


_NOTHING = {"read": 0, "delivered": 0, "filtered": 0, "nacked": 0}


class Bookkeeper:
    """A listener that adds up what a run settles."""

    def __init__(
        self, destinations: tuple[str, ...], resolved: Mapping[str, str] | None = None, suites: Suites | None = None
    ) -> None:
        self.resolved = resolved or {}
        """The names of destinations by those that they had when a batch was planned."""
        self.settled: dict[str, BatchSettled] = {}
        self.totals = {"batches": 0, "read": 0, "nacked": 0, "discarded": 0, "filtered": 0, "changed": 0}
        self.branches = {name: dict(_NOTHING) for name in destinations}
        self.stages: dict[str, dict[str, int]] = {}
        self.lanes: dict[str, dict[str, JSON]] = {}
        self.balanced: bool | str = True
        self.owed: dict[str, int] = dict.fromkeys(destinations, 0)
        self.notices: list[str] = []
        self.spent = dict.fromkeys(PHASES, 0.0)
        self.quality = Quality(suites or {})

    def __call__(self, event: Event) -> None:
        if isinstance(event, BatchSettled):
            before = self.settled.pop(event.batch.plan, None)
            self._add(event, before)
            self.spent = added(self.spent, event.seconds, before.seconds if before else {})
            if event.owed:
                self.settled[event.batch.plan] = event
        elif isinstance(event, BatchRests) and len(self.notices) < MOST_NOTICES:
            self.notices.append(rested(event))
        elif isinstance(event, Noticed) and len(self.notices) < MOST_NOTICES:
            self.notices.append(f"{event.origin}: {event.message}")

    def _add(self, event: BatchSettled, before: BatchSettled | None) -> None:
        counts = event.counts
        if before is None:
            self.totals["batches"] += 1
            for key in ("read", "nacked", "discarded"):
                self.totals[key] += counts[key]
            for key in ("filtered", "changed"):
                self.totals[key] += next((each[key] for each in counts["branches"].values()), 0)
            for name in counts["branches"]:
                if self.resolved.get(name, name) not in self.branches and name not in counts["delivered"]:
                    continue  # it is gone, and a person has said that it may lack the batch
                branch = self._branch(name)
                branch["read"] += counts["read"]
                branch["nacked"] += counts["nacked"]
            lane = self.lanes.setdefault(event.batch.lane, {"offset": None, "batches": 0})
            lane.update(offset=event.batch.span.end, batches=lane["batches"] + 1)
            for stage in counts["stages"]:
                kept = self.stages.setdefault(stage["stage"], {"in": 0, "out": 0, "filtered": 0, "nacked": 0})
                for key in kept:
                    kept[key] += stage[key]
            self.quality.add(event.batch, counts.get("findings", {}))
        already = before.counts["delivered"] if before else {}
        for name, rows in counts["delivered"].items():
            if name not in already:
                branch = self._branch(name)
                branch["delivered"] += rows or 0
                branch["filtered"] += counts["branches"][name]["filtered"]
        for name in before.owed if before else ():
            self.owed[self.resolved.get(name, name)] -= 1
        for name in event.owed:
            now = self.resolved.get(name, name)
            self.owed[now] = self.owed.get(now, 0) + 1
        if counts["balanced"] is False or (counts["balanced"] == "unknown" and self.balanced is True):
            self.balanced = counts["balanced"]

    def _branch(self, name: str) -> dict[str, int]:
        """What is added up for the destination that had this name when the batch was planned."""
        return self.branches.setdefault(self.resolved.get(name, name), dict(_NOTHING))

    def report(
        self,
        *,
        pipeline: str,
        run: str,
        status: str,
        reason: str,
        seconds: float,
        error: RunError | None,
        snapshot: Mapping[str, JSON] | None = None,
        timeline: Mapping[str, JSON] | None = None,
    ) -> Report:
        """The report of the run as far as it came."""
        return Report(
            pipeline=pipeline,
            run=run,
            status=status,
            reason=reason,
            batches=self.totals["batches"],
            read=self.totals["read"],
            filtered=self.totals["filtered"],
            nacked=self.totals["nacked"],
            discarded=self.totals["discarded"],
            changed=self.totals["changed"],
            balanced=self.balanced,
            destinations={
                name: DestinationReport(**branch, owed=self.owed.get(name, 0)) for name, branch in self.branches.items()
            },
            stages=tuple({"stage": name, **counts} for name, counts in self.stages.items()),
            seconds=seconds,
            spent=self.spent,
            lanes=self.lanes,
            notices=tuple(self.notices),
            quality=tuple(self.quality.json()),
            validations=tuple(self.quality.validations),
            error=error,
            snapshot=snapshot,
            timeline=timeline or {},
        )
