"""The events that listeners receive: every change of a batch's state, after it is recorded."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

from origins.batch import Batch
from runners.model.planned_batch import SettledCounts
from runners.model.text import format_count


@dataclass(frozen=True, kw_only=True)
class RunStarted:
    """A run has the pipeline and begins to plan."""

    pipeline: str
    """The pipeline's name."""
    run: str
    """The run's id."""
    waiting: Mapping[str, int] = field(default_factory=dict)
    """How many batches wait in each lane, if the origin knows that at once."""


@dataclass(frozen=True, kw_only=True)
class BatchPlanned:
    """A batch is planned and now open."""

    batch: Batch
    """The batch."""


@dataclass(frozen=True, kw_only=True)
class BatchResumed:
    """The run recovers a batch that an earlier run left open."""

    batch: Batch
    """The batch."""


@dataclass(frozen=True, kw_only=True)
class BatchRests:
    """A batch failed with an error that may pass by itself. After a wait Wherry tries it again."""

    batch: Batch
    """The batch."""
    error: Exception
    """The error of the last try."""
    tried: int
    """The number of the next retry. The first try is not a retry."""
    seconds: float
    """How long Wherry waits before it tries again."""


@dataclass(frozen=True, kw_only=True)
class BatchDecided:
    """Wherry has stored what happens to every row of a batch."""

    batch: Batch
    """The batch."""
    nacked: int
    """How many of its rows are refused."""


@dataclass(frozen=True, kw_only=True)
class LimitExceeded:
    """A batch exceeds a limit of the DLQ with the action `notify`. It is delivered nevertheless."""

    batch: Batch
    """The batch."""
    limit: str
    """The name of the limit: `rows`."""
    allowed: str
    """The share that the limit allows, as the definition writes it."""
    share: float
    """The share of the batch that is refused, from 0 to 1."""
    rows: int
    """How many rows the limit counts."""
    message: str
    """All these facts in a sentence."""


@dataclass(frozen=True, kw_only=True)
class DlqFellBack:
    """The DLQ could not take the refused rows of a batch. They go to the fallback."""

    batch: Batch
    """The batch."""
    rows: int
    """How many of its rows are refused."""
    error: Exception
    """Why the DLQ could not take them."""


@dataclass(frozen=True, kw_only=True)
class BatchSettled:
    """A batch is settled: its offset is committed."""

    batch: Batch
    """The batch."""
    counts: SettledCounts
    """The rows that were read, delivered, filtered and refused, by destination and by stage."""
    owed: tuple[str, ...] = ()
    """The destinations that do not have the batch yet."""
    seconds: Mapping[str, float] = field(default_factory=dict)
    """The time since the batch was planned or resumed, by phase: `plan`, `read`, `write`, `dlq`, `ledger`, `rest`."""
    way: str = ""
    """The way that the batch took (`runners.ways.choose`). Empty if an earlier run began to deliver it."""


@dataclass(frozen=True, kw_only=True)
class BatchCancelled:
    """A batch was cancelled. It delivered nothing, and Wherry will plan its rows again."""

    batch: Batch
    """The batch."""


@dataclass(frozen=True, kw_only=True)
class Noticed:
    """A notice for a person about an origin, or about the stages that its rows pass."""

    origin: str
    """The origin's name."""
    message: str
    """The notice."""


@dataclass(frozen=True, kw_only=True)
class RunStopping:
    """The run plans no further batch, and finishes those in flight."""

    reason: str
    """Why the run stops."""


@dataclass(frozen=True, kw_only=True)
class RunEnded:
    """The run is over."""

    status: str
    """`succeeded`, `failed` or `stopped`."""
    reason: str
    """Why it was stopped or failed."""
    lanes: Mapping[str, Mapping[str, object]] = field(default_factory=dict)
    """The last offset of each lane."""


Event: TypeAlias = (
    "RunStarted | BatchPlanned | BatchResumed | BatchDecided | LimitExceeded | BatchRests | DlqFellBack | BatchSettled"
    " | BatchCancelled | Noticed | RunStopping | RunEnded"
)
Listener: TypeAlias = Callable[[Event], None]


def describe_warning(event: Event) -> str:
    """Return the sentence to show at once for an event that may need a person's action. Empty for any other event."""
    if not isinstance(event, BatchRests | LimitExceeded | DlqFellBack):
        return ""
    which = f"batch {event.batch.number} of lane {event.batch.lane}"
    if isinstance(event, LimitExceeded):
        return f"{which} exceeds dlq.limits.{event.limit}: {event.message}"
    why = str(event.error).splitlines()[0]
    if isinstance(event, BatchRests):
        return f"{which} will be tried again in {event.seconds:.1f} s: {why}"
    refused = format_count(event.rows, "refused row goes", "refused rows go")
    return f"{which}: {refused} to the fallback, since the DLQ failed: {why}"
