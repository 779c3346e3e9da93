"""A DLQ that fails: refused rows go to its fallback, and come back into it, each once."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from runners.model.events import BatchSettled, Event
from tests.scenarios.conftest import ORDERS, Place, order

pytestmark = pytest.mark.spark

WITH_FALLBACK = ORDERS.replace(
    "dlq: {window: 1000, threshold: 500}",
    "dlq: {window: 0, on_failure: fallback, fallback: {delta: {path: refused}}}",
)
BATCHES = [[order(1), order(2, amount="x")], [order(3), order(4, amount="y"), order(5, amount="-1")], [order(6)]]


def land(place: Place) -> None:
    for number, rows in enumerate(BATCHES):
        place.land(f"{number}.json", rows)


def hide(place: Place, folder: str = ".wherry/orders/dlq") -> None:
    """Nobody can write or read the table any more: a file is in its place."""
    path = place.folder / folder
    if path.exists():
        path.rename(path.with_name("away"))
    path.parent.mkdir(parents=True, exist_ok=True)
    path.touch()


def bring_back(place: Place, folder: str = ".wherry/orders/dlq") -> None:
    path = place.folder / folder
    path.unlink()
    if path.with_name("away").exists():
        path.with_name("away").rename(path)


def after_batch(number: int, do: Callable[[], None]) -> Callable[[Event], None]:
    def listen(event: Event) -> None:
        if isinstance(event, BatchSettled) and event.batch.number == number:
            do()

    return listen


def test_a_dlq_that_breaks_in_mid_run_does_not_stop_it(place: Place, caplog: pytest.LogCaptureFixture) -> None:
    """The refused rows of the second batch wait in the fallback, which log, report, status and audit say; a merge
    brings them into the DLQ, and then all is as if it had taken them."""
    land(place)
    pipeline = place.load(WITH_FALLBACK)
    report = pipeline.run(listeners=[after_batch(1, lambda: hide(place))])
    assert (report.status, report.nacked, report.fallback, report.balanced) == ("succeeded", 3, 2, True)
    assert any("go to the fallback" in notice for notice in report.notices)
    assert "go to the fallback" in caplog.text
    assert place.ids("tables/orders") == [1, 3, 6]
    assert len(place.rows("refused")) == 2
    status = pipeline.status()
    assert (status["dlq"]["fallback"], status["next"]) == (2, "wherry dlq merge FILE")
    bring_back(place)
    audit = pipeline.audit()
    assert (audit.balanced, audit.dlq and audit.dlq["fallback"]) == (True, 2), audit.problems
    merged = pipeline.merge_dead_letters()
    assert merged.json() == {"merged": 2, "batches": 1, "waiting": 0}
    assert [row["position"] for row in place.refused()] == [2, 2, 3]
    assert pipeline.merge_dead_letters().json() == {"merged": 0, "batches": 0, "waiting": 0}
    audit = pipeline.audit()
    assert (audit.balanced, audit.dlq and audit.dlq["fallback"]) == (True, 0), audit.problems
    assert pipeline.status()["dlq"] == {"rows": 3, "unreplayed": 3, "fallback": 0}
    assert pipeline.run().batches == 0
