"""The points at which a process may die."""

from __future__ import annotations

import pytest

from origins.crash_points import POINTS, reach, reach_recording, reach_within, watch_points


@pytest.fixture
def passed() -> list[tuple[str, str, object]]:
    return []


def test_nothing_happens_while_nobody_watches() -> None:
    """The rows are those that were given."""
    rows = object()
    reach("before-write", "orders")
    reach_recording("before", ["plan"])
    assert reach_within("in-write", rows, "orders") is rows


def test_who_watches_is_called_at_each_point_and_gives_the_rows_back(passed: list[tuple[str, str, object]]) -> None:
    """With the point, whom it is about, and the rows; not any more once it is over."""

    def watch(point: str, of: str, rows: object) -> object:
        passed.append((point, of, rows))
        return "others"

    with watch_points(watch):
        reach("before-write", "orders")
        assert reach_within("in-write", "rows", "orders") == "others"
    reach("after-write", "orders")
    assert passed == [("before-write", "orders", None), ("in-write", "orders", "rows")]


def test_an_entry_that_decides_something_has_a_point_before_and_after(passed: list[tuple[str, str, object]]) -> None:
    """A lease that is renewed is none."""
    with watch_points(lambda *said: passed.append(said)):
        reach_recording("before", ["settle", "renew", "plan"])
        reach_recording("after", ["prepared"])
    points = [point for point, _, _ in passed]
    assert points == ["before-settle", "before-plan", "after-prepared"]
    assert set(points) <= POINTS.keys()
