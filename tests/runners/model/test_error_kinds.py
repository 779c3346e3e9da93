"""What errors mean. The errors are objects that Spark's clients, Python and Delta raise."""

from __future__ import annotations

import errno
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import grpc
import pytest
from deltalake.exceptions import CommitFailedError
from py4j.protocol import Py4JJavaError, Py4JNetworkError
from pyspark.errors import PySparkRuntimeError
from pyspark.errors.exceptions.connect import PythonException as ConnectPythonException
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from destinations.batch_folders import NameTaken
from destinations.delta.direct_commit import MetadataChanged
from destinations.destination import DestinationError, Misfit
from destinations.labels import Late
from origins.errors import get_raised_words, has_condition, is_too_large, parse_heads
from origins.store_access import StoreError
from runners.model.error_kinds import (
    ErrorKind,
    classify,
    explain_row_error,
    is_disk_full,
    is_executor_unfit,
    is_refusal,
)
from runners.model.errors import CarryFailed, WindowTripped
from runners.spark.session_pool import cancel, tag_work
from tests.runners.engine.test_batch_machine import BATCH
from tests.spark_errors import ROOT, make_raised_error, make_spark_error

TASK = (
    "\tat org.apache.spark.scheduler.Task.run(Task.scala:147)\n"
    "\tat org.apache.spark.executor.Executor$TaskRunner.run(Executor.scala:897)\n"
)
DRIVER = "\tat org.apache.spark.sql.catalyst.analysis.CheckAnalysis.checkAnalysis(CheckAnalysis.scala:1)\n"
PATTERN = "java.util.regex.PatternSyntaxException: Unclosed group near index 1\n(\n"
LOST = (
    "Job aborted due to stage failure: Task 0 in stage 3.0 failed 1 times, most recent failure: "
    "Lost task 0.0 in stage 3.0 (TID 3) (192.0.2.2 executor driver)"
)
RESULT = "Job aborted due to stage failure: Exception while getting task result"
CONFLICT = "another commit came in between"
AWAY = "a server is down, restarting or too busy"


def make_aborted(cause: str) -> Exception:
    """Return an error without a Spark condition, with the message of an aborted job."""
    return make_spark_error(said=f"{LOST}: {cause}{TASK}", stack=f"{DRIVER}Caused by: {cause}{TASK}")


def make_python_error(raised: str) -> Exception:
    """Return the error that a Python worker raises on Spark Connect."""
    trace = 'Traceback (most recent call last):\n  File "<stdin>", line 1, in f\n'
    said = f"[PYTHON_EXCEPTION] An exception was thrown from the Python worker: {trace}{raised}\n SQLSTATE: 38000"
    return ConnectPythonException(f"\n  An exception was thrown from the Python worker.\n{said}")


def wrap_error(cause: Exception) -> Exception:
    """Return the error as a runner wraps it."""
    failed = CarryFailed("batch 3 of lane 0: something")
    failed.__cause__ = cause
    return failed


def make_away() -> Exception:
    """Return the error of a store that does not answer."""
    error = StoreError("http://127.0.0.1:9 does not answer.")
    error.is_away = True
    return error


class Throwable:
    """An exception of the JVM as py4j provides it."""

    _target_id = "o1"
    _gateway_client = None

    def __init__(self, name: str, said: str = "", condition: str = "", cause: Throwable | None = None) -> None:
        self.name, self.said, self.cause = name, said, cause
        if condition:
            self.getCondition = lambda: condition
            self.getSqlState = lambda: "XXKDA"

    def getClass(self) -> Throwable:  # noqa: N802 -- Java's names
        return self

    def getName(self) -> str:  # noqa: N802
        return self.name

    def getMessage(self) -> str:  # noqa: N802
        return self.said

    def getCause(self) -> Throwable | None:  # noqa: N802
        return self.cause


@pytest.fixture
def answer(monkeypatch: pytest.MonkeyPatch) -> Callable[[Throwable], Exception]:
    """Return a function that makes a py4j error from a JVM exception, without stack frames."""
    monkeypatch.setattr("origins.errors.format_java_frames", lambda throwable: "")
    return lambda throwable: Py4JJavaError("An error occurred while calling o9.save.\n", throwable)


