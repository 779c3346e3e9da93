"""A table that demands a feature that no program knows gets no rows, and keeps those that it has."""

from __future__ import annotations

import pytest

from runners import PipelineFailed
from tests.destinations.delta.features import demand_feature
from tests.scenarios.conftest import ORDERS, Place, make_order

pytestmark = [pytest.mark.spark]

PLAIN = ORDERS[: ORDERS.index("stages:")] + ORDERS[ORDERS.index("destinations:") :]


@pytest.mark.parametrize(
    ("definition", "of_readers"), [(PLAIN, False), (ORDERS, True)], ids=["of writers", "with stages, of readers"]
)
def test_a_table_that_demands_an_unknown_feature_gets_no_rows(
    place: Place, definition: str, *, of_readers: bool
) -> None:
    """Spark refuses the commit and names the feature. Wherry commits nothing itself, in any way."""
    place.land("a.json", [make_order(1)])
    place.load(definition).run()
    demand_feature(place.folder / "tables/orders", of_readers=of_readers)
    before = place.commits("tables/orders")
    place.land("b.json", [make_order(2)])
    with pytest.raises(PipelineFailed, match="invented"):
        place.load(definition).run()
    assert place.commits("tables/orders") == before
