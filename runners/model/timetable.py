"""When a schedule is due, as moments in UTC, by intervals or by a line of crontab. No function here reads a clock."""

from __future__ import annotations

import bisect
import functools
import re
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime, timedelta, timezone, tzinfo
from itertools import islice, takewhile
from typing import TypeVar
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from origins.quantities import parse_seconds
from runners.model.spec import ScheduleOptions
from runners.model.text import format_count, shorten

T = TypeVar("T")

_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)
_DAY = timedelta(days=1)
_FAR = 366 * 9
"""How many days to search for the next time. A 29th of February may be eight years away."""


class Timetable(ABC):
    """The moments at which something is due."""

    @abstractmethod
    def find_next(self, moment: datetime) -> datetime | None:
        """Return the first due moment after this one, or None."""

    def follow(self, moment: datetime) -> Iterator[datetime]:
        """Yield the due moments after this one."""
        due = self.find_next(moment)
        while due is not None:
            yield due
            due = self.find_next(due)

    def list_between(self, start: datetime, end: datetime, most: int) -> Sequence[datetime]:
        """Return the due moments after `start`, up to and including `end`.

        If there are more, return the last `most`. It looks ever further back, because the time between may be years.
        """
        reach = timedelta(hours=1)
        while True:
            behind = max(start, end - reach)
            moments = deque(takewhile(lambda due: due <= end, self.follow(behind)), most)
            if len(moments) == most or behind == start:
                return [*moments]
            reach *= 4


@dataclass(frozen=True, kw_only=True)
class Every(Timetable):
    """A constant interval, counted from the beginning of 1970 in UTC, so that a restart changes nothing."""

    step: timedelta

    def find_next(self, moment: datetime) -> datetime | None:
        return _EPOCH + ((moment - _EPOCH) // self.step + 1) * self.step


@dataclass(frozen=True, kw_only=True)
class CronTimes(Timetable):
    """A line of crontab in a time zone.

    When clocks go forward, a time in the skipped hour is due at its end. When clocks go back, a time in the repeated
    hour is due only the first time. A line for every hour is different: it follows the real hours. A skipped hour gives
    no time, and a repeated hour is due both times.
    """

    line: Cron
    zone: tzinfo

    def find_next(self, moment: datetime) -> datetime | None:
        day = moment.astimezone(self.zone).date()
        for _ in range(_FAR):
            # A time on one date may come before a time on the date before, where clocks go back at midnight.
            near = [_list_due_on(self.line, self.zone, day + near * _DAY) for near in (-1, 0, 1)]
            later = [due[at] for due in near if (at := bisect.bisect_right(due, moment)) < len(due)]
            if later:
                return min(later)
            day += _DAY
        return None


def make_timetable(options: ScheduleOptions) -> Timetable | None:
    """Return the timetable of the schedule, or None if it waits for another pipeline.

    Raise ValueError for a schedule without a valid time. The message begins with the option and a colon.
    """
    if options.every is not None:
        return Every(step=_prefix_error("every", _parse_step, options.every))
    if options.cron is not None:
        line = _prefix_error("cron", parse, options.cron)
        return CronTimes(line=line, zone=_prefix_error("time_zone", find_zone, options.time_zone))
    return None


def find_zone(name: str) -> tzinfo:
    """Return the time zone. Raise ValueError for a name that this machine does not know."""
    if name == "UTC":
        return timezone.utc
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError) as error:
        raise ValueError(f"expected a time zone such as UTC or Europe/Berlin, got {shorten(name)}") from error


def _parse_step(text: str) -> timedelta:
    length = parse_seconds(text)
    if length < 1:
        raise ValueError(f"expected at least 1s, got {text!r}")
    return timedelta(seconds=length)


def _prefix_error(option: str, read: Callable[[str], T], text: str) -> T:
    try:
        return read(text)
    except ValueError as error:
        raise ValueError(f"{option}: {error}") from error