@pytest.mark.parametrize(
    ("error", "why"),
    [
        (make_spark_error("DELTA_CONCURRENT_APPEND.WITHOUT_HINT"), CONFLICT),
        (make_spark_error("DELTA_METADATA_CHANGED"), CONFLICT),
        (make_spark_error("DELTA_SCHEMA_CHANGE_SINCE_ANALYSIS"), CONFLICT),
        (make_spark_error("DELTA_PROTOCOL_CHANGED"), CONFLICT),
        (
            make_spark_error(said="no", stack=f"{DRIVER}Caused by: io.delta.exceptions.MetadataChangedException: no"),
            CONFLICT,
        ),
        (CommitFailedError("Metadata changed since last commit."), CONFLICT),
        (MetadataChanged("The table's metadata changed since the write began: orders."), CONFLICT),
        (
            make_spark_error(said=f"{LOST}: ExecutorLostFailure (executor 1 exited) Reason: gone"),
            "an executor or its output",
        ),
        (
            make_spark_error(said=f"{LOST}: FetchFailed(BlockManagerId(1, 10.0.0.1, 1, None))"),
            "an executor or its output",
        ),
        (make_spark_error("FAILED_READ_FILE.FILE_NOT_EXIST", state="KD001", stack=TASK), "a file disappeared"),
        (make_spark_error("DELTA_FILE_NOT_FOUND"), "a file disappeared"),
        (make_spark_error("SPARK_JOB_CANCELLED"), "another program cancelled the Spark job"),
        (make_spark_error("OPERATION_CANCELED", state="HY008"), "another program cancelled the Spark job"),
        (make_spark_error(said="no", grpc_status_code=grpc.StatusCode.UNAVAILABLE), AWAY),
        (make_spark_error(said="no", grpc_status_code=grpc.StatusCode.RESOURCE_EXHAUSTED), AWAY),
        (make_spark_error("INVALID_HANDLE.SESSION_CHANGED"), AWAY),
        (make_spark_error("SPARK_CONNECT_ILLEGAL_STATE.STATE_CONSISTENCY_NO_BATCHES_AVAILABLE", state="XXSC0"), AWAY),
        (PySparkRuntimeError(errorClass="NO_ACTIVE_SESSION", messageParameters={}), AWAY),
        (
            make_spark_error("TASK_WRITE_FAILED", stack=f"{TASK}Caused by: java.net.ConnectException: refused\n{TASK}"),
            AWAY,
        ),
        (make_spark_error(said="(org.apache.spark.SparkException) [DELTA_CONCURRENT_WRITE] no"), CONFLICT),
        (TimeoutError("timed out"), AWAY),
        (ConnectionResetError(104, "Connection reset by peer"), AWAY),
        (make_away(), AWAY),
    ],
)
def test_a_transient_error_has_a_reason(error: Exception, why: str) -> None:
    """A wrapped error has the same reason."""
    assert classify(error).transient.startswith(why)
    assert classify(wrap_error(error)).transient.startswith(why)


@pytest.mark.parametrize(
    "error",
    [
        ValueError("no"),
        PermissionError(13, "Permission denied"),
        OSError(28, "No space left on device"),
        make_spark_error("CAST_INVALID_INPUT", "The value 'sieben' cannot be cast", "22018", TASK),
        make_spark_error("DELTA_SCHEMA_CHANGED"),
        DestinationError("The table is gone. TimeoutError"),
        StoreError("The bucket orders does not exist."),
        WindowTripped(BATCH, place=1, window=1, threshold=1, nacks=[]),
        Misfit("The table has no column 'x'."),
    ],
)
def test_an_error_that_needs_a_user_is_not_transient(error: Exception) -> None:
    """Examples are a full disk, a missing right, rows that do not fit, a tripped window and errors of Wherry."""
    assert classify(error).transient == ""
    assert classify(wrap_error(error)).transient == ""


