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
WAYS: Mapping[str, tuple[bool, Mapping[str, Any]]] = {
    "small": (False, {}),
    "large": (True, {"ways": ["apart"], "small_bytes": 0}),
}
"""For each way, whether the batch has a refused line, and the thresholds that lead to it."""
NUMBERS_OUT_OF_RANGE = (
    *("0e-999999999", "18446744073709551616e-119", "98040789e-70", "1e-39"),
    *("1e10000000", "1e-10000000"),
)


def define(form: str, more: str = "") -> str:
    return ORDERS.replace("FORMAT", form).replace("MORE", more)


def read_texts(place: Place) -> list[str]:
    return [row["text"] for row in sorted(place.rows("tables/orders"), key=lambda row: row["id"])]


@pytest.mark.parametrize(("wrong", "limits"), WAYS.values(), ids=WAYS)
def test_a_number_keeps_its_text_in_a_column_of_text(place: Place, wrong: bool, limits: Mapping[str, Any]) -> None:
    """JSON numbers and objects arrive as they stand in the line."""
    lines = [f'{{"id": {at}, "text": {number}, "price": {at}.10}}' for at, number in enumerate(NUMBERS)]
    place.land("a.json", [*lines, *[WRONG["json"]] * wrong])
    report = place.carry(define("json"), **limits)
    assert (report.nacked, read_texts(place)) == (int(wrong), NUMBERS)


@pytest.mark.connect
def test_a_number_keeps_its_text_where_other_values_are_rescued(place: Place) -> None:
    """Such lines are parsed key by key."""
    lines = [f'{{"id": {at}, "text": {number}, "price": {at}.10}}' for at, number in enumerate(NUMBERS)]
    place.land("a.json", lines)
    place.carry(define("json", ", on_change: {other: rescue}"), ways=["straight"])
    assert read_texts(place) == NUMBERS


@pytest.mark.parametrize(("wrong", "limits"), WAYS.values(), ids=WAYS)
def test_rare_characters_stay_in_a_field_of_csv(place: Place, wrong: bool, limits: Mapping[str, Any]) -> None:
    """They neither end a field, nor take anything from the next line."""
    lines = ["id,text,price", *(f"{at},{text},1.10" for at, text in enumerate(TEXTS)), *[WRONG["csv"]] * wrong]
    place.land("a.csv", lines)
    report = place.carry(define("csv"), **limits)
    assert (report.nacked, read_texts(place)) == (int(wrong), TEXTS)


@pytest.mark.parametrize("limits", [{}, {"ways": ["apart"], "small_bytes": 0}], ids=["small", "large"])
def test_a_decimal_with_a_large_exponent_is_refused(place: Place, limits: Mapping[str, Any]) -> None:
    """The run ends, and delivers the other lines."""
    bad = [f'{{"id": 1, "price": {number}}}' for number in NUMBERS_OUT_OF_RANGE]
    place.land("a.json", [*bad, '{"id": 2, "price": 1e1}'])
    report = place.carry(define("json"), **limits)
    assert (report.nacked, [row["price"] for row in place.rows("tables/orders")]) == (len(bad), [Decimal("10.00")])
    for number, row in zip(NUMBERS_OUT_OF_RANGE, place.refused(), strict=True):
        assert f"column price: '{number}' is not a decimal(10,2)" in row["message"]
