"""A whole run delivers every value exactly, by every way, also in a batch with a refused line."""

from __future__ import annotations

from collections.abc import Mapping
from decimal import Decimal
from typing import Any

import pytest

from tests.scenarios.conftest import Place

pytestmark = pytest.mark.spark
ORDERS = """
name: orders
origin:
  files: {path: "landing/*", format: FORMAT, schema: "id int, text string, price decimal(10,2)"MORE}
destinations:
  - delta: {path: tables/orders}
dlq: {window: 1000, threshold: 500}
"""
NUMBERS = ["12345678901234567.89", "1.10", "1e400", "-0", "1E5", '{"b":1.10}']
TEXTS = ["z\uffffx", "\ufffeq", "next", "\u2028", "\U0001f600", "last"]
WRONG = {"json": '{"id": "wrong"}', "csv": "wrong,x,1"}
WAYS: Mapping[str, Mapping[str, Any]] = {
    "straight": {"ways": ["straight"]},
    "apart": {"ways": ["apart"], "small_bytes": 0},
    "written": {"ways": ["written"]},
    "written by Spark": {"ways": ["written"], "small_bytes": 0},
}


def define(form: str, more: str = "") -> str:
    return ORDERS.replace("FORMAT", form).replace("MORE", more)


def read_texts(place: Place) -> list[str]:
    return [row["text"] for row in sorted(place.rows("tables/orders"), key=lambda row: row["id"])]


@pytest.mark.parametrize("wrong", [False, True], ids=["clean", "refused"])
@pytest.mark.parametrize("way", WAYS)
def test_a_number_keeps_its_text_in_a_column_of_text(place: Place, way: str, wrong: bool) -> None:
    """JSON numbers and objects arrive as they stand in the line."""
    lines = [f'{{"id": {at}, "text": {number}, "price": {at}.10}}' for at, number in enumerate(NUMBERS)]
    place.land("a.json", [*lines, *[WRONG["json"]] * wrong])
    report = place.carry(define("json"), **WAYS[way])
    assert (report.nacked, read_texts(place)) == (int(wrong), NUMBERS)


@pytest.mark.connect
@pytest.mark.parametrize("change", ["other", "extra"])
def test_a_number_keeps_its_text_where_other_values_are_rescued(place: Place, change: str) -> None:
    """Such lines are parsed key by key."""
    lines = [f'{{"id": {at}, "text": {number}, "price": {at}.10}}' for at, number in enumerate(NUMBERS)]
    place.land("a.json", lines)
    place.carry(define("json", f", on_change: {{{change}: rescue}}"), ways=["straight"])
    assert read_texts(place) == NUMBERS


@pytest.mark.parametrize("wrong", [False, True], ids=["clean", "refused"])
@pytest.mark.parametrize("way", WAYS)
def test_rare_characters_stay_in_a_field_of_csv(place: Place, way: str, wrong: bool) -> None:
    """They neither end a field, nor take anything from the next line."""
    lines = ["id,text,price", *(f"{at},{text},1.10" for at, text in enumerate(TEXTS)), *[WRONG["csv"]] * wrong]
    place.land("a.csv", lines)
    report = place.carry(define("csv"), **WAYS[way])
    assert (report.nacked, read_texts(place)) == (int(wrong), TEXTS)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize(
    "number", ["0e-999999999", "18446744073709551616e-119", "98040789e-70", "1e-39", "1e10000000", "1e-10000000"]
)
def test_a_decimal_with_a_large_exponent_is_refused(place: Place, number: str, way: str) -> None:
    """The run ends, and delivers the other lines."""
    place.land("a.json", [f'{{"id": 1, "price": {number}}}', '{"id": 2, "price": 1e1}'])
    report = place.carry(define("json"), **WAYS[way])
    assert (report.nacked, [row["price"] for row in place.rows("tables/orders")]) == (1, [Decimal("10.00")])
    assert f"column price: '{number}' is not a decimal(10,2)" in place.refused()[0]["message"]
