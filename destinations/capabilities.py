"""What some destinations can do besides taking rows. A destination that can do it inherits the class too."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from destinations.labels import BatchLabel, Label
from origins.lazy import DataFrame, SparkSession, T
from stages.stage import Stage

ReadBack: TypeAlias = "Callable[[SparkSession, Sequence[Label], T.StructType], DataFrame]"
"""Reads the rows of these labels, with these columns. It may also give other rows, and a row twice."""
NEWEST = 100
"""How many of a destination's newest writes tell which pipelines write to it."""


@dataclass(frozen=True, kw_only=True)
class Loss:
    """What removed or changed rows of a batch after they arrived."""

    code: str
    """`ROWS_GONE`, `RESTORED`, `FILE_GONE`, `FILE_CHANGED` or `LOG_BROKEN`; for a doubt, `NOT_PROVED`."""
    reason: str
    """What happened, as the end of a sentence about the rows."""
    version: int | None = None
    whole: bool = False
    """Whether all rows of the batch are gone."""
    restore: str = ""
    """The SQL statement that restores the earlier table; empty if it would also remove rows of other batches."""
    takes_later: bool = False
    """Whether `restore` also removes later batches, which a person can add again."""
    insert: str = ""
    """The SQL statement that adds the missing rows, without the batch's label; empty if no statement can."""


@dataclass(frozen=True, kw_only=True)
class BroughtBatch:
    """A write that names the batch that it added."""

    label: BatchLabel
    rows: int | None
    """How many rows the write added by its figures, including the rows of its other batches."""
    together: Sequence[str] = ()
    """The keys of all batches of the write, with this batch's key."""
    version: int | None = None
    listed: int | None = None
    """How many rows are in the files that it added; None if that cannot be compared."""
    files: Sequence[str] = ()
    """The names of the files that it added, if they belong to a table."""
    copied: int = 0
    """How many rows of earlier batches are in its files too."""
    loss: Loss | None = None
    """What happened to the rows, if they are gone or changed."""
    doubt: Loss | None = None
    """A change of a file that has these rows and other rows, if the changed rows are unknown."""

    @property
    def key(self) -> str:
        return self.label.key


@dataclass(frozen=True, kw_only=True)
class DeliveryAccount:
    """What a destination proves about the batches that it got."""

    place: str
    proof: str
    """One sentence: what its history proves, and what it does not prove."""
    there: bool = True
    """Whether the table or folder exists."""
    id: str = ""
    """The id of the table or folder; empty if it has none."""
    silent: bool = False
    """Whether a batch with rows may leave no trace: a merge that changes nothing makes no commit."""
    mends: bool = False
    """Whether lost rows can be added again from their own files, because rows were only ever added."""
    since: int = 0
    """The first version in its history."""
    brought: Sequence[BroughtBatch] = ()
    """The writes, in their order."""
    losses: Sequence[Loss] = ()
    """The losses of rows whose batches are unknown now."""

    @property
    def whole(self) -> bool:
        """Whether its history goes back to its beginning."""
        return self.since == 0


class DestinationCapability(ABC):  # noqa: B024 -- its subclasses have the methods
    """Members that Wherry uses only on a destination that inherits their class."""


class OpenCapability(ABC):  # noqa: B024 -- its subclasses have the methods
    """Members that Wherry uses only on what `open` returns, if it inherits their class."""


class ProvesDeliveries(DestinationCapability):
    """A destination whose history says which batches it got."""

    @abstractmethod
    def account(self, spark: Callable[[], SparkSession], pipeline: str) -> DeliveryAccount | None:
        """Return what its history and its rows prove about the batches of this pipeline; None if it proves nothing.

        It changes nothing. It calls `spark` only if there is no other way.
        """

    @abstractmethod
    def list_labels(self, spark: SparkSession) -> Iterator[BatchLabel]:
        """Yield the labels of its `NEWEST` writes, of any pipeline, the newest first."""


