"""Which errors a row may be to blame for."""

from __future__ import annotations

import pytest

from destinations.destination import DestinationError
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


TASK = (
    "\tat org.apache.spark.scheduler.Task.run(Task.scala:147)\n"
    "\tat org.apache.spark.executor.Executor$TaskRunner.run(Executor.scala:897)\n"
)
DRIVER = "\tat org.apache.spark.sql.catalyst.analysis.CheckAnalysis.checkAnalysis(CheckAnalysis.scala:1)\n"
PATTERN = "java.util.regex.PatternSyntaxException: Unclosed group near index 1\n(\n"


class SparkSays(Exception):
    """An error of Spark's as its clients have it: what it says, and the stack of the server."""

    def __init__(self, said: str, stack: str) -> None:
        super().__init__(said)
        self._stackTrace = stack


class PythonException(SparkSays):
    """As Spark calls what a worker of Python raised."""


LOST = (
    "Job aborted due to stage failure: Task 0 in stage 3.0 failed 1 times, most recent failure: "
    "Lost task 0.0 in stage 3.0 (TID 3) (192.0.2.2 executor driver)"
)


def aborted(cause: str) -> SparkSays:
    """An error that Spark has no name for, as it says that a job was aborted."""
    return SparkSays(f"{LOST}: {cause}{TASK}", f"org.apache.spark.SparkException\n{DRIVER}Caused by: {cause}{TASK}")


def in_python(raised: str) -> PythonException:
    """What a worker of Python raised."""
    trace = 'Traceback (most recent call last):\n  File "<stdin>", line 1, in f\n'
    return PythonException(f"\n  An exception was thrown from the Python worker.\n{trace}{raised}\n", "")


@pytest.mark.parametrize(
    "error",
    [
        SparkSays("[USER_RAISED_EXCEPTION] bad id SQLSTATE: P0001", TASK),
        SparkSays("[USER_RAISED_EXCEPTION] bad id SQLSTATE: P0001", ""),
        SparkSays("[INVALID_FORMAT.MISMATCH_INPUT] The format is invalid: 99. SQLSTATE: 42601", TASK),
        SparkSays("[COLLECTION_SIZE_LIMIT_EXCEEDED.PARAMETER] Can't create array SQLSTATE: 54000", TASK),
        SparkSays("Illegal sequence boundaries: 1 to 2 by -1", TASK),
        SparkSays(
            "[USER_RAISED_EXCEPTION] no SQLSTATE: P0001",
            "\tat org.apache.spark.sql.catalyst.optimizer.ConvertToLocalRelation$.apply(O.scala:1)",
        ),
        aborted(PATTERN),
        SparkSays(f"{LOST}: java.lang.reflect.InvocationTargetException\n\tat java.base/jdk.inter...", ""),
        aborted("java.lang.ArithmeticException: long overflow\n"),
        aborted("java.lang.NegativeArraySizeException: -1\n"),
        aborted("org.apache.spark.SparkException: [TASK_WRITE_FAILED] Task failed.\n" + TASK + f"Caused by: {PATTERN}"),
        aborted(
            "org.apache.spark.SparkException: [MALFORMED_RECORD_IN_PARSING.WITHOUT_SUGGESTION] no. SQLSTATE: P0001\n"
            + TASK
            + "Caused by: java.io.EOFException: end\n"
        ),
        in_python("ValueError: three"),
        in_python("shop.prices.NoPrice: three"),
    ],
)
def test_a_row_may_be_to_blame_for_whatever_its_task_raises(error: Exception) -> None:
    """Whatever SQLSTATE Spark gives it, and if it has no name for it at all."""
    assert of_a_row(error)


