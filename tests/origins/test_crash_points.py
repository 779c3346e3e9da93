"""The points at which a test can make a process die."""

from __future__ import annotations

import pytest

from origins.crash_points import POINTS, reach, reach_recording, reach_within, watch_points


@pytest.fixture
def passed() -> list[tuple[str, str, object]]:
    return []


def test_without_a_watcher_a_point_has_no_effect() -> None:
    """The given rows are returned."""
    rows = object()
    reach("before-write", "orders")
    reach_recording("before", ["plan"])
    assert reach_within("in-write", rows, "orders") is rows


def test_a_watcher_is_called_at_each_point_and_returns_the_rows(passed: list[tuple[str, str, object]]) -> None:
    """It gets the point, its subject, and the rows. It is not called after the block."""

    def watch(point: str, of: str, rows: object) -> object:
        passed.append((point, of, rows))
        return "others"

    with watch_points(watch):
        reach("before-write", "orders")
        assert reach_within("in-write", "rows", "orders") == "others"
    reach("after-write", "orders")
    assert passed == [("before-write", "orders", None), ("in-write", "orders", "rows")]


def test_an_entry_that_decides_has_a_point_before_and_after(passed: list[tuple[str, str, object]]) -> None:
    """The renewal of a lease has none."""
    with watch_points(lambda *said: passed.append(said)):
        reach_recording("before", ["settle", "renew", "plan"])
        reach_recording("after", ["prepared"])
    points = [point for point, _, _ in passed]
    assert points == ["before-settle", "before-plan", "after-prepared"]
    assert set(points) <= POINTS.keys()
