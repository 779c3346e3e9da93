"""The equation of a batch: for every destination, read + changed = delivered + filtered + nacked."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypedDict

from origins.batch import Json

StageCountBody = TypedDict("StageCountBody", {"stage": str, "in": int, "out": int, "filtered": int, "nacked": int})
"""What one stage did to a batch, as reports and the ledger name it."""


class BranchBody(TypedDict):
    """One destination's side of the equation, as the ledger keeps it."""

    expected: int
    filtered: int
    changed: int


class _DecidedCounts(TypedDict):
    read: int
    nacked: int
    branches: Mapping[str, BranchBody]
    stages: Sequence[StageCountBody]


class CountsBody(_DecidedCounts, total=False):
    """What was decided about a batch's rows, as the ledger keeps it."""

    findings: Mapping[str, Json]


class SettledCounts(TypedDict, total=False):
    """What became of a batch's rows, as the ledger keeps it. Versions that wrote it before may have left names out."""

    read: int
    nacked: int
    branches: Mapping[str, BranchBody]
    stages: Sequence[StageCountBody]
    findings: Mapping[str, Json]
    delivered: Mapping[str, int | None]
    """The rows that each destination took; None where that is not known."""
    discarded: int
    discards: Mapping[str, str]
    """Of rows of the DLQ that were thrown away: why, and on whose word."""
    dlq_bytes: int | None
    balanced: bool | str
    """True, False, or `unknown`."""
    owed: Sequence[str]
    """The destinations that had not confirmed."""
    way: str
    """Which way the batch took."""


@dataclass(frozen=True, kw_only=True)
class StageCount:
    """What one stage did to a batch."""

    stage: str
    entered: int
    left: int
    filtered: int = 0
    nacked: int = 0

    def json(self) -> StageCountBody:
        """As reports and the ledger name it."""
        return {
            "stage": self.stage,
            "in": self.entered,
            "out": self.left,
            "filtered": self.filtered,
            "nacked": self.nacked,
        }

    @staticmethod
    def of(value: StageCountBody) -> StageCount:
        """From the ledger."""
        return StageCount(
            stage=value["stage"],
            entered=value["in"],
            left=value["out"],
            filtered=value["filtered"],
            nacked=value["nacked"],
        )


@dataclass(frozen=True, kw_only=True)
class BranchCounts:
    """One destination's side of the equation."""

    expected: int
    """The rows that were decided for it."""
    filtered: int = 0
    changed: int = 0
    """The rows that stages added, or took away below zero, by giving other rows than they got."""


@dataclass(frozen=True, kw_only=True)
class Counts:
    """What was decided about a batch's rows, before any of it was delivered."""

    read: int
    nacked: int = 0
    branches: Mapping[str, BranchCounts] = field(default_factory=dict)
    stages: Sequence[StageCount] = ()
    findings: Mapping[str, Json] = field(default_factory=dict)
    """What stages found out about the batch, by their names; in the words of each."""

    def is_balanced(self, delivered: Mapping[str, int]) -> bool:
        """Whether every row is accounted for at each of these destinations, by the destination's own count."""
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
        """As the ledger keeps it."""
        body: CountsBody = {
            "read": self.read,
            "nacked": self.nacked,
            "branches": {
                name: {"expected": branch.expected, "filtered": branch.filtered, "changed": branch.changed}
                for name, branch in self.branches.items()
            },
            "stages": [stage.json() for stage in self.stages],
        }
        return {**body, "findings": dict(self.findings)} if self.findings else body

    @staticmethod
    def of(value: CountsBody) -> Counts:
        """From the ledger."""
        return Counts(
            read=value["read"],
            nacked=value["nacked"],
            branches={name: BranchCounts(**branch) for name, branch in value["branches"].items()},
            stages=tuple(StageCount.of(stage) for stage in value["stages"]),
            findings=value.get("findings", {}),
        )
