"""Which batches rest, for how long, and what is looked at meanwhile: with numbers alone."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from runners.flight import Flight, Step, begin
from runners.outcome import Ask, Carry
from runners.resting import LISTEN, Resting
from runners.retry import Retry
from runners.state import Lane
from tests.runners.test_flight import STRAIGHT

AWAY = TimeoutError("away")


@pytest.fixture
def resting() -> Resting:
    """Two more tries, after 10 s and then 20 s, less up to a fifth."""
    return Resting(Retry(attempts=2, wait=10), random.Random(1), now=100)


def failed(error: Exception = AWAY, **of: object) -> Step:
    """What follows from a write that ended with an error."""
    flight = replace(begin(STRAIGHT, Lane()), **of)  # type: ignore[arg-type]
    return Step(flight=flight, error=error, again=Carry(plan=STRAIGHT))


def test_an_error_that_passes_becomes_a_rest(resting: Resting) -> None:
    """The batch is tried again once it is over, and the first error's time is kept."""
    step = resting.after(failed(), now=200)
    flight = step.flight
    assert (step.error, flight.task, flight.tried, flight.since) == (None, Carry(plan=STRAIGHT), 1, 200)
    assert flight.until is not None
    assert 208 < flight.until <= 210
    assert resting.is_resting(flight, 200)
    assert not resting.is_resting(flight, 210)


def test_the_rests_get_longer_and_come_to_an_end(resting: Resting) -> None:
    """The second is twice the first; there is no third."""
    second = resting.after(failed(tried=1, since=200.0), now=220).flight
    assert second.until is not None
    assert (236 < second.until <= 240, second.since) == (True, 200)
    assert resting.after(failed(tried=2, since=200.0), now=260).error is AWAY


def test_of_several_errors_the_one_that_does_not_pass_is_told(resting: Resting) -> None:
    """Whichever came first."""
    broken = ValueError("broken")
    assert resting.after(failed(failed={"a": AWAY, "b": broken}), now=200).error is broken
    assert resting.after(failed(failed={"a": AWAY, "b": TimeoutError()}), now=200).error is None


def test_what_cannot_be_done_again_keeps_its_error(resting: Resting) -> None:
    """A DLQ that cannot be written, for example."""
    assert resting.after(replace(failed(), again=None), now=200).error is AWAY


def test_before_a_write_is_asked_for_the_ledger_is_looked_at(resting: Resting) -> None:
    """Without a rest as well: somebody may have taken over."""
    ask = Ask(plan=STRAIGHT, names=["orders"], identities={}, ours=True)
    asked = resting.watched(Step(flight=replace(begin(STRAIGHT, Lane()), task=ask)), now=101).flight
    assert resting.listens([asked], now=101)
    assert not resting.listens([begin(STRAIGHT, Lane())], now=101)


def test_while_a_batch_rests_the_ledger_is_looked_at_now_and_then(resting: Resting) -> None:
    """Every five seconds, and when the rest is over."""
    rests = [replace(begin(STRAIGHT, Lane()), until=112.0)]
    assert not resting.listens(rests, now=101)
    assert resting.listens(rests, now=100 + LISTEN)
    assert not resting.listens(rests, now=106)
    assert resting.listens(rests, now=110)
    assert resting.listens(rests, now=112)


def test_there_is_something_to_do_when_a_rest_is_over_or_the_ledger_is_due(resting: Resting) -> None:
    """At once for a batch that only waits for a runner; never for one that is left as it is."""

    def moments(**of: object) -> list[float]:
        flight: Flight = replace(begin(STRAIGHT, Lane()), **of)  # type: ignore[arg-type]
        return list(resting.moments([flight]))

    assert moments(until=103.0) == [103]
    assert moments(until=300.0) == [100 + LISTEN]
    assert moments() == [0]
    assert moments(task=None) == []
