"""Which errors pass by themselves."""

from __future__ import annotations

from typing import Any

import pytest
from deltalake.exceptions import CommitFailedError

from destinations.deadline import Late
from destinations.delta_append import MetadataChanged
from destinations.destination import DestinationError
from runners.causes import forgotten, is_cancelled, passing, unanswered
from runners.errors import CarryFailed, WindowTripped
from tests.runners.test_flight import BATCH


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
        (
            SparkSays(
                "Job aborted: Lost task 0.3 in stage 1.0 (TID 4) (10.0.0.1 executor 1): ExecutorLostFailure (exited)"
            ),
            "an executor",
        ),
        (
            SparkSays("[DELTA_SCHEMA_CHANGE_SINCE_ANALYSIS] The schema of your Delta table has changed"),
            "somebody else's commit",
        ),
        (SparkSays("[DELTA_PROTOCOL_CHANGED] The protocol version of the Delta table has been changed"), "somebody"),
        (
            SparkSays(": org.apache.spark.SparkException: [FAILED_READ_FILE.FILE_NOT_EXIST] Encountered error"),
            "a file is gone",
        ),
        (SparkSays("[SPARK_JOB_CANCELLED] Job 12 cancelled part of cancelled job group"), "somebody cancelled"),
        (
            SparkSays("<_Rendezvous of RPC that terminated with:\n\tstatus = StatusCode.UNAVAILABLE\n\tdetails = no>"),
            "a server",
        ),
        (SparkSays("[INVALID_HANDLE.SESSION_CHANGED] The existing Spark server driver has restarted."), "a server"),
        (SparkSays("[RESPONSE_ALREADY_RECEIVED] INVALID_HANDLE.SESSION_NOT_FOUND on the server"), "a server"),
        (SparkSays("[NO_ACTIVE_SESSION] No active Spark session found."), "a server"),
        (
            SparkSays("(org.apache.spark.SparkIllegalStateException) [SPARK_CONNECT_ILLEGAL_STATE.STATE] mismatch"),
            "a server",
        ),
        (CommitFailedError("Metadata changed since last commit."), "somebody else's commit"),
        (MetadataChanged("The table's metadata changed since the write began: orders."), "somebody else's commit"),
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
        WindowTripped(BATCH, place=1, window=1, threshold=1, nacks=[]),
    ],
)
def test_what_wants_a_person_does_not(error: Exception) -> None:
    """A full disk, a right that is missing, rows that do not fit, a window that tripped, and all that Wherry says."""
    assert passing(error) is None
    assert passing(wrapped(error)) is None


@pytest.mark.parametrize(
    "said",
    [
        "[DELTA_VIOLATE_CONSTRAINT_WITH_VALUES] CHECK constraint note: values note : TimeoutException",
        "[CAST_INVALID_INPUT] The value 'SlowDownException' of the type STRING cannot be cast",
        "[CAST_INVALID_INPUT] The value 'DELTA_SCHEMA_CHANGE_SINCE_ANALYSIS' of the type STRING cannot be cast",
        "[FAILED_READ_FILE.NO_HINT] Encountered error while reading file FILE_NOT_EXIST.json",
        "[PATH_NOT_FOUND] Path does not exist: file:/landing/ThrottlingException/a.json",
    ],
)
def test_what_a_row_or_a_file_says_is_no_name_of_an_error(said: str) -> None:
    """Rows are to blame for themselves, whatever stands in them."""
    assert passing(wrapped(SparkSays(said))) is None


def test_what_java_says_beneath_counts() -> None:
    """Where its lines begin as Java's do, behind py4j's own words too."""
    bridged = "An error occurred while calling o8609.sql.\n: io.delta.exceptions.MetadataChangedException: [DELTA_X] no"
    assert passing(wrapped(SparkSays(bridged))) == "somebody else's commit came in between"
    said = "[TASK_WRITE_FAILED] Task failed while writing rows.\nCaused by: java.net.ConnectException: refused"
    assert passing(wrapped(SparkSays(said))) == "a server is away, restarting or too busy"


class Py4JJavaError(Exception):
    """As py4j calls what the JVM answers; the real one needs a JVM."""


@pytest.mark.parametrize(
    ("said", "why"),
    [
        ("io.delta.exceptions.MetadataChangedException: [DELTA_METADATA_CHANGED] no", "somebody else's commit"),
        ("org.apache.spark.SparkException: [SPARK_JOB_CANCELLED] Job 7 cancelled as part of all", "somebody cancelled"),
        ("org.apache.spark.SparkException: [INTERNAL_ERROR] no", "None"),
    ],
)
def test_what_the_jvm_answers_through_py4j_says_that_it_is_there(said: str, why: str) -> None:
    """Though it is raised by the bridge; Spark's own name for it may stand behind Java's."""
    bridge: dict[str, Any] = {"__name__": "py4j.protocol", "error": Py4JJavaError}
    exec("def answer(said): raise error('An error occurred while calling o9.save.\\n: ' + said)", bridge)  # noqa: S102
    with pytest.raises(Py4JJavaError) as raised:
        bridge["answer"](said)
    assert str(passing(wrapped(raised.value))).startswith(why)
    assert is_cancelled(wrapped(raised.value)) is ("CANCELLED" in said)


def test_a_jvm_of_our_own_that_is_gone_stays_away() -> None:
    """Nobody starts it again: what py4j raises wants a person."""
    from py4j.protocol import Py4JNetworkError

    bridge: dict[str, Any] = {"__name__": "py4j.clientserver"}
    exec("def connect(): raise ConnectionRefusedError(111, 'Connection refused')", bridge)  # noqa: S102
    with pytest.raises(ConnectionRefusedError) as raised:
        bridge["connect"]()
    assert passing(wrapped(raised.value)) is None
    assert passing(wrapped(Py4JNetworkError("Answer from Java side is empty"))) is None
    assert passing(wrapped(ConnectionRefusedError(111, "Connection refused"))) is not None


def test_only_where_a_connection_broke_is_it_unknown_how_the_work_ended() -> None:
    """Spark's own errors end what they tell of."""
    assert not unanswered(wrapped(SparkSays("[DELTA_CONCURRENT_APPEND] conflict")))
    assert unanswered(wrapped(ConnectionResetError(104, "reset")))
    assert unanswered(SparkSays("<_Rendezvous:\n\tstatus = StatusCode.UNAVAILABLE"))
    assert unanswered(wrapped(SparkSays("[INVALID_HANDLE.SESSION_CHANGED] restarted")))


def test_a_server_that_forgot_a_session_is_told_from_one_that_is_away() -> None:
    """By the name of the error, and never by what a row says."""
    assert forgotten(wrapped(SparkSays("[INVALID_HANDLE.SESSION_CLOSED] The session is closed.")))
    assert not forgotten(wrapped(SparkSays("<_Rendezvous:\n\tstatus = StatusCode.UNAVAILABLE")))
    assert not forgotten(wrapped(SparkSays("[CAST_INVALID_INPUT] The value '[NO_ACTIVE_SESSION]' cannot be cast")))


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


def test_a_write_that_came_too_late_is_tried_again() -> None:
    """If the pipeline is still this run's: its lease is renewed by then."""
    assert passing(wrapped(Late())) == "the run's lease was over when its write began"
