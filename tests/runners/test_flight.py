"""What follows from each outcome of a batch's tasks."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timezone
from typing import Literal

import pytest

from destinations.destination import Identity, Written
from destinations.dlq import DLQ, Dlq
from origins.batch import Batch, Span
from runners.counts import Branch, Counts
from runners.errors import RefusedLate, StageStopped, Unbalanced, WindowTripped
from runners.flight import Flight, Rules, after, begin, rested, resume
from runners.outcome import (
    Alone,
    Answers,
    Ask,
    Carry,
    Check,
    Checked,
    Count,
    Counted,
    Deliver,
    Explain,
    Explained,
    Failed,
    Landed,
    Prepare,
    Prepared,
    Refused,
)
from runners.plan import Decision, Plan
from runners.state import Lane

BATCH = Batch(
    pipeline="orders",
    run="r",
    origin="origin",
    lane="0",
    number=1,
    plan="p1",
    span=Span(start=None, end=10),
    schema="{}",
    time=datetime(2026, 1, 1, tzinfo=timezone.utc),
)
STRAIGHT = Plan(batch=BATCH, destinations=("orders",), straight=True)
TWO = Plan(batch=BATCH, destinations=("orders", "latest"), straight=False)
LENIENT = Rules(dlq=Dlq(window=0))


def counts(*names: str, read: int = 10, nacked: int = 0, filtered: int = 0) -> Counts:
    branch = Branch(expected=read - nacked - filtered, filtered=filtered)
    return Counts(read=read, nacked=nacked, branches=dict.fromkeys(names, branch))


def landed(name: str, rows: int) -> Landed:
    return Landed(written={name: Written(rows=rows)})


def decided(plan: Plan, nacked: int = 0, rules: Rules = LENIENT) -> Flight:
    """A flight whose batch was just prepared."""
    outcome = Prepared(path="p1-a", counts=counts(*plan.destinations, nacked=nacked), nacks=list(range(1, nacked + 1)))
    return after(begin(plan, Lane()), outcome, rules).flight


@pytest.mark.promise("X1", "SS-07")
def test_a_clean_straight_batch_settles_at_once() -> None:
    """Its one write is its whole decision: one entry commits the offset."""
    outcome = Landed(written={"orders": Written(rows=8)}, counts=counts("orders", filtered=2))
    step = after(begin(STRAIGHT, Lane()), outcome, LENIENT)
    (entry,) = step.entries
    assert (entry.kind, entry.body["offset"], entry.body["counts"]["balanced"]) == ("settle", 10, True)
    assert (step.settled, step.done, step.error) == (True, True, None)


def test_a_straight_batch_that_meets_a_refused_row_is_prepared_under_the_same_plan() -> None:
    """Nothing is recorded: nothing was written."""
    step = after(begin(STRAIGHT, Lane()), Refused(), LENIENT)
    assert (step.flight.task, step.entries) == (Prepare(plan=STRAIGHT), ())


@pytest.mark.promise("DQ-05")
@pytest.mark.parametrize("delivery", ["after_all", "after_any"])
def test_the_offset_waits_for_the_nacked_rows(delivery: Literal["after_all", "after_any"]) -> None:
    """They go to the DLQ beside the others, and nothing is settled or published until it has them."""
    flight = decided(TWO, nacked=1, rules=replace(LENIENT, delivery=delivery))
    assert isinstance(flight.task, Deliver)
    assert flight.task.names[0] == DLQ
    others = {"orders": Written(rows=9), "latest": Written(rows=9)}
    step = after(flight, Landed(written=others, failed={DLQ: OSError("full")}), LENIENT)
    assert (step.entries, step.done, str(step.error)) == ((), False, "full")
    step = after(flight, Landed(written={**others, DLQ: Written(rows=1)}), LENIENT)
    assert [entry.kind for entry in step.entries] == ["settle"]


def test_after_any_nacked_rows_go_beside_the_first_destination() -> None:
    """The offset waits for these two, and for nobody else."""
    flight = decided(TWO, nacked=1, rules=replace(LENIENT, delivery="after_any"))
    assert isinstance(flight.task, Deliver)
    assert flight.task.names == [DLQ, "orders"]


def test_after_any_destinations_get_the_batch_one_after_the_other() -> None:
    """So that the offset is committed as soon as the first one has it."""
    flight = decided(TWO, rules=replace(LENIENT, delivery="after_any"))
    assert isinstance(flight.task, Deliver)
    assert flight.task.names == ["orders"]


def test_one_that_fails_beside_another_leaves_the_batch_open() -> None:
    """Nothing is recorded of the one that has it: the next run asks."""
    outcome = Landed(written={"orders": Written(rows=10)}, failed={"latest": OSError("down")})
    step = after(decided(TWO), outcome, LENIENT)
    assert (step.entries, step.done, str(step.error)) == ((), False, "down")


CONSTRAINT = OSError("[DELTA_VIOLATE_CONSTRAINT_WITH_VALUES] constraint small SQLSTATE: 23001")


def refused(flight: Flight, *names: str, has: tuple[str, ...] = ()) -> Flight:
    """The flight when these destinations have refused rows of it; those that have it are asked, and so are these."""
    outcome = Landed(written={name: Written(rows=9) for name in has}, failed=dict.fromkeys(names, CONSTRAINT))
    return after(after(flight, outcome, LENIENT).flight, Answers(found={}), LENIENT).flight


@pytest.mark.promise("CD-16")
def test_a_batch_of_which_a_destination_refuses_rows_is_decided_again_if_nobody_has_it() -> None:
    """It is asked for first: a write may land though it raised. What was decided counts no more."""
    flight = decided(TWO)
    step = after(flight, Landed(written={}, failed={"latest": CONSTRAINT}), LENIENT)
    assert isinstance(step.flight.task, Ask)
    assert (step.flight.task.names, step.error, step.entries) == (["latest"], None, ())
    step = after(step.flight, Answers(found={}), LENIENT)
    assert isinstance(step.flight.task, Check)
    step = after(step.flight, Checked(refusing="latest"), LENIENT)
    assert (step.flight.task, step.flight.decision, step.entries) == (Prepare(plan=TWO), None, ())
    prepared = Prepared(path="p1-b", counts=counts("orders", "latest", nacked=1), nacks=[3])
    step = after(step.flight, prepared, LENIENT)
    assert [entry.kind for entry in step.entries] == ["prepared"]
    assert isinstance(step.flight.task, Deliver)
    assert step.flight.task.names == [DLQ, "orders", "latest"]


def test_all_whose_write_was_not_seen_to_land_are_asked_before_it_is_decided_again() -> None:
    """Not only the one that refused: of another the write failed before, and may have landed all the same."""
    hurried = replace(LENIENT, delivery="after_any")
    step = after(decided(TWO), Landed(written={}, failed={"orders": RuntimeError("gone")}), hurried)
    step = after(step.flight, Landed(written={}, failed={"latest": CONSTRAINT}), hurried)
    assert isinstance(step.flight.task, Ask)
    assert step.flight.task.names == ["orders", "latest"]


def test_a_write_that_landed_though_it_raised_was_no_refusal() -> None:
    """The destination has the batch, so it goes on."""
    step = after(decided(TWO), Landed(written={}, failed={"latest": CONSTRAINT}), LENIENT)
    step = after(step.flight, Answers(found={"latest": Written(rows=10)}), LENIENT)
    assert isinstance(step.flight.task, Deliver)
    assert step.flight.task.names == ["orders"]


def test_a_refusal_that_no_demand_explains_is_the_runs_error() -> None:
    """Once more would be the same again."""
    step = after(refused(decided(TWO), "latest"), Checked(), LENIENT)
    assert (step.error, step.flight.task) == (CONSTRAINT, None)


@pytest.mark.promise("CD-12")
@pytest.mark.parametrize("delivery", ["after_all", "after_any"])
def test_a_batch_that_another_destination_has_is_not_decided_again(
    delivery: Literal["after_all", "after_any"],
) -> None:
    """The run stops, and says what to do; the batch stays open."""
    rules = replace(LENIENT, delivery=delivery)
    flight = replace(decided(TWO, rules=rules), landed={"orders": Written(rows=10)})
    step = after(flight, Landed(written={}, failed={"latest": CONSTRAINT}), rules)
    assert isinstance(step.error, RefusedLate)
    assert "'latest' refuses rows of batch 1 of lane 0, of which orders has got rows already" in step.error.message
    assert "--forget latest" in step.error.hint
    assert (step.entries, step.done, step.again) == ((), False, None)


@pytest.mark.parametrize(("same", "decides"), [(True, True), (False, False)])
def test_a_batch_of_which_the_dlq_has_rows_is_decided_again_only_if_it_is_the_same_again(
    same: bool, decides: bool
) -> None:
    """Then the DLQ gets what it lacks; otherwise a row might be in two places."""
    flight = refused(replace(decided(TWO, nacked=1), landed={DLQ: Written(rows=1)}), "orders")
    step = after(flight, Checked(refusing="orders", same=same), LENIENT)
    assert (step.flight.task == Prepare(plan=TWO), isinstance(step.error, RefusedLate)) == (decides, not decides)
    if decides:
        prepared = Prepared(path="p1-b", counts=counts("orders", "latest", nacked=2), nacks=[1, 3])
        step = after(step.flight, prepared, Rules())
        assert step.flight.decision is not None
        assert step.flight.decision.again
        assert Decision.of(step.flight.decision.json()) == step.flight.decision


def test_a_batch_that_was_decided_again_and_left_open_is_not_planned_anew() -> None:
    """The DLQ has rows of it, so it stays the same batch."""
    decision = Decision(path="p1-b", counts=counts("orders", "latest", nacked=2), window=Lane().window, again=True)
    flight = resume(replace(TWO, decision=decision), Lane(), {})
    step = after(flight, Answers(found={DLQ: Written(rows=1)}), LENIENT)
    stopped = after(step.flight, Checked(refusing="latest"), LENIENT)
    assert isinstance(stopped.error, RefusedLate)
    assert "--forget" not in stopped.error.hint
    goes_on = after(step.flight, Checked(), LENIENT).flight.task
    assert isinstance(goes_on, Deliver)
    assert goes_on.names == [DLQ, "orders", "latest"]


def test_a_look_that_could_not_be_taken_is_taken_after_a_rest() -> None:
    """The batch then goes again, and what refuses it says so once more."""
    flight = refused(decided(TWO), "latest")
    step = after(flight, Failed(error=TimeoutError("away")), LENIENT)
    assert step.again == flight.task
    assert step.again is not None
    step = after(rested(step.flight, step.again, now=0, until=1), Checked(), LENIENT)
    assert isinstance(step.flight.task, Deliver)
    assert step.flight.refusing == ""


@pytest.mark.promise("CD-22")
def test_a_decided_batch_that_was_left_open_is_looked_at_before_it_is_delivered() -> None:
    """It goes on as it was decided, or is planned anew where a destination demands something else now."""
    decision = Decision(path="p1-a", counts=counts("orders", "latest"), window=Lane().window)
    flight = resume(replace(TWO, decision=decision), Lane(), {})
    step = after(flight, Answers(found={}), LENIENT)
    assert step.flight.task == Check(plan=flight.plan, decision=decision)
    goes_on = after(step.flight, Checked(), LENIENT)
    assert isinstance(goes_on.flight.task, Deliver)
    anew = after(step.flight, Checked(refusing="latest"), LENIENT)
    assert ([entry.kind for entry in anew.entries], anew.done, anew.error) == (["cancel"], True, None)


@pytest.mark.promise("CD-14")
def test_discarded_rows_are_counted_and_not_written() -> None:
    """With a DLQ that discards there is no DLQ write, and the entry says how many rows were thrown away."""
    rules = Rules(dlq=Dlq(window=0), discards=True)
    flight = decided(TWO, nacked=3, rules=rules)
    step = after(after(flight, landed("orders", 7), rules).flight, landed("latest", 7), rules)
    assert step.entries[0].body["counts"]["discarded"] == 3


@pytest.mark.promise("X8", "CD-16")
def test_a_batch_that_trips_the_window_delivers_nothing() -> None:
    """The plan is cancelled, and the error names the row."""
    prepared = Prepared(path="p1-a", counts=counts("orders", nacked=2), nacks=[4, 7])
    step = after(begin(STRAIGHT, Lane()), prepared, Rules())
    assert isinstance(step.flight.task, Explain)
    assert step.entries == ()
    end = after(step.flight, Explained(nacks=[{"stage": "cast", "message": "no number", "row": {"id": 4}}]), Rules())
    assert [entry.kind for entry in end.entries] == ["cancel"]
    assert isinstance(end.error, WindowTripped)
    assert "row 4" in str(end.error)


@pytest.mark.promise("SS-22")
def test_a_stage_that_stops_cancels_the_batch_whatever_the_window_lets_pass() -> None:
    """Nothing was recorded as decided; the error names the stage and shows the row."""
    prepared = Prepared(path="p1", counts=counts("orders", nacked=1), nacks=(4,), stops=("cast",))
    step = after(begin(STRAIGHT, Lane()), prepared, LENIENT)
    assert (step.entries, step.error) == ((), None)
    assert step.flight.task == Explain(plan=STRAIGHT, decision=step.flight.decision, place=0, stages=("cast",))  # type: ignore[arg-type]
    end = after(step.flight, Explained(nacks=[{"stage": "cast", "message": "no number", "row": {"id": 4}}]), LENIENT)
    assert [entry.kind for entry in end.entries] == ["cancel"]
    assert isinstance(end.error, StageStopped)
    assert end.error.stage == "cast"
    assert "no number" in end.error.message
    assert '{"id": 4}' in end.error.message


def test_a_trip_is_told_even_when_the_row_cannot_be_fetched() -> None:
    """The batch is cancelled all the same."""
    prepared = Prepared(path="p1-a", counts=counts("orders", nacked=1), nacks=[4])
    step = after(begin(STRAIGHT, Lane()), prepared, Rules())
    end = after(step.flight, Failed(error=OSError("gone")), Rules())
    assert (end.done, isinstance(end.error, WindowTripped)) == (True, True)


@pytest.mark.promise("SS-08", "CD-11", "CD-28", "CD-29")
def test_after_any_commits_the_offset_with_the_first_destination() -> None:
    """The other one owes the batch until it has it, and the lane waits for it."""
    rules = replace(LENIENT, delivery="after_any")
    first = after(decided(TWO, rules=rules), landed("orders", 10), rules)
    assert first.entries[0].body["owed"] == ["latest"]
    assert (first.settled, first.done) == (True, False)
    second = after(first.flight, landed("latest", 10), rules)
    assert second.entries[0].body["owed"] == []
    assert (second.settled, second.done) == (False, True)


@pytest.mark.promise("SS-08")
def test_after_any_goes_on_to_the_next_destination_when_one_fails() -> None:
    """The offset is committed with the one that has it; the run stops with the other's error."""
    rules = replace(LENIENT, delivery="after_any")
    failed = after(decided(TWO, rules=rules), Failed(error=OSError("down")), rules)
    assert isinstance(failed.flight.task, Deliver)
    end = after(failed.flight, landed("latest", 10), rules)
    assert end.entries[0].body["owed"] == ["orders"]
    assert (str(end.error), end.done) == ("down", False)


