"""Which batches rest, for how long, and what is looked at meanwhile: with numbers alone."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from runners.engine.batch_machine import BatchInFlight, Transition, begin_flight
from runners.engine.work_in_flight import LISTEN, BackOff
from runners.model.pipeline_state import LaneState
from runners.model.spec import RetryPolicy
from runners.model.tasks import AskDestinations, WriteStraight
from tests.runners.engine.test_batch_machine import STRAIGHT

AWAY = TimeoutError("away")


@pytest.fixture
def resting() -> BackOff:
    """Two more tries, after 10 s and then 20 s, less up to a fifth."""
    return BackOff(RetryPolicy(attempts=2, wait=10), random.Random(1), now=100)


def failed(error: Exception = AWAY, **of: object) -> Transition:
    """What follows from a write that ended with an error."""
    flight = replace(begin_flight(STRAIGHT, LaneState()), **of)  # type: ignore[arg-type]
    return Transition(flight=flight, error=error, again=WriteStraight(plan=STRAIGHT))


def test_an_error_that_passes_becomes_a_rest(resting: BackOff) -> None:
    """The batch is tried again once it is over, and the first error's time is kept."""
    step = resting.postpone(failed(), now=200)
    flight = step.flight
    assert (step.error, flight.task, flight.tried, flight.since) == (None, WriteStraight(plan=STRAIGHT), 1, 200)
    assert flight.until is not None
    assert 208 < flight.until <= 210
    assert flight.is_resting(200)
    assert not flight.is_resting(210)


def test_the_rests_get_longer_and_come_to_an_end(resting: BackOff) -> None:
    """The second is twice the first; there is no third."""
    second = resting.postpone(failed(tried=1, since=200.0), now=220).flight
    assert second.until is not None
    assert (236 < second.until <= 240, second.since) == (True, 200)
    assert resting.postpone(failed(tried=2, since=200.0), now=260).error is AWAY


def test_of_several_errors_the_one_that_does_not_pass_is_told(resting: BackOff) -> None:
    """Whichever came first."""
    broken = ValueError("broken")
    assert resting.postpone(failed(failed={"a": AWAY, "b": broken}), now=200).error is broken
    assert resting.postpone(failed(failed={"a": AWAY, "b": TimeoutError()}), now=200).error is None


def test_what_cannot_be_done_again_keeps_its_error(resting: BackOff) -> None:
    """A DLQ that cannot be written, for example."""
    assert resting.postpone(replace(failed(), again=None), now=200).error is AWAY


def test_before_a_write_is_asked_for_the_ledger_is_looked_at(resting: BackOff) -> None:
    """Without a rest as well: somebody may have taken over."""
    ask = AskDestinations(plan=STRAIGHT, names=["orders"], identities={}, ours=True)
    asked = resting.watch_ledger(
        Transition(flight=replace(begin_flight(STRAIGHT, LaneState()), task=ask)), now=101
    ).flight
    assert resting.should_listen([asked], now=101)
    assert not resting.should_listen([begin_flight(STRAIGHT, LaneState())], now=101)


def test_while_a_batch_rests_the_ledger_is_looked_at_now_and_then(resting: BackOff) -> None:
    """Every five seconds, and when the rest is over."""
    rests = [replace(begin_flight(STRAIGHT, LaneState()), until=112.0)]
    assert not resting.should_listen(rests, now=101)
    assert resting.should_listen(rests, now=100 + LISTEN)
    assert not resting.should_listen(rests, now=106)
    assert resting.should_listen(rests, now=110)
    assert resting.should_listen(rests, now=112)


def test_there_is_something_to_do_when_a_rest_is_over_or_the_ledger_is_due(resting: BackOff) -> None:
    """At once for a batch that only waits for a runner; never for one that is left as it is."""

    def moments(**of: object) -> list[float]:
        flight: BatchInFlight = replace(begin_flight(STRAIGHT, LaneState()), **of)  # type: ignore[arg-type]
        return list(resting.list_moments([flight]))

    assert moments(until=103.0) == [103]
    assert moments(until=300.0) == [100 + LISTEN]
    assert moments() == [0]
    assert moments(task=None) == []
