"""Which errors pass by themselves."""

from __future__ import annotations

import pytest

from destinations.destination import DestinationError
from runners.causes import passing
from runners.errors import CarryFailed


class SparkSays(Exception):
    """An error in Spark's words."""


def wrapped(cause: Exception) -> Exception:
    """As a runner hands it over."""
    failed = CarryFailed("batch 3 of lane 0: something")
    failed.__cause__ = cause
    return failed


@pytest.mark.parametrize(
    ("error", "why"),
    [
        (SparkSays("[DELTA_CONCURRENT_APPEND.WITHOUT_HINT] Transaction conflict"), "somebody else's commit"),
        (SparkSays("[DELTA_METADATA_CHANGED] The metadata of the Delta table has been changed"), "somebody else's"),
        (SparkSays("Lost task 0.0: ExecutorLostFailure (executor 1 exited)"), "an executor"),
        (SparkSays("[SPARK_JOB_CANCELLED] Job 12 cancelled part of cancelled job group"), "somebody cancelled"),
        (SparkSays("<_InactiveRpcError: status = StatusCode.UNAVAILABLE>"), "a server"),
        (TimeoutError("timed out"), "a server"),
        (ConnectionResetError(104, "Connection reset by peer"), "a server"),
    ],
)
def test_what_passes_by_itself_is_told_from_the_error_or_what_it_was_raised_from(error: Exception, why: str) -> None:
    """Also behind the words that a person reads."""
    assert str(passing(error)).startswith(why)
    assert str(passing(wrapped(error))).startswith(why)


@pytest.mark.parametrize(
    "error",
    [
        ValueError("no"),
        PermissionError(13, "Permission denied"),
        OSError(28, "No space left on device"),
        SparkSays("[CAST_INVALID_INPUT] The value 'sieben' cannot be cast"),
        SparkSays("[DELTA_SCHEMA_CHANGED]"),
        DestinationError("The table is gone. TimeoutError"),
    ],
)
def test_what_wants_a_person_does_not(error: Exception) -> None:
    """A full disk, a right that is missing, rows that do not fit, and all that Wherry says itself."""
    assert passing(error) is None
    assert passing(wrapped(error)) is None


def test_a_definition_may_name_more() -> None:
    """By words in the error, or by the code of one of ours."""
    assert passing(wrapped(SparkSays("ORA-60: deadlock detected")), ["ORA-60"]) == "retry.also names it: ORA-60"
    assert passing(DestinationError("The table is gone."), ["DESTINATION"]) is not None
    assert passing(ValueError("ORA-1"), ["ORA-60"]) is None


def test_a_batchs_own_words_decide_nothing() -> None:
    """What a file is called is no reason to try again."""
    failed = CarryFailed("batch 3 of lane 0 (TimeoutError.json): no")
    failed.__cause__ = ValueError("no")
    assert passing(failed) is None
