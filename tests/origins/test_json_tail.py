"""What stands behind the value on a line of JSON is found, by a look at small files too."""

from __future__ import annotations

from pathlib import Path

import pytest

from origins.json_tail import none_has_tail


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
        ('{"id": "' + "x" * (1 << 20) + '"}', False),
    ],
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
