"""What listeners hear: every change of a batch's state, after it is recorded."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

from origins.batch import JSON, Batch


@dataclass(frozen=True, kw_only=True)
class RunStarted:
    """A run has the pipeline and begins to plan."""

    pipeline: str
    run: str
    waiting: Mapping[str, int] = field(default_factory=dict)
    """How many batches wait in each lane, where that can be told at once."""


@dataclass(frozen=True, kw_only=True)
class BatchPlanned:
    """A batch is planned; it is open now."""

    batch: Batch


@dataclass(frozen=True, kw_only=True)
class BatchResumed:
    """A batch that an earlier run left open is looked at first."""

    batch: Batch


@dataclass(frozen=True, kw_only=True)
class BatchRests:
    """A batch could not be carried, for a reason that passes by itself; after these seconds it is tried again."""

    batch: Batch
    error: Exception
    tried: int
    """The how-manieth try it will be, the first one not counted."""
    seconds: float


@dataclass(frozen=True, kw_only=True)
class BatchDecided:
    """What will become of every row of a batch is written down."""

    batch: Batch
    nacked: int


@dataclass(frozen=True, kw_only=True)
class BatchSettled:
    """The batch's offset is committed. `owed` names the destinations that still wait for it."""

    batch: Batch
    counts: Mapping[str, JSON]
    owed: tuple[str, ...] = ()
    seconds: Mapping[str, float] = field(default_factory=dict)
    """Where its time went since it was planned or resumed: `plan`, `read`, `write`, `dlq`, `ledger`, `rest`."""


@dataclass(frozen=True, kw_only=True)
class BatchCancelled:
    """The batch delivered nothing, and its rows will be planned again."""

    batch: Batch


@dataclass(frozen=True, kw_only=True)
class Noticed:
    """Something that a person should know of an origin, or of the stages that its rows pass."""

    origin: str
    message: str


@dataclass(frozen=True, kw_only=True)
class RunStopping:
    """No further batch is planned; those in flight finish."""

    reason: str


@dataclass(frozen=True, kw_only=True)
class RunEnded:
    """The run is over: `succeeded`, `failed` or `stopped`."""

    status: str
    reason: str
    lanes: Mapping[str, JSON] = field(default_factory=dict)


def rested(event: BatchRests) -> str:
    """The sentence that a person reads of it."""
    batch = event.batch
    why = str(event.error).splitlines()[0]
    return f"batch {batch.number} of lane {batch.lane} will be tried again in {event.seconds:.1f} s: {why}"


Event: TypeAlias = (
    "RunStarted | BatchPlanned | BatchResumed | BatchDecided | BatchRests | BatchSettled | BatchCancelled | Noticed"
    " | RunStopping | RunEnded"
)
Listener: TypeAlias = Callable[[Event], None]
