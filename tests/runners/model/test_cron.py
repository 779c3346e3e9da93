"""A cron line means the same as in cron."""

from __future__ import annotations

from datetime import date, timedelta

import pytest

from runners.model.timetable import parse

MONDAY = date(2026, 6, 1)


@pytest.mark.parametrize(
    ("field", "numbers"),
    [
        ("*", range(60)),
        ("7", [7]),
        ("*/20", [0, 20, 40]),
        ("*/7", [0, 7, 14, 21, 28, 35, 42, 49, 56]),
        ("10-13", [10, 11, 12, 13]),
        ("10-20/5", [10, 15, 20]),
        ("5,1,3-4,1", [1, 3, 4, 5]),
        ("00,059", [0, 59]),
    ],
)
def test_a_field_is_a_star_a_number_a_range_with_a_step_or_a_list(field: str, numbers: list[int]) -> None:
    """A step counts from the beginning of its range."""
    assert parse(f"{field} * * * *").minutes == frozenset(numbers)


@pytest.mark.parametrize(
    ("field", "names"),
    [
        ("1", ["Mon"]),
        ("0", ["Sun"]),
        ("7", ["Sun"]),
        ("1-5", ["Mon", "Tue", "Wed", "Thu", "Fri"]),
        ("5-7", ["Fri", "Sat", "Sun"]),
        ("MON-fri", ["Mon", "Tue", "Wed", "Thu", "Fri"]),
        ("fri-sun", ["Fri", "Sat", "Sun"]),
        ("sun-tue", ["Mon", "Sun", "Tue"]),
        ("sun,wed", ["Sun", "Wed"]),
        ("*/2", ["Sat", "Sun", "Thu", "Tue"]),
    ],
)
def test_sunday_is_0_and_7(field: str, names: list[str]) -> None:
    """Monday is 1, and names are read in any case."""
    line = parse(f"0 6 * * {field}")
    week = [MONDAY + timedelta(days=number) for number in range(7)]
    assert sorted(day.strftime("%a") for day in week if line.fits(day)) == sorted(names)


def test_months_may_have_names() -> None:
    """The names may be in any case, in lists and in ranges."""
    assert parse("0 0 1 JAN,mar-may *").months == {1, 3, 4, 5}


@pytest.mark.parametrize(
    ("line", "days"),
    [
        ("0 0 13 * 5", [5, 12, 13, 19, 26]),  # one of the two is enough
        ("0 0 13 * *", [13]),
        ("0 0 * * 5", [5, 12, 19, 26]),
        ("0 0 */2 * 5", [5, 19]),  # a field that begins with a star does not restrict alone: both must match
        ("0 0 13 * */5", []),
        ("0 0 12 * */5", [12]),
    ],
)
def test_a_matching_day_of_the_month_or_weekday_is_enough(line: str, days: list[int]) -> None:
    """If one of the two begins with a star, both must match. The 5th of June 2026 is a Friday."""
    june = [date(2026, 6, number) for number in range(1, 31)]
    assert [day.day for day in june if parse(line).fits(day)] == days


@pytest.mark.parametrize(
    ("short", "line"),
    [
        ("@hourly", "0 * * * *"),
        ("@daily", "0 0 * * *"),
        ("@midnight", "0 0 * * *"),
        ("@weekly", "0 0 * * 0"),
        ("@monthly", "0 0 1 * *"),
        ("@yearly", "0 0 1 1 *"),
        ("@Annually", "0 0 1 1 *"),
    ],
)
def test_common_schedules_have_names(short: str, line: str) -> None:
    """Each name stands for a cron line."""
    assert parse(short) == parse(line)


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("0 0 30 2 *", "it never fires: no month of '0 0 30 2 *' has such a day"),
        ("0 0 31 4,6,9,11 *", "it never fires"),
        ("@reboot", "Wherry cannot wait for a boot"),
        ("@dayly", "expected one of @hourly, @daily"),
        ("* * * *", "got 4 fields in '* * * *'"),
        ("", "got 0 fields in ''"),
        ("0 * * * * *", "got 6 fields in '0 * * * * *'; cron has no field for seconds"),
        ("60 * * * *", "minute: expected 0-59, got '60'"),
        ("* 24 * * *", "hour: expected 0-23, got '24'"),
        ("* * 0 * *", "day of month: expected 1-31, got '0'"),
        ("* * * 13 *", "month: expected 1-12 or jan…dec, got '13'"),
        ("* * * * 8", "weekday: expected 0-7 or sun…sat, got '8'"),
        ("* * * * funday", "weekday: expected 0-7 or sun…sat, got 'funday'"),
        ("*/0 * * * *", "minute: expected a step of at least 1, got '*/0'"),
        ("5/15 * * * *", "minute: expected a range before a step, as in 5-59/15, got '5/15'"),
        ("* 22-2 * * *", "hour: expected a range that goes up, such as 22-23,0-2, got '22-2'"),
        ("0 0 L * *", "day of month: expected 1-31, got 'L'"),
        ("0 0 ? * 1", "day of month: expected *, 1-31 or a list of these, got '?'"),
        ("1,,2 * * * *", "minute: expected *, 0-59 or a list of these, got ''"),
        ("-1 * * * *", "minute: expected *, 0-59 or a list of these, got '-1'"),
        ("¹ * * * *", "minute: expected"),
    ],
)
def test_an_invalid_line_is_refused_with_a_reason(line: str, said: str) -> None:
    """The error names the field, what it accepts, and what was given."""
    with pytest.raises(ValueError) as raised:  # noqa: PT011  (the test checks the message)
        parse(line)
    assert said in str(raised.value)


def test_a_line_with_a_weekday_fires_even_if_its_day_of_the_month_does_not_exist() -> None:
    """February has no 30th, but it has Mondays."""
    assert parse("0 0 30 2 1").fits(date(2026, 2, 2))
