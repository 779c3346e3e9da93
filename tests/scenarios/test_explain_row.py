"""`dlq explain` tries a refused row with the present stages."""

from __future__ import annotations

import pytest

from runners.pipeline import Pipeline
from runners.running.choice import Choice
from runners.running.replay import Replay
from tests.scenarios.conftest import ORDERS, Place, list_files, make_order

pytestmark = pytest.mark.spark

MENDED = ORDERS.replace(
    "stages:\n", "stages:\n  - with_columns: {amount: \"case amount when 'two' then '2.00' else amount end\"}\n"
)


def find_id(pipeline: Pipeline, number: int) -> str:
    """Return the id of the refused row with this number."""
    return next(str(each["id"]) for each in pipeline.refused.list() if dict(each["row"]).get("id") == number)


@pytest.mark.connect
def test_a_refused_row_is_tried_with_the_present_stages(place: Place) -> None:
    """It is refused until a stage mends it. Nothing is written, and the replay gives the announced result."""
    place.land(
        "1.json", [make_order(1), make_order(2, amount="two"), "{", make_order(3), make_order(4, amount="-1.00")]
    )
    pipeline = place.load(ORDERS)
    pipeline.run()
    two = find_id(pipeline, 2)
    before = list_files(place.folder)
    tried = pipeline.refused.explain(two).try_again()
    assert tried.today is not None
    assert (tried.today.outcome, tried.today.stage, tried.passes) == ("rejected", "cast", False)
    assert [(step["stage"], step["outcome"]) for step in tried.steps] == [("", "kept"), ("cast", "refused")]
    mended = place.load(MENDED)
    tried = mended.refused.explain(two).try_again()
    assert tried.today is not None
    assert (tried.today.outcome, list(tried.today.destinations), tried.passes) == ("wanted", ["orders"], True)
    assert [(step["stage"], step["row"]["amount"]) for step in tried.steps][:3] == [
        *[("", "two"), ("with_columns", "2.00"), ("cast", 2.0)]
    ]
    assert {name: each for name, each in list_files(place.folder).items() if "pipeline.yaml" not in name} == {
        name: each for name, each in before.items() if "pipeline.yaml" not in name
    }
    mended.replay(Replay(choice=Choice(ids=(two,)), reason="two is a number"))
    row = mended.refused.explain(two)
    assert row.state == "replayed"
    unread = next(str(each["id"]) for each in mended.refused.list() if each["code"] == "PARSE")
    tried = mended.refused.explain(unread).try_again()
    assert (tried.today, "could not read" in tried.why_not) == (None, True)
