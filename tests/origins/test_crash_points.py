"""The points at which a process may die."""

from __future__ import annotations

import pytest

from origins.crash_points import POINTS, reached, recording, watched, within


@pytest.fixture
def passed() -> list[tuple[str, str, object]]:
    return []


def test_nothing_happens_while_nobody_watches() -> None:
    """The rows are those that were given."""
    rows = object()
    reached("before-write", "orders")
    recording("before", ["plan"])
    assert within("in-write", rows, "orders") is rows


def test_who_watches_is_called_at_each_point_and_gives_the_rows_back(passed: list[tuple[str, str, object]]) -> None:
    """With the point, whom it is about, and the rows; not any more once it is over."""

    def watch(point: str, of: str, rows: object) -> object:
        passed.append((point, of, rows))
        return "others"

    with watched(watch):
        reached("before-write", "orders")
        assert within("in-write", "rows", "orders") == "others"
    reached("after-write", "orders")
    assert passed == [("before-write", "orders", None), ("in-write", "orders", "rows")]


def test_an_entry_that_decides_something_has_a_point_before_and_after(passed: list[tuple[str, str, object]]) -> None:
    """A lease that is renewed is none."""
    with watched(lambda *said: passed.append(said)):
        recording("before", ["settle", "renew", "plan"])
        recording("after", ["prepared"])
    points = [point for point, _, _ in passed]
    assert points == ["before-settle", "before-plan", "after-prepared"]
    assert set(points) <= POINTS.keys()
