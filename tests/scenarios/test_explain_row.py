"""`dlq explain` shows a refused row beside its neighbours, and tries it with the present stages."""

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
    return next(str(each["id"]) for each in pipeline.dead_letters() if dict(each["row"]).get("id") == number)


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
    tried = pipeline.explain_dead_letter(two).try_again()
    assert tried.today is not None
    assert (tried.today.outcome, tried.today.stage, tried.passes) == ("rejected", "cast", False)
    assert [(each.position, dict(each.row).get("id")) for each in tried.neighbours] == [
        (1, 1),
        (2, 2),
        (3, None),
        (4, 3),
    ]
    assert tried.neighbours[2].row == {"raw": "{"}
    mended = place.load(MENDED)
    tried = mended.explain_dead_letter(two).try_again()
    assert tried.today is not None
    assert (tried.today.outcome, list(tried.today.destinations), tried.passes) == ("wanted", ["orders"], True)
    assert {name: each for name, each in list_files(place.folder).items() if "pipeline.yaml" not in name} == {
        name: each for name, each in before.items() if "pipeline.yaml" not in name
    }
    mended.replay(Replay(choice=Choice(ids=(two,)), reason="two is a number"))
    row = mended.explain_dead_letter(two)
    assert row.state == "replayed"
    unread = next(str(each["id"]) for each in mended.dead_letters() if each["code"] == "PARSE")
    tried = mended.explain_dead_letter(unread).try_again()
    assert (tried.today, "could not read" in tried.why_not) == (None, True)
    assert [each.position for each in tried.neighbours] == [1, 2, 3, 4, 5]


def test_a_row_of_a_changed_file_is_tried_without_its_neighbours(place: Place) -> None:
    """A row that is refused again in a replay names the earlier entry."""
    place.land("1.json", [make_order(1), make_order(2, amount="two")])
    pipeline = place.load(ORDERS)
    pipeline.run()
    two = find_id(pipeline, 2)
    pipeline.replay(Replay(choice=Choice(ids=(two,)), reason="a test"))
    again = next(str(each["id"]) for each in pipeline.dead_letters(waiting=True))
    row = pipeline.explain_dead_letter(again)
    tried = row.try_again()
    assert (row.letter["replays"], tried.why_alone) == (two, "its batch cannot be read again")
    place.land("1.json", [make_order(1), make_order(2, amount="2.00"), make_order(3)])
    tried = pipeline.explain_dead_letter(two).try_again()
    assert (list(tried.neighbours), "1.json" in tried.why_alone) == ([], True)
    assert tried.today is not None
    assert tried.today.outcome == "rejected"


def test_a_secret_in_a_neighbour_is_masked(place: Place) -> None:
    """Wherry shows the reference of the secret in its place."""
    place.land("1.json", [make_order(1, email="tok-4711-secret"), make_order(2, amount="two")])
    (place.folder / "pipeline.yaml").write_text(
        ORDERS.replace("stages:\n", "stages:\n  - filter: \"coalesce(email, '') <> '${secret:KEY}'\"\n")
    )
    pipeline = Pipeline.load(place.folder / "pipeline.yaml", secrets={"KEY": "tok-4711-secret"})
    pipeline.run()
    tried = pipeline.explain_dead_letter(find_id(pipeline, 2)).try_again()
    assert [dict(each.row)["email"] for each in tried.neighbours] == ["${secret:KEY}", "A2@X.COM"]
