"""Texts for a terminal: commands to type, colours, tables and names."""

from __future__ import annotations

import io
from pathlib import Path
from types import SimpleNamespace

import pytest

from origins.batch import Json
from runners.model import text
from runners.model.text import (
    ShownRow,
    choose_colors,
    fit_text,
    format_rows,
    measure_width,
    name_batch,
    paint,
    paint_error,
    paint_hint,
    paint_word,
    shorten_paths,
    show_offset,
    table,
    with_file,
)


@pytest.mark.parametrize(
    ("said", "file", "told"),
    [
        ("Again:  wherry run FILE --fresh NAME", "orders.yaml", "Again:  wherry run orders.yaml --fresh NAME"),
        ("wherry offsets FILE, or\nwherry status FILE.", "a/b", "wherry offsets a/b, or\nwherry status a/b."),
        ("wherry run FILE", "my orders.yaml", "wherry run 'my orders.yaml'"),
        ("wherry run FILE", r"a\1.yaml", r"wherry run 'a\1.yaml'"),
        ("See in/FILE.csv; or --secrets FILE", "orders.yaml", "See in/FILE.csv; or --secrets FILE"),
    ],
)  # fmt: skip
def test_a_command_gets_the_file_of_the_definition(said: str, file: str, told: str) -> None:
    """A file with spaces is quoted. Other placeholders stay."""
    assert with_file(said, file) == told


