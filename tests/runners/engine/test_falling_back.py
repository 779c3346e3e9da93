"""What happens to a batch whose refused rows the DLQ cannot take."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Literal

import pytest

from destinations.delta import Delta
from destinations.destination import Written
from destinations.dlq import DLQ, FALLBACK, Dlq
from destinations.labels import Late
from runners.engine.batch_machine import (
    BatchInFlight,
    DeliveryRules,
    Transition,
    plan_transition,
    resume_flight,
    turn_to_fallback,
)
from runners.model.errors import FallbackFailed, RefusedLate, WorkCancelled
from runners.model.pipeline_state import LaneState
from runners.model.tasks import Answers, AskDestinations, Checked, CheckRefusals, Deliver, Landed
from tests.runners.engine.test_batch_machine import TWO, make_decided, make_landed
from tests.spark_errors import make_spark_error

RULES = DeliveryRules(dlq=Dlq(window=0, on_failure="fallback", fallback=Delta(path="/refused")))
DOWN = OSError("the disk is gone")
BOTH = {"orders": Written(rows=7), "latest": Written(rows=7)}


def fail_dlq(
    error: Exception = DOWN, rules: DeliveryRules = RULES, failed: Mapping[str, Exception] | None = None
) -> Transition:
    """Return the transition after a write in which the DLQ and these destinations failed."""
    written = {name: each for name, each in BOTH.items() if name not in (failed or {})}
    outcome = Landed(written=written, failed={DLQ: error, **(failed or {})})
    return plan_transition(make_decided(TWO, nacked=3, rules=rules), outcome, rules)


def list_names(flight: BatchInFlight) -> list[str]:
    assert isinstance(flight.task, Deliver)
    return list(flight.task.names)


def test_refused_rows_go_to_the_fallback_and_the_settle_entry_counts_them() -> None:
    """The other destinations have the batch and are not written again."""
    step = turn_to_fallback(fail_dlq(), RULES)
    assert (step.error, list_names(step.flight)) == (None, [FALLBACK])
    done = plan_transition(step.flight, make_landed(FALLBACK, 3), RULES)
    (entry,) = done.entries
    assert (done.done, entry.body["counts"]["fallback"], entry.body["counts"]["balanced"]) == (True, 3, True)


def test_without_a_fallback_a_failed_dlq_stops_the_run() -> None:
    """Its error is final."""
    rules = DeliveryRules(dlq=Dlq(window=0))
    step = fail_dlq(rules=rules)
    assert (turn_to_fallback(step, rules), step.error, step.again) == (step, DOWN, None)


@pytest.mark.parametrize("error", [Late(), WorkCancelled("stopped")])
def test_a_run_that_lost_its_right_to_write_does_not_fall_back(error: Exception) -> None:
    """The DLQ is not to blame."""
    step = fail_dlq(error)
    assert turn_to_fallback(step, RULES) is step


def test_a_conflict_is_tried_again_even_if_the_dlq_failed_before() -> None:
    """A later failure of the same write goes to the fallback."""
    step = fail_dlq(make_spark_error("DELTA_CONCURRENT_APPEND", "another commit", "2D521"))
    assert turn_to_fallback(step, RULES, at_once=True) is step
    assert isinstance(step.again, AskDestinations)
    assert list_names(turn_to_fallback(step, RULES).flight) == [FALLBACK]


def test_a_destination_that_failed_beside_the_dlq_is_asked_before_it_is_tried_again() -> None:
    """Then the destination gets the batch, and the fallback gets the refused rows."""
    step = turn_to_fallback(fail_dlq(failed={"latest": ConnectionError("away")}), RULES)
    assert (str(step.error), isinstance(step.again, AskDestinations)) == ("away", True)
    assert step.again is not None
    resting = replace(step.flight, task=step.again, failed={})
    assert list_names(plan_transition(resting, Answers(found={}), RULES).flight) == [FALLBACK, "latest"]


def test_a_fallback_that_fails_too_stops_the_run() -> None:
    """The error shows both messages."""
    step = plan_transition(
        turn_to_fallback(fail_dlq(), RULES).flight, Landed(written={}, failed={FALLBACK: OSError("full")}), RULES
    )
    assert isinstance(step.error, FallbackFailed)
    assert ("the disk is gone" in step.error.message, "full" in step.error.message) == (True, True)
    assert turn_to_fallback(step, RULES) is step


def resume_left_open() -> BatchInFlight:
    """A decided batch of an earlier run."""
    plan = replace(TWO, decision=make_decided(TWO, nacked=3, rules=RULES).decision)
    return resume_flight(plan, LaneState(), {}, falls_back=True)


def test_a_later_run_finds_the_refused_rows_in_the_fallback() -> None:
    """It settles the batch, and writes nothing again."""
    flight = resume_left_open()
    assert isinstance(flight.task, AskDestinations)
    assert flight.task.names == [DLQ, FALLBACK, "orders", "latest"]
    step = plan_transition(flight, Answers(found={FALLBACK: Written(rows=3), **BOTH}), RULES)
    (entry,) = step.entries
    assert (step.done, entry.body["counts"]["fallback"]) == (True, 3)


@pytest.mark.parametrize(("rows", "done"), [(3, True), (2, False)])
def test_for_a_batch_decided_again_the_fallback_counts_only_if_it_has_all_rows(rows: int, done: bool) -> None:
    """Fewer rows come from the earlier decision, so all rows are written again."""
    flight = resume_left_open()
    assert flight.decision is not None
    again = replace(flight.decision, again=True)
    flight = replace(flight, decision=again, plan=replace(flight.plan, decision=again))
    step = plan_transition(flight, Answers(found={FALLBACK: Written(rows=rows), **BOTH}), RULES)
    assert step.done == done


def test_a_dlq_that_cannot_be_asked_is_asked_again_and_then_replaced_by_the_fallback() -> None:
    """The answers of the other destinations are kept."""
    step = plan_transition(resume_left_open(), Answers(found=BOTH, failed={DLQ: DOWN}), RULES)
    assert isinstance(step.again, AskDestinations)
    assert (step.error, step.again.names) == (DOWN, [DLQ, FALLBACK])
    assert list_names(turn_to_fallback(step, RULES).flight) == [FALLBACK]


def test_a_batch_is_never_cancelled_while_an_unreachable_dlq_may_have_its_rows() -> None:
    """Otherwise its rows would be refused again, under another plan."""
    asked = turn_to_fallback(plan_transition(resume_left_open(), Answers(found={}, failed={DLQ: DOWN}), RULES), RULES)
    assert isinstance(asked.flight.task, CheckRefusals)
    step = plan_transition(asked.flight, Checked(refusing="orders", same=True), RULES)
    assert (isinstance(step.error, RefusedLate), step.entries) == (True, ())


@pytest.mark.parametrize("delivery", ["after_all", "after_any"])
def test_the_offset_waits_for_the_fallback(delivery: Literal["after_all", "after_any"]) -> None:
    """Nothing is settled before the fallback has the rows."""
    rules = replace(RULES, delivery=delivery)
    first = list_names(make_decided(TWO, nacked=3, rules=rules))
    written = {name: BOTH[name] for name in first if name != DLQ}
    flight = make_decided(TWO, nacked=3, rules=rules)
    step = turn_to_fallback(plan_transition(flight, Landed(written=written, failed={DLQ: DOWN}), rules), rules)
    assert (FALLBACK in list_names(step.flight), step.entries, step.settled) == (True, (), False)
