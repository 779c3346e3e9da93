"""Finding the rows at which something raises, by halving."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TypeVar

T = TypeVar("T")

FAILS = "WHERRY_FAILS "
"""How an error begins that Wherry raises in a query to fail the whole batch."""
MARK = "WHERRY_REFUSED"
"""What the error of a straight batch says when a stage refused a row."""
LARGE = "WHERRY_LARGE"
"""What the error of a batch says that met a large value, or a reference to one, without `Rows.claims`."""
EXPRESSION_CODE = "EXPRESSION"
"""Of a row at which Spark raises and has no name for it."""


class AttemptRaised(Exception):
    """An attempt went wrong, perhaps because of one of its rows."""

    def __init__(self, message: str, code: str) -> None:
        super().__init__(message)
        self.message = message
        self.code = code


def bisect_rows(rows: int, attempt: Callable[[int, int], T]) -> Iterator[tuple[int, int, T | AttemptRaised]]:
    """The rows from 0 on, in order and in pieces: what `attempt(first, end)` gave for a piece, `end` exclusive, or what
    it raised (`AttemptRaised`) for a row that stands alone.

    No row is attempted again once it was in a piece that went well. For k rows that raise among n there are at most
    1 + 2·k·⌈log2 n⌉ attempts. What raises only while rows are together is attempted apart.
    """
    waiting = [(0, rows)] if rows else []
    while waiting:
        first, end = waiting.pop()
        try:
            yield first, end, attempt(first, end)
        except AttemptRaised as error:
            if end - first == 1:
                yield first, end, error
                continue
            middle = (first + end) // 2
            waiting += [(middle, end), (first, middle)]
