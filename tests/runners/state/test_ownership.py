"""When a run may take a pipeline: it has no owner, its owner is dead, or its owner was silent for a whole lease."""

from __future__ import annotations

import logging
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest

from origins.batch import JSON
from runners.model.clock import Clock
from runners.model.entry import Entry
from runners.model.errors import Fenced, Owned
from runners.state.delta_ledger import DeltaLedger
from runners.state.journal import Journal, Lease
from runners.state.location import StateLocation
from runners.state.ownership import Takeover, is_run
from runners.state.process_locks import StateLock, identify_host, lock_path
from tests.manual_clock import ManualClock
from tests.runners.state.ledger.memory_ledger import MemoryLedger

ELSEWHERE = {"host": "elsewhere", "boot": "b", "pid": 7, "started": "1", "jvm": None, "lock": "lock"}
ROOT = Path(__file__).parents[3]
OWNER = """
import sys, time
from pathlib import Path
from runners.model.clock import Clock
from runners.state.delta_ledger import DeltaLedger
from runners.model.errors import Fenced
from runners.state.journal import Journal
from runners.state.process_locks import StateLock, identify_host
from runners.state.journal import Lease

folder = Path(sys.argv[1])
lock = StateLock(folder / "lock")
assert lock.acquire()
journal = Journal(DeltaLedger(folder / "ledger"), Lease(Clock(), 1))
journal.acquire({**vars(identify_host()), "pipeline": "orders", "lock": "lock"})
journal.renew(busy=True)
print("mine", flush=True)
try:
    while True:
        time.sleep(0.1)
        journal.renew(busy=True)
except Fenced as error:
    print(error.code)
"""
MINUTES = timedelta(minutes=1)


class Waiting(ManualClock):
    """A clock that calls a function at a given second of a wait."""

    def __init__(self, ahead: timedelta = timedelta()) -> None:
        super().__init__(time=datetime.now(timezone.utc) + ahead)
        self.happens: dict[int, Callable[[], object]] = {}

    def wait(self, seconds: float) -> None:
        super().wait(seconds)
        self.happens.pop(round(self.seconds), lambda: None)()


class Shop:
    """A ledger with an owner, and other runs that want the pipeline."""

    def __init__(self, folder: Path, *, schema: str = "") -> None:
        self.ledger = MemoryLedger()
        self.place = StateLocation(directory=None if schema else folder, schema=schema, name="orders")
        self.clock = Waiting()
        self.locks: list[StateLock] = []

    def owner(self, lease: float = 60, **who: JSON) -> Journal:
        """Return the journal of an owner, with a lease of so many seconds for work in flight."""
        clock = ManualClock(seconds=123)
        journal = Journal(self.ledger, Lease(clock, lease))
        journal.acquire({"pipeline": "orders", **ELSEWHERE, **who})
        journal.renew(busy=True)
        return journal

    def locked(self, name: str = "lock") -> StateLock:
        """Return a lock that is held."""
        lock = StateLock(self.place.lock.with_name(name))
        assert lock.acquire()
        return lock

    def taker(self, name: str = "lock", take_over: str = "") -> Takeover:
        """Return the takeover of a run that wants the pipeline, with this lock."""
        lock = StateLock(self.place.lock.with_name(name))
        lock.acquire()
        return Takeover(pipeline="orders", place=self.place, lock=lock, clock=self.clock, take_over=take_over)

    def takes(self, taking: Takeover | None = None) -> Journal:
        """Take the pipeline, or raise."""
        journal = Journal(self.ledger, Lease(ManualClock(), 60))
        journal.acquire({"pipeline": "orders", **ELSEWHERE, "host": "here", "pid": 8}, may=(taking or self.taker()).may)
        return journal


@pytest.fixture
def shop(tmp_path: Path) -> Shop:
    """Return a shop with a state in a directory."""
    return Shop(tmp_path)


def pass_an_hour(shop: Shop) -> None:
    """Move the clock to an hour later."""
    shop.clock.time += 60 * MINUTES