@pytest.mark.promise("SS-09", "CD-17")
def test_after_all_stops_at_the_first_failure() -> None:
    """No offset is committed and the batch stays open."""
    step = after(decided(TWO), Failed(error=OSError("down")), LENIENT)
    assert (step.entries, step.done, str(step.error)) == ((), False, "down")


@pytest.mark.promise("CD-17", "DQ-04", "X4", "CD-26")
def test_a_dlq_that_cannot_be_written_stops_the_run() -> None:
    """Whatever the delivery guarantee, the offset stays."""
    rules = replace(LENIENT, delivery="after_any")
    step = after(decided(TWO, nacked=1, rules=rules), Failed(error=OSError("disk full")), rules)
    assert (step.entries, str(step.error)) == ((), "disk full")


def test_counts_that_do_not_add_up_settle_the_batch_and_stop_the_run() -> None:
    """It is recorded as unbalanced, never guessed at and never tried again."""
    outcome = Landed(written={"orders": Written(rows=9)}, counts=counts("orders"))
    step = after(begin(STRAIGHT, Lane()), outcome, LENIENT)
    assert step.entries[0].body["counts"]["balanced"] is False
    assert isinstance(step.error, Unbalanced)


def test_an_open_batch_is_asked_for_first() -> None:
    """Nothing is known of it, whatever the ledger says."""
    flight = resume(STRAIGHT, Lane(), {"orders": Identity(place="orders")})
    assert isinstance(flight.task, Ask)
    assert flight.task.names == ["orders"]


