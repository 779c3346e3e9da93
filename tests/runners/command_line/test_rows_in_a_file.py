"""Refused rows are exported to a file, and replayed with it. Without Spark."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from runners.command_line import cli
from tests.runners.running.letterbox import append_letters, make_letters

DEFINITION = """
name: orders
origin: {files: {path: x, format: json, schema: "id long"}}
destinations: [{delta: {path: t}}]
"""


def test_unedited_rows_of_a_file_are_not_replayed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The definition's name may be omitted. A replay needs a reason."""
    (tmp_path / "orders.yaml").write_text(DEFINITION)
    append_letters(tmp_path / ".wherry/orders/dlq", make_letters(1, original='{"id": 7}'))
    monkeypatch.chdir(tmp_path)
    assert cli.execute(["dlq", "export", "--id", "p/1", "--to", "row.json"]) == 0
    assert cli.execute(["dlq", "replay", "--with", "row.json", "--reason", "x", "--yes", "--json"]) == 0
    shown = capsys.readouterr()
    assert "0 rows changed, 1 unchanged." in shown.err
    assert json.loads(shown.out)["corrected"]["unchanged"] == 1
    assert cli.execute(["dlq", "replay", "--with", "row.json", "--yes"]) == 2
    assert "needs a reason" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (["--with", "row.json", "--code", "CAST"], "The file of --with names its rows"),
        (["--with", "row.json", "--resume"], "--resume takes the rows and the fix"),
        (["--with", "row.json", "--fix-at", "refused"], "The file of --with names its rows"),
        (["--with", "row.json", "--set", "id=1"], "Give --set or --with, not both."),
        (["--unchanged"], "--unchanged is for --with and a file of rows."),
        (["--with", "row.txt"], "A fix is a .sql or a .py file"),
    ],
)
def test_a_replay_refuses_what_does_not_go_with_a_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], given: list[str], said: str
) -> None:
    """The file has the ids of its rows, so no other option chooses or changes them."""
    (tmp_path / "orders.yaml").write_text(DEFINITION)
    monkeypatch.chdir(tmp_path)
    assert cli.execute(["dlq", "replay", *given, "--reason", "x", "--yes"]) == 2
    assert said in " ".join(capsys.readouterr().err.split())
