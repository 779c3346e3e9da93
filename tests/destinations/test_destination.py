"""A destination's options are separate from the state of an open destination."""

from __future__ import annotations

import pickle
from dataclasses import replace

import pytest

from destinations.delta import Delta
from destinations.destination import Destination, Identity
from destinations.discard import Discard
from destinations.files import Files

WITH_STATE = [Delta(path="/tables/orders", name="orders"), Files(path="/out/orders", name="orders")]


@pytest.mark.parametrize("destination", WITH_STATE, ids=lambda each: type(each).__name__)
def test_opening_a_destination_leaves_its_options_unchanged(destination: Destination) -> None:
    """They equal a copy made before the opening, and can be sent to another process."""
    before = replace(destination)
    destination.open().expects(Identity(place=destination.place, id="t"))
    assert destination == before
    assert vars(destination) == vars(before)
    assert pickle.loads(pickle.dumps(destination)) == before  # noqa: S301 -- it is our own


@pytest.mark.parametrize("destination", WITH_STATE, ids=lambda each: type(each).__name__)
def test_two_openings_of_a_destination_share_no_state(destination: Destination) -> None:
    """The identity that one of them expects does not reach the other."""
    one, other = destination.open(), destination.open()
    untold = vars(other).copy()
    one.expects(Identity(place=destination.place, id="t"))
    assert vars(other) == untold
    assert vars(one) != untold


def test_a_destination_without_state_opens_as_itself() -> None:
    """Its kind has a single class."""
    discard = Discard()
    assert discard.open() is discard


def test_a_destination_of_a_lane_takes_only_that_lane() -> None:
    """This also holds for a copy with another option."""
    only = Delta(path="/tables/{lane}").of_lane("items")
    assert isinstance(only, Delta)
    copied = replace(only, optimize=5)
    assert copied.takes(["items"])
    assert not copied.takes(["orders"])
