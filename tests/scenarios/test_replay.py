"""Refused rows are replayed as they were read, through the present definition, and each is delivered once."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from runners.running.choice import Choice
from runners.running.replay import Replay
from tests.scenarios.conftest import ORDERS, Place, make_order

pytestmark = pytest.mark.spark

BAD = [make_order(1), make_order(2, amount="two"), make_order(3, amount="-3"), make_order(4, amount="four")]
MENDED = ORDERS.replace(
    '  - cast: {amount: "decimal(10,2)"}\n',
    """  - with_columns: {amount: "case amount when 'two' then '2.00' else amount end"}
  - cast: {amount: "decimal(10,2)"}
""",
)
TWO = "  - delta: {path: tables/orders}\n", "  - delta: {path: tables/orders}\n  - delta: {path: tables/b}\n"


def describe_letters(place: Place) -> Mapping[tuple[int, str], tuple[bool, str | None]]:
    """Return whether each row of the DLQ was replayed, and which order it replays, by order and lane."""
    rows = place.load().refused.list()
    orders = {row["id"]: row["original"]["id"] for row in rows}
    return {
        (orders[row["id"]], row["lane"]): (row["replayed"], row["replays"] and str(orders[row["replays"]]))
        for row in rows
    }


@pytest.mark.promise("CD-30")
@pytest.mark.connect
def test_refused_rows_are_replayed_once_and_new_refusals_name_the_old_entry(place: Place) -> None:
    """They pass the present stages, and the window does not count them. A second call replays no row again."""
    place.land("1.json", BAD)
    place.load(ORDERS).run()
    assert (place.ids("tables/orders"), len(place.refused())) == ([1], 3)
    again = Replay(choice=Choice(code="CAST"), reason="two is a number")
    pipeline = place.load(MENDED, dlq__window="1", dlq__threshold="1")
    report = pipeline.replay(again)
    assert (report.status, report.read, report.nacked, report.balanced) == ("succeeded", 2, 1, True)
    assert place.ids("tables/orders") == [1, 2]
    assert describe_letters(place) == {
        (2, "0"): (True, None),
        (3, "0"): (False, None),
        (4, "0"): (True, None),
        (4, "dlq/files"): (False, "4"),
    }
    assert pipeline.status()["dlq"] == {"rows": 4, "unreplayed": 2, "fallback": 0}
    assert place.load().replay(Replay(choice=Choice(where="original like '%two%'"), reason="again")).batches == 0
    assert place.ids("tables/orders") == [1, 2]
    assert list(pipeline.status()["lanes"]) == ["0"]
    place.land("2.json", [make_order(5)])
    assert (place.load().run().read, place.ids("tables/orders")) == (1, [1, 2, 5])


def test_a_replayed_row_goes_only_to_destinations_that_lack_it(place: Place) -> None:
    """The stages of another destination do not apply to it. Once `dlq.retain` is over, the row leaves the DLQ."""
    place.land("1.json", BAD)
    text = ORDERS.replace(*TWO)
    place.load(text).run()
    place.spark.sql(
        f"update delta.`{place.folder / '.wherry/orders/dlq'}` set delivered_to = array('b') where code = 'CAST'"
    )
    strict = MENDED.replace(*TWO).replace(
        "tables/b}\n", "tables/b}\n    stages: [{require: {never: 'amount > 1000'}}]\n"
    )
    report = place.load(strict, dlq__retain="0s").replay(Replay(choice=Choice(stage="cast"), reason="b has them"))
    assert (report.read, report.nacked) == (2, 1)
    left = [(row["code"], row["replays"] is None) for row in place.refused()]
    assert left == [("positive_amount", True), ("CAST", False)]
    assert (place.ids("tables/orders"), place.ids("tables/b")) == ([1, 2], [1])
