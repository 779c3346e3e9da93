"""A state that is tables of a catalog's schema: nothing lies in a folder of this machine."""

from __future__ import annotations

import pytest

from tests.scenarios.conftest import ORDERS, Place, order

pytestmark = [pytest.mark.spark, pytest.mark.connect]


@pytest.mark.promise("CN-04", "CN-06", "CN-15")
def test_ledger_dlq_history_and_what_is_prepared_are_tables(place: Place) -> None:
    """Refused rows are in `orders_dlq`, a second run has nothing to do, and nothing that was prepared stays."""
    place.spark.sql("create schema if not exists wherry_state")
    place.land("a.json", [order(1), order(2, amount="x")])
    text = ORDERS + "state: {schema: wherry_state}\n"
    report = place.load(text).run()
    assert (report.read, report.nacked, report.balanced) == (2, 1, True)
    assert place.load().run().batches == 0
    tables = {row["tableName"] for row in place.spark.sql("show tables in wherry_state").collect()}
    assert {"orders_ledger", "orders_dlq", "orders_runs"} <= tables
    assert [(each["status"], each["read"]) for each in place.load().runs()] == [("succeeded", 0), ("succeeded", 2)]
    assert [table for table in tables if "prepared" in table] == []
    assert place.spark.table("wherry_state.orders_dlq").count() == 1
    assert not (place.folder / ".wherry").exists()
