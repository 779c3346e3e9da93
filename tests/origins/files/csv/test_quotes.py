"""How the scan of a CSV file finds lines with an open quote."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from origins.files.csv_header import _pattern, are_quotes_closed, find_open_quotes, leaves_quote_open, spell_atomic
from origins.files.options import complete_options

CLOSED = ["1,a", '1,"a"', '1,"a"""', '"a ""x"", b",c', '""', '5" x,b', '"a"b,c', ' "a', "", '"a","b"', 'a,"b,c"d,e']
OPEN = ['1,"a', '1,"a""', '5" x,"b', '"a"b,"c', '"a,b', '"', '"""', ',,"', 'a,"b,c"d,"e', '5","a']
OTHERS: list[tuple[dict[str, Any], list[str], list[str]]] = [
    ({"escape": "\\"}, [r'1,"a\"b"', r'1,"a\\"'], [r'1,"a\"', r'1,"a\\\"']),
    ({"sep": ";;"}, ['1;;"a";;"b"', '1;"a'], ['1;;"a', '"a";;"b;;c']),
    ({"sep": "\\t"}, ['1\t"a"', '1,"a'], ['1\t"a']),
    ({"sep": "|", "quote": "'"}, ["1|'a'", '1|"a'], ["1|'a", "'1|a"]),
    ({"quote": ""}, ['1,"a'], []),
    ({"comment": "#"}, ['#1,"a'], ['1,"a']),
    ({"ignoreLeadingWhiteSpace": True}, ['1, "a"'], ['1, "a']),
]
CASES: list[tuple[dict[str, Any], list[str], list[str]]] = [({}, CLOSED, OPEN), *OTHERS]


@pytest.mark.parametrize(("options", "closed", "still_open"), CASES)
def test_the_pattern_for_python_3_10_finds_the_same(
    options: dict[str, Any], closed: list[str], still_open: list[str]
) -> None:
    """It has no quantifiers that Python 3.10 lacks."""
    told = complete_options("csv", options)
    pattern = spell_atomic(_pattern(told))
    assert "*+" not in pattern
    assert "++" not in pattern
    lines = [*closed, *still_open, *(f"{a},{b}" for a in closed for b in still_open)]
    assert [re.search(pattern, line) is not None for line in lines] == [leaves_quote_open(line, told) for line in lines]


@pytest.mark.parametrize(("options", "closed", "still_open"), CASES)
def test_a_quote_that_is_opened_and_not_closed_is_found(
    tmp_path: Path, options: dict[str, Any], closed: list[str], still_open: list[str]
) -> None:
    """A quote in an unquoted field, a doubled quote, and an escaped quote do not count."""
    told, file = complete_options("csv", options), tmp_path / "a.csv"

    def is_clean(*lines: str) -> bool:
        file.write_bytes("\r\n".join(lines).encode())
        return are_quotes_closed([file], told)

    assert is_clean(*closed)
    assert [line for line in still_open if is_clean("1,2", line, "3,4")] == []


def test_with_multi_line_only_the_end_of_the_file_counts(tmp_path: Path) -> None:
    """A quote may be closed on a later line."""
    contents = {"a": '1,"a\n2",b\n', "b": '1,5" pipe\n2,b\n', "c": '1,"a\n2,b\n', "d": '1,5" pipe\n2,"b\n'}
    for name, content in contents.items():
        (tmp_path / name).write_text(content)
    files = [tmp_path / name for name in contents]
    told = complete_options("csv", {"multiLine": True})
    assert [file.name for file in find_open_quotes(files, told)] == ["c", "d"]
    assert [file.name for file in files if not are_quotes_closed([file], told)] == ["c", "d"]


@pytest.mark.parametrize(
    ("content", "encoding", "clean"),
    [
        (b"1,\xff\n", "UTF-8", False),
        (b"1,\xff\n", "latin-1", True),
        (b"x" * 2**21, "UTF-8", True),
        (b"x" * 2**21 + b"\xff", "UTF-8", False),
        (b'"x",1\n' * 2**18, "UTF-8", False),
    ],
    ids=lambda value: str(value)[:12],
)
def test_invalid_bytes_and_quotes_in_large_files_do_not_count_as_clean(
    tmp_path: Path, content: bytes, encoding: str, clean: bool
) -> None:
    """Spark must check them."""
    (tmp_path / "a").write_bytes(content)
    assert are_quotes_closed([tmp_path / "a"], complete_options("csv", {"encoding": encoding})) is clean
