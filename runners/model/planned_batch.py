"""Planned batches: what they are, what was decided about their rows, and the counts of these rows.

The counts satisfy an equation. For every destination: read + changed = delivered + filtered + nacked.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from origins.batch import Batch, Json
from origins.codec import INLINE, LEFT_OUT, named
from runners.model.nack_window import NackWindow


@dataclass(frozen=True, kw_only=True)
class StageCount:
    """What one stage did to a batch."""

    stage: str
    entered: int = field(metadata=named("in"))
    left: int = field(metadata=named("out"))
    filtered: int = 0
    nacked: int = 0


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
    findings: Mapping[str, Json] = field(default_factory=dict, metadata=LEFT_OUT)
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


@dataclass(frozen=True, kw_only=True)
class SettledCounts(Counts):
    """What happened to a batch's rows. Earlier versions may have left any of it out."""

    read: int = 0
    delivered: Mapping[str, int | None] = field(default_factory=dict)
    """The rows that each destination took. None if the number is not known."""
    discarded: int = 0
    discards: Mapping[str, str] = field(default_factory=dict, metadata=LEFT_OUT)
    """For discarded rows of the DLQ: the reason, and the name of the person that discarded them."""
    dlq_bytes: int | None = field(default=None, metadata=LEFT_OUT)
    fallback: int = field(default=0, metadata=LEFT_OUT)
    """The refused rows that went to the fallback because the DLQ failed."""
    balanced: bool | str = True
    """True, False, or `unknown`."""
    owed: Sequence[str] | None = field(default=None, metadata=LEFT_OUT)
    """The destinations that had not confirmed the batch."""
    way: str = field(default="", metadata=LEFT_OUT)
    """The way that the batch took. Empty if an earlier run wrote it straight and ended before settling it."""


@dataclass(frozen=True, kw_only=True)
class SettleBody:
    """The body of `settle`."""

    offset: Json
    counts: SettledCounts
    window: NackWindow | None
    clean: int
    owed: Sequence[str]
    way: str = field(default="", metadata=LEFT_OUT)
    """As in the counts of the settled batch."""


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
    again: bool = field(default=False, metadata=LEFT_OUT)
    """Whether the batch was decided before. The DLQ may then have some of its refused rows."""
    way: str = field(default="", metadata=LEFT_OUT)
    """The way that decided the batch. Empty if an older version decided it without recording the way."""
    keeps_filtered: bool = field(default=False, metadata=LEFT_OUT)
    """Whether the path also stores the filtered rows."""

    @property
    def filtered(self) -> int:
        """How many filtered rows are stored. A row that several destinations filtered counts once for each."""
        return sum(stage.filtered for stage in self.counts.stages) if self.keeps_filtered else 0


@dataclass(frozen=True, kw_only=True)
class PlannedBatch:
    """A batch that was planned, and what is known about it."""

    batch: Batch = field(metadata=INLINE)
    pins: Mapping[str, Json] = field(default_factory=dict)
    """Facts that its stages must find the same in every computation."""
    destinations: tuple[str, ...]
    straight: bool
    decision: DecidedBatch | None = None
    published: bool = False
    """Whether the offset is already committed while some destinations still owe the batch."""

    def name_pipeline(self, pipeline: str) -> PlannedBatch:
        """Return the same plan of this pipeline. The ledger does not repeat the name in each plan."""
        return replace(self, batch=replace(self.batch, pipeline=pipeline))

    def is_same_batch(self, other: PlannedBatch) -> bool:
        """Whether both plan the same batch. The plan's id and the time of planning are ignored."""
        return replace(self, batch=replace(self.batch, plan=other.batch.plan, time=other.batch.time)) == other
