"""Progress on a terminal, from events alone: a line for the run, and one for each lane."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import timedelta
from types import TracebackType

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.spinner import Spinner
from rich.text import Text

from runners.listeners.log_lines import describe_stop
from runners.model.clock import Clock
from runners.model.events import (
    BatchPlanned,
    BatchRests,
    BatchResumed,
    BatchSettled,
    Event,
    RunEnded,
    RunStarted,
    RunStopping,
)
from runners.model.text import escape_line, format_batches, format_count

MOST_LANES = 12
"""So many lanes have a line of their own."""


@dataclass
class LaneProgress:
    """What is known of a lane."""

    since: float
    """When its first batch was planned."""
    waiting: int | None = None
    """How many batches waited for it when the run began, where that is known."""
    batches: int = 0
    rows: int = 0
    nacked: int = 0
    label: str = ""
    """What is being carried."""

    def estimate_left(self, now: float) -> timedelta | None:
        """How long it takes at the present speed; None if that is unknown."""
        if self.waiting is None or not self.batches:
            return None
        more = max(0, self.waiting - self.batches)
        return timedelta(seconds=round((now - self.since) / self.batches * more))

    def compute_rate(self, now: float) -> float:
        """Rows a second."""
        return self.rows / max(now - self.since, 0.001)


class ProgressBar:
    """A listener that draws while it is entered; on anything but a terminal it draws nothing."""

    def __init__(
        self, name: str, *, batches: int | None = None, console: Console | None = None, clock: Clock | None = None
    ) -> None:
        self.console = console or Console(stderr=True)
        self.clock = clock or Clock()
        self.lanes: dict[str, LaneProgress] = {}
        self._name, self._doing = name, "starting Spark"
        self._batches = batches
        """How many batches there are in all, where the caller knows."""
        self._waiting: dict[str, int] = {}
        self._began = self.clock.elapsed()
        self._spinner = Spinner("dots")
        self._live = Live(console=self.console, transient=True, refresh_per_second=4, get_renderable=self._draw)

    def __call__(self, event: Event) -> None:
        if isinstance(event, RunStarted):
            self._doing, self._waiting = "", dict(event.waiting)
        elif isinstance(event, BatchPlanned | BatchResumed):
            lane = self._get_lane(event.batch.lane)
            lane.label = event.batch.span.label
        elif isinstance(event, BatchRests):
            self._get_lane(event.batch.lane).label = f"waits {event.seconds:.0f} s for its next attempt"
        elif isinstance(event, BatchSettled) and not event.owed:
            lane = self._get_lane(event.batch.lane)
            lane.batches += 1
            lane.rows += event.counts["read"]
            lane.nacked += event.counts["nacked"]
        elif isinstance(event, RunStopping):
            self._doing = f"stopping ({describe_stop(event)})"
        elif isinstance(event, RunEnded):
            self._doing = event.status

    def __enter__(self) -> ProgressBar:
        if self.console.is_terminal:
            self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._live.stop()

    def _get_lane(self, name: str) -> LaneProgress:
        if name not in self.lanes:
            self.lanes[name] = LaneProgress(since=self.clock.elapsed(), waiting=self._waiting.get(name))
        return self.lanes[name]

    def _draw(self) -> RenderableType:
        shown = list(self.lanes.items())[:MOST_LANES]
        rows = [[f"  lane {name}", *self._format_cells(lane)] for name, lane in shown]
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        lines = [_make_line("  ".join(map(_pad_text, range(len(row)), row, widths)).rstrip()) for row in rows]
        if len(self.lanes) > len(shown):
            lines.append(_make_line(f"  and {len(self.lanes) - len(shown)} more lanes"))
        self._spinner.update(text=_make_line("  ".join(self._describe_run())))
        return Group(self._spinner, *lines)

    def _describe_run(self) -> Iterator[str]:
        """The line of the run."""
        yield f"{self._name}: {self._doing}" if self._doing else self._name
        lanes = self.lanes.values()
        yield _format_progress(sum(lane.batches for lane in lanes), self._batches)
        rows, nacked = sum(lane.rows for lane in lanes), sum(lane.nacked for lane in lanes)
        if rows:
            yield f"{rows:,} rows" + (f", {nacked:,} refused" if nacked else "")
        yield str(timedelta(seconds=int(self.clock.elapsed() - self._began)))

    def _format_cells(self, lane: LaneProgress) -> Iterator[str]:
        now = self.clock.elapsed()
        left = lane.estimate_left(now)
        yield _format_progress(lane.batches, lane.waiting)
        yield format_count(lane.rows)
        yield f"{lane.compute_rate(now):,.0f} rows/s" if lane.rows else ""
        yield f"about {left} left" if left else ""
        yield lane.label


def _format_progress(batches: int, whole: int | None) -> str:
    """So many batches, of so many where that is known; there may be more than was thought."""
    return format_batches(batches) if whole is None else f"{batches:,}/{max(whole, batches):,} batches"


def _make_line(text: str) -> Text:
    """What does not fit is cut: a line that is wrapped garbles those above it."""
    return Text(escape_line(text), no_wrap=True, overflow="ellipsis")


def _pad_text(column: int, text: str, width: int) -> str:
    """The text in its column; figures stand right."""
    return f"{text:<{width}}" if column in (0, 5) else f"{text:>{width}}"
