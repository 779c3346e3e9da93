"""The budget: a limit for waiting refused rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import NoReturn

import pytest
from pyspark.errors import PySparkException

from destinations.delta.delta import Delta
from runners.model.entry import Entry
from runners.model.errors import BudgetExceeded
from runners.running.refused_budget import RefusedBudget, WaitingRows, count_undecided
from runners.state.journal import Journal
from tests.runners.state.ledger.memory_ledger import MemoryLedger


def make_settle_entry(refused: int, **more: int) -> list[Entry]:
    """Return the entry of a batch with this many refused rows."""
    counts = {"read": 9, "nacked": refused, "branches": {}, "stages": [], "delivered": {}, "discarded": 0}
    body = {
        "offset": 1,
        "counts": {**counts, **more, "balanced": True},
        "window": {"rows": 0, "nacks": []},
        "clean": 0,
        "owed": [],
    }
    return [Entry(kind="settle", plan="p", body=body)]


class Queue:
    """A DLQ with this many waiting rows. It records how often it was counted."""

    def __init__(self, waiting: int) -> None:
        self.waiting = waiting
        self.counted = 0

    def count(self, settled: Sequence[Entry]) -> int:
        self.counted += 1
        return self.waiting

    def limit(self, rows: int) -> RefusedBudget:
        return RefusedBudget(rows, self.count)


def test_waiting_rows_are_counted_once_and_then_added() -> None:
    """Later batches only add their rows."""
    queue = Queue(3)
    budget = queue.limit(10)
    assert [budget.check(make_settle_entry(rows)) for rows in (0, 1, 2, 4)] == [None] * 4
    assert queue.counted == 1


def test_more_rows_than_the_budget_stop_the_run() -> None:
    """The error has the number of rows and the commands to type. The queue is counted again first."""
    queue = Queue(3)
    budget = queue.limit(4)
    assert budget.check() is None
    queue.waiting = 5
    over = budget.check(make_settle_entry(2))
    assert isinstance(over, BudgetExceeded)
    assert "5 refused rows wait in the DLQ, and dlq.budget is 4" in over.message
    assert ("wherry dlq replay FILE" in over.hint, "wherry dlq discard FILE" in over.hint) == (True, True)
    assert "budget: 10}" in over.hint


def test_rows_are_counted_again_after_an_error() -> None:
    """The ledger then has the rows that the failed check did not add."""
    answers: list[int | TimeoutError] = [3, TimeoutError("away"), 5]

    def count(settled: Sequence[Entry]) -> int:
        if isinstance(answer := answers.pop(0), TimeoutError):
            raise answer
        return answer

    budget = RefusedBudget(4, count)
    budget.check()
    with pytest.raises(TimeoutError):
        budget.check(make_settle_entry(2))
    assert isinstance(budget.check(), BudgetExceeded)


def test_rows_discarded_during_the_run_no_longer_count() -> None:
    """The run continues."""
    queue = Queue(3)
    budget = queue.limit(4)
    budget.check()
    queue.waiting = 2
    assert (budget.check(make_settle_entry(2)), queue.counted) == (None, 2)


def refuse_spark() -> NoReturn:
    raise AssertionError("a DLQ on this machine is read without Spark")


def test_a_broken_dlq_beside_a_fallback_counts_as_empty(tmp_path: Path) -> None:
    """This holds also if only Spark can read it and raises an error."""

    def fail() -> NoReturn:
        raise PySparkException("the catalog does not answer")

    alone = WaitingRows(dlq=Delta(table="a.b"), fallback=None, spark=fail, journal=Journal(MemoryLedger()))
    beside = replace(alone, fallback=Delta(path=str(tmp_path)))
    assert RefusedBudget(5, beside.count).check() is None
    with pytest.raises(PySparkException):
        RefusedBudget(5, alone.count).check()


def test_rows_are_not_read_if_none_was_decided() -> None:
    """Their number is then known."""
    assert count_undecided(3, Delta(table="a.b"), refuse_spark, Journal(MemoryLedger())) == 3


def test_exactly_the_budget_is_allowed() -> None:
    """One row more exceeds it."""
    assert Queue(4).limit(4).check() is None
    assert Queue(5).limit(4).check() is not None