@pytest.mark.parametrize(
    "error",
    [
        make_spark_error("DELTA_VIOLATE_CONSTRAINT_WITH_VALUES", "note : TimeoutException", "23001", TASK),
        make_spark_error(
            "CAST_INVALID_INPUT", "The value '\nCaused by: java.net.ConnectException: x' is no INT", "22018", TASK
        ),
        make_spark_error("CAST_INVALID_INPUT", "The value '[NO_ACTIVE_SESSION]' is no INT", "22018", TASK),
        make_spark_error("PATH_NOT_FOUND", "Path does not exist: file:/landing/ThrottlingException/a.json", "42K03"),
        make_raised_error("[DELTA_CONCURRENT_APPEND] SQLSTATE: 22012"),
        make_raised_error("x\nCaused by: java.net.ConnectException: no"),
        make_python_error("ValueError: x\nCaused by: java.net.ConnectException: no"),
        RuntimeError("[DELTA_CONCURRENT_APPEND] SQLSTATE: 22012"),
        RuntimeError("status = StatusCode.UNAVAILABLE"),
    ],
)
def test_words_of_a_row_a_file_or_a_function_do_not_classify_an_error(error: Exception) -> None:
    """They may contain the name of another error."""
    kind = classify(wrap_error(error))
    assert (kind.transient, kind.is_session_lost, kind.is_outcome_unknown) == ("", False, False)


def test_an_error_that_was_raised_on_purpose_is_no_wrong_value() -> None:
    """The SQLSTATE in its message does not count. The SQLSTATE of Spark's error object counts."""
    assert not classify(make_raised_error("SQLSTATE: 22012")).is_value


@pytest.mark.parametrize(
    ("throwable", "why"),
    [
        (Throwable("io.delta.exceptions.MetadataChangedException", "no", "DELTA_METADATA_CHANGED"), CONFLICT),
        (Throwable("io.delta.exceptions.ConcurrentAppendException", "no"), CONFLICT),
        (Throwable(ROOT, "[X] no", "TASK_WRITE_FAILED", Throwable("java.net.ConnectException", "refused")), AWAY),
        (Throwable(ROOT, "Job 7 cancelled", "SPARK_JOB_CANCELLED"), "another program cancelled the Spark job"),
        (Throwable(ROOT, f"{LOST}: ExecutorLostFailure (exited)"), "an executor or its output was lost"),
        (Throwable(ROOT, "[DELTA_CONCURRENT_APPEND] no", "INTERNAL_ERROR"), ""),
    ],
)
def test_exceptions_of_the_jvm_are_classified_by_class_and_condition(
    answer: Callable[[Throwable], Exception], throwable: Throwable, why: str
) -> None:
    """Their causes count too. Such a py4j error shows that the JVM still runs."""
    kind = classify(wrap_error(answer(throwable)))
    assert (kind.transient, kind.is_cancelled) == (why, "cancelled" in why)


def test_the_loss_of_the_local_jvm_is_not_transient() -> None:
    """Wherry cannot start it again, so an error that py4j raises needs a user."""
    bridge: dict[str, Any] = {"__name__": "py4j.clientserver"}
    exec("def connect(): raise ConnectionRefusedError(111, 'Connection refused')", bridge)  # noqa: S102
    with pytest.raises(ConnectionRefusedError) as raised:
        bridge["connect"]()
    assert classify(wrap_error(raised.value)).transient == ""
    assert classify(wrap_error(Py4JNetworkError("Answer from Java side is empty"))).transient == ""
    assert classify(wrap_error(ConnectionRefusedError(111, "Connection refused"))).transient == AWAY


def test_a_jvm_that_ends_during_classification_leaves_the_error_unclassified(
    answer: Callable[[Throwable], Exception],
) -> None:
    """A second error does not replace the first."""

    class Silent(Throwable):
        def getCause(self) -> Throwable | None:  # noqa: N802
            raise Py4JNetworkError("Answer from Java side is empty")

    assert classify(answer(Silent(ROOT))) == ErrorKind()


@pytest.mark.parametrize(
    ("error", "unknown", "lost"),
    [
        (make_spark_error("DELTA_CONCURRENT_APPEND"), False, False),
        (ConnectionResetError(104, "reset"), True, False),
        (TimeoutError(), True, False),
        (make_spark_error(said="no", grpc_status_code=grpc.StatusCode.UNAVAILABLE), True, False),
        (make_spark_error(said="no", grpc_status_code=grpc.StatusCode.DEADLINE_EXCEEDED), True, False),
        (make_spark_error(said="no", grpc_status_code=grpc.StatusCode.RESOURCE_EXHAUSTED), False, False),
        (make_spark_error("INVALID_HANDLE.SESSION_CHANGED"), True, True),
        (make_spark_error("INVALID_HANDLE.SESSION_CLOSED"), True, True),
        (
            PySparkRuntimeError(errorClass="RESPONSE_ALREADY_RECEIVED", messageParameters={"error_type": "x"}),
            True,
            True,
        ),
        (make_spark_error("CAST_INVALID_INPUT", "The value '[NO_ACTIVE_SESSION]' is no INT", "22018"), False, False),
    ],
)
def test_only_a_broken_connection_or_a_lost_session_leaves_the_outcome_unknown(
    error: Exception, unknown: bool, lost: bool
) -> None:
    """Other errors of Spark end the work that raised them."""
    kind = classify(wrap_error(error))
    assert (kind.is_outcome_unknown, kind.is_session_lost) == (unknown, lost)


