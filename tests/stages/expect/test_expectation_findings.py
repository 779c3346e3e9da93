"""How the notes beside rows become the result of a batch."""

from __future__ import annotations

from typing import Any

import pytest

from stages.expect.expectation import list_failures, list_findings, parse_expectation

BETWEEN = "expect_column_values_to_be_between"


def make_rules(*options: dict[str, Any]) -> list[Any]:
    return [parse_expectation(BETWEEN, {"column": "a", "min_value": 0, **each}) for each in options]


def test_rows_are_counted_by_their_notes() -> None:
    """A row is excluded by a condition, has no value, meets the expectation, breaks it, or only causes a report."""
    notes: dict[str, int] = {"00": 5, "12": 1, "23": 10, "34": 2}
    first, second = list_findings(make_rules({}, {}), notes, [])
    assert first == {"success": False, "element_count": 13, "missing_count": 1, "unexpected_count": 2}
    assert second == {"success": False, "element_count": 13, "missing_count": 0, "unexpected_count": 12}


@pytest.mark.parametrize(
    ("mostly", "broken", "success"), [(0.9, 10, True), (0.9, 11, False), (1, 0, True), (1, 1, False), (0, 100, True)]
)
def test_mostly_is_the_share_of_the_existing_values(mostly: float, broken: int, success: bool) -> None:
    """Exactly that share is enough. Missing values do not count."""
    notes: dict[str, int] = {"1": 50, "2": 100 - broken, "3": broken}
    (found,) = list_findings(make_rules({"mostly": mostly}), notes, [])
    assert found["success"] is success


def test_an_empty_batch_fails_no_expectation_of_rows() -> None:
    """Great Expectations treats it in the same way."""
    (found,) = list_findings(make_rules({"mostly": 1}), {}, [])
    assert found == {"success": True, "element_count": 0, "missing_count": 0, "unexpected_count": 0}


def test_a_straight_batch_meets_its_expectations() -> None:
    """Only the number of its rows is known. The number of missing values is not."""
    (found,) = list_findings(make_rules({}), {"": 7}, [])
    assert found == {"success": True, "element_count": 7, "missing_count": None, "unexpected_count": 0}


def test_a_batch_fails_by_mostly_and_by_expectations_of_the_batch() -> None:
    """It does not fail by single rows, or by warnings."""
    count = parse_expectation("expect_table_row_count_to_equal", {"value": 3})
    told = parse_expectation("expect_table_row_count_to_equal", {"value": 3, "severity": "warning"})
    suite = [*make_rules({}, {"mostly": 0.5}, {"mostly": 0.5, "severity": "info"}), count, told]
    of_batch = [{"success": False, "result": {"observed_value": 4}, "exception": None}] * 2
    notes: dict[str, int] = {"334": 3, "222": 1, "111": 6}
    assert list_failures(suite, list_findings(suite, notes, of_batch)) == [
        f"{BETWEEN} of a, expected min_value 0, in 0.5 of the rows or more, found 0.25 of 4",
        "expect_table_row_count_to_equal, expected value 3, found 4",
    ]


def test_an_expectation_that_cannot_be_evaluated_fails_with_its_cause() -> None:
    """The mean of a text is an example."""
    mean = parse_expectation("expect_column_mean_to_be_between", {"column": "a", "min_value": 0})
    found = [{"success": False, "result": {}, "exception": "Expected numeric column type"}]
    assert list_failures([mean], found) == [
        "expect_column_mean_to_be_between of a, expected min_value 0, Expected numeric column type"
    ]