@pytest.mark.promise("CN-20")
def test_a_second_run_is_refused_with_the_owner_and_its_start(shop: Shop) -> None:
    """It is refused at once while the lease is not over by the time of day. It records nothing."""
    owner = shop.owner()
    with pytest.raises(Owned) as refused:
        shop.takes()
    since = owner.state.owner.at if owner.state.owner else ""
    assert f"is running on another host: elsewhere, process 7, since {since}" in str(refused.value)
    assert owner.state.owner is not None
    assert owner.state.owner.heard_at in str(refused.value)
    assert shop.clock.seconds == 0
    owner.record(Entry(kind="stop", body={}))


@pytest.mark.promise("CN-20", "CN-23")
def test_a_pipeline_is_taken_after_a_whole_lease_of_silence(shop: Shop, caplog: pytest.LogCaptureFixture) -> None:
    """The taker waits by its clock, even if the lease ended long ago by the time of day."""
    owner = shop.owner(lease=60)
    pass_an_hour(shop)
    with caplog.at_level(logging.WARNING, "wherry"):
        shop.takes()
    assert shop.clock.seconds == 60
    assert "belongs to elsewhere, process 7, which was last heard at" in caplog.text
    with pytest.raises(Fenced, match="took this pipeline over: here, process 8"):
        owner.renew(busy=True)


@pytest.mark.parametrize("second", [1, 59, 60])
def test_one_entry_of_the_owner_is_enough_to_refuse_a_taker(shop: Shop, second: int) -> None:
    """This is true up to the last moment of the lease."""
    owner = shop.owner(lease=60)
    pass_an_hour(shop)
    shop.clock.happens[second] = lambda: owner.renew(busy=True)
    with pytest.raises(Owned, match="elsewhere, process 7"):
        shop.takes()
    assert shop.clock.seconds == second


def test_entries_of_other_processes_do_not_count_for_the_owner(shop: Shop) -> None:
    """Any process may ask a dead run to stop."""
    owner = shop.owner(lease=60)
    pass_an_hour(shop)
    stop = Entry(kind="stop", body={"reason": "please"})
    shop.clock.happens[30] = lambda: shop.ledger.append([stop], after=owner.state.seq)
    shop.takes()
    assert shop.clock.seconds == 60


def test_an_idle_owner_has_a_longer_lease(shop: Shop) -> None:
    """Its lease is ten times as long."""
    owner = shop.owner(lease=60)
    owner.renew(busy=False)
    pass_an_hour(shop)
    shop.takes()
    assert shop.clock.seconds == 600


@pytest.mark.promise("CN-24")
def test_an_owner_that_records_an_entry_after_the_wait_keeps_the_pipeline(shop: Shop) -> None:
    """The entry comes after the wait, while Spark starts. The append of the taker meets it."""
    owner = shop.owner()
    pass_an_hour(shop)
    taking, journal = shop.taker(), Journal(shop.ledger)
    taking.may(journal)
    owner.renew(busy=True)
    with pytest.raises(Owned):
        journal.acquire({"pipeline": "orders", **ELSEWHERE}, may=taking.may)
    owner.renew(busy=True)


@pytest.mark.promise("CN-20")
def test_a_dead_owner_on_this_host_is_replaced_at_once(shop: Shop) -> None:
    """Its free lock proves that it is dead, even if its last entry is recent."""
    shop.owner(**vars(identify_host()))
    shop.takes()
    assert shop.clock.seconds == 0


