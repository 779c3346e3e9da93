"""Errors for people, each with a code and a remedy; and the causes of errors of other libraries."""

from __future__ import annotations

import contextlib
import errno
import re
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from itertools import zip_longest
from typing import Any

from origins.batch import Batch
from origins.lazy import py4j_errors, spark_errors
from origins.spark_private import format_java_frames, get_java_throwable


class WherryError(Exception):
    """An error that a person can act on: what was expected, what was found, where, and what to do."""

    code = "FAILED"
    batch: Batch | None = None
    """The batch that was being carried, if any."""
    is_away: bool = False
    """Whether a store did not answer, or asked for fewer requests. Such an error passes by itself."""

    def __init__(self, message: str, *, hint: str = "", is_away: bool = False) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint
        self.is_away = is_away

    def __str__(self) -> str:
        return f"{self.message}\n{self.hint}" if self.hint else self.message


class OriginError(WherryError):
    """The origin's place is missing, or its rows differ from the plan."""

    code = "ORIGIN"


TOO_LARGE = "ResultTooLarge"
"""The name of the cause if results exceed Spark's limit of bytes. Spark has no condition for it."""
RAISED = "USER_RAISED_EXCEPTION"
"""Spark's condition for an error of `raise_error`."""
_ABORTED = "Job aborted due to stage failure: "
_RESULTS = _ABORTED + "Total size of serialized results of "
_IN_TASK = re.compile(
    r"\borg\.apache\.spark\.(?:executor\.Executor\$TaskRunner\."
    r"|scheduler\.DAGScheduler\.(?:\$anonfun\$)?abortStage"
    r"|sql\.catalyst\.optimizer\.ConvertToLocalRelation\$)"
)
"""The frames of a task, of the end of a stage whose task failed, or of the optimizer for a few rows."""
_HEAD = re.compile(
    r"(?P<mark>\A|^Caused by: |\bLost task \S+ in stage \S+(?: \([^)]*\))+: |\bException while getting task result: )"
    r"(?:[A-Za-z_][\w$]*\.)*(?P<name>[A-Z][\w$]*)(?=[:\s(]|\Z)(?:: )?",
    re.MULTILINE,
)
_CONDITION = re.compile(r"\s*(?:\((?:[a-z][\w$]*\.)+[A-Z][\w$]*\) )?\[(?P<condition>[A-Z_][A-Z0-9_.]+)\] ?")
_STATE = re.compile(r"\s*\bSQLSTATE: (?P<state>[0-9A-Z]{5})\b")
_PYTHON = re.compile(r"^(?:[A-Za-z_]\w*\.)*(?P<name>[A-Z]\w+)(?=:|$)(?:: )?(?P<message>.*)", re.MULTILINE)
"""The place where a Python traceback names its error."""
_WORKER = "PythonException"
"""Spark's name for an error that a Python function raised."""
_DEEPEST = 30


@dataclass(frozen=True, kw_only=True)
class ErrorCause:
    """One error of a chain of causes."""

    name: str
    """Its type in Python or Java, without the package."""
    condition: str = ""
    """Spark's name for it, such as `CAST_INVALID_INPUT` or `FAILED_READ_FILE.NO_HINT`; empty if Spark has none."""
    state: str = ""
    """Its SQLSTATE."""
    status: str = ""
    """The status of gRPC with which a server's answer, or the lack of one, ended."""
    message: str = ""
    """Its message, without the condition and the SQLSTATE."""
    in_task: bool = False
    """Whether its stack shows that rows were being evaluated."""
    in_python: bool = False
    """Whether a Python function raised it in one of Spark's workers."""


def is_store_silent(error: BaseException) -> bool:
    """Return whether an unreachable store is the error or one of its causes."""
    return any(isinstance(each, WherryError) and each.is_away for each in list_errors(error))


def has_no_links(error: OSError) -> bool:
    """Whether a file system refuses hard links, as folders of /Volumes and /Workspace do."""
    return error.errno in (errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK)


