"""When too many rows of a batch were refused, with numbers alone."""

from __future__ import annotations

from dataclasses import replace

import pytest

from destinations.dlq import Dlq
from runners.engine.batch_machine import DeliveryRules, begin_flight, next_transition
from runners.model.errors import LimitTripped
from runners.model.nack_window import NackWindow, TrippedLimit, judge_limits
from runners.model.pipeline_state import LaneState
from runners.model.tasks import Explain, Explained, Prepared
from tests.runners.engine.test_batch_machine import TWO, counts

CODES = [(1, "CAST"), (3, "PARSE"), (4, "CAST"), (9, "CAST")]
NACKS = [place for place, _ in CODES]


@pytest.mark.parametrize(
    ("limits", "window", "tripped"),
    [
        ({}, (0, 1), None),
        ({}, (100, 2), TrippedLimit(place=3)),
        ({"CAST": "off"}, (1, 1), TrippedLimit(place=3)),
        ({"CAST": "off", "PARSE": "off"}, (1, 1), None),
        ({"CAST": "30%"}, (100, 2), None),
        ({"CAST": "29%"}, (100, 2), TrippedLimit(place=9, code="CAST", rows=3)),
        ({"CAST": "0.1"}, (0, 1), TrippedLimit(place=4, code="CAST", rows=3)),
        ({"CAST": "0%"}, (1, 1), TrippedLimit(place=1, code="CAST", rows=3)),
        ({"CAST": "0.1"}, (1, 1), TrippedLimit(place=3)),
        ({"OTHER": "off"}, (100, 4), TrippedLimit(place=9)),
    ],
)
def test_a_code_with_a_limit_of_its_own_is_not_counted_in_the_window(
    limits: dict[str, str], window: tuple[int, int], tripped: TrippedLimit | None
) -> None:
    """Ten rows, four refused; the earliest row that is one too many is the one that is told."""
    dlq = Dlq(window=window[0], threshold=window[1], limits=limits)
    assert judge_limits(NackWindow(), dlq, 10, NACKS, CODES)[1] == tripped


def test_the_window_goes_on_with_the_others() -> None:
    """Of rows that it does not count the next batch knows nothing."""
    dlq = Dlq(window=100, threshold=5, limits={"CAST": "off"})
    assert judge_limits(NackWindow(), dlq, 10, NACKS, CODES)[0] == NackWindow(rows=10, nacks=(3,))


def test_two_rows_at_one_place_are_two() -> None:
    """Behind a stage that changes rows many stand at the batch's last."""
    dlq = Dlq(window=10, threshold=2, limits={"CAST": "off"})
    codes = [(5, "CAST"), (5, "A"), (5, "B")]
    assert judge_limits(NackWindow(), dlq, 5, [5, 5, 5], codes)[1] == TrippedLimit(place=5)
    assert judge_limits(NackWindow(), dlq, 5, [5, 5], codes[:2])[1] is None


@pytest.mark.parametrize("limit", ["on", "-1%", "101%", "1.5", "five", "", "5 percent"])
def test_a_limit_is_off_or_a_share(limit: str) -> None:
    """A number of rows is none: batches are not of one size."""
    with pytest.raises(ValueError, match=r"limits\.CAST: expected off or a share"):
        Dlq(limits={"CAST": limit})


def test_a_batch_beyond_a_limit_delivers_nothing_and_says_which() -> None:
    """And how to let it pass."""
    rules = DeliveryRules(dlq=Dlq(window=0, limits={"CAST": "10%"}))
    both = counts("orders", "latest", nacked=2)
    prepared = Prepared(path="x", counts=both, nacks=[1, 2], codes=[(1, "CAST"), (2, "CAST")])
    step = next_transition(begin_flight(TWO, LaneState()), prepared, rules)
    assert isinstance(step.flight.task, Explain)
    assert step.entries == ()
    ended = next_transition(step.flight, Explained(nacks=[{"stage": "cast", "message": "no", "row": {"id": 1}}]), rules)
    assert ([entry.kind for entry in ended.entries], type(ended.error)) == (["cancel"], LimitTripped)
    said = str(ended.error)
    assert "2 of its 10 rows were refused (limit 10% of a batch)" in said
    assert "--set dlq.limits.CAST=off" in said
    again = replace(TWO, batch=replace(TWO.batch, lane="dlq/origin"))
    assert [entry.kind for entry in next_transition(begin_flight(again, LaneState()), prepared, rules).entries] == [
        "prepared"
    ]
