"""What the dispatcher gives a runner to do, and what comes back."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from destinations.destination import Identity, Written
from origins.batch import JSON, Batch
from runners.counts import Counts
from runners.plan import Decision, Plan


@dataclass(frozen=True, kw_only=True)
class Carry:
    """Take the batch straight to its only destination."""

    plan: Plan
    ahead: Plan | None = None
    """What the lane most likely carries next: its rows may be described meanwhile, and nothing done with them."""


@dataclass(frozen=True, kw_only=True)
class Together:
    """Take the batches of several lanes straight to their only destination, in one write."""

    carries: Sequence[Carry]


@dataclass(frozen=True, kw_only=True)
class Prepare:
    """Decide the batch: write what every destination and the DLQ will get under the state."""

    plan: Plan
    ahead: Plan | None = None
    """As in `Carry`."""
    codes: bool = False
    """Whether it has to be known why each row was refused, since some reasons have limits of their own."""


@dataclass(frozen=True, kw_only=True)
class Deliver:
    """Write what was decided for these destinations, side by side; the DLQ is one of them where rows were refused."""

    plan: Plan
    decision: Decision
    names: Sequence[str]


@dataclass(frozen=True, kw_only=True)
class Ask:
    """Make sure that no write of the batch is under way, then ask who has it."""

    plan: Plan
    names: Sequence[str]
    identities: Mapping[str, Identity]
    """What each of them was when the run opened."""
    ours: bool = False
    """Whether it was this run that wrote."""
    ended: bool = False
    """Whether it has seen its write end, so that none is under way."""


@dataclass(frozen=True, kw_only=True)
class Count:
    """Count the rows of a span that was delivered by a process that is gone."""

    plan: Plan
    written: Written


@dataclass(frozen=True, kw_only=True)
class Explain:
    """Fetch the row that tripped the window, and a few refused rows before it."""

    plan: Plan
    decision: Decision
    place: int
    stages: Sequence[str] = ()
    """The stages of which a refused row stops the run, if it is for that."""
    code: str = ""
    """The code whose limit was reached; nothing where it was the window."""
    rows: int = 0
    """How many rows have that code."""


@dataclass(frozen=True, kw_only=True)
class Check:
    """See whether a destination would refuse rows that were decided for it, by what it demands by now."""

    plan: Plan
    decision: Decision


@dataclass(frozen=True, kw_only=True)
class Tick:
    """Show stages and destinations a batch without rows, which nobody plans and nobody settles."""

    batch: Batch


Task: TypeAlias = "Carry | Together | Prepare | Deliver | Ask | Count | Explain | Check | Tick"


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


@dataclass(frozen=True, kw_only=True)
class Shared:
    """A write of several lanes' batches has landed: what it was for each, by lane."""

    landed: Mapping[str, Landed]


@dataclass(frozen=True, kw_only=True)
class Alone:
    """Several lanes' batches cannot go together, for one of them cannot go this way. Each goes by itself."""

    error: Exception | None = None
    """How their write ended, of which it is not known whether it landed; None if nothing was written."""


@dataclass(frozen=True, kw_only=True)
class Refused:
    """A straight write met a row that a stage refuses. Nothing was written."""


@dataclass(frozen=True, kw_only=True)
class Prepared:
    """A batch is decided. `nacks` are the places of the refused rows, ascending from 1."""

    path: str
    counts: Counts
    sections: int = 1
    """How many frames of it lie there."""
    nacks: Sequence[int] = ()
    bases: Mapping[str, int] = field(default_factory=dict)
    stops: Sequence[str] = ()
    """The stages that refused a row and whose `on_error` is stop."""
    codes: Sequence[tuple[int, str]] = ()
    """The places once more, each with the code; where that was asked for."""


@dataclass(frozen=True, kw_only=True)
class Answers:
    """Who has the batch."""

    found: Mapping[str, Written]


@dataclass(frozen=True, kw_only=True)
class Counted:
    """How many rows a span has; None if that cannot be had any more."""

    read: int | None
    left: int | None = None
    """How many of them stand behind all stages, where the destination does not say how many it got."""


@dataclass(frozen=True, kw_only=True)
class Explained:
    """Refused rows, the one that matters first, as `dlq show` would show them."""

    nacks: Sequence[Mapping[str, JSON]]


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
class Ticked:
    """Everybody has seen the empty batch."""


Outcome: TypeAlias = (
    "Landed | Shared | Alone | Refused | Prepared | Answers | Counted | Explained | Checked | Ticked | Failed"
)
