"""Every run leaves its entry, and none waits for it."""

from __future__ import annotations

import threading
from collections.abc import Sequence

import pytest

from runners import run, run_history
from runners.run_history import RunRow
from runners.scribe import Scribe
from tests.scenarios.conftest import ORDERS, Place, order

pytestmark = pytest.mark.spark


@pytest.mark.promise("CN-15")
def test_a_run_is_in_the_history_with_what_it_carried(place: Place) -> None:
    """The one that failed as well, each with the report that it gave."""
    place.land("1.json", [order(1), order(2, amount="-1"), order(3)])
    pipeline = place.load(ORDERS)
    report = pipeline.run()
    place.load(ORDERS.replace("lower(email)", "lower(emial)")).run(check=False)
    failed, carried = pipeline.runs(report=True)
    assert (carried["run"], carried["status"], carried["read"], carried["nacked"]) == (report.run, "succeeded", 3, 1)
    assert carried["report"]["destinations"] == report.json()["destinations"]
    assert carried["started_at"] < carried["ended_at"] < failed["started_at"]
    assert failed["status"] == "failed"
    assert "emial" in failed["error"]


@pytest.mark.promise("CN-16")
def test_a_history_that_hangs_holds_up_no_batch(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """All of them are carried while the first entry is still being written."""
    hangs = threading.Event()
    written: list[RunRow] = []

    def hang(rows: Sequence[RunRow]) -> None:
        hangs.wait(300)
        written.extend(rows)

    scribe = Scribe(hang)
    monkeypatch.setattr(run, "scribe_of", lambda *_: scribe)
    monkeypatch.setattr(run_history, "PATIENCE", 0.0)
    for number in range(3):
        place.land(f"{number}.json", [order(number)])
    report = place.load(ORDERS).run()
    assert (report.status, report.batches, written) == ("succeeded", 3, [])
    hangs.set()
    assert scribe.flush(30)
    assert [row.status for row in written] == ["running", "succeeded"]
