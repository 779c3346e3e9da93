"""The report of a run and of its suites of expectations, with the same names in Python and in JSON."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeAlias, TypedDict

from origins.batch import JSON, Batch, Json
from origins.codec import UNSTORED, JsonForm, decode, encode_fields, named
from origins.errors import WherryError
from origins.protection import Protection
from origins.store_access import suggest_connector
from runners.model.batch_timing import PHASES, add_times
from runners.model.causes import Causes
from runners.model.error_kinds import is_disk_full
from runners.model.errors import add_full_disk, wrap_file_error
from runners.model.events import BatchSettled, Event, Noticed, describe_warning
from runners.model.masking import without
from runners.model.planned_batch import StageCount
from runners.model.text import format_batches, format_count, format_repr, summarise_error
from stages.capabilities import BatchRule, StatesRules

MOST_NOTICES = 100
MOST_REPORTED = 20
"""How many causes of refused rows a report has. It is limited because the ledger stores the report."""


class LaneReport(TypedDict):
    """How far a lane came in a run, and with how many batches."""

    offset: Json
    batches: int


@dataclass(frozen=True, kw_only=True)
class DestinationReport(JsonForm):
    """One destination's side of a run."""

    read: int = 0
    """The rows of the batches for this destination."""
    delivered: int = 0
    """The rows that the destination took."""
    filtered: int = 0
    """The rows that stages filtered on the way to it."""
    nacked: int = 0
    """The rows of these batches that were refused."""
    owed: int = 0
    """How many batches the destination has not confirmed yet."""
    changed: int = 0
    """The rows that stages added on the way to it. The number is negative if stages took rows away without filtering
    them."""


@dataclass(frozen=True, kw_only=True)
class RunError:
    """Why a run failed."""

    cls: str = field(metadata=named("class"))
    """The class of the error in Python. In JSON the key is `class`."""
    code: str
    """The error's code."""
    message: str
    """What happened."""
    hint: str = ""
    """What to do."""
    stage: str | None = None
    """The stage at which it happened, if it was one."""
    lane: str | None = None
    """The lane of the batch, if it was one."""
    later: tuple[str, ...] = ()
    """What else went wrong while the run ended because of this error, a line each."""
    causes: Causes = Causes()
    """Why rows of the batch were refused, if they stopped the run and were too many to show."""

    @staticmethod
    def of(
        error: Exception,
        secrets: Mapping[str, str] | None = None,
        protection: Protection = Protection(),
        later: Sequence[Exception] = (),
        places: Mapping[str, str] = {},
    ) -> RunError:
        """Make the error from an exception, without secrets. An exception of another library becomes one line.

        `places` maps what the run writes to its path. The paths show which disk is full.
        """
        batch: Batch | None = getattr(error, "batch", None)
        full = is_disk_full(error)
        error = wrap_file_error(error) or error
        ours = (
            error
            if isinstance(error, WherryError)
            else WherryError(protection.mask_error(error, summarise_error(error)), hint=suggest_connector(error))
        )
        return RunError(
            cls=type(error).__name__,
            code=error.code if isinstance(error, WherryError) else "UNEXPECTED",
            message=ours.message,
            hint=add_full_disk(ours.hint, places) if full else ours.hint,
            stage=getattr(error, "stage", None),
            lane=batch.lane if batch else None,
            later=tuple(protection.mask_error(each, summarise_error(each)) for each in later),
            causes=getattr(error, "causes", Causes()).keep_first(MOST_REPORTED),
        ).mask(secrets or {})

    def __str__(self) -> str:
        parts = [self.message, self.hint, *(f"later: {each}" for each in self.later)]
        return "\n".join(part for part in parts if part)

    def mask(self, secrets: Mapping[str, str]) -> RunError:
        """Return the error without secrets in its texts."""
        message, hint, later = without(secrets, [self.message, self.hint, self.later])
        return replace(self, message=message, hint=hint, later=later)


