"""What a Python function says of a row when it does not change it: `keep`, `discard`, `nack("why")`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

NACK_CODE = "PYTHON"
ANSWER_CODE = "ANSWER"
RAISED_CODE = "RAISED"
LOST_CODE = "LOST"


@dataclass(frozen=True, kw_only=True)
class Answer:
    """What becomes of one row."""

    fate: Literal["keep", "discard", "nack"]
    message: str = ""
    code: str = ""


keep = Answer(fate="keep")
"""The row goes on as it came."""
discard = Answer(fate="discard")
"""The row is not wanted: it leaves, and counts as filtered."""


def nack(why: str, *, code: str = NACK_CODE) -> Answer:
    """The row is refused, with this reason."""
    return Answer(fate="nack", message=as_text(why), code=as_text(code))


def as_text(value: Any) -> str:
    """The value as text that UTF-8 can hold. A lone surrogate becomes an escape, a value without words its type."""
    try:
        text = str(value)
    except Exception:
        text = f"a {type(value).__name__} that cannot be shown"
    return _escaped(text)


def shown(value: Any) -> str:
    """A value of a function's as it stands in a message."""
    try:
        text = repr(value)
    except Exception:
        text = f"a {type(value).__name__}"
    return _escaped(text if len(text) <= 80 else text[:80] + "…")


def _escaped(text: str) -> str:
    return str.encode(text, "utf-8", "backslashreplace").decode()
