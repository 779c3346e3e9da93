"""Which errors a row may be to blame for: a value that an expression or a column cannot take. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator

from runners.session import in_short
from stages.halving import EXPRESSION_CODE

_DATA = re.compile(r"\bSQLSTATE: (?:22|23)\w{3}\b|\bDeltaInvariantViolationException: ")
"""How Spark and Delta mark what is wrong with data: SQL's classes 22 (a value) and 23 (a constraint)."""
_CODE = re.compile(r"^\[(?P<code>[A-Z][A-Z0-9_]+)(?:\.[A-Z0-9_]+)*\]\s*")


def of_a_row(error: BaseException) -> bool:
    """Whether a row may be to blame. Errs towards yes: who asks looks for that row next, where nothing can land."""
    return any(_DATA.search(str(cause)) for cause in _chain(error))


def told(error: BaseException) -> tuple[str, str]:
    """A code and the cause's own words."""
    said = in_short(error)
    found = _CODE.match(said)
    return (found["code"], said[found.end() :]) if found else (EXPRESSION_CODE, said)


def _chain(error: BaseException | None) -> Iterator[BaseException]:
    seen: set[int] = set()
    while error is not None and id(error) not in seen:
        seen.add(id(error))
        yield error
        error = error.__cause__