class Terminal(io.StringIO):
    """A stream that is a terminal."""

    def isatty(self) -> bool:
        return True


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make standard output a terminal with colours."""
    monkeypatch.setattr(text, "sys", SimpleNamespace(stdout=Terminal(), stderr=None))
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("TERM", "xterm")


@pytest.mark.usefixtures("terminal")
def test_a_command_at_a_terminal_has_colours_until_it_ends() -> None:
    """Later output of the same process has no colours."""
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
def test_colours_can_be_turned_off(monkeypatch: pytest.MonkeyPatch, words: list[str], name: str, value: str) -> None:
    """The environment or an option turns them off."""
    monkeypatch.setenv(name, value)
    with choose_colors(words):
        assert paint("failed", "red") == "failed"


def test_output_that_is_no_terminal_has_no_colours(monkeypatch: pytest.MonkeyPatch) -> None:
    """Examples are a file, a pipe and a closed stream."""
    monkeypatch.setattr(text, "sys", SimpleNamespace(stdout=io.StringIO(), stderr=None))
    with choose_colors(["status"]):
        assert paint("failed", "red") == "failed"


@pytest.mark.usefixtures("terminal")
def test_words_hints_and_errors_have_colours() -> None:
    """These are words for a result, the text before a command, and the beginning of an error."""
    with choose_colors([]):
        assert paint_word("succeeded ") == "\x1b[32msucceeded \x1b[0m"
        assert paint_word("orders") == "orders"
        assert paint_hint("See it:  wherry runs") == "\x1b[2mSee it:  \x1b[0mwherry runs"
        assert paint_error("orders failed: no disk\nMake room: now") == (
            "\x1b[31morders failed\x1b[0m: no disk\nMake room: now"
        )
        assert paint_error("No yes.", refusal=True) == "\x1b[33mNo yes.\x1b[0m"


@pytest.fixture(autouse=True)
def width(monkeypatch: pytest.MonkeyPatch) -> None:
    """Set a terminal of 40 columns."""
    monkeypatch.setenv("COLUMNS", "40")


def test_columns_are_aligned_in_the_order_in_which_they_first_appear() -> None:
    """A row without a column has a gap. A row that is no object has a column without a name."""
    rows = [ShownRow(row={"id": 1, "at": None}), ShownRow(row={"id": 22, "tags": ["a"]}), ShownRow(row="{broken")]
    assert format_rows(rows) == [
        "  id  at    tags",
        "  1   null",
        '  22        ["a"]',
        "                   {broken",
    ]
    assert format_rows([ShownRow(row="{broken")]) == ["  {broken"]
    assert format_rows([ShownRow(row={})]) == [""]
    assert format_rows([]) == []


def test_the_fate_of_a_row_is_before_it_and_the_reason_below() -> None:
    """The reason is wrapped and never cut."""
    rows = [ShownRow(row={"id": 1}, lead="kept"), ShownRow(row={"id": 2}, lead="refused", note="not a number " * 4)]
    assert format_rows(rows) == [
        "           id",
        "  kept     1",
        "  refused  2",
        "             not a number not a number not",
        "             a number not a number",
    ]


def test_long_values_are_cut_to_fit_the_table() -> None:
    """The longest columns are cut most, and a short one is whole."""
    lines = format_rows([ShownRow(row={"id": 4711, "note": "x" * 90, "more": "y" * 90})])
    assert lines == ["  id    note             more", f"  4711  {'x' * 14}…  {'y' * 14}…"]
    assert max(map(measure_width, lines)) == 40


def test_columns_that_do_not_fit_are_counted() -> None:
    """No value is cut below twelve characters to make room for another column."""
    row = {f"column_{number}": "value " * 9 for number in range(9)}
    lines = format_rows([ShownRow(row=row)])
    assert lines[0].endswith("+8 columns")
    assert "column_1" not in lines[0]
    assert max(map(measure_width, lines)) <= 40


def test_wide_output_shows_whole_rows() -> None:
    """It shows every column, every value, and the reason in one line."""
    row = {f"column_{number}": "value " * 9 + str(number) for number in range(9)}
    lines = format_rows([ShownRow(row=row, note="why " * 20 + "not")], wide=True)
    assert len(lines) == 3
    assert "column_8" in lines[0]
    assert lines[1].endswith("value 8")
    assert lines[2].endswith("why not")


def test_wide_characters_take_two_columns() -> None:
    """Tables of rows and of counts are aligned in Japanese too. A combining mark takes no column."""
    lines = format_rows([ShownRow(row={"名前": "日本", "n": 1}), ShownRow(row={"名前": "abc", "n": 2})])
    assert lines == ["  名前  n", "  日本  1", "  abc   2"]
    assert table(["to", "rows"], [["日本", "1"], ["a", "2"]]).splitlines() == ["to    rows", "日本  1", "a     2"]
    assert (measure_width("e\u0301"), fit_text("日本語", 5), fit_text("日本語", 4)) == (1, "日本…", "日…")


def test_an_ambiguous_text_is_quoted() -> None:
    """Examples are spaces at an end, an empty text, and the word for a missing value."""
    assert format_rows([ShownRow(row={"a": " 12", "b": "", "c": "null", "d": None})])[1] == '  " 12"  ""  "null"  null'


def test_values_cannot_control_the_terminal() -> None:
    """This is true of names, values and reasons."""
    hostile = "a\x1b[2J\nb\u202e"
    lines = format_rows([ShownRow(row={hostile: hostile}, note=hostile)])
    assert len(lines) == 3
    assert not set("".join(lines)) & set("\x1b\n\u202e")


@pytest.mark.parametrize(
    ("offset", "shown"),
    [
        (None, "the beginning"),
        ({"file": "a b.json", "modified": 1_767_225_600_999}, "a b.json, changed 2026-01-01 00:00:00"),
        ({"version": 7, "table": "3f2c"}, "version 7"),
        (12, "12"),
        ({"partition": 3}, '{"partition": 3}'),
    ],
)
def test_an_offset_is_shown_in_words(offset: Json, shown: str) -> None:
    """It is a file with its time, or a version. An unknown offset of another package is shown as JSON."""
    assert show_offset(offset) == shown


@pytest.mark.parametrize(
    ("path", "shown"),
    [
        ("{}/sub/../inbox/*.json → {}/x", "inbox/*.json → x"),
        ("{}/a b/c/../../inbox", "inbox"),
        ("../../inbox", "../../inbox"),
        ("s3://bucket/a..b/../c", "s3://bucket/c"),
    ],
)
def test_a_path_is_shortened(path: str, shown: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It has no detours, and is relative to the working directory as a user would type it."""
    monkeypatch.chdir(tmp_path)
    assert shorten_paths(path.format(tmp_path, tmp_path)) == shown


def test_a_batch_is_named_with_its_lane_if_there_are_several() -> None:
    """The name of the only lane is omitted."""
    assert name_batch(3, "0", ["0"]) == name_batch(3, "0", []) == "batch 3"
    assert name_batch(3, "0", ["0", "1"]) == "batch 3 of lane 0"
