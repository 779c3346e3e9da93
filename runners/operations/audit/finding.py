"""The findings of an audit: the batch, the place, what was expected, what was found, and what to do."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal, Protocol, TypeAlias

from origins.batch import JSON
from origins.codec import UNSTORED, JsonForm
from runners.model.text import format_count, format_repr

FOUND = frozenset({
    "NOT_DELIVERED", "NOT_COMMITTED", "NOT_SETTLED", "NOT_PROVED", "OWED", "TWICE", "MISCOUNT", "ROWS_GONE",
    "RESTORED", "REPLACED", "TABLE_GONE", "FILE_GONE", "FILE_CHANGED", "LOG_BROKEN", "GAP", "OVERLAP", "DLQ_MISSING",
    "DLQ_GONE", "DLQ_STRAY", "DLQ_TWICE", "UNBALANCED", "ORIGIN_CHANGED",
})  # fmt: skip
"""The codes of all findings. The document with the codes of errors explains each."""
ACCEPT = 'If everything is right as it is:  wherry repair FILE --accept ID --reason "…"'
"""The last sentence of most findings."""
Remedy: TypeAlias = Literal["", "finish", "put_back"]
"""What `wherry repair` does about a finding: nothing, finish the open batches, or put rows back."""


class NumberedBatch(Protocol):
    """Anything that identifies a batch."""

    @property
    def lane(self) -> str: ...
    @property
    def number(self) -> int: ...
    @property
    def plan(self) -> str: ...


@dataclass(frozen=True, kw_only=True)
class Finding(JsonForm):
    """One thing that does not add up."""

    code: str
    message: str
    repair: str
    """The advice for a person."""
    lane: str | None = None
    number: int | None = None
    last: int | None = None
    """The number of the last batch, if the finding is about several; `number` is the first."""
    destination: str | None = None
    version: int | None = None
    """The version of the destination that caused it."""
    remedy: Remedy = ""
    plans: Sequence[str] = field(default=(), metadata=UNSTORED)
    """The ids of the batches."""
    members: Sequence[str] = field(default=(), metadata=UNSTORED)
    """The ids of the findings that were combined into this one."""

    def __post_init__(self) -> None:
        if self.code not in FOUND:
            raise ValueError(f"code: expected one of {', '.join(FOUND)}, got {self.code!r}")

    @staticmethod
    def about(batch: NumberedBatch, code: str, message: str, repair: str, **more: Any) -> Finding:
        where = {"lane": batch.lane, "number": batch.number, "plans": [batch.plan]}
        return Finding(code=code, message=message, repair=repair, **{**where, **more})

    @property
    def id(self) -> str:
        """A text that is equal in every audit that finds this again."""
        last = None if self.last == self.number else self.last
        parts = [self.destination, self.lane, self.number, last, self.version]
        return ":".join([self.code, *("" if part is None else str(part) for part in parts)])

    @property
    def batches(self) -> str:
        """The batches in words."""
        if self.number is None:
            return "" if self.lane is None else f"lane {self.lane}"
        if self.last in (None, self.number):
            return f"batch {self.number} of lane {self.lane}"
        return f"batches {self.number} to {self.last} of lane {self.lane}"

    def json(self) -> dict[str, JSON]:
        last = self.last if self.last is not None else self.number
        return {**super().json(), "last": last, "safe": bool(self.remedy), "id": self.id}


@dataclass(frozen=True, kw_only=True)
class DestinationProof(JsonForm):
    """One destination's side of the equation."""

    delivered: int
    """The rows that it shows, or for batches from before its history the rows that the ledger counts."""
    read: int = 0
    """The rows of the batches for this destination. Rows that were processed again count once, as the last time."""
    filtered: int = 0
    nacked: int = 0
    changed: int = 0
    owed: int = 0
    """Batches that it has not confirmed."""
    proved_from: Mapping[str, int] | None = None
    """By lane, the first batch that its history still covers; None if it covers none."""
    proof: str = ""


@dataclass(frozen=True, kw_only=True)
class Audit(JsonForm):
    """Whether Wherry can show for every row that it is where it should be."""

    pipeline: str
    lanes: Mapping[str, Mapping[str, JSON]]
    read: int
    filtered: int
    nacked: int
    destinations: Mapping[str, DestinationProof]
    dlq: Mapping[str, JSON] | None = None
    """How many refused rows should be in the DLQ and how many are; None if the DLQ cannot be read."""
    open: Sequence[Mapping[str, JSON]] = ()
    """The open batches that have no problem."""
    removed: Mapping[str, Mapping[str, JSON]] = field(default_factory=dict)
    """The batches and rows of each destination that the definition no longer has. They are not checked."""
    problems: Sequence[Finding]
    accepted: Sequence[Finding] = ()
    """The findings that were accepted."""

    @property
    def balanced(self) -> bool:
        return not self.problems

    def __repr__(self) -> str:
        verdict = "balances" if self.balanced else format_count(len(self.problems), "problem", "problems")
        return format_repr("Audit", self.pipeline, verdict, f"{format_count(self.read)} read")

    def json(self) -> dict[str, JSON]:
        return {"pipeline": self.pipeline, "balanced": self.balanced, **super().json()}


_ALIKE = ("code", "destination", "lane", "remedy")
_OWN_FILE = re.compile(r"--file ('[^']*'|\S)+")
"""The part of an advice that may differ between findings that are combined. The first finding's advice stays."""


def group_findings(findings: Iterable[Finding]) -> list[Finding]:
    """Return the findings, with similar findings about neighbouring batches of a lane combined into one."""
    groups: list[list[Finding]] = []
    for finding in sorted(findings, key=_sort_key):
        if groups and _continues(groups[-1][-1], finding):
            groups[-1].append(finding)
        else:
            groups.append([finding])
    return [_merge_group(group) for group in groups]


def _sort_key(finding: Finding) -> tuple[str, str, str, int, int]:
    numbers = (finding.version if finding.version is not None else -1, finding.number or 0)
    return (finding.code, finding.destination or "", finding.lane or "", *numbers)


def _continues(before: Finding, finding: Finding) -> bool:
    alike = all(getattr(before, name) == getattr(finding, name) for name in _ALIKE)
    alike = alike and _OWN_FILE.sub("", before.repair) == _OWN_FILE.sub("", finding.repair)
    same = before.version == finding.version or finding.code == "NOT_COMMITTED"
    return alike and same and before.number is not None and finding.number == before.number + 1


def _merge_group(group: list[Finding]) -> Finding:
    first, last = group[0], group[-1]
    more = f" ({len(group) - 1:,} more like it, up to batch {last.number})" if len(group) > 1 else ""
    return replace(
        first,
        last=last.number,
        message=first.message + more,
        repair=first.repair.replace("FIRST", str(first.number)).replace("LAST", str(last.number)),
        plans=[plan for finding in group for plan in finding.plans],
        members=[finding.id for finding in group],
    )
