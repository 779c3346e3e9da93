"""What suites of expectations found out: of each batch of a run, over the run, and from run to run."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from origins.batch import JSON, Batch
from stages.expectation import Expectation
from stages.validation_result import validation_result

MOST_VALIDATIONS = 20
"""Of so many of the last batches a report has the whole validation result; of all of them it has the figures."""
Suites: TypeAlias = Mapping[str, Mapping[str, Sequence[Expectation]]]
"""By origin and by the name of a stage what is expected there."""


@dataclass
class _Figures:
    """One expectation over a run."""

    rule: Expectation
    batches: int = 0
    failed: int = 0
    rows: int = 0
    unexpected: int = 0

    def add(self, found: Mapping[str, JSON]) -> None:
        self.batches += 1
        self.failed += not found["success"]
        self.rows += found.get("element_count", 0) - (found.get("missing_count") or 0)
        self.unexpected += found.get("unexpected_count", 0)

    @property
    def share(self) -> float | None:
        """The share of rows, or of batches where rows are not asked, that was as expected."""
        if not self.rule.known.of_rows:
            return 1 - self.failed / self.batches
        return 1 - self.unexpected / self.rows if self.rows else None

    def json(self, stage: str) -> dict[str, JSON]:
        return {
            "stage": stage,
            "rule": _label(self.rule),
            "severity": self.rule.severity,
            "batches": self.batches,
            "failed": self.failed,
            "rows": self.rows if self.rule.known.of_rows else None,
            "unexpected": self.unexpected if self.rule.known.of_rows else None,
            "share": self.share,
        }


class Quality:
    """Adds up what the batches of a run were found to be."""

    def __init__(self, suites: Suites) -> None:
        self.suites = suites
        self._figures: dict[str, list[_Figures]] = {}
        self.validations: deque[Mapping[str, JSON]] = deque(maxlen=MOST_VALIDATIONS)
        """The validation results of the last batches."""

    def add(self, batch: Batch, findings: Mapping[str, Sequence[Mapping[str, JSON]]]) -> None:
        """A batch is settled. What a stage found that the definition has no more is left out."""
        for stage, found in findings.items():
            rules = self.suites.get(batch.origin, {}).get(stage, ())
            if len(rules) != len(found):
                continue
            for figures, each in zip(self._figures.setdefault(stage, [*map(_Figures, rules)]), found, strict=True):
                figures.add(each)
            asset = f"{batch.origin}, lane {batch.lane}, batch {batch.number}"
            at = batch.time.isoformat()
            self.validations.append(validation_result(rules, found, suite=stage, run=batch.run, batch=asset, at=at))

    def json(self) -> list[dict[str, JSON]]:
        """For each expectation how it fared."""
        return [figures.json(stage) for stage, all_of in self._figures.items() for figures in all_of]


def trends(runs: Sequence[Mapping[str, JSON]]) -> list[dict[str, JSON]]:
    """From runs as the history has them, the newest first: for each rule how it fared in each that asked it, the oldest
    first."""
    found: dict[tuple[str, str], list[JSON]] = {}
    for run in reversed(runs):
        for each in (run.get("report") or {}).get("quality", ()):
            facts = {"run": run["run"], "started_at": run["started_at"]}
            facts.update({name: each[name] for name in ("share", "batches", "failed")})
            found.setdefault((each["stage"], each["rule"]), []).append(facts)
    return [{"stage": stage, "rule": rule, "runs": fared} for (stage, rule), fared in found.items()]


def _label(rule: Expectation) -> str:
    of = f"({', '.join(rule.columns)})" if rule.columns else ""
    expected = f" {rule.expected}" if rule.expected else ""
    return f"{rule.type}{of}{expected}"
