"""Refused rows are exported to a file and imported again. Without Spark."""

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


def test_unedited_rows_are_not_imported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The definition's name may be omitted. An import needs a reason."""
    (tmp_path / "orders.yaml").write_text(DEFINITION)
    append_letters(tmp_path / ".wherry/orders/dlq", make_letters(1, original='{"id": 7}'))
    monkeypatch.chdir(tmp_path)
    assert cli.execute(["dlq", "export", "--id", "p/1", "--to", "row.json"]) == 0
    assert cli.execute(["dlq", "import", "row.json", "--reason", "x", "--yes", "--json"]) == 0
    shown = capsys.readouterr()
    assert "0 rows changed, 1 unchanged." in shown.err
    assert json.loads(shown.out)["corrected"]["unchanged"] == 1
    assert cli.execute(["dlq", "import", "row.json", "--yes"]) == 2
    assert "needs a reason" in capsys.readouterr().err