def find_account(destination: object, spark: Callable[[], SparkSession], pipeline: str) -> DeliveryAccount | None:
    """Return what the destination proves about the batches of this pipeline; None if it proves nothing."""
    return destination.account(spark, pipeline) if isinstance(destination, ProvesDeliveries) else None


class ReadsBack(DestinationCapability):
    """A destination whose rows Wherry can read back, so that it can be the fallback of a DLQ."""

    @property
    @abstractmethod
    def read_back(self) -> ReadBack | None:
        """The function that reads written rows back, such as refused rows in a fallback; None if Wherry cannot."""


def find_read_back(destination: object) -> ReadBack | None:
    """Return the function that reads written rows back; None if Wherry cannot."""
    return destination.read_back if isinstance(destination, ReadsBack) else None


class GrowsColumns(OpenCapability):
    """An open destination whose place can take new columns."""

    @abstractmethod
    def grow(self, spark: SparkSession, schema: T.StructType) -> None:
        """Add the new columns and wider types of an evolving origin, as far as the place can.

        A second call has no further effect. Wherry calls this before `ensure_place`.
        """


class HasDemands(OpenCapability):
    """An open destination whose place refuses some rows, or leaves them out."""

    @abstractmethod
    def demands(self, spark: SparkSession, schema: T.StructType) -> Sequence[Stage]:
        """Return what the place demands of rows with this schema, as stages that run after all others.

        The stages refuse the rows that the place would refuse, and filter the rows that it would leave out. Wherry
        asks after `ensure_place`, and again if the place may refuse rows that were already decided. A preview asks
        too, and creates nothing: a missing place demands what it will demand once it exists.
        """


def list_demands(opened: object, spark: SparkSession, schema: T.StructType) -> Sequence[Stage]:
    """Return what the place demands of rows with this schema, as stages that run after all others."""
    return opened.demands(spark, schema) if isinstance(opened, HasDemands) else ()


class KnowsNewest(OpenCapability):
    """An open destination that knows its newest batch of a pipeline."""

    @abstractmethod
    def newest(self, pipeline: str) -> BatchLabel | None:
        """Return the label of the newest batch that it has of this pipeline, if it knows that at once; else None.

        Wherry asks this after `ensure_place`.
        """


class ConfirmsBatches(OpenCapability):
    """An open destination that notices if a batch of this run is gone."""

    @abstractmethod
    def confirm(self) -> None:
        """Raise if it is known at once that a batch of this run is missing. Wherry asks at the end of a run."""


class StopsWriters(OpenCapability):
    """An open destination that can make writes of the past fail."""

    @abstractmethod
    def fence(self, spark: SparkSession, token: str) -> None:
        """Make every write that began earlier fail."""


def stop_writers(opened: object, spark: SparkSession, token: str) -> None:
    """Make every write that began earlier fail, if the open destination can do that."""
    if isinstance(opened, StopsWriters):
        opened.fence(spark, token)


class SharesPlace(OpenCapability):
    """An open destination that can harm another run, if both write at the same time."""

    @abstractmethod
    def share(self) -> None:
        """Prepare for other runs that write here at the same time.

        From now on, a write that could harm theirs raises.
        """


class NeedsMaintenance(OpenCapability):
    """An open destination whose place needs housekeeping."""

    @property
    @abstractmethod
    def needs_maintenance(self) -> bool:
        """Whether `maintain` has anything to do, now or later."""

    @abstractmethod
    def maintain(self, spark: SparkSession) -> None:
        """Do housekeeping that changes no row.

        A thread beside the runners calls this after writes, one call at a time, and the run waits for its end. A
        failure costs only space and time: Wherry logs it and tries again later.
        """


class NoticesPauses(OpenCapability):
    """An open destination that does something while no rows come."""

    @abstractmethod
    def tick(self, spark: SparkSession, rows: DataFrame, label: Label) -> None:
        """React to a while without rows. `rows` is empty, and has the columns of a batch.

        Wherry calls this only with `run.idle`. The destination must not write anything.
        """
