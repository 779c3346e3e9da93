"""The output of a scheduler: a table on a terminal, or lines in a log."""

from __future__ import annotations

from datetime import datetime, timezone
from io import StringIO

import pytest
from rich.console import Console

from runners.model.schedule_events import (
    Began,
    Broken,
    Draining,
    Ended,
    LeftOut,
    Mended,
    Scheduled,
    ScheduleEvent,
    Unscheduled,
)
from runners.schedules.schedule_screen import ScheduleScreen, format_event
from tests.manual_clock import ManualClock

NOON = datetime(2026, 6, 1, 12, tzinfo=timezone.utc)
LATER = NOON.replace(minute=5)


def make_ended(name: str, status: str, message: str = "") -> Ended:
    return Ended(name=name, due=NOON, status=status, message=message, seconds=3.21)


def make_screen(*, terminal: bool, width: int = 120) -> ScheduleScreen:
    due = {"orders": LATER, "prices": NOON.replace(minute=2), "runs": LATER, "monthly": NOON.replace(day=30)}
    console = Console(file=StringIO(), force_terminal=terminal, width=width)
    return ScheduleScreen(due.get, clock=ManualClock(time=NOON), console=console)


def split_cells(shown: ScheduleScreen) -> list[list[str]]:
    """Return the cells of the table."""
    console = Console(file=StringIO(), width=160, color_system=None)
    console.print(shown.draw_all())
    lines = console.file.getvalue().splitlines()  # type: ignore[attr-defined]
    return [[cell.strip() for cell in line.split("  ") if cell.strip()] for line in lines]


def test_the_table_shows_active_next_and_failed_runs() -> None:
    """Active runs come first, then the next runs in order. Unscheduled and broken pipelines come last."""
    shown = make_screen(terminal=True)
    for name in ("orders", "prices", "runs", "away", "monthly"):
        shown.board(Scheduled(name=name, file=f"{name}.yaml"))
    events: list[ScheduleEvent] = [
        Began(name="orders", due=NOON),
        make_ended("orders", "failed", "the disk is full\nfree some"),
        Began(name="orders", due=NOON),
        make_ended("orders", "failed", "the disk is full\nfree some"),
        Began(name="runs", due=NOON),
        Unscheduled(name="away", why="it is paused: a move"),
        Broken(file="bad.yaml", message="bad.yaml: 1 problem\n  line 1"),
    ]
    for event in events:
        shown.board(event)
    shown.board.clock.move(42)  # type: ignore[attr-defined]
    assert split_cells(shown) == [
        ["pipeline", "now", "next (UTC)", "last run"],
        ["runs", "runs, 42 s", "Mon 12:05:00"],
        ["prices", "Mon 12:02:00"],
        ["orders", "Mon 12:05:00", "failed at Mon 12:00:00 (2 in a row): the disk is full"],
        ["monthly", "2026-06-30 12:00:00"],
        ["away", "it is paused: a move"],
        ["bad.yaml is broken: 1 problem"],
    ]


def test_the_table_removes_a_mended_definition_and_shows_a_drain() -> None:
    """During a drain there are no next runs."""
    shown = make_screen(terminal=True)
    for event in (
        Scheduled(name="orders", file="orders.yaml"),
        Broken(file="bad.yaml", message="bad"),
        Mended(file="bad.yaml"),
        Began(name="orders", due=NOON),
        make_ended("orders", "failed", "once"),
        Began(name="orders", due=NOON),
        make_ended("orders", "succeeded", "1 batch"),
        Draining(reason="signal SIGTERM"),
    ):
        shown.board(event)
    assert split_cells(shown)[1:] == [
        ["orders", "succeeded at Mon 12:00:00: 1 batch"],
        ["signal SIGTERM: waiting for open runs"],
    ]