@pytest.mark.parametrize(
    "error",
    [
        SparkSays("[UNRESOLVED_COLUMN.WITHOUT_SUGGESTION] no column SQLSTATE: 42703", DRIVER),
        SparkSays("[INVALID_FORMAT.ESC_AT_THE_END] no escape at the end. SQLSTATE: 42601", DRIVER),
        SparkSays("[USER_RAISED_EXCEPTION] WHERRY_FAILS stage 'lookup' SQLSTATE: P0001", TASK),
        SparkSays("[USER_RAISED_EXCEPTION] WHERRY_REFUSED SQLSTATE: P0001", TASK),
        aborted("org.apache.spark.SparkException: [FAILED_READ_FILE.NO_HINT] Error while reading file x.\n"),
        aborted("java.io.FileNotFoundException: /landing/a.json\n"),
        SparkSays("[DELTA_POST_COMMIT_HOOK_FAILED] version 7 is there, but no. SQLSTATE: 2DKD0", TASK),
        aborted("java.io.IOException: No space left on device\n"),
        aborted("java.lang.OutOfMemoryError: Java heap space\n"),
        aborted("java.net.ConnectException: Connection refused\n"),
        aborted("java.lang.ClassCastException: cannot assign instance of java.lang.invoke.SerializedLambda\n"),
        aborted("org.apache.spark.SparkException: Python worker exited\n" + TASK + "Caused by: java.io.EOFException\n"),
        aborted("org.apache.spark.api.python.PythonException: Traceback:\nConnectionRefusedError: [Errno 111] no\n"),
        in_python("requests.exceptions.ConnectionError: the server is away"),
        in_python("stages.calling.FunctionCannotRun: f needs 'shop'"),
        in_python("ModuleNotFoundError: No module named 'shop'"),
        aborted("java.lang.RuntimeException: my server is in its nightly rest\n"),
    ],
)
def test_no_row_is_to_blame_for_what_concerns_all_of_them(error: Exception) -> None:
    """What fails in analysis, what Wherry raises on purpose, a file, a full disk or memory, a server, missing code, and
    what the definition says to pass by itself."""
    assert not of_a_row(error, ["nightly rest"])


def test_what_a_destination_says_of_its_write_is_no_rows_fault() -> None:
    """Though a task had failed before."""
    error = DestinationError("no")
    error.__cause__ = aborted(PATTERN)
    assert not of_a_row(error)
    failed = CarryFailed("batch 7 of lane 0")
    failed.__cause__ = error.__cause__
    assert of_a_row(failed)


def test_the_cause_counts_wherever_it_stands() -> None:
    """Also below the error that a person is told."""
    error = CarryFailed("batch 7 of lane 0")
    error.__cause__ = RuntimeError(DIVISION)
    assert of_a_row(error)


@pytest.mark.parametrize(
    ("error", "code", "words"),
    [
        (SparkSays("[USER_RAISED_EXCEPTION] no SQLSTATE: P0001", TASK), "USER_RAISED_EXCEPTION", "no"),
        (SparkSays("Illegal sequence boundaries: 1 to 2", TASK), "EXPRESSION", "Illegal sequence boundaries: 1 to 2"),
        (aborted(PATTERN), "EXPRESSION", "PatternSyntaxException: Unclosed group near index 1"),
        (aborted("java.lang.StackOverflowError\n"), "EXPRESSION", "StackOverflowError"),
        (SparkSays(f"{LOST}: a.b.NoMessage\n\tat java.base/jdk.inter...", ""), "EXPRESSION", "NoMessage"),
        (
            aborted("org.apache.spark.SparkException: [TASK_WRITE_FAILED] no.\n" + TASK + f"Caused by: {PATTERN}"),
            "EXPRESSION",
            "PatternSyntaxException: Unclosed group near index 1",
        ),
        (
            aborted(
                "org.apache.spark.SparkException: [FAILED_PARSE.JSON] no record. SQLSTATE: 22023\nCaused by: a.B: c"
            ),
            "FAILED_PARSE",
            "no record.",
        ),
        (in_python("ValueError: three"), "EXPRESSION", "ValueError: three"),
    ],
)
def test_a_row_is_refused_under_sparks_name_for_its_error(error: Exception, code: str, words: str) -> None:
    """Under `EXPRESSION` where Spark has none, and then with Java's or Python's name for it in the message."""
    assert told(error) == (code, words)


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
