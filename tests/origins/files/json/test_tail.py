"""Text after the value on a line of JSON is found, also by the scan of small files."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql.types import LongType, StructField, StructType

from origins.files import file_systems
from origins.files.in_process import are_all_plain, are_lines_plain

SCHEMA = StructType([StructField("id", LongType())])


def is_seen_clean(file: Path, *, whole_file: bool = False) -> bool:
    return are_lines_plain([file], SCHEMA, extra=False, missing=False, doubled=False, whole_file=whole_file)


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
        ("{'id': 1}", False),
        ("{'id': 1}{'id': 2}", False),
        ('{"id":' * 9_000, False),
        ('{"id": "' + "x" * (1 << 20) + '"}', False),
    ],
    ids=lambda value: str(value)[:20],
)
def test_the_scan_of_small_files_accepts_lines_of_one_object(tmp_path: Path, content: str, clean: bool) -> None:
    """Lines that are not clearly clean, or too large to parse here, are left to Spark.

    So is JSON that only Spark reads.
    """
    (tmp_path / "a").write_text(content, encoding="utf-8")
    assert is_seen_clean(tmp_path / "a") is clean


def test_a_file_that_cannot_be_read_here_is_left_to_spark(tmp_path: Path) -> None:
    """It is missing, compressed, or in another encoding."""
    (tmp_path / "a").write_bytes(b"\x1f\x8b\xff")
    assert not is_seen_clean(tmp_path / "a")
    assert not is_seen_clean(tmp_path / "b")


@pytest.mark.parametrize(
    ("content", "clean"), [("[{}]\n", True), ("{}", True), ("{}{}", False), ("1", False), ("", False)]
)
def test_a_whole_file_is_one_value(tmp_path: Path, content: str, clean: bool) -> None:
    """The value is an object or an array."""
    (tmp_path / "a").write_text(content)
    assert is_seen_clean(tmp_path / "a", whole_file=True) is clean


def test_a_large_file_is_read_in_pieces_of_whole_lines(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No line is split at the end of a piece. An even larger file is left to Spark."""
    monkeypatch.setattr(file_systems, "SMALL", 0)
    (tmp_path / "a").write_bytes(b'{"id": 1}\r\n{"id": 22}\n{"id": 333}\n')
    (tmp_path / "b").write_text("")
    for piece in range(1, 40):
        monkeypatch.setattr(file_systems, "_PIECE", piece)
        found = list(file_systems.read_pieces([tmp_path / "a"], "utf-8-sig"))
        assert "".join(found) == '{"id": 1}\n{"id": 22}\n{"id": 333}\n'
        assert all(each.endswith("\n") for each in found)
        assert are_all_plain([tmp_path / "a"], SCHEMA, extra=False, missing=False)
    assert list(file_systems.read_pieces([tmp_path / "b"], "utf-8-sig")) == [""]
    monkeypatch.setattr(file_systems, "MODERATE", 20)
    assert not are_all_plain([tmp_path / "a"], SCHEMA, extra=False, missing=False)
