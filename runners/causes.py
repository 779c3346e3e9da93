"""Which errors pass by themselves, so that the same batch is worth another try, and which want a person. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from destinations.deadline import Late
from origins.errors import WherryError
from runners.errors import CarryFailed

_FORGOTTEN = ("INVALID_HANDLE.", "RESPONSE_ALREADY_RECEIVED", "NO_ACTIVE_SESSION")
_CAME_BETWEEN = "somebody else's commit came in between"
_CANCELLED = "somebody cancelled the Spark job"
_GONE = "a file is gone that was there when the batch was described"
PASSING = {
    _CAME_BETWEEN: (
        "DELTA_CONCURRENT_",
        "DELTA_METADATA_CHANGED",
        "DELTA_SCHEMA_CHANGE_SINCE_ANALYSIS",
        "DELTA_PROTOCOL_CHANGED",
        "ConcurrentAppendException",
        "ConcurrentDeleteReadException",
        "ConcurrentDeleteDeleteException",
        "ConcurrentTransactionException",
        "ConcurrentWriteException",
        "MetadataChangedException",
        "ProtocolChangedException",
        "CommitFailedError",
        "MetadataChanged",
    ),
    "an executor or what it had written was lost": (
        "ExecutorLostFailure",
        "FetchFailed",
        "MetadataFetchFailedException",
        "BlockMissingException",
    ),
    _CANCELLED: ("SPARK_JOB_CANCELLED", "OPERATION_CANCELED"),
    _GONE: ("FAILED_READ_FILE.FILE_NOT_EXIST", "DELTA_FILE_NOT_FOUND"),
    "a server is away, restarting or too busy": (
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
        "UNAVAILABLE",
        "SPARK_CONNECT_ILLEGAL_STATE.",
        *_FORGOTTEN,
        "RESOURCE_EXHAUSTED",
        "DEADLINE_EXCEEDED",
        "TooManyRequestsException",
        "SlowDownException",
        "ServiceUnavailableException",
        "RequestLimitExceededException",
        "ThrottlingException",
    ),
}
"""By the name of the error, in Python or Java, or the beginning of Spark's name for it. Never by what it says, for that
may be a row's."""

_UNANSWERED = (ConnectionError, TimeoutError)
_NAMES = re.compile(
    r"^(?:\((?:[a-z][\w$]*\.)+[A-Z]\w+\) )?\[(?P<spark>[A-Z][A-Z0-9_.]+)\]"
    r"|^(?:: |Caused by: )?(?:[a-z][\w$]*\.)+(?P<java>[A-Z]\w+)(?:: \[(?P<behind>[A-Z][A-Z0-9_.]+)\])?(?=[:\s]|$)"
    r"|^Caused by: (?P<plain>[A-Z]\w+)(?=[:\s]|$)"
    r"|Lost task \S+ in stage \S+(?: \([^)]*\))+: (?P<task>[A-Z]\w+)"
    r"|^\s*status = StatusCode\.(?P<grpc>[A-Z_]+)",
    re.MULTILINE,
)


def passing(error: Exception, also: Sequence[str] = ()) -> str | None:
    """Why this passes by itself, in words; None if it does not, as far as is known. What Wherry itself says wants a
    person, and so does a Spark of our own that is gone. `also` are words that may stand anywhere in the error, or the
    code of one of Wherry's."""
    chain = list(_chain(error))
    for cause in chain:
        said = f"{getattr(cause, 'code', '')} {type(cause).__name__}: {cause}"
        own = next((sign for sign in also if sign in said), None)
        if own is not None:
            return f"retry.also names it: {own}"
    if any(isinstance(cause, Late) for cause in chain):
        return "the run's lease was over when its write began"
    if any(isinstance(cause, WherryError) or _is_our_own_jvm(cause) for cause in chain):
        return None
    names = [name for cause in chain for name in _names(cause)]
    for why, signs in PASSING.items():
        if any(name.startswith(sign) for name in names for sign in signs):
            return why
    return None


def came_between(error: Exception) -> bool:
    """Whether a table took another commit than this one, a fence say: nothing is wrong with it."""
    return passing(error) == _CAME_BETWEEN


def lost_a_file(error: Exception) -> bool:
    """Whether somebody took away what was to be read, a vacuum say: what stands there now can be read."""
    return passing(error) == _GONE


def is_cancelled(error: Exception) -> bool:
    """Whether this is how Spark says that its work was cancelled."""
    names = [name for cause in _chain(error) for name in _names(cause)]
    return any(name.startswith(sign) for name in names for sign in PASSING[_CANCELLED])


def unanswered(error: Exception) -> bool:
    """Whether nobody said how the work ended: a connection broke, and what was asked for may still be under way."""
    return forgotten(error) or any(
        isinstance(cause, _UNANSWERED) or {"UNAVAILABLE", "DEADLINE_EXCEEDED"} & set(_names(cause))
        for cause in _chain(error)
    )


def forgotten(error: Exception) -> bool:
    """Whether this is how Spark Connect says that the server knows the session no more, or what was asked of it: it was
    started anew, say."""
    return any(name.startswith(_FORGOTTEN) for cause in _chain(error) for name in _names(cause))


def _chain(error: Exception) -> Iterator[BaseException]:
    """The error itself, and what it was raised from; what only wraps an error of Spark is left out."""
    cause: BaseException | None = error
    seen: set[int] = set()
    while cause is not None and id(cause) not in seen:
        seen.add(id(cause))
        if not isinstance(cause, CarryFailed):
            yield cause
        cause = cause.__cause__


def _names(cause: BaseException) -> Iterator[str]:
    """What the error is called: its type, and where lines of it begin as Spark and Java begin them."""
    yield type(cause).__name__
    yield from names_in(str(cause))


def names_in(said: str) -> Iterator[str]:
    """The names of errors in such a text, where its lines begin as Spark and Java begin them."""
    for found in _NAMES.finditer(said):
        yield from (name for name in found.groups() if name)


def _is_our_own_jvm(cause: BaseException) -> bool:
    """Whether it was raised by the bridge to the JVM of this process, which nobody starts again."""
    if type(cause).__name__ in ("Py4JNetworkError", "Py4JJavaError"):
        return type(cause).__name__ == "Py4JNetworkError"  # the other one is the JVM's own answer, so it is there
    trace = cause.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    return trace is not None and trace.tb_frame.f_globals.get("__name__", "").startswith("py4j.")
