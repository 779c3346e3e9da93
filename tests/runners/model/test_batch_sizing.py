"""How large batches are if a time for a batch was set."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from origins.batch import Limits
from runners.model.batch_timing import BatchSizing

MOST = Limits(rows=1_600, bytes=None, files=16)


def grow_batches(pace: BatchSizing, rows_a_second: float, batches: int) -> list[int]:
    """Return the sizes of batches of a lane with this many rows a second. Each batch is as large as allowed."""
    sizes = []
    for _ in range(batches):
        rows = pace.limit("0", MOST).rows
        assert rows is not None
        sizes.append(rows)
        pace.note_time("0", rows / rows_a_second, full=True)
    return sizes


def test_without_a_set_time_batches_are_as_large_as_the_limits() -> None:
    """It does not matter how long they take."""
    pace = BatchSizing()
    assert grow_batches(pace, rows_a_second=1, batches=3) == [1_600, 1_600, 1_600]


def test_a_lane_begins_with_a_sixteenth_of_every_limit() -> None:
    """A missing limit stays missing."""
    assert BatchSizing(10).limit("0", MOST) == Limits(rows=100, bytes=None, files=1)


def test_batches_grow_until_they_take_the_set_time() -> None:
    """Each is at most twice as large as the one before. At 40 rows a second, 10 seconds are 400 rows."""
    assert grow_batches(BatchSizing(10), rows_a_second=40, batches=5) == [100, 200, 400, 400, 400]


def test_batches_shrink_when_they_take_too_long() -> None:
    """At two rows a second, the first batch has 100 rows and the next ones have 20."""
    assert grow_batches(BatchSizing(10), rows_a_second=2, batches=3) == [100, 20, 20]


def test_batches_never_exceed_the_limits() -> None:
    """This is also true of very fast batches. A batch that takes no time is no error."""
    assert grow_batches(BatchSizing(10), rows_a_second=1e9, batches=7)[-1] == 1_600
    pace = BatchSizing(10)
    pace.note_time("0", 0.0, full=True)
    assert pace.limit("0", MOST).rows == 200


def test_a_batch_that_was_not_full_does_not_make_the_next_one_larger() -> None:
    """A fast small batch shows nothing. A slow small batch makes the next one smaller."""
    pace = BatchSizing(10)
    pace.note_time("0", 0.1, full=False)
    assert pace.limit("0", MOST).rows == 100
    pace.note_time("0", 20, full=False)
    assert pace.limit("0", MOST).rows == 50


def test_each_lane_has_a_separate_pace() -> None:
    """A slow lane does not slow another lane down."""
    pace = BatchSizing(10)
    pace.note_time("slow", 40, full=True)
    assert (pace.limit("slow", MOST).rows, pace.limit("other", MOST).rows) == (25, 100)


@given(speeds=st.lists(st.floats(0.001, 1e6), min_size=1, max_size=60), target=st.floats(0.1, 1_000))
def test_at_any_speed_a_batch_has_at_least_one_row(speeds: list[float], target: float) -> None:
    """It never has more rows than the limits allow."""
    pace = BatchSizing(target)
    for speed in speeds:
        rows = pace.limit("0", MOST).rows
        assert rows is not None
        assert 1 <= rows <= 1_600
        pace.note_time("0", rows / speed, full=True)


@pytest.mark.parametrize("speed", [1, 7, 40, 90])
def test_a_steady_lane_settles_near_the_set_time(speed: float) -> None:
    """The time stays in the range in which the size is not changed."""
    rows = grow_batches(BatchSizing(10), rows_a_second=speed, batches=12)
    assert rows[-1] == rows[-2]
    assert 7 <= rows[-1] / speed <= 12
