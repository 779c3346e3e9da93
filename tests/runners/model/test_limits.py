"""When too many rows of a batch are refused, and what follows. These tests need no Spark."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from destinations.dlq import Dlq, Limit, LimitAction
from runners.engine.batch_machine import DeliveryRules, Transition, begin_flight, plan_transition
from runners.model.errors import LimitTripped
from runners.model.nack_window import (
    DlqSettings,
    Judgement,
    NackWindow,
    TrippedLimit,
    apply_config,
    describe_limit,
    get_action,
    judge_limits,
)
from runners.model.pipeline_state import LaneState
from runners.model.tasks import Explain, Explained, Prepared
from tests.runners.engine.test_batch_machine import TWO, make_counts

NACKS = [1, 3, 4, 9]


def judge_ten_rows(dlq: Dlq, *, read: int = 10) -> Judgement:
    """Return the judgement on ten rows, four of them refused."""
    return judge_limits(NackWindow(), dlq, read, NACKS)


def make_dlq(limit: str, **options: Any) -> Dlq:
    """Return a DLQ with a limit, whose window never stops the run."""
    return Dlq(limits={"rows": limit}, **{"window": 0, **options})


@pytest.mark.parametrize(
    ("limit", "ending", "told"),
    [
        ("40%", None, None),
        ("39%", ("stop", 9), None),
        ("39% pause", ("pause", 9), None),
        ("39% notify", None, 9),
        ("off", None, None),
        ("0%", ("stop", 1), None),
        ("100%", None, None),
        ("1% notify; 20% pause; 30% stop", ("stop", 9), None),
        ("1% notify; 20% pause; 50% stop", ("pause", 4), None),
        ("1% notify; 20% notify; 50% stop", None, 4),
    ],
)
def test_the_action_of_a_limit_follows_when_a_batch_exceeds_it(
    limit: str, ending: tuple[LimitAction, int] | None, told: int | None
) -> None:
    """A stop precedes a pause, then the earliest row counts. A batch that delivers nothing notifies of no limit."""
    found = judge_ten_rows(make_dlq(limit))
    tripped = found.tripped
    assert (tripped and (get_action(tripped), tripped.place)) == ending
    assert (found.exceeded and found.exceeded.place) == told


def test_the_window_stops_the_run_even_if_a_limit_only_pauses_it() -> None:
    """The row of the limit may come first."""
    found = judge_ten_rows(make_dlq("0% pause", window=10, threshold=3)).tripped
    assert found == TrippedLimit(place=4)
    assert get_action(found) == "stop"


def test_the_reported_share_is_the_refused_share() -> None:
    """The limit is shown as it is written in the definition."""
    told = judge_ten_rows(make_dlq("1% notify")).exceeded
    assert told is not None
    assert told.limit == Limit(share=0.01, text="1%", action="notify")
    assert (told.share, told.rows) == (0.4, 4)


def test_two_refused_rows_at_one_place_count_as_two() -> None:
    """After a stage that changes rows, many rows have the last place of the batch."""
    dlq = Dlq(window=10, threshold=2)
    assert judge_limits(NackWindow(), dlq, 5, [5, 5]).tripped == TrippedLimit(place=5)
    assert judge_limits(NackWindow(), dlq, 5, [5]).tripped is None


@pytest.mark.parametrize(
    "limit",
    ["on", "-1%", "101%", "1.5", "five", "", "5 percent", "5% halt", "5% stop,", "; 5%", "5%;", "notify", "off;5%"],
)
def test_a_limit_is_off_or_a_share_with_an_action(limit: str) -> None:
    """A number of rows is refused, because batches have different sizes."""
    with pytest.raises(ValueError, match=r"limits\.rows: expected off or a share"):
        make_dlq(limit)


@pytest.mark.parametrize("name", ["CAST", "weight"])
def test_limits_by_code_and_by_weight_are_gone(name: str) -> None:
    """The error names the limit that stays."""
    with pytest.raises(ValueError, match=rf"limits\.{name}: expected rows, which limits all refused rows of a batch"):
        Dlq(window=0, limits={name: "5%"})


def test_a_limit_without_an_effect_is_refused() -> None:
    """The window allows no refused row. The error shows what to write."""
    with pytest.raises(ValueError, match=r"limits\.rows: it has no effect.* set window: 0"):
        make_dlq("5%", window=1)
    assert make_dlq("5%", window=100, threshold=2).list_limits()


@pytest.mark.parametrize("recorded", [{"CAST": "5%", "weight": "1%"}, {"CAST": "off", "rows": "9%"}])
def test_limits_that_an_older_version_recorded_are_read(recorded: dict[str, str]) -> None:
    """Only the limit on all rows counts now."""
    kept = {name: text for name, text in recorded.items() if name == "rows"}
    assert apply_config(Dlq(), DlqSettings(window=0, limits=recorded)) == Dlq(window=0, limits=kept)


BOTH = make_counts("orders", "latest", nacked=2)
DECIDED = Prepared(path="x", counts=BOTH, nacks=[1, 2])
SHOWN = Explained(nacks=[{"stage": "cast", "message": "no", "row": {"id": 1}}])


def end_batch(limit: str) -> Transition:
    """Return how a batch ends that exceeds this limit."""
    rules = DeliveryRules(dlq=make_dlq(limit))
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
    limit = next(iter(make_dlq("10%").list_limits()))
    tripped = TrippedLimit(place=1, limit=limit, rows=rows, share=rows / read)
    assert describe_limit(tripped, read) == f"{said} (limit 10% of a batch)"


def test_a_batch_beyond_a_limit_delivers_nothing_and_names_the_limit() -> None:
    """The error also shows how to raise the limit."""
    ended = end_batch("10%")
    assert ([entry.kind for entry in ended.entries], type(ended.error)) == (["cancel"], LimitTripped)
    said = str(ended.error)
    assert "2 of its 10 rows were refused (limit 10% of a batch)" in said
    assert "--set dlq.limits.rows=off" in said
    assert "wherry resume" not in said


def test_a_batch_beyond_a_limit_that_pauses_records_the_pause_with_its_end() -> None:
    """Both entries are in one append, so that no crash loses the pause."""
    ended = end_batch("10% pause")
    cancel, pause = ended.entries
    assert (cancel.kind, pause.kind, pause.lane, pause.plan) == ("cancel", "pause", TWO.batch.lane, "")
    reason = "2 of its 10 rows were refused (limit 10% of a batch)"
    assert pause.body == {"number": TWO.batch.number, "limit": "rows", "reason": reason}
    said = str(ended.error)
    assert "too many rows were refused; the pipeline is paused. No row is lost" in said
    assert 'wherry resume FILE --reason "…"' in said


def test_a_batch_beyond_a_limit_that_notifies_is_delivered() -> None:
    """It is decided and delivered, and the limit is reported after the decision."""
    rules = DeliveryRules(dlq=make_dlq("10% notify"))
    step = plan_transition(begin_flight(TWO, LaneState()), DECIDED, rules)
    assert ([entry.kind for entry in step.entries], step.error) == (["prepared"], None)
    assert step.exceeded is not None
    assert step.exceeded.rows == 2


@pytest.mark.parametrize("limit", ["0%", "0% pause", "0% notify"])
def test_a_replay_has_no_limits(limit: str) -> None:
    """A user asked for it."""
    again = replace(TWO, batch=replace(TWO.batch, lane="dlq/origin"))
    step = plan_transition(begin_flight(again, LaneState()), DECIDED, DeliveryRules(dlq=make_dlq(limit)))
    assert ([entry.kind for entry in step.entries], step.exceeded) == (["prepared"], None)
