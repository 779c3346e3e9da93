"""The outcomes of rows that were written together."""

from __future__ import annotations

from collections import Counter

from runners.ways.row_outcomes import RowOutcomes


def test_groups_give_the_outcomes_of_their_rows() -> None:
    """The rows of the store are grouped by their state and the columns of filters."""
    groups = [
        {"part": "a", "block": 0, "state": 0, "f0": 0, "rows": 5},
        {"part": "b", "block": 0, "state": 0, "f0": 2, "rows": 2},
        {"part": "b", "block": 0, "state": 1, "f0": 0, "rows": 3},
        {"part": "b", "block": 0, "state": -4, "f0": 0, "rows": 1},
    ]
    verdicts = RowOutcomes.of(groups)
    assert verdicts == RowOutcomes(states=Counter({0: 7, 1: 3, -4: 1}), filters={"f0": Counter({2: 2})})
    assert (verdicts.rows, verdicts.refused) == (11, 1)
