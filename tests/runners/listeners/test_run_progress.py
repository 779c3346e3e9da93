"""The progress of a run in one line, for a log and for a notebook."""

from __future__ import annotations

import sys
import threading
from datetime import datetime, timezone
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from origins.batch import Batch, Span
from runners.listeners import run_progress
from runners.listeners.run_progress import RunProgress, call_every, show_in_notebook
from runners.model.events import (
    BatchCancelled,
    BatchPlanned,
    BatchRests,
    BatchSettled,
    Event,
    RunEnded,
    RunStarted,
    RunStopping,
)
from runners.model.planned_batch import SettledCounts
from tests.manual_clock import ManualClock


def make_batch(number: int, label: str = "a.json") -> Batch:
    """Return a batch of lane 0."""
    return Batch(
        pipeline="orders",
        run="r",
        origin="o",
        lane="0",
        number=number,
        plan=f"{number}",
        span=Span(start=None, end=number, label=label),
        schema="",
        time=datetime(2026, 1, 1, tzinfo=timezone.utc),
    )


def make_settled(number: int, *, owed: tuple[str, ...] = ()) -> BatchSettled:
    """Return the event of a batch with 1,000 rows, one of which was refused."""
    return BatchSettled(batch=make_batch(number), counts=SettledCounts(read=1_000, nacked=1), owed=owed)


@pytest.mark.parametrize(
    ("events", "line"),
    [
        ([], "orders: opening the state, origins and tables … 12 s"),
        ([RunStarted(pipeline="orders", run="r")], "orders, 0 batches, 0:00:12"),
        ([RunStarted(pipeline="orders", run="r"), BatchPlanned(batch=make_batch(1))],
         "orders, 0 batches, 0:00:12; in flight: batch 1 (a.json)"),
        ([BatchPlanned(batch=make_batch(1)), RunStarted(pipeline="orders", run="r"), make_settled(1)],
         "orders, 1 batch, 1,000 rows, 1 refused, 0:00:12"),
        ([RunStarted(pipeline="orders", run="r"), BatchPlanned(batch=make_batch(1)), make_settled(1, owed=("copy",))],
         "orders, 0 batches, 0:00:12; in flight: batch 1 (a.json)"),
        ([RunStarted(pipeline="orders", run="r"), BatchPlanned(batch=make_batch(1, "")),
          BatchCancelled(batch=make_batch(1))],
         "orders, 0 batches, 0:00:12"),
        ([RunStarted(pipeline="orders", run="r"),
          *(BatchPlanned(batch=make_batch(number, "")) for number in range(1, 6))],
         "orders, 0 batches, 0:00:12; in flight: batch 1, batch 2, batch 3, 2 more"),
        ([RunStarted(pipeline="orders", run="r"), make_settled(1), RunEnded(status="succeeded", reason="")],
         "orders: succeeded, 1 batch, 1,000 rows, 1 refused, 0:00:12"),
        ([RunStarted(pipeline="orders", run="r", waiting={"0": 3, "1": 1}), make_settled(1)],
         "orders, 1/4 batches, 1,000 rows, 1 refused, 0:00:12"),
        ([RunStarted(pipeline="orders", run="r", waiting={"0": 1}), make_settled(1), make_settled(2)],
         "orders, 2/2 batches, 2,000 rows, 2 refused, 0:00:12"),
        ([RunStarted(pipeline="orders", run="r"), BatchPlanned(batch=make_batch(1)),
          BatchRests(batch=make_batch(1), error=ValueError(), tried=1, seconds=8.0)],
         "orders, 0 batches, 0:00:12; in flight: batch 1 (attempt 2 after 8 s)"),
        ([RunStopping(reason="Ctrl-C")], "orders: stopping (Ctrl-C) … 12 s"),
        ([RunStopping(reason="signal SIGINT")],
         "orders: stopping (signal SIGINT; a second signal cancels open batches) … 12 s"),
    ],
)  # fmt: skip
def test_a_line_shows_the_progress_of_the_run_and_the_batches_in_flight(events: list[Event], line: str) -> None:
    """Before the run starts, it shows only the elapsed time."""
    clock = ManualClock()
    progress = RunProgress("orders", clock=clock)
    clock.move(12.3)
    for event in events:
        progress(event)
    assert progress.describe() == line


