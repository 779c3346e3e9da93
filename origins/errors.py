"""Errors that a person reads, each with a code, and what to do about it."""

from __future__ import annotations

from origins.batch import Batch


class WherryError(Exception):
    """Something that a person can act on: what was expected, what came, where, and what to do."""

    code = "FAILED"
    batch: Batch | None = None
    """The batch that was being carried, where it was one."""

    def __init__(self, message: str, *, hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint

    def __str__(self) -> str:
        return f"{self.message}\n{self.hint}" if self.hint else self.message


class OriginError(WherryError):
    """The origin's place is missing, or its rows are not what was planned."""

    code = "ORIGIN"