@functools.lru_cache(maxsize=512)
def _list_due_on(line: Cron, zone: tzinfo, day: date) -> Sequence[datetime]:
    """Return when the line is due on this local date, in UTC and in order."""
    if not line.fits(day):
        return ()
    moments = (
        moment
        for hour in line.hours
        for minute in line.minutes
        for moment in _find_moments(datetime(day.year, day.month, day.day, hour, minute), zone, each=line.every_hour)
    )
    return tuple(sorted(set(moments)))


def _find_moments(wall: datetime, zone: tzinfo, *, each: bool) -> Iterator[datetime]:
    """Yield when the clocks of a zone show this time.

    With `each`, yield every such moment. Else yield one moment, even for a time that the clocks skip.
    """
    first = wall.replace(tzinfo=zone).astimezone(timezone.utc)
    second = wall.replace(tzinfo=zone, fold=1).astimezone(timezone.utc)
    if first == second:
        yield first
    elif first < second:
        yield first
        if each:
            yield second
    elif not each:
        yield _find_clock_change(second, first, zone)


def _find_clock_change(before: datetime, behind: datetime, zone: tzinfo) -> datetime:
    """Return the moment between these two at which the zone's clocks change, to the second."""
    old = before.astimezone(zone).utcoffset()

    def has_changed(second: int) -> bool:
        return (before + timedelta(seconds=second)).astimezone(zone).utcoffset() != old

    seconds = range((behind - before) // timedelta(seconds=1))
    return before + timedelta(seconds=bisect.bisect_right(seconds, x=False, key=has_changed))


def describe_schedule(options: ScheduleOptions, group: str | None = None) -> str:
    """Describe when the pipeline runs, and what happens to runs that it misses."""
    overlap = {"skip": "is left out", "queue": "waits for it"}[options.on_overlap]
    missed = {"none": "are left out", "once": "become one run", "all": "all run"}[options.catch_up]
    return (
        f"`wherry schedule` runs it {describe_times(options, group)}. A run that is due before another has ended "
        f"{overlap}; runs that were due in a pause {missed}."
    )


def describe_times(options: ScheduleOptions, group: str | None = None) -> str:
    """Describe when the pipeline runs, and in which group, for example `every 5m, in the group warehouse`."""
    at = f"every {options.every}" if options.every is not None else f"at {options.cron!r} ({options.time_zone})"
    if options.after is not None:
        at = f"after each run of {options.after} that succeeded"
    at = f"{at}, each up to {options.jitter} later" if parse_seconds(options.jitter) else at
    return f"{at}, in the group {group}" if group else at


def format_due_times(options: ScheduleOptions, due: Sequence[datetime]) -> Sequence[str]:
    """Format the next times as the clocks of the schedule's zone show them."""
    shown = [moment.astimezone(find_zone(options.time_zone)).strftime("%a %Y-%m-%d %H:%M:%S %z") for moment in due]
    return [f"Next: {', '.join(shown)}"] if shown else []


def list_due_times(options: ScheduleOptions, moment: datetime, count: int) -> Sequence[datetime]:
    """Return the next `count` due times. Empty for a pipeline that waits for another."""
    timetable = make_timetable(options)
    return [] if timetable is None else [*islice(timetable.follow(moment), count)]


_SHORT: Mapping[str, str] = {
    "@hourly": "0 * * * *",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@weekly": "0 0 * * 0",
    "@monthly": "0 0 1 * *",
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
}
_MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
_WEEKDAYS = ("sun", "mon", "tue", "wed", "thu", "fri", "sat")
_MOST_DAYS = {2: 29, 4: 30, 6: 30, 9: 30, 11: 30}
_EXPECTED = 'expected a line of crontab such as "30 2 * * *" or "@daily"'


@dataclass(frozen=True, kw_only=True)
class Cron:
    """The minutes that a line of crontab names, in any time zone."""

    minutes: frozenset[int]
    hours: frozenset[int]
    days: frozenset[int]
    months: frozenset[int]
    weekdays: frozenset[int]
    """The weekdays from 0, which is Sunday."""
    either: bool
    """Whether a day matches if it is in `days` or in `weekdays`. This holds if neither field begins with `*`."""

    @property
    def every_hour(self) -> bool:
        """Whether the line names all hours of a day."""
        return len(self.hours) == 24

    def fits(self, day: date) -> bool:
        """Whether the line is due on this day."""
        if day.month not in self.months:
            return False
        by_day, by_weekday = day.day in self.days, day.isoweekday() % 7 in self.weekdays
        return (by_day or by_weekday) if self.either else (by_day and by_weekday)

    @property
    def fires(self) -> bool:
        """Whether the line is ever due. For example, February never has a 30th."""
        return self.either or any(min(self.days) <= _MOST_DAYS.get(month, 31) for month in self.months)


def parse(line: str) -> Cron:
    """Parse the line. Raise ValueError if it is invalid. The message explains how to write a line."""
    text = _SHORT.get(line.strip().lower(), line.strip())
    if text.startswith("@"):
        boot = "; Wherry cannot wait for a boot" if text.lower() == "@reboot" else ""
        raise ValueError(f"expected one of {', '.join(_SHORT)}, got {line!r}{boot}")
    fields = text.split()
    if len(fields) != 5:
        seconds = "; cron has no field for seconds" if len(fields) == 6 else ""
        raise ValueError(
            f"{_EXPECTED} (minute, hour, day of month, month, weekday), "
            f"got {format_count(len(fields), 'field', 'fields')} in {line!r}{seconds}"
        )
    minute, hour, day, month, weekday = fields
    cron = Cron(
        minutes=_parse_numbers("minute", minute, 0, 59),
        hours=_parse_numbers("hour", hour, 0, 23),
        days=_parse_numbers("day of month", day, 1, 31),
        months=_parse_numbers("month", month, 1, 12, _MONTHS),
        weekdays=frozenset(each % 7 for each in _parse_numbers("weekday", weekday, 0, 7, _WEEKDAYS)),
        either=not day.startswith("*") and not weekday.startswith("*"),
    )
    if not cron.fires:
        raise ValueError(f"it never fires: no month of {line!r} has such a day")
    return cron


def _parse_numbers(field: str, text: str, low: int, high: int, names: Sequence[str] = ()) -> frozenset[int]:
    return frozenset(number for part in text.split(",") for number in _parse_part(field, part, low, high, names))


def _parse_part(field: str, text: str, low: int, high: int, names: Sequence[str]) -> range:
    """Return the numbers of a part such as `*`, `7`, `mon-fri` or `8-18/2`."""
    match = re.fullmatch(r"(?:(\*)|(\w+)(?:-(\w+))?)(?:/(\d{1,4}))?", text, re.ASCII)
    if match is None:
        raise ValueError(f"{field}: expected *, {low}-{high} or a list of these, got {text!r}")
    star, first, last, every = match.groups()
    step = 1 if every is None else int(every)
    if step == 0:
        raise ValueError(f"{field}: expected a step of at least 1, got {text!r}")
    if star:
        return range(low, (6 if field == "weekday" else high) + 1, step)
    start = _parse_number(field, first, low, high, names)
    if last is None:
        if every is not None:
            raise ValueError(f"{field}: expected a range before a step, as in {first}-{high}/{step}, got {text!r}")
        return range(start, start + 1)
    end = _parse_number(field, last, low, high, names)
    if field == "weekday" and end == 0 and start > 0:
        end = 7
    if end < start:
        raise ValueError(f"{field}: expected a range that goes up, such as {start}-{high},{low}-{end}, got {text!r}")
    return range(start, end + 1, step)


def _parse_number(field: str, text: str, low: int, high: int, names: Sequence[str]) -> int:
    if text.lower() in names:
        return names.index(text.lower()) + low
    if not text.isdecimal() or not low <= int(text) <= high:
        named = f" or {names[0]}…{names[-1]}" if names else ""
        raise ValueError(f"{field}: expected {low}-{high}{named}, got {text!r}")
    return int(text)