@dataclass(frozen=True, kw_only=True)
class Report:
    """How a run went. For every destination, read + changed = delivered + filtered + `nacked` (the refused rows)."""

    pipeline: str
    """The pipeline's name."""
    run: str
    """The run's id."""
    status: str
    """`succeeded`, `failed` or `stopped`."""
    reason: str = ""
    """Why the run was stopped or failed."""
    job: Mapping[str, str] = field(default_factory=dict)
    """The ids of the job in which the run worked, as `id` and `run`. Empty without a job."""
    batches: int = 0
    """How many batches the run settled."""
    read: int = 0
    """The rows of these batches."""
    filtered: int = 0
    """The rows that stages filtered on the way to the first destination."""
    nacked: int = 0
    """The rows that were refused."""
    discarded: int = 0
    """The refused rows that were thrown away on purpose."""
    fallback: int = 0
    """The refused rows that went to the fallback, since the DLQ could not take them."""
    causes: Causes = Causes()
    """Why rows were refused that this run put into the DLQ."""
    changed: int = 0
    """Rows that stages added. The number is negative if stages took rows away without filtering them."""
    balanced: bool | str = True
    """Whether the rows add up: true, false, or `unknown` if the rows of a batch can no longer be counted."""
    destinations: Mapping[str, DestinationReport] = field(default_factory=dict)
    """The counts of each destination, by its name."""
    stages: tuple[StageCount, ...] = ()
    """For each stage the rows that came in, went out, were filtered and were refused."""
    seconds: float = 0.0
    """How long the run took."""
    spent: Mapping[str, float] = field(default_factory=dict)
    """Where the batches' time went, in seconds: `plan`, `read`, `write`, `dlq`, `ledger`. Times of parallel lanes are
    added up."""
    ways: Mapping[str, int] = field(default_factory=dict)
    """How many batches took which way. `resumed` counts batches that an earlier run began to deliver."""
    lanes: Mapping[str, LaneReport] = field(default_factory=dict)
    """For each lane its last offset and its number of batches."""
    left_open: int = 0
    """How many batches are open at the end. The next run finishes them first."""
    notices: tuple[str, ...] = ()
    """What Wherry noticed at the origins, during retries, and of exceeded limits; the first hundred."""
    quality: tuple[Mapping[str, JSON], ...] = ()
    """The results of each expectation over the run."""
    validations: tuple[Mapping[str, JSON], ...] = ()
    """The results of the last batches, as Great Expectations writes a validation result."""
    error: RunError | None = None
    """Why the run failed; null if it did not."""
    timeline: Mapping[str, Sequence[Mapping[str, object]]] = field(default_factory=dict, repr=False, metadata=UNSTORED)
    """When each lane was at work, and on what; for pages and the run history."""
    snapshot: Mapping[str, JSON] | None = None
    """What a failed run was doing: `lane`, `number`, `of`, `stage`, and up to 20 `rows` of the batch."""
    html: Callable[[Report], str] | None = field(default=None, repr=False, compare=False, metadata=UNSTORED)
    """What a notebook shows of the report; without it the report is shown as text."""

    @staticmethod
    def of(printed: JSON) -> Report:
        """Make the report from what `json` returns."""
        kept = printed["error"]
        error = kept and replace(decode(RunError, {**kept, "causes": {}}), causes=Causes.of(kept["causes"]))
        report = decode(Report, {**printed, "lanes": {}, "causes": {}, "error": None})
        return replace(report, lanes=printed["lanes"], causes=Causes.of(printed["causes"]), error=error)

    @property
    def delivered(self) -> Mapping[str, int]:
        """The rows that each destination took."""
        return {name: destination.delivered for name, destination in self.destinations.items()}

    def mask(self, secrets: Mapping[str, str]) -> Report:
        """Return the report without secrets in its free texts. Names, ids, states and numbers do not change."""
        kept = self.snapshot
        return replace(
            self,
            reason=without(secrets, self.reason),
            notices=without(secrets, self.notices),
            error=self.error and self.error.mask(secrets),
            snapshot=kept and {**kept, "rows": without(secrets, kept["rows"])},
        )

    def json(self) -> dict[str, JSON]:
        """Return the report as `wherry run --json` prints it."""
        return {
            **encode_fields(self),
            "delivered": dict(self.delivered),
            "seconds": round(self.seconds, 3),
            "spent": {phase: round(seconds, 3) for phase, seconds in self.spent.items()},
        }

    def to_frame(self, spark: Any) -> Any:
        """Return a Spark DataFrame of this session, with a row for each destination.

        A run without batches has one row, whose destination and counts are NULL.
        """
        error = (self.error.code, self.error.message) if self.error else (None, None)
        counted: list[tuple[object, ...]] = [
            (name, to.read, to.changed, to.delivered, to.filtered, to.nacked, to.owed)
            for name, to in self.destinations.items()
        ] or [(None,) * 7]
        rows = [
            (self.pipeline, self.run, self.status, *counts, self.batches, self.seconds, *error) for counts in counted
        ]
        return spark.createDataFrame(rows, _FRAME_COLUMNS)

    def __repr__(self) -> str:
        facts = [self.status, format_batches(self.batches), f"{format_count(self.read)} read"]
        facts += [f"{rows:,} delivered to {name}" for name, rows in [*self.delivered.items()][:3]]
        facts += [
            f"{count:,} {word}" for word, count in (("filtered", self.filtered), ("refused", self.nacked)) if count
        ]
        return format_repr("Report", self.pipeline, *facts, *([self.error.code] if self.error else []))

    def _repr_html_(self) -> str | None:
        return self.html(self) if self.html else None


