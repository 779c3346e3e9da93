"""A search by halves for the rows at which a function raises."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TypeVar

T = TypeVar("T")

FAILS = "WHERRY_FAILS "
"""The beginning of an error that Wherry raises in a query to fail the whole batch."""
MARK = "WHERRY_REFUSED"
"""The text of the error of a straight batch when a stage refused a row."""
LARGE = "WHERRY_LARGE"
"""The text of the error of a batch with a large value, or a reference to one, if `Rows.claims` is false."""
EXPRESSION_CODE = "EXPRESSION"
"""The code of a row for which Spark raises an error without a condition."""


class AttemptRaised(Exception):
    """An attempt failed, perhaps because of one of its rows."""

    def __init__(self, message: str, code: str) -> None:
        super().__init__(message)
        self.message = message
        self.code = code


def bisect_rows(rows: int, attempt: Callable[[int, int], T]) -> Iterator[tuple[int, int, T | AttemptRaised]]:
    """Yield pieces of the rows from 0 on, in order: `first`, `end` (exclusive) and the result of `attempt(first, end)`.

    For a single row, the result may be the `AttemptRaised` that the attempt raised. No row is attempted again after an
    attempt with it succeeded. If k of n rows raise, there are at most 1 + 2·k·⌈log2 n⌉ attempts. Rows that raise only
    together are attempted separately.
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
