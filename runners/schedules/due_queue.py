"""Which pipeline runs next: a timer reports what is due, and due runs wait in a queue for their turn.

The timer is APScheduler, on the scheduler's thread. The executors of APScheduler drop a run that is late by more than a
second. The executor in this module passes on every moment that has passed.
"""

from __future__ import annotations

import hashlib
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta, timezone
from typing import Any

from apscheduler.executors.base import BaseExecutor
from apscheduler.schedulers.base import BaseScheduler
from apscheduler.triggers.base import BaseTrigger

from origins.quantities import parse_seconds
from runners.model.spec import ScheduleOptions
from runners.model.timetable import Timetable
from runners.schedules.run_marks import SCHEDULE, RunGroups


@dataclass
class DueItem:
    """One pipeline with its waiting runs and its current run."""

    name: str
    schedule: ScheduleOptions
    group: str | None = None
    waiting: deque[datetime] = field(default_factory=deque)
    """The moments at which runs were due that have not begun."""
    made_up: set[datetime] = field(default_factory=set)
    """The waiting runs that were missed or cut off. They wait for a run of another scheduler, also with `skip`."""
    running: datetime | None = None
    """When the current run was due."""
    entered: str | None = None
    """The group of the current run, or of the run that begins."""
    held: datetime | None = None
    """Until when no run begins, because another process has the pipeline."""
    gone: bool = False
    """Whether the pipeline is removed once its run has ended."""

    @property
    def ready(self) -> datetime:
        """When the first waiting run may begin."""
        due = self.waiting[0]
        return max(due + _compute_jitter(self.name, due, parse_seconds(self.schedule.jitter)), self.held or due)


class DueQueue:
    """The due and the current runs of many pipelines.

    A pipeline has only one run at a time. At most `at_once` pipelines run at a time, and no group exceeds its limit.
    """

    def __init__(self, at_once: int, groups: RunGroups | None = None) -> None:
        self.at_once, self.groups = at_once, groups or RunGroups()
        self.items: dict[str, DueItem] = {}
        self.passed: Sequence[DueItem] = ()

    @property
    def running(self) -> Sequence[DueItem]:
        """The pipelines with a current run."""
        return [item for item in self.items.values() if item.running is not None]

    def put(self, name: str, schedule: ScheduleOptions, group: str | None = None) -> None:
        """Add a pipeline, or change its schedule and its group. Waiting and current runs stay."""
        item = self.items.setdefault(name, DueItem(name, schedule))
        item.schedule, item.group, item.gone = schedule, group, False

    def remove(self, name: str) -> None:
        """Let no further run of the pipeline begin. A current run ends first."""
        item = self.items.get(name)
        if item is not None:
            item.waiting.clear()
            item.gone = True
            if item.running is None:
                del self.items[name]

    def add_due(self, name: str, moments: Sequence[datetime], *, missed: Sequence[datetime] = ()) -> Sequence[datetime]:
        """Add runs that are due. Runs that were `missed` in a pause are caught up first, as the schedule defines.

        Return the moments at which no run will begin.
        """
        item = self.items[name]
        how = item.schedule.catch_up
        kept = list(missed) if how == "all" else list(missed[-1:]) if how == "once" else []
        left = [moment for moment in missed if moment not in kept]
        item.waiting.extend(kept)
        item.made_up.update(kept)
        for moment in moments:
            if item.schedule.on_overlap == "skip" and (item.running or item.waiting):
                left.append(moment)
            else:
                item.waiting.append(moment)
        return left

    def put_first(self, name: str, due: datetime) -> None:
        """Let a run that was cut off begin before all that wait."""
        item = self.items[name]
        item.waiting.appendleft(due)
        item.made_up.add(due)

    def hold_first(self, name: str, until: datetime) -> bool:
        """Let the first waiting run wait, because another scheduler has a run of the pipeline.

        Return False if it is left out instead.
        """
        item = self.items[name]
        if item.schedule.on_overlap == "skip" and item.waiting[0] not in item.made_up:
            return False
        item.held = until
        return True

    def find_next(self, now: datetime) -> DueItem | None:
        """Return the pipeline whose waiting run may begin first. None if no run waits, or if none has room.

        A full group holds up no other pipeline, and `passed` has the pipelines that wait for one. A run that is ready
        has entered its group: `note_begun` or `give_way` must follow.
        """
        has_room = len(self.running) < self.at_once
        able = [item for item in self.items.values() if has_room and item.waiting and item.running is None]
        able.sort(key=lambda item: (item.ready, item.name))
        ready = [item for item in able if item.ready <= now]
        at = self.groups.choose(SCHEDULE, [(item.group, item.ready) for item in ready])
        self.passed = ready[:at]
        if at is None:
            return able[len(ready)] if len(able) > len(ready) else None
        ready[at].entered = ready[at].group
        return ready[at]

    def give_way(self, name: str) -> None:
        """Note that a run which may begin does not begin now."""
        item = self.items[name]
        self.groups.leave(item.entered)
        item.entered = None

    def note_begun(self, name: str) -> None:
        """Note that the first waiting run has begun."""
        item = self.items[name]
        item.running = item.waiting.popleft()
        item.made_up.discard(item.running)

    def note_dropped(self, name: str) -> None:
        """Remove the first waiting run, which will not begin."""
        item = self.items[name]
        item.made_up.discard(item.waiting.popleft())

    def note_ended(self, name: str) -> None:
        """Note that the run has ended."""
        self.give_way(name)
        item = self.items[name]
        item.running = None
        if item.gone:
            del self.items[name]

    def put_off(self, name: str, until: datetime) -> bool:
        """Note that the run did not begin, because another process has the pipeline.

        Return whether it waits for another try.
        """
        item = self.items[name]
        due, waits = item.running, item.schedule.on_overlap == "queue" and not item.gone
        self.note_ended(name)
        if waits and due is not None:
            item.waiting.appendleft(due)
            item.held = until
        return waits

    def list_followers(self, name: str) -> Sequence[str]:
        """Return the pipelines that run after this one."""
        return [item.name for item in self.items.values() if item.schedule.after == name and not item.gone]


