"""The tasks that the dispatcher gives a runner, and their outcomes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from destinations.destination import Identity, Written
from origins.batch import Batch, Json
from runners.model.causes import Causes
from runners.model.nack_window import TrippedLimit
from runners.model.planned_batch import Counts, DecidedBatch, PlannedBatch


@dataclass(frozen=True, kw_only=True)
class WriteStraight:
    """Write the batch straight to its only destination."""

    plan: PlannedBatch
    following: PlannedBatch | None = None
    """What the lane most likely carries next. It is described while this batch is written."""


@dataclass(frozen=True, kw_only=True)
class WriteGroup:
    """Write the batches of several lanes straight to their only destination, in one write."""

    writes: Sequence[WriteStraight]


@dataclass(frozen=True, kw_only=True)
class Prepare:
    """Decide the batch: store under the state what every destination and the DLQ will get."""

    plan: PlannedBatch
    following: PlannedBatch | None = None
    """What the lane most likely carries next. It is described while this batch is decided."""


@dataclass(frozen=True, kw_only=True)
class Deliver:
    """Write the decided rows to these destinations in parallel. The DLQ is among them if rows were refused."""

    plan: PlannedBatch
    decision: DecidedBatch
    names: Sequence[str]


@dataclass(frozen=True, kw_only=True)
class AskDestinations:
    """Make sure that no write of the batch is under way, then ask which destinations have it."""

    plan: PlannedBatch
    names: Sequence[str]
    identities: Mapping[str, Identity]
    """The identity of each destination when the run opened."""
    ours: bool = False
    """Whether this run made the write."""
    ended: bool = False
    """Whether this run has seen its write end, so that no write is under way."""


@dataclass(frozen=True, kw_only=True)
class CountSpan:
    """Count the rows of a span that a process delivered before it ended."""

    plan: PlannedBatch
    written: Written


@dataclass(frozen=True, kw_only=True)
class Explain:
    """Fetch the row that tripped a limit, and a few refused rows before it."""

    plan: PlannedBatch
    decision: DecidedBatch
    place: int
    stages: Sequence[str] = ()
    """The stages whose refused row stops the run, if a stage is the reason."""
    tripped: TrippedLimit | None = None
    """The limit that stops or pauses the run, if a stage is not the reason."""


@dataclass(frozen=True, kw_only=True)
class CheckRefusals:
    """Check the decided rows against the present constraints of a destination."""

    plan: PlannedBatch
    decision: DecidedBatch


@dataclass(frozen=True, kw_only=True)
class ShowEmptyBatch:
    """Give stages and destinations an empty batch, which is never planned or settled."""

    batch: Batch


Task: TypeAlias = (
    "WriteStraight | WriteGroup | Prepare | Deliver | AskDestinations | CountSpan "
    "| Explain | CheckRefusals | ShowEmptyBatch"
)


def list_batches(task: Task) -> Sequence[Batch]:
    """Return the batches that a task is about."""
    if isinstance(task, ShowEmptyBatch):
        return [task.batch]
    return [each.plan.batch for each in (task.writes if isinstance(task, WriteGroup) else [task])]


@dataclass(frozen=True, kw_only=True)
class Landed:
    """Writes that are known to have succeeded, by destination. For a straight batch, with its counts."""

    written: Mapping[str, Written]
    counts: Counts | None = None
    failed: Mapping[str, Exception] = field(default_factory=dict)
    """Writes that ended with an error. It is not known whether they succeeded."""
    described: float = 0.0
    """How many seconds passed before the write of a straight batch began."""
    outlasted: float = 0.0
    """How many seconds the DLQ's write continued after all other writes had ended."""
    way: str = ""
    """The way that a straight batch took."""


@dataclass(frozen=True, kw_only=True)
class GroupWritten:
    """A write of several lanes' batches succeeded. `outcomes` has its result for each lane."""

    outcomes: Mapping[str, Landed]


@dataclass(frozen=True, kw_only=True)
class Declined:
    """A way could not carry a batch, or several together. It left nothing behind, and the batch takes the next way."""

    reason: str
    way: str = ""
    """The way that declined."""
    remember: bool = False
    """Whether the lane's next batches skip this way."""
    error: Exception | None = None
    """The error of a write that may or may not have succeeded. None if nothing was written."""


@dataclass(frozen=True, kw_only=True)
class Prepared:
    """A batch is decided. `nacks` are the places of the refused rows, ascending from 1."""

    path: str
    counts: Counts
    sections: int = 1
    """How many frames are stored."""
    nacks: Sequence[int] = ()
    bases: Mapping[str, int] = field(default_factory=dict)
    stops: Sequence[str] = ()
    """The stages that refused a row and whose `on_error` is stop."""
    way: str = ""
    """The way that the batch took."""


@dataclass(frozen=True, kw_only=True)
class Answers:
    """Which destinations have the batch."""

    found: Mapping[str, Written]
    failed: Mapping[str, Exception] = field(default_factory=dict)
    """The error of the DLQ, if it could not be asked and has a fallback."""


@dataclass(frozen=True, kw_only=True)
class Counted:
    """How many rows a span has, or None if that can no longer be found out."""

    read: int | None
    left: int | None = None
    """How many of them remain after all stages, if the destination does not report how many it got."""


@dataclass(frozen=True, kw_only=True)
class Explained:
    """Refused rows as `dlq show` would show them. The decisive row is first."""

    nacks: Sequence[Mapping[str, Json]]
    causes: Causes = Causes()
    """Why the rows of the batch were refused, if there are more than these."""


@dataclass(frozen=True, kw_only=True)
class Failed:
    """The task ended with an error. If the task was a write, it is not known whether it succeeded."""

    error: Exception


@dataclass(frozen=True, kw_only=True)
class Checked:
    """Whether a destination would accept a decided batch now."""

    refusing: str = ""
    """The first destination that would refuse a row. Empty if none would."""
    same: bool = False
    """Whether the batch, if decided again, would have the same rows and the same refused rows."""


@dataclass(frozen=True, kw_only=True)
class EmptyBatchShown:
    """All stages and destinations have received the empty batch."""


Outcome: TypeAlias = (
    "Landed | GroupWritten | Declined | Prepared | Answers | Counted | Explained | Checked | EmptyBatchShown | Failed"
)
