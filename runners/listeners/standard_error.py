"""Log lines on standard error, written in a separate thread."""

from __future__ import annotations

import contextlib
import io
import json
import logging
import sys
import threading
from collections.abc import Sequence
from datetime import datetime, timezone
from typing import TextIO

import click

from runners.model.text import escape_controls, escape_line
from runners.state.background_writer import BackgroundWriter

ROOM, PATIENCE = 10_000, 5.0
"""How many log lines wait to be written at most, and how many seconds a command waits for them at its end."""


class Lines(logging.Handler):
    """Writes log records as lines to the current standard error, also above a line of progress.

    A closed reader stops nothing, and nothing waits for a slow reader.
    """

    def __init__(self) -> None:
        super().__init__()
        self._writer = BackgroundWriter(_write_lines, room=ROOM)
        self._lost = 0

    def emit(self, record: logging.LogRecord) -> None:
        self._writer.put(escape_line(self.format(record)))

    def flush(self) -> None:
        """Wait a little for lines that are still being written, and report how many were not."""
        if self._writer.flush(PATIENCE) and self._writer.dropped > self._lost:
            lost, self._lost = self._writer.dropped - self._lost, self._writer.dropped
            _write_lines([f"{lost:,} log lines were not written: the reader of standard error is too slow"])


def _write_lines(lines: Sequence[str]) -> None:
    with contextlib.suppress(OSError):
        text = "\n".join(lines) + "\n"  # not by click, which writes past what draws the progress of a run
        sys.stderr.write(text if sys.stderr.isatty() else click.unstyle(text))
        sys.stderr.flush()


def flush() -> None:
    """Wait a little for log lines that are still being written."""
    for handler in logging.getLogger("wherry").handlers:
        handler.flush()


class JsonStream(io.TextIOBase):
    """Standard error on which every line is a JSON object. Other output, for example a library's trace, becomes one."""

    def __init__(self, stream: TextIO) -> None:
        self.stream = stream
        self._begun = ""
        self._lock = threading.Lock()

    def write(self, text: str) -> int:
        with self._lock:
            if self._begun and text.endswith("\n") and _is_object(text):
                text = f"\n{text}"
            whole, line_break, self._begun = (self._begun + text).rpartition("\n")
            if line_break:
                self.stream.write("".join(f"{line}\n" for line in _split_objects(whole)))
        return len(text)

    def flush(self) -> None:
        if self._begun:
            self.write("\n")
        self.stream.flush()

    def close(self) -> None:
        """Do nothing, because the owner of the stream closes it."""

    def fileno(self) -> int:
        return self.stream.fileno()

    def isatty(self) -> bool:
        return self.stream.isatty()

    def writable(self) -> bool:
        return True

    @property
    def encoding(self) -> str:  # type: ignore[override]
        return self.stream.encoding

    @property
    def errors(self) -> str | None:  # type: ignore[override]
        return self.stream.errors


def _split_objects(text: str) -> Sequence[str]:
    """Return the lines of a text that are already JSON objects, and all other lines as new JSON objects."""
    lines = [line for line in text.split("\n") if line.strip()]
    if any(map(_is_object, lines)):
        return [each for line in lines for each in ([line] if _is_object(line) else _split_objects(line))]
    if not lines:
        return []
    at = datetime.now(timezone.utc).isoformat(timespec="milliseconds")
    line = {"at": at, "level": "warning", "message": "\n".join(lines)}
    return [escape_controls(json.dumps(line, ensure_ascii=False))]


def _is_object(line: str) -> bool:
    try:
        return isinstance(json.loads(line), dict)
    except ValueError:
        return False


def end_json_stream() -> None:
    """Restore the earlier standard error."""
    if isinstance(sys.stderr, JsonStream):
        sys.stderr = sys.stderr.stream
