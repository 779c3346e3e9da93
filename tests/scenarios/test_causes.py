"""The causes of refused rows appear in a preview, in the error of the window, in the report and in the DLQ."""

from __future__ import annotations

import pytest

from tests.scenarios.conftest import ORDERS, Place, make_order

pytestmark = [pytest.mark.spark, pytest.mark.connect]

MANY = ORDERS.replace("files: 1", "files: 10")
IN_WORDS = "amount is not a decimal(10,2): 12 rows like '26,58' in 1.json; 6 like 'n/a' in 3 files"


@pytest.fixture
def amounts(place: Place) -> Place:
    """Write twelve amounts with a comma into the first of three files, and two `n/a` amounts into each file."""
    commas = [make_order(100 + at, amount=f"{26 + at},58") for at in range(12)]
    for number in (1, 2, 3):
        rows = [make_order(number * 10 + at, amount="n/a") for at in range(2)]
        place.land(f"{number}.json", [make_order(number), *(commas if number == 1 else []), *rows])
    return place


def test_the_error_of_the_window_explains_all_refused_rows_of_the_batch(amounts: Place) -> None:
    """The message and the report's error list the causes."""
    error = amounts.carry(MANY.replace("window: 1000, threshold: 500", "window: 100, threshold: 5")).error
    assert error is not None
    assert error.code == "WINDOW"
    assert f"    CAST, cast: {IN_WORDS}" in error.message.splitlines()
    assert [cause.rows for cause in error.causes.found] == [12, 6]


def test_the_report_and_the_summary_group_the_refused_rows(amounts: Place) -> None:
    """The report covers the rows that this run refused, and the summary covers the whole DLQ."""
    report = amounts.carry(MANY)
    assert report.causes.describe() == [f"CAST, cast: {IN_WORDS}"]
    assert [each["rows"] for each in report.json()["causes"]] == [12, 6]
    amounts.land("4.json", [make_order(50, amount="n/a")])
    assert [cause.rows for cause in amounts.carry().causes.found] == [1]
    (cause,) = amounts.load().refused.causes()
    assert [(each["form"], each["rows"], each["files"]) for each in cause["forms"]] == [("9,9", 12, 1), ("a/a", 7, 4)]
