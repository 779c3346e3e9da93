"""What follows each outcome of a batch's tasks."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timezone
from typing import Literal

import pytest

from destinations.destination import Identity, Written
from destinations.dlq import DLQ, FILTERED, Dlq
from origins.batch import Batch, Span
from origins.codec import decode, encode
from runners.engine.batch_machine import (
    BatchInFlight,
    DeliveryRules,
    begin_flight,
    plan_transition,
    rest_flight,
    resume_flight,
)
from runners.model.errors import RefusedLate, StageStopped, Unbalanced, WindowTripped
from runners.model.pipeline_state import LaneState
from runners.model.planned_batch import (
    BranchCounts,
    Counts,
    DecidedBatch,
    PlannedBatch,
    SettleBody,
    StageCount,
)
from runners.model.tasks import (
    Answers,
    AskDestinations,
    Checked,
    CheckRefusals,
    Counted,
    CountSpan,
    Declined,
    Deliver,
    Explain,
    Explained,
    Failed,
    Landed,
    Prepare,
    Prepared,
    WriteStraight,
)
from runners.state.progress import read_body
from tests.spark_errors import make_spark_error

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
STRAIGHT = PlannedBatch(batch=BATCH, destinations=("orders",), straight=True)
TWO = PlannedBatch(batch=BATCH, destinations=("orders", "latest"), straight=False)
REFUSED = Declined(reason="a row is refused", way="straight")
PARTED = Declined(reason="one scan cannot read them all", way="grouped")
LENIENT = DeliveryRules(dlq=Dlq(window=0))


def make_counts(*names: str, read: int = 10, nacked: int = 0, filtered: int = 0) -> Counts:
    branch = BranchCounts(expected=read - nacked - filtered, filtered=filtered)
    return Counts(read=read, nacked=nacked, branches=dict.fromkeys(names, branch))


def make_landed(name: str, rows: int) -> Landed:
    return Landed(written={name: Written(rows=rows)})


def make_decided(plan: PlannedBatch, nacked: int = 0, rules: DeliveryRules = LENIENT) -> BatchInFlight:
    """Return a flight whose batch was just prepared."""
    outcome = Prepared(
        path="p1-a", counts=make_counts(*plan.destinations, nacked=nacked), nacks=list(range(1, nacked + 1))
    )
    return plan_transition(begin_flight(plan, LaneState()), outcome, rules).flight


@pytest.mark.promise("X1", "SS-07")
def test_a_straight_batch_without_refused_rows_settles_at_once() -> None:
    """One write decides and delivers it, and one entry commits the offset."""
    outcome = Landed(written={"orders": Written(rows=8)}, counts=make_counts("orders", filtered=2))
    step = plan_transition(begin_flight(STRAIGHT, LaneState()), outcome, LENIENT)
    (entry,) = step.entries
    assert (entry.kind, entry.body["offset"], entry.body["counts"]["balanced"]) == ("settle", 10, True)
    assert (step.settled, step.done, step.error) == (True, True, None)


def test_a_settled_batch_has_the_way_that_it_took() -> None:
    """The way is straight or the way of its decision, which a dead run may have made. An unknown way is omitted."""
    written = {"orders": Written(rows=10)}
    landed = Landed(written=written, counts=make_counts("orders"), way="grouped")
    (straight,) = plan_transition(begin_flight(STRAIGHT, LaneState()), landed, LENIENT).entries
    assert read_body(straight, SettleBody).way == "grouped"
    preparing = replace(begin_flight(STRAIGHT, LaneState()), task=Prepare(plan=STRAIGHT))
    prepared = Prepared(path="p", counts=make_counts("orders"), way="apart")
    (entry,) = plan_transition(preparing, prepared, LENIENT).entries
    decision = read_body(entry, DecidedBatch)
    for known, way in ((decision, {"apart"}), (replace(decision, way=""), set())):
        resumed = resume_flight(replace(STRAIGHT, decision=known), LaneState(), {})
        (settled,) = plan_transition(resumed, Answers(found=written), LENIENT).entries
        assert {value for name, value in settled.body.items() if name == "way"} == way


def test_a_straight_batch_with_a_refused_row_is_prepared_under_the_same_plan() -> None:
    """Nothing was written, so nothing is recorded."""
    step = plan_transition(begin_flight(STRAIGHT, LaneState()), REFUSED, LENIENT)
    assert (step.flight.task, step.entries) == (Prepare(plan=STRAIGHT), ())


@pytest.mark.promise("DQ-05")
@pytest.mark.parametrize("delivery", ["after_all", "after_any"])
def test_the_offset_waits_for_the_refused_rows(delivery: Literal["after_all", "after_any"]) -> None:
    """They go to the DLQ beside the other rows. Nothing is settled or published before the DLQ has them."""
    flight = make_decided(TWO, nacked=1, rules=replace(LENIENT, delivery=delivery))
    assert isinstance(flight.task, Deliver)
    assert flight.task.names[0] == DLQ
    others = {"orders": Written(rows=9), "latest": Written(rows=9)}
    step = plan_transition(flight, Landed(written=others, failed={DLQ: OSError("full")}), LENIENT)
    assert (step.entries, step.done, str(step.error)) == ((), False, "full")
    step = plan_transition(flight, Landed(written={**others, DLQ: Written(rows=1)}), LENIENT)
    assert [entry.kind for entry in step.entries] == ["settle"]


def test_after_any_refused_rows_are_written_beside_the_first_destination() -> None:
    """The offset waits for these two writes, and for no other destination."""
    flight = make_decided(TWO, nacked=1, rules=replace(LENIENT, delivery="after_any"))
    assert isinstance(flight.task, Deliver)
    assert flight.task.names == [DLQ, "orders"]


CONSTRAINT = make_spark_error("DELTA_VIOLATE_CONSTRAINT_WITH_VALUES", "constraint small", "23001")


def refuse_rows(flight: BatchInFlight, *names: str, has: tuple[str, ...] = ()) -> BatchInFlight:
    """Return the flight after these destinations refused rows.

    Wherry has asked these destinations, and they do not have the batch. The destinations in `has` have it.
    """
    outcome = Landed(written={name: Written(rows=9) for name in has}, failed=dict.fromkeys(names, CONSTRAINT))
    return plan_transition(plan_transition(flight, outcome, LENIENT).flight, Answers(found={}), LENIENT).flight


@pytest.mark.promise("CD-16")
def test_a_batch_with_refused_rows_is_decided_again_if_no_destination_has_it() -> None:
    """The destination is asked first, because a write may land though it raised. The old decision no longer counts."""
    flight = make_decided(TWO)
    step = plan_transition(flight, Landed(written={}, failed={"latest": CONSTRAINT}), LENIENT)
    assert isinstance(step.flight.task, AskDestinations)
    assert (step.flight.task.names, step.error, step.entries) == (["latest"], None, ())
    step = plan_transition(step.flight, Answers(found={}), LENIENT)
    assert isinstance(step.flight.task, CheckRefusals)
    step = plan_transition(step.flight, Checked(refusing="latest"), LENIENT)
    assert (step.flight.task, step.flight.decision, step.entries) == (Prepare(plan=TWO), None, ())
    prepared = Prepared(path="p1-b", counts=make_counts("orders", "latest", nacked=1), nacks=[3])
    step = plan_transition(step.flight, prepared, LENIENT)
    assert [entry.kind for entry in step.entries] == ["prepared"]
    assert isinstance(step.flight.task, Deliver)
    assert step.flight.task.names == [DLQ, "orders", "latest"]


def test_all_destinations_with_an_unknown_write_are_asked_before_a_new_decision() -> None:
    """This includes a destination whose write failed before, because that write may have landed."""
    hurried = replace(LENIENT, delivery="after_any")
    step = plan_transition(make_decided(TWO), Landed(written={}, failed={"orders": RuntimeError("gone")}), hurried)
    step = plan_transition(step.flight, Landed(written={}, failed={"latest": CONSTRAINT}), hurried)
    assert isinstance(step.flight.task, AskDestinations)
    assert step.flight.task.names == ["orders", "latest"]


def test_a_write_that_landed_with_an_error_is_not_a_refusal() -> None:
    """The destination has the batch, so the batch goes on."""
    step = plan_transition(make_decided(TWO), Landed(written={}, failed={"latest": CONSTRAINT}), LENIENT)
    step = plan_transition(step.flight, Answers(found={"latest": Written(rows=10)}), LENIENT)
    assert isinstance(step.flight.task, Deliver)
    assert step.flight.task.names == ["orders"]


def test_a_refusal_that_no_demand_explains_fails_the_run() -> None:
    """Another try would have the same result."""
    step = plan_transition(refuse_rows(make_decided(TWO), "latest"), Checked(), LENIENT)
    assert (step.error, step.flight.task) == (CONSTRAINT, None)


@pytest.mark.promise("CD-12")
@pytest.mark.parametrize("delivery", ["after_all", "after_any"])
def test_a_batch_that_another_destination_has_is_not_decided_again(
    delivery: Literal["after_all", "after_any"],
) -> None:
    """The run stops with a hint, and the batch stays open."""
    rules = replace(LENIENT, delivery=delivery)
    flight = replace(make_decided(TWO, rules=rules), written={"orders": Written(rows=10)})
    step = plan_transition(flight, Landed(written={}, failed={"latest": CONSTRAINT}), rules)
    assert isinstance(step.error, RefusedLate)
    assert "'latest' refuses rows of batch 1 of lane 0, but orders has rows of it already" in step.error.message
    assert "--forget latest" in step.error.hint
    assert (step.entries, step.done, step.again) == ((), False, None)


@pytest.mark.parametrize(("same", "decides"), [(True, True), (False, False)])
def test_a_batch_with_rows_in_the_dlq_is_decided_again_only_if_the_decision_is_repeatable(
    same: bool, decides: bool
) -> None:
    """Then the DLQ gets the missing rows. Otherwise a row might be in two places."""
    flight = refuse_rows(replace(make_decided(TWO, nacked=1), written={DLQ: Written(rows=1)}), "orders")
    step = plan_transition(flight, Checked(refusing="orders", same=same), LENIENT)
    assert (step.flight.task == Prepare(plan=TWO), isinstance(step.error, RefusedLate)) == (decides, not decides)
    if decides:
        prepared = Prepared(path="p1-b", counts=make_counts("orders", "latest", nacked=2), nacks=[1, 3])
        step = plan_transition(step.flight, prepared, DeliveryRules())
        assert step.flight.decision is not None
        assert step.flight.decision.again
        assert decode(DecidedBatch, encode(step.flight.decision)) == step.flight.decision


def test_a_batch_that_was_decided_again_and_left_open_is_not_planned_again() -> None:
    """The DLQ has rows of this batch, so it stays the same batch."""
    decision = DecidedBatch(
        path="p1-b", counts=make_counts("orders", "latest", nacked=2), window=LaneState().window, again=True
    )
    flight = resume_flight(replace(TWO, decision=decision), LaneState(), {})
    step = plan_transition(flight, Answers(found={DLQ: Written(rows=1)}), LENIENT)
    stopped = plan_transition(step.flight, Checked(refusing="latest"), LENIENT)
    assert isinstance(stopped.error, RefusedLate)
    assert "--forget" not in stopped.error.hint
    goes_on = plan_transition(step.flight, Checked(), LENIENT).flight.task
    assert isinstance(goes_on, Deliver)
    assert goes_on.names == [DLQ, "orders", "latest"]


def test_a_failed_check_of_refusals_is_repeated_after_a_rest() -> None:
    """Then the batch is delivered again, and a destination that refuses it reports that again."""
    flight = refuse_rows(make_decided(TWO), "latest")
    step = plan_transition(flight, Failed(error=TimeoutError("away")), LENIENT)
    assert step.again == flight.task
    assert step.again is not None
    step = plan_transition(rest_flight(step.flight, step.again, now=0, until=1), Checked(), LENIENT)
    assert isinstance(step.flight.task, Deliver)
    assert step.flight.refusing == ""


@pytest.mark.promise("CD-22")
def test_a_decided_batch_that_was_left_open_is_checked_before_it_is_delivered() -> None:
    """It keeps its decision, or is planned again if a destination now demands something else."""
    decision = DecidedBatch(path="p1-a", counts=make_counts("orders", "latest"), window=LaneState().window)
    flight = resume_flight(replace(TWO, decision=decision), LaneState(), {})
    step = plan_transition(flight, Answers(found={}), LENIENT)
    assert step.flight.task == CheckRefusals(plan=flight.plan, decision=decision)
    goes_on = plan_transition(step.flight, Checked(), LENIENT)
    assert isinstance(goes_on.flight.task, Deliver)
    anew = plan_transition(step.flight, Checked(refusing="latest"), LENIENT)
    assert ([entry.kind for entry in anew.entries], anew.done, anew.error) == (["cancel"], True, None)


@pytest.mark.promise("CD-14")
def test_discarded_rows_are_counted_and_not_written() -> None:
    """A DLQ that discards is not written. The entry has the number of discarded rows."""
    rules = DeliveryRules(dlq=Dlq(window=0), discards=True)
    flight = make_decided(TWO, nacked=3, rules=rules)
    step = plan_transition(
        plan_transition(flight, make_landed("orders", 7), rules).flight, make_landed("latest", 7), rules
    )
    assert step.entries[0].body["counts"]["discarded"] == 3


@pytest.mark.promise("X8", "CD-16")
def test_a_batch_that_trips_the_window_delivers_nothing() -> None:
    """The plan is cancelled, and the error names the row."""
    prepared = Prepared(path="p1-a", counts=make_counts("orders", nacked=2), nacks=[4, 7])
    step = plan_transition(begin_flight(STRAIGHT, LaneState()), prepared, DeliveryRules())
    assert isinstance(step.flight.task, Explain)
    assert step.entries == ()
    end = plan_transition(
        step.flight, Explained(nacks=[{"stage": "cast", "message": "no number", "row": {"id": 4}}]), DeliveryRules()
    )
    assert [entry.kind for entry in end.entries] == ["cancel"]
    assert isinstance(end.error, WindowTripped)
    assert "row 4" in str(end.error)


@pytest.mark.promise("SS-22")
def test_a_stage_that_stops_cancels_the_batch_even_if_the_window_allows_the_row() -> None:
    """No decision was recorded. The error names the stage and shows the row."""
    prepared = Prepared(path="p1", counts=make_counts("orders", nacked=1), nacks=(4,), stops=("cast",))
    step = plan_transition(begin_flight(STRAIGHT, LaneState()), prepared, LENIENT)
    assert (step.entries, step.error) == ((), None)
    assert step.flight.task == Explain(plan=STRAIGHT, decision=step.flight.decision, place=0, stages=("cast",))  # type: ignore[arg-type]
    end = plan_transition(
        step.flight, Explained(nacks=[{"stage": "cast", "message": "no number", "row": {"id": 4}}]), LENIENT
    )
    assert [entry.kind for entry in end.entries] == ["cancel"]
    assert isinstance(end.error, StageStopped)
    assert end.error.stage == "cast"
    assert "no number" in end.error.message
    assert '{"id": 4}' in end.error.message


def test_a_tripped_window_is_reported_even_if_the_row_cannot_be_read() -> None:
    """The batch is cancelled."""
    prepared = Prepared(path="p1-a", counts=make_counts("orders", nacked=1), nacks=[4])
    step = plan_transition(begin_flight(STRAIGHT, LaneState()), prepared, DeliveryRules())
    end = plan_transition(step.flight, Failed(error=OSError("gone")), DeliveryRules())
    assert (end.done, isinstance(end.error, WindowTripped)) == (True, True)


@pytest.mark.promise("SS-08", "CD-11", "CD-28", "CD-29")
def test_after_any_commits_the_offset_with_the_first_destination() -> None:
    """The other destination is owed the batch, and the lane waits for it."""
    rules = replace(LENIENT, delivery="after_any")
    first = plan_transition(make_decided(TWO, rules=rules), make_landed("orders", 10), rules)
    assert first.entries[0].body["owed"] == ["latest"]
    assert (first.settled, first.done) == (True, False)
    second = plan_transition(first.flight, make_landed("latest", 10), rules)
    assert second.entries[0].body["owed"] == []
    assert (second.settled, second.done) == (False, True)


@pytest.mark.promise("SS-08")
def test_after_any_continues_with_the_next_destination_when_one_fails() -> None:
    """The offset is committed with the successful destination. The run stops with the error of the other."""
    rules = replace(LENIENT, delivery="after_any")
    failed = plan_transition(make_decided(TWO, rules=rules), Failed(error=OSError("down")), rules)
    assert isinstance(failed.flight.task, Deliver)
    end = plan_transition(failed.flight, make_landed("latest", 10), rules)
    assert end.entries[0].body["owed"] == ["orders"]
    assert (str(end.error), end.done) == ("down", False)


@pytest.mark.promise("SS-09", "CD-17")
def test_after_all_stops_at_the_first_failure() -> None:
    """No offset is committed and the batch stays open."""
    step = plan_transition(make_decided(TWO), Failed(error=OSError("down")), LENIENT)
    assert (step.entries, step.done, str(step.error)) == ((), False, "down")


@pytest.mark.promise("CD-17", "DQ-04", "X4", "CD-26")
def test_a_dlq_that_cannot_be_written_stops_the_run() -> None:
    """The offset does not move, not even with `after_any`."""
    rules = replace(LENIENT, delivery="after_any")
    step = plan_transition(make_decided(TWO, nacked=1, rules=rules), Failed(error=OSError("disk full")), rules)
    assert (step.entries, str(step.error)) == ((), "disk full")


def test_counts_that_do_not_add_up_settle_the_batch_and_stop_the_run() -> None:
    """The batch is recorded as unbalanced. It is never estimated and never tried again."""
    outcome = Landed(written={"orders": Written(rows=9)}, counts=make_counts("orders"))
    step = plan_transition(begin_flight(STRAIGHT, LaneState()), outcome, LENIENT)
    assert step.entries[0].body["counts"]["balanced"] is False
    assert isinstance(step.error, Unbalanced)


def test_the_destinations_of_an_open_batch_are_asked_first() -> None:
    """The ledger does not know whether the batch landed."""
    flight = resume_flight(STRAIGHT, LaneState(), {"orders": Identity(place="orders")})
    assert isinstance(flight.task, AskDestinations)
    assert flight.task.names == ["orders"]


def test_an_open_batch_that_no_destination_has_is_cancelled() -> None:
    """Its rows are planned again, under the present definition."""
    step = plan_transition(resume_flight(STRAIGHT, LaneState(), {}), Answers(found={}), LENIENT)
    assert ([entry.kind for entry in step.entries], step.done) == (["cancel"], True)


def test_an_open_straight_batch_that_landed_is_counted_and_settled() -> None:
    """Its commit proves that no row was refused. The rows that were read are counted again."""
    step = plan_transition(
        resume_flight(STRAIGHT, LaneState(), {}), Answers(found={"orders": Written(rows=8)}), LENIENT
    )
    assert isinstance(step.flight.task, CountSpan)
    body = plan_transition(step.flight, Counted(read=10), LENIENT).entries[0].body
    assert (body["counts"]["read"], body["counts"]["branches"]["orders"]["filtered"]) == (10, 2)
    assert body["counts"]["balanced"] is True


def test_a_batch_that_was_written_with_others_is_counted_after_its_stages() -> None:
    """Its commit has the rows of several batches.

    The rows that its stages leave are counted and settled as delivered.
    """
    step = plan_transition(
        resume_flight(STRAIGHT, LaneState(), {}), Answers(found={"orders": Written(rows=None, version=3)}), LENIENT
    )
    counts = plan_transition(step.flight, Counted(read=10, left=8), LENIENT).entries[0].body["counts"]
    assert (counts["delivered"], counts["branches"]["orders"]["filtered"]) == ({"orders": 8}, 2)
    assert counts["balanced"] is True


def test_a_batch_that_cannot_be_counted_has_an_unknown_balance() -> None:
    """Its files are gone, and it is settled."""
    step = plan_transition(
        resume_flight(STRAIGHT, LaneState(), {}), Answers(found={"orders": Written(rows=8)}), LENIENT
    )
    body = plan_transition(step.flight, Counted(read=None), LENIENT).entries[0].body
    assert body["counts"]["balanced"] == "unknown"


def test_an_open_prepared_batch_is_delivered_to_the_destinations_that_lack_it() -> None:
    """They get the prepared rows. No destination gets them twice."""
    decision = DecidedBatch(path="p1-a", counts=make_counts("orders", "latest"), window=LaneState().window)
    step = plan_transition(
        resume_flight(replace(TWO, decision=decision), LaneState(), {}),
        Answers(found={"orders": Written(rows=10)}),
        LENIENT,
    )
    assert isinstance(step.flight.task, Deliver)
    assert step.flight.task.names == ["latest"]


def test_a_lane_returns_to_the_straight_way_after_ten_batches_without_refused_rows() -> None:
    """A refused row sends the lane to the careful way. Each batch without refused rows counts as one step back."""
    careful = plan_transition(make_decided(STRAIGHT, nacked=1), make_landed(DLQ, 1), LENIENT)
    settled = plan_transition(careful.flight, make_landed("orders", 9), LENIENT)
    assert settled.entries[0].body["clean"] == 0
    clean = plan_transition(
        replace(make_decided(STRAIGHT), lane=LaneState(clean=9)), make_landed("orders", 10), LENIENT
    )
    assert clean.entries[0].body["clean"] == 10


def test_a_destination_without_rows_is_not_written() -> None:
    """All rows were filtered, so the batch settles without a delivery."""
    outcome = Prepared(path="p1-a", counts=make_counts("orders", filtered=10))
    step = plan_transition(begin_flight(replace(STRAIGHT, straight=False), LaneState()), outcome, LENIENT)
    assert [entry.kind for entry in step.entries] == ["prepared", "settle"]


@pytest.mark.promise("CN-19")
def test_a_flight_begins_with_the_planned_way() -> None:
    """Straight plans are written, other plans are prepared."""
    assert isinstance(begin_flight(STRAIGHT, LaneState()).task, WriteStraight)
    assert isinstance(begin_flight(TWO, LaneState()).task, Prepare)


@pytest.mark.promise("SS-23")
@pytest.mark.parametrize("plan", [STRAIGHT, TWO])
def test_after_a_failed_write_the_destination_is_asked_before_another_write(plan: PlannedBatch) -> None:
    """A write that ended with an error may have landed."""
    begun = begin_flight(plan, LaneState()) if plan.straight else make_decided(plan)
    step = plan_transition(begun, Failed(error=TimeoutError()), LENIENT)
    assert isinstance(step.again, AskDestinations)
    assert (tuple(step.again.names), step.again.ours, step.again.ended) == (plan.destinations, True, False)
    assert isinstance(step.error, TimeoutError)


def test_only_destinations_that_failed_are_asked() -> None:
    """The others have reported that they have the batch."""
    outcome = Landed(written={"orders": Written(rows=10)}, failed={"latest": TimeoutError()})
    step = plan_transition(make_decided(TWO), outcome, LENIENT)
    assert isinstance(step.again, AskDestinations)
    flight = rest_flight(step.flight, step.again, now=5, until=7)
    assert (step.again.names, flight.failed, flight.tried, flight.since, flight.until) == (["latest"], {}, 1, 5, 7)
    there = plan_transition(flight, Answers(found={"latest": Written(rows=10)}), LENIENT)
    assert there.settled
    missing = plan_transition(flight, Answers(found={}), LENIENT).flight.task
    assert isinstance(missing, Deliver)
    assert missing.names == ["latest"]


def test_a_straight_batch_that_no_destination_has_is_tried_again_under_the_same_plan() -> None:
    """This run planned it, so its span stays. A batch that an earlier run left open is planned again."""
    failed = plan_transition(begin_flight(STRAIGHT, LaneState()), Failed(error=TimeoutError()), LENIENT)
    assert failed.again is not None
    again = plan_transition(rest_flight(failed.flight, failed.again, now=0, until=1), Answers(found={}), LENIENT)
    assert (again.flight.task, again.entries) == (WriteStraight(plan=STRAIGHT), ())
    left = resume_flight(STRAIGHT, LaneState(), {})
    lost = plan_transition(left, Failed(error=TimeoutError()), LENIENT)
    assert lost.again == left.task
    anew = plan_transition(rest_flight(lost.flight, left.task, now=0, until=1), Answers(found={}), LENIENT)  # type: ignore[arg-type]
    assert [entry.kind for entry in anew.entries] == ["cancel"]


def test_a_dlq_that_cannot_be_written_is_not_tried_again() -> None:
    """It stops the run."""
    flight = make_decided(TWO, nacked=1)
    assert plan_transition(flight, Failed(error=TimeoutError()), LENIENT).again is None
    failed: dict[str, Exception] = {DLQ: TimeoutError("dlq"), "latest": TimeoutError("latest")}
    step = plan_transition(flight, Landed(written={"orders": Written(rows=9)}, failed=failed), LENIENT)
    assert (str(step.error), step.again) == ("dlq", None)


def test_a_dlq_that_another_lane_fenced_is_asked_and_tried_again() -> None:
    """A lane that finishes an open batch fences the DLQ, which still works."""
    flight = make_decided(TWO, nacked=1)
    fenced = make_spark_error("DELTA_METADATA_CHANGED", "The metadata of the Delta table has been changed")
    step = plan_transition(flight, Landed(written={"orders": Written(rows=9)}, failed={DLQ: fenced}), LENIENT)
    assert isinstance(step.again, AskDestinations)
    assert (step.again.names, step.again.ours, step.error) == ([DLQ], True, fenced)


def test_after_any_the_other_destinations_get_the_batch_before_a_failed_one() -> None:
    """Then the offset is published, and the failed destination is asked and tried again."""
    any_one = DeliveryRules(dlq=Dlq(window=0), delivery="after_any")
    flight = make_decided(TWO, rules=any_one)
    one = plan_transition(flight, Landed(written={}, failed={"orders": TimeoutError()}), any_one)
    assert isinstance(one.flight.task, Deliver)
    assert (one.flight.task.names, one.again, one.error) == (["latest"], None, None)
    two = plan_transition(one.flight, make_landed("latest", 10), any_one)
    assert (two.settled, two.done) == (True, False)
    assert isinstance(two.again, AskDestinations)
    assert two.again.names == ["orders"]
    assert isinstance(two.error, TimeoutError)


def test_a_batch_remembers_the_ways_that_declined_it() -> None:
    """It goes alone if it cannot go with others. It is decided first if it cannot go straight either."""
    apart = plan_transition(begin_flight(STRAIGHT, LaneState()), PARTED, LENIENT).flight
    assert (apart.declined, apart.task) == (frozenset({"grouped"}), WriteStraight(plan=STRAIGHT))
    decided_first = plan_transition(apart, REFUSED, LENIENT).flight
    assert (decided_first.declined, decided_first.task) == (frozenset({"grouped", "straight"}), Prepare(plan=STRAIGHT))


def test_batches_of_a_failed_shared_write_are_asked_for_one_by_one() -> None:
    """The kind of the error does not matter, as it may come from another batch.

    If nothing was written, none is asked for.
    """
    failed = replace(PARTED, error=ValueError("corrupt"))
    step = plan_transition(begin_flight(STRAIGHT, LaneState()), failed, LENIENT)
    assert isinstance(step.flight.task, AskDestinations)
    assert (step.flight.declined, step.flight.task.ours, step.flight.task.ended, step.error) == (
        frozenset({"grouped"}),
        True,
        True,
        None,
    )
    assert plan_transition(begin_flight(STRAIGHT, LaneState()), PARTED, LENIENT).flight.task == WriteStraight(
        plan=STRAIGHT
    )


def test_a_batch_with_an_unknown_share_gets_no_invented_counts() -> None:
    """Its filtered rows and balance stay unknown. Rows that stages added are not negative filtered rows."""
    left = replace(resume_flight(STRAIGHT, LaneState(), {}), written={"orders": Written(rows=None)})
    (entry,) = plan_transition(left, Counted(read=7), LENIENT).entries
    assert (entry.body["counts"]["read"], entry.body["counts"]["balanced"]) == (7, "unknown")
    assert entry.body["counts"]["branches"]["orders"]["filtered"] == 0
    more = replace(left, written={"orders": Written(rows=25)})
    (entry,) = plan_transition(more, Counted(read=10), LENIENT).entries
    assert {key: entry.body["counts"]["branches"]["orders"][key] for key in ("filtered", "changed")} == {
        "filtered": 0,
        "changed": 15,
    }


KEEPING = replace(LENIENT, keeps_filtered=True)


def make_filtering(rules: DeliveryRules = KEEPING, filtered: int = 2) -> BatchInFlight:
    """Return a flight whose batch was just prepared, with filtered rows."""
    stage = StageCount(stage="paid", entered=10, left=10 - filtered, filtered=filtered)
    prepared = Prepared(path="p1-a", counts=replace(make_counts(*TWO.destinations, filtered=filtered), stages=[stage]))
    return plan_transition(begin_flight(TWO, LaneState()), prepared, rules).flight


BOTH = Landed(written={"orders": Written(rows=8), "latest": Written(rows=8)})


def test_filtered_rows_are_stored_after_all_destinations_and_before_the_offset() -> None:
    """Until then the batch may be decided again, and its rows must not be stored twice."""
    flight = make_filtering()
    assert isinstance(flight.task, Deliver)
    assert flight.task.names == ["orders", "latest"]
    stored = plan_transition(flight, BOTH, KEEPING)
    assert isinstance(stored.flight.task, Deliver)
    assert (stored.flight.task.names, stored.entries) == ([FILTERED], ())
    done = plan_transition(stored.flight, make_landed(FILTERED, 2), KEEPING)
    assert ([entry.kind for entry in done.entries], done.done, done.error) == (["settle"], True, None)


def test_after_any_filtered_rows_are_stored_before_the_offset_is_published() -> None:
    """They are stored after the first destination. The other destinations follow."""
    rules = replace(KEEPING, delivery="after_any")
    stored = plan_transition(make_filtering(rules), make_landed("orders", 8), rules)
    assert isinstance(stored.flight.task, Deliver)
    assert (stored.flight.task.names, stored.entries) == ([FILTERED], ())
    published = plan_transition(stored.flight, make_landed(FILTERED, 2), rules)
    assert isinstance(published.flight.task, Deliver)
    assert ([entry.kind for entry in published.entries], published.flight.task.names) == (["settle"], ["latest"])


@pytest.mark.parametrize("delivery", ["after_all", "after_any"])
def test_filtered_rows_that_could_not_be_stored_leave_the_batch_open(
    delivery: Literal["after_all", "after_any"],
) -> None:
    """The destination of filtered rows is asked and tried again."""
    rules = replace(KEEPING, delivery=delivery)
    flight = plan_transition(
        make_filtering(rules), BOTH if delivery == "after_all" else make_landed("orders", 8), rules
    ).flight
    step = plan_transition(flight, Landed(written={}, failed={FILTERED: OSError("full")}), rules)
    assert isinstance(step.again, AskDestinations)
    assert (step.entries, str(step.error), step.again.names) == ((), "full", [FILTERED])


@pytest.mark.parametrize("has", [True, False])
def test_a_later_run_stores_filtered_rows_that_are_missing(has: bool) -> None:
    """It uses the decision in the ledger, even if its definition stores no filtered rows."""
    decision = make_filtering().decision
    assert decision is not None
    again = decode(DecidedBatch, encode(decision))
    flight = resume_flight(replace(TWO, decision=again), LaneState(), {})
    assert isinstance(flight.task, AskDestinations)
    assert flight.task.names == ["orders", "latest", FILTERED]
    found = {**BOTH.written, **({FILTERED: Written(rows=2)} if has else {})}
    step = plan_transition(flight, Answers(found=found), LENIENT)
    assert (step.done, isinstance(step.flight.task, Deliver)) == (has, not has)


def test_a_wrong_number_of_stored_rows_is_unbalanced() -> None:
    """The run stops, and the error shows both numbers."""
    flight = plan_transition(make_filtering(), BOTH, KEEPING).flight
    step = plan_transition(flight, make_landed(FILTERED, 3), KEEPING)
    assert isinstance(step.error, Unbalanced)
    assert "filtered 2 (stored 3)" in step.error.message
