"""Stopping through the ledger, heard beside the dispatcher."""

from __future__ import annotations

import threading

import pytest

from runners.entry import Entry
from runners.ledger import LedgerError
from runners.memory_ledger import MemoryLedger
from runners.stopping import ask_to_stop, ledger_forces
from tests.runners.test_dispatcher import Bench


def waits(event: threading.Event) -> bool:
    """Whether it comes; a minute is for ever."""
    return event.wait(60)


@pytest.mark.promise("CD-34")
def test_a_forced_stop_is_heard_while_a_batch_is_carried() -> None:
    """Though the dispatcher waits for it; what is in flight is cancelled, and the reason is the one that was given."""
    bench, cancelled = Bench(), threading.Event()
    bench.turn()
    with ledger_forces(bench.ledger, bench.dispatcher, cancelled.set, every=0.001):
        ask_to_stop(bench.ledger, "fire", force=True)
        assert waits(cancelled)
    assert (bench.dispatcher.forced, bench.dispatcher.asked_to_stop) == (True, "fire")
    assert bench.turn() is False


def test_a_stop_that_is_not_forced_cancels_nothing() -> None:
    """Nor does one that an earlier run was asked for, or a look that fails."""

    class Looked(MemoryLedger):
        looks = 0
        twice = threading.Event()

        def read(self, after: int = 0) -> list[Entry]:
            if threading.current_thread().name == "wherry-force":
                self.looks += 1
                if self.looks == 1:
                    raise LedgerError("the disk is away")
                if self.looks == 3:
                    self.twice.set()
            return super().read(after)

    bench, ledger, cancelled = Bench(), Looked(), threading.Event()
    ledger._entries = bench.ledger._entries
    ask_to_stop(bench.ledger, "an earlier one", force=True)
    bench.journal.refresh()
    with ledger_forces(ledger, bench.dispatcher, cancelled.set, every=0.001):
        ask_to_stop(bench.ledger, "no haste")
        assert waits(ledger.twice)
    assert not cancelled.is_set()
    assert not bench.dispatcher.forced


def test_nobody_is_asked_where_nobody_runs_it() -> None:
    """Nothing is written then."""
    ledger = MemoryLedger()
    assert ask_to_stop(ledger, "fire", force=True).owner is None
    assert ledger.read() == []