def test_an_open_batch_that_nobody_has_is_cancelled() -> None:
    """Its rows are planned anew, under the definition as it is now."""
    step = after(resume(STRAIGHT, Lane(), {}), Answers(found={}), LENIENT)
    assert ([entry.kind for entry in step.entries], step.done) == (["cancel"], True)


def test_an_open_straight_batch_that_landed_is_counted_and_settled() -> None:
    """Its commit proves that nothing was refused; what was read is counted again."""
    step = after(resume(STRAIGHT, Lane(), {}), Answers(found={"orders": Written(rows=8)}), LENIENT)
    assert isinstance(step.flight.task, Count)
    body = after(step.flight, Counted(read=10), LENIENT).entries[0].body
    assert (body["counts"]["read"], body["counts"]["branches"]["orders"]["filtered"]) == (10, 2)
    assert body["counts"]["balanced"] is True


def test_a_batch_that_was_found_among_others_has_what_its_own_stages_leave() -> None:
    """Its commit has the rows of all, so the rows that its stages leave are counted and settled as delivered."""
    step = after(resume(STRAIGHT, Lane(), {}), Answers(found={"orders": Written(rows=None, version=3)}), LENIENT)
    counts = after(step.flight, Counted(read=10, left=8), LENIENT).entries[0].body["counts"]
    assert (counts["delivered"], counts["branches"]["orders"]["filtered"]) == ({"orders": 8}, 2)
    assert counts["balanced"] is True