def test_an_error_of_wherry_keeps_the_outcome_unknown_when_a_connection_broke() -> None:
    """It needs a user, and the write may have landed."""
    error = DestinationError("The table cannot be written.")
    error.__cause__ = ConnectionResetError(104, "reset")
    kind = classify(error)
    assert (kind.transient, kind.is_outcome_unknown) == ("", True)


def test_a_definition_may_name_more_transient_errors() -> None:
    """An error is named by words in it, or by its Wherry code."""
    named = classify(wrap_error(make_spark_error(said="ORA-60: deadlock detected")), ["ORA-60"])
    assert named.transient == "retry.also names it: ORA-60"
    assert classify(DestinationError("The table is gone."), ["DESTINATION"]).transient != ""
    assert classify(ValueError("ORA-1"), ["ORA-60"]).transient == ""


def test_the_name_of_a_batch_does_not_classify_an_error() -> None:
    """A name of a file is no reason to try again."""
    failed = CarryFailed("batch 3 of lane 0 (TimeoutError.json): no")
    failed.__cause__ = ValueError("no")
    assert classify(failed, ["TimeoutError"]) == ErrorKind()


def test_a_write_after_the_end_of_the_lease_is_transient() -> None:
    """The run may still own the pipeline, because its lease may have been renewed."""
    assert classify(wrap_error(Late())).transient == "the run's lease ended before its write began"


def test_a_write_that_a_fence_stopped_is_asked_for_and_tried_again() -> None:
    """The fence may be of another lane of the same run. If it is of another run, the ledger ends this one."""
    failed = DestinationError("Batch 1 of lane 2 was not written.")
    failed.__cause__ = NameTaken("_lane=2/_batch=1")
    kind = classify(wrap_error(failed))
    assert (kind.is_conflict, kind.transient) == (True, "another commit came in between")


@pytest.mark.parametrize(
    ("error", "value"),
    [
        (make_spark_error("DIVIDE_BY_ZERO", "Division by zero.", "22012"), True),
        (
            make_spark_error(
                "TASK_WRITE_FAILED", "no", "58030", f"{TASK}Caused by: a.B: [CAST_OVERFLOW] SQLSTATE: 22003"
            ),
            True,
        ),
        (make_spark_error("DELTA_NOT_NULL_CONSTRAINT_VIOLATED", "id", "23502"), True),
        (make_spark_error(said="no", stack=f"{TASK}Caused by: a.b.DeltaInvariantViolationException: no\n{TASK}"), True),
        (make_raised_error("bad id"), False),
        (make_spark_error("FAILED_READ_FILE.NO_HINT", "Error while reading file x.", "KD001", TASK), False),
        (make_spark_error("DELTA_CONCURRENT_APPEND", "Files were added.", "2D521"), False),
        (ZeroDivisionError("division by zero"), False),
    ],
)
def test_errors_of_wrong_values_are_recognized(error: Exception, value: bool) -> None:
    """They have an SQL class for data errors. Such a value belongs to a row."""
    assert classify(wrap_error(error)).is_value is value
    assert classify(error).is_row is (value or get_raised_words(error) != "")