def test_a_function_is_called_repeatedly_until_the_block_ends() -> None:
    """It runs in a separate thread, which ends with the block."""
    enough, calls = threading.Event(), []

    def call() -> None:
        calls.append(threading.current_thread())
        if len(calls) == 3:
            enough.set()

    with call_every(0.001, call):
        assert enough.wait(30)
    assert not calls[0].is_alive()
    assert calls[0] is not threading.current_thread()


class Notebook(ModuleType):
    """A double of IPython: a shell with a kernel, and displays that can be updated."""

    def __init__(self, *, kernel: object = True, broken: bool = False) -> None:
        super().__init__("IPython")
        self.kernel, self.broken = kernel, broken
        self.lines: list[str] = []
        self.updated = threading.Event()
        self.display = self

    def get_ipython(self) -> SimpleNamespace:
        return SimpleNamespace(kernel=self.kernel)

    def __call__(self, bundle: dict[str, str], **how: Any) -> Notebook:
        assert how == {"raw": True, "display_id": True}
        self.lines.append(bundle["text/plain"])
        return self

    def update(self, bundle: dict[str, str], *, raw: bool) -> None:
        self.updated.set()
        if self.broken:
            raise ConnectionError
        self.lines.append(bundle["text/plain"])


@pytest.mark.parametrize(
    ("events", "line"),
    [
        ([], "orders: starting Spark … 12 s"),
        ([RunStarted(pipeline="orders", run="r"), make_settled(1)],
         "orders: starting Spark, 1 batch, 1,000 rows, 1 refused, 0:00:12"),
        ([RunStopping(reason="Ctrl-C")], "orders: stopping (Ctrl-C) … 12 s"),
    ],
)  # fmt: skip
def test_a_line_shows_that_spark_is_starting(events: list[Event], line: str) -> None:
    """This may happen in the middle of a run. A run that is asked to stop shows that instead."""
    clock = ManualClock()
    progress = RunProgress("orders", clock=clock, starts_spark=lambda: True)
    clock.move(12.3)
    for event in events:
        progress(event)
    assert progress.describe() == line


def open_notebook(monkeypatch: pytest.MonkeyPatch, **how: Any) -> Notebook:
    notebook = Notebook(**how)
    shown = ModuleType("IPython.display")
    shown.display = notebook  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "IPython", notebook)
    monkeypatch.setitem(sys.modules, "IPython.display", shown)
    monkeypatch.setattr(run_progress, "OFTEN", 0.001)
    return notebook


def test_a_notebook_shows_a_line_that_is_updated(monkeypatch: pytest.MonkeyPatch) -> None:
    """The line appears at the start, and finally shows how the run ended."""
    notebook = open_notebook(monkeypatch)
    with show_in_notebook("orders") as listeners:
        assert notebook.lines[0] == "orders: opening the state, origins and tables"
        assert notebook.updated.wait(30)
        for event in (RunStarted(pipeline="orders", run="r"), make_settled(1), RunEnded(status="succeeded", reason="")):
            for listener in listeners:
                listener(event)
    assert notebook.lines[1] == "orders: opening the state, origins and tables … 0 s"
    assert notebook.lines[-1] == "orders: succeeded, 1 batch, 1,000 rows, 1 refused, 0:00:00"


@pytest.mark.parametrize("kernel", [None, True])
def test_a_notebook_that_cannot_show_the_line_does_not_affect_the_run(
    monkeypatch: pytest.MonkeyPatch, kernel: object
) -> None:
    """A console of IPython has no kernel, so it shows nothing. A display may fail."""
    notebook = open_notebook(monkeypatch, kernel=kernel, broken=True)
    with show_in_notebook("orders") as listeners:
        assert len(listeners) == bool(kernel)
    assert len(notebook.lines) == bool(kernel)


def test_a_script_shows_nothing(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """An installed IPython is not imported if the script has not imported it."""
    monkeypatch.delitem(sys.modules, "IPython", raising=False)
    with show_in_notebook("orders") as listeners:
        assert listeners == []
    assert "IPython" not in sys.modules
    assert capsys.readouterr() == ("", "")
