"""A pipeline under a new name does not deliver the rows again that the older name delivered."""

from __future__ import annotations

import pytest

from runners.definitions.definition import load
from runners.operations.validate import explain
from runners.running.compatibility import OperatorOverrides
from tests.scenarios.conftest import ORDERS, Place, make_order

pytestmark = [pytest.mark.spark]

RENAMED = ORDERS.replace("name: orders", "name: sales", 1)


@pytest.mark.promise("CN-04")
def test_a_renamed_pipeline_asks_before_it_reads_a_row(place: Place) -> None:
    """The question names both pipelines, what they share, and what to type in each case."""
    place.land("a.json", [make_order(1)])
    place.load(ORDERS).run()
    place.define(RENAMED)
    (note,) = [each for each in explain(load(place.folder / "pipeline.yaml")).notes if "renamed" in each]
    assert note.endswith("The first run asks whether orders was renamed.")
    for _ in range(2):
        error = place.load().run(check=False).error
        assert error is not None
        assert error.message.startswith("Was orders renamed to sales, or is this a second pipeline? ")
        assert f"reads {place.folder}/landing/*.json and writes to 'orders' too" in error.message
        assert "name: orders" in error.hint
        assert "wherry run FILE --fresh orders --reason" in error.hint
    assert place.ids("tables/orders") == [1]
    place.land("b.json", [make_order(2)])
    place.load(ORDERS).run()
    assert place.ids("tables/orders") == [1, 2]


def test_a_second_pipeline_with_the_same_places_is_asked_once(place: Place) -> None:
    """The answer is an option of its first run."""
    place.land("a.json", [make_order(1)])
    place.load(ORDERS).run()
    second = place.load(RENAMED)
    second.run(ruling=OperatorOverrides(fresh=("orders",), reason="a second pipeline"))
    assert place.ids("tables/orders") == [1, 1]
    place.land("b.json", [make_order(2)])
    second.run()
    assert place.ids("tables/orders") == [1, 1, 2]


@pytest.mark.parametrize(("old", "new"), [("landing/", "returns/"), ("tables/orders", "tables/sales")])
def test_pipelines_that_share_only_one_end_are_not_asked(place: Place, old: str, new: str) -> None:
    """Two origins may go to one table, and one origin to two tables."""
    place.land("a.json", [make_order(1)])
    place.land("b.json", [make_order(2)], folder="returns")
    place.load(ORDERS).run()
    place.load(RENAMED.replace(old, new, 1)).run()


def test_a_renamed_pipeline_with_its_state_in_a_catalog_asks(place: Place) -> None:
    """The table names the older pipeline, whose ledger is beside the new one."""
    place.spark.sql("create schema if not exists renamed_state")
    place.land("a.json", [make_order(1)])
    state = "state: {schema: renamed_state}\n"
    place.load(ORDERS + state).run()
    error = place.load(RENAMED + state).run(check=False).error
    assert error is not None
    assert error.message.startswith("Was orders renamed to sales, or is this a second pipeline? ")
    assert "(renamed_state.orders_ledger)" in error.message