@pytest.mark.parametrize(
    "error",
    [
        make_raised_error("bad id"),
        make_raised_error("bad id", ""),
        make_spark_error("INVALID_FORMAT.MISMATCH_INPUT", "The format is invalid: 99.", "42601", TASK),
        make_spark_error("COLLECTION_SIZE_LIMIT_EXCEEDED.PARAMETER", "Can't create array", "54000", TASK),
        make_spark_error("_LEGACY_ERROR_TEMP_3243", "Illegal sequence boundaries: 1 to 2 by -1", "", TASK),
        make_raised_error(
            "no", "\tat org.apache.spark.sql.catalyst.optimizer.ConvertToLocalRelation$.apply(O.scala:1)"
        ),
        make_aborted(PATTERN),
        make_spark_error(said=f"{LOST}: java.lang.reflect.InvocationTargetException\n\tat java.base/jdk.inter..."),
        make_aborted("java.lang.ArithmeticException: long overflow\n"),
        make_aborted("java.lang.NegativeArraySizeException: -1\n"),
        make_aborted(f"{ROOT}: [TASK_WRITE_FAILED] Task failed.\n{TASK}Caused by: {PATTERN}"),
        make_aborted(
            f"{ROOT}: [MALFORMED_RECORD_IN_PARSING.WITHOUT_SUGGESTION] no. SQLSTATE: P0001\n"
            f"{TASK}Caused by: java.io.EOFException: end\n"
        ),
        make_python_error("ValueError: three"),
        make_python_error("shop.prices.NoPrice: three"),
    ],
)
def test_an_error_of_a_task_may_belong_to_a_row(error: Exception) -> None:
    """Its SQLSTATE does not matter, and Spark may have no condition for it."""
    assert classify(error).is_row


@pytest.mark.parametrize(
    "error",
    [
        make_spark_error("UNRESOLVED_COLUMN.WITHOUT_SUGGESTION", "no column", "42703", DRIVER),
        make_spark_error("INVALID_FORMAT.ESC_AT_THE_END", "no escape at the end.", "42601", DRIVER),
        make_raised_error("WHERRY_FAILS stage 'lookup'"),
        make_raised_error("WHERRY_REFUSED"),
        make_raised_error("wherry-late-1"),
        make_aborted(f"{ROOT}: [FAILED_READ_FILE.NO_HINT] Error while reading file x.\n"),
        make_aborted("java.io.FileNotFoundException: /landing/a.json\n"),
        make_spark_error("DELTA_POST_COMMIT_HOOK_FAILED", "version 7 is there, but no.", "2DKD0", TASK),
        make_aborted("java.io.IOException: No space left on device\n"),
        make_aborted("java.lang.OutOfMemoryError: Java heap space\n"),
        make_aborted("java.net.ConnectException: Connection refused\n"),
        make_aborted("java.lang.ClassCastException: cannot assign instance of java.lang.invoke.SerializedLambda\n"),
        make_aborted(f"{ROOT}: Python worker exited\n{TASK}Caused by: java.io.EOFException\n"),
        make_aborted(
            "org.apache.spark.api.python.PythonException: Traceback:\nConnectionRefusedError: [Errno 111] no\n"
        ),
        make_python_error("requests.exceptions.ConnectionError: the server is away"),
        make_python_error("stages.python_call.FunctionCannotRun: f needs 'shop'"),
        make_python_error("ModuleNotFoundError: No module named 'shop'"),
        make_aborted("java.lang.RuntimeException: my server is in its nightly rest\n"),
    ],
)
def test_an_error_that_concerns_all_rows_belongs_to_no_row(error: Exception) -> None:
    """Examples are errors of analysis, marks of Wherry, files, disks, memory, servers and missing code.

    Errors that the definition calls transient belong to no row either.
    """
    assert not classify(error, ["nightly rest"]).is_row


def test_an_error_of_a_destination_about_its_write_belongs_to_no_row() -> None:
    """A task may have failed before it."""
    error = DestinationError("no")
    error.__cause__ = make_aborted(PATTERN)
    assert not classify(error).is_row
    assert classify(wrap_error(make_aborted(PATTERN))).is_row


@pytest.mark.parametrize(
    ("error", "refusal"),
    [
        (make_raised_error("WHERRY_REFUSED"), True),
        (wrap_error(make_raised_error("WHERRY_REFUSED", "")), True),
        (
            make_spark_error(
                "TASK_WRITE_FAILED", stack=f"{TASK}Caused by: a.B: [USER_RAISED_EXCEPTION] WHERRY_REFUSED"
            ),
            True,
        ),
        (make_raised_error("a row says WHERRY_REFUSED"), False),
        (make_spark_error("CAST_INVALID_INPUT", "The value 'WHERRY_REFUSED' is no INT", "22018", TASK), False),
        (Misfit("The table has no column 'x'."), False),
        (RuntimeError("WHERRY_REFUSED"), False),
    ],
)
def test_refusals_are_recognized_by_their_error(error: Exception, refusal: bool) -> None:
    """No text of a row is mistaken for a refusal."""
    assert (classify(error).is_refusal, is_refusal(error)) == (refusal, refusal)


