"""What listeners to a scheduler hear, after it happened."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TypeAlias

from runners.report import Report


@dataclass(frozen=True, kw_only=True)
class Scheduled:
    """A pipeline is scheduled from now: it is new, its definition changed, was mended or is paused no more."""

    name: str
    file: str


@dataclass(frozen=True, kw_only=True)
class Unscheduled:
    """Nothing of a pipeline begins any more, and why; a run that is under way ends as it began."""

    name: str
    why: str


@dataclass(frozen=True, kw_only=True)
class Broken:
    """What is wrong with a file."""

    file: str
    message: str


@dataclass(frozen=True, kw_only=True)
class Mended:
    """A file that was broken is not any more, or is gone."""

    file: str


@dataclass(frozen=True, kw_only=True)
class Began:
    """A run is under way."""

    name: str
    due: datetime


@dataclass(frozen=True, kw_only=True)
class Ended:
    """A run is over: `succeeded`, `failed`, `stopped`, or `owned` where somebody else has the pipeline."""

    name: str
    due: datetime
    status: str
    message: str
    """How it went, in a sentence or an error's words."""
    seconds: float
    report: Report | None = None


@dataclass(frozen=True, kw_only=True)
class LeftOut:
    """Runs that were due and do not take place, and why."""

    name: str
    due: Sequence[datetime]
    why: str


@dataclass(frozen=True, kw_only=True)
class Draining:
    """Nothing begins any more; what runs finishes its batches in flight."""

    reason: str


ScheduleEvent: TypeAlias = "Scheduled | Unscheduled | Broken | Mended | Began | Ended | LeftOut | Draining"
ScheduleListener: TypeAlias = Callable[[ScheduleEvent], None]
