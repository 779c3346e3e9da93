"""The output of a scheduler: lines for a person."""

from __future__ import annotations

import sys
from datetime import datetime, timezone
from io import StringIO

import pytest

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
    Waits,
)
from runners.schedules.schedule_log import ScheduleLines, format_event
from tests.manual_clock import ManualClock

NOON = datetime(2026, 6, 1, 12, tzinfo=timezone.utc)
LATER = NOON.replace(minute=5)


def make_ended(name: str, status: str, message: str = "") -> Ended:
    return Ended(name=name, due=NOON, status=status, message=message, seconds=3.21)


@pytest.mark.parametrize(
    ("event", "lines"),
    [
        (Scheduled(name="orders", file="a.yaml"), ["orders is scheduled (a.yaml)"]),
        (
            Scheduled(name="orders", file="a.yaml", next=LATER),
            ["orders is scheduled (a.yaml), next at Mon 12:05:00"],
        ),
        (Unscheduled(name="orders", why="it is gone"), ["orders is no longer scheduled: it is gone"]),
        (Broken(file="a.yaml", message="a.yaml: 1\n  line 1"), ["a.yaml is left out:", "a.yaml: 1", "  line 1"]),
        (Mended(file="a.yaml"), ["a.yaml is valid again"]),
        (Began(name="orders", due=NOON), ["orders began (due Mon 12:00:00)"]),
        (Waits(name="orders", due=NOON, group="shop"), ["orders waits for its group shop (due Mon 12:00:00)"]),
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


def test_every_line_has_its_time(capsys: pytest.CaptureFixture[str]) -> None:
    """Markup in a name is shown as text."""
    shown = ScheduleLines(ManualClock(time=NOON))
    shown(Scheduled(name="orders", file="[red]a.yaml"))
    shown(Began(name="orders", due=NOON))
    assert capsys.readouterr().err == (
        "2026-06-01 12:00:00  orders is scheduled ([red]a.yaml)\n2026-06-01 12:00:00  orders began (due Mon 12:00:00)\n"
    )


def test_a_log_whose_reader_is_gone_stops_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """The pipe is closed at its other end."""

    class Gone(StringIO):
        def write(self, text: str) -> int:
            raise BrokenPipeError

    monkeypatch.setattr(sys, "stderr", Gone())
    ScheduleLines(ManualClock(time=NOON))(Scheduled(name="orders", file="a.yaml"))


def test_text_of_a_run_moves_no_cursor(capsys: pytest.CaptureFixture[str]) -> None:
    """Control characters are escaped."""
    shown = ScheduleLines(ManualClock(time=NOON))
    hostile = "a\x1b[2Jb\x9bc\rd\u202ee"
    shown(Broken(file=f"{hostile}.yaml", message=hostile))
    shown(make_ended("orders", "failed", hostile))
    said = capsys.readouterr().err
    assert "\\u001b[2J" in said
    assert set(said) & set("\x1b\x9b\r\u202e") == set()
