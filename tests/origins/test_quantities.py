"""Durations and sizes."""

from __future__ import annotations

import contextlib
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from origins.quantities import parse_seconds, parse_size


@pytest.mark.parametrize(
    ("text", "expected"),
    [("0s", 0), ("500ms", 0.5), ("10s", 10), ("5m", 300), ("1h30m", 5_400), ("1h 30m", 5_400), ("2w", 1_209_600)],
)
def test_a_duration_is_numbers_with_units(text: str, expected: float) -> None:
    """Units are ms, s, m, h, d and w, one after another."""
    assert parse_seconds(text) == expected


@pytest.mark.parametrize(
    "text", ["", " ", "10", "s", "ten seconds", "-1s", "1h-30m", "1.s", "1e3s", "10S", "1M", "1y", "10s10s", "٣s"]
)
def test_an_invalid_duration_is_answered_with_examples(text: str) -> None:
    """Wherry guesses no unit, since `10` could have any."""
    with pytest.raises(ValueError, match=r"expected (a duration such as 500ms|each unit once)"):
        parse_seconds(text)


def test_a_duration_has_a_maximum() -> None:
    """A value that no clock can hold is refused when it is parsed."""
    with pytest.raises(ValueError, match="at most a thousand years"):
        parse_seconds("999999999d")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("0B", 0),
        ("10 kB", 10_000),
        ("1KiB", 1_024),
        ("256MiB", 268_435_456),
        ("1.5GiB", 1_610_612_736),
        ("2gb", 2 * 10**9),
    ],
)
def test_a_size_is_a_number_with_a_unit(text: str, expected: int) -> None:
    """kB counts in thousands and KiB in 1024s; the case of letters does not matter."""
    assert parse_size(text) == expected


@pytest.mark.parametrize("text", ["", "10", "MiB", "-1MB", "10 MB 3", "10Mb/s", "1e3B", "10 parsecs", "٣MB"])
def test_an_invalid_size_is_answered_with_examples(text: str) -> None:
    """Wherry guesses no unit."""
    with pytest.raises(ValueError, match="expected a size such as 500kB, 64MiB or 1GiB"):
        parse_size(text)


def test_a_size_has_a_maximum() -> None:
    """A value that no disk can hold is refused when it is parsed."""
    with pytest.raises(ValueError, match="at most 1048576TiB"):
        parse_size("999999999TiB")


@pytest.mark.parametrize("parse", [parse_seconds, parse_size])
@given(text=st.text(max_size=20))
def test_any_text_is_a_quantity_or_a_value_error(parse: Callable[[str], float], text: str) -> None:
    """Each text gives a number or an error message."""
    with contextlib.suppress(ValueError):
        assert parse(text) >= 0
