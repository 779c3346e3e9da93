"""After a temporary error, Wherry tries the same batch again, and no row is delivered twice."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from destinations.delta.delta import OpenDelta
from runners.model.events import BatchRests, Event
from tests.scenarios.conftest import ORDERS, Place, make_order

pytestmark = pytest.mark.spark

QUICKLY = ORDERS.replace("run: {", "run: {retry: {wait: 10ms}, ")
TWO = QUICKLY.replace(
    "  - delta: {path: tables/orders}\n", "  - delta: {path: tables/orders}\n  - delta: {path: tables/b}\n"
)
Fails = Callable[..., None]


@pytest.fixture
def fails(monkeypatch: pytest.MonkeyPatch) -> Fails:
    """Make writes to a table fail this many times, before or after the commit."""

    def fails(table: str, times: int, *, behind: bool) -> None:
        left = [times]

        def around(write: Callable[..., object]) -> Callable[..., object]:
            def failing(self: OpenDelta, *words: object) -> object:
                away = self.destination.place.endswith(table) and left[0] > 0
                left[0] -= away
                if away and not behind:
                    raise ConnectionResetError(104, "Connection reset by peer")
                written = write(self, *words)
                if away:
                    raise TimeoutError("the answer was lost")
                return written

            return failing

        monkeypatch.setattr(OpenDelta, "write", around(OpenDelta.write))

    return fails


@pytest.mark.promise("SS-23", "CD-22")
@pytest.mark.parametrize(
    ("definition", "table", "behind"),
    [(QUICKLY, "orders", True), (TWO, "b", False)],
    ids=["straight, it landed", "prepared, nothing landed"],
)
def test_a_write_that_fails_is_tried_again_and_lands_once(
    place: Place, fails: Fails, definition: str, table: str, behind: bool
) -> None:
    """Two tries fail before the commit, or one fails after it. The run succeeds, and each row is delivered once."""
    for number in range(3):
        place.land(f"{number}.json", [make_order(number)])
    heard: list[BatchRests] = []

    def listen(event: Event) -> None:
        heard.extend([event] if isinstance(event, BatchRests) else [])

    fails(table, 1 if behind else 2, behind=behind)
    report = place.load(definition).run(listeners=[listen])
    assert (report.status, report.batches, report.balanced) == ("succeeded", 3, True)
    assert place.ids(f"tables/{table}") == [0, 1, 2]
    assert [event.batch.number for event in heard] == [1] * (1 if behind else 2)
    assert any("batch 1 of lane 0 will be tried again" in notice for notice in report.notices)


def test_a_server_that_stays_unreachable_fails_the_run_and_fills_no_dlq(place: Place, fails: Fails) -> None:
    """The run tries as often as the definition allows. The next run delivers the rows."""
    place.land("a.json", [make_order(1)])
    fails("orders", 3, behind=False)
    failed = place.load(QUICKLY.replace("wait: 10ms", "wait: 10ms, attempts: 2")).run(check=False)
    assert (failed.status, place.refused(), place.ids("tables/orders")) == ("failed", [], [])
    assert place.load().run().delivered == {"orders": 1}
