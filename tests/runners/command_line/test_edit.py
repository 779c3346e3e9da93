"""A refused row is edited in an editor, before it is replayed. Without Spark."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
from click.testing import CliRunner

from runners.command_line import cli, dlq_commands
from runners.command_line.commands import wherry
from tests.runners.running.letterbox import append_letters, make_letters

DEFINITION = """
name: orders
origin: {files: {path: x, format: json, schema: "id long"}}
destinations: [{delta: {path: t}}]
"""
TYPED = ["dlq", "edit", "orders.yaml", "p/1", "--reason", "a typo", "--yes"]


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A pipeline with a refused row, and a folder for temporary files."""
    (tmp_path / "orders.yaml").write_text(DEFINITION)
    (tmp_path / "temporary").mkdir()
    append_letters(tmp_path / ".wherry/orders/dlq", make_letters(1, original='{"id": 7}'))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TMPDIR", str(tmp_path / "temporary"))
    monkeypatch.setattr(tempfile, "tempdir", None)
    monkeypatch.delenv("VISUAL", raising=False)
    monkeypatch.delenv("EDITOR", raising=False)
    return tmp_path


def set_editor(monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    """Set an editor that runs this code. In the code, `file` is the path of the edited file."""
    Path("editor.py").write_text(f"import os, sys, time, pathlib\nfile = pathlib.Path(sys.argv[1])\n{text}\n")
    monkeypatch.setenv("EDITOR", f"{sys.executable} editor.py")


@pytest.mark.parametrize("text", ["", "file.write_text('')", "file.write_text(' ')", "file.unlink()", "file.touch()"])
def test_an_unedited_row_is_not_delivered(
    text: str, folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A row whose file was emptied or deleted is not delivered either. No temporary file is left."""
    set_editor(monkeypatch, text)
    assert cli.execute([*TYPED, "--json"]) == 0
    shown = capsys.readouterr()
    assert "Nothing was edited, so nothing was done." in shown.err
    assert json.loads(shown.out) == {"version": 1, "edited": False}
    assert not list((folder / "temporary").iterdir())


@pytest.mark.parametrize(
    ("text", "code", "message"),
    [
        ("sys.exit(3)", 2, "Nothing was done: the editor"),
        ("file.write_bytes(b'\\xff')", 2, "is not text in UTF-8"),
        ("file.write_text('{')", 2, "The edited row cannot be taken: it is not JSON"),
        ('file.write_text(\'{"id": "x"}\')', 2, "column id: 'x' is not a bigint"),
    ],
)
def test_an_invalid_edit_delivers_nothing(
    text: str,
    code: int,
    message: str,
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Without a terminal the command ends with a message."""
    set_editor(monkeypatch, text)
    assert cli.execute(TYPED) == code
    assert message in capsys.readouterr().err
    assert not list((folder / "temporary").iterdir())


def test_an_invalid_row_can_be_edited_again_on_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    """The editor gets the invalid text. In the second edit it restores the original text."""
    set_editor(
        monkeypatch,
        """
seen = pathlib.Path("seen.txt")
text = file.read_text()
seen.open("a").write(text)
file.write_text(text.replace("7", "seven") if "7" in text else text.replace("seven", "7"))""",
    )
    monkeypatch.setattr(dlq_commands, "is_terminal", lambda: True)
    found = CliRunner().invoke(wherry, TYPED, input="y\n", standalone_mode=False)
    assert "it is not JSON" in found.output
    assert "Edit it again? [Y/n]" in found.output
    assert "Nothing was edited" in found.output
    assert Path("seen.txt").read_text().count("seven") == 1
    found = CliRunner().invoke(wherry, TYPED, input="n\n", standalone_mode=False)
    assert type(found.exception).__name__ == "Abort"


@pytest.mark.parametrize(
    ("words", "editor", "message"),
    [
        (["p/1", "--reason", "x", "--yes"], "", "No editor is set."),
        (["p/1", "--reason", "x", "--yes"], "no-such-editor -w", "The editor no-such-editor of EDITOR was not found."),
        (["p/1", "--reason", "x", "--yes"], "'", "EDITOR is not a command"),
        (["p/1", "--yes"], "true", "needs a reason"),
        (["p/1", "--reason", "x"], "true", "without a terminal Wherry cannot ask"),
        (["p/9", "--reason", "x", "--yes"], "true", "The DLQ has no row p/9."),
    ],
)
def test_a_missing_condition_is_reported_before_the_editor_opens(
    words: list[str],
    editor: str,
    message: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """So no edit is lost."""
    monkeypatch.setenv("EDITOR", editor)
    assert cli.execute(["dlq", "edit", "orders.yaml", *words]) == 2
    assert message in capsys.readouterr().err


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_terminated_edit_leaves_nothing(number: int, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The file is deleted, and the editor is ended."""
    set_editor(monkeypatch, "print(os.getpid(), file.read_text().count('7'), flush=True); time.sleep(60)")
    code = f"from runners.command_line.cli import execute; import sys; sys.exit(execute({TYPED!r}))"
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[3])}
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True, env=environment) as process:
        assert process.stdout is not None
        editor, seen = process.stdout.readline().split()
        assert seen == "1"
        (private,) = (folder / "temporary").iterdir()
        assert private.stat().st_mode & 0o777 == 0o700
        process.send_signal(number)
        assert process.stdout.read() == ""
        assert process.wait() == 130
    assert not list((folder / "temporary").iterdir())
    with pytest.raises(ProcessLookupError):
        os.kill(int(editor), 0)


def test_unedited_rows_are_not_imported(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """The definition's name may be omitted."""
    assert cli.execute(["dlq", "export", "--to", "rows.csv"]) == 0
    assert cli.execute(["dlq", "import", "rows.csv", "--reason", "x", "--yes", "--json"]) == 0
    shown = capsys.readouterr()
    assert "0 rows changed, 1 unchanged." in shown.err
    assert json.loads(shown.out)["corrected"]["unchanged"] == 1
    assert cli.execute(["dlq", "import", "rows.csv", "--yes"]) == 2
    assert "needs a reason" in capsys.readouterr().err
