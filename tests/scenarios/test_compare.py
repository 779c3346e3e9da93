"""`compare` shows which rows another definition treats differently, and writes nothing."""

from __future__ import annotations

import json
from typing import Any

import pytest
from click.testing import CliRunner

from runners.command_line.commands import wherry
from runners.model.comparison import ComparedDestination, Difference
from runners.model.errors import Refusal
from runners.pipeline import Pipeline
from tests.scenarios.conftest import ORDERS, Place, list_files, make_order

pytestmark = pytest.mark.spark

TWO = ORDERS.replace(
    "  - delta: {path: tables/orders}\n",
    "  - delta: {path: tables/orders}\n  - {name: large, delta: {path: tables/large}, stages: [filter: amount > 3]}\n",
)


def load_other(place: Place, text: str) -> Pipeline:
    """Load the definition with which the pipeline of the place is compared."""
    (place.folder / "other.yaml").write_text(text, encoding="utf-8")
    return Pipeline.load(place.folder / "other.yaml")


def describe_differences(destination: ComparedDestination) -> tuple[int, dict[str, int]]:
    """Return how many rows are the same, and how many changed in which way."""

    def word(each: Difference) -> str:
        return f"{each.old} -> {each.new} {','.join(each.columns)}".strip()

    return destination.same, {word(each): each.rows for each in destination.differences}


def test_each_row_is_compared_with_itself_for_every_destination(place: Place) -> None:
    """A row may get other values, or be refused or filtered instead. Masked values are not shown, and nothing is
    written."""
    rows: list[Any] = [
        make_order(1),
        make_order(2, amount="sieben"),
        make_order(3, email=None),
        make_order(4),
        make_order(5),
        '{"id": "x"}',
    ]
    place.land("a.json", rows)
    masked = TWO + "protect: [email]\n"
    old = place.load(masked)
    changed = masked.replace("amount > 3", "amount > 5").replace(
        "  - cast:",
        "  - with_columns: {amount: \"replace(amount, 'sieben', '7')\", email: \"if(id = 1, 'secret@x.com', email)\"}\n"
        "  - require: {not_five: id <> 5}\n  - cast:",
    )
    new = load_other(place, changed)
    before = list_files(place.folder)
    (batch,) = old.compare(new).batches
    assert list_files(place.folder) == before
    assert (batch.number, batch.by_row, batch.label) == (1, True, "a.json")
    orders, large = batch.destinations
    assert describe_differences(orders) == (
        3,
        {
            "delivered -> delivered email": 1,
            "delivered -> refused by require (not_five)": 1,
            "refused by cast (CAST) -> delivered": 1,
        },
    )
    assert describe_differences(large) == (
        3,
        {
            "delivered -> filtered by large/filter": 1,
            "delivered -> refused by require (not_five)": 1,
            "refused by cast (CAST) -> delivered": 1,
        },
    )
    (other_values,) = [each for each in orders.differences if each.columns]
    assert json.dumps(other_values.json()).count("secret") == 0
    (refused,) = [each for each in orders.differences if each.new is not None and each.new.code == "not_five"]
    assert refused.example["why"] == "not_five: id <> 5 is false"


def test_a_column_that_one_definition_protects_is_hidden_in_findings_about_a_batch(place: Place) -> None:
    """The finding comes from another row than the example, so the example cannot mask it."""
    place.land("a.json", [make_order(1), make_order(98765)])
    expects = (
        "  - expect: {expectations: [{expect_column_max_to_be_between: {column: id, max_value: 9}}],"
        " on_batch_failure: quarantine}\n"
    )
    new = load_other(place, ORDERS.replace("stages:\n", f"stages:\n{expects}") + "protect: [id]\n")
    compared = place.load(ORDERS).compare(new)
    text = json.dumps(compared.json())
    assert "the batch failed" in text
    assert "98765" not in text


def test_without_waiting_rows_the_newest_delivered_batches_are_compared(place: Place) -> None:
    """If the origins read rows differently, or a stage makes other rows, rows are counted by their values."""
    place.land("a.json", [make_order(1), make_order(2)])
    place.land("b.json", [make_order(3), make_order(4), make_order(5)])
    old = place.load(ORDERS)
    with pytest.raises(Refusal, match="Both definitions must read the same rows"):
        old.compare(load_other(place, ORDERS.replace("landing/", "elsewhere/")))
    old.run()
    read_otherwise = ORDERS.replace("id long", "id string")
    compared = old.compare(load_other(place, read_otherwise), batches=5)
    assert (compared.carried, [each.label for each in compared.batches]) == (True, ["b.json", "a.json"])
    (orders,) = compared.batches[0].destinations
    assert (compared.batches[0].by_row, orders.changed_columns) == (False, {"id": ["bigint", "string"]})
    assert (orders.same, [(each.rows, each.old is None) for each in orders.differences]) == (0, [(3, False), (3, True)])
    total = ORDERS.replace("  - filter:", '  - sql: "select sum(amount) as total from rows"\n  - filter:')
    total = total.replace("email is not null", "total > 0").replace('{email: "lower(email)"}', '{half: "total / 2"}')
    (batch, *_) = old.compare(load_other(place, total)).batches
    assert (batch.by_row, batch.destinations[0].same) == (False, 0)


def test_a_comparison_refuses_a_row_at_which_an_expression_raises(place: Place) -> None:
    """The row is compared as a run would treat it. The command exits with 1, because the row differs."""
    place.land("a.json", [make_order(1), make_order(2), make_order(3)])
    raising = ORDERS.replace(
        "  - filter:", "  - filter: \"id <> 2 or assert_true(false, 'no 2') is null\"\n  - filter:"
    )
    place.define(ORDERS)
    load_other(place, raising)
    words = ["compare", str(place.folder / "pipeline.yaml"), str(place.folder / "other.yaml"), "--quiet"]
    ended = CliRunner().invoke(wherry, words, standalone_mode=False)
    assert ended.return_value == 1, ended.output
    assert "2 rows are the same, 1 row differs" in ended.output
    assert "1 row: delivered before, refused by filter" in ended.output
    assert "no 2" in ended.output
    same = CliRunner().invoke(wherry, [*words[:2], words[1], "--json"], standalone_mode=False)
    assert (same.return_value, json.loads(same.stdout)["same"]) == (0, True)
