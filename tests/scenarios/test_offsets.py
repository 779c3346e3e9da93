"""Offsets that are moved by hand: what will happen is said first, then it is what happens."""

from __future__ import annotations

import pytest

from runners.errors import Refusal
from runners.offsets import carry_out, plan_reset, plan_rewind, plan_set, show
from tests.scenarios.conftest import ORDERS, Place, order

pytestmark = [pytest.mark.spark]


def carried(place: Place) -> None:
    for number in range(1, 4):
        place.land(f"{number}.json", [order(number)])
    place.load(ORDERS).run()


@pytest.mark.promise("SS-12", "CD-27")
def test_a_rewind_carries_again_what_it_said(place: Place) -> None:
    """Two batches of one row each come again, under new numbers, and the append has them twice."""
    carried(place)
    move = plan_rewind(place.load(), batches=2)
    assert (move.lanes["0"].batches, move.lanes["0"].rows) == (2, 2)
    assert "twice" in move.destinations["orders"]
    carry_out(place.load(), move, reason="the prices were wrong")
    report = place.load().run()
    assert (report.batches, place.ids("tables/orders")) == (2, [1, 2, 2, 3, 3])
    assert show(place.load())["lanes"]["0"]["number"] == 5


@pytest.mark.promise("SS-12")
def test_a_reset_carries_everything_again(place: Place) -> None:
    """No destination skips what comes, though it has the same rows already."""
    carried(place)
    carry_out(place.load(), plan_reset(place.load()), reason="a new price list")
    assert place.load().run().batches == 3
    assert place.ids("tables/orders") == [1, 1, 2, 2, 3, 3]


def test_a_move_needs_a_reason(place: Place) -> None:
    """Without one nothing is moved."""
    carried(place)
    with pytest.raises(Refusal, match="needs a reason"):
        carry_out(place.load(), plan_reset(place.load()), reason=" ")
    assert place.load().run().batches == 0


def test_files_have_no_offset_to_set(place: Place) -> None:
    """They are known by name; the message says what to do instead."""
    carried(place)
    with pytest.raises(Refusal, match="no offset can be set"):
        plan_set(place.load(), "0", 7)


@pytest.mark.parametrize("offset", ["x", -1, 7, 2.5, True, {"file": "a"}])
def test_an_offset_that_is_none_is_refused(place: Place, offset: object) -> None:
    """One beyond the end as well: nothing would ever be carried behind it."""
    text = "name: made\norigin: {generate: {rows: 6}}\ndestinations: [log: {}]\n"
    with pytest.raises(Refusal, match="expected a number from 0 to 6"):
        plan_set(place.load(text), "0", offset)
