"""How one of the runs that share a pipeline reads the entries of the others."""

from __future__ import annotations

import logging
from datetime import datetime, timedelta, timezone
from pathlib import Path

import pytest

from origins.batch import JSON
from runners.engine.lane_coordination import LaneCoordination
from runners.model.entry import Entry, OwnerBody
from runners.model.errors import Fenced, Owned
from runners.state.journal import Journal, Lease
from runners.state.location import StateLocation
from runners.state.ownership import Takeover
from runners.state.process_locks import StateLock, identify_host
from tests.manual_clock import ManualClock
from tests.runners.state.ledger.memory_ledger import MemoryLedger

LANES = ("0", "1", "2", "3")
ELSEWHERE = {"host": "elsewhere", "boot": "b", "pid": 7, "started": "1", "jvm": None, "lock": "lock-x"}
SHARED = {"pipeline": "orders", "assignment": "round_robin", "hash": "h"}


class Host:
    """Processes that share a ledger. Each has a separate clock."""

    def __init__(self, folder: Path) -> None:
        self.ledger = MemoryLedger()
        self.place = StateLocation(directory=folder, schema="", name="orders")
        self.clocks: list[ManualClock] = []
        self.buried: list[OwnerBody] = []

    def comes(self, *, ready: bool = True, frees: bool = True, **who: JSON) -> LaneCoordination:
        """Return one more run. By default it is on another host."""
        clock = ManualClock(seconds=1_000.0 * len(self.clocks))
        self.clocks.append(clock)
        journal = Journal(self.ledger, Lease(clock, 60))
        taking = self.taking(clock)
        journal.acquire({**ELSEWHERE, **SHARED, **who}, may=taking.may)
        coordination = LaneCoordination(
            journal=journal,
            tenure=journal.tenure or Lease(clock, 60),
            place=self.place,
            lanes=LANES,
            definition="h",
            frees=frees,
            bury=self.buried.append,
        )
        if ready:
            coordination.begin()
        return coordination

    def taking(
        self, clock: ManualClock, assignment: str = "round_robin", definition: str = "h", take_over: str = ""
    ) -> Takeover:
        """Return the takeover of a run that wants a share."""
        return Takeover(
            pipeline="orders",
            place=self.place,
            lock=StateLock(self.place.lock.with_name("lock-new")),
            clock=clock,
            take_over=take_over,
            assignment=assignment,
            hash=definition,
        )

    def passes(self, seconds: float, *, listening: LaneCoordination | None = None) -> None:
        """Let time pass for all runs. A listening run looks at the ledger as often as it should."""
        while seconds > 0:
            step = min(seconds, 6.0)
            seconds -= step
            for clock in self.clocks:
                clock.move(step)
            if listening is not None:
                listening.read_others()


@pytest.fixture
def host(tmp_path: Path) -> Host:
    """Return a host on which no run has come yet."""
    return Host(tmp_path)


def list_lanes(coordination: LaneCoordination) -> tuple[str, ...]:
    """Return the lanes of this run, by the ledger."""
    coordination.read_others()
    return tuple(sorted(coordination.journal.state.lanes_of(coordination.view.me)))


@pytest.mark.promise("CN-27")
def test_a_run_that_is_silent_for_a_whole_lease_is_ousted(host: Host, caplog: pytest.LogCaptureFixture) -> None:
    """The lease counts from when its last entry was seen, on the listener's clock.

    A JVM that it may have left is ended.
    """
    first, second = host.comes(), host.comes()
    first.change_lanes()
    second.read_others()
    second.change_lanes()
    host.passes(59, listening=second)
    assert second.change_lanes() == []
    host.passes(2, listening=second)
    with caplog.at_level(logging.WARNING, "wherry"):
        assert second.change_lanes() == ["0", "2"]
    assert list_lanes(second) == LANES
    assert "elsewhere, process 7 is dead, or was silent for a whole lease" in caplog.text
    assert [each.owner for each in host.buried] == [first.view.me]
    with pytest.raises(Fenced):
        first.read_others()
    with pytest.raises(Fenced):
        first.journal.record(Entry(kind="stop", body={}))


def test_a_run_of_this_host_whose_lock_is_free_is_dead_at_once(host: Host) -> None:
    """The other runs do not wait for its lease."""
    lock = StateLock(host.place.lock.with_name("lock-a"))
    assert lock.acquire()
    first, second = host.comes(**vars(identify_host()), lock="lock-a"), host.comes()
    first.change_lanes()
    second.read_others()
    assert second.change_lanes() == ["1", "3"]
    lock.release()
    assert second.change_lanes() == ["0", "2"]


@pytest.mark.promise("CN-28")
def test_local_lanes_are_taken_only_by_a_run_that_may_take_them(host: Host) -> None:
    """Other runs leave them alone, even if their owner is silent for long."""
    first, second = host.comes(), host.comes(frees=False)
    first.change_lanes()
    second.read_others()
    second.change_lanes()
    host.passes(500, listening=second)
    assert second.change_lanes() == []
    told = host.comes()
    host.passes(66, listening=told)
    second.journal.renew(busy=True)
    told.read_others()
    told.change_lanes()
    assert told.journal.state.find_owner(first.view.me) is None
    assert told.journal.state.find_owner(second.view.me) is not None


def test_a_second_run_opens_after_the_first_has_opened_or_is_gone(host: Host) -> None:
    """Both have the same definition. The first run makes the tables."""
    first, second = host.comes(ready=False), host.comes(ready=False)
    assert (first.may_open, second.may_open) == (True, False)
    first.journal.record(Entry(kind="open", body={"pipeline": "orders", "hash": "h"}))
    second.read_others()
    assert second.may_open
    third = Host(host.place.directory or Path())
    gone, waits = third.comes(ready=False), third.comes(ready=False)
    gone.journal.record(Entry(kind="release", body={"status": "failed"}))
    waits.await_opening(lambda: False)
    assert waits.may_open


