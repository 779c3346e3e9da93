"""What a destination's options are apart from what a run has open."""

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
def test_what_is_open_leaves_the_options_as_they_were(destination: Destination) -> None:
    """They are equal to a copy that was made before, and can be sent to another process."""
    before = replace(destination)
    destination.open().expects(Identity(place=destination.place, id="t"))
    assert destination == before
    assert vars(destination) == vars(before)
    assert pickle.loads(pickle.dumps(destination)) == before  # noqa: S301 -- it is our own


@pytest.mark.parametrize("destination", WITH_STATE, ids=lambda each: type(each).__name__)
def test_what_is_opened_twice_is_two(destination: Destination) -> None:
    """What one of them expects, the other does not."""
    one, other = destination.open(), destination.open()
    untold = vars(other).copy()
    one.expects(Identity(place=destination.place, id="t"))
    assert vars(other) == untold
    assert vars(one) != untold


def test_one_without_state_is_open_by_itself() -> None:
    """Its kind is one class."""
    discard = Discard()
    assert discard.open() is discard


def test_the_one_of_a_lane_stays_that_of_its_lane() -> None:
    """Also as a copy with another option."""
    only = Delta(path="/tables/{lane}").of_lane("items")
    assert isinstance(only, Delta)
    copied = replace(only, optimize=5)
    assert copied.takes(["items"])
    assert not copied.takes(["orders"])
