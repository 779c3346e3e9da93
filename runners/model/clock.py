"""The clock for waits and deadlines. Tests replace it and advance it by hand."""

from __future__ import annotations

import time
from datetime import datetime, timezone

_COUNTS_SLEEP = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
"""This clock continues while a laptop is closed, if the system has such a clock."""


def convert_to_utc(moment: datetime) -> datetime:
    """Convert a moment to UTC. A time without a zone counts as UTC."""
    return moment.astimezone(timezone.utc) if moment.tzinfo else moment.replace(tzinfo=timezone.utc)


class Clock:
    """The time of this machine."""

    def now(self) -> datetime:
        """Return the current time in UTC."""
        return datetime.now(timezone.utc)

    def elapsed(self) -> float:
        """Return the seconds since a fixed moment.

        The value never decreases, and continues while the machine sleeps.
        """
        return time.clock_gettime(_COUNTS_SLEEP)

    def wait(self, seconds: float) -> None:
        """Wait for so many seconds."""
        time.sleep(seconds)
