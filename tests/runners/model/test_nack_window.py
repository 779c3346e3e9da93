"""The window over the last rows of a lane."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from destinations.dlq import Dlq
from origins.codec import decode, encode
from runners.model.nack_window import NackWindow


@pytest.mark.promise("X2", "DQ-06")
def test_by_default_the_first_refused_row_trips_the_window() -> None:
    """The default is a window of 1 row and a threshold of 1."""
    _, tripped = NackWindow().advance(100, [42], Dlq())
    assert tripped == 42


def test_a_window_of_zero_never_trips() -> None:
    """With `window: 0` every row of a batch may be refused."""
    window, tripped = NackWindow().advance(5, [1, 2, 3, 4, 5], Dlq(window=0))
    assert (window, tripped) == (NackWindow(rows=5), None)


@pytest.mark.promise("DQ-07")
def test_refused_rows_on_both_sides_of_a_batch_border_count_together() -> None:
    """29 refused rows at the end of one batch and 1 at the start of the next trip a window of 30 at 30."""
    dlq = Dlq(window=30, threshold=30)
    window, before = NackWindow().advance(100, range(72, 101), dlq)
    _, after = window.advance(100, [1], dlq)
    assert (before, after) == (None, 1)


@pytest.mark.promise("DQ-08")
def test_refused_rows_that_are_spread_evenly_do_not_trip_the_window() -> None:
    """40 refused rows, spread evenly over 10,000 rows, do not trip a window of 100 at 30."""
    window, tripped = NackWindow().advance(10_000, range(250, 10_001, 250), Dlq(window=100, threshold=30))
    assert tripped is None
    assert window.rows == 10_000


def test_the_ledger_keeps_the_window() -> None:
    """The JSON in the ledger gives the same window."""
    window = NackWindow(rows=7, nacks=(3, 7))
    assert decode(NackWindow, encode(window)) == window


def test_a_threshold_that_can_never_be_reached_is_refused() -> None:
    """A window that is smaller than its threshold would never stop a run."""
    with pytest.raises(ValueError, match="never fit into a window of 10 rows"):
        Dlq(window=10, threshold=11)


@pytest.mark.promise("X2")
@given(
    bad=st.lists(st.booleans(), min_size=1, max_size=80),
    cuts=st.lists(st.integers(1, 79), max_size=6),
    window=st.integers(1, 20),
    threshold=st.integers(1, 20),
)
def test_the_row_that_trips_does_not_depend_on_the_batch_size(
    bad: list[bool], cuts: list[int], window: int, threshold: int
) -> None:
    """For every division into batches it is the first row that ends `threshold` refused rows in `window`."""
    threshold = min(window, threshold)
    expected = next(
        (row for row in range(1, len(bad) + 1) if bad[row - 1] and sum(bad[max(0, row - window) : row]) >= threshold),
        None,
    )
    edges = [0, *sorted({cut for cut in cuts if cut < len(bad)}), len(bad)]
    state, found = NackWindow(), None
    for start, end in pairwise(edges):
        nacks = [row - start for row in range(start + 1, end + 1) if bad[row - 1]]
        state, tripped = state.advance(end - start, nacks, Dlq(window=window, threshold=threshold))
        found = found if found is not None or tripped is None else start + tripped
    assert found == expected
