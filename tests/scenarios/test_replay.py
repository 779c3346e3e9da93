"""Refused rows are replayed as they were read, through the present definition, and each is delivered once."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timezone
from typing import Any

import pytest

from destinations.delta import Delta
from origins.batch import Batch, Span
from runners.running.choice import Choice
from runners.running.replay import DeadLetterRows, Replay
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


def test_a_row_that_fails_again_and_again_names_its_first_entry(place: Place) -> None:
    """This holds after each replay. The column `replays` names the previous entry."""
    place.land("1.json", [make_order(1, amount="one")])
    place.load(ORDERS).run()
    for reason in ("again", "once more"):
        assert place.load().replay(Replay(reason=reason)).nacked == 1
    entries = sorted(place.load().refused.list(), key=lambda row: str(row["nacked_at"]))
    first, second, _ = [row["id"] for row in entries]
    assert [row["replays"] for row in entries] == [None, first, second]
    assert [row["first"] for row in entries] == [None, first, first]


@pytest.mark.long
@pytest.mark.promise("CD-30")
def test_a_killed_replay_delivers_each_row_once(place: Place) -> None:
    """It dies after its first write. The next call finishes that batch, and tries the rows again that were refused."""
    place.land("1.json", BAD)
    place.load(ORDERS.replace(*TWO)).run()
    place.kill(MENDED.replace(*TWO), "Written", 1, replay=True)
    place.load().replay(Replay(reason="once more"))
    assert (place.ids("tables/orders"), place.ids("tables/b")) == ([1, 2], [1, 2])
    rows = place.load().refused.list()
    again = [row["replays"] for row in rows if row["replays"]]
    assert len(again) == len(set(again))
    assert sorted(row["original"]["id"] for row in rows if not row["replayed"]) == [3, 4]


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


def make_batch(*ids: str, schema: str) -> Batch:
    """Return a batch of these rows, with the present columns."""
    return Batch(
        pipeline="orders",
        run="r",
        origin="files",
        lane="dlq/files",
        number=1,
        plan="p",
        span=Span(start=None, end=ids[-1], parts=ids),
        schema=schema,
        time=datetime.now(timezone.utc),
    )


@pytest.mark.connect
def test_rows_come_in_the_order_of_the_span_with_the_present_columns(place: Place) -> None:
    """A new column is NULL, and a value of another type is converted. A value that cannot be converted refuses its
    row."""
    place.land("1.json", BAD)
    place.load(ORDERS).run()
    ids = {row["original"]["id"]: row["id"] for row in place.load().refused.list()}
    today = _make_schema()
    rows = DeadLetterRows(dlq=Delta(path=str(place.folder / ".wherry/orders/dlq")))
    found = rows.fetch(place.spark, [make_batch(ids[3], ids[2], schema=today)], places=True).frame().collect()
    by_place = {row["_wherry_place"]["row"]: row.asDict(recursive=True) for row in found}
    assert {at: (row["ID"], row["amount"], row["note"]) for at, row in by_place.items()} == {
        0: (3, -3, None),
        1: (2, None, None),
    }
    refused: dict[int, Any] = {at: row["_wherry_refused"] for at, row in by_place.items()}
    assert refused[0] is None
    assert refused[1]["message"] == "column amount: 'two' is not an int"
    gone = rows.fetch(place.spark, [make_batch(ids[2], "p/99", schema=today)]).frame()
    with pytest.raises(Exception, match="no longer has this row: p/99"):
        gone.collect()


def _make_schema() -> str:
    from pyspark.sql.types import IntegerType, LongType, StringType, StructField, StructType

    fields = [StructField("ID", LongType()), StructField("amount", IntegerType()), StructField("note", StringType())]
    return str(StructType(fields).json())
