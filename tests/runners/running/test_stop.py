"""A stop through the ledger, which a thread beside the dispatcher reads."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest

from runners.model.entry import Entry
from runners.running.stop import (
    ENDED,
    FORCED_AT_ONCE,
    FORCED_SOON,
    LEAVE,
    PATIENCE,
    ask_to_stop,
    call_when_forced,
    finish_unless,
    force_in_time,
    is_forced_for,
)
from runners.state.ledger import LedgerError
from runners.state.progress import apply_entries
from tests.manual_clock import ManualClock
from tests.runners.engine.test_dispatcher import Bench, Going, Resting
from tests.runners.state.ledger.memory_ledger import MemoryLedger


def wait_for(event: threading.Event) -> bool:
    """Whether the event comes within a minute."""
    return event.wait(60)


@pytest.mark.promise("CD-34")
def test_a_forced_stop_is_noticed_while_a_batch_is_processed() -> None:
    """The dispatcher is waiting for the batch. The batch is cancelled, and the given reason is kept."""
    bench, cancelled = Bench(), threading.Event()
    bench.turn()
    with force_in_time(bench.ledger, bench.dispatcher, cancelled.set, every=0.001):
        ask_to_stop(bench.ledger, "fire", force=True)
        assert wait_for(cancelled)
    assert (bench.dispatcher.forced, bench.dispatcher.asked_to_stop) == (True, "fire")
    assert bench.turn() is False


def test_a_stop_that_is_not_forced_cancels_nothing() -> None:
    """A stop of an earlier run, and an error while reading the ledger, cancel nothing either."""

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
        assert wait_for(ledger.twice)
    assert not cancelled.is_set()
    assert not bench.dispatcher.forced


def test_a_stop_of_a_pipeline_that_is_not_running_has_no_effect() -> None:
    """Nothing is written to the ledger."""
    ledger = MemoryLedger()
    assert ask_to_stop(ledger, "fire", force=True).owner is None
    assert ledger.read() == []


def test_the_state_knows_a_forced_stop_until_the_run_has_ended() -> None:
    """A later stop that is not forced does not change that."""
    bench = make_writing()
    ask_to_stop(bench.ledger, "the night")
    assert not apply_entries(bench.ledger.read()).forced
    ask_to_stop(bench.ledger, "fire", force=True)
    ask_to_stop(bench.ledger, "no haste")
    assert apply_entries(bench.ledger.read()).forced
    bench.journal.record(Entry(kind="release", body={"status": "stopped"}))
    assert not bench.journal.state.forced


class Watched(MemoryLedger):
    """A ledger that counts how often the thread beside the dispatcher reads it."""

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

    def wait_for_two_looks(self) -> None:
        """Wait until the thread has seen the current state."""
        with self.looked:
            enough = self.looks + 2
            assert self.looked.wait_for(lambda: self.looks >= enough, timeout=60)


def make_writing() -> Bench:
    """Return a run that is processing a batch."""
    bench = Bench()
    bench.turn()
    return bench


def make_backing_off() -> Bench:
    """Return a run whose batch waits for its next attempt."""
    bench = Resting()
    bench.turn()
    bench.turn("0")
    return bench


def make_idle() -> Bench:
    """Return a run that follows its origin and has nothing to do."""
    run = Going()
    run.turn()
    return run


def make_planning() -> Bench:
    """Return a run that has not planned a batch yet."""
    return Bench()


@pytest.mark.promise("CD-34")
@pytest.mark.parametrize("busy", [make_writing, make_backing_off, make_idle, make_planning])
@pytest.mark.parametrize("asked", ["here", "through the ledger"])
def test_a_stop_is_forced_when_its_time_is_over(busy: Callable[[], Bench], asked: str) -> None:
    """It is not forced earlier. The first reason is kept, no open batch is settled, and the run ends."""
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
        ledger.wait_for_two_looks()
        clock.move(59)
        ledger.wait_for_two_looks()
        assert not bench.dispatcher.forced
        clock.move(1)
        assert wait_for(cancelled)
    assert bench.turn() is False
    assert bench.settled() == settled


def test_a_stop_without_a_deadline_is_never_forced() -> None:
    """It waits as long as the batch takes."""
    bench, cancelled = make_writing(), threading.Event()
    ledger = Watched(bench)
    with force_in_time(ledger, bench.dispatcher, cancelled.set, every=0.001):
        bench.dispatcher.request_stop("the night")
        assert isinstance(bench.dispatcher.clock, ManualClock)
        bench.dispatcher.clock.move(1e9)
        ledger.wait_for_two_looks()
    assert (bench.dispatcher.forced, cancelled.is_set()) == (False, False)


def test_spark_is_cancelled_repeatedly_until_the_task_ends() -> None:
    """A task may start several Spark jobs. An error of a cancellation is ignored."""
    bench, left = make_writing(), [3]
    done = threading.Event()

    def cancel() -> None:
        left[0] -= 1
        if left[0] == 2:
            raise ConnectionError("Spark has ended")
        if left[0] == 0:
            done.set()

    with force_in_time(bench.ledger, bench.dispatcher, cancel, every=0.001):
        bench.dispatcher.request_stop("fire", force=True)
        assert wait_for(done)


@pytest.mark.promise("CD-35")
def test_a_run_that_fails_has_no_deadline() -> None:
    """It was not asked to stop, so other lanes finish their batches. The first error stays the first."""
    bench, cancelled = Bench(lanes=2, runners=2), threading.Event()
    bench.turn()
    bench.error = OSError("first")
    bench.turn("0")
    ledger = Watched(bench)
    with force_in_time(ledger, bench.dispatcher, cancelled.set, every=0.001, drain=1):
        assert isinstance(bench.dispatcher.clock, ManualClock)
        bench.dispatcher.clock.move(100)
        ledger.wait_for_two_looks()
    assert not bench.dispatcher.forced
    bench.error = OSError("second")
    bench.turn("1")
    assert [str(error) for error in bench.dispatcher.errors] == ["first", "second"]


@pytest.mark.promise("CD-34")
def test_calls_are_cut_when_cancelled_work_does_not_end() -> None:
    """The thread that cancels may wait for Spark too, so it is left behind."""
    bench, cancelled, cut, over = make_writing(), threading.Event(), threading.Event(), threading.Event()
    clock = bench.dispatcher.clock
    assert isinstance(clock, ManualClock)

    def cancel() -> None:
        cancelled.set()
        over.wait(60)

    with force_in_time(bench.ledger, bench.dispatcher, cancel, every=0.001, cut_calls=cut.set):
        bench.dispatcher.request_stop("fire", force=True)
        assert wait_for(cancelled)
        assert not cut.is_set()
        clock.move(PATIENCE)
        assert wait_for(cut)
        clock.move(LEAVE - PATIENCE)
    over.set()


def test_a_process_hears_of_a_forced_stop() -> None:
    """The ledger may force it. After the block, the process hears of no other stop."""
    bench, heard = make_writing(), threading.Event()
    with call_when_forced(heard.set), force_in_time(bench.ledger, bench.dispatcher, lambda: None, every=0.001):
        ask_to_stop(bench.ledger, "fire", force=True)
        assert wait_for(heard)
    heard.clear()
    with force_in_time(bench.ledger, bench.dispatcher, lambda: None, every=0.001):
        pass
    assert not heard.is_set()


def test_work_that_does_not_end_in_time_is_left() -> None:
    """Other work is finished, however long it takes."""
    bench, over = make_writing(), threading.Event()
    assert isinstance(bench.dispatcher.clock, ManualClock)

    def stay() -> None:
        over.wait(60)

    assert finish_unless(lambda: False, lambda: None)
    bench.dispatcher.request_stop("fire", force=True)
    assert not is_forced_for(bench.dispatcher, LEAVE)
    bench.dispatcher.clock.move(LEAVE)
    assert not finish_unless(lambda: is_forced_for(bench.dispatcher, LEAVE), stay)
    over.set()


def test_the_parts_of_a_forced_stop_take_less_than_ten_seconds() -> None:
    """A run sees it, waits for cancelled work, waits for its threads, and ends."""
    assert FORCED_AT_ONCE <= FORCED_SOON < 10 - ENDED
    assert PATIENCE < LEAVE < ENDED
