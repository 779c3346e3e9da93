"""The line of progress on a terminal."""

from __future__ import annotations

import contextlib
import logging
import os
import pty
import re
import sys
from collections.abc import Sequence
from datetime import datetime, timezone

import pytest

from origins.batch import Batch, Span
from runners.command_line.carrying import show_progress
from runners.listeners.run_progress import RunProgress
from runners.listeners.standard_error import Lines
from runners.model.events import BatchPlanned, BatchSettled, Event, RunStarted
from runners.model.planned_batch import SettledCounts
from tests.manual_clock import ManualClock


def make_batch(lane: str = "0", label: str = "a.json") -> Batch:
    return Batch(
        pipeline="orders",
        run="r",
        origin="origin",
        lane=lane,
        number=1,
        plan="p",
        span=Span(start=None, end=1, label=label),
        schema="",
        time=datetime(2026, 1, 1, tzinfo=timezone.utc),
    )


def make_settled(*, read: int, nacked: int = 0, owed: tuple[str, ...] = (), lane: str = "0") -> BatchSettled:
    return BatchSettled(batch=make_batch(lane), counts=SettledCounts(read=read, nacked=nacked), owed=owed)


def make_started(**waiting: int) -> RunStarted:
    return RunStarted(pipeline="orders", run="r", waiting={name[1:]: batches for name, batches in waiting.items()})


def read_everything(terminal: int) -> str:
    """Return the output of a terminal whose other end is closed."""
    found = b""
    with contextlib.suppress(OSError):
        while part := os.read(terminal, 1 << 16):
            found += part
    os.close(terminal)
    return found.decode()


def show_on_terminal(monkeypatch: pytest.MonkeyPatch, events: Sequence[Event | str], columns: int = 80) -> str:
    """Return what a terminal gets while these events come. A text is a warning, logged once a line is drawn."""
    drawn = ""
    log, lines = logging.getLogger("wherry"), Lines()
    monkeypatch.setattr(log, "handlers", [lines])
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", f"{columns}")
    ours, theirs = pty.openpty()
    with os.fdopen(theirs, "w") as terminal:
        monkeypatch.setattr(sys, "stderr", terminal)
        progress = RunProgress("orders", clock=ManualClock())
        with show_progress(progress, {"hunter2": "${secret:KEY}"}, quiet=False) as (listener,):
            for event in events:
                while isinstance(event, str) and "orders" not in drawn:
                    drawn += os.read(ours, 1 << 16).decode()
                log.warning(event) if isinstance(event, str) else listener(event)
                lines.flush()
    return drawn + read_everything(ours)


def split_lines(written: str) -> list[str]:
    """Return the lines that were drawn, without what moves the cursor."""
    return re.sub(r"\x1b\[[?\d;]*[A-Za-z]", "", written).replace("\r", "\n").splitlines()


def test_a_terminal_shows_one_line_that_is_gone_at_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """The cursor is visible again."""
    batch = BatchPlanned(batch=make_batch())
    written = show_on_terminal(monkeypatch, [make_started(_0=4), batch, make_settled(read=1_000, nacked=2), batch])
    assert "orders, 1/4 batches, 1,000 rows, 2 refused, 0:00:00; in flight: batch 1 (a.json)" in written
    assert written.endswith("\x1b[2K")
    assert written.rindex("\x1b[?25h") > written.rindex("\x1b[?25l")


def test_a_line_that_other_code_prints_stays_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    """It stands above the line of progress."""
    written = show_on_terminal(monkeypatch, [make_started(_0=4), "a warning", make_settled(read=1_000)])
    assert "a warning" in split_lines(written)


def test_a_long_line_is_cut_at_the_width_of_the_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    """It takes one row of the terminal, so that it can be removed again."""
    planned = BatchPlanned(batch=make_batch(label=f"landing/{'long-' * 40}.json"))
    written = show_on_terminal(monkeypatch, [make_started(), planned], columns=60)
    lines = [each for each in split_lines(written) if "in flight" in each]
    assert {len(line) for line in lines} == {60}
    assert {line[-1] for line in lines} == {"…"}


def test_a_file_name_moves_no_cursor_and_shows_no_secret(monkeypatch: pytest.MonkeyPatch) -> None:
    """Control characters in the name are escaped."""
    label = "a\x1b[2Jb\x9bc\u202ed\ne-hunter2.json"
    written = show_on_terminal(monkeypatch, [make_started(), BatchPlanned(batch=make_batch(label=label))], columns=160)
    assert r"a\u001b[2Jb\u009bc\u202ed\ne-${secret:KEY}.json" in written
    assert "hunter2" not in written


def test_a_terminal_that_cannot_move_its_cursor_gets_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    """The editor Emacs has such a terminal."""
    ours, theirs = pty.openpty()
    with os.fdopen(theirs, "w") as terminal:
        monkeypatch.setattr(sys, "stderr", terminal)
        monkeypatch.setenv("TERM", "dumb")
        with show_progress(RunProgress("orders"), {}, quiet=False):
            pass
    assert "\x1b" not in read_everything(ours)
