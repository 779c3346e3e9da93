"""When a schedule is due, as moments in UTC. Pure: no clock is read here."""

from __future__ import annotations

import bisect
import functools
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import date, datetime, timedelta, timezone, tzinfo
from typing import TypeVar
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from origins.quantities import seconds
from runners.definitions.problems import shortened
from runners.pipeline import ScheduleOptions
from runners.schedules import cron
from runners.schedules.cron import Cron

T = TypeVar("T")

_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)
_DAY = timedelta(days=1)
_FAR = 366 * 9
"""The days in which every line fires that ever does: a 29th of February may be eight years away."""


class Timetable(ABC):
    """The moments at which something is due."""

    @abstractmethod
    def after(self, moment: datetime) -> datetime | None:
        """The first that is later than this one."""

    def following(self, moment: datetime, count: int) -> Sequence[datetime]:
        """The next so many that are later than this one."""
        found: list[datetime] = []
        while len(found) < count and (due := self.after(found[-1] if found else moment)) is not None:
            found.append(due)
        return found

    def between(self, start: datetime, end: datetime, most: int) -> Sequence[datetime]:
        """Those later than `start` up to and including `end`; of many the last so many."""
        found: deque[datetime] = deque(maxlen=most)
        due = self.after(start)
        while due is not None and due <= end:
            found.append(due)
            due = self.after(due)
        return found

    def last(self, start: datetime, end: datetime) -> datetime | None:
        """The last one that is later than `start`, up to and including `end`."""
        reach = timedelta(hours=1)
        while True:
            behind = max(start, end - reach)
            found = self.between(behind, end, 1)
            if found or behind == start:
                return found[0] if found else None
            reach *= 4


@dataclass(frozen=True, kw_only=True)
class Every(Timetable):
    """Always after the same time, counted from the beginning of 1970 in UTC, so that a restart changes nothing."""

    step: timedelta

    def after(self, moment: datetime) -> datetime | None:
        return _EPOCH + ((moment - _EPOCH) // self.step + 1) * self.step

    def between(self, start: datetime, end: datetime, most: int) -> Sequence[datetime]:
        return super().between(max(start, end - most * self.step), end, most)


@dataclass(frozen=True, kw_only=True)
class CronTimes(Timetable):
    """A line of crontab in a time zone.

    Where clocks go forward, what is due in the hour that is left out is due at its end; where they go back, what is
    due in the hour that comes twice is due the first time. A line for every hour goes by the hours that there are:
    none of them is left out, and both of the two that are called alike have theirs.
    """

    line: Cron
    zone: tzinfo

    def after(self, moment: datetime) -> datetime | None:
        day = moment.astimezone(self.zone).date()
        for _ in range(_FAR):
            # What is called today may come before what is called yesterday, where clocks go back at midnight.
            near = [_due_on(self.line, self.zone, day + near * _DAY) for near in (-1, 0, 1)]
            later = [due[at] for due in near if (at := bisect.bisect_right(due, moment)) < len(due)]
            if later:
                return min(later)
            day += _DAY
        return None


def timetable_of(options: ScheduleOptions) -> Timetable | None:
    """When the schedule is due; None for one that waits for another pipeline.

    Raises ValueError, with the option before a colon, for one that says no time.
    """
    if options.every is not None:
        return Every(step=_said("every", _step, options.every))
    if options.cron is not None:
        line = _said("cron", cron.parse, options.cron)
        return CronTimes(line=line, zone=_said("time_zone", zone_of, options.time_zone))
    return None


def zone_of(name: str) -> tzinfo:
    """The time zone. Raises ValueError for a name that this machine does not know."""
    if name == "UTC":
        return timezone.utc
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError) as error:
        raise ValueError(f"expected a time zone such as UTC or Europe/Berlin, got {shortened(name)}") from error


def _step(text: str) -> timedelta:
    length = seconds(text)
    if length < 1:
        raise ValueError(f"expected at least 1s, got {text!r}")
    return timedelta(seconds=length)


def _said(option: str, read: Callable[[str], T], text: str) -> T:
    try:
        return read(text)
    except ValueError as error:
        raise ValueError(f"{option}: {error}") from error


@functools.lru_cache(maxsize=512)
def _due_on(line: Cron, zone: tzinfo, day: date) -> Sequence[datetime]:
    """When it is due on the day that is called so, in UTC and in order."""
    if not line.fits(day):
        return ()
    moments = (
        moment
        for hour in line.hours
        for minute in line.minutes
        for moment in _moments(datetime(day.year, day.month, day.day, hour, minute), zone, each=line.every_hour)
    )
    return tuple(sorted(set(moments)))


def _moments(wall: datetime, zone: tzinfo, *, each: bool) -> Iterator[datetime]:
    """When the clocks of a zone show this; `each` time, or else once, also where they leave it out."""
    first = wall.replace(tzinfo=zone).astimezone(timezone.utc)
    second = wall.replace(tzinfo=zone, fold=1).astimezone(timezone.utc)
    if first == second:
        yield first
    elif first < second:
        yield first
        if each:
            yield second
    elif not each:
        yield _change(second, first, zone)


def _change(before: datetime, behind: datetime, zone: tzinfo) -> datetime:
    """The moment between these two at which the zone's clocks are moved, to the second."""
    old = before.astimezone(zone).utcoffset()
    while behind - before > timedelta(seconds=1):
        middle = before + timedelta(seconds=(behind - before) // timedelta(seconds=2))
        if middle.astimezone(zone).utcoffset() == old:
            before = middle
        else:
            behind = middle
    return behind
