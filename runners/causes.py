"""Which errors pass by themselves, so that the same batch is worth another try, and which want a person. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from origins.errors import WherryError
from runners.errors import CarryFailed

PASSING = {
    "somebody else's commit came in between": (
        "DELTA_CONCURRENT_",
        "ConcurrentAppendException",
        "ConcurrentDeleteReadException",
        "ConcurrentDeleteDeleteException",
        "ConcurrentTransactionException",
        "ConcurrentWriteException",
        "DELTA_METADATA_CHANGED",
        "MetadataChangedException",
    ),
    "an executor or what it had written was lost": (
        "ExecutorLostFailure",
        "FetchFailed",
        "MetadataFetchFailedException",
        "BlockMissingException",
    ),
    "somebody cancelled the Spark job": ("SPARK_JOB_CANCELLED", "OPERATION_CANCELED", "cancelled part of cancelled"),
    "a server is away, restarting or too busy": (
        "TimeoutError",
        "TimeoutException",
        "ConnectionError",
        "ConnectionResetError",
        "ConnectionRefusedError",
        "ConnectionAbortedError",
        "BrokenPipeError",
        "ConnectException",
        "SocketException",
        "NoRouteToHostException",
        "UnknownHostException",
        "StatusCode.UNAVAILABLE",
        "StatusCode.RESOURCE_EXHAUSTED",
        "StatusCode.DEADLINE_EXCEEDED",
        "TooManyRequests",
        "SlowDown",
        "ServiceUnavailable",
        "RequestLimitExceeded",
        "Throttling",
    ),
}
"""By what is to be found in the error's type, words or class of Spark."""


def passing(error: Exception, also: Sequence[str] = ()) -> str | None:
    """Why this passes by itself, in words; None if it does not, as far as is known. What Wherry itself says wants a
    person, unless `also` names its code."""
    for cause in _chain(error):
        said = f"{type(cause).__name__}: {cause}"
        if isinstance(cause, WherryError):
            said = f"{cause.code} {said}"
        own = next((sign for sign in also if sign in said), None)
        if own is not None:
            return f"retry.also names it: {own}"
        if isinstance(cause, WherryError):
            return None
        for why, signs in PASSING.items():
            if any(sign in said for sign in signs):
                return why
    return None


def _chain(error: Exception) -> Iterator[BaseException]:
    """The error itself, and what it was raised from; what only wraps an error of Spark is left out."""
    cause: BaseException | None = error
    seen: set[int] = set()
    while cause is not None and id(cause) not in seen:
        seen.add(id(cause))
        if not isinstance(cause, CarryFailed):
            yield cause
        cause = cause.__cause__
