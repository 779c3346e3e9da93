"""What the dispatcher gives a runner to do, and what comes back."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field
from typing import TypeAlias

from destinations.destination import Identity, Written
from origins.batch import Batch, Json
from origins.quick_dataclass import dataclass
from runners.model.causes import Causes
from runners.model.nack_window import RowWeights, TrippedLimit
from runners.model.planned_batch import Counts, DecidedBatch, PlannedBatch


@dataclass(frozen=True, kw_only=True)
class WriteStraight:
    """Take the batch straight to its only destination."""

    plan: PlannedBatch
    following: PlannedBatch | None = None
    """What its lane most likely carries next, to be described while this batch is written."""


@dataclass(frozen=True, kw_only=True)
class WriteGroup:
    """Take the batches of several lanes straight to their only destination, in one write."""

    carries: Sequence[WriteStraight]


@dataclass(frozen=True, kw_only=True)
class Prepare:
    """Decide the batch: write what every destination and the DLQ will get under the state."""

    plan: PlannedBatch
    codes: bool = False
    """Whether it has to be known why each row was refused, since some reasons have limits of their own."""
    weigh: str = ""
    """The column by which refused rows are compared with the batch; nothing where no limit needs that."""
    following: PlannedBatch | None = None
    """What its lane most likely carries next, to be described while this batch is decided."""


@dataclass(frozen=True, kw_only=True)
class Deliver:
    """Write what was decided for these destinations, side by side; the DLQ is one of them where rows were refused."""

    plan: PlannedBatch
    decision: DecidedBatch
    names: Sequence[str]


@dataclass(frozen=True, kw_only=True)
class AskDestinations:
    """Make sure that no write of the batch is under way, then ask which destinations have it."""

    plan: PlannedBatch
    names: Sequence[str]
    identities: Mapping[str, Identity]
    """What each of them was when the run opened."""
    ours: bool = False
    """Whether it was this run that wrote."""
    ended: bool = False
    """Whether it has seen its write end, so that none is under way."""


@dataclass(frozen=True, kw_only=True)
class CountSpan:
    """Count the rows of a span that was delivered by a process that is gone."""

    plan: PlannedBatch
    written: Written


@dataclass(frozen=True, kw_only=True)
class Explain:
    """Fetch the row that tripped a limit, and a few refused rows before it."""

    plan: PlannedBatch
    decision: DecidedBatch
    place: int
    stages: Sequence[str] = ()
    """The stages of which a refused row stops the run, if it is for that."""
    tripped: TrippedLimit | None = None
    """What stops or pauses the run, where it is no stage."""


@dataclass(frozen=True, kw_only=True)
class CheckRefusals:
    """Check decided rows against the present constraints of a destination."""

    plan: PlannedBatch
    decision: DecidedBatch


@dataclass(frozen=True, kw_only=True)
class ShowEmptyBatch:
    """Show stages and destinations an empty batch, which is never planned or settled."""

    batch: Batch


Task: TypeAlias = (
    "WriteStraight | WriteGroup | Prepare | Deliver | AskDestinations | CountSpan "
    "| Explain | CheckRefusals | ShowEmptyBatch"
)


def list_batches(task: Task) -> Sequence[Batch]:
    """The batches that a task is about."""
    if isinstance(task, ShowEmptyBatch):
        return [task.batch]
    return [each.plan.batch for each in (task.carries if isinstance(task, WriteGroup) else [task])]


@dataclass(frozen=True, kw_only=True)
class Landed:
    """Writes that are known to have landed, by destination; of a straight batch, with its counts."""

    written: Mapping[str, Written]
    counts: Counts | None = None
    failed: Mapping[str, Exception] = field(default_factory=dict)
    """Writes that ended with an error; whether they landed is not known."""
    described: float = 0.0
    """How many seconds passed before the write of a straight batch began."""
    outlasted: float = 0.0
    """How many seconds the DLQ's write went on when all others had ended."""
    way: str = ""
    """Which way a straight batch took."""
    beside: float = 0.0
    """How many seconds passed behind the writes for something that is not the batch's."""


@dataclass(frozen=True, kw_only=True)
class GroupWritten:
    """A write of several lanes' batches has landed: what it was for each, by lane."""

    landed: Mapping[str, Landed]


@dataclass(frozen=True, kw_only=True)
class Declined:
    """A way could not carry a batch, or several together. Nothing of it is left; the batch takes the next way."""

    reason: str
    way: str = ""
    """Which way declined."""
    remember: bool = False
    """Whether the next batches of the lane need not try this way."""
    until_clean: bool = False
    """Whether that ends with the first of them that has no refused row."""
    error: Exception | None = None
    """How a write ended of which it is not known whether it landed; None if nothing was written."""


@dataclass(frozen=True, kw_only=True)
class Prepared:
    """A batch is decided. `nacks` are the places of the refused rows, ascending from 1."""

    path: str
    counts: Counts
    sections: int = 1
    """How many frames of it are there."""
    nacks: Sequence[int] = ()
    bases: Mapping[str, int] = field(default_factory=dict)
    stops: Sequence[str] = ()
    """The stages that refused a row and whose `on_error` is stop."""
    codes: Sequence[tuple[int, str]] = ()
    """The places once more, each with the code; where that was asked for."""
    weights: RowWeights | None = None
    """How much the rows weigh; where that was asked for and a row was refused."""
    way: str = ""
    """Which way it took."""


@dataclass(frozen=True, kw_only=True)
class Answers:
    """Which destinations have the batch."""

    found: Mapping[str, Written]
    failed: Mapping[str, Exception] = field(default_factory=dict)
    """The DLQ, where it could not be asked and there is a fallback for it."""


@dataclass(frozen=True, kw_only=True)
class Counted:
    """How many rows a span has; None if that cannot be had any more."""

    read: int | None
    left: int | None = None
    """How many of them stand behind all stages, where the destination does not say how many it got."""


@dataclass(frozen=True, kw_only=True)
class Explained:
    """Refused rows, the decisive row first, as `dlq show` would show them."""

    nacks: Sequence[Mapping[str, Json]]
    causes: Causes = Causes()
    """Why the rows of the batch were refused, where there are more than these."""


@dataclass(frozen=True, kw_only=True)
class Failed:
    """The task ended with an error. If it was a write, it is not known whether it landed."""

    error: Exception


@dataclass(frozen=True, kw_only=True)
class Checked:
    """What a destination thinks of a decided batch now."""

    refusing: str = ""
    """The first that would refuse a row; nothing if all take all."""
    same: bool = False
    """Whether the batch, decided once more, would have the same rows and refuse those again that it has refused."""


@dataclass(frozen=True, kw_only=True)
class EmptyBatchShown:
    """Everybody has seen the empty batch."""


Outcome: TypeAlias = (
    "Landed | GroupWritten | Declined | Prepared | Answers | Counted | Explained | Checked | EmptyBatchShown | Failed"
)
