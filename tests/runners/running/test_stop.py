"""Stopping through the ledger, heard beside the dispatcher."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest

from runners.model.entry import Entry
from runners.running.stop import ask_to_stop, force_in_time
from runners.state.ledger import LedgerError
from tests.manual_clock import ManualClock
from tests.runners.engine.test_dispatcher import Bench, Going, Resting
from tests.runners.state.ledger.memory_ledger import MemoryLedger


def waits(event: threading.Event) -> bool:
    """Whether it comes; a minute is for ever."""
    return event.wait(60)


@pytest.mark.promise("CD-34")
def test_a_forced_stop_is_heard_while_a_batch_is_carried() -> None:
    """Though the dispatcher waits for it; what is in flight is cancelled, and the reason is the one that was given."""
    bench, cancelled = Bench(), threading.Event()
    bench.turn()
    with force_in_time(bench.ledger, bench.dispatcher, cancelled.set, every=0.001):
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
    with force_in_time(ledger, bench.dispatcher, cancelled.set, every=0.001):
        ask_to_stop(bench.ledger, "no haste")
        assert waits(ledger.twice)
    assert not cancelled.is_set()
    assert not bench.dispatcher.forced


def test_a_forced_stop_is_heard_though_what_is_done_beside_fails() -> None:
    """Each time that it is called."""
    bench, cancelled = Bench(), threading.Event()
    bench.turn()

    def fail() -> None:
        if not failed.is_set():
            failed.set()
            raise RuntimeError("can't start new thread")

    failed = threading.Event()
    with force_in_time(bench.ledger, bench.dispatcher, cancelled.set, every=0.001, beside=fail):
        assert waits(failed)
        ask_to_stop(bench.ledger, "fire", force=True)
        assert waits(cancelled)


def test_nobody_is_asked_where_nobody_runs_it() -> None:
    """Nothing is written then."""
    ledger = MemoryLedger()
    assert ask_to_stop(ledger, "fire", force=True).owner is None
    assert ledger.read() == []


class Watched(MemoryLedger):
    """A ledger that counts how often it was looked into beside the dispatcher."""

    def __init__(self, bench: Bench) -> None:
        super().__init__()
        self._entries = bench.ledger._entries
        self.looks = 0
        self.looked = threading.Condition()

    def read(self, after: int = 0) -> list[Entry]:
        if threading.current_thread().name == "wherry-force":
            with self.looked:
                self.looks += 1
                self.looked.notify_all()
        return super().read(after)

    def looks_twice(self) -> None:
        """Wait until what is so now was certainly seen."""
        with self.looked:
            enough = self.looks + 2
            assert self.looked.wait_for(lambda: self.looks >= enough, timeout=60)


def writing() -> Bench:
    """A run whose batch is being processed."""
    bench = Bench()
    bench.turn()
    return bench


def backing_off() -> Bench:
    """A run whose batch rests."""
    bench = Resting()
    bench.turn()
    bench.turn("0")
    return bench


def idle() -> Bench:
    """A run that goes on, and has nothing to do."""
    run = Going()
    run.turn()
    return run


def planning() -> Bench:
    """A run that has not planned yet."""
    return Bench()


@pytest.mark.promise("CD-34")
@pytest.mark.parametrize("busy", [writing, backing_off, idle, planning])
@pytest.mark.parametrize("asked", ["here", "through the ledger"])
def test_a_stop_is_forced_when_its_time_is_over(busy: Callable[[], Bench], asked: str) -> None:
    """Not before; the reason is the first one, no offset is committed for what is in flight, and the run ends."""
    bench, cancelled = busy(), threading.Event()
    clock = bench.dispatcher.clock
    assert isinstance(clock, ManualClock)
    ledger = Watched(bench)
    settled = bench.settled()
    with force_in_time(ledger, bench.dispatcher, cancelled.set, every=0.001, drain=60 if asked == "here" else 0):
        if asked == "here":
            bench.dispatcher.request_stop("the night")
        else:
            ask_to_stop(bench.ledger, "the night", within=60)
        ledger.looks_twice()
        clock.move(59)
        ledger.looks_twice()
        assert not bench.dispatcher.forced
        clock.move(1)
        assert waits(cancelled)
    assert bench.turn() is False
    assert bench.settled() == settled


def test_without_a_deadline_a_stop_waits_for_ever() -> None:
    """As long as a batch may take."""
    bench, cancelled = writing(), threading.Event()
    ledger = Watched(bench)
    with force_in_time(ledger, bench.dispatcher, cancelled.set, every=0.001):
        bench.dispatcher.request_stop("the night")
        assert isinstance(bench.dispatcher.clock, ManualClock)
        bench.dispatcher.clock.move(1e9)
        ledger.looks_twice()
    assert (bench.dispatcher.forced, cancelled.is_set()) == (False, False)


def test_what_begins_while_it_is_cancelled_is_cancelled_too() -> None:
    """A task may ask Spark for one thing after another; a Spark that is gone is asked in vain."""
    bench, left = writing(), [3]
    done = threading.Event()

    def cancel() -> None:
        left[0] -= 1
        if left[0] == 2:
            raise ConnectionError("Spark has ended")
        if left[0] == 0:
            done.set()

    with force_in_time(bench.ledger, bench.dispatcher, cancel, every=0.001):
        bench.dispatcher.request_stop("fire", force=True)
        assert waits(done)


@pytest.mark.promise("CD-35")
def test_a_run_that_fails_has_no_deadline() -> None:
    """Nobody asked it to stop: what other lanes carry is finished, and the first error stays the first."""
    bench, cancelled = Bench(lanes=2, runners=2), threading.Event()
    bench.turn()
    bench.error = OSError("first")
    bench.turn("0")
    ledger = Watched(bench)
    with force_in_time(ledger, bench.dispatcher, cancelled.set, every=0.001, drain=1):
        assert isinstance(bench.dispatcher.clock, ManualClock)
        bench.dispatcher.clock.move(100)
        ledger.looks_twice()
    assert not bench.dispatcher.forced
    bench.error = OSError("second")
    bench.turn("1")
    assert [str(error) for error in bench.dispatcher.errors] == ["first", "second"]