@pytest.mark.parametrize(
    ("event", "lines"),
    [
        (Scheduled(name="orders", file="a.yaml"), ["orders is scheduled (a.yaml)"]),
        (Unscheduled(name="orders", why="it is gone"), ["orders is no longer scheduled: it is gone"]),
        (Broken(file="a.yaml", message="a.yaml: 1\n  line 1"), ["a.yaml is left out:", "a.yaml: 1", "  line 1"]),
        (Mended(file="a.yaml"), ["a.yaml is valid again"]),
        (Began(name="orders", due=NOON), ["orders began (due Mon 12:00:00)"]),
        (make_ended("orders", "succeeded", "2 batches"), ["orders succeeded after 3.2 s: 2 batches"]),
        (make_ended("orders", "failed", "no\nway"), ["orders failed after 3.2 s: no", "  way"]),
        (make_ended("orders", "owned", "It is run already."), ["orders did not begin: It is run already."]),
        (
            LeftOut(name="orders", due=[NOON], why="another scheduler began it"),
            ["orders: the run of Mon 12:00:00 is left out, for another scheduler began it"],
        ),
        (
            LeftOut(name="orders", due=[NOON, LATER], why="it was due while no scheduler ran"),
            ["orders: 2 runs since Mon 12:00:00 are left out, for it was due while no scheduler ran"],
        ),
        (
            Draining(reason="signal SIGTERM"),
            ["signal SIGTERM: no run begins any more; open batches are finished"],
        ),
    ],
)  # fmt: skip
def test_an_event_is_a_line_of_the_log(event: ScheduleEvent, lines: list[str]) -> None:
    """An error with several lines has several lines."""
    assert format_event(event) == lines


def test_every_line_of_the_log_has_its_time_and_no_colour() -> None:
    """Markup in a name is shown as text."""
    shown = make_screen(terminal=False, width=40)
    with shown:
        shown(Scheduled(name="orders", file="[red]a.yaml"))
        shown(Began(name="orders", due=NOON))
    written = shown._console.file.getvalue()  # type: ignore[attr-defined]
    assert written == (
        "2026-06-01 12:00:00  orders is scheduled ([red]a.yaml)\n2026-06-01 12:00:00  orders began (due Mon 12:00:00)\n"
    )


def test_only_failures_are_printed_above_the_table() -> None:
    """The table shows a success until the next event."""
    shown = make_screen(terminal=True)
    for event in (
        Scheduled(name="orders", file="a.yaml"),
        Began(name="orders", due=NOON),
        make_ended("orders", "succeeded", "2 batches"),
        Began(name="orders", due=NOON),
        make_ended("orders", "failed", "the disk is full"),
    ):
        shown(event)
    written = shown._console.file.getvalue()  # type: ignore[attr-defined]
    assert "the disk is full" in written
    assert "2 batches" not in written


def test_a_log_whose_reader_is_gone_stops_nothing() -> None:
    """The pipe is closed at its other end."""

    class Gone(StringIO):
        def write(self, text: str) -> int:
            raise BrokenPipeError

    shown = ScheduleScreen(lambda name: None, clock=ManualClock(time=NOON), console=Console(file=Gone()))
    shown(Scheduled(name="orders", file="a.yaml"))
    assert "orders" in shown.board.rows


@pytest.mark.parametrize("terminal", [True, False])
def test_text_of_a_run_moves_no_cursor(terminal: bool) -> None:
    """This holds in the table and in lines."""
    shown = make_screen(terminal=terminal)
    hostile = "a\x1b[2Jb\x9bc\rd\u202ee"
    shown(Scheduled(name="orders", file="orders.yaml"))
    shown(Broken(file=f"{hostile}.yaml", message=hostile))
    shown(make_ended("orders", "failed", hostile))
    with shown._console.capture() as captured:
        shown._console.print(shown.draw_all())
    said = captured.get() + shown._console.file.getvalue()  # type: ignore[attr-defined]
    assert "\\u001b[2J" in said
    assert set(said.replace("\x1b[3", "").replace("\x1b[0", "")) & set("\x9b\r\u202e") == set()
    assert "\x1b[2J" not in said
