"""Colour on a terminal: which words have which, and whether there is any."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterator, Sequence
from itertools import pairwise

_CODES = {"bold": 1, "dim": 2, "red": 31, "green": 32, "yellow": 33}
_LOOKS = {
    **dict.fromkeys(("succeeded", "ok", "balances"), "green"),
    **dict.fromkeys(("failed", "killed", "problem"), "red"),
    **dict.fromkeys(("refused", "stopped", "skipped"), "yellow"),
    "filtered": "dim",
}
"""The words that say how something went."""
_colored = [False]


@contextlib.contextmanager
def choose_colors(words: Sequence[str]) -> Iterator[None]:
    """Colour what the command of these words prints on a terminal, unless colours are unwanted.

    `NO_COLOR`, a terminal without colours and an option for JSON say that they are. A stream that is no terminal gets
    none: `click.echo` strips them.
    """
    watched = any(stream is not None and stream.isatty() for stream in (sys.stdout, sys.stderr))
    unwanted = os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb" or _asks_for_json(words)
    _colored[0] = watched and not unwanted
    try:
        yield
    finally:
        _colored[0] = False


def _asks_for_json(words: Sequence[str]) -> bool:
    return not {"--json", "--log-format=json"}.isdisjoint(words) or ("--log-format", "json") in pairwise(words)


def paint(text: str, look: str) -> str:
    """The text in bold, dim, red, green or yellow; as it is where there are no colours."""
    return f"\x1b[{_CODES[look]}m{text}\x1b[0m" if _colored[0] and text and look else text


def paint_word(word: str) -> str:
    """The text in the colour of what its first word says; any other text as it is."""
    return paint(word, _LOOKS.get(word.partition(" ")[0], ""))


def paint_hint(line: str) -> str:
    """A line that says what to type: its words recede, and its command stands out."""
    words, colon, typed = line.partition(":  ")
    return paint(words + colon, "dim") + typed


def paint_error(message: str, *, refusal: bool = False) -> str:
    """An error of which the first words, up to a colon, have its colour."""
    first, line_break, rest = message.partition("\n")
    words, colon, more = first.partition(": ")
    return paint(words, "yellow" if refusal else "red") + colon + more + line_break + rest