@pytest.mark.parametrize(
    ("error", "code", "words"),
    [
        (make_raised_error("no"), "USER_RAISED_EXCEPTION", "no"),
        (
            make_spark_error("_LEGACY_ERROR_TEMP_3243", "Illegal sequence boundaries: 1 to 2", "", TASK),
            "EXPRESSION",
            "",
        ),
        (make_aborted(PATTERN), "EXPRESSION", "PatternSyntaxException: Unclosed group near index 1"),
        (make_aborted("java.lang.StackOverflowError\n"), "EXPRESSION", "StackOverflowError"),
        (make_spark_error(said=f"{LOST}: a.b.NoMessage\n\tat java.base/jdk.inter..."), "EXPRESSION", "NoMessage"),
        (
            make_aborted(f"{ROOT}: [TASK_WRITE_FAILED] no.\n{TASK}Caused by: {PATTERN}"),
            "EXPRESSION",
            "PatternSyntaxException: Unclosed group near index 1",
        ),
        (
            make_aborted(f"{ROOT}: [FAILED_PARSE.JSON] no record. SQLSTATE: 22023\nCaused by: a.B: c"),
            "FAILED_PARSE",
            "no record.",
        ),
        (make_python_error("ValueError: three"), "EXPRESSION", ""),
        (make_spark_error("DIVIDE_BY_ZERO", "Division by zero.\nmore", "22012"), "DIVIDE_BY_ZERO", "Division by zero."),
        (RuntimeError("something else. SQLSTATE: 22000"), "EXPRESSION", ""),
    ],
)
def test_a_row_is_refused_under_the_spark_condition_of_its_error(error: Exception, code: str, words: str) -> None:
    """Without a condition the code is `EXPRESSION`, and the message has the name of the Java class."""
    assert explain_row_error(error) == (code, words)


@pytest.mark.parametrize(
    ("error", "unfit"),
    [
        (make_aborted("java.lang.ClassNotFoundException: io.delta.package\n"), True),
        (make_aborted("java.io.InvalidClassException: a.B; local class incompatible: stream classdesc\n"), True),
        (make_spark_error(said=f"{RESULT}: java.io.InvalidClassException: a.B; local class incompatible"), True),
        (make_spark_error(said=f"{RESULT}: java.lang.IllegalStateException: no"), False),
        (
            make_aborted("java.lang.ClassCastException: cannot assign instance of java.lang.invoke.SerializedLambda\n"),
            True,
        ),
        (make_python_error("ModuleNotFoundError: No module named 'pandas'"), True),
        (
            make_python_error(
                "pyspark.errors.exceptions.base.PySparkRuntimeError: [PYTHON_VERSION_MISMATCH] Python in"
            ),
            True,
        ),
        (make_python_error("ValueError: [PYTHON_VERSION_MISMATCH] is what a row says"), False),
        (make_aborted(PATTERN), False),
        (
            make_spark_error(said="no", stack=f"{DRIVER}Caused by: java.lang.ClassNotFoundException: a.B\n{DRIVER}"),
            False,
        ),
        (wrap_error(make_aborted("java.lang.NoSuchMethodError: a.B.c()\n")), True),
    ],
)
def test_an_unfit_executor_is_recognized_by_the_error_of_its_task(error: Exception, unfit: bool) -> None:
    """The driver may lack a class too, but that is no fault of an executor."""
    assert is_executor_unfit(error) == unfit


def test_the_head_of_an_error_is_read_where_java_writes_it() -> None:
    """It is at the beginning of the text, after `Caused by: ` and after `Lost task` of Spark."""
    text = f"{ROOT}: {LOST}: a.b.C: [X.Y] one (d.E: [Z] two) SQLSTATE: 22012\n{TASK}Caused by: d.E$F: three\n\tat g.H"
    found = [(each.name, each.condition, each.state, each.message, each.in_task) for each in parse_heads(text)]
    assert found[1:] == [("C", "X.Y", "22012", "one (d.E: [Z] two)", True), ("E$F", "", "", "three", False)]


