"""Whether there are colours, and where."""

from __future__ import annotations

import io
import re
from types import SimpleNamespace

import pytest

from runners.model import colors
from runners.model.colors import choose_colors, paint, paint_error, paint_hint, paint_word
from runners.model.text import format_sections, table


class Terminal(io.StringIO):
    """A stream that is a terminal."""

    def isatty(self) -> bool:
        return True


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    """Standard output is a terminal that has colours."""
    monkeypatch.setattr(colors, "sys", SimpleNamespace(stdout=Terminal(), stderr=None))
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("TERM", "xterm")


@pytest.mark.usefixtures("terminal")
def test_a_command_at_a_terminal_has_colours_until_it_ends() -> None:
    """What prints afterwards in the same process has none."""
    with choose_colors(["status", "orders.yaml"]):
        assert paint("failed", "red") == "\x1b[31mfailed\x1b[0m"
    assert paint("failed", "red") == "failed"


@pytest.mark.usefixtures("terminal")
@pytest.mark.parametrize(
    ("words", "name", "value"),
    [
        (["status"], "NO_COLOR", "1"),
        (["status"], "TERM", "dumb"),
        (["status", "--json"], "TERM", "xterm"),
        (["run", "--log-format", "json"], "TERM", "xterm"),
        (["run", "--log-format=json"], "TERM", "xterm"),
    ],
)
def test_there_are_none_for_a_person_or_a_program_that_wants_none(
    monkeypatch: pytest.MonkeyPatch, words: list[str], name: str, value: str
) -> None:
    """By the environment, or by an option."""
    monkeypatch.setenv(name, value)
    with choose_colors(words):
        assert paint("failed", "red") == "failed"


@pytest.mark.usefixtures("terminal")
def test_a_folder_may_be_called_json() -> None:
    """Only an option asks for JSON."""
    with choose_colors(["run", "json", "--log-format", "text"]):
        assert paint("failed", "red") != "failed"


def test_there_are_none_without_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    """In a file, in a pipe, and where a stream is closed."""
    monkeypatch.setattr(colors, "sys", SimpleNamespace(stdout=io.StringIO(), stderr=None))
    with choose_colors(["status"]):
        assert paint("failed", "red") == "failed"


@pytest.mark.usefixtures("terminal")
def test_words_hints_and_errors_have_their_looks() -> None:
    """A word that says how something went, what recedes behind a command, and the beginning of an error."""
    with choose_colors([]):
        assert paint_word("succeeded ") == "\x1b[32msucceeded \x1b[0m"
        assert paint_word("orders") == "orders"
        assert paint_hint("See it:  wherry runs") == "\x1b[2mSee it:  \x1b[0mwherry runs"
        assert paint_error("orders failed: no disk\nMake room: now") == (
            "\x1b[31morders failed\x1b[0m: no disk\nMake room: now"
        )
        assert paint_error("No yes.", refusal=True) == "\x1b[33mNo yes.\x1b[0m"


@pytest.mark.usefixtures("terminal")
def test_colours_change_no_column() -> None:
    """A table and sections are as wide with colours as without."""
    rows = [["orders", "failed", "x"], ["a", "succeeded", "y"]]
    plain = [table(["pipeline", "ended", ""], rows), format_sections([("run by", ["a", "b"])])]
    with choose_colors([]):
        painted = [table(["pipeline", "ended", ""], rows), format_sections([("run by", ["a", "b"])])]
    assert all("\x1b[" in text for text in painted)
    assert [re.sub("\x1b\\[\\d+m", "", text) for text in painted] == plain