def test_what_cannot_be_counted_any_more_is_said_to_be_unknown() -> None:
    """The files are gone: the batch is settled, and its balance is unknown."""
    step = after(resume(STRAIGHT, Lane(), {}), Answers(found={"orders": Written(rows=8)}), LENIENT)
    body = after(step.flight, Counted(read=None), LENIENT).entries[0].body
    assert body["counts"]["balanced"] == "unknown"


def test_an_open_prepared_batch_goes_on_to_those_that_do_not_have_it() -> None:
    """From what was prepared, and to nobody twice."""
    decision = Decision(path="p1-a", counts=counts("orders", "latest"), window=Lane().window)
    step = after(
        resume(replace(TWO, decision=decision), Lane(), {}), Answers(found={"orders": Written(rows=10)}), LENIENT
    )
    assert isinstance(step.flight.task, Deliver)
    assert step.flight.task.names == ["latest"]


def test_a_lane_returns_to_the_straight_way_after_ten_clean_batches() -> None:
    """A nack sends it the careful way; each clean batch brings it one step back."""
    careful = after(decided(STRAIGHT, nacked=1), landed(DLQ, 1), LENIENT)
    settled = after(careful.flight, landed("orders", 9), LENIENT)
    assert settled.entries[0].body["clean"] == 0
    clean = after(replace(decided(STRAIGHT), lane=Lane(clean=9)), landed("orders", 10), LENIENT)
    assert clean.entries[0].body["clean"] == 10


