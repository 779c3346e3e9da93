"""What stands behind the value on a line of JSON is found, by a look at small files too."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from origins.files import scan_small
from origins.files.json_tail import _all_flat, none_has_tail


@pytest.mark.parametrize(
    ("content", "clean"),
    [
        ('{"id": 1}\n{"id": {"s": "} {"}}  \n\n \t\r\n', True),
        ("", True),
        ('{"id": 1}\r{"id": 2}\r\n', True),
        ('{"a":[\r{"id":1},{"id":2}\r]}\n', False),
        ('{\r[]\r"a":1}', False),
        ('\ufeff{"id": 1}', True),
        ('{"id": 1}{"id": 2}', False),
        ('{"id": 1},', False),
        ("[]", False),
        ("1", False),
        ("{'id': 1}", True),
        ("{'id': 1}{'id': 2}", False),
        ('{"id":' * 9_000, False),
        ('{"id": "' + "x" * (1 << 20) + '"}', True),
        ('{"id": 12345}\r\n' * 100_000, True),
        ('{"id": {"s": 1}}\n' * 100_000, False),
        ('{"id": 12345}\n' * 100_000 + '{"id": 1}{"id": 2}\n', False),
    ],
    ids=lambda value: str(value)[:20],
)
def test_a_look_at_small_files_shows_lines_of_one_object(tmp_path: Path, content: str, clean: bool) -> None:
    """What is not plainly clean, or too large to be looked at here, is left to Spark. So is JSON that only Spark knows,
    unless it can only end at the end of the line."""
    (tmp_path / "a").write_text(content, encoding="utf-8")
    assert none_has_tail([tmp_path / "a"], whole_file=False) is clean


def test_what_cannot_be_read_here_is_left_to_spark(tmp_path: Path) -> None:
    """A file that is gone, compressed, or in another encoding."""
    (tmp_path / "a").write_bytes(b"\x1f\x8b\xff")
    assert not none_has_tail([tmp_path / "a"], whole_file=False)
    assert not none_has_tail([tmp_path / "b"], whole_file=False)


@pytest.mark.parametrize(
    ("content", "clean"), [("[{}]\n", True), ("{}", True), ("{}{}", False), ("1", False), ("", False)]
)
def test_a_whole_file_is_one_value(tmp_path: Path, content: str, clean: bool) -> None:
    """An object or an array."""
    (tmp_path / "a").write_text(content)
    assert none_has_tail([tmp_path / "a"], whole_file=True) is clean


def test_a_large_file_is_read_in_pieces_of_whole_lines(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Wherever a piece ends, no line is looked at in two parts; what is larger still is left to Spark."""
    monkeypatch.setattr(scan_small, "SMALL", 0)
    (tmp_path / "a").write_bytes(b'{"id": 1}\r\n{"id": 22}\n{"id": 333}\n')
    (tmp_path / "b").write_text("")
    for piece in range(1, 40):
        monkeypatch.setattr(scan_small, "_PIECE", piece)
        found = list(scan_small.read_pieces([tmp_path / "a"], "utf-8-sig"))
        assert "".join(found) == '{"id": 1}\n{"id": 22}\n{"id": 333}\n'
        assert all(each.endswith("\n") for each in found)
        assert none_has_tail([tmp_path / "a"], whole_file=False)
    assert list(scan_small.read_pieces([tmp_path / "b"], "utf-8-sig")) == [""]
    monkeypatch.setattr(scan_small, "MODERATE", 20)
    assert not none_has_tail([tmp_path / "a"], whole_file=False)


LINES = st.lists(st.sampled_from(["{a}", "{", "}", "{}{}", "{{}}", "", " ", "{a} ", "[{a}]", "a"]), max_size=5)


@given(lines=LINES, end=st.sampled_from(["", "\n"]))
def test_what_is_counted_shows_what_a_look_at_each_line_would(lines: list[str], end: str) -> None:
    """No line has anything behind its only closing brace, or before its opening one."""
    content = "\n".join(lines) + end
    if _all_flat(content):
        found = content.removesuffix("\n").split("\n")
        assert all(line.startswith("{") and line.index("}") == len(line) - 1 for line in found)


def test_lines_of_flat_objects_are_known_by_counting() -> None:
    """With and without a line feed at the end."""
    assert _all_flat("{a}\n{b}")
    assert _all_flat("{a}\n{b}\n")
    assert not _all_flat("{a}\n\n{b}\n")
