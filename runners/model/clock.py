"""The clock for waits and deadlines; tests replace it and move it by hand."""

from __future__ import annotations

import time
from datetime import datetime, timezone

_COUNTS_SLEEP = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
"""Continues while a laptop is closed, if the system has such a clock."""


def convert_to_utc(moment: datetime) -> datetime:
    """The moment in UTC. A time without a zone counts as UTC."""
    return moment.astimezone(timezone.utc) if moment.tzinfo else moment.replace(tzinfo=timezone.utc)


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
