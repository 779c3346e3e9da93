"""A backfill delivers batches again that earlier runs delivered."""

from __future__ import annotations

import pytest

from runners.command_line import cli
from runners.model.events import BatchSettled, Event
from runners.running.backfill import Backfill
from runners.running.replay import Replay
from tests.scenarios.conftest import ORDERS, Place, make_order

pytestmark = [pytest.mark.spark]

TWO = ORDERS.replace("dlq:", "  - delta: {path: tables/other}\ndlq:")


@pytest.mark.connect
def test_a_new_destination_is_filled_with_earlier_batches(place: Place) -> None:
    """Each batch arrives once, also if the backfill dies and is called again. The pipeline's offsets and its other
    tables stay the same."""
    for number in range(1, 5):
        place.land(f"{number}.json", [make_order(number)])
    place.load(ORDERS).run()
    place.land("5.json", [make_order(5)])
    pipeline = place.load(TWO)
    pipeline.run()
    before = pipeline.status()["lanes"]

    def crash(event: Event) -> None:
        assert not (isinstance(event, BatchSettled) and event.batch.number == 2)

    past = Backfill(end=4, only="other", reason="a new table")
    assert pipeline.backfill(past, check=False, listeners=[crash]).status == "failed"
    report = pipeline.backfill(past)
    assert (report.status, report.delivered["other"]) == ("succeeded", 2)
    assert (place.ids("tables/other"), place.ids("tables/orders")) == ([1, 2, 3, 4, 5], [1, 2, 3, 4, 5])
    assert pipeline.status()["lanes"] == before
    assert pipeline.backfill(past).batches == 0
    place.land("6.json", [make_order(6)])
    assert (pipeline.run().read, place.ids("tables/other")) == (1, [1, 2, 3, 4, 5, 6])


def test_a_row_refused_by_a_run_and_a_backfill_is_replayed_to_each_table_once(place: Place) -> None:
    """The DLQ has the row twice: one entry for each table."""
    place.land("1.json", [make_order(1), make_order(2, amount="two")])
    place.load(ORDERS).run()
    place.load(TWO).backfill(Backfill(only="other", reason="a new table"))
    mended = TWO.replace("  - cast:", "  - with_columns: {amount: \"replace(amount, 'two', '2.00')\"}\n  - cast:", 1)
    report = place.load(mended).replay(Replay(reason="the amount is mended"))
    assert (report.read, report.nacked) == (2, 0)
    assert (place.ids("tables/orders"), place.ids("tables/other")) == ([1, 2], [1, 2])


def test_a_condition_chooses_rows_of_old_batches(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """It sees the columns as they were read. The other rows count as filtered, and the next run knows nothing of it."""
    monkeypatch.chdir(place.folder)
    for number in range(1, 4):
        place.land(f"{number}.json", [make_order(number), make_order(number + 10, amount="x")])
    place.load(ORDERS).run()
    pipeline = place.load(TWO)
    past = Backfill(only="other", where="id IN (2, 13) OR amount = 'y'", reason="two rows")
    report = pipeline.backfill(past)
    assert (report.read, report.delivered["other"], report.nacked) == (6, 1, 1)
    assert place.ids("tables/other") == [2]
    assert pipeline.audit().problems == []
    assert cli.execute(["backfill", "pipeline.yaml", "--only", "other", "--where", "id = 3", "--reason", "x"]) == 2
    words = ["--only", "other", "--where", "id = 3", "--again", "--reason", "x", "--yes"]
    assert cli.execute(["backfill", "pipeline.yaml", *words]) == 0
    assert place.ids("tables/other") == [2, 3]
    place.land("4.json", [make_order(4)])
    assert place.load().run().read == 1
    assert place.ids("tables/other") == [2, 3, 4]
