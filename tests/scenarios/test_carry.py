"""From files to a Delta table: every row is delivered, filtered or refused, and the counts prove it."""

from __future__ import annotations

import json
from decimal import Decimal

import pytest

from runners.model.run_report import PipelineFailed
from tests.scenarios.conftest import ORDERS, Place, make_order

pytestmark = [pytest.mark.spark, pytest.mark.connect]


@pytest.mark.promise("SS-01", "SS-05", "SS-06", "CD-04", "CD-10", "CD-16", "X5", "DQ-02", "DQ-10", "DQ-11")
def test_every_row_ends_in_one_place(place: Place) -> None:
    """Good rows are in the table as the stages changed them, and filtered rows are nowhere. Refused rows are in the DLQ
    as read and as they reached the stage. The report counts each of them."""
    place.land(
        "a.json",
        [
            make_order(1),
            make_order(2, email=None),
            make_order(3, amount="sieben"),
            make_order(4, amount="-1"),
            '{"id": 5',
        ],
    )
    place.land("b.json", [make_order(6)])
    report = place.load(ORDERS).run()
    assert (report.batches, report.read, report.filtered, report.nacked, report.delivered) == (
        2,
        6,
        1,
        3,
        {"orders": 2},
    )
    assert report.balanced is True
    assert place.ids("tables/orders") == [1, 6]
    assert [(row["stage"], row["position"]) for row in place.refused()] == [
        ("cast", 3),
        ("require", 4),
        ("origin", 5),
    ]
    first = min(place.rows("tables/orders"), key=lambda row: row["id"])
    assert first == {"id": 1, "email": "a1@x.com", "amount": Decimal("1.50")}
    negative = place.refused()[1]
    assert (json.loads(negative["row"])["amount"], json.loads(negative["original"])["amount"]) == (-1.0, "-1")
    assert (negative["code"], negative["lane"], negative["number"]) == ("positive_amount", "0", 1)


@pytest.mark.promise("SS-11", "CD-27")
def test_delivered_rows_are_not_delivered_again(place: Place) -> None:
    """A second run has nothing to do. A third run delivers only the new file."""
    place.land("a.json", [make_order(1)])
    place.load(ORDERS).run()
    again = place.load().run()
    place.land("b.json", [make_order(2)])
    third = place.load().run()
    assert (again.batches, third.read, place.ids("tables/orders")) == (0, 1, [1, 2])


def test_a_clean_batch_is_one_commit(place: Place) -> None:
    """Besides the commit that creates the table, each batch makes one commit. The DLQ has only the commit that creates
    it."""
    place.land("a.json", [make_order(1)])
    place.land("b.json", [make_order(2)])
    place.load(ORDERS).run()
    assert (place.commits("tables/orders"), place.commits(".wherry/orders/dlq")) == (3, 1)


@pytest.mark.promise("CD-03", "CD-05", "CD-06")
def test_several_destinations_get_every_batch(place: Place) -> None:
    """Each destination applies its stages. A row that one destination refuses is delivered to none."""
    place.land("a.json", [make_order(number) for number in range(1, 6)])
    text = ORDERS.replace(
        "  - delta: {path: tables/orders}\n",
        "  - delta: {path: tables/orders}\n"
        "  - delta: {path: tables/few}\n    stages: [filter: 'id < 4', require: {odd: 'id % 2 = 1'}]\n",
    )
    report = place.load(text).run()
    assert (place.ids("tables/orders"), place.ids("tables/few")) == ([1, 3, 4, 5], [1, 3])
    assert [(row["stage"], json.loads(row["row"])["id"]) for row in place.refused()] == [("few/require", 2)]
    assert report.destinations["few"].filtered == 2
    assert report.balanced is True


@pytest.mark.promise("X2", "X8", "DQ-06")
def test_by_default_the_first_refused_row_stops_the_run(place: Place) -> None:
    """No row of its batch is delivered, and earlier batches stay. The error names the row, the stage and the cause."""
    place.land("a.json", [make_order(1)])
    place.land("b.json", [make_order(2), make_order(3, amount="sieben")])
    with pytest.raises(PipelineFailed) as failed:
        place.load(ORDERS.replace("dlq: {window: 1000, threshold: 500}\n", "")).run()
    error = failed.value.report.error
    assert error is not None
    assert (error.code, error.stage, error.lane) == ("WINDOW", "cast", "0")
    assert "row 2" in error.message
    assert "sieben" in error.message
    assert (place.ids("tables/orders"), place.refused()) == ([1], [])


@pytest.mark.promise("X2", "CD-15")
def test_a_run_continues_once_the_window_allows_it(place: Place) -> None:
    """With `dlq.window` 0 for one run, the refused row goes to the DLQ and the other row is delivered."""
    place.land("a.json", [make_order(1), make_order(2, amount="sieben")])
    text = ORDERS.replace("dlq: {window: 1000, threshold: 500}\n", "")
    place.load(text).run(check=False)
    report = place.load(dlq__window="0").run()
    assert (report.nacked, place.ids("tables/orders"), len(place.refused())) == (1, [1], 1)


def test_the_counts_balance_before_and_after_a_stage_that_makes_other_rows(place: Place) -> None:
    """Three rows are read, and one is refused before the statement. The statement makes one row of the other two."""
    place.land("a.json", [make_order(1), make_order(2), make_order(3, amount="x")])
    text = ORDERS.replace(
        '  - filter: "email is not null"\n  - with_columns: {email: "lower(email)"}\n',
        "  - sql: 'select max(id) as id, count(*) as orders from rows'\n",
    )
    report = place.load(text).run()
    assert (report.read, report.nacked, report.changed, report.delivered) == (3, 1, -1, {"orders": 1})
    assert report.balanced is True
    assert place.rows("tables/orders") == [{"id": 2, "orders": 2}]


@pytest.mark.promise("SS-14", "SS-21", "HP-02", "SS-17")
def test_several_lanes_deliver_the_same_rows_as_one(place: Place) -> None:
    """Four lanes with two runners deliver every row once."""
    for number in range(12):
        place.land(f"{number:02}.json", [make_order(number * 10 + row) for row in range(10)])
    text = ORDERS.replace("run: {batch: {files: 1}}", "run: {runners: 2, batch: {files: 1}}").replace(
        "origin:\n", "origin:\n  lanes: 4\n"
    )
    report = place.load(text).run()
    assert (report.batches, report.balanced, place.ids("tables/orders")) == (12, True, list(range(120)))


def test_small_files_of_a_table_are_compacted_between_batches(place: Place) -> None:
    """Wherry compacts after every third commit, counted across runs. The rows stay the same, and later runs find all
    batches."""
    text = ORDERS.replace("path: tables/orders", "path: tables/orders, optimize: 3")
    for number in range(4):
        place.land(f"{number}.json", [make_order(number)])
        place.load(text).run()
    history = place.spark.sql(f"DESCRIBE HISTORY delta.`{place.folder}/tables/orders`").collect()
    operations = [row["operation"] for row in reversed(history)]
    assert operations.count("OPTIMIZE") == 1
    assert operations.index("OPTIMIZE") == 4
    assert place.ids("tables/orders") == [0, 1, 2, 3]
