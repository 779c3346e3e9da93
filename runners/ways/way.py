"""The contract of a way: one strategy that decides a batch, and the thresholds by which Wherry chooses it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import ClassVar, Generic, TypeVar

from destinations.destination import Destination
from origins.batch_rows import BatchRows
from origins.origin import RowSource
from runners.model.planned_batch import PlannedBatch
from runners.model.spec import WAYS
from runners.ways.stage_chain import StageChain


@dataclass(frozen=True, kw_only=True)
class Thresholds:
    """The sizes up to which each way is the fastest. A run has one object of this class; a test passes another one."""

    ways: Sequence[str] = ()
    """The ways that batches may take; if it is empty, all. The last way is always there."""
    small_bytes: int = 4 << 20
    """The bytes up to which a batch is small."""
    small_refused: int = 10_000
    """The refused rows of a batch up to which this process delivers them."""
    raising_rows: int = 100
    """The rows of a batch that may make a stage raise. With more, the stage is wrong and the batch fails."""
    interpreted_rows: int = 10_000
    """The rows up to which Spark computes without compiled code while Wherry looks for rows that raise."""
    grouped_lanes: int = 16
    """The lanes whose batches one write may add. Spark looks at the rows of each lane before it begins."""

    def leaves_out(self, way: str) -> bool:
        """Return whether no batch takes this way."""
        return bool(self.ways) and way not in {*self.ways, WAYS[-1]}


Work = TypeVar("Work")
Result = TypeVar("Result")


@dataclass(frozen=True, kw_only=True)
class Candidate:
    """What a way may look at to decide whether it can take a batch. Nothing here starts a Spark job."""

    origin: RowSource
    chain: StageChain
    destinations: Sequence[Destination]
    """The destinations that get its rows."""
    plan: PlannedBatch | None = None
    """The batch; None if only the definition is checked."""
    rows: BatchRows | None = None
    """The batch's rows as the origin reads them."""
    keeps_few: bool = True
    """Whether the state keeps few rows where this process and Spark find them."""
    lanes: int = 1
    """How many lanes the origin has."""
    thresholds: Thresholds = field(default_factory=Thresholds)
    keeps_filtered: bool = False
    """Whether Wherry stores the rows that stages filter."""
    claims: bool = False
    """Whether stages put large values into their store and read them from it."""

    @property
    def size(self) -> int | None:
        """About how many bytes its rows have after all stages, by the plan or by the rows; None if unknown."""
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
        """Whether the batch is surely small, also after all stages."""
        return self.size is not None and self.size <= self.thresholds.small_bytes

    @property
    def changing(self) -> str:
        """The first stage that gives other rows than it gets; empty if there is none."""
        return next((step.name for step in self.chain.steps if step.stage.changes_rows), "")


class Way(ABC, Generic[Work, Result]):
    """A way to decide a batch. A repeated call has the same effect.

    `Work` is what the way works with, and `Result` is what it returns.
    """

    name: ClassVar[str]

    @abstractmethod
    def why_not(self, batch: Candidate) -> str:
        """Return in one sentence why the way cannot take this batch; empty if it can. It starts no Spark job.

        Wherry also asks about a definition, without a batch. The answer then holds for all its batches.
        """

    @abstractmethod
    def carry(self, batches: Sequence[Candidate], work: Work) -> Result:
        """Process the batch. Only `Grouped` gets several batches."""
