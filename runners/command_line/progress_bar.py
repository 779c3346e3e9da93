"""The progress bar of a run on a terminal."""

from __future__ import annotations

from collections.abc import Iterator

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.spinner import Spinner
from rich.text import Text

from runners.listeners.run_progress import LaneProgress, RunProgress, format_progress
from runners.model.events import Event
from runners.model.text import escape_line, format_count

MOST_LANES = 12
"""The most lanes that have a line in a progress bar."""


class ProgressBar:
    """A listener that draws a line for the run and for each lane while it is entered, but only on a terminal."""

    def __init__(self, progress: RunProgress, *, console: Console | None = None) -> None:
        self.progress = progress
        self.console = console or Console(stderr=True)
        self._spinner = Spinner("dots")
        self._live = Live(console=self.console, transient=True, refresh_per_second=4, get_renderable=self._draw)

    def __call__(self, event: Event) -> None:
        self.progress(event)

    def __enter__(self) -> ProgressBar:
        self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._live.stop()

    def _draw(self) -> RenderableType:
        shown = list(self.progress.lanes.items())[:MOST_LANES]
        rows = [[f"  lane {name}", *self._format_cells(lane)] for name, lane in shown]
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        lines = [_make_line("  ".join(map(_pad_text, range(len(row)), row, widths)).rstrip()) for row in rows]
        if len(self.progress.lanes) > len(shown):
            lines.append(_make_line(f"  and {len(self.progress.lanes) - len(shown)} more lanes"))
        self._spinner.update(text=_make_line("  ".join(self.progress.list_facts())))
        return Group(self._spinner, *lines)

    def _format_cells(self, lane: LaneProgress) -> Iterator[str]:
        now = self.progress.clock.elapsed()
        left = lane.estimate_left(now)
        yield format_progress(lane.batches, lane.waiting)
        yield format_count(lane.rows)
        yield f"{lane.compute_rate(now):,.0f} rows/s" if lane.rows else ""
        yield f"about {left} left" if left else ""
        yield lane.label


def _make_line(text: str) -> Text:
    """Make a line that is cut at the end, because a wrapped line would garble the lines above it."""
    return Text(escape_line(text), no_wrap=True, overflow="ellipsis")


def _pad_text(column: int, text: str, width: int) -> str:
    return f"{text:<{width}}" if column in (0, 5) else f"{text:>{width}}"