def test_a_destination_that_gets_no_rows_is_not_written() -> None:
    """All rows were filtered: the batch settles without a delivery."""
    outcome = Prepared(path="p1-a", counts=counts("orders", filtered=10))
    step = after(begin(replace(STRAIGHT, straight=False), Lane()), outcome, LENIENT)
    assert [entry.kind for entry in step.entries] == ["prepared", "settle"]


@pytest.mark.promise("CN-19")
def test_begin_takes_the_way_that_was_planned() -> None:
    """Straight plans are carried, others prepared."""
    assert isinstance(begin(STRAIGHT, Lane()).task, Carry)
    assert isinstance(begin(TWO, Lane()).task, Prepare)


@pytest.mark.promise("SS-23")
@pytest.mark.parametrize("plan", [STRAIGHT, TWO])
def test_behind_a_failed_write_the_destination_is_asked_before_anything_is_written_again(plan: Plan) -> None:
    """A write that ended with an error may have landed."""
    begun = begin(plan, Lane()) if plan.straight else decided(plan)
    step = after(begun, Failed(error=TimeoutError()), LENIENT)
    assert isinstance(step.again, Ask)
    assert (tuple(step.again.names), step.again.ours, step.again.ended) == (plan.destinations, True, False)
    assert isinstance(step.error, TimeoutError)


def test_only_those_that_failed_are_asked() -> None:
    """The others have said that they have it, and keep it."""
    outcome = Landed(written={"orders": Written(rows=10)}, failed={"latest": TimeoutError()})
    step = after(decided(TWO), outcome, LENIENT)
    assert isinstance(step.again, Ask)
    flight = rested(step.flight, step.again, now=5, until=7)
    assert (step.again.names, flight.failed, flight.tried, flight.since, flight.until) == (["latest"], {}, 1, 5, 7)
    there = after(flight, Answers(found={"latest": Written(rows=10)}), LENIENT)
    assert there.settled
    missing = after(flight, Answers(found={}), LENIENT).flight.task
    assert isinstance(missing, Deliver)
    assert missing.names == ["latest"]


