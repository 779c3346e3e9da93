"""Rows that make a call raise are found by bisection."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stages.bisection import AttemptRaised, bisect_rows


class Counted:
    """Raises for a piece with a bad row, and counts the calls."""

    def __init__(self, bad: set[int]) -> None:
        self.bad = bad
        self.tries = 0
        self.well: list[int] = []

    def __call__(self, first: int, end: int) -> range:
        self.tries += 1
        found = sorted(self.bad & {*range(first, end)})
        if found:
            raise AttemptRaised(f"row {found[0]}", "BAD")
        self.well += range(first, end)
        return range(first, end)


@pytest.mark.promise("HP-15")
@given(rows=st.integers(0, 300), bad=st.sets(st.integers(0, 299), max_size=12))
def test_the_bad_rows_are_isolated_and_other_rows_succeed_once(rows: int, bad: set[int]) -> None:
    """For k bad rows among n this takes at most 1 + 2·k·⌈log2 n⌉ attempts, in order."""
    bad = {row for row in bad if row < rows}
    attempt = Counted(bad)
    pieces = list(bisect_rows(rows, attempt))
    assert [row for first, end, _ in pieces for row in range(first, end)] == list(range(rows))
    assert {first for first, _, found in pieces if isinstance(found, AttemptRaised)} == bad
    assert attempt.well == [row for row in range(rows) if row not in bad]
    assert attempt.tries <= 1 + 2 * len(bad) * math.ceil(math.log2(max(rows, 2)))


def test_an_isolated_row_has_a_separate_cause() -> None:
    """The cause is not that of another row in the piece that was tried first."""
    found = {first: str(each) for first, _, each in bisect_rows(8, Counted({2, 3})) if isinstance(each, AttemptRaised)}
    assert found == {2: "row 2", 3: "row 3"}


def test_rows_that_raise_only_together_succeed_apart() -> None:
    """No row is refused."""

    def attempt(first: int, end: int) -> int:
        if end - first > 2:
            raise AttemptRaised("too many", "TOO_MANY")
        return end - first

    assert [found for _, _, found in bisect_rows(8, attempt)] == [2, 2, 2, 2]


def test_an_error_that_no_row_causes_is_not_bisected() -> None:
    """It is raised at the first attempt."""

    def attempt(first: int, end: int) -> int:
        raise ConnectionError("the server is away")

    with pytest.raises(ConnectionError):
        list(bisect_rows(8, attempt))
