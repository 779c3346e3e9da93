"""APScheduler on our own thread: it knows what is due next, and rings.

Its own executors drop a run that is late by more than a second; this one hands on every moment that has passed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime, timezone
from typing import Any

from apscheduler.executors.base import BaseExecutor
from apscheduler.schedulers.base import BaseScheduler
from apscheduler.triggers.base import BaseTrigger

from runners.schedules.timetable import Timetable

Hear = Callable[[str, Sequence[datetime]], None]
"""Hears what is due: a name, and all moments of it that have passed."""


class Alarm(BaseScheduler):  # type: ignore[misc]
    """What is due, by names."""

    def __init__(self, hear: Hear) -> None:
        super().__init__(timezone=timezone.utc, executors={"default": _Handing(hear)})
        self.start()

    def put(self, name: str, timetable: Timetable, after: datetime) -> None:
        """Ring for this name from now, at all moments later than `after`."""
        first = timetable.after(after)
        if first is None:
            self.remove(name)
        else:
            self.add_job(
                hear_nothing,
                _Times(timetable),
                id=name,
                next_run_time=first,
                coalesce=False,
                misfire_grace_time=None,
                replace_existing=True,
            )

    def remove(self, name: str) -> None:
        """Ring for this name no more."""
        if self.get_job(name) is not None:
            self.remove_job(name)

    def next(self, name: str) -> datetime | None:
        """When it rings next for this name."""
        job = self.get_job(name)
        return None if job is None else job.next_run_time.astimezone(timezone.utc)

    def ring(self) -> float | None:
        """Hand on what is due; gives the seconds until the next is."""
        seconds: float | None = self._process_jobs()
        return seconds

    def wakeup(self) -> None:
        """Nothing sleeps here."""

    def shutdown(self, wait: bool = True) -> None:
        """Ring no more."""
        super().shutdown(wait)


class _Handing(BaseExecutor):  # type: ignore[misc]
    """Carries nothing out itself."""

    def __init__(self, hear: Hear) -> None:
        super().__init__()
        self._hear = hear

    def submit_job(self, job: Any, run_times: Sequence[datetime]) -> None:
        self._hear(job.id, [moment.astimezone(timezone.utc) for moment in run_times])

    def _do_submit_job(self, job: Any, run_times: Sequence[datetime]) -> None:
        raise NotImplementedError


class _Times(BaseTrigger):  # type: ignore[misc]
    """A timetable, as APScheduler asks for one."""

    def __init__(self, timetable: Timetable) -> None:
        self._timetable = timetable

    def get_next_fire_time(self, previous: datetime | None, now: datetime) -> datetime | None:
        return self._timetable.after(previous or now)


def hear_nothing() -> None:
    """What a job would do by itself."""