_FRAME_COLUMNS = (
    "pipeline string, run string, status string, destination string, read bigint, changed bigint, delivered bigint, "
    "filtered bigint, nacked bigint, owed bigint, batches bigint, seconds double, code string, message string"
)


class PipelineFailed(WherryError):
    """A run failed. `report` shows how far it came."""

    code = "RUN_FAILED"

    def __init__(self, report: Report) -> None:
        super().__init__(str(report.error))
        self.report = report


class RunReportBuilder:
    """A listener that adds up what a run settles."""

    def __init__(
        self, destinations: tuple[str, ...], resolved: Mapping[str, str] | None = None, suites: Suites | None = None
    ) -> None:
        self.resolved = resolved or {}
        """The present names of destinations, by the names that they had when a batch was planned."""
        self.settled: dict[str, BatchSettled] = {}
        self.totals: dict[str, Any] = Counter()
        self.branches = {name: Counter[str]() for name in destinations}
        self.stages: dict[str, StageCount] = {}
        self.lanes: dict[str, LaneReport] = {}
        self.ways = Counter[str]()
        self.balanced: bool | str = True
        self.owed = Counter[str]()
        self.notices: list[str] = []
        self.spent = dict.fromkeys(PHASES, 0.0)
        self.quality = Quality(suites or {})

    def __call__(self, event: Event) -> None:
        if isinstance(event, BatchSettled):
            before = self.settled.pop(event.batch.plan, None)
            self._add(event, before)
            self.spent = add_times(self.spent, event.seconds, before.seconds if before else {})
            if event.owed:
                self.settled[event.batch.plan] = event
            return
        notice = f"{event.origin}: {event.message}" if isinstance(event, Noticed) else describe_warning(event)
        if notice and len(self.notices) < MOST_NOTICES:
            self.notices.append(notice)

    def _add(self, event: BatchSettled, before: BatchSettled | None) -> None:
        counts = event.counts
        if before is None:
            self.ways[event.way or "resumed"] += 1
            self.totals["batches"] += 1
            for name in ("read", "nacked", "discarded", "fallback"):
                self.totals[name] += getattr(counts, name)
            for branch in [*counts.branches.values()][:1]:
                self.totals["filtered"] += branch.filtered
                self.totals["changed"] += branch.changed
            for name in counts.branches:
                is_known = self.resolved.get(name, name) in self.branches
                if name not in counts.delivered and not (name in event.owed and is_known):
                    continue  # A backfill skips the destination, or a person allowed it to lack the batch.
                totals = self._sum_branch(name)
                totals["read"] += counts.read
                totals["nacked"] += counts.nacked
            known = self.lanes.get(event.batch.lane)
            self.lanes[event.batch.lane] = {
                "offset": event.batch.span.end,
                "batches": (known["batches"] if known else 0) + 1,
            }
            for stage in counts.stages:
                before_it = self.stages.get(stage.stage)
                self.stages[stage.stage] = _add_counts(before_it, stage) if before_it else stage
            self.quality.add(event.batch, counts.findings)
        already = before.counts.delivered if before else {}
        for name, rows in counts.delivered.items():
            if name not in already:
                totals = self._sum_branch(name)
                totals["delivered"] += rows or 0
                totals["filtered"] += counts.branches[name].filtered
                totals["changed"] += counts.branches[name].changed
        for name in before.owed if before else ():
            self.owed[self.resolved.get(name, name)] -= 1
        for name in event.owed:
            self.owed[self.resolved.get(name, name)] += 1
        if counts.balanced is False or (counts.balanced == "unknown" and self.balanced is True):
            self.balanced = counts.balanced

    def _sum_branch(self, name: str) -> Counter[str]:
        """Return the totals of the destination that had this name when the batch was planned."""
        return self.branches.setdefault(self.resolved.get(name, name), Counter())

    def complete(self, report: Report) -> Report:
        """Return the report with what the run has settled so far."""
        return replace(
            report,
            **self.totals,
            balanced=self.balanced,
            destinations={
                name: DestinationReport(**branch, owed=self.owed[name]) for name, branch in self.branches.items()
            },
            stages=tuple(self.stages.values()),
            spent=self.spent,
            ways=dict(self.ways),
            lanes=self.lanes,
            notices=tuple(self.notices),
            quality=tuple(self.quality.json()),
            validations=tuple(self.quality.validations),
        )