def test_a_result_that_is_too_large_is_recognized_by_the_abort_of_its_job() -> None:
    """Spark has no condition for it."""
    said = "Job aborted due to stage failure: Total size of serialized results of 2 tasks (9 MiB) is bigger than x"
    assert is_too_large(make_spark_error(said=said))
    assert not is_too_large(make_aborted("java.lang.RuntimeException: Total size of serialized results of 2 tasks\n"))


MISSING = "FAILED_READ_FILE.FILE_NOT_EXIST"
PROVOKED: dict[str, tuple[Callable[[SparkSession], Any], str, set[str]]] = {
    "a constant": (lambda spark: spark.sql("select 1 div 0").collect(), "DIVIDE_BY_ZERO", {"is_value", "is_row"}),
    "a task": (lambda spark: make_rows(spark, "1 div id").collect(), "DIVIDE_BY_ZERO", {"is_value", "is_row"}),
    "a cast": (
        lambda spark: make_rows(spark, "int(concat('x', id))").collect(),
        "CAST_INVALID_INPUT",
        {"is_value", "is_row"},
    ),
    "raise_error": (
        lambda spark: make_rows(spark, "raise_error(concat('no ', id))").collect(),
        "USER_RAISED",
        {"is_row"},
    ),
    "a mark": (
        lambda spark: make_rows(spark, "raise_error('WHERRY_REFUSED')").collect(),
        "USER_RAISED",
        {"is_refusal"},
    ),
    "a file": (
        lambda spark: make_rows(
            spark, "if(id = 1, raise_error('x\nCaused by: java.net.ConnectException: y'), id)"
        ).collect(),
        "USER_RAISED",
        {"is_row"},
    ),
    "Java alone": (lambda spark: make_rows(spark, "split('x', chr(40 + id - id))").collect(), "", {"is_row"}),
    "no column": (lambda spark: make_rows(spark, "missing"), "UNRESOLVED_COLUMN", set()),
    "no syntax": (lambda spark: spark.sql("selec"), "PARSE_SYNTAX_ERROR", set()),
    "no table": (lambda spark: spark.table("nowhere.missing").collect(), "TABLE_OR_VIEW_NOT_FOUND", set()),
    "no path": (lambda spark: spark.read.parquet("/nowhere/missing").collect(), "PATH_NOT_FOUND", set()),
    "Python": (lambda spark: spark.range(3).select(F.udf(raise_error, "long")("id")).collect(), "PYTHON", {"is_row"}),
    "no module": (
        lambda spark: spark.range(3).select(F.udf(lambda _: __import__("missing"), "long")("id")).collect(),
        "PYTHON",
        set(),
    ),
}


def make_rows(spark: SparkSession, sql: str) -> Any:
    """Return three rows with this expression over `id`."""
    frame = spark.range(3).select(F.expr(sql).alias("x"))
    frame.schema  # noqa: B018 -- analyses, on Connect too
    return frame


def raise_error(number):  # type: ignore[no-untyped-def]
    """Raise an error. The function has no types, because pyspark would use them."""
    raise ValueError(f"{number}\nCaused by: java.net.ConnectException: no")


def list_facts(error: Exception) -> set[str]:
    """Return all properties that are true of the error."""
    return {name for name, value in vars(classify(error)).items() if value}


@pytest.mark.spark
@pytest.mark.connect
def test_a_real_session_raises_each_kind_of_error(spark: SparkSession) -> None:
    """On classic Spark the objects of the JVM are classified, on Spark Connect the server's answer."""
    for case, (provoke, condition, holds) in PROVOKED.items():
        with pytest.raises(Exception, match=r"(?s).*") as raised:
            provoke(spark)
        assert list_facts(raised.value) == holds, case
        assert condition in ("", "PYTHON") or has_condition(raised.value, condition), case


@pytest.mark.spark
@pytest.mark.connect
def test_delta_raises_errors_for_wrong_values_and_for_rows_that_do_not_fit(spark: SparkSession, tmp_path: Path) -> None:
    """A violated constraint or NOT NULL belongs to a row. An additional column belongs to no row."""
    table = f"delta.`{tmp_path}/t`"
    spark.sql(f"create table {table} (id long not null, n long) using delta")
    spark.sql(f"alter table {table} add constraint small check (n < 3)")
    found = []
    for row in ("1L as id, 7L as n", "cast(null as long) as id, 1L as n", "1L as id, 2L as n, 3 as more"):
        with pytest.raises(Exception, match=r"(?s).*") as raised:
            spark.sql(f"select {row}").write.format("delta").mode("append").save(f"{tmp_path}/t")
        found.append(list_facts(raised.value))
    assert found == [{"is_value", "is_row"}, {"is_value", "is_row"}, set()]


