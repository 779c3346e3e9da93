"""Stored JSON is checked once, when it is read."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypedDict

import pytest

from origins.batch import Json
from origins.json_shape import Malformed, check_shape


class Part(TypedDict):
    """A shape inside another shape."""

    name: str
    size: int | None


class _Needed(TypedDict):
    parts: Sequence[Part]
    shares: Mapping[str, float]
    pair: tuple[str, int]


class Whole(_Needed, total=False):
    """A shape with a field of each kind."""

    offset: Json
    known: bool


WHOLE = {"parts": [{"name": "a", "size": None}], "shares": {"x": 1, "y": 0.5}, "pair": ["a", 1], "offset": [{}, 7]}


@pytest.mark.parametrize("more", [{}, {"known": True}, {"later": "a newer version's"}])
def test_a_value_of_the_shape_is_returned_unchanged(more: Mapping[str, object]) -> None:
    """It may have names that the shape lacks, and optional names may be missing."""
    value = {**WHOLE, **more}
    assert check_shape(Whole, value) is value


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"parts": [{"name": "a", "size": "7"}]}, "parts.0.size: expected a whole number or null, found '7'"),
        ({"parts": [{"size": 7}]}, "parts.0: expected a mapping with `name`, found {'size': 7}"),
        ({"parts": "ab"}, "parts: expected a list, found 'ab'"),
        ({"shares": [1]}, r"shares: expected a mapping, found \[1\]"),
        ({"shares": {"x": True}}, "shares.x: expected a number, found True"),
        ({"pair": ["a", 1, 2]}, "pair: expected a list of 2, found"),
        ({"pair": ["a", "b"]}, "pair.1: expected a whole number, found 'b'"),
        ({"known": 1}, "known: expected true or false, found 1"),
    ],
)
def test_the_message_names_the_place_the_expected_and_the_found_value(wrong: Mapping[str, object], said: str) -> None:
    """The place is the path of names from the outermost one to the value."""
    with pytest.raises(Malformed, match=f"^{said}"):
        check_shape(Whole, {**WHOLE, **wrong})


def test_a_long_value_is_cut_in_the_message() -> None:
    """A body in the ledger may have megabytes."""
    with pytest.raises(Malformed, match=r"^expected a whole number, found 'x{79}…$"):
        check_shape(int, "x" * 10_000)
