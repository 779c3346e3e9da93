"""A clock that tests move by hand."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta, timezone

from runners.model.clock import Clock


@dataclass
class ManualClock(Clock):
    """A clock whose time changes only when a test moves it."""

    time: datetime = datetime(2026, 1, 1, tzinfo=timezone.utc)
    seconds: float = 0.0

    def now(self) -> datetime:
        return self.time

    def elapsed(self) -> float:
        return self.seconds

    def wait(self, seconds: float) -> None:
        self.move(seconds)

    def move(self, seconds: float) -> None:
        """Move the clock forward by this many seconds."""
        self.seconds += seconds
        self.time += timedelta(seconds=seconds)