@contextlib.contextmanager
def clean_up_by(clean: Callable[[], object]) -> Iterator[None]:
    """Call `clean` at the end of this block. It never hides the error of the block; its own error is then a note."""
    try:
        yield
    except BaseException as error:
        try:
            clean()
        except Exception as later:  # noqa: BLE001 -- the first error is the cause, and is raised
            attach_later(error, later)
        raise
    clean()


def attach_later(error: BaseException, later: Exception) -> None:
    """Note an error of the clean-up that followed this error, for traces. Python 3.10 has no notes."""
    if sys.version_info >= (3, 11):
        error.add_note(f"The clean-up failed too: {type(later).__name__}: {later}")


def list_errors(error: BaseException | None) -> list[BaseException]:
    """Return the error and the errors that it was raised from, the outermost first."""
    found: list[BaseException] = []
    while error is not None and all(error is not each for each in found):
        found.append(error)
        error = error.__cause__
    return found


def list_causes(error: BaseException) -> list[ErrorCause]:
    """Return what is known of this one error: its type, then the causes of a Spark error.

    These causes are what the JVM or the server raised, and the causes behind that.
    """
    throwable = get_java_throwable(error)
    if throwable is not None:
        return [ErrorCause(name=type(error).__name__), *_list_java_causes(throwable)]
    if hasattr(error, "getCondition"):
        return _list_spark_causes(error)
    status = error.code() if hasattr(error, "code") and callable(error.code) else None  # of gRPC
    return [ErrorCause(name=type(error).__name__, status=getattr(status, "name", ""))]


def get_condition(error: Any) -> str:
    """Return the Spark condition of an error of pyspark; empty if it has none."""
    return error.getCondition() or ""


def can_name_conditions() -> bool:
    """Return whether the errors of the installed pyspark name their conditions, as they do since Spark 4.0."""
    return hasattr(spark_errors.PySparkException, "getCondition")


def has_condition(error: BaseException, *conditions: str) -> bool:
    """Return whether the Spark condition of the error, or of one of its causes, contains one of these names."""
    found = [cause.condition for each in list_errors(error) for cause in list_causes(each)]
    return any(name in condition for name in conditions for condition in found)


def get_raised_words(error: BaseException) -> str:
    """Return the text given to `raise_error` in the query that ended with this error; empty for any other error."""
    causes = (cause for each in list_errors(error) for cause in list_causes(each))
    return next((cause.message for cause in causes if cause.condition == RAISED), "")


def is_too_large(error: BaseException) -> bool:
    """Return whether the rows exceed the amount that Spark may return."""
    return any(cause.name == TOO_LARGE for cause in list_causes(error))


def list_spark_errors(*also: type[Exception]) -> tuple[type[Exception], ...]:
    """Return these types and the errors of Spark's clients, which have no common type. Import nothing."""
    known = (("pyspark.errors", "PySparkException"), ("py4j.protocol", "Py4JError"))
    found = (getattr(sys.modules.get(module), name, None) for module, name in known)
    return (OSError, *also, *(each for each in found if each is not None))


def parse_heads(text: str) -> Iterator[ErrorCause]:
    """Yield the errors that a Java text names in its heads: `a.b.Name: [CONDITION] … SQLSTATE: 22012`.

    A head begins the text, or follows `Caused by: ` or Spark's `Lost task … (…): ` and `Exception while getting task
    result: `. Spark reports some errors only as such texts: those from executors, the causes of an error on Spark
    Connect, and errors of Python workers.
    """
    heads = list(_HEAD.finditer(text))
    for head, behind in zip_longest(heads, heads[1:]):
        section = text[head.end() : behind.start("mark") if behind else len(text)]
        message, _, frames = section.partition("\n\tat ")
        condition = _CONDITION.match(message)
        states = _STATE.findall(message.partition("\n== ")[0])
        cause = ErrorCause(
            name=head["name"],
            condition=condition["condition"] if condition else "",
            state=states[-1] if states else "",
            message=_clean(message),
            in_task=head["mark"].startswith("Lost task") or bool(_IN_TASK.search(frames)),
        )
        if message.startswith(_RESULTS):
            yield replace(cause, name=TOO_LARGE)
        elif head["name"] == _WORKER:
            yield from _list_python_causes(message)
        else:
            yield cause


