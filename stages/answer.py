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
    return Answer(fate="nack", message=str(why), code=code)


def unanswered(answers: int, rows: int) -> Answer:
    """What becomes of a row for which there is no answer."""
    return Answer(
        fate="nack", message=f"there are {answers} answers for {rows} rows, none for this one", code=ANSWER_CODE
    )


def shown(value: Any) -> str:
    """A value of a function's as it stands in a message."""
    try:
        text = repr(value)
    except Exception:
        text = f"a {type(value).__name__}"
    return text if len(text) <= 80 else text[:80] + "…"
