"""What a person is told to type."""

from __future__ import annotations

import re
import shlex

_COMMAND = re.compile(r"(?P<command>\bwherry(?: [a-z]+)+) FILE\b")


def with_file(said: str, file: object) -> str:
    """The text with the definition's file in each command that has `FILE` there, as a shell takes it."""
    return _COMMAND.sub(lambda found: f"{found['command']} {shlex.quote(str(file))}", said)
