"""What an error means for the batch in which it occurred. Types, conditions and SQLSTATEs decide this, never text."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from destinations.batch_folders import NameTaken
from destinations.labels import Late
from origins.errors import RAISED, ErrorCause, WherryError, get_raised_words, is_store_silent, list_causes, list_errors
from runners.model.errors import NO_ROOM, CarryFailed, WorkCancelled
from stages.bisection import EXPRESSION_CODE, LARGE, MARK

_CONFLICT = "another commit came in between"
_CANCELLED = "another program cancelled the Spark job"
_GONE = "a file disappeared after the batch was described"
_AWAY = "a server is down, restarting or too busy"
_FORGOTTEN = ("INVALID_HANDLE.", "RESPONSE_ALREADY_RECEIVED", "NO_ACTIVE_SESSION")
_CONDITIONS = {
    _CONFLICT: (
        "DELTA_CONCURRENT_",
        "DELTA_METADATA_CHANGED",
        "DELTA_SCHEMA_CHANGE_SINCE_ANALYSIS",
        "DELTA_PROTOCOL_CHANGED",
    ),
    _CANCELLED: ("SPARK_JOB_CANCELLED", "OPERATION_CANCELED"),
    _GONE: ("FAILED_READ_FILE.FILE_NOT_EXIST", "DELTA_FILE_NOT_FOUND"),
    _AWAY: ("SPARK_CONNECT_ILLEGAL_STATE.", *_FORGOTTEN),
}
"""The beginnings of Spark's conditions for errors that pass by themselves."""
_NAMES = {
    _CONFLICT: (
        "ConcurrentAppendException",
        "ConcurrentDeleteReadException",
        "ConcurrentDeleteDeleteException",
        "ConcurrentTransactionException",
        "ConcurrentWriteException",
        "MetadataChangedException",
        "ProtocolChangedException",
        "CommitFailedError",
        "MetadataChanged",
        "ProducerFenced",
    ),
    "an executor or its output was lost": (
        "ExecutorLostFailure",
        "FetchFailed",
        "FetchFailedException",
        "MetadataFetchFailedException",
        "BlockMissingException",
    ),
    _AWAY: (
        "TimeoutError",
        "TimeoutException",
        "SocketTimeoutException",
        "ConnectionError",
        "ConnectionResetError",
        "ConnectionRefusedError",
        "ConnectionAbortedError",
        "BrokenPipeError",
        "ConnectException",
        "SocketException",
        "NoRouteToHostException",
        "UnknownHostException",
        "TooManyRequestsException",
        "SlowDownException",
        "ServiceUnavailableException",
        "RequestLimitExceededException",
        "ThrottlingException",
        "AWSApiCallTimeoutException",
        "AWSServiceThrottledException",
        "AWSStatus500Exception",
        "ConnectTimeoutException",
        "HttpHostConnectException",
        "NoHttpResponseException",
    ),
}
"""The types of such errors in Python and Java, for errors without a Spark condition."""
_UNANSWERED = ("UNAVAILABLE", "DEADLINE_EXCEEDED")
_BUSY = (*_UNANSWERED, "RESOURCE_EXHAUSTED")

_DATA = ("22", "23")
"""SQL's classes for a wrong value and for a violated constraint."""
_BROKEN = "DeltaInvariantViolationException"
_WRAPPING = ("TASK_WRITE_FAILED", "_LEGACY_", "PYTHON_EXCEPTION")
"""Conditions that do not name the cause."""
_NO_ROWS_FAULT = ("FAILED_READ_FILE", "DELTA_", "UNABLE_TO_ACQUIRE_MEMORY")
"""Conditions for files that cannot be read, for errors of a table itself, and for full memory."""
_NO_ROWS_FAULT_BY_NAME = (
    "FileNotFoundException",
    "NoSuchFileException",
    "FileSystemException",
    "AccessControlException",
    "AccessDeniedException",
    "ChecksumException",
    "IOException",
    "EOFException",
    "OutOfMemoryError",
    "SparkOutOfMemoryError",
    "InterruptedException",
    "ClosedByInterruptException",
    "TaskKilledException",
    "ClassNotFoundException",
    "NoClassDefFoundError",
    "NoSuchMethodError",
    "UnsatisfiedLinkError",
    "ClassCastException",
    "NotSerializableException",
    "InvalidClassException",
    "CompileException",
)
"""The types of the same errors, of interrupted work, and of code that is missing or does not fit.

They count only for errors without a Spark condition.
"""
_NO_ROOM_IN_WORDS = tuple(map(os.strerror, NO_ROOM))
"""The system's words for a full disk. Java, Rust and Arrow report only these words, and no number."""
_OF_FILES = (
    "IOException",
    "FileSystemException",
    "FileNotFoundException",
    "OSError",
    "DeltaError",
    "CommitFailedError",
)
"""The types of errors that may carry the system's words."""
_NO_ROWS_FAULT_IN_PYTHON = ("FunctionCannotRun", "ImportError", "ModuleNotFoundError", "MemoryError")

