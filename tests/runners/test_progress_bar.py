"""What a person at a terminal sees of a run while it goes on."""

from __future__ import annotations

from datetime import datetime, timezone
from io import StringIO

import pytest
from rich.console import Console
from rich.text import Text

from origins.batch import Batch, Span
from runners.events import BatchSettled, RunEnded, RunStarted, RunStopping
from runners.progress_bar import ProgressBar


class Terminal:
    """A terminal of 120 columns, and what was written on it."""

    def __init__(self, *, is_one: bool = True) -> None:
        self.written = StringIO()
        self.bar = ProgressBar(
            "orders", batches=4, console=Console(file=self.written, force_terminal=is_one, width=120)
        )

    @property
    def last(self) -> str:
        """The last line drawn, without colours, the bar itself and the time."""
        lines = [
            line
            for line in Text.from_ansi(self.written.getvalue().replace("\r", "\n")).plain.split("\n")
            if line.strip()
        ]
        return " ".join(
            word for word in lines[-1].split() if set(word).isdisjoint("━╸╺⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏") and "0:00" not in word
        )


def settled(*, read: int, nacked: int = 0, owed: tuple[str, ...] = ()) -> BatchSettled:
    batch = Batch(
        pipeline="orders",
        run="r",
        origin="origin",
        lane="0",
        number=1,
        plan="p",
        span=Span(start=None, end=1),
        schema="",
        time=datetime(2026, 1, 1, tzinfo=timezone.utc),
    )
    return BatchSettled(batch=batch, counts={"read": read, "nacked": nacked}, owed=owed)


@pytest.mark.parametrize(
    ("events", "line"),
    [
        ([], "orders: starting Spark 0/4 batches"),
        ([RunStarted(pipeline="orders", run="r")], "orders 0/4 batches"),
        ([RunStarted(pipeline="orders", run="r"), settled(read=1_000)], "orders 1/4 batches 1,000 rows"),
        (
            [RunStarted(pipeline="orders", run="r"), settled(read=1_000), settled(read=1_000, nacked=3)],
            "orders 2/4 batches 2,000 rows, 3 refused",
        ),
        ([settled(read=9, owed=("copy",))], "orders: starting Spark 0/4 batches"),
        ([settled(read=9, owed=("copy",)), settled(read=9)], "orders: starting Spark 1/4 batches 9 rows"),
        ([RunStopping(reason="Ctrl-C")], "orders: stopping (Ctrl-C) 0/4 batches"),
        ([RunEnded(status="succeeded", reason="")], "orders: succeeded 0/4 batches"),
    ],
)  # fmt: skip
def test_one_line_says_how_far_the_run_is(events: list[object], line: str) -> None:
    """Batches count when nothing is owed any more, and refused rows are told of when there are some."""
    terminal = Terminal()
    with terminal.bar as bar:
        for event in events:
            bar(event)  # type: ignore[arg-type]
    assert terminal.last == line


def test_nothing_is_drawn_where_nobody_sees_it() -> None:
    """A file or a pipe stays empty."""
    nobody = Terminal(is_one=False)
    with nobody.bar as bar:
        bar(settled(read=1_000))
    assert nobody.written.getvalue() == ""
