"""The contract of a way: one strategy for carrying a batch to its decision, and the limits by which it is chosen."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import field
from typing import TYPE_CHECKING, ClassVar, Generic, TypeVar

from origins.quick_dataclass import dataclass
from runners.model.planned_batch import PlannedBatch
from runners.model.tasks import Declined
from runners.ways.stage_chain import StageChain

if TYPE_CHECKING:
    from destinations.destination import Destination
    from origins.batch_rows import BatchRows
    from origins.origin import Origin


@dataclass(frozen=True, kw_only=True)
class Thresholds:
    """Up to which size each way is the quicker one. A run has one such value; whoever wants another way passes one."""

    small_bytes: int = 4 << 20
    """The bytes up to which a batch is small."""
    small_refused: int = 10_000
    """The refused rows up to which those of any batch are delivered by this process."""
    copied_bytes: int = 1 << 30
    """The bytes of files up to which this process copies rows. Of more, Spark writes them with all its cores."""
    copied_others: int = 10_000
    """The rows of a batch that may be refused, filtered or noted otherwise than most, where all others are copied."""
    picked_rows: int = 10_000
    """The refused rows that a task picks. A batch with more is written whole."""
    picked_row_bytes: int = 8 << 10
    """The length of a refused row's texts up to which it is picked."""
    picked_bytes: int = 64 << 20
    """The bytes that a task may pick."""
    figures: int = 16
    """The figures up to which counting rows while they are written is quicker than reading them once more."""
    raising_rows: int = 100
    """The rows of a batch that may make a stage raise. With more it is the stage, and the batch fails."""
    interpreted_rows: int = 10_000
    """The rows up to which Spark computes without compiling, where it looks for those that raise."""
    grouped_lanes: int = 16
    """The lanes whose batches one write may bring: Spark looks at the rows of each before it begins."""


Work = TypeVar("Work")
Result = TypeVar("Result")


@dataclass(frozen=True, kw_only=True)
class Candidate:
    """What a way may look at before it says whether it can carry a batch. Nothing in here starts a Spark job."""

    origin: Origin
    chain: StageChain
    destinations: Sequence[Destination]
    """Those that get its rows."""
    plan: PlannedBatch | None = None
    """The batch; None where only the definition is looked at."""
    rows: BatchRows | None = None
    """The batch's rows as they are read."""
    spark_is_local: bool = True
    """Whether Spark surely works on this machine, and finds what this process writes to its disk."""
    lanes: int = 1
    """How many lanes the origin has."""
    declined: frozenset[str] = frozenset()
    """The ways that declined this batch, or earlier ones of its lane."""
    thresholds: Thresholds = field(default_factory=Thresholds)
    keeps_filtered: bool = False
    """Whether the rows that stages filter are stored."""
    claims: bool = False
    """Whether large values go to their store, and come back from there."""

    @property
    def size(self) -> int | None:
        """About how many bytes its rows are behind all stages, by the plan or as they are read; None where that is not
        known."""
        if (
            self.plan is None
            or self.changing
            or (self.claims and any(step.stage.enlarges for step in self.chain.steps))
        ):
            return None
        planned = self.plan.batch.span.bytes
        return self.rows.size() if planned is None and self.rows is not None else planned

    @property
    def is_small(self) -> bool:
        """Whether it is a batch whose rows are surely few, behind all stages as well."""
        return self.size is not None and self.size <= self.thresholds.small_bytes

    @property
    def changing(self) -> str:
        """The first stage that gives other rows than it gets; nothing if there is none."""
        return next((step.name for step in self.chain.steps if step.stage.changes_rows), "")


class Way(ABC, Generic[Work, Result]):
    """One way of carrying a batch to its decision. Twice is once; what it declines leaves nothing behind.

    `Work` is what it works with, and `Result` what it gives.
    """

    name: ClassVar[str]

    @abstractmethod
    def why_not(self, batch: Candidate) -> str:
        """Why it cannot carry this batch, in one sentence; nothing if it can. Starts no Spark job.

        Asked of a definition as well, before there is a batch: then it says what holds for all of them.
        """

    @abstractmethod
    def carry(self, batches: Sequence[Candidate], work: Work) -> Result | Declined:
        """Carry the batch. Only `Grouped` gets several."""
