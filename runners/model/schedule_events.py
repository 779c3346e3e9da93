"""The events that listeners to a scheduler receive, after they happened."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TypeAlias

from runners.model.run_report import Report


@dataclass(frozen=True, kw_only=True)
class Scheduled:
    """A pipeline is scheduled from now on. It is new, its definition changed, or a person resumed it."""

    name: str
    """The pipeline's name."""
    file: str
    """Its definition."""
    next: datetime | None = None
    """When it is due next. None if it runs after another pipeline."""


@dataclass(frozen=True, kw_only=True)
class Unscheduled:
    """No further run of a pipeline begins. A run that works already continues to its end."""

    name: str
    """The pipeline's name."""
    why: str
    """The reason."""


@dataclass(frozen=True, kw_only=True)
class Broken:
    """A definition in the folder cannot be used."""

    file: str
    """The file."""
    message: str
    """What is wrong with it."""


@dataclass(frozen=True, kw_only=True)
class Mended:
    """A broken definition was corrected or removed."""

    file: str
    """The file."""


@dataclass(frozen=True, kw_only=True)
class Began:
    """A run began."""

    name: str
    """The pipeline's name."""
    due: datetime
    """When the run was due."""


@dataclass(frozen=True, kw_only=True)
class Waits:
    """A run that is due does not begin yet, because its group is full."""

    name: str
    """The pipeline's name."""
    due: datetime
    """When the run was due."""
    group: str
    """The group."""


@dataclass(frozen=True, kw_only=True)
class Ended:
    """A run is over."""

    name: str
    """The pipeline's name."""
    due: datetime
    """When the run was due."""
    status: str
    """`succeeded`, `failed`, `stopped`, or `owned` if another run has the pipeline."""
    message: str
    """How the run went, in a sentence or in an error's words."""
    seconds: float
    """How long it took."""
    report: Report | None = None
    """The run's report. Absent if the run could not begin."""


@dataclass(frozen=True, kw_only=True)
class LeftOut:
    """The scheduler skips runs that were due."""

    name: str
    """The pipeline's name."""
    due: Sequence[datetime]
    """When the runs were due."""
    why: str
    """The reason."""


@dataclass(frozen=True, kw_only=True)
class Draining:
    """The scheduler begins no further run. Runs that work finish their batches in flight."""

    reason: str
    """Why the scheduler ends."""


ScheduleEvent: TypeAlias = "Scheduled | Unscheduled | Broken | Mended | Began | Waits | Ended | LeftOut | Draining"
ScheduleListener: TypeAlias = Callable[[ScheduleEvent], None]