@pytest.mark.spark
@pytest.mark.connect
def test_the_wrong_value_behind_a_failed_write_is_found(spark: SparkSession, tmp_path: Path) -> None:
    """Spark reports that the task failed, and the cause below names the value."""
    frame = spark.range(3).select(F.expr("1 div id as id"))
    with pytest.raises(Exception, match=r"(?s).*") as raised:
        frame.write.format("delta").save(f"{tmp_path}/t")
    assert list_facts(raised.value) == {"is_value", "is_row"}
    assert explain_row_error(raised.value)[0] == "DIVIDE_BY_ZERO"


@pytest.mark.spark
@pytest.mark.connect
def test_a_file_that_disappeared_is_distinguished_from_an_unreadable_file(spark: SparkSession, tmp_path: Path) -> None:
    """The file existed when the rows were described."""
    spark.range(3).write.parquet(f"{tmp_path}/p")
    frame = spark.read.parquet(f"{tmp_path}/p")
    frame.schema  # noqa: B018 -- describes the files, on Connect too
    for file in (tmp_path / "p").glob("part-*"):
        file.unlink()
    with pytest.raises(Exception, match=r"(?s).*") as raised:
        frame.collect()
    assert list_facts(raised.value) in ({"transient", "is_file_gone"}, set())
    assert classify(raised.value).is_file_gone is has_condition(raised.value, MISSING)


@pytest.mark.spark
@pytest.mark.connect
def test_a_commit_by_another_writer_is_a_conflict(spark: SparkSession, tmp_path: Path) -> None:
    """Another writer replaces the table while Spark computes the rows that are to replace it."""
    place = f"{tmp_path}/t"
    spark.range(1).write.format("delta").save(place)

    def replace(number):  # type: ignore[no-untyped-def]
        import pyarrow
        from deltalake import write_deltalake

        write_deltalake(place, pyarrow.table({"id": [7]}), mode="overwrite")
        return number

    rows = spark.range(1).select(F.udf(replace, "long")("id").alias("id"))
    with pytest.raises(Exception, match=r"(?s).*") as raised:
        rows.write.format("delta").mode("overwrite").save(place)
    assert has_condition(raised.value, "DELTA_CONCURRENT_")
    assert list_facts(raised.value) == {"transient", "is_conflict"}


@pytest.mark.spark
@pytest.mark.connect
def test_cancelled_work_is_recognized(spark: SparkSession) -> None:
    """It is transient, because the same work can be done again."""
    work = spark.sql("select sum(a.id * b.id) from range(10000000) a join range(10000000) b on a.id < b.id")
    ended, timer = threading.Event(), threading.Thread(target=lambda: interrupt(spark, ended))
    timer.start()
    with tag_work(spark, "endless"), pytest.raises(Exception, match=r"(?s).*") as raised:
        work.collect()
    ended.set()
    timer.join()
    with tag_work(spark, "behind"):  # on classic Spark no more work begins in a group that was cancelled
        pass
    assert list_facts(raised.value) == {"transient", "is_cancelled"}


def interrupt(spark: SparkSession, ended: threading.Event) -> None:
    """Cancel the work until it has ended, even if it begins late."""
    while not ended.wait(0.2):
        cancel(spark, "endless")


@pytest.mark.parametrize(
    ("error", "full"),
    [
        (OSError(errno.ENOSPC, "voll"), True),
        (OSError(errno.EDQUOT, "voll"), True),
        (OSError("Generic LocalFileSystem error: No space left on device (os error 28)"), True),
        (make_aborted("java.io.IOException: No space left on device\n"), True),
        (make_aborted("java.io.FileNotFoundException: /tmp/blockmgr-1/0a (No space left on device)\n"), True),
        (OSError(errno.EACCES, "Permission denied"), False),
        (ValueError("No space left on device"), False),
        (make_raised_error("No space left on device"), False),
    ],
)
def test_a_full_disk_is_recognized_by_its_number_or_the_message_of_the_system(error: Exception, full: bool) -> None:
    """Only errors about files count. Values and messages of stages do not."""
    assert (is_disk_full(error), is_disk_full(wrap_error(error))) == (full, full)
