"""What a scheduler does, in lines for a person and in log lines for a program."""

from __future__ import annotations

import contextlib
import dataclasses
import logging
import re
from datetime import datetime

import click

from origins.batch import JSON
from runners.model.clock import Clock
from runners.model.schedule_events import (
    Began,
    Broken,
    Ended,
    LeftOut,
    Mended,
    Scheduled,
    ScheduleEvent,
    Unscheduled,
    Waits,
)
from runners.model.text import escape_line, paint


def format_event(event: ScheduleEvent) -> list[str]:
    """Return an event as lines of a log."""
    if isinstance(event, Scheduled):
        due = f", next at {_format_clock_time(event.next)}" if event.next else ""
        return [f"{event.name} is scheduled ({event.file}){due}"]
    if isinstance(event, Unscheduled):
        return [f"{event.name} is no longer scheduled: {event.why}"]
    if isinstance(event, Broken):
        return [f"{event.file} is left out:", *event.message.splitlines()]
    if isinstance(event, Mended):
        return [f"{event.file} is valid again"]
    if isinstance(event, Began):
        return [f"{event.name} began (due {_format_clock_time(event.due)})"]
    if isinstance(event, Waits):
        return [f"{event.name} waits for its group {event.group} (due {_format_clock_time(event.due)})"]
    if isinstance(event, Ended):
        first_line, *more = event.message.splitlines() or [""]
        how = "did not begin" if event.status == "owned" else f"{event.status} after {event.seconds:,.1f} s"
        return [f"{event.name} {how}: {first_line}", *(f"  {line}" for line in more)]
    if isinstance(event, LeftOut):
        first, count = _format_clock_time(event.due[0]), len(event.due)
        runs = f"the run of {first} is" if count == 1 else f"{count:,} runs since {first} are"
        return [f"{event.name}: {runs} left out, for {event.why}"]
    return [f"{event.reason}: no run begins any more; open batches are finished"]


class ScheduleLines:
    """A listener that writes every event of a scheduler to standard error, as lines with the time."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock

    def __call__(self, event: ScheduleEvent) -> None:
        stamp = self._clock.now().strftime("%Y-%m-%d %H:%M:%S")
        color = "red" if isinstance(event, Broken) or (isinstance(event, Ended) and event.status == "failed") else ""
        lines = [paint(escape_line(f"{stamp}  {line}"), color) for line in format_event(event)]
        with contextlib.suppress(OSError):  # a closed stream does not stop the scheduler
            click.echo("\n".join(lines), err=True)


def _format_clock_time(moment: datetime) -> str:
    return moment.strftime("%a %H:%M:%S")


log = logging.getLogger("wherry")


class ScheduleLog:
    """A listener that logs every event of a scheduler in a line with its facts."""

    def __call__(self, event: ScheduleEvent) -> None:
        facts = make_facts(event)
        level = logging.ERROR if isinstance(event, Ended) and event.status == "failed" else logging.INFO
        log.log(level, "%s", "\n".join(format_event(event)), extra={"facts": facts})


def make_facts(event: ScheduleEvent) -> dict[str, JSON]:
    """Return what a program gets to know of an event. `event` is its name, such as `left_out`."""
    facts: dict[str, JSON] = {"event": re.sub(r"(?<=[a-z])(?=[A-Z])", "_", type(event).__name__).lower()}
    for each in dataclasses.fields(event):
        if each.name not in ("report", "message"):
            facts["pipeline" if each.name == "name" else each.name] = getattr(event, each.name)
    if isinstance(event, Ended) and event.report is not None:
        facts["run"] = event.report.run
    return facts
