"""Lets the user edit a text in an editor, in a private folder that is removed afterwards."""

from __future__ import annotations

import contextlib
import os
import shlex
import shutil
import signal
import subprocess
import tempfile
from pathlib import Path

from runners.model.errors import Refusal
from runners.running.stop import handle_signals

_PATIENCE = 5.0
"""The seconds that an editor has to end before it is killed."""


def find_editor() -> list[str]:
    """Return the words that start the editor. Raises `Refusal` if no editor is known."""
    for name in ("VISUAL", "EDITOR"):
        if os.environ.get(name, "").strip():
            try:
                words = shlex.split(os.environ[name])
            except ValueError as error:
                raise Refusal(f"{name} is not a command: {error}.") from error
            if shutil.which(words[0]) is None:
                raise Refusal(f"The editor {words[0]} of {name} was not found.", hint="Set EDITOR to another one.")
            return words
    raise Refusal("No editor is set.", hint="Set one, for example:  export EDITOR=nano")


def edit_text(text: str, name: str) -> str:
    """Return the text after the edit. Raises `Refusal` if the editor fails, or if the result is not text in UTF-8.

    The file and its copies are in a folder that only this user can open. The folder is removed even if the terminal
    closes.
    """
    words = find_editor()
    with (
        handle_signals(signal.default_int_handler, [signal.SIGTERM, signal.SIGHUP]),
        tempfile.TemporaryDirectory(prefix="wherry-") as folder,
    ):
        file = Path(folder, name)
        file.touch(0o600)
        file.write_text(text, encoding="utf-8")
        code = _wait_for([*words, str(file)])
        if code:
            raise Refusal(f"Nothing was done: the editor {words[0]} ended with {code}.")
        try:
            return file.read_bytes().decode("utf-8-sig")
        except FileNotFoundError:
            return ""
        except UnicodeDecodeError as error:
            raise Refusal("Nothing was done: the edited row is not text in UTF-8.") from error


def _wait_for(command: list[str]) -> int:
    """Wait for the editor and return its exit code. The editor ends if this process must end."""
    with subprocess.Popen(command) as editor:
        try:
            with handle_signals(lambda *_: None, [signal.SIGINT]):  # it is meant for the editor, which has the terminal
                return editor.wait()
        except BaseException:
            editor.terminate()
            with contextlib.suppress(subprocess.TimeoutExpired):
                editor.wait(_PATIENCE)
            editor.kill()
            raise
