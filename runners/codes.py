"""What the codes of errors and of refused rows mean, as CODES.md says it to people and `wherry explain` prints it."""

from __future__ import annotations

import functools
import re
from collections.abc import Mapping
from pathlib import Path

DOCUMENT = Path(__file__).parent / "CODES.md"
_ENTRY = re.compile(r"^### `(?P<code>\w+)`\n(?P<text>.*?)(?=^##|\Z)", re.DOTALL | re.MULTILINE)


@functools.cache
def codes() -> Mapping[str, str]:
    """What each code means and what to do, in the order of the document."""
    document = DOCUMENT.read_text(encoding="utf-8")
    return {entry["code"]: entry["text"].strip() for entry in _ENTRY.finditer(document)}


def summary(code: str) -> str:
    """What a code means, up to the first full stop or colon."""
    said = " ".join(codes()[code].split("\n- ")[0].split())
    return re.split(r"(?<=[.:]) ", said)[0].removesuffix(":").removesuffix(".") + "."