def _compute_jitter(name: str, due: datetime, most: float) -> timedelta:
    """Return how much later this run begins. Every process computes the same value."""
    dice = hashlib.sha256(f"{name} {due.timestamp()}".encode()).digest()
    return timedelta(seconds=most * int.from_bytes(dice[:6], "big") / (1 << 48))


NoteDue = Callable[[str, Sequence[datetime]], None]
"""Gets what is due: a name, and all its moments that have passed."""


class DueTimer(BaseScheduler):  # type: ignore[misc]
    """A timer that reports which names are due."""

    def __init__(self, note_due: NoteDue) -> None:
        super().__init__(timezone=timezone.utc, executors={"default": _Handing(note_due)})
        self.start()

    def put(self, name: str, timetable: Timetable | None, after: datetime) -> None:
        """Report this name from now on, at all moments later than `after`. Without a timetable, stop reporting it."""
        first = timetable.find_next(after) if timetable else None
        if timetable is None or first is None:
            self.remove(name)
        else:
            self.add_job(
                do_nothing,
                _Times(timetable),
                id=name,
                next_run_time=first,
                coalesce=False,
                misfire_grace_time=None,
                replace_existing=True,
            )

    def remove(self, name: str) -> None:
        """Stop reporting this name."""
        if self.get_job(name) is not None:
            self.remove_job(name)

    def find_next(self, name: str) -> datetime | None:
        """Return when this name is due next."""
        job = self.get_job(name)
        return None if job is None else job.next_run_time.astimezone(timezone.utc)

    def ring(self) -> float | None:
        """Report everything that is due. Return the seconds until something is due next, or None."""
        seconds: float | None = self._process_jobs()
        return seconds

    def wakeup(self) -> None:
        """Do nothing, because no thread waits for this timer."""

    def shutdown(self, wait: bool = True) -> None:
        """Stop reporting."""
        super().shutdown(wait)


class _Handing(BaseExecutor):  # type: ignore[misc]
    """An executor that passes on the moments of a job, and runs nothing."""

    def __init__(self, note_due: NoteDue) -> None:
        super().__init__()
        self._note_due = note_due

    def submit_job(self, job: Any, run_times: Sequence[datetime]) -> None:
        self._note_due(job.id, [moment.astimezone(timezone.utc) for moment in run_times])

    def _do_submit_job(self, job: Any, run_times: Sequence[datetime]) -> None:
        raise NotImplementedError


class _Times(BaseTrigger):  # type: ignore[misc]
    """A timetable as a trigger of APScheduler."""

    def __init__(self, timetable: Timetable) -> None:
        self._timetable = timetable

    def get_next_fire_time(self, previous: datetime | None, now: datetime) -> datetime | None:
        return self._timetable.find_next(previous or now)


def do_nothing() -> None:
    """Do nothing. APScheduler needs a function for each job."""
