"""Which errors a row may be to blame for: they come from evaluating it, and do not pass by themselves. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from origins.errors import WherryError
from runners.causes import PASSING, names_in, passing
from runners.errors import CarryFailed
from runners.session import in_short
from stages.halving import EXPRESSION_CODE

_DATA = re.compile(r"\bSQLSTATE: (?:22|23)\w{3}\b|\bDeltaInvariantViolationException: ")
"""How Spark and Delta mark what is wrong with data: SQL's classes 22 (a value) and 23 (a constraint)."""
_EVALUATING = re.compile(
    r"^\s*at org\.apache\.spark\.(?:executor\.Executor\$TaskRunner\."
    r"|scheduler\.DAGScheduler\.(?:\$anonfun\$)?abortStage"
    r"|sql\.catalyst\.optimizer\.ConvertToLocalRelation\$)"
    r"|\bSQLSTATE: P0001\b|^.*\bLost task \S+ in stage \S+ \(TID \d+\)",
    re.MULTILINE,
)
"""What shows that rows were evaluated: the frames of a task, of the end of a stage whose task failed, or of the
optimizer for a few rows. For a server that keeps its stacks to itself it is the SQLSTATE of `raise_error`, or how Spark
says that a task was lost."""
_ON_PURPOSE = re.compile(r"\[USER_RAISED_EXCEPTION\] (?:WHERRY_|wherry-)")
"""How errors begin that Wherry itself raises in a query."""
_CLASS = re.compile(
    r"(?:\A|^(?:.*\): |: |Caused by: )?(?:[a-z][\w$]*\.)+[A-Z][\w$]*: )\[(?P<code>[A-Z][A-Z0-9_]+)(?:\.[A-Z0-9_]+)*\]",
    re.MULTILINE,
)
"""Spark's name for an error, where the error or one of its causes begins."""
_CAUSE = re.compile(
    r"^(?:Caused by|.*\bLost task \S+ in stage .*\)): (?:[\w$]+\.)*(?P<name>[A-Z][\w$]*)(?:: (?P<said>.*))?$",
    re.MULTILINE,
)
"""Where the lines begin that name what a task raised."""
_WRAPPING = ("TASK_WRITE_FAILED", "_LEGACY_")
"""Names of Spark's that say nothing of the cause."""
_PYTHON = re.compile(r"^(?:[a-z_]\w*\.)*(?P<name>[A-Z]\w+)(?=:|$)", re.MULTILINE)
"""Where a traceback of Python's names its error."""

_NO_ROWS_FAULT = {
    "a file is missing, was changed, or cannot be read": (
        "FAILED_READ_FILE",
        "FileNotFoundException",
        "NoSuchFileException",
        "FileSystemException",
        "AccessControlException",
        "AccessDeniedException",
        "ChecksumException",
        "IOException",
        "EOFException",
    ),
    "a table says it of itself, maybe behind its commit": ("DELTA_",),
    "memory or a disk is full": ("OutOfMemoryError", "SparkOutOfMemoryError", "UNABLE_TO_ACQUIRE_MEMORY"),
    "the work was interrupted": ("InterruptedException", "ClosedByInterruptException", "TaskKilledException"),
    "code is missing or does not fit, for all rows alike": (
        "ClassNotFoundException",
        "NoClassDefFoundError",
        "NoSuchMethodError",
        "UnsatisfiedLinkError",
        "ClassCastException",
        "NotSerializableException",
        "InvalidClassException",
        "CompileException",
    ),
}
"""By Spark's name for the error, or by Java's where Spark has none."""
_NO_ROWS_FAULT_IN_PYTHON = ("FunctionCannotRun", "ImportError", "ModuleNotFoundError", "MemoryError")


def of_a_row(error: Exception, also: Sequence[str] = ()) -> bool:
    """Whether a row may be to blame. Errs towards yes: who asks looks for that row next, where nothing can land.

    What comes from a task, or from an expression, has landed nothing. `also` are words of errors that pass by
    themselves, as for `passing`.
    """
    if of_a_value(error):
        return True
    chain = list(_chain(error))
    ours = any(isinstance(cause, WherryError) and not isinstance(cause, CarryFailed) for cause in chain)
    if ours or passing(error, also) is not None:
        return False
    return any(map(_is_evaluated, chain))


def of_a_value(error: Exception) -> bool:
    """Whether Spark or Delta says so itself: a value is wrong, or breaks a constraint."""
    return any(_DATA.search(str(cause)) for cause in _chain(error))


def told(error: BaseException) -> tuple[str, str]:
    """A code and the cause's own words."""
    said, trace = in_short(error), _trace(error)
    code = _spark_class(trace)
    if code:
        found = re.search(rf"\[{code}(?:\.[A-Z0-9_]+)*\]\s*(?P<said>[^\n]*)", trace)
        words = found["said"] if found else said
        return code, re.sub(r"\s*SQLSTATE: \w+.*$", "", words)
    causes = list(_CAUSE.finditer(trace))
    if causes and not _in_python(error):
        said = f"{causes[-1]['name']}: {causes[-1]['said'] or ''}".rstrip(": ")
    return EXPRESSION_CODE, said


def _is_evaluated(error: BaseException) -> bool:
    """Whether the error comes from evaluating rows, and from nothing that concerns all of them alike."""
    trace = _trace(error)
    code, names = _spark_class(trace), [type(error).__name__, *names_in(trace)]
    in_python = _in_python(error)
    if not (in_python or _EVALUATING.search(trace)) or _ON_PURPOSE.search(trace):
        return False
    python = [found["name"] for found in _PYTHON.finditer(trace)] if in_python else []
    passes = [sign for signs in PASSING.values() for sign in signs]
    elsewhere = [sign for signs in _NO_ROWS_FAULT.values() for sign in signs]
    return not (
        _begins([*names, *python], passes)
        or _begins([code] if code else names, elsewhere)
        or _begins(python, _NO_ROWS_FAULT_IN_PYTHON)
    )


def _in_python(error: BaseException) -> bool:
    """Whether a Python function raised it in one of Spark's workers."""
    return "PythonException" in (type(error).__name__, *names_in(_trace(error)))


def _spark_class(trace: str) -> str:
    """Spark's name for the error, or for the first of its causes that has one; nothing if none has."""
    found = (each["code"] for each in _CLASS.finditer(trace))
    return next((code for code in found if not code.startswith(_WRAPPING)), "")


def _begins(names: Sequence[str], signs: Sequence[str]) -> bool:
    return any(name.startswith(tuple(signs)) for name in names)


def _trace(error: BaseException) -> str:
    """What the error says, and the stack of the server that raised it, where the client keeps one."""
    stack = getattr(error, "_stackTrace", None) or getattr(error, "_stacktrace", None) or ""
    return f"{error}\n{stack}"


def _chain(error: BaseException | None) -> Iterator[BaseException]:
    seen: set[int] = set()
    while error is not None and id(error) not in seen:
        seen.add(id(error))
        yield error
        error = error.__cause__