_LACKING = (
    "ClassCastException",
    "ClassNotFoundException",
    "NoClassDefFoundError",
    "NoSuchMethodError",
    "NoSuchFieldError",
    "AbstractMethodError",
    "IncompatibleClassChangeError",
    "UnsupportedClassVersionError",
    "ModuleNotFoundError",
)
"""The types of errors for a JAR or a package that is missing, or that has another version.

A task without a JAR may only report that it cannot assign a lambda to a field.
"""
_OTHER_CLASS = "InvalidClassException"
"""The type of the error if the driver and an executor have different versions of a class."""
_OTHER_PYTHON = "[PYTHON_VERSION_MISMATCH]"
"""Spark's condition, as its worker prints it."""


@dataclass(frozen=True, kw_only=True)
class ErrorKind:
    """The meaning of an error. Several fields may hold: a lost session is transient, and leaves the outcome unknown."""

    transient: str = ""
    """Why the error passes by itself, in words. Empty if a person has to act."""
    is_conflict: bool = False
    """Whether a table took another commit instead of this one, such as a fence."""
    is_file_gone: bool = False
    """Whether the rows to read were removed. The rows that the source has now can be read."""
    is_cancelled: bool = False
    """Whether Spark's work was cancelled."""
    is_outcome_unknown: bool = False
    """Whether a connection broke, so that the requested work may still continue."""
    is_session_lost: bool = False
    """Whether the Spark Connect server no longer knows the session, or a request in it."""
    is_value: bool = False
    """Whether Spark or Delta reports that a value is wrong, or violates a constraint."""
    is_row: bool = False
    """Whether a row may have caused the error.

    If in doubt, it is true: the caller then looks for the row without delivering.
    """
    is_refusal: bool = False
    """Whether a stage refused a row of a straight batch."""


def classify(error: BaseException, also: Sequence[str] = ()) -> ErrorKind:
    """Return the kind of the error, from the error itself and from the errors that caused it.

    `also` are the words that the definition adds: parts of errors that pass by themselves, or codes of Wherry's errors.
    """
    errors = [each for each in list_errors(error) if not isinstance(each, CarryFailed)]
    causes = [list_causes(each) for each in errors]
    known = [cause for each in causes for cause in each]
    ours = any(isinstance(each, WherryError) for each in errors)
    named = _find_named(errors, also)
    passing = next(filter(None, map(_find_transient_reason, known)), "")
    if any(isinstance(each, Late) for each in errors):
        transient = "the run's lease ended before its write began"
    elif any(isinstance(each, NameTaken) for each in errors):
        transient = _CONFLICT
    else:
        transient = "" if ours or any(map(is_our_own_jvm, errors)) else passing
    away = is_store_silent(error)
    transient = _AWAY if away else transient
    transient = f"retry.also names it: {named}" if named else transient
    lost = any(cause.condition.startswith(_FORGOTTEN) for cause in known)
    value = any(cause.state.startswith(_DATA) or cause.name == _BROKEN for cause in known)
    return ErrorKind(
        transient=transient,
        is_conflict=transient == _CONFLICT,
        is_file_gone=transient == _GONE,
        is_cancelled=any(isinstance(each, WorkCancelled) for each in errors)
        or any(cause.condition.startswith(_CONDITIONS[_CANCELLED]) for cause in known),
        is_outcome_unknown=lost
        or away
        or any(isinstance(each, (ConnectionError, TimeoutError)) for each in errors)
        or any(cause.status in _UNANSWERED for cause in known),
        is_session_lost=lost,
        is_value=value,
        is_row=value or (not (ours or transient) and any(map(_is_of_a_row, causes))),
        is_refusal=is_refusal(error),
    )


def blames_dlq(error: BaseException) -> bool:
    """Whether the DLQ itself may have caused an error that occurred while it was written.

    It did not if the run had lost the pipeline, or if the work was cancelled.
    """
    late = any(isinstance(each, Late) for each in list_errors(error))
    return not late and not classify(error).is_cancelled


