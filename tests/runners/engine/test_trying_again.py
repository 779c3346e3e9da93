"""A batch that fails in several processes: what the ledger records, and when Wherry gives it up."""

from __future__ import annotations

import pytest

from runners.model.entry import Entry
from runners.model.events import BatchRests
from runners.model.spec import RetryOptions
from runners.model.tasks import WriteStraight
from runners.state.journal import Journal
from tests.manual_clock import ManualClock
from tests.runners.engine.test_dispatcher import Resting


def start_bench(retry: RetryOptions, *, after: Resting | None = None, seconds: float = 0) -> Resting:
    """Return a process with this retry policy. It starts `seconds` after the process `after` was killed."""
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


def run_until_rest(bench: Resting) -> list[int]:
    """Turn until the batch rests or no work is left. Return the number of each announced try."""
    before = len(bench.events)
    for _ in range(10):
        going = bench.turn("0")
        found = [event.tried for event in bench.events[before:] if isinstance(event, BatchRests)]
        if found or not going:
            return found
    raise AssertionError("neither rests nor ends")


@pytest.mark.promise("SS-23")
def test_the_number_of_tries_survives_a_kill() -> None:
    """Two more tries are two, even if several processes share them. The next failure ends the run."""
    first = start_bench(RetryOptions(attempts=2))
    assert run_until_rest(first) == [1]
    second = start_bench(RetryOptions(attempts=2), after=first)
    assert run_until_rest(second) == [2]
    third = start_bench(RetryOptions(attempts=2), after=second)
    assert run_until_rest(third) == []
    assert third.dispatcher.errors == [third.error]


def test_the_time_of_the_first_error_survives_a_kill() -> None:
    """One hour counts from the first error, even if no process ran for most of that time."""
    first = start_bench(RetryOptions(attempts=9, within="1h"))
    assert run_until_rest(first) == [1]
    second = start_bench(RetryOptions(attempts=9, within="1h"), after=first, seconds=3_500)
    assert run_until_rest(second) == [2]
    third = start_bench(RetryOptions(attempts=9, within="1h"), after=second, seconds=101)
    assert run_until_rest(third) == []


@pytest.mark.parametrize(("status", "found"), [("failed", [1]), ("stopped", [2])])
def test_a_run_that_gave_up_leaves_all_attempts_to_the_next(status: str, found: list[int]) -> None:
    """A user starts the next run on purpose. After a stop, the count continues."""
    first = start_bench(RetryOptions(attempts=2))
    run_until_rest(first)
    first.journal.record(Entry(kind="release", body={"status": status}))
    assert run_until_rest(start_bench(RetryOptions(attempts=2), after=first)) == found


def test_the_next_batch_has_all_attempts() -> None:
    """The tries of a settled batch are forgotten."""
    bench = start_bench(RetryOptions(attempts=2))
    assert run_until_rest(bench) == [1]
    bench.error = None
    bench.move(2)
    while not bench.settled():
        bench.turn("0")
    bench.error = TimeoutError("again")
    assert run_until_rest(bench) == [1]


@pytest.mark.parametrize("retry", [RetryOptions(attempts=0), RetryOptions(within="0s")])
def test_a_budget_of_zero_allows_no_further_try(retry: RetryOptions) -> None:
    """With zero attempts or zero time, the first error ends the run."""
    bench = start_bench(retry)
    assert run_until_rest(bench) == []
    assert bench.dispatcher.errors == [bench.error]


@pytest.mark.promise("SS-23", "CD-22")
def test_a_destination_that_is_down_for_a_minute_delays_the_run_and_loses_no_row() -> None:
    """With a manual clock, each batch is tried with the default waits until it succeeds. No row is refused."""
    bench = start_bench(RetryOptions())
    clock = bench.dispatcher.clock
    while len(bench.settled()) < 2:
        bench.error = TimeoutError("down") if clock.elapsed() < 60 else None
        going = bench.turn("0")
        assert going or len(bench.settled()) == 2
        bench.move(0.5)
    assert 60 <= clock.elapsed() < 60 + 2 * 32
    assert (bench.settled(), bench.dispatcher.errors) == ([("0", 1), ("0", 2)], [])
    assert len([task for task in bench.tasks if isinstance(task, WriteStraight)]) > 2
