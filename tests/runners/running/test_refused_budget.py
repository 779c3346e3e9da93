"""A limit for the refused rows that wait."""

from __future__ import annotations

from runners.model.errors import BudgetExceeded
from runners.running.refused_budget import RefusedBudget


class Queue:
    """A DLQ in which so many rows wait, and how often it was counted."""

    def __init__(self, waiting: int) -> None:
        self.waiting = waiting
        self.counted = 0

    def count(self) -> int:
        self.counted += 1
        return self.waiting


def test_what_waits_is_counted_once_and_then_added_up() -> None:
    """However many batches follow."""
    queue = Queue(3)
    budget = RefusedBudget(10, queue.count)
    assert [budget.check(rows) for rows in (0, 1, 2, 4)] == [None] * 4
    assert queue.counted == 1


def test_more_than_the_budget_stops_the_run_with_the_number_of_rows() -> None:
    """And with what to type. The queue is counted again before."""
    queue = Queue(3)
    budget = RefusedBudget(4, queue.count)
    assert budget.check() is None
    queue.waiting = 5
    over = budget.check(2)
    assert isinstance(over, BudgetExceeded)
    assert "5 refused rows wait in the DLQ, and dlq.budget is 4" in over.message
    assert ("wherry dlq replay FILE" in over.hint, "wherry dlq discard FILE" in over.hint) == (True, True)


def test_rows_that_were_discarded_meanwhile_count_no_more() -> None:
    """The run goes on."""
    queue = Queue(3)
    budget = RefusedBudget(4, queue.count)
    budget.check()
    queue.waiting = 2
    assert (budget.check(2), queue.counted) == (None, 2)


def test_exactly_the_budget_is_allowed() -> None:
    """The next row is too many."""
    assert RefusedBudget(4, Queue(4).count).check() is None
    assert RefusedBudget(4, Queue(5).count).check() is not None
