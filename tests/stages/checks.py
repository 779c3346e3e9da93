"""The checks of the suite for stages, by what a stage must do so that they show something."""

from __future__ import annotations

from stages.conformance import StageConformance

CHECKS = [name for name in dir(StageConformance) if name.startswith("test_")]
KEEPS = [
    "test_both_ways_keep_the_same_rows",
    "test_every_row_is_kept_filtered_or_refused",
]
REFUSALS = [
    "test_a_straight_batch_raises_at_a_row_that_is_refused",
    "test_a_refused_row_is_kept_unchanged",
]
"""The stage refuses rows."""
NOTHING_ELSE = [
    "test_nothing_is_evaluated_on_a_refused_row",
    "test_nothing_is_evaluated_on_a_filtered_row_of_a_clean_batch",
]
"""The stage has expressions that may raise."""
