"""What a person at a terminal sees of a run while it goes on."""

from __future__ import annotations

import contextlib
import os
import pty
from collections.abc import Sequence
from datetime import datetime, timezone
from io import StringIO

import pytest
from rich.console import Console
from rich.text import Text

from origins.batch import Batch, Span
from runners.command_line.progress_bar import MOST_LANES, ProgressBar
from runners.listeners.run_progress import RunProgress
from runners.model.events import BatchPlanned, BatchRests, BatchSettled, Event, RunEnded, RunStarted, RunStopping
from tests.manual_clock import ManualClock


class Terminal:
    """A terminal of 120 columns, and what was written on it."""

    def __init__(self, *, is_one: bool = True, batches: int | None = None) -> None:
        self.written = StringIO()
        self.clock = ManualClock()
        console = Console(file=self.written, force_terminal=is_one, width=120)
        self.bar = ProgressBar(RunProgress("orders", batches=batches, clock=self.clock), console=console)

    def drawn(self, events: Sequence[Event | float]) -> list[str]:
        """The lines drawn last, without the spinner; a number among the events lets so many seconds pass."""
        for event in events:
            if isinstance(event, float):
                self.clock.move(event)
            else:
                self.bar(event)
        with self.bar.console.capture() as captured:
            self.bar.console.print(self.bar._draw())
        lines = Text.from_ansi(captured.get()).plain.splitlines()
        return [" ".join(line.lstrip("⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏").split()) for line in lines]


def batch(lane: str = "0", label: str = "a.json") -> Batch:
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


def settled(*, read: int, nacked: int = 0, owed: tuple[str, ...] = (), lane: str = "0") -> BatchSettled:
    return BatchSettled(batch=batch(lane), counts={"read": read, "nacked": nacked}, owed=owed)


def started(**waiting: int) -> RunStarted:
    return RunStarted(pipeline="orders", run="r", waiting={name[1:]: batches for name, batches in waiting.items()})


@pytest.mark.parametrize(
    ("events", "line"),
    [
        ([], "orders: opening the state, origins and tables … 0 s"),
        ([12.5], "orders: opening the state, origins and tables … 12 s"),
        ([started()], "orders 0/4 batches 0:00:00"),
        ([started(), settled(read=1_000)], "orders 1/4 batches 1,000 rows 0:00:00"),
        (
            [started(), settled(read=1_000), 65.0, settled(read=1_000, nacked=3, lane="1")],
            "orders 2/4 batches 2,000 rows, 3 refused 0:01:05",
        ),
        ([settled(read=9, owed=("copy",))], "orders: opening the state, origins and tables … 0 s"),
        ([started(), settled(read=9, owed=("copy",)), settled(read=9)], "orders 1/4 batches 9 rows 0:00:00"),
        ([RunStopping(reason="Ctrl-C")], "orders: stopping (Ctrl-C) … 0 s"),
        (
            [RunStopping(reason="signal SIGINT")],
            "orders: stopping (signal SIGINT; a second signal cancels open batches) … 0 s",
        ),
        ([RunEnded(status="succeeded", reason="")], "orders: succeeded … 0 s"),
    ],
)  # fmt: skip
def test_the_first_line_says_how_far_the_run_is(events: list[Event | float], line: str) -> None:
    """Batches count when nothing is owed any more, and refused rows are told of when there are some."""
    assert Terminal(batches=4).drawn(events)[0] == line


def test_every_lane_has_a_line_with_rate_rows_and_an_estimate() -> None:
    """The estimate goes by how long the lane's batches took, and by how many waited when the run began."""
    events: list[Event | float] = [
        started(_0=5, _1=2),
        BatchPlanned(batch=batch("0")),
        BatchPlanned(batch=batch("1", "b.json")),
        10.0,
        settled(read=300, lane="0"),
        settled(read=200, lane="0"),
        settled(read=40, lane="1"),
        settled(read=20, lane="1"),
    ]
    assert Terminal().drawn(events) == [
        "orders 4 batches 560 rows 0:00:10",
        "lane 0 2/5 batches 500 rows 50 rows/s about 0:00:15 left a.json",
        "lane 1 2/2 batches 60 rows 6 rows/s b.json",
    ]


def test_what_is_too_long_for_a_terminal_is_cut_behind_the_figures() -> None:
    """Every lane keeps one line, and its figures stand in it."""
    label = "landing/a-very-long-name-of-a-file-that-goes-on-and-on-and-on-and-on-and-on-and-on-and-on.json"
    events: list[Event | float] = [started(_0=9), BatchPlanned(batch=batch("0", label)), 5.0, settled(read=123_456)]
    lines = Terminal().drawn(events)
    assert len(lines) == 2
    assert lines[1].startswith("lane 0 1/9 batches 123,456 rows 24,691 rows/s about 0:00:40 left landing/a-very")
    assert lines[1].endswith("…")


def test_there_is_no_estimate_where_nobody_knows_what_waits() -> None:
    """A run that goes on, for example; and more batches than were counted are no riddle."""
    events: list[Event | float] = [started(), BatchPlanned(batch=batch("0")), 10.0, settled(read=500)]
    assert Terminal().drawn(events)[1] == "lane 0 1 batch 500 rows 50 rows/s a.json"
    events = [started(_0=1), BatchPlanned(batch=batch()), 10.0, settled(read=5), settled(read=5)]
    assert Terminal().drawn(events)[1] == "lane 0 2/2 batches 10 rows 1 rows/s a.json"


def test_a_lane_that_rests_says_so() -> None:
    """For how long."""
    events: list[Event | float] = [started(), BatchRests(batch=batch(), error=ValueError(), tried=1, seconds=8.0)]
    assert Terminal().drawn(events)[1] == "lane 0 0 batches 0 rows waits 8 s for its next attempt"


def test_of_many_lanes_the_first_are_shown() -> None:
    """A terminal has only so many lines."""
    lines = Terminal().drawn([settled(read=1, lane=str(number)) for number in range(MOST_LANES + 3)])
    assert len(lines) == 1 + MOST_LANES + 1
    assert lines[-1] == "and 3 more lanes"


def test_nothing_is_drawn_where_nobody_sees_it() -> None:
    """A file or a pipe stays empty."""
    nobody = Terminal(is_one=False)
    with nobody.bar as bar:
        bar(settled(read=1_000))
    assert nobody.written.getvalue() == ""


def everything(terminal: int) -> str:
    """All that was written on a terminal whose other end is closed."""
    found = b""
    with contextlib.suppress(OSError):
        while part := os.read(terminal, 1 << 16):
            found += part
    os.close(terminal)
    return found.decode()


def test_a_real_terminal_is_left_as_it_was() -> None:
    """What was drawn is gone in the end, and the cursor is there again."""
    ours, theirs = pty.openpty()
    with os.fdopen(theirs, "w") as terminal:
        console = Console(file=terminal, force_terminal=True, width=80)
        bar = ProgressBar(RunProgress("orders", clock=ManualClock()), console=console)
        with bar:
            bar(settled(read=1_000))
    written = everything(ours)
    assert "lane 0" in written
    assert "1,000 rows" in written
    assert written.endswith("\x1b[2K")
    assert written.rindex("\x1b[?25h") > written.rindex("\x1b[?25l")


def test_the_name_of_a_file_moves_no_cursor() -> None:
    """It is what somebody called it."""
    drawn = Terminal().drawn([BatchPlanned(batch=batch(label="a\x1b[2Jb\x9bc\u202ed\ne.json"))])
    assert drawn[-1].endswith(r"a\u001b[2Jb\u009bc\u202ed\ne.json")