def test_a_taker_waits_for_a_frozen_owner_on_this_host(shop: Shop) -> None:
    """The owner still has its lock. The taker has another lock, which later proves whether the taker is dead."""
    held, me = shop.locked(), vars(identify_host())
    shop.owner(**me)
    second = shop.taker("lock-2")
    with pytest.raises(Owned, match="already on this host: process"):
        second.may(Journal(shop.ledger))
    pass_an_hour(shop)
    journal = Journal(shop.ledger, Lease(ManualClock(), 60))
    journal.acquire({"pipeline": "orders", **ELSEWHERE, **me, "lock": "lock-2"}, may=second.may)
    assert shop.clock.seconds == 60
    assert is_run(journal.state, shop.place, ManualClock(time=datetime.now(timezone.utc)))
    second.lock.release()
    held.release()
    shop.takes(shop.taker("lock"))
    assert shop.clock.seconds == 60


def test_the_wait_ends_when_the_owner_dies(shop: Shop) -> None:
    """Its lock is free then."""
    held = shop.locked()
    shop.owner(**vars(identify_host()))
    pass_an_hour(shop)
    shop.clock.happens[5] = held.release
    shop.takes(shop.taker("lock-2"))
    assert shop.clock.seconds == 5


def test_a_run_that_is_starting_on_this_host_keeps_the_pipeline(shop: Shop) -> None:
    """The lock is held, but the pipeline has no owner yet."""
    shop.locked()
    with pytest.raises(Owned, match="already on this host"):
        shop.takes(shop.taker("lock-2"))
    assert shop.ledger.read() == []


def test_a_forced_takeover_takes_the_pipeline_from_another_host_at_once(shop: Shop) -> None:
    """It does not wait. It does not take the pipeline from a live run on this host."""
    shop.owner()
    shop.takes(shop.taker(take_over="the house burned down"))
    assert shop.clock.seconds == 0
    held = shop.locked("lock-3")
    Journal(shop.ledger, Lease(ManualClock(), 60)).acquire({**ELSEWHERE, **vars(identify_host()), "lock": "lock-3"})
    with pytest.raises(Owned, match="already on this host"):
        shop.takes(shop.taker("lock-4", take_over="the house burned down"))
    held.release()


def test_a_lock_name_that_two_hosts_have_proves_nothing(tmp_path: Path) -> None:
    """With a state in a catalog each host has a separate lock. A free lock here says nothing about the other host."""
    shop = Shop(tmp_path, schema="main.wherry")
    path = lock_path(str(shop.place))
    path.unlink(missing_ok=True)
    here: dict[str, Any] = {**vars(identify_host()), "boot": "another", "lock": path.name}
    shop.owner(**here)
    for _ in range(2):  # at first the file is missing, and then this test has it
        with pytest.raises(Owned):
            shop.takes(shop.taker(path.name))


def test_a_live_owner_with_another_temporary_folder_is_not_replaced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its lock is another file with the same name. It does not matter whether the taker holds its lock."""
    first = use_temporary(tmp_path / "first", monkeypatch)
    shop = Shop(tmp_path, schema="main.wherry")
    held = shop.locked(lock_path(str(shop.place)).name)
    owner = shop.owner(**vars(identify_host()), lock=held.path.name, lock_file=held.identity)
    second = use_temporary(tmp_path / "second", monkeypatch)
    mine = shop.taker(held.path.name)
    assert (held.path.parent.parent, mine.lock.path.parent.parent) == (first, second)
    with pytest.raises(Owned):
        mine.may(Journal(shop.ledger))
    mine.lock.release()
    assert is_run(owner.state, shop.place, shop.clock)
    held.release()


def test_a_dead_owner_of_a_catalog_state_on_this_host_is_replaced_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its lock file is free, or held by the taker."""
    use_temporary(tmp_path / "temporary", monkeypatch)
    shop = Shop(tmp_path, schema="main.wherry")
    name = lock_path(str(shop.place)).name
    left = shop.locked(name)
    owner = shop.owner(**vars(identify_host()), lock=name, lock_file=left.identity)
    left.release()
    assert not is_run(owner.state, shop.place, shop.clock)
    shop.takes(shop.taker(name))
    assert shop.clock.seconds == 0


