"""A dataclass is written as JSON and read again, and JSON is checked once, when it is read."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timezone
from typing import Any, Literal, NamedTuple

import pytest

from origins.batch import Json
from origins.codec import INLINE, LEFT_OUT, NEEDED, UNSTORED, Malformed, decode, encode, encode_fields, named


class Place(NamedTuple):
    """A list whose elements have names."""

    lane: str
    number: int


@dataclass(frozen=True, kw_only=True)
class Part:
    """A shape inside another shape."""

    name: str
    size: int | None


@dataclass(frozen=True, kw_only=True)
class Whole:
    """A shape with a field of each kind."""

    part: Part = field(metadata=INLINE)
    parts: Sequence[Part]
    shares: Mapping[str, float]
    pair: tuple[str, int]
    places: Mapping[str, Place] = field(default_factory=dict)
    done: frozenset[str] = frozenset()
    at: datetime | None = None
    offset: Json = field(default=None, metadata=NEEDED)
    known: bool = field(default=False, metadata=named("class"))
    way: Literal["log", "feed"] = "log"
    later: tuple[str, ...] = field(default=(), metadata=LEFT_OUT)
    draft: Any = field(default=None, metadata=UNSTORED)


SMALL: Mapping[str, Any] = {
    "name": "w",
    "size": 1,
    "parts": [{"name": "a", "size": None}],
    "shares": {"x": 1, "y": 0.5},
    "pair": ["a", 1],
    "offset": [{}, 7],
}
LARGE = {
    **SMALL,
    "places": {"p": ["0", 3]},
    "done": ["0", "1"],
    "at": "2026-01-02T03:04:05+00:00",
    "class": True,
    "way": "feed",
    "later": ["b"],
}
READ = Whole(
    part=Part(name="w", size=1),
    parts=(Part(name="a", size=None),),
    shares={"x": 1, "y": 0.5},
    pair=("a", 1),
    places={"p": Place("0", 3)},
    done=frozenset({"1", "0"}),
    at=datetime(2026, 1, 2, 3, 4, 5, tzinfo=timezone.utc),
    offset=[{}, 7],
    known=True,
    way="feed",
    later=("b",),
)


def test_a_dataclass_is_read_from_the_json_that_it_is_written_as() -> None:
    """The JSON has only dicts, lists and plain values. Names that the dataclass lacks are ignored."""
    assert encode(READ) == LARGE
    assert decode(Whole, {**LARGE, "newer": "a newer version's"}) == READ


def test_names_that_are_missing_have_their_defaults() -> None:
    """JSON leaves out a default only where the field says so, and never has a field that is not stored."""
    whole = decode(Whole, SMALL)
    assert (whole.places, whole.done, whole.at, whole.known, whole.later) == ({}, frozenset(), None, False, ())
    written = {**SMALL, "places": {}, "done": [], "at": None, "class": False, "way": "log"}
    assert encode(replace(whole, draft="a value that JSON lacks")) == written


@dataclass(frozen=True)
class Sum:
    """A result that shows more than its fields."""

    counts: Sequence[int]

    def json(self) -> dict[str, Any]:
        """Return the fields and their sum."""
        return {**encode_fields(self), "sum": sum(self.counts)}


def test_a_class_with_a_json_of_its_own_is_written_as_that() -> None:
    """It also holds inside another value."""
    assert encode({"a": [Sum((1, 2))]}) == {"a": [{"counts": [1, 2], "sum": 3}]}


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"parts": [{"name": "a", "size": "7"}]}, "parts.0.size: expected a whole number or null, found '7'"),
        ({"parts": [{"size": 7}]}, "parts.0: expected a mapping with `name`, found {'size': 7}"),
        ({"parts": "ab"}, "parts: expected a list, found 'ab'"),
        ({"parts": [7]}, "parts.0: expected a mapping, found 7"),
        ({"shares": [1]}, r"shares: expected a mapping, found \[1\]"),
        ({"shares": {"x": True}}, "shares.x: expected a number, found True"),
        ({"pair": ["a", 1, 2]}, "pair: expected a list of 2, found"),
        ({"pair": ["a", "b"]}, "pair.1: expected a whole number, found 'b'"),
        ({"places": {"p": ["0"]}}, "places.p: expected a list of 2, found"),
        ({"done": [1]}, "done.0: expected text, found 1"),
        ({"at": "noon"}, "at: expected a time or null, found 'noon'"),
        ({"class": 1}, "class: expected true or false, found 1"),
        ({"way": "mud"}, "way: expected 'log' or 'feed', found 'mud'"),
        ({"name": 7}, "name: expected text, found 7"),
    ],
)
def test_the_message_names_the_place_the_expected_and_the_found_value(wrong: Mapping[str, object], said: str) -> None:
    """The place is the path of names from the outermost one to the value."""
    with pytest.raises(Malformed, match=f"^{said}"):
        decode(Whole, {**SMALL, **wrong})


@pytest.mark.parametrize("name", ["pair", "size", "offset"])
def test_a_name_that_is_needed_and_missing_is_an_error(name: str) -> None:
    """A field without a default is needed. A field with a default is needed if it says so."""
    with pytest.raises(Malformed, match=f"^expected a mapping with `{name}`, found {{"):
        decode(Whole, {each: value for each, value in SMALL.items() if each != name})


def test_a_long_value_is_cut_in_the_message() -> None:
    """A body in the ledger may have megabytes."""
    with pytest.raises(Malformed, match=r"^expected a whole number, found 'x{79}…$"):
        decode(int, "x" * 10_000)
