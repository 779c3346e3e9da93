"""Progress on a terminal, from events alone."""

from __future__ import annotations

from types import TracebackType

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

from runners.events import BatchSettled, Event, RunEnded, RunStarted, RunStopping


class ProgressBar:
    """A listener that draws one line; on anything but a terminal it draws nothing."""

    def __init__(self, name: str, *, batches: int | None = None, console: Console | None = None) -> None:
        self.console = console or Console(stderr=True)
        self.rows = self.nacked = 0
        self._progress = Progress(
            SpinnerColumn(),
            TextColumn("{task.description}"),
            BarColumn(bar_width=30),
            MofNCompleteColumn(),
            TextColumn("batches"),
            TextColumn("{task.fields[rows]}"),
            TimeElapsedColumn(),
            console=self.console,
            transient=True,
            disable=not self.console.is_terminal,
        )
        self._task = self._progress.add_task(f"{name}: starting Spark", total=batches, rows="")
        self._name = name

    def __call__(self, event: Event) -> None:
        if isinstance(event, RunStarted):
            self._progress.update(self._task, description=self._name)
        elif isinstance(event, RunStopping):
            self._progress.update(self._task, description=f"{self._name}: stopping ({event.reason})")
        elif isinstance(event, BatchSettled) and not event.owed:
            self.rows += event.counts["read"]
            self.nacked += event.counts["nacked"]
            rows = f"{self.rows:,} rows" + (f", {self.nacked:,} refused" if self.nacked else "")
            self._progress.update(self._task, advance=1, rows=rows)
        elif isinstance(event, RunEnded):
            self._progress.update(self._task, description=f"{self._name}: {event.status}")

    def __enter__(self) -> ProgressBar:
        self._progress.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._progress.stop()
