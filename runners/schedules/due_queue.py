"""Which pipeline is run next: a timer rings when one is due, and it waits in a queue for its turn.

APScheduler on our own thread: it knows what is due next, and rings.

Its own executors drop a run that is late by more than a second; this one hands on every moment that has passed.
"""

from __future__ import annotations

import hashlib
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import field
from datetime import datetime, timedelta, timezone
from typing import Any

from apscheduler.executors.base import BaseExecutor
from apscheduler.schedulers.base import BaseScheduler
from apscheduler.triggers.base import BaseTrigger

from origins.quantities import parse_seconds
from origins.quick_dataclass import dataclass
from runners.model.spec import ScheduleOptions
from runners.model.timetable import Timetable


@dataclass
class DueItem:
    """One pipeline: what of it waits, and what runs."""

    name: str
    schedule: ScheduleOptions
    waiting: deque[datetime] = field(default_factory=deque)
    """The moments at which runs were due that have not begun."""
    running: datetime | None = None
    """When the run was due that is under way."""
    held: datetime | None = None
    """Until when nothing of it begins: somebody else has the pipeline."""
    gone: bool = False
    """Whether it is forgotten once its run has ended."""

    @property
    def busy(self) -> bool:
        """Whether a run is under way, or waits."""
        return self.running is not None or bool(self.waiting)

    @property
    def ready(self) -> datetime:
        """When the first that waits may begin."""
        due = self.waiting[0]
        return max(due + _compute_jitter(self.name, due, parse_seconds(self.schedule.jitter)), self.held or due)


class DueQueue:
    """What is due and what runs, of many pipelines; a pipeline runs once at a time, and `at_once` of them do."""

    def __init__(self, at_once: int) -> None:
        self.at_once = at_once
        self.items: dict[str, DueItem] = {}

    @property
    def running(self) -> Sequence[DueItem]:
        """The pipelines with a run under way."""
        return [item for item in self.items.values() if item.running is not None]

    def put(self, name: str, schedule: ScheduleOptions) -> None:
        """Add a pipeline, or change its schedule; waiting and open runs stay."""
        item = self.items.setdefault(name, DueItem(name, schedule))
        item.schedule, item.gone = schedule, False

    def remove(self, name: str) -> None:
        """Nothing of the pipeline begins any more; what runs ends first."""
        item = self.items.get(name)
        if item is not None:
            item.waiting.clear()
            item.gone = True
            if item.running is None:
                del self.items[name]

    def add_due(self, name: str, moments: Sequence[datetime], *, missed: Sequence[datetime] = ()) -> Sequence[datetime]:
        """Runs are due; those that were `missed` in a pause are caught up first, as the schedule says.

        Gives the moments at which nothing will be run.
        """
        item = self.items[name]
        how = item.schedule.catch_up
        kept = list(missed) if how == "all" else list(missed[-1:]) if how == "once" else []
        left = [moment for moment in missed if moment not in kept]
        item.waiting.extend(kept)
        for moment in moments:
            if item.busy and item.schedule.on_overlap == "skip":
                left.append(moment)
            else:
                item.waiting.append(moment)
        return left

    def find_next(self, now: datetime) -> tuple[str, datetime] | None:
        """The run that begins now, and when it was due; None when there is none, or no room for it."""
        if len(self.running) >= self.at_once:
            return None
        able = [item for item in self._list_able() if item.ready <= now]
        first = min(able, key=lambda item: (item.ready, item.name), default=None)
        return None if first is None else (first.name, first.waiting[0])

    def find_wake_time(self) -> datetime | None:
        """When something that waits may begin, if there is room for it then."""
        if len(self.running) >= self.at_once:
            return None
        return min((item.ready for item in self._list_able()), default=None)

    def note_begun(self, name: str) -> None:
        """The first that waits is under way."""
        item = self.items[name]
        item.running = item.waiting.popleft()

    def note_dropped(self, name: str) -> None:
        """The first that waits is not run."""
        self.items[name].waiting.popleft()

    def note_ended(self, name: str) -> None:
        """The run has ended."""
        item = self.items[name]
        item.running = None
        if item.gone:
            del self.items[name]

    def put_off(self, name: str, until: datetime) -> bool:
        """The run did not take place, since another process has the pipeline. Whether it waits for another try."""
        item = self.items[name]
        due, waits = item.running, item.schedule.on_overlap == "queue" and not item.gone
        self.note_ended(name)
        if waits and due is not None:
            item.waiting.appendleft(due)
            item.held = until
        return waits

    def list_followers(self, name: str) -> Sequence[str]:
        """Those that run after this one."""
        return [item.name for item in self.items.values() if item.schedule.after == name and not item.gone]

    def _list_able(self) -> Sequence[DueItem]:
        return [item for item in self.items.values() if item.waiting and item.running is None]


def _compute_jitter(name: str, due: datetime, most: float) -> timedelta:
    """Return how much later this run begins: the same for every process that asks."""
    dice = hashlib.sha256(f"{name} {due.timestamp()}".encode()).digest()
    return timedelta(seconds=most * int.from_bytes(dice[:6], "big") / (1 << 48))


Hear = Callable[[str, Sequence[datetime]], None]
"""Hears what is due: a name, and all moments of it that have passed."""


class DueTimer(BaseScheduler):  # type: ignore[misc]
    """What is due, by names."""

    def __init__(self, hear: Hear) -> None:
        super().__init__(timezone=timezone.utc, executors={"default": _Handing(hear)})
        self.start()

    def put(self, name: str, timetable: Timetable, after: datetime) -> None:
        """Ring for this name from now, at all moments later than `after`."""
        first = timetable.find_next(after)
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

    def find_next(self, name: str) -> datetime | None:
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
        return self._timetable.find_next(previous or now)


def hear_nothing() -> None:
    """What a job would do by itself."""
