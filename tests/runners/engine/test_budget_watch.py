"""A budget for refused rows whose number is unknown for a while."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest

from destinations.destination import DestinationError, Written
from destinations.dlq import Dlq
from runners.engine.planning import BudgetWatch, Follower
from runners.model.entry import Entry
from runners.model.planned_batch import BranchCounts, Counts
from runners.model.spec import RetryOptions
from runners.model.tasks import Landed, Task
from tests.manual_clock import ManualClock
from tests.runners.engine.test_dispatcher import Bench
from tests.simulation.world import Work


class Limited(Bench):
    """A bench whose first batch has a refused row, after which the run asks the budget.

    `answer` is what the budget answers.
    """

    def __init__(self, *, rows: int = 2) -> None:
        super().__init__(rows=rows)
        self.answer: Exception | None = TimeoutError("the store does not answer")
        self.asked: list[int] = []
        run = self.dispatcher
        run.rules = replace(run.rules, dlq=Dlq(window=0))
        run.resting.retry = RetryOptions(attempts=2, wait="10s")
        run.budget = BudgetWatch(self.ask, run.resting)

    def ask(self, settled: Sequence[Entry]) -> Exception | None:
        self.asked.append(len(settled))
        if self.answer is not None:
            raise self.answer
        return None

    def carry(self, task: Task) -> Work:
        self.tasks.append(task)
        yield
        counts = Counts(read=1, nacked=1, branches={"orders": BranchCounts(expected=0)})
        return Landed(written={"orders": Written(rows=0)}, counts=counts)

    def move(self, seconds: float) -> None:
        clock = self.dispatcher.clock
        assert isinstance(clock, ManualClock)
        clock.move(seconds)

    def sleep(self) -> None:
        """Let the time pass until the budget is asked again."""
        assert self.dispatcher.budget.until is not None
        self.move(self.dispatcher.budget.until - self.dispatcher.clock.elapsed())


@pytest.fixture
def bench() -> Limited:
    """Return a run whose first batch is settled. It has asked its budget once, without an answer."""
    bench = Limited()
    bench.turn()
    assert bench.turn("0")
    return bench


def test_the_run_asks_again_before_it_plans_another_batch(bench: Limited) -> None:
    """The batch with the refused row is settled. The run asks nothing before the wait is over."""
    assert (bench.settled(), bench.planned(), bench.asked) == ([("0", 1)], [("0", 1)], [1])
    assert bench.dispatcher.budget.until is not None
    assert 8 <= bench.dispatcher.budget.until <= 10
    bench.move(5)
    assert bench.turn()
    assert (bench.planned(), bench.asked) == ([("0", 1)], [1])
    bench.answer = None
    bench.sleep()
    assert bench.turn()
    assert (bench.planned(), bench.asked) == ([("0", 1), ("0", 2)], [1, 0])
    assert bench.dispatcher.errors == []


def test_the_run_fails_when_its_attempts_are_used_up(bench: Limited) -> None:
    """It fails with the error of the budget. The batch stays settled."""
    for _ in range(2):
        bench.sleep()
        going = bench.turn()
    assert (going, bench.asked, bench.settled()) == (False, [1, 0, 0], [("0", 1)])
    assert bench.dispatcher.errors == [bench.answer]


def test_a_lasting_error_of_the_budget_fails_the_run_at_once() -> None:
    """The settled batch is recorded before the run fails."""
    bench = Limited()
    bench.answer = DestinationError("The DLQ cannot be read")
    bench.turn()
    assert not bench.turn("0")
    assert (bench.settled(), bench.asked, bench.dispatcher.errors) == ([("0", 1)], [1], [bench.answer])


def test_a_stop_waits_for_no_answer(bench: Limited) -> None:
    """A run that stops no longer needs the answer."""
    bench.dispatcher.request_stop("the night")
    assert not bench.turn()
    assert (bench.asked, bench.dispatcher.errors, bench.dispatcher.stopping) == ([1], [], "the night")


def test_a_stop_in_the_ledger_is_noticed_within_five_seconds(bench: Limited) -> None:
    """The run reads the ledger, although it records nothing while it waits."""
    bench.ledger.append([Entry(kind="stop", body={"reason": "the night"})], after=bench.journal.state.seq)
    bench.move(bench.dispatcher.patience() or 0)
    assert bench.dispatcher.clock.elapsed() == 5
    assert not bench.turn()
    assert (bench.asked, bench.dispatcher.errors, bench.dispatcher.stopping) == ([1], [], "the night")


def test_a_run_that_follows_sleeps_until_it_asks_again(bench: Limited) -> None:
    """It does not look for rows that it could not plan. After a stop, gathered rows wait for the next run."""
    following = Follower(every=1.0, again=lambda source, offsets: source, now=0.0)
    following.gathering["0"] = 0.0
    bench.dispatcher.planning.following = following
    assert bench.dispatcher.patience() == 5
    bench.dispatcher.request_stop("the night")
    assert not bench.turn()
    assert bench.planned() == [("0", 1)]


def test_a_run_asks_before_its_first_batch() -> None:
    """Earlier runs may have left too many refused rows, and the store may be unavailable."""
    bench = Limited()
    bench.dispatcher.budget.ask_first(bench.dispatcher.clock.elapsed())
    assert bench.turn()
    assert (bench.planned(), bench.asked) == ([], [0])
    bench.answer = None
    bench.sleep()
    bench.turn()
    assert bench.planned() == [("0", 1)]
