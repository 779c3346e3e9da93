"""When too many rows of a batch are refused, and what follows. These tests need no Spark."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from destinations.dlq import Dlq, Limit, LimitAction
from runners.engine.batch_machine import DeliveryRules, Transition, begin_flight, plan_transition
from runners.model.errors import LimitTripped
from runners.model.nack_window import (
    Judgement,
    NackWindow,
    RowWeights,
    TrippedLimit,
    describe_limit,
    format_share,
    get_action,
    judge_limits,
)
from runners.model.pipeline_state import LaneState
from runners.model.tasks import Explain, Explained, Prepared
from tests.runners.engine.test_batch_machine import TWO, make_counts

CODES = [(1, "CAST"), (3, "PARSE"), (4, "CAST"), (9, "CAST")]
NACKS = [place for place, _ in CODES]
HALF = RowWeights(weighed=10, total=1_000.0, refused_weighed=4, refused=500.0)
"""Four of ten rows are refused, with half of the weight."""


def judge_ten_rows(dlq: Dlq, weights: RowWeights | None = HALF, *, read: int = 10) -> Judgement:
    """Return the judgement on ten rows, four of them refused."""
    return judge_limits(NackWindow(), dlq, read, NACKS, CODES, weights)


def make_dlq(limits: Mapping[str, str], **options: Any) -> Dlq:
    """Return a DLQ whose window never stops the run."""
    return Dlq(limits=limits, weigh="amount" if "weight" in limits else None, **{"window": 0, **options})


@pytest.mark.parametrize(
    ("limits", "window", "tripped"),
    [
        ({}, (0, 1), None),
        ({}, (100, 2), (3, "", 0)),
        ({"CAST": "off"}, (1, 1), (3, "", 0)),
        ({"CAST": "off", "PARSE": "off"}, (1, 1), None),
        ({"CAST": "30%"}, (100, 2), None),
        ({"CAST": "29%"}, (100, 2), (9, "CAST", 3)),
        ({"CAST": "0.1"}, (0, 1), (4, "CAST", 3)),
        ({"CAST": "0%"}, (1, 1), (1, "CAST", 3)),
        ({"CAST": "0.1"}, (1, 1), (3, "", 0)),
        ({"OTHER": "off"}, (100, 4), (9, "", 0)),
    ],
)
def test_a_code_with_a_separate_limit_is_not_counted_in_the_window(
    limits: dict[str, str], window: tuple[int, int], tripped: tuple[int, str, int] | None
) -> None:
    """Four of ten rows are refused. The reported row is the first one beyond a limit or the window."""
    found = judge_ten_rows(Dlq(window=window[0], threshold=window[1], limits=limits), None).tripped
    assert (found and (found.place, found.limit.of if found.limit else "", found.rows)) == tripped


@pytest.mark.parametrize(
    ("limits", "ending", "told"),
    [
        ({"rows": "40%"}, None, []),
        ({"rows": "39%"}, ("rows", "stop", 9), []),
        ({"rows": "39% pause"}, ("rows", "pause", 9), []),
        ({"rows": "39% notify"}, None, [("rows", 9)]),
        ({"rows": "off"}, None, []),
        ({"rows": "0%"}, ("rows", "stop", 1), []),
        ({"rows": "100%"}, None, []),
        ({"rows": "1% notify; 20% pause; 30% stop"}, ("rows", "stop", 9), []),
        ({"rows": "1% notify; 20% pause; 50% stop"}, ("rows", "pause", 4), []),
        ({"rows": "1% notify; 20% notify; 50% stop"}, None, [("rows", 4)]),
        ({"weight": "50%"}, None, []),
        ({"weight": "49.9%"}, ("weight", "stop", 9), []),
        ({"weight": "0.4 notify"}, None, [("weight", 9)]),
        ({"weight": "off"}, None, []),
        ({"rows": "30% pause", "weight": "30%"}, ("weight", "stop", 9), []),
        ({"rows": "30% pause", "weight": "30% pause"}, ("rows", "pause", 9), []),
        ({"rows": "30% notify", "weight": "30% notify"}, None, [("rows", 9), ("weight", 9)]),
        ({"CAST": "10% notify", "PARSE": "0% notify"}, None, [("CAST", 4), ("PARSE", 3)]),
        ({"CAST": "10% notify", "PARSE": "0% pause"}, ("PARSE", "pause", 3), []),
        ({"CAST": "off", "rows": "30%"}, ("rows", "stop", 9), []),
    ],
)
def test_the_action_of_a_limit_follows_when_a_batch_exceeds_it(
    limits: dict[str, str], ending: tuple[str, LimitAction, int] | None, told: Sequence[tuple[str, int]]
) -> None:
    """A stop precedes a pause, then the earliest row counts.

    A batch that delivers nothing notifies of no other limit.
    """
    found = judge_ten_rows(make_dlq(limits))
    tripped = found.tripped
    assert (tripped and tripped.limit and (tripped.limit.of, get_action(tripped), tripped.place)) == ending
    assert [(each.limit.of, each.place) for each in found.exceeded if each.limit] == list(told)


def test_the_window_stops_the_run_even_if_a_limit_only_pauses_it() -> None:
    """The row of the limit may come first."""
    found = judge_ten_rows(make_dlq({"rows": "0% pause"}, window=10, threshold=3)).tripped
    assert found == TrippedLimit(place=4)
    assert get_action(found) == "stop"


def test_the_reported_share_is_the_refused_share() -> None:
    """The limit is shown as it is written in the definition."""
    (told,) = judge_ten_rows(make_dlq({"weight": "1% notify"})).exceeded
    assert told.limit == Limit(of="weight", share=0.01, text="1%", action="notify")
    assert (told.share, told.rows) == (0.5, 4)
    assert describe_limit(told, 10, "amount") == "its 4 refused rows have 50.0% of its amount (limit 1% of a batch)"


@pytest.mark.parametrize(
    ("weights", "share"),
    [
        (RowWeights(weighed=10, total=100.0, refused_weighed=2, refused=25.0), 0.25),
        (RowWeights(weighed=10, total=100.0, refused_weighed=2, refused=0.0), 0.0),
        (RowWeights(weighed=8, total=80.0, refused_weighed=0, refused=0.0), 0.2),
        (RowWeights(weighed=9, total=180.0, refused_weighed=1, refused=30.0), 0.25),
        (RowWeights(weighed=0, total=0.0, refused_weighed=0, refused=0.0), 0.2),
        (RowWeights(weighed=10, total=0.0, refused_weighed=2, refused=0.0), 0.2),
        (RowWeights(weighed=10, total=50.0, refused_weighed=2, refused=50.0), 1.0),
    ],
)
def test_a_row_without_a_number_weighs_as_much_as_the_average_row(weights: RowWeights, share: float) -> None:
    """Two of ten rows are refused. If no row has a weight, all rows weigh the same."""
    assert weights.compute_share(read=10, nacked=2) == pytest.approx(share)


def test_a_column_with_invalid_weights_does_not_hide_the_refused_rows() -> None:
    """All 90 refused rows have text in the column, and the ten good rows have small numbers."""
    weights = RowWeights(weighed=10, total=10.0, refused_weighed=0, refused=0.0)
    assert weights.compute_share(read=100, nacked=90) == pytest.approx(0.9)


@given(
    st.lists(st.tuples(st.booleans(), st.none() | st.floats(0, 1e12)), min_size=1, max_size=50),
)
def test_the_refused_share_of_the_weight_is_between_zero_and_one(rows: Sequence[tuple[bool, float | None]]) -> None:
    """It is 0 if no row is refused, 1 if all rows are, and otherwise between."""
    known = [size for _, size in rows if size is not None]
    lost = [size for refused, size in rows if refused and size is not None]
    weights = RowWeights(weighed=len(known), total=sum(known), refused_weighed=len(lost), refused=sum(lost))
    nacked = sum(refused for refused, _ in rows)
    share = weights.compute_share(read=len(rows), nacked=nacked)
    assert 0 <= share <= 1
    assert share == 0 if nacked == 0 else True
    assert share == pytest.approx(1) if nacked == len(rows) else True


def test_the_window_continues_with_the_rows_that_it_counts() -> None:
    """The next batch knows nothing of the other rows. Limits on rows and weight leave no row out."""
    assert judge_ten_rows(Dlq(window=100, threshold=5, limits={"CAST": "off"})).window == NackWindow(
        rows=10, nacks=(3,)
    )
    both = make_dlq({"rows": "off", "weight": "off"}, window=100, threshold=5)
    assert judge_ten_rows(both).window == NackWindow(rows=10, nacks=(1, 3, 4, 9))


def test_two_refused_rows_at_one_place_count_as_two() -> None:
    """After a stage that changes rows, many rows have the last place of the batch."""
    dlq = Dlq(window=10, threshold=2, limits={"CAST": "off"})
    codes = [(5, "CAST"), (5, "A"), (5, "B")]
    assert judge_limits(NackWindow(), dlq, 5, [5, 5, 5], codes).tripped == TrippedLimit(place=5)
    assert judge_limits(NackWindow(), dlq, 5, [5, 5], codes[:2]).tripped is None


def test_a_batch_without_refused_rows_exceeds_no_limit() -> None:
    """This is also true of a limit of 0%."""
    dlq = make_dlq({"rows": "0%", "weight": "0%", "CAST": "0% notify"})
    assert judge_limits(NackWindow(), dlq, 10, []) == Judgement(window=NackWindow(rows=10))


@pytest.mark.parametrize(
    "limit",
    ["on", "-1%", "101%", "1.5", "five", "", "5 percent", "5% halt", "5% stop,", "; 5%", "5%;", "notify", "off;5%"],
)
@pytest.mark.parametrize("name", ["CAST", "rows"])
def test_a_limit_is_off_or_a_share_with_an_action(name: str, limit: str) -> None:
    """A number of rows is refused, because batches have different sizes."""
    with pytest.raises(ValueError, match=rf"limits\.{name}: expected off or a share"):
        Dlq(window=0, limits={name: limit})


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"limits": {"weight": "5%"}}, "limits.weight: name the column that weighs a row, such as weigh: amount"),
        ({"weigh": "amount"}, "weigh: no limit uses it"),
        ({"limits": {"rows": "5%"}, "window": 1}, "limits.rows: it has no effect"),
        ({"limits": {"weight": "5%"}, "weigh": "a", "window": 9}, "limits.weight: it has no effect"),
    ],
)
def test_an_option_without_an_effect_is_refused(options: Mapping[str, Any], said: str) -> None:
    """The error shows what to write."""
    with pytest.raises(ValueError, match=said):
        Dlq(**{"window": 0, **options})


def test_a_limit_on_all_rows_has_an_effect_if_the_window_allows_refused_rows() -> None:
    """It also has an effect if the first refused row may pass because of its code."""
    assert Dlq(window=100, threshold=2, limits={"rows": "5%"}).list_limits()
    assert Dlq(limits={"rows": "5%", "CAST": "off"}).list_limits()


@pytest.mark.parametrize(
    ("share", "shown"), [(0.0, "0.0%"), (0.5, "50.0%"), (0.0004, "less than 0.1%"), (0.001, "0.1%"), (1.0, "100.0%")]
)
def test_a_share_above_zero_is_never_shown_as_zero(share: float, shown: str) -> None:
    """A tiny share is shown as less than 0.1%."""
    assert format_share(share) == shown


BOTH = make_counts("orders", "latest", nacked=2)
DECIDED = Prepared(path="x", counts=BOTH, nacks=[1, 2], codes=[(1, "CAST"), (2, "CAST")])
SHOWN = Explained(nacks=[{"stage": "cast", "message": "no", "row": {"id": 1}}])


def end_batch(limits: Mapping[str, str]) -> Transition:
    """Return how a batch ends that exceeds these limits."""
    rules = DeliveryRules(dlq=make_dlq(limits))
    step = plan_transition(begin_flight(TWO, LaneState()), DECIDED, rules)
    assert isinstance(step.flight.task, Explain)
    assert step.entries == ()
    return plan_transition(step.flight, SHOWN, rules)


@pytest.mark.parametrize(
    ("rows", "read", "said"),
    [
        (1, 1, "its only row was refused"),
        (1, 2, "1 of its 2 rows was refused"),
        (2, 2, "2 of its 2 rows were refused"),
    ],
)
def test_the_refused_share_of_a_batch_is_described_in_words(rows: int, read: int, said: str) -> None:
    """A batch of one row has no share."""
    limit = next(iter(make_dlq({"rows": "10%"}).list_limits()))
    tripped = TrippedLimit(place=1, limit=limit, rows=rows, share=rows / read)
    assert describe_limit(tripped, read, None) == f"{said} (limit 10% of a batch)"


def test_a_batch_beyond_a_limit_delivers_nothing_and_names_the_limit() -> None:
    """The error also shows how to raise the limit."""
    ended = end_batch({"CAST": "10%"})
    assert ([entry.kind for entry in ended.entries], type(ended.error)) == (["cancel"], LimitTripped)
    said = str(ended.error)
    assert "2 of its 10 rows were refused (limit 10% of a batch)" in said
    assert "--set dlq.limits.CAST=off" in said
    assert "wherry resume" not in said


def test_a_batch_beyond_a_limit_that_pauses_records_the_pause_with_its_end() -> None:
    """Both entries are in one append, so that no crash loses the pause."""
    ended = end_batch({"rows": "10% pause"})
    cancel, pause = ended.entries
    assert (cancel.kind, pause.kind, pause.lane, pause.plan) == ("cancel", "pause", TWO.batch.lane, "")
    reason = "2 of its 10 rows were refused (limit 10% of a batch)"
    assert pause.body == {"number": TWO.batch.number, "limit": "rows", "reason": reason}
    said = str(ended.error)
    assert "too many rows were refused; the pipeline is paused. No row is lost" in said
    assert 'wherry resume FILE --reason "…"' in said


def test_a_batch_beyond_a_limit_that_notifies_is_delivered() -> None:
    """It is decided and delivered, and the limit is reported after the decision."""
    rules = DeliveryRules(dlq=make_dlq({"CAST": "10% notify"}))
    step = plan_transition(begin_flight(TWO, LaneState()), DECIDED, rules)
    assert ([entry.kind for entry in step.entries], step.error) == (["prepared"], None)
    assert [(each.limit.of, each.rows) for each in step.exceeded if each.limit] == [("CAST", 2)]


@pytest.mark.parametrize("limit", ["0%", "0% pause", "0% notify"])
def test_a_replay_has_no_limits(limit: str) -> None:
    """A user asked for it."""
    again = replace(TWO, batch=replace(TWO.batch, lane="dlq/origin"))
    step = plan_transition(begin_flight(again, LaneState()), DECIDED, DeliveryRules(dlq=make_dlq({"CAST": limit})))
    assert ([entry.kind for entry in step.entries], step.exceeded) == (["prepared"], ())
