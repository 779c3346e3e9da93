"""When a schedule is due, across clock changes, years and pauses. A clock that is read each minute is the reference."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from itertools import islice
from zoneinfo import ZoneInfo

import pytest

from runners.model.spec import ScheduleOptions
from runners.model.timetable import Timetable, make_timetable

MINUTE = timedelta(minutes=1)


def parse_utc(text: str) -> datetime:
    return datetime.fromisoformat(text).replace(tzinfo=timezone.utc)


def make_times(**options: str) -> Timetable:
    found = make_timetable(ScheduleOptions(**options))  # type: ignore[arg-type]
    assert found is not None
    return found


@dataclass(frozen=True)
class Field:
    """A field of a cron line, with the numbers that it matches."""

    text: str
    numbers: frozenset[int]

    @staticmethod
    def roll(dice: random.Random, low: int, high: int, *, star: float) -> Field:
        shape = dice.random()
        if shape < star:
            return Field("*", frozenset(range(low, high + 1)))
        if shape < star + 0.15:
            step = dice.randint(2, max(2, (high - low) // 2))
            return Field(f"*/{step}", frozenset(range(low, high + 1, step)))
        if shape < star + 0.3:
            first = dice.randint(low, high)
            last = dice.randint(first, high)
            return Field(f"{first}-{last}", frozenset(range(first, last + 1)))
        chosen = dice.sample(range(low, high + 1), dice.randint(1, 3))
        return Field(",".join(map(str, chosen)), frozenset(chosen))


@dataclass(frozen=True)
class Line:
    """A cron line, and the minutes and days that it matches."""

    minute: Field
    hour: Field
    day: Field
    weekday: Field

    @staticmethod
    def roll(dice: random.Random) -> Line:
        return Line(
            minute=Field.roll(dice, 0, 59, star=0.2),
            hour=Field.roll(dice, 0, 23, star=0.3),
            day=Field.roll(dice, 1, 31, star=0.6),
            weekday=Field.roll(dice, 0, 6, star=0.6),
        )

    @property
    def text(self) -> str:
        return f"{self.minute.text} {self.hour.text} {self.day.text} * {self.weekday.text}"

    def names(self, wall: datetime) -> bool:
        by_day = wall.day in self.day.numbers
        by_weekday = wall.isoweekday() % 7 in self.weekday.numbers
        restricted = "*" not in self.day.text[0] + self.weekday.text[0]
        on = (by_day or by_weekday) if restricted else (by_day and by_weekday)
        return on and wall.hour in self.hour.numbers and wall.minute in self.minute.numbers


def watch_clock(zone: str, start: datetime, minutes: int) -> Iterator[tuple[datetime, datetime, list[datetime]]]:
    """Yield for each minute after `start` what a clock of the zone shows, and which times are new or were skipped."""
    latest = (start - timedelta(days=2)).astimezone(ZoneInfo(zone)).replace(tzinfo=None)
    for number in range(-2 * 1440 + 1, minutes):
        moment = start + number * MINUTE
        wall = moment.astimezone(ZoneInfo(zone)).replace(tzinfo=None)
        new = [latest + step * MINUTE for step in range(1, (wall - latest) // MINUTE + 1)]
        latest = max(latest, wall)
        if number > 0:
            yield moment, wall, new


CHANGES = [
    ("UTC", "2026-02-27T00:00"),
    ("Asia/Kolkata", "2026-12-30T00:00"),
    ("Europe/Berlin", "2026-03-28T00:00"),
    ("Europe/Berlin", "2026-10-24T00:00"),
    ("America/New_York", "2026-03-07T05:00"),
    ("America/New_York", "2026-10-31T05:00"),
    ("America/Havana", "2026-03-07T05:00"),  # from midnight to one
    ("America/Havana", "2026-10-31T05:00"),
    ("America/St_Johns", "2010-11-06T00:00"),  # at one minute past midnight back into yesterday
    ("America/St_Johns", "2010-03-13T00:00"),
    ("Australia/Lord_Howe", "2026-04-04T00:00"),  # by half an hour
    ("Australia/Lord_Howe", "2026-10-03T00:00"),
    ("Pacific/Apia", "2011-12-29T00:00"),  # by a whole day
]


@pytest.mark.parametrize(("zone", "start"), CHANGES)
def test_a_schedule_is_due_when_the_clock_shows_its_time(zone: str, start: str) -> None:
    """A line fires for each time that the clock shows for the first time or skips.

    A line of every hour fires for each time that the clock shows. Each zone has 50 lines over the two days around a
    clock change.
    """
    dice, began = random.Random(f"{zone} {start}"), parse_utc(start)
    minutes = list(watch_clock(zone, began, 2880))
    for line in [Line.roll(dice) for _ in range(50)]:
        every_hour = len(line.hour.numbers) == 24
        due = [
            moment
            for moment, wall, new in minutes
            if (line.names(wall) if every_hour else any(line.names(each) for each in new))
        ]
        found = make_times(cron=line.text, time_zone=zone).list_between(
            began, began + timedelta(minutes=2879), most=10_000
        )
        assert list(found) == due, line.text


@pytest.mark.parametrize(("zone", "start"), CHANGES)
def test_the_next_time_does_not_depend_on_the_moment_of_the_question(zone: str, start: str) -> None:
    """The next time is the first of all later times. `list_between` and `follow` agree."""
    dice = random.Random(f"{start} {zone}")
    for _ in range(20):
        timetable, began = make_times(cron=Line.roll(dice).text, time_zone=zone), parse_utc(start)
        due = timetable.list_between(began, began + timedelta(days=3), most=10_000)
        for _ in range(20):
            asked = began + timedelta(seconds=dice.randint(0, 2 * 86_400))
            later = [moment for moment in due if moment > asked]
            assert [*islice(timetable.follow(asked), 3)][: len(later)] == later[:3]
            for most in (1, 5):
                earlier = [moment for moment in due if moment <= asked]
                assert timetable.list_between(began, asked, most) == earlier[-most:]


def test_a_leap_day_is_found_across_a_century_without_one() -> None:
    """After 2096 comes 2104."""
    assert make_times(cron="0 0 29 2 *").find_next(parse_utc("2096-03-01T00:00")) == parse_utc("2104-02-29T00:00")


def test_every_counts_from_1970_and_not_from_the_moment_of_the_question() -> None:
    """A restart does not change the times, and two schedulers agree."""
    due = make_times(every="7m")
    first = due.find_next(parse_utc("2026-01-01T00:00"))
    assert first is not None
    assert (first - parse_utc("1970-01-01T00:00")) % timedelta(minutes=7) == timedelta()
    assert due.find_next(first - timedelta(seconds=1)) == first
    assert due.find_next(first) == first + timedelta(minutes=7)


def test_a_year_of_seconds_is_listed_from_the_end() -> None:
    """The last seconds are found without counting the others."""
    due = make_times(every="1s").list_between(parse_utc("2026-01-01T00:00"), parse_utc("2027-01-01T00:00"), most=1_000)
    assert (len(due), due[-1]) == (1_000, parse_utc("2027-01-01T00:00"))
    assert due[0] == parse_utc("2027-01-01T00:00") - timedelta(seconds=999)
    few = make_times(every="1h").list_between(parse_utc("2026-01-01T00:30"), parse_utc("2026-01-01T03:00"), most=1_000)
    assert list(few) == [parse_utc(f"2026-01-01T0{hour}:00") for hour in (1, 2, 3)]


def test_a_schedule_after_another_pipeline_has_no_times() -> None:
    """It is due when the other pipeline has ended."""
    assert make_timetable(ScheduleOptions(after="orders")) is None


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"every": "0s"}, "every: expected at least 1s, got '0s'"),
        ({"every": "soon"}, "every: expected a duration"),
        ({"cron": "0 0 30 2 *"}, "cron: it never fires"),
        ({"cron": "@daily", "time_zone": "Mars/Base"}, "time_zone: expected a time zone such as UTC"),
        ({"cron": "@daily", "time_zone": "../../etc/passwd"}, "time_zone: expected a time zone such as UTC"),
    ],
)
def test_a_schedule_without_a_valid_time_is_refused_with_the_name_of_its_option(
    options: dict[str, str], said: str
) -> None:
    """The error says what was expected."""
    with pytest.raises(ValueError) as raised:  # noqa: PT011  (the test checks the message)
        make_times(**options)
    assert said in str(raised.value)
