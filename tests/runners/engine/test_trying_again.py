"""A batch that cannot be carried, over several processes: what the ledger keeps of it, and when it is given up."""

from __future__ import annotations

from dataclasses import replace

import pytest

from runners.model.entry import Entry
from runners.model.events import BatchRests
from runners.model.pipeline_state import PipelineState
from runners.model.spec import FOR_EVER, RetryPolicy
from runners.model.tasks import WriteStraight
from runners.state.journal import Journal
from runners.state.progress import apply_entries
from tests.manual_clock import ManualClock
from tests.runners.engine.test_dispatcher import Resting

THOUSAND_YEARS = 365_000 * 86_400.0


def started(retry: RetryPolicy, *, after: Resting | None = None, seconds: float = 0) -> Resting:
    """A process with this budget; `after` one that was killed, so many seconds later."""
    bench = Resting(rows=2)
    if after is not None:
        bench.ledger = after.ledger
        bench.journal = bench.dispatcher.journal = Journal(bench.ledger)
        bench.journal.acquire({"pipeline": "orders"})
        bench.dispatcher.clock = ManualClock(time=after.dispatcher.clock.now())
        bench.move(seconds)
        bench.dispatcher.recover()
    bench.dispatcher.resting.retry = retry
    return bench


def rests(bench: Resting) -> list[int]:
    """Turn until the batch rests, or nothing is left to do; the how-manieth tries were announced."""
    before = len(bench.events)
    for _ in range(10):
        going = bench.turn("0")
        found = [event.tried for event in bench.events[before:] if isinstance(event, BatchRests)]
        if found or not going:
            return found
    raise AssertionError("neither rests nor ends")


@pytest.mark.promise("SS-23")
def test_how_often_a_batch_was_tried_survives_a_kill() -> None:
    """Two more tries are two, however many processes share them; the next failure ends the run."""
    first = started(RetryPolicy(attempts=2))
    assert rests(first) == [1]
    second = started(RetryPolicy(attempts=2), after=first)
    assert rests(second) == [2]
    third = started(RetryPolicy(attempts=2), after=second)
    assert rests(third) == []
    assert third.dispatcher.errors == [third.error]


def test_how_long_it_is_tried_survives_a_kill() -> None:
    """An hour from the first error is an hour, also where nobody ran it for most of that."""
    first = started(RetryPolicy(attempts=9, within=3_600))
    assert rests(first) == [1]
    second = started(RetryPolicy(attempts=9, within=3_600), after=first, seconds=3_500)
    assert rests(second) == [2]
    third = started(RetryPolicy(attempts=9, within=3_600), after=second, seconds=101)
    assert rests(third) == []


@pytest.mark.parametrize(("status", "found"), [("failed", [1]), ("stopped", [2])])
def test_a_run_that_gave_up_leaves_all_attempts_to_the_next(status: str, found: list[int]) -> None:
    """Somebody starts it on purpose; one that was stopped and started goes on counting."""
    first = started(RetryPolicy(attempts=2))
    rests(first)
    first.journal.record(Entry(kind="release", body={"status": status}))
    assert rests(started(RetryPolicy(attempts=2), after=first)) == found


def test_the_batch_behind_it_has_all_attempts() -> None:
    """What is settled is forgotten."""
    bench = started(RetryPolicy(attempts=2))
    assert rests(bench) == [1]
    bench.error = None
    bench.move(2)
    while not bench.settled():
        bench.turn("0")
    bench.error = TimeoutError("again")
    assert rests(bench) == [1]


def test_the_ledger_knows_it_before_anybody_is_told() -> None:
    """And a snapshot keeps it."""
    bench = started(RetryPolicy(attempts=2))
    rests(bench)
    lane = bench.journal.state.get_lane("0")
    assert (lane.tried, lane.since) == (1, "2026-01-01T00:00:00.000+00:00")
    kept = apply_entries([Entry(kind="snapshot", seq=9, body=bench.journal.state.json())], PipelineState())
    assert replace(kept, seq=0) == replace(bench.journal.state, seq=0)


@pytest.mark.parametrize("retry", [RetryPolicy(attempts=0), RetryPolicy(within=0)])
def test_a_budget_of_zero_tries_nothing_again(retry: RetryPolicy) -> None:
    """Be it of attempts or of time: the first error ends the run."""
    bench = started(retry)
    assert rests(bench) == []
    assert bench.dispatcher.errors == [bench.error]


def test_a_budget_of_a_thousand_years_is_kept() -> None:
    """The waits grow to what they may be, and the ledger is looked at every five seconds all the while."""
    retry = RetryPolicy(attempts=FOR_EVER, wait=1, most=THOUSAND_YEARS, within=THOUSAND_YEARS)
    bench = started(retry)
    assert rests(bench) == [1]
    for _ in range(30):
        (flight,) = bench.dispatcher.work.flights.values()
        patience = bench.dispatcher.patience()
        assert patience is not None
        assert patience <= 5.001
        assert flight.until is not None
        bench.move(flight.until - bench.dispatcher.clock.elapsed())
        rests(bench)
    assert bench.dispatcher.clock.now().year > 2026 + 10
    assert bench.dispatcher.errors == []


@pytest.mark.promise("SS-23", "CD-22")
def test_a_destination_that_is_down_for_a_minute_delays_and_loses_nothing() -> None:
    """The clock is moved: what comes is tried until it goes, with the waits there are, and nothing is refused."""
    bench = started(RetryPolicy())
    clock = bench.dispatcher.clock
    while len(bench.settled()) < 2:
        bench.error = TimeoutError("down") if clock.elapsed() < 60 else None
        going = bench.turn("0")
        assert going or len(bench.settled()) == 2
        bench.move(0.5)
    assert 60 <= clock.elapsed() < 60 + 2 * 32
    assert (bench.settled(), bench.dispatcher.errors) == ([("0", 1), ("0", 2)], [])
    assert len([task for task in bench.tasks if isinstance(task, WriteStraight)]) > 2