def test_a_run_that_waits_for_another_to_open_renews_its_lease(host: Host) -> None:
    """It has no lanes, so it would be ousted otherwise."""
    host.comes(ready=False)
    second = host.comes(ready=False)
    began = host.clocks[1].seconds
    second.await_opening(lambda: host.clocks[1].seconds - began > 590)
    assert not second.may_open
    assert second.journal.tenure is not None
    assert second.journal.tenure.count_seconds_left() > 300


def test_a_run_that_rests_holds_no_lanes_and_has_a_longer_lease(host: Host) -> None:
    """It may be silent for long while it opens the pipeline, and other runs process its lanes."""
    first = host.comes()
    first.change_lanes()
    first.release_lanes()
    owner = first.journal.state.find_owner(first.view.me)
    assert owner is not None
    assert (list_lanes(first), owner.ready, owner.lease) == ((), False, 600)


@pytest.mark.parametrize("how", [{"definition": "another"}, {"assignment": "local_only"}, {"assignment": "single"}])
def test_only_runs_of_one_definition_share(host: Host, how: dict[str, str]) -> None:
    """A run with another definition or assignment is refused like any second run."""
    host.comes()
    clock = ManualClock(time=ManualClock().time.replace(year=2020))
    with pytest.raises(Owned, match="elsewhere, process 7"):
        Journal(host.ledger).acquire({**ELSEWHERE, **SHARED}, may=host.taking(clock, **how).may)


def test_a_run_that_comes_when_all_others_are_dead_starts_fresh(host: Host) -> None:
    """A stop that was meant for the dead runs does not stop it."""
    lock = StateLock(host.place.lock.with_name("lock-a"))
    assert lock.acquire()
    first = host.comes(**vars(identify_host()), lock="lock-a")
    first.change_lanes()
    first.journal.record(Entry(kind="stop", body={"reason": "the night"}))
    lock.release()
    second = host.comes()
    assert (len(second.journal.state.owners), second.journal.state.stopping) == (1, "")
    assert second.change_lanes() == list(LANES)


def test_a_stop_reaches_all_runs_and_ends_with_the_last(host: Host) -> None:
    """The first run to leave does not end the stop."""
    first, second = host.comes(), host.comes()
    first.read_others()
    first.journal.record(Entry(kind="stop", body={"reason": "the night"}))
    first.journal.record(Entry(kind="release", body={"status": "stopped"}))
    second.read_others()
    assert second.journal.state.stopping == "the night"
    second.journal.record(Entry(kind="release", body={"status": "stopped"}))
    assert second.journal.state.stopping == ""


@pytest.mark.promise("CN-28")
def test_local_lanes_of_a_dead_owner_are_refused_to_a_run_without_take_over(host: Host) -> None:
    """The error names the owner of the lanes, and has a hint."""
    local = {"assignment": "local_only"}
    dead = Journal(host.ledger, Lease(ManualClock(), 60))
    host.place.lock.with_name("lock-x").touch()
    dead.acquire({**ELSEWHERE, **vars(identify_host()), "pipeline": "orders", **local, "hash": "h"})
    dead.record(Entry(kind="take", body={"lanes": ["0", "3"]}))
    clock = ManualClock()
    with pytest.raises(
        Owned, match=r"Lanes 0, 3 of orders belong to .* no other run takes them over by itself"
    ) as refused:
        Journal(host.ledger).acquire(SHARED, may=host.taking(clock, **local).may)
    assert "--take-over" in str(refused.value.hint)
    taker = Journal(host.ledger)
    assert len(taker.acquire(SHARED, may=host.taking(clock, **local, take_over="it burned").may)) == 1
    assert taker.state.held == {}


def test_no_run_joins_runs_that_are_asked_to_stop(host: Host) -> None:
    """It waits for them, but not for a run that is silent for a lease.

    The stop does not reach a run that comes later.
    """
    asked = host.comes()
    asked.journal.record(Entry(kind="stop", body={"reason": "enough"}))
    clock = ManualClock()
    with pytest.raises(Owned, match="is running on another host"):
        Journal(host.ledger).acquire(SHARED, may=host.taking(clock).may)
    clock = ManualClock(time=datetime.now(timezone.utc) + timedelta(minutes=2))
    taker = Journal(host.ledger)
    assert len(taker.acquire({**ELSEWHERE, **SHARED}, may=host.taking(clock).may)) == 1
    assert (taker.state.stopping, len(taker.state.owners)) == ("", 1)


def test_a_silent_owner_that_keeps_its_lanes_is_known(host: Host) -> None:
    """A run that ends without these lanes can then report it."""
    silent, other = host.comes(frees=False), host.comes(frees=False, host="third")
    silent.change_lanes()
    other.read_others()
    other.change_lanes()
    assert other.left is None
    host.passes(61, listening=other)
    other.change_lanes()
    assert other.left is not None
    assert other.left.owner == silent.journal.owner


def test_no_run_waits_for_a_following_run_without_rows_to_open(host: Host) -> None:
    """That run opens the pipeline when rows come, and processes them."""
    first = host.comes(ready=False, follow=True)
    second = host.comes(host="third")
    assert not second.has_nothing_to_open
    first.begin()
    second.await_opening(lambda: host.clocks[-1].elapsed() > 2_000)
    assert second.has_nothing_to_open
    assert host.clocks[-1].elapsed() < 2_000