def _list_java_causes(throwable: Any) -> Iterator[ErrorCause]:
    """Yield the throwable and its causes, which are objects of the JVM."""
    try:
        for _ in range(_DEEPEST):
            cause = throwable.getCause()
            name, message = throwable.getClass().getName(), throwable.getMessage() or ""
            condition = str(_call_getter(throwable, "getCondition") or "")
            if name.endswith(f".{_WORKER}"):
                first, *others = _list_python_causes(message)
            elif cause is None and message.startswith(_ABORTED):
                first, *others = parse_heads(f"{name}: {message}")
            else:
                first, others = ErrorCause(name=re.split(r"[.$]", name)[-1], message=_clean(message)), []
            parameters = _call_getter(throwable, "getMessageParameters") if condition == RAISED else None
            yield replace(
                first,
                condition=condition or first.condition,
                state=str(_call_getter(throwable, "getSqlState") or first.state),
                message=parameters.get("errorMessage", first.message) if parameters else first.message,
                in_task=bool(_IN_TASK.search(format_java_frames(throwable))),
            )
            yield from others
            if cause is None:
                return
            throwable = cause
    except (py4j_errors.Py4JNetworkError, OSError):  # the JVM has ended meanwhile and reports no more
        return


def _call_getter(throwable: Any, name: str) -> Any:
    """Return the result of a getter of a Spark throwable; None if the throwable has no such getter."""
    try:
        return getattr(throwable, name)()
    except py4j_errors.Py4JNetworkError:
        raise
    except (py4j_errors.Py4JError, AttributeError):
        return None


def _list_spark_causes(error: Any) -> list[ErrorCause]:
    """Return the causes of an error of Spark Connect's client, or of pyspark itself."""
    condition = get_condition(error)
    status = getattr(error.getGrpcStatusCode(), "name", "") if hasattr(error, "getGrpcStatusCode") else ""
    stack = (error.getStackTrace() if hasattr(error, "getStackTrace") else None) or ""
    message, name = str(error).strip(), type(error).__name__
    root, *behind = [*parse_heads(stack)] or [ErrorCause(name=name)]
    if name == _WORKER:
        cause, *behind = _list_python_causes(message)
    elif condition or (behind and not message.startswith("[")):
        cause = ErrorCause(name=root.name, condition=condition, message=_clean(message))
    else:
        cause, *others = parse_heads(f"{root.name}: {message}")
        behind = behind or others
    parameters = error.getMessageParameters() if condition == RAISED else None
    root = replace(
        cause,
        state=(error.getSqlState() if condition else "") or cause.state,
        message=(parameters or {}).get("errorMessage", cause.message),
        in_task=cause.in_task or root.in_task,
    )
    return [ErrorCause(name=name, status=status), root, *behind]


def _list_python_causes(text: str) -> list[ErrorCause]:
    """Return Spark's error for a Python function that raised, then the errors that its traceback names."""
    named = (
        ErrorCause(name=found["name"], message=found["message"], in_python=True) for found in _PYTHON.finditer(text)
    )
    return [ErrorCause(name=_WORKER, message=text, in_python=True), *named]


def _clean(message: str) -> str:
    """Return the message without the condition before it, and without everything from its SQLSTATE on."""
    condition = _CONDITION.match(message)
    message = message[condition.end() :] if condition else message
    states = list(_STATE.finditer(message.partition("\n== ")[0]))
    return message[: states[-1].start()] if states else message.rstrip()
