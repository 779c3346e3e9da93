"""Stored JSON is checked once where it is read."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypedDict

import pytest

from origins.batch import Json
from origins.json_shape import Malformed, check_shape


class Part(TypedDict):
    """What stands in another shape."""

    name: str
    size: int | None


class _Needed(TypedDict):
    parts: Sequence[Part]
    shares: Mapping[str, float]
    pair: tuple[str, int]


class Whole(_Needed, total=False):
    """A shape of each kind."""

    offset: Json
    known: bool


WHOLE = {"parts": [{"name": "a", "size": None}], "shares": {"x": 1, "y": 0.5}, "pair": ["a", 1], "offset": [{}, 7]}


@pytest.mark.parametrize("more", [{}, {"known": True}, {"later": "a newer version's"}])
def test_what_has_the_shape_is_given_back_as_it_is(more: Mapping[str, object]) -> None:
    """Names may be there that the shape does not have, and optional ones may be missing."""
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
def test_the_message_says_where_and_what_was_expected_and_found(wrong: Mapping[str, object], said: str) -> None:
    """The names lead to the value from the outermost one."""
    with pytest.raises(Malformed, match=f"^{said}"):
        check_shape(Whole, {**WHOLE, **wrong})


def test_a_long_value_is_cut_in_the_message() -> None:
    """A ledger's body may be megabytes."""
    with pytest.raises(Malformed, match=r"^expected a whole number, found 'x{79}…$"):
        check_shape(int, "x" * 10_000)