def _add_counts(first: StageCount, second: StageCount) -> StageCount:
    return StageCount(
        stage=first.stage,
        entered=first.entered + second.entered,
        left=first.left + second.left,
        filtered=first.filtered + second.filtered,
        nacked=first.nacked + second.nacked,
    )


MOST_VALIDATIONS = 20
"""For how many of the last batches a report has the whole validation result. The figures cover all batches."""
Suites: TypeAlias = Mapping[str, Mapping[str, StatesRules]]
"""The stages with rules, by origin and by name."""


@dataclass(frozen=True, kw_only=True)
class _Finding:
    """What a stage found for one expectation in a batch."""

    success: bool
    element_count: int = 0
    missing_count: int | None = None
    unexpected_count: int = 0


@dataclass
class _ExpectationFigures:
    """The figures of one expectation over a run."""

    rule: BatchRule
    batches: int = 0
    failed: int = 0
    rows: int = 0
    unexpected: int = 0

    def add(self, finding: _Finding) -> None:
        self.batches += 1
        self.failed += not finding.success
        self.rows += finding.element_count - (finding.missing_count or 0)
        self.unexpected += finding.unexpected_count

    @property
    def share(self) -> float | None:
        """The share of rows that was as expected, or of batches if the expectation is not about rows."""
        if not self.rule.of_rows:
            return 1 - self.failed / self.batches
        return 1 - self.unexpected / self.rows if self.rows else None

    def json(self, stage: str) -> dict[str, JSON]:
        return {
            "stage": stage,
            "rule": self.rule.label,
            "severity": self.rule.severity,
            "batches": self.batches,
            "failed": self.failed,
            "rows": self.rows if self.rule.of_rows else None,
            "unexpected": self.unexpected if self.rule.of_rows else None,
            "share": self.share,
        }


class Quality:
    """Adds up what expectations found in the batches of a run."""

    def __init__(self, suites: Suites) -> None:
        self.suites = suites
        self._figures: dict[str, list[_ExpectationFigures]] = {}
        self.validations: deque[Mapping[str, JSON]] = deque(maxlen=MOST_VALIDATIONS)
        """The validation results of the last batches."""

    def add(self, batch: Batch, findings: Mapping[str, Json]) -> None:
        """Add a settled batch. Findings of a stage that the definition no longer has are left out."""
        for stage, results in findings.items():
            judge = self.suites.get(batch.origin, {}).get(stage)
            if judge is None or not isinstance(results, list | tuple) or len(judge.rules) != len(results):
                continue
            figures = self._figures.setdefault(stage, [*map(_ExpectationFigures, judge.rules)])
            for figure, result in zip(figures, results, strict=True):
                figure.add(decode(_Finding, result))
            asset, at = f"{batch.origin}, lane {batch.lane}, batch {batch.number}", batch.time.isoformat()
            self.validations.append(judge.make_validation(results, suite=stage, run=batch.run, batch=asset, at=at))

    def json(self) -> list[dict[str, JSON]]:
        """Return the figures of each expectation."""
        return [figures.json(stage) for stage, all_of in self._figures.items() for figures in all_of]


def compute_trends(runs: Sequence[Mapping[str, JSON]]) -> list[dict[str, JSON]]:
    """Return for each rule its figures in each run that checked it, the oldest run first.

    `runs` are runs of the history, the newest first.
    """
    trends: dict[tuple[str, str], list[dict[str, JSON]]] = {}
    for run in reversed(runs):
        for rule in (run.get("report") or {}).get("quality", ()):
            figures = {name: rule[name] for name in ("share", "batches", "failed")}
            facts = {"run": run["run"], "started_at": run["started_at"], **figures}
            trends.setdefault((rule["stage"], rule["rule"]), []).append(facts)
    return [{"stage": stage, "rule": rule, "runs": fared} for (stage, rule), fared in trends.items()]