def is_disk_full(error: BaseException) -> bool:
    """Whether a disk was full, or a quota was used up."""
    for each in list_errors(error):
        if isinstance(each, OSError) and each.errno in NO_ROOM:
            return True
        for cause in list_causes(each):
            text = cause.message or ("" if cause.condition else str(each))
            if cause.name in _OF_FILES and any(words in text for words in _NO_ROOM_IN_WORDS):
                return True
    return False


def is_refusal(error: BaseException) -> bool:
    """Whether a stage refused a row of a straight batch."""
    return get_raised_words(error) == MARK


def is_large(error: BaseException) -> bool:
    """Whether a batch contains a large value, or a reference to one, and must start again with `Rows.claims`."""
    return get_raised_words(error) == LARGE


def is_executor_unfit(error: BaseException) -> bool:
    """Whether a task lacked a JAR or a package, or found another version of one or of Python."""
    causes = [cause for each in list_errors(error) for cause in list_causes(each)]
    return any(
        cause.name == _OTHER_CLASS
        or (cause.name in _LACKING and (cause.in_task or cause.in_python))
        or (cause.name == "PySparkRuntimeError" and cause.message.startswith(_OTHER_PYTHON))
        for cause in causes
    )


def explain_row_error(error: BaseException) -> tuple[str, str]:
    """Return the code under which a row with this error is refused, and the cause's message.

    The message is empty if the error itself describes the cause best.
    """
    causes = list_causes(error)
    spark = next((each for each in causes if _says_the_cause(each)), None)
    if spark is not None:
        return spark.condition.partition(".")[0], spark.message.partition("\n")[0].rstrip()
    behind = causes[2:]
    if not behind or any(cause.in_python for cause in causes):
        return EXPRESSION_CODE, ""
    return EXPRESSION_CODE, f"{behind[-1].name}: {behind[-1].message.partition(chr(10))[0]}".rstrip(": ")


def _find_transient_reason(cause: ErrorCause) -> str:
    by_condition = (why for why, signs in _CONDITIONS.items() if cause.condition.startswith(signs))
    by_name = (why for why, names in _NAMES.items() if cause.name in names)
    return next(by_condition, "") or next(by_name, "") or (_AWAY if cause.status in _BUSY else "")


def _find_named(errors: Sequence[BaseException], also: Sequence[str]) -> str:
    """Return the first of the words that any of the errors contains. It may be anywhere in the error."""
    if not also:
        return ""
    texts = [f"{getattr(each, 'code', '')} {type(each).__name__}: {each}" for each in errors]
    return next((sign for text in texts for sign in also if sign in text), "")


def _says_the_cause(cause: ErrorCause) -> bool:
    return bool(cause.condition) and not cause.condition.startswith(_WRAPPING)


def _is_of_a_row(causes: Sequence[ErrorCause]) -> bool:
    """Whether the error comes from evaluating rows, and not from a problem that concerns all rows alike."""
    raised = [cause.message for cause in causes if cause.condition == RAISED]
    if not (raised or any(cause.in_task or cause.in_python for cause in causes)):
        return False
    if any(message.startswith(("WHERRY_", "wherry-")) for message in raised):
        return False
    return not any(_find_transient_reason(cause) for cause in causes) and not any(_concerns_all(causes))


def _concerns_all(causes: Sequence[ErrorCause]) -> Iterator[bool]:
    """Yield for each cause whether it cannot come from a row. Spark's first condition decides, if the error has one."""
    conditions = [cause.condition for cause in causes if _says_the_cause(cause)]
    yield from (condition.startswith(_NO_ROWS_FAULT) for condition in conditions[:1])
    if not conditions:
        yield from (cause.name in _NO_ROWS_FAULT_BY_NAME for cause in causes)
    yield from (cause.in_python and cause.name in _NO_ROWS_FAULT_IN_PYTHON for cause in causes)


def is_our_own_jvm(error: BaseException) -> bool:
    """Whether the bridge to this process's JVM raised the error, because the JVM is gone. No run starts it again."""
    if type(error).__name__ in ("Py4JNetworkError", "Py4JJavaError"):
        return type(error).__name__ == "Py4JNetworkError"  # a Py4JJavaError is an answer of the JVM, so it still runs
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    return trace is not None and str(trace.tb_frame.f_globals.get("__name__", "")).startswith("py4j.")
