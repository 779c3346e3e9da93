"""`keep_filtered` stores exactly the rows that stages filter."""

from __future__ import annotations

import json
from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest

from origins.crash_points import watch_points
from tests.crash_injector import CrashInjector
from tests.scenarios.conftest import ORDERS, Place, make_order

if TYPE_CHECKING:
    from runners.model.run_report import Report

pytestmark = pytest.mark.spark

KEPT = ORDERS.replace("dlq:", "keep_filtered: 30d\ndlq:")
TWO = KEPT.replace(
    "  - delta: {path: tables/orders}\n",
    "  - delta: {path: tables/orders}\n"
    '  - delta: {path: tables/large}\n    stages: [{filter: "amount > 5", name: large_only}]\n'
    '  - delta: {path: tables/even}\n    stages: [{filter: "id % 2 = 0", name: even_only}]\n',
)


def read_filtered(place: Place) -> list[dict[str, Any]]:
    """Return the rows of the table of filtered rows."""
    return place.rows(".wherry/orders/filtered")


def count_by_stage(place: Place) -> Counter[tuple[str, str | None, int]]:
    """Count the stored rows by stage, destination and id."""
    return Counter((row["stage"], row["destination"], json.loads(row["row"])["id"]) for row in read_filtered(place))


def count_filtered(report: Report) -> int:
    """Return how many rows the stages of a run filtered."""
    return sum(stage["filtered"] for stage in report.json()["stages"])


@pytest.mark.connect
def test_filtered_rows_are_stored_with_their_stage_and_batch(place: Place) -> None:
    """They are stored as they reached the stage and as they were read. A row that a stage refuses goes only to the
    DLQ."""
    place.land("1.json", [make_order(1), make_order(2, email=None), make_order(3, amount="x")])
    place.land("2.json", [make_order(4, email=None)])
    report = place.load(KEPT).run()
    assert (report.filtered, report.nacked, place.ids("tables/orders")) == (2, 1, [1])
    first, second = sorted(read_filtered(place), key=lambda row: int(row["number"]))
    assert (first["pipeline"], first["origin"], first["lane"], first["number"]) == ("orders", "files", "0", 1)
    assert (first["stage"], first["destination"], first["code"], first["message"]) == ("filter", None, None, None)
    assert json.loads(first["row"]) == {"id": 2, "email": None, "amount": 2.50}
    assert json.loads(first["original"]) == {"id": 2, "email": None, "amount": "2.50"}
    assert first["part"].endswith("1.json")
    assert (second["number"], json.loads(second["row"])["id"]) == (2, 4)
    assert first["plan"] != second["plan"]


def test_rows_that_a_destination_filters_are_stored_for_it(place: Place) -> None:
    """The batch counts as large. A row that a common stage filters is stored once."""
    place.land(
        "1.json", [make_order(1), make_order(2), make_order(9), make_order(12, email=None), make_order(7, amount="x")]
    )
    report = place.carry(TWO, small_bytes=0)
    assert (place.ids("tables/orders"), place.ids("tables/large"), place.ids("tables/even")) == ([1, 2, 9], [9], [2])
    assert count_by_stage(place) == Counter(
        [
            ("filter", None, 12),
            ("large/large_only", "large", 1),
            ("large/large_only", "large", 2),
            ("even/even_only", "even", 1),
            ("even/even_only", "even", 9),
        ]
    )
    assert (report.error, count_filtered(report)) == (None, 5)


@pytest.mark.parametrize(
    ("point", "delivery"),
    [("after-prepared", "after_all"), ("before-settle", "after_all"), ("between-writes", "after_any")],
)
def test_after_a_crash_each_filtered_row_is_stored_once(place: Place, point: str, delivery: str) -> None:
    """The run may even die after it has stored the rows and before it settles the batch."""
    place.land("1.json", [make_order(1), make_order(2, email=None), make_order(6), make_order(9)])
    text = TWO.replace("dlq:", f"delivery: {delivery}\ndlq:")
    with watch_points(CrashInjector(point, end=None)):
        assert place.load(text).run(check=False).status == "failed"
    assert place.load(text).run().status == "succeeded"
    assert count_by_stage(place) == Counter(
        [
            ("filter", None, 2),
            ("large/large_only", "large", 1),
            ("even/even_only", "even", 1),
            ("even/even_only", "even", 9),
        ]
    )
    assert (place.ids("tables/orders"), place.load(text).audit().problems) == ([1, 6, 9], [])


