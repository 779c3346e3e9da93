"""What an owner knows of its lease, and how it keeps the lease."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence

import pytest

from destinations.labels import Late
from runners.model.clock import Clock
from runners.model.entry import Entry
from runners.model.errors import Fenced
from runners.state.journal import Journal, Lease
from tests.manual_clock import ManualClock
from tests.runners.engine.test_dispatcher import Bench, Going
from tests.runners.state.ledger.memory_ledger import MemoryLedger
from tests.spark_errors import make_spark_error

LEASE = 60.0


class Slow(MemoryLedger):
    """A ledger that takes five seconds for each append."""

    def __init__(self, clock: ManualClock) -> None:
        super().__init__()
        self.clock = clock

    def append(self, entries: Sequence[Entry], *, after: int) -> list[Entry]:
        landed = super().append(entries, after=after)
        self.clock.move(5)
        return landed


def give_lease(bench: Bench) -> Bench:
    """Return the same run with a lease."""
    clock = bench.dispatcher.clock
    journal = Journal(bench.ledger, Lease(clock, LEASE))
    journal.acquire({"pipeline": "orders"})
    bench.journal = bench.dispatcher.journal = journal
    return bench


def move_clock(bench: Bench, seconds: float) -> Bench:
    """Return the same run after so many seconds."""
    clock = bench.dispatcher.clock
    assert isinstance(clock, ManualClock)
    clock.move(seconds)
    return bench


def list_kinds(bench: Bench, behind: int) -> list[str]:
    """Return the kinds of the entries since then."""
    return [entry.kind for entry in bench.ledger.read(behind)]


def get_tenure(bench: Bench) -> Lease:
    """Return the lease of the run."""
    assert bench.journal.tenure is not None
    return bench.journal.tenure


def test_the_clock_runs_while_the_machine_sleeps(monkeypatch: pytest.MonkeyPatch) -> None:
    """It reads the Linux clock that includes the time of sleep."""
    monkeypatch.setattr(time, "clock_gettime", {time.CLOCK_BOOTTIME: 7.0}.__getitem__)
    assert Clock().elapsed() == 7.0


def test_a_lease_counts_from_before_the_append() -> None:
    """Other processes may see the entry as soon as it is written, but not earlier."""
    clock = ManualClock(seconds=100)
    journal = Journal(Slow(clock), Lease(clock, LEASE))
    journal.acquire({"pipeline": "orders"})
    assert journal.tenure is not None
    assert (journal.tenure.until, journal.tenure.count_seconds_left()) == (700, 595)
    journal.renew(busy=True)
    assert (clock.seconds, journal.tenure.until) == (110, 165)


@pytest.mark.promise("HP-06")
def test_a_long_batch_keeps_its_lease_alive() -> None:
    """A runner works for an hour. The dispatcher wakes up after each third of a lease and renews it."""
    bench = give_lease(Bench())
    bench.turn()
    behind = bench.journal.state.seq
    for _ in range(180):
        patience = bench.dispatcher.patience()
        assert patience is not None
        move_clock(bench, patience)
        bench.turn()
        assert get_tenure(bench).count_seconds_left() == LEASE
    assert bench.dispatcher.clock.elapsed() == 3_600
    assert list_kinds(bench, behind) == ["renew"] * 180


def test_every_entry_renews_the_lease() -> None:
    """A run that settles batches often enough records no other entries."""
    bench = give_lease(Bench(rows=3))
    bench.turn()
    behind = bench.journal.state.seq
    for _ in range(2):
        move_clock(bench, 19)
        bench.turn("0")
    assert list_kinds(bench, behind) == ["settle", "plan", "settle", "plan"]
    assert get_tenure(bench).count_seconds_left() == LEASE


def test_an_idle_owner_takes_a_long_lease_and_a_short_one_with_its_next_plan() -> None:
    """An idle run that follows renews it every 200 seconds. The plan needs no additional append."""
    run = Going()
    give_lease(run)
    run.after(0, rows=3)
    move_clock(run, 1)
    run.turn("0")
    behind = run.journal.state.seq
    move_clock(run, 20)
    run.turn()
    assert (list_kinds(run, behind), get_tenure(run).count_seconds_left()) == (["renew"], 600)
    move_clock(run, 199)
    run.turn()
    assert list_kinds(run, behind) == ["renew"]
    behind = run.journal.state.seq
    run.after(1, rows=3)
    assert (list_kinds(run, behind), get_tenure(run).count_seconds_left()) == (["renew", "plan"], LEASE)
    assert run.journal.state.owner is not None
    assert run.journal.state.owner.lease == LEASE


def test_a_stop_is_noticed_when_the_lease_is_renewed_in_a_long_batch() -> None:
    """No other batch is planned then."""
    bench = give_lease(Bench())
    bench.turn()
    bench.ledger.append([Entry(kind="stop", body={"reason": "the night"})], after=bench.journal.state.seq)
    move_clock(bench, 30)
    bench.turn()
    assert bench.dispatcher.stopping == "the night"


def test_no_lease_is_renewed_while_spark_does_not_answer() -> None:
    """An owner whose work is blocked loses its pipeline, and gets an error when it continues."""
    bench = give_lease(Bench())
    bench.turn()
    behind = bench.journal.state.seq

    def frozen() -> None:
        move_clock(bench, 3_600)
        Journal(bench.ledger).acquire({"pipeline": "orders", "host": "elsewhere", "pid": 7})

    bench.dispatcher.pulse = frozen
    move_clock(bench, 30)
    with pytest.raises(Fenced, match="elsewhere, process 7"):
        bench.turn()
    assert list_kinds(bench, behind) == ["acquire"]


def test_a_run_that_lost_its_pipeline_reports_only_that_loss() -> None:
    """Its write fails because the next owner fenced it, but that is not the error that the user sees."""
    bench = give_lease(Bench())
    bench.turn()
    Journal(bench.ledger).acquire({"pipeline": "orders", "host": "elsewhere", "pid": 7})
    bench.error = make_spark_error("DELTA_METADATA_CHANGED")
    with pytest.raises(Fenced):
        bench.turn("0")
    assert bench.dispatcher.errors == []
    with pytest.raises(Late):
        get_tenure(bench).secure()


def test_a_runner_begins_no_work_before_an_expired_lease_is_renewed() -> None:
    """It wakes the dispatcher, which renews the lease at its next turn. The run still has the pipeline."""
    bench = give_lease(Bench())
    bench.turn()
    tenure = get_tenure(bench)
    woken, begun = threading.Event(), threading.Event()
    tenure.wake = woken.set
    move_clock(bench, 3_600)

    def begin() -> None:
        tenure.secure()
        begun.set()

    runner = threading.Thread(target=begin)
    runner.start()
    assert woken.wait(60)
    assert not begun.is_set()
    bench.turn()
    assert begun.wait(60)
    runner.join()


def test_a_runner_begins_no_work_after_another_run_took_the_pipeline() -> None:
    """The loss may be known before, or be noticed while the runner waits."""
    clock = ManualClock()
    tenure = Lease(clock, LEASE)
    tenure.wake = tenure.lose
    tenure.note_renewal(0, LEASE)
    clock.move(61)
    with pytest.raises(Late, match="lease ended"):
        tenure.secure()
    with pytest.raises(Late):
        tenure.secure()


def test_a_runner_with_a_fresh_lease_does_not_wait() -> None:
    """The lease is fresh while at least a quarter of it is left."""
    clock = ManualClock()
    tenure = Lease(clock, LEASE)
    tenure.wake = lambda: pytest.fail("nobody is to be woken")
    tenure.note_renewal(0, LEASE)
    for _ in range(3):
        tenure.secure()
        clock.move(15)
    tenure.secure()


def test_without_a_lease_nothing_is_renewed() -> None:
    """This is the case if a scheduler keeps a second run away."""
    bench = Bench()
    bench.turn()
    assert bench.dispatcher.patience() is None
    assert "renew" not in [entry.kind for entry in bench.ledger.read()]
    (acquired,) = [entry for entry in bench.ledger.read() if entry.kind == "acquire"]
    assert acquired.body["lease"] is None
