"""A budget limits the refused rows that wait, and periods limit how long decided rows are kept."""

from __future__ import annotations

import pytest

from runners.running.choice import Choice
from runners.running.replay import Replay
from tests.scenarios.conftest import ORDERS, Place, make_order
from tests.scenarios.test_fallback import hide_table

pytestmark = pytest.mark.spark

LIMITED = ORDERS.replace("dlq: {window: 1000, threshold: 500}", "dlq: {window: 0, budget: 2}")
FALLBACK = "on_failure: fallback, fallback: {delta: {path: refused}}, "
KEPT = ORDERS.replace("dlq: {window: 1000, threshold: 500}", "dlq: {window: 0, retain: {default: 30d, CAST: 0s}}")


def test_a_run_stops_before_the_batch_that_follows_too_many_refused_rows(place: Place) -> None:
    """The batch that exceeds the budget is delivered. Later runs stop until rows are discarded or replayed."""
    for number in (1, 2, 3):
        place.land(
            f"{number}.json",
            [make_order(10 * number), make_order(10 * number + 1, amount="x"), make_order(5, amount="y")],
        )
    report = place.load(LIMITED).run(check=False)
    assert report.error is not None
    assert (report.error.code, report.batches, place.ids("tables/orders")) == ("BUDGET", 2, [10, 20])
    assert "4 refused rows wait" in report.error.message
    assert "4 refused rows wait" in str(place.load().run(check=False).error)
    assert place.load().refused.discard(Choice(), reason="known") == 4
    report = place.load().run()
    assert (report.status, report.batches, place.ids("tables/orders")) == ("succeeded", 1, [10, 20, 30])


def test_rows_in_the_fallback_count_toward_the_budget(place: Place) -> None:
    """The rows of the batch that exceeds the budget count too."""
    place.land("1.json", [make_order(1)])
    pipeline = place.load(LIMITED.replace("budget:", FALLBACK + "budget:"))
    pipeline.run()
    hide_table(place)
    place.land("2.json", [make_order(2), *(make_order(number, amount="x") for number in (3, 4, 5))])
    place.land("3.json", [make_order(6)])
    report = pipeline.run(check=False)
    assert report.error is not None
    assert (report.error.code, report.fallback, place.ids("tables/orders")) == ("BUDGET", 3, [1, 2])
    assert "3 refused rows wait" in report.error.message
    assert "3 refused rows wait" in str(pipeline.run(check=False).error)


def test_decided_rows_are_kept_for_the_period_of_their_code(place: Place) -> None:
    """After a replay, the rows with the shorter period are gone. Rows that wait stay."""
    place.land(
        "1.json", [make_order(1), make_order(2, amount="x"), make_order(3, amount="-1"), make_order(4, amount="-2")]
    )
    pipeline = place.load(KEPT)
    pipeline.run()
    pipeline.refused.discard(Choice(code="CAST"), reason="known")
    positive = [row["id"] for row in pipeline.refused.list() if row["code"] == "positive_amount"]
    assert len(positive) == 2
    mended = place.load(KEPT.replace("amount > 0", "amount > -2"))
    mended.replay(Replay(choice=Choice(code="positive_amount"), reason="some are allowed"))
    left = {row["id"]: row["replayed"] for row in mended.refused.list()}
    assert {row["code"] for row in mended.refused.list()} == {"positive_amount"}
    assert all(left[id_] for id_ in positive)