KINDS = """
name: orders
origin: {files: {path: "landing/*.json", format: json, schema: "id long, email string, amount string"}}
stages:
  - deduplicate: {keys: [id], sequence_by: amount}
    name: newest
  - cast: {amount: int}
    on_error: discard
    name: numbers
  - sql: "select *, amount as euros from rows"
  - filter: "euros > 1"
    when: "email is not null"
    name: large
destinations: [{delta: {path: tables/orders}}]
keep_filtered: 30d
"""


def test_each_kind_of_filtering_is_stored(place: Place) -> None:
    """These are a duplicate, a discarded row with its reason, and a row after a stage that makes other rows."""
    place.land(
        "1.json",
        [make_order(1, amount="1"), make_order(1, amount="2"), make_order(2, amount="x"), make_order(3, amount="1")],
    )
    report = place.load(KINDS).run()
    assert (report.error, place.ids("tables/orders"), count_filtered(report)) == (None, [1], 3)
    found = {row["stage"]: row for row in read_filtered(place)}
    assert {name: json.loads(row["row"])["amount"] for name, row in found.items()} == {
        "newest": "1",
        "numbers": "x",
        "large": 1,
    }
    assert (found["numbers"]["code"], "'x'" in found["numbers"]["message"]) == ("CAST", True)
    assert json.loads(found["large"]["row"])["euros"] == 1


def test_rows_are_dropped_after_their_retention(place: Place) -> None:
    """This happens at the end of a run. Younger rows stay, and a run that drops nothing makes no commit."""
    place.land("1.json", [make_order(1), make_order(2, email=None)])
    place.load(KEPT).run()
    table = f"delta.`{place.folder}/.wherry/orders/filtered`"
    place.spark.sql(f"UPDATE {table} SET filtered_at = filtered_at - INTERVAL 31 DAYS").collect()
    place.land("2.json", [make_order(3), make_order(4, email=None)])
    place.load(KEPT).run()
    assert count_by_stage(place) == Counter([("filter", None, 4)])
    before = place.commits(".wherry/orders/filtered")
    place.land("3.json", [make_order(5)])
    place.load(KEPT).run()
    assert place.commits(".wherry/orders/filtered") == before


def test_find_names_the_stage_that_filtered_a_row_of_a_missing_file(place: Place) -> None:
    """It searches the rows as they were read, and names their batch. If no row matches, it reports that none is
    kept."""
    place.land("1.json", [make_order(1), make_order(2, email=None), make_order(9)])
    pipeline = place.load(TWO)
    pipeline.run()
    (place.folder / "landing/1.json").unlink()
    found = pipeline.find(where="id in (1, 2) and amount like '%.50'")
    assert (found.searched, found.read) == (0, 0)
    assert found.kept is not None
    assert found.kept.stages == {"filter": 1, "large/large_only": 1, "even/even_only": 1}
    rows = {(row.stage, row.destination, row.lane, row.number, row.row["id"]) for row in found.kept.rows}
    assert ("filter", None, "0", 1, 2) in rows
    assert ("large/large_only", "large", "0", 1, 1) in rows
    assert "1 row filtered by large/large_only" in str(found)
    assert found.json()["kept"]["stages"] == found.kept.stages
    none = pipeline.find(where="id = 7")
    assert (none.kept and none.kept.stages, "no filtered rows" in str(none)) == ({}, True)


def test_without_the_option_nothing_is_stored(place: Place) -> None:
    """The table does not exist, and a clean batch is written straight."""
    place.land("1.json", [make_order(1), make_order(2, email=None)])
    report = place.load(ORDERS).run()
    assert (report.ways, (place.folder / ".wherry/orders/filtered").exists()) == ({"straight": 1}, False)
    assert place.load().find(where="id = 2").kept is None
