"""What the journal of an owner keeps in memory."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from runners.model.entry import Entry, Settled
from runners.model.errors import Fenced
from runners.state.journal import Journal
from tests.runners.state.ledger.memory_ledger import MemoryLedger
from tests.runners.state.ledger.test_progress import PLANNED, make_settle_entry


class Counting(MemoryLedger):
    """A ledger that counts how often its history is read."""

    def __init__(self) -> None:
        super().__init__()
        self.reads = 0

    def history(self, since: str = "") -> Iterator[Settled]:
        self.reads += 1
        return super().history(since)


def test_the_history_is_read_only_once() -> None:
    """This is also true if batches are settled and compacted meanwhile. Each batch is listed once."""
    ledger = Counting()
    journal = Journal(ledger)
    journal.acquire({"pipeline": "orders"})
    assert journal.list_settled() == []
    journal.record(PLANNED)
    journal.record(make_settle_entry())
    assert [each.plan for each in journal.list_settled()] == ["p1"]
    journal.compact(every=1)
    assert [each.plan for each in journal.list_settled()] == ["p1"]
    assert ledger.reads == 1


def test_a_history_that_another_journal_compacted_is_read_again() -> None:
    """The batch is only in the history, and no entry mentions it."""
    ledger = Counting()
    journal = Journal(ledger)
    journal.acquire({"pipeline": "orders"})
    assert journal.list_settled() == []
    other = Journal(ledger)
    other.owner = journal.owner
    other.record(PLANNED)
    other.record(make_settle_entry())
    other.compact(every=1)
    journal.record(Entry(kind="stop", body={"reason": "x"}))
    assert [each.plan for each in journal.list_settled()] == ["p1"]


def test_an_owner_that_was_fenced_records_nothing_more() -> None:
    """It has read the end since, so it could otherwise release the pipeline of the new owner."""
    ledger = MemoryLedger()
    first, second = Journal(ledger), Journal(ledger)
    first.acquire({"pipeline": "orders"})
    second.catch_up()
    second.acquire({"pipeline": "orders"})
    with pytest.raises(Fenced):
        first.refresh()
    with pytest.raises(Fenced):
        first.record(Entry(kind="release", body={"status": "failed"}))
    second.refresh()
