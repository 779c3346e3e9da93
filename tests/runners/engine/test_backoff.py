"""Which batches rest, for how long, and when the ledger is read meanwhile. These tests use numbers alone."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from runners.engine.batch_machine import BatchInFlight, Transition, begin_flight
from runners.engine.work_in_flight import LISTEN, BackOff
from runners.model.pipeline_state import LaneState
from runners.model.spec import RetryOptions
from runners.model.tasks import AskDestinations, WriteStraight
from tests.runners.engine.test_batch_machine import STRAIGHT

AWAY = TimeoutError("away")


@pytest.fixture
def resting() -> BackOff:
    """Return a policy of two more attempts, after 10 s and then 20 s. Each wait is up to a fifth shorter."""
    return BackOff(RetryOptions(attempts=2, wait="10s"), random.Random(1), now=100)


def fail_write(error: Exception = AWAY, **of: object) -> Transition:
    """Return the transition after a write that ended with an error."""
    flight = replace(begin_flight(STRAIGHT, LaneState()), **of)  # type: ignore[arg-type]
    return Transition(flight=flight, error=error, again=WriteStraight(plan=STRAIGHT))


def test_a_transient_error_becomes_a_rest(resting: BackOff) -> None:
    """The batch is tried again after the rest. The time of the first error is kept."""
    step = resting.postpone(fail_write(), now=200)
    flight = step.flight
    assert (step.error, flight.task, flight.tried, flight.since) == (None, WriteStraight(plan=STRAIGHT), 1, 200)
    assert flight.until is not None
    assert 208 < flight.until <= 210
    assert flight.is_resting(200)
    assert not flight.is_resting(210)


def test_the_rests_get_longer_and_are_limited(resting: BackOff) -> None:
    """The second rest is twice as long as the first. A third failure keeps its error."""
    second = resting.postpone(fail_write(tried=1, since=200.0), now=220).flight
    assert second.until is not None
    assert (236 < second.until <= 240, second.since) == (True, 200)
    assert resting.postpone(fail_write(tried=2, since=200.0), now=260).error is AWAY


def test_of_several_errors_the_lasting_error_is_reported(resting: BackOff) -> None:
    """The order of the errors does not matter."""
    broken = ValueError("broken")
    assert resting.postpone(fail_write(failed={"a": AWAY, "b": broken}), now=200).error is broken
    assert resting.postpone(fail_write(failed={"a": AWAY, "b": TimeoutError()}), now=200).error is None


def test_an_error_without_a_task_to_repeat_is_kept(resting: BackOff) -> None:
    """An example is a DLQ that cannot be written."""
    assert resting.postpone(replace(fail_write(), again=None), now=200).error is AWAY


def test_the_ledger_is_read_before_a_destination_is_asked_about_a_failed_write(resting: BackOff) -> None:
    """This needs no rest: another process may have taken over."""
    ask = AskDestinations(plan=STRAIGHT, names=["orders"], identities={}, ours=True)
    asked = resting.watch_ledger(
        Transition(flight=replace(begin_flight(STRAIGHT, LaneState()), task=ask)), now=101
    ).flight
    assert resting.should_listen([asked], now=101)
    assert not resting.should_listen([begin_flight(STRAIGHT, LaneState())], now=101)


def test_the_ledger_is_read_now_and_then_while_a_batch_rests(resting: BackOff) -> None:
    """The run reads it every five seconds, and when the rest is over."""
    rests = [replace(begin_flight(STRAIGHT, LaneState()), until=112.0)]
    assert not resting.should_listen(rests, now=101)
    assert resting.should_listen(rests, now=100 + LISTEN)
    assert not resting.should_listen(rests, now=106)
    assert resting.should_listen(rests, now=110)
    assert resting.should_listen(rests, now=112)


def test_the_next_moment_is_the_end_of_a_rest_or_the_next_look_at_the_ledger(resting: BackOff) -> None:
    """A batch that only waits for a runner is due at once. A batch without a task is never due."""

    def moments(**of: object) -> list[float]:
        flight: BatchInFlight = replace(begin_flight(STRAIGHT, LaneState()), **of)  # type: ignore[arg-type]
        return list(resting.list_moments([flight]))

    assert moments(until=103.0) == [103]
    assert moments(until=300.0) == [100 + LISTEN]
    assert moments() == [0]
    assert moments(task=None) == []
