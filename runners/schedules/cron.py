"""A line of crontab, read as cron reads it: on which days, and at which minutes of them."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date

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
    """The minutes that a line names, in whatever time zone."""

    minutes: frozenset[int]
    hours: frozenset[int]
    days: frozenset[int]
    months: frozenset[int]
    weekdays: frozenset[int]
    """From 0, which is Sunday."""
    either: bool
    """Whether one of `days` and `weekdays` is enough, as it is where neither of them begins with `*`."""

    @property
    def every_hour(self) -> bool:
        """Whether all hours of a day are named."""
        return len(self.hours) == 24

    def fits(self, day: date) -> bool:
        """Whether it fires on this day."""
        if day.month not in self.months:
            return False
        by_day, by_weekday = day.day in self.days, day.isoweekday() % 7 in self.weekdays
        return (by_day or by_weekday) if self.either else (by_day and by_weekday)

    @property
    def fires(self) -> bool:
        """Whether there is any day on which it fires; there is no 30th of February."""
        return self.either or any(min(self.days) <= _MOST_DAYS.get(month, 31) for month in self.months)


def parse(line: str) -> Cron:
    """The line, read. Raises ValueError that says how to write one."""
    text = _SHORT.get(line.strip().lower(), line.strip())
    if text.startswith("@"):
        boot = "; there is no boot to wait for here" if text.lower() == "@reboot" else ""
        raise ValueError(f"expected one of {', '.join(_SHORT)}, got {line!r}{boot}")
    fields = text.split()
    if len(fields) != 5:
        seconds = "; there is no field for seconds" if len(fields) == 6 else ""
        raise ValueError(
            f"{_EXPECTED} (minute, hour, day of month, month, weekday), got {_count(len(fields))} in {line!r}{seconds}"
        )
    minute, hour, day, month, weekday = fields
    cron = Cron(
        minutes=_numbers("minute", minute, 0, 59),
        hours=_numbers("hour", hour, 0, 23),
        days=_numbers("day of month", day, 1, 31),
        months=_numbers("month", month, 1, 12, _MONTHS),
        weekdays=frozenset(each % 7 for each in _numbers("weekday", weekday, 0, 7, _WEEKDAYS)),
        either=not day.startswith("*") and not weekday.startswith("*"),
    )
    if not cron.fires:
        raise ValueError(f"it never fires: no month of {line!r} has such a day")
    return cron


def _numbers(field: str, text: str, low: int, high: int, names: Sequence[str] = ()) -> frozenset[int]:
    return frozenset(number for part in text.split(",") for number in _part(field, part, low, high, names))


def _part(field: str, text: str, low: int, high: int, names: Sequence[str]) -> range:
    """`*`, `7`, `mon-fri` or `8-18/2`, as numbers."""
    found = re.fullmatch(r"(?:(\*)|(\w+)(?:-(\w+))?)(?:/(\d{1,4}))?", text, re.ASCII)
    if found is None:
        raise ValueError(f"{field}: expected *, {low}-{high} or a list of such, got {text!r}")
    star, first, last, every = found.groups()
    step = 1 if every is None else int(every)
    if step == 0:
        raise ValueError(f"{field}: expected a step of at least 1, got {text!r}")
    if star:
        return range(low, (6 if field == "weekday" else high) + 1, step)
    start = _number(field, first, low, high, names)
    if last is None:
        if every is not None:
            raise ValueError(f"{field}: expected a range before a step, as in {first}-{high}/{step}, got {text!r}")
        return range(start, start + 1)
    end = _number(field, last, low, high, names)
    if field == "weekday" and end == 0 and start > 0:
        end = 7
    if end < start:
        raise ValueError(f"{field}: expected a range that goes up, such as {start}-{high},{low}-{end}, got {text!r}")
    return range(start, end + 1, step)


def _number(field: str, text: str, low: int, high: int, names: Sequence[str]) -> int:
    if text.lower() in names:
        return names.index(text.lower()) + low
    if not text.isdecimal() or not low <= int(text) <= high:
        named = f" or {names[0]}…{names[-1]}" if names else ""
        raise ValueError(f"{field}: expected {low}-{high}{named}, got {text!r}")
    return int(text)


def _count(fields: int) -> str:
    return "1 field" if fields == 1 else f"{fields} fields"
