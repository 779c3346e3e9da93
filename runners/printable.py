"""Text from elsewhere, data among it, as a terminal may show it."""

from __future__ import annotations

import re

_CONTROLS = re.compile("[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028\u2029\u202a-\u202e\u2066-\u2069]")
_SHORT = {"\n": "\\n", "\r": "\\r", "\t": "\\t"}


def escape_controls(text: str) -> str:
    """The text with escapes in the place of what moves a cursor, changes colours or turns the direction of writing.
    Line breaks and tabs stay. JSON stays the same JSON."""
    return _CONTROLS.sub(lambda found: found.group() if found.group() in "\n\t" else _escaped(found.group()), text)


def escape_line(text: str) -> str:
    """The same, and no line break and no tab either, so that no line can be forged."""
    return _CONTROLS.sub(lambda found: _escaped(found.group()), text)


def _escaped(control: str) -> str:
    return _SHORT.get(control) or f"\\u{ord(control):04x}"
