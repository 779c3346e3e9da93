"""Which errors a row may be to blame for."""

from __future__ import annotations

import pytest

from runners.blame import of_a_row, told
from runners.errors import CarryFailed

DIVISION = "[DIVIDE_BY_ZERO] Division by zero. Use `try_divide` to tolerate it. SQLSTATE: 22012\n== SQL ==\n1/x"
OVERFLOW = (
    "Job aborted due to stage failure: Task 0 failed\n\tat org.apache.spark.Some\n"
    "Caused by: org.apache.spark.SparkArithmeticException: [CAST_OVERFLOW] The value 9L is too large. SQLSTATE: 22003\n"
    "\tat java.base/java.lang.Thread.run(Thread.java:840)"
)
CONSTRAINT = (
    "An error occurred while calling o50695.save.\n"
    ": org.apache.spark.sql.delta.schema.DeltaInvariantViolationException: [DELTA_VIOLATE_CONSTRAINT_WITH_VALUES] "
    "CHECK constraint lucky (id <> 3) violated by row with values:\n - id : 3"
)


@pytest.mark.parametrize(
    ("said", "blamed"),
    [
        (DIVISION, True),
        (OVERFLOW, True),
        (CONSTRAINT, True),
        ("[DELTA_NOT_NULL_CONSTRAINT_VIOLATED] NOT NULL constraint violated for column: id. SQLSTATE: 23502", True),
        ("[USER_RAISED_EXCEPTION] WHERRY_REFUSED SQLSTATE: P0001", False),
        ("[FAILED_READ_FILE.NO_HINT] Error while reading file x. SQLSTATE: KD001", False),
        ("[DELTA_CONCURRENT_APPEND] Files were added. SQLSTATE: 2D521", False),
        ("java.net.ConnectException: Connection refused", False),
        ("ZeroDivisionError: division by zero", False),
    ],
)
def test_a_row_is_blamed_for_values_and_constraints_alone(said: str, blamed: bool) -> None:
    """A server, a file, somebody else's commit and a function's own error are no row's fault."""
    assert of_a_row(RuntimeError(said)) is blamed


def test_the_cause_counts_wherever_it_stands() -> None:
    """Also below the error that a person is told."""
    error = CarryFailed("batch 7 of lane 0")
    error.__cause__ = RuntimeError(DIVISION)
    assert of_a_row(error)


@pytest.mark.parametrize(
    ("said", "code", "words"),
    [
        (DIVISION, "DIVIDE_BY_ZERO", "Division by zero. Use `try_divide` to tolerate it."),
        (OVERFLOW, "CAST_OVERFLOW", "The value 9L is too large."),
        ("something else. SQLSTATE: 22000", "EXPRESSION", "something else."),
    ],
)
def test_a_row_is_refused_in_the_causes_own_words(said: str, code: str, words: str) -> None:
    """Under Spark's name for it."""
    assert told(RuntimeError(said)) == (code, words)