def test_a_straight_batch_that_nobody_has_goes_again_under_the_same_plan() -> None:
    """It was this run that planned it: the span stays. One that an earlier run left open is planned anew."""
    failed = after(begin(STRAIGHT, Lane()), Failed(error=TimeoutError()), LENIENT)
    assert failed.again is not None
    again = after(rested(failed.flight, failed.again, now=0, until=1), Answers(found={}), LENIENT)
    assert (again.flight.task, again.entries) == (Carry(plan=STRAIGHT), ())
    left = resume(STRAIGHT, Lane(), {})
    lost = after(left, Failed(error=TimeoutError()), LENIENT)
    assert lost.again == left.task
    anew = after(rested(lost.flight, left.task, now=0, until=1), Answers(found={}), LENIENT)  # type: ignore[arg-type]
    assert [entry.kind for entry in anew.entries] == ["cancel"]


def test_a_dlq_that_cannot_be_written_is_not_tried_again() -> None:
    """It stops the run."""
    flight = decided(TWO, nacked=1)
    assert after(flight, Failed(error=TimeoutError()), LENIENT).again is None
    failed: dict[str, Exception] = {DLQ: TimeoutError("dlq"), "latest": TimeoutError("latest")}
    step = after(flight, Landed(written={"orders": Written(rows=9)}, failed=failed), LENIENT)
    assert (str(step.error), step.again) == ("dlq", None)


def test_a_dlq_that_was_fenced_meanwhile_is_asked_and_tried_again() -> None:
    """Whoever finishes an open batch of another lane fences it; nothing is wrong with it."""
    flight = decided(TWO, nacked=1)
    fenced = ValueError("[DELTA_METADATA_CHANGED] The metadata of the Delta table has been changed")
    step = after(flight, Landed(written={"orders": Written(rows=9)}, failed={DLQ: fenced}), LENIENT)
    assert isinstance(step.again, Ask)
    assert (step.again.names, step.again.ours, step.error) == ([DLQ], True, fenced)


def test_what_writes_nothing_is_simply_done_again() -> None:
    """Deciding a batch has a folder of its own each time."""
    step = after(begin(TWO, Lane()), Failed(error=TimeoutError()), LENIENT)
    assert step.again == Prepare(plan=TWO)


def test_after_any_the_others_get_the_batch_first() -> None:
    """Then the offset is out, and the one that failed is asked and tried again."""
    any_one = Rules(dlq=Dlq(window=0), delivery="after_any")
    flight = decided(TWO, rules=any_one)
    one = after(flight, Landed(written={}, failed={"orders": TimeoutError()}), any_one)
    assert isinstance(one.flight.task, Deliver)
    assert (one.flight.task.names, one.again, one.error) == (["latest"], None, None)
    two = after(one.flight, landed("latest", 10), any_one)
    assert (two.settled, two.done) == (True, False)
    assert isinstance(two.again, Ask)
    assert two.again.names == ["orders"]
    assert isinstance(two.error, TimeoutError)


def test_those_that_were_written_together_are_asked_each_for_itself_when_that_went_wrong() -> None:
    """Whatever the error is: it may be another one's. If nothing was written there is nobody to ask."""
    step = after(begin(STRAIGHT, Lane()), Alone(error=ValueError("corrupt")), LENIENT)
    assert isinstance(step.flight.task, Ask)
    assert (step.flight.alone, step.flight.task.ours, step.flight.task.ended, step.error) == (True, True, True, None)
    assert after(begin(STRAIGHT, Lane()), Alone(), LENIENT).flight.task == Carry(plan=STRAIGHT)


def test_of_a_batch_whose_share_is_not_known_nothing_is_made_up() -> None:
    """Neither filtered rows nor a balance; and rows that stages added are no negative number of filtered ones."""
    left = replace(resume(STRAIGHT, Lane(), {}), landed={"orders": Written(rows=None)})
    (entry,) = after(left, Counted(read=7), LENIENT).entries
    assert (entry.body["counts"]["read"], entry.body["counts"]["balanced"]) == (7, "unknown")
    assert entry.body["counts"]["branches"]["orders"]["filtered"] == 0
    more = replace(left, landed={"orders": Written(rows=25)})
    (entry,) = after(more, Counted(read=10), LENIENT).entries
    assert {key: entry.body["counts"]["branches"]["orders"][key] for key in ("filtered", "changed")} == {
        "filtered": 0,
        "changed": 15,
    }
