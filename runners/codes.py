"""What the codes of errors and of refused rows mean, as CODES.md says it to people and `wherry explain` prints it."""

from __future__ import annotations

import functools
import re
from collections.abc import Mapping
from pathlib import Path

DOCUMENT = Path(__file__).parent / "CODES.md"
_ENTRY = re.compile(r"^### `(?P<code>\w+)`\n(?P<text>.*?)(?=^##|\Z)", re.DOTALL | re.MULTILINE)
_SENTENCE = re.compile(r"(?P<said>(?:`[^`]*`|[^`])*?)[.:](?: |$)")
"""A dot or a colon between backticks ends no sentence."""


@functools.cache
def codes() -> Mapping[str, str]:
    """What each code means and what to do, in the order of the document."""
    document = DOCUMENT.read_text(encoding="utf-8")
    return {entry["code"]: entry["text"].strip() for entry in _ENTRY.finditer(document)}


def summary(code: str) -> str:
    """What a code means, up to the first full stop or colon; one inside of a name or a command ends nothing."""
    said = " ".join(codes()[code].split("\n- ")[0].split())
    first = _SENTENCE.match(said)
    assert first is not None, code
    return f"{first['said']}."
