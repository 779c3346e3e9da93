"""Every run leaves an entry in the history, and no run waits for it."""

from __future__ import annotations

import dataclasses
import threading
from collections.abc import Sequence

import pytest

from runners.listeners import hook_runner
from runners.listeners.metrics import Metrics
from runners.model.clock import Clock
from runners.model.spec import Hook
from runners.state import run_history
from runners.state.background_writer import BackgroundWriter
from runners.state.run_history import RunRow
from tests.runners.listeners.test_metrics import read_figures
from tests.scenarios.conftest import ORDERS, Place, make_order

pytestmark = pytest.mark.spark


@pytest.mark.promise("CN-15", "DQ-15")
def test_the_history_has_the_results_of_each_run(place: Place) -> None:
    """A failed run has an entry too, and each entry can include its report. The metrics show what the DLQ took."""
    place.land("1.json", [make_order(1), make_order(2, amount="-1"), make_order(3)])
    pipeline = place.load(ORDERS)
    metrics = Metrics(Clock())
    report = pipeline.run(listeners=[metrics.of("orders")])
    found = read_figures(metrics)
    assert found['wherry_dlq_rows_total{pipeline="orders"}'] == 1
    assert found['wherry_dlq_bytes_total{pipeline="orders"}'] > 100
    assert found['wherry_dlq_seconds_total{pipeline="orders"}'] == pytest.approx(report.spent["dlq"], abs=1e-4)
    place.load(ORDERS.replace("lower(email)", "lower(emial)")).run(check=False)
    failed, carried = pipeline.history.list(report=True)
    assert (carried["run"], carried["status"], carried["read"], carried["nacked"]) == (report.run, "succeeded", 3, 1)
    assert carried["report"]["destinations"] == report.json()["destinations"]
    assert carried["started_at"] < carried["ended_at"] < failed["started_at"]
    assert failed["status"] == "failed"
    assert "emial" in failed["error"]


@pytest.mark.promise("CN-16")
def test_a_slow_history_or_hook_delays_no_batch(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """All batches are delivered while the first entry is still being written and the hook is still running."""
    hangs = threading.Event()
    written: list[RunRow] = []

    def hang(rows: Sequence[RunRow]) -> None:
        hangs.wait(300)
        written.extend(rows)

    writer = BackgroundWriter(hang)
    monkeypatch.setattr(run_history, "get_writer", lambda *_: writer)
    monkeypatch.setattr(run_history, "PATIENCE", 0.0)
    monkeypatch.setattr(hook_runner, "PATIENCE", 0.0)
    hooks = [Hook(on="start", python=lambda facts: hangs.wait(300))]
    for number in range(3):
        place.land(f"{number}.json", [make_order(number)])
    report = dataclasses.replace(place.load(ORDERS), hooks=hooks).run()
    assert (report.status, report.batches, written) == ("succeeded", 3, [])
    hangs.set()
    assert writer.flush(30)
    assert [row.status for row in written] == ["running", "succeeded"]
