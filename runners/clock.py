"""The clock that waits and deadlines go by; it can be replaced by one that is moved by hand."""

from __future__ import annotations

import time
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone

_COUNTS_SLEEP = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
"""Goes on while a laptop is closed; where there is no such clock, the one that comes nearest."""


class Clock:
    """The time of this machine."""

    def now(self) -> datetime:
        """The time of day, in UTC."""
        return datetime.now(timezone.utc)

    def elapsed(self) -> float:
        """Seconds since some moment; never goes back, and does not stop while the machine sleeps."""
        return time.clock_gettime(_COUNTS_SLEEP)

    def wait(self, seconds: float) -> None:
        """Let so much time pass."""
        time.sleep(seconds)


@dataclass
class ManualClock(Clock):
    """A clock that stands still until it is moved."""

    time: datetime = datetime(2026, 1, 1, tzinfo=timezone.utc)
    seconds: float = 0.0

    def now(self) -> datetime:
        return self.time

    def elapsed(self) -> float:
        return self.seconds

    def wait(self, seconds: float) -> None:
        self.move(seconds)

    def move(self, seconds: float) -> None:
        """Let time pass."""
        self.seconds += seconds
        self.time += timedelta(seconds=seconds)
