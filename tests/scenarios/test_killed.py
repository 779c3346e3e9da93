"""A process that is killed: the next run finishes what it left, and nothing is lost or twice."""

from __future__ import annotations

import pytest

from tests.scenarios.conftest import ORDERS, Place, order

pytestmark = pytest.mark.spark

BAD_IN_SECOND = [[order(1), order(2)], [order(3), order(4, amount="x")], [order(5)]]


@pytest.mark.long
@pytest.mark.promise("CD-22", "CD-27", "SS-11")
@pytest.mark.parametrize(
    "moment", ["BatchPlanned", "BatchDecided", pytest.param("Written", marks=pytest.mark.connect), "BatchSettled"]
)
def test_after_a_kill_the_next_run_leaves_nothing_lost_and_nothing_twice(place: Place, moment: str) -> None:
    """Killed while batch 2 is carried, at four moments; the table and the DLQ end as if nothing had happened."""
    for number, rows in enumerate(BAD_IN_SECOND):
        place.land(f"{number}.json", rows)
    place.kill(ORDERS, moment, 2)
    report = place.load().run()
    assert report.status == "succeeded"
    assert report.balanced is True
    assert place.ids("tables/orders") == [1, 2, 3, 5]
    assert [row["position"] for row in place.refused()] == [2]
