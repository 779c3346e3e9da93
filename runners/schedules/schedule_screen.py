"""What a scheduler does, for a person: a table that is drawn again on a terminal, and lines anywhere else."""

from __future__ import annotations

import contextlib
import dataclasses
import logging
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from origins.batch import JSON
from runners.model.clock import Clock
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
from runners.model.text import escape_line


@dataclass
class ScreenRow:
    """What the screen shows of a pipeline."""

    why: str = ""
    """Why it is not scheduled. Empty if it is."""
    since: datetime | None = None
    """When the current run began."""
    last: Ended | None = None
    at: datetime | None = None
    """When the last run ended."""
    failed: int = 0
    """How many runs failed in a row."""


@dataclass
class ScheduleBoard:
    """What is known about all pipelines, from events alone."""

    clock: Clock
    rows: dict[str, ScreenRow] = field(default_factory=dict)
    broken: dict[str, str] = field(default_factory=dict)
    draining: str = ""

    def __call__(self, event: ScheduleEvent) -> None:
        if isinstance(event, Scheduled | Unscheduled):
            self.rows.setdefault(event.name, ScreenRow()).why = event.why if isinstance(event, Unscheduled) else ""
        elif isinstance(event, Broken):
            self.broken[event.file] = event.message
        elif isinstance(event, Mended):
            self.broken.pop(event.file, None)
        elif isinstance(event, Began):
            self.rows[event.name].since = self.clock.now()
        elif isinstance(event, Ended):
            row = self.rows[event.name]
            row.since, row.last, row.at = None, event, self.clock.now()
            row.failed = row.failed + 1 if event.status == "failed" else 0
        elif isinstance(event, Draining):
            self.draining = event.reason


def format_event(event: ScheduleEvent) -> list[str]:
    """Return an event as lines of a log."""
    if isinstance(event, Scheduled):
        return [f"{event.name} is scheduled ({event.file})"]
    if isinstance(event, Unscheduled):
        return [f"{event.name} is no longer scheduled: {event.why}"]
    if isinstance(event, Broken):
        return [f"{event.file} is left out:", *event.message.splitlines()]
    if isinstance(event, Mended):
        return [f"{event.file} is valid again"]
    if isinstance(event, Began):
        return [f"{event.name} began (due {_format_clock_time(event.due)})"]
    if isinstance(event, Ended):
        first_line, *more = event.message.splitlines() or [""]
        how = "did not begin" if event.status == "owned" else f"{event.status} after {event.seconds:,.1f} s"
        return [f"{event.name} {how}: {first_line}", *(f"  {line}" for line in more)]
    if isinstance(event, LeftOut):
        first, count = _format_clock_time(event.due[0]), len(event.due)
        runs = f"the run of {first} is" if count == 1 else f"{count:,} runs since {first} are"
        return [f"{event.name}: {runs} left out, for {event.why}"]
    return [f"{event.reason}: no run begins any more; open batches are finished"]


class ScheduleScreen:
    """A listener that shows current, next and failed runs as a table on a terminal. Elsewhere it writes lines."""

    def __init__(self, next_of: Callable[[str], datetime | None], *, clock: Clock, console: Console) -> None:
        self.board = ScheduleBoard(clock)
        self._next_of = next_of
        self._clock = clock
        self._console = console
        self._live = Live(get_renderable=self.draw_all, console=console, refresh_per_second=2, transient=True)

    def __call__(self, event: ScheduleEvent) -> None:
        self.board(event)
        if self._console.is_terminal and not _is_lasting(event):
            return
        stamp = self._clock.now().strftime("%Y-%m-%d %H:%M:%S")
        lines = [escape_line(f"{stamp}  {line}") for line in format_event(event)]
        if self._console.is_terminal:
            self._console.print("\n".join(lines), markup=False, highlight=False, soft_wrap=True)
            return
        with contextlib.suppress(OSError):  # a closed stream does not stop the scheduler
            self._console.file.write("".join(f"{line}\n" for line in lines))
            self._console.file.flush()

    def draw_all(self) -> RenderableType:
        """Draw the running pipelines, then the scheduled ones in the order in which they are due, then the rest."""
        board, now = self.board, self._clock.now()
        table = Table("pipeline", "now", "next (UTC)", "last run", expand=False, box=None, padding=(0, 2, 0, 0))
        for name, row in sorted(dict(board.rows).items(), key=lambda each: self._sort_key(*each)):
            table.add_row(Text(name), *self._format_cells(name, row, now))
        broken = [
            Text(_get_first_line(f"{file} is broken: {message.removeprefix(f'{file}: ')}"), "red")
            for file, message in list(board.broken.items())
        ]
        drain = [Text(f"{board.draining}: waiting for open runs", "yellow")] if board.draining else []
        return Group(table, *broken, *drain)

    def __enter__(self) -> ScheduleScreen:
        if self._console.is_terminal:
            self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._live.stop()

    def _sort_key(self, name: str, row: ScreenRow) -> tuple[int, str, str]:
        due = self._next_of(name)
        return (0 if row.since else 2 if row.why else 1, due.isoformat() if due else "~", name)

    def _format_cells(self, name: str, row: ScreenRow, now: datetime) -> list[Text]:
        due = self._next_of(name)
        if row.since is not None:
            doing = Text(f"runs, {(now - row.since).total_seconds():,.0f} s", "green")
        else:
            doing = Text(escape_line(row.why), "yellow")
        comes = Text(_format_due(due, now) if due and not (row.why or self.board.draining) else "")
        return [doing, comes, _format_last(row)]


def _format_last(row: ScreenRow) -> Text:
    if row.last is None or row.at is None:
        return Text("")
    often = f" ({row.failed} in a row)" if row.failed > 1 else ""
    message = f"{row.last.status} at {_format_clock_time(row.at)}{often}: {_get_first_line(row.last.message)}"
    return Text(message, "red" if row.last.status == "failed" else "")


def _is_lasting(event: ScheduleEvent) -> bool:
    """Whether the event stays above the table, so that a person can still see it later."""
    return isinstance(event, Broken | Unscheduled | LeftOut) or (isinstance(event, Ended) and event.status == "failed")


def _get_first_line(message: str) -> str:
    return escape_line((message.splitlines() or [""])[0])


def _format_due(due: datetime, now: datetime) -> str:
    """Format a due time with its weekday, or with its date if the weekday would be ambiguous."""
    return _format_clock_time(due) if due - now < timedelta(days=6) else due.strftime("%Y-%m-%d %H:%M:%S")


def _format_clock_time(moment: datetime) -> str:
    return moment.strftime("%a %H:%M:%S")


log = logging.getLogger("wherry")


class ScheduleLog:
    """A listener that logs every event of a scheduler in a line with its facts."""

    def __call__(self, event: ScheduleEvent) -> None:
        facts: dict[str, JSON] = {"event": re.sub(r"(?<=[a-z])(?=[A-Z])", "_", type(event).__name__).lower()}
        for each in dataclasses.fields(event):
            if each.name not in ("report", "message"):
                facts["pipeline" if each.name == "name" else each.name] = getattr(event, each.name)
        if isinstance(event, Ended) and event.report is not None:
            facts["run"] = event.report.run
        level = logging.ERROR if isinstance(event, Ended) and event.status == "failed" else logging.INFO
        log.log(level, "%s", "\n".join(format_event(event)), extra={"facts": facts})
