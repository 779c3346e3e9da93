"""The progress bar of a run on a terminal."""

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
from runners.model.planned_batch import SettledCounts
from tests.manual_clock import ManualClock


class Terminal:
    """A terminal of 120 columns, and its output."""

    def __init__(self, *, is_one: bool = True, batches: int | None = None) -> None:
        self.written = StringIO()
        self.clock = ManualClock()
        console = Console(file=self.written, force_terminal=is_one, width=120)
        self.bar = ProgressBar(RunProgress("orders", batches=batches, clock=self.clock), console=console)

    def read_drawn(self, events: Sequence[Event | float]) -> list[str]:
        """Return the lines that were drawn last, without the spinner. A number among the events is a pause in
        seconds.
        """
        for event in events:
            if isinstance(event, float):
                self.clock.move(event)
            else:
                self.bar(event)
        with self.bar.console.capture() as captured:
            self.bar.console.print(self.bar._draw())
        lines = Text.from_ansi(captured.get()).plain.splitlines()
        return [" ".join(line.lstrip("⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏").split()) for line in lines]


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


@pytest.mark.parametrize(
    ("events", "line"),
    [
        ([], "orders: opening the state, origins and tables … 0 s"),
        ([12.5], "orders: opening the state, origins and tables … 12 s"),
        ([make_started()], "orders 0/4 batches 0:00:00"),
        ([make_started(), make_settled(read=1_000)], "orders 1/4 batches 1,000 rows 0:00:00"),
        (
            [make_started(), make_settled(read=1_000), 65.0, make_settled(read=1_000, nacked=3, lane="1")],
            "orders 2/4 batches 2,000 rows, 3 refused 0:01:05",
        ),
        ([make_settled(read=9, owed=("copy",))], "orders: opening the state, origins and tables … 0 s"),
        (
            [make_started(), make_settled(read=9, owed=("copy",)), make_settled(read=9)],
            "orders 1/4 batches 9 rows 0:00:00",
        ),
        ([RunStopping(reason="Ctrl-C")], "orders: stopping (Ctrl-C) … 0 s"),
        (
            [RunStopping(reason="signal SIGINT")],
            "orders: stopping (signal SIGINT; a second signal cancels open batches) … 0 s",
        ),
        ([RunEnded(status="succeeded", reason="")], "orders: succeeded … 0 s"),
    ],
)  # fmt: skip
def test_the_first_line_shows_the_progress_of_the_run(events: list[Event | float], line: str) -> None:
    """A batch counts once nothing of it is owed. Refused rows are shown if there are any."""
    assert Terminal(batches=4).read_drawn(events)[0] == line


def test_every_lane_has_a_line_with_rows_rate_and_an_estimate() -> None:
    """The estimate uses the time of the lane's batches, and the number of batches that waited when the run began."""
    events: list[Event | float] = [
        make_started(_0=5, _1=2),
        BatchPlanned(batch=make_batch("0")),
        BatchPlanned(batch=make_batch("1", "b.json")),
        10.0,
        make_settled(read=300, lane="0"),
        make_settled(read=200, lane="0"),
        make_settled(read=40, lane="1"),
        make_settled(read=20, lane="1"),
    ]
    assert Terminal().read_drawn(events) == [
        "orders 4 batches 560 rows 0:00:10",
        "lane 0 2/5 batches 500 rows 50 rows/s about 0:00:15 left a.json",
        "lane 1 2/2 batches 60 rows 6 rows/s b.json",
    ]


def test_a_long_line_is_cut_after_its_figures() -> None:
    """Each lane keeps one line."""
    label = "landing/a-very-long-name-of-a-file-that-goes-on-and-on-and-on-and-on-and-on-and-on-and-on.json"
    events: list[Event | float] = [
        make_started(_0=9),
        BatchPlanned(batch=make_batch("0", label)),
        5.0,
        make_settled(read=123_456),
    ]
    lines = Terminal().read_drawn(events)
    assert len(lines) == 2
    assert lines[1].startswith("lane 0 1/9 batches 123,456 rows 24,691 rows/s about 0:00:40 left landing/a-very")
    assert lines[1].endswith("…")


def test_there_is_no_estimate_if_the_waiting_batches_are_unknown() -> None:
    """This is so in a run that follows its origin. More batches than were counted are no error."""
    events: list[Event | float] = [make_started(), BatchPlanned(batch=make_batch("0")), 10.0, make_settled(read=500)]
    assert Terminal().read_drawn(events)[1] == "lane 0 1 batch 500 rows 50 rows/s a.json"
    events = [make_started(_0=1), BatchPlanned(batch=make_batch()), 10.0, make_settled(read=5), make_settled(read=5)]
    assert Terminal().read_drawn(events)[1] == "lane 0 2/2 batches 10 rows 1 rows/s a.json"


def test_a_lane_that_waits_for_a_retry_is_shown() -> None:
    """Its line has the time until the next attempt."""
    events: list[Event | float] = [
        make_started(),
        BatchRests(batch=make_batch(), error=ValueError(), tried=1, seconds=8.0),
    ]
    assert Terminal().read_drawn(events)[1] == "lane 0 0 batches 0 rows waits 8 s for its next attempt"


def test_only_the_first_of_many_lanes_are_shown() -> None:
    """The others are counted."""
    lines = Terminal().read_drawn([make_settled(read=1, lane=str(number)) for number in range(MOST_LANES + 3)])
    assert len(lines) == 1 + MOST_LANES + 1
    assert lines[-1] == "and 3 more lanes"


def test_nothing_is_drawn_without_a_terminal() -> None:
    """A file or a pipe stays empty."""
    nobody = Terminal(is_one=False)
    with nobody.bar as bar:
        bar(make_settled(read=1_000))
    assert nobody.written.getvalue() == ""


def read_everything(terminal: int) -> str:
    """Return the output of a terminal whose other end is closed."""
    found = b""
    with contextlib.suppress(OSError):
        while part := os.read(terminal, 1 << 16):
            found += part
    os.close(terminal)
    return found.decode()


def test_a_real_terminal_is_restored_at_the_end() -> None:
    """The progress lines are cleared, and the cursor is visible again."""
    ours, theirs = pty.openpty()
    with os.fdopen(theirs, "w") as terminal:
        console = Console(file=terminal, force_terminal=True, width=80)
        bar = ProgressBar(RunProgress("orders", clock=ManualClock()), console=console)
        with bar:
            bar(make_settled(read=1_000))
    written = read_everything(ours)
    assert "lane 0" in written
    assert "1,000 rows" in written
    assert written.endswith("\x1b[2K")
    assert written.rindex("\x1b[?25h") > written.rindex("\x1b[?25l")


def test_a_file_name_moves_no_cursor() -> None:
    """Control characters in the name are escaped."""
    drawn = Terminal().read_drawn([BatchPlanned(batch=make_batch(label="a\x1b[2Jb\x9bc\u202ed\ne.json"))])
    assert drawn[-1].endswith(r"a\u001b[2Jb\u009bc\u202ed\ne.json")
