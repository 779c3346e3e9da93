"""Rows of data as a table."""

from __future__ import annotations

import pytest

from runners.model.row_table import ShownRow, format_rows
from runners.model.text import fit_text, measure_width, table


@pytest.fixture(autouse=True)
def width(monkeypatch: pytest.MonkeyPatch) -> None:
    """A terminal of 40 columns."""
    monkeypatch.setenv("COLUMNS", "40")


def test_columns_stand_below_each_other_in_the_order_in_which_they_are_first_seen() -> None:
    """A row without a column has a gap there, and one that is no object has a column without a name."""
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


def test_what_became_of_a_row_stands_before_it_and_why_below() -> None:
    """The reason is wrapped, never cut."""
    rows = [ShownRow(row={"id": 1}, lead="kept"), ShownRow(row={"id": 2}, lead="refused", note="not a number " * 4)]
    assert format_rows(rows) == [
        "           id",
        "  kept     1",
        "  refused  2",
        "             not a number not a number not",
        "             a number not a number",
    ]


def test_long_values_are_cut_so_that_the_table_fits() -> None:
    """The longest columns lose most, and a short one stays whole."""
    lines = format_rows([ShownRow(row={"id": 4711, "note": "x" * 90, "more": "y" * 90})])
    assert lines == ["  id    note             more", f"  4711  {'x' * 14}…  {'y' * 14}…"]
    assert max(map(measure_width, lines)) == 40


def test_columns_for_which_there_is_no_room_are_counted() -> None:
    """No value is cut below twelve columns of the terminal for one more."""
    row = {f"column_{number}": "value " * 9 for number in range(9)}
    lines = format_rows([ShownRow(row=row)])
    assert lines[0].endswith("+8 columns")
    assert "column_1" not in lines[0]
    assert max(map(measure_width, lines)) <= 40


def test_wide_rows_are_whole() -> None:
    """Every column, every value, and the reason in one line."""
    row = {f"column_{number}": "value " * 9 + str(number) for number in range(9)}
    lines = format_rows([ShownRow(row=row, note="why " * 20 + "not")], wide=True)
    assert len(lines) == 3
    assert "column_8" in lines[0]
    assert lines[1].endswith("value 8")
    assert lines[2].endswith("why not")


def test_wide_letters_take_two_columns() -> None:
    """Tables of data and of figures align in Japanese, too; a mark on a letter takes none."""
    lines = format_rows([ShownRow(row={"名前": "日本", "n": 1}), ShownRow(row={"名前": "abc", "n": 2})])
    assert lines == ["  名前  n", "  日本  1", "  abc   2"]
    assert table(["to", "rows"], [["日本", "1"], ["a", "2"]]).splitlines() == ["to    rows", "日本  1", "a     2"]
    assert (measure_width("e\u0301"), fit_text("日本語", 5), fit_text("日本語", 4)) == (1, "日本…", "日…")


def test_a_text_that_would_be_mistaken_stands_in_quotes() -> None:
    """Blanks at an end, nothing at all, and the word for no value."""
    assert format_rows([ShownRow(row={"a": " 12", "b": "", "c": "null", "d": None})])[1] == '  " 12"  ""  "null"  null'


def test_data_moves_no_cursor() -> None:
    """In names, values and reasons."""
    hostile = "a\x1b[2J\nb\u202e"
    lines = format_rows([ShownRow(row={hostile: hostile}, note=hostile)])
    assert len(lines) == 3
    assert not set("".join(lines)) & set("\x1b\n\u202e")
