"""A budget for the refused rows that wait, and periods for those that are decided."""

from __future__ import annotations

import pytest

from runners.running.choice import Choice
from runners.running.replay import Replay
from tests.scenarios.conftest import ORDERS, Place, order

pytestmark = pytest.mark.spark

LIMITED = ORDERS.replace("dlq: {window: 1000, threshold: 500}", "dlq: {window: 0, budget: 2}")
KEPT = ORDERS.replace("dlq: {window: 1000, threshold: 500}", "dlq: {window: 0, retain: {default: 30d, CAST: 0s}}")


def test_a_run_stops_before_the_batch_that_follows_too_many_refused_rows(place: Place) -> None:
    """The batch that exceeds the budget is delivered. No run goes on before rows are discarded or replayed."""
    for number in (1, 2, 3):
        place.land(f"{number}.json", [order(10 * number), order(10 * number + 1, amount="x"), order(5, amount="y")])
    report = place.load(LIMITED).run(check=False)
    assert report.error is not None
    assert (report.error.code, report.batches, place.ids("tables/orders")) == ("BUDGET", 2, [10, 20])
    assert "4 refused rows wait" in report.error.message
    assert "4 refused rows wait" in str(place.load().run(check=False).error)
    assert place.load().discard_dead_letters(Choice(), reason="known") == 4
    report = place.load().run()
    assert (report.status, report.batches, place.ids("tables/orders")) == ("succeeded", 1, [10, 20, 30])


def test_a_run_for_which_nothing_waits_does_not_fail_for_its_budget(place: Place) -> None:
    """Nor does a replay."""
    place.land("1.json", [order(1, amount="x"), order(2, amount="x"), order(3, amount="x")])
    assert place.load(LIMITED).run(check=False).batches == 1
    assert place.load().run(check=False).batches == 0
    again = place.load().replay(Replay(reason="again"), check=False)
    assert (again.status, again.read) == ("succeeded", 3)


def test_decided_rows_stay_as_long_as_their_code_says(place: Place) -> None:
    """After a replay those with the shorter period are gone; rows that wait stay."""
    place.land("1.json", [order(1), order(2, amount="x"), order(3, amount="-1"), order(4, amount="-2")])
    pipeline = place.load(KEPT)
    pipeline.run()
    pipeline.discard_dead_letters(Choice(code="CAST"), reason="known")
    positive = [row["id"] for row in pipeline.dead_letters() if row["code"] == "positive_amount"]
    assert len(positive) == 2
    mended = place.load(KEPT.replace("amount > 0", "amount > -2"))
    mended.replay(Replay(choice=Choice(code="positive_amount"), reason="some are allowed"))
    left = {row["id"]: row["replayed"] for row in mended.dead_letters()}
    assert {row["code"] for row in mended.dead_letters()} == {"positive_amount"}
    assert all(left[id_] for id_ in positive)