def test_an_owner_of_a_catalog_state_without_a_recorded_lock_file_is_not_replaced_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its lock is known only by its name, which proves nothing."""
    use_temporary(tmp_path / "temporary", monkeypatch)
    shop = Shop(tmp_path, schema="main.wherry")
    name = lock_path(str(shop.place)).name
    shop.owner(**vars(identify_host()), lock=name)
    pass_an_hour(shop)
    shop.takes(shop.taker(name))
    assert shop.clock.seconds == 60


def use_temporary(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Put temporary files into this folder from now on."""
    folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    return folder


def test_a_deleted_lock_file_proves_nothing(tmp_path: Path) -> None:
    """Temporary folders are cleaned, even during a run."""
    shop = Shop(tmp_path, schema="main.wherry")
    journal = shop.owner(**vars(identify_host()), lock="wherry-that-was-cleaned.lock", lock_file="1:2")
    assert is_run(journal.state, shop.place, shop.clock)


def test_an_owner_of_an_older_version_is_never_replaced(shop: Shop) -> None:
    """It recorded no lease, so no wait can be long enough."""
    journal = Journal(shop.ledger)
    journal.acquire({"pipeline": "orders", **ELSEWHERE})
    pass_an_hour(shop)
    with pytest.raises(Owned, match="elsewhere"):
        shop.takes()
    assert shop.clock.seconds == 0


@pytest.mark.promise("CN-22")
def test_an_owner_that_leaves_ownership_to_its_scheduler_is_replaced_at_once(shop: Shop) -> None:
    """It has no lease and no lock. The scheduler must prevent a second run."""
    journal = Journal(shop.ledger)
    journal.acquire({"pipeline": "orders", **ELSEWHERE, "ownership": "off", "lock": None})
    shop.takes()
    assert shop.clock.seconds == 0


@pytest.mark.promise("CN-20", "CN-21")
def test_a_frozen_process_loses_its_lease_and_can_record_nothing(tmp_path: Path) -> None:
    """The process, the ledger and the clock are real. The process still has its lock, and a lease of one second."""
    place, ledger = StateLocation(directory=tmp_path, schema="", name="orders"), DeltaLedger(tmp_path / "ledger")
    command = [sys.executable, "-c", OWNER, str(tmp_path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=ROOT) as owner:
        assert owner.stdout is not None
        assert owner.stdout.readline() == "mine\n"
        lock, clock = StateLock(tmp_path / "lock-2"), Clock()
        lock.acquire()
        with pytest.raises(Owned):
            Takeover(pipeline="orders", place=place, lock=lock, clock=clock).may(Journal(ledger))
        owner.send_signal(signal.SIGSTOP)
        clock.wait(1.5)
        taken = Journal(ledger, Lease(clock, 60))
        taking = Takeover(pipeline="orders", place=place, lock=lock, clock=clock)
        taken.acquire({**vars(identify_host()), "pipeline": "orders", "lock": "lock-2"}, may=taking.may)
        owner.send_signal(signal.SIGCONT)
        said = owner.communicate()[0]
    lock.release()
    assert said == "FENCED\n"
    assert [entry.owner for entry in ledger.read(taken.state.seq)] == []


@pytest.mark.parametrize(
    ("who", "silent", "alive"),
    [
        ({}, 59, True),
        ({}, 61, False),
        ({**vars(identify_host()), "lock": "lock"}, 0, False),
        ({**vars(identify_host()), "lock": "lock-swept"}, 0, True),
        ({"ownership": "off"}, 10_000, True),
        ({**vars(identify_host()), "ownership": "off", "started": "1"}, 0, False),
        ({**vars(identify_host()), "ownership": "off"}, 10_000, True),
    ],
)
def test_whether_a_pipeline_runs_is_known_without_a_wait(
    shop: Shop, who: dict[str, JSON], silent: float, alive: bool
) -> None:
    """Its lock, its process or its last entry show it. The result is only shown, and never decides a takeover."""
    journal = shop.owner(**who)
    shop.place.lock.touch()
    shop.clock.move(silent)
    assert is_run(journal.state, shop.place, shop.clock) is alive
