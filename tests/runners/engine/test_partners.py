"""Runs that share lanes plan from the rows that wait at that time, and end when they should."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from destinations.destination import Written
from origins.batch import JSON, Limits, Span
from runners.engine.batch_machine import DeliveryRules
from runners.engine.batch_planner import BatchPlanner, OriginFeed
from runners.engine.dispatcher import Dispatcher
from runners.engine.lane_coordination import LaneCoordination
from runners.engine.planning import Follower
from runners.engine.worker_pool import Finished, TaskWorkers
from runners.model.entry import Entry
from runners.model.planned_batch import BranchCounts, Counts
from runners.model.tasks import Answers, AskDestinations, Counted, Landed, Outcome, Task, WriteStraight
from runners.state.journal import Journal, Lease
from runners.state.location import StateLocation
from runners.state.ownership import Takeover
from runners.state.process_locks import StateLock
from tests.manual_clock import ManualClock
from tests.runners.state.ledger.memory_ledger import MemoryLedger

if TYPE_CHECKING:
    pass

LANES = ("0", "1")


@dataclass
class World:
    """A ledger, an origin in which rows arrive, and a table."""

    folder: Path
    ledger: MemoryLedger = field(default_factory=MemoryLedger)
    clock: ManualClock = field(default_factory=ManualClock)
    rows: dict[str, int] = field(default_factory=lambda: dict.fromkeys(LANES, 3))
    """The number of rows in each lane."""
    table: list[str] = field(default_factory=list)
    """The plans whose rows are in the table."""
    spans: list[str] = field(default_factory=list)


class Seen:
    """The rows that a run saw when it looked."""

    notices: Sequence[str] = ()

    def __init__(self, rows: dict[str, int]) -> None:
        self.rows = dict(rows)

    def take(self, lane: str, start: JSON, limits: Limits) -> Span | None:
        """Return all rows behind the offset that were seen."""
        begun, end = start or 0, self.rows[lane]
        return Span(start=start, end=end, label=f"{lane}: {begun + 1} to {end}", full=False) if begun < end else None


class Hands(TaskWorkers):
    """Runners whose tasks end when the test ends them."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.size = 8
        self.tasks: dict[str, Task] = {}
        self.over: list[Finished] = []

    def start(self, lane: str, task: Task) -> None:
        self.tasks[lane] = task

    def wait(self, _: float | None) -> Sequence[Finished]:
        over, self.over = self.over, []
        return over

    def wake(self) -> None:
        """Do nothing: no thread sleeps."""

    def close(self) -> None:
        """Do nothing: it has no threads."""

    def finish(self, *lanes: str) -> None:
        """Finish the tasks of these lanes. The default is all lanes."""
        for lane in lanes or tuple(self.tasks):
            self.over.append((lane, self._done(self.tasks.pop(lane))))

    def _done(self, task: Task) -> Outcome:
        if isinstance(task, AskDestinations):
            there = task.plan.batch.plan in self.world.table
            return Answers(found={"out": Written(rows=1)} if there else {})
        if not isinstance(task, WriteStraight):
            return Counted(read=1, left=1)
        self.land(task)
        counts = Counts(read=1, branches={"out": BranchCounts(expected=1)})
        return Landed(written={"out": Written(rows=1)}, counts=counts)

    def land(self, task: WriteStraight) -> None:
        """Add the rows of this task to the table, even if its outcome is never reported."""
        self.world.table.append(task.plan.batch.plan)
        self.world.spans.append(task.plan.batch.span.label)


class Partner:
    """One of the runs, on a separate host."""

    def __init__(self, world: World, host: str, *, follow: bool = False, wait: float = 0.0) -> None:
        self.world, self.surveys = world, 0
        place = StateLocation(directory=world.folder, schema="", name="orders")
        self.journal = Journal(world.ledger, Lease(world.clock, 60))
        lock = StateLock(place.lock.with_name(f"lock-{host}"))
        how: dict[str, Any] = {"assignment": "round_robin", "hash": "h"}
        who = {"host": host, "boot": host, "pid": 1, "started": "1", "jvm": None, "lock": lock.path.name}
        taking = Takeover(pipeline="orders", place=place, lock=lock, clock=world.clock, **how)
        self.journal.acquire({"pipeline": "orders", **who, **how, "follow": follow}, may=taking.may)
        assert self.journal.tenure is not None
        self.coordination = LaneCoordination(
            journal=self.journal,
            tenure=self.journal.tenure,
            place=place,
            lanes=LANES,
            definition="h",
            follows=follow,
            bury=lambda *_: None,
        )
        self.worker_pool = Hands(world)
        self.dispatcher = Dispatcher(
            journal=self.journal,
            worker_pool=self.worker_pool,
            clock=world.clock,
            rules=DeliveryRules(),
            max_in_flight=len(LANES),
            committed={},
            forget=lambda _: None,
        )
        self.coordination.note_survey()
        self.coordination.again = self._again
        self.dispatcher.planning.source = self._source(wait)
        self.journal.record(Entry(kind="open", body={"pipeline": "orders", "run": "", "hash": "h"}))
        self.coordination.begin()
        self.dispatcher.planning.coordination = self.coordination
        if follow:
            self.dispatcher.planning.following = Follower(every=1, again=self._look, now=world.clock.elapsed())

    def _source(self, wait: float = 0.0) -> BatchPlanner:
        lanes = {lane: lane for lane in LANES}
        feed = OriginFeed(origin="rows", lanes=lanes, schema="", backlog=Seen(self.world.rows), straight=True)  # type: ignore[arg-type]
        return BatchPlanner(pipeline="orders", run="", definition="h", destinations=("out",), feeds=[feed], wait=wait)

    def _again(self, source: BatchPlanner, origins: Collection[str]) -> BatchPlanner:
        assert list(origins) == ["rows"]
        assert not self.dispatcher.work.flights, "what is in flight stands in no ledger"
        self.surveys += 1
        return replace(source, feeds=self._source().feeds)

    def _look(self, source: BatchPlanner | None, _: object) -> BatchPlanner:
        assert source is not None
        return replace(source, feeds=self._source().feeds)

    @property
    def lanes(self) -> Sequence[str]:
        """The lanes that it has."""
        return self.journal.state.lanes_of(self.journal.owner)

    def turn(self) -> bool:
        """Take one turn with the tasks that have finished."""
        return self.dispatcher.take_turn(self.worker_pool.wait(None))

    def goes_on(self, times: int = 40) -> bool:
        """Whether the run still goes on after this many turns. All tasks that it starts succeed."""
        for _ in range(times):
            self.worker_pool.finish()
            if not self.turn():
                self.journal.record(Entry(kind="release", body={"status": "succeeded"}))
                return False
            self.world.clock.move(2)
        return True


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


def test_a_run_looks_for_new_rows_after_it_settles_a_batch_that_another_run_left_open(world: World) -> None:
    """The dead run's rows had landed. Only then does the new run look for new rows."""
    dead = Partner(world, "a")
    dead.turn()
    dead.turn()
    task = dead.worker_pool.tasks["0"]
    assert isinstance(task, WriteStraight)
    dead.worker_pool.land(task)
    heir = Partner(world, "b")
    world.clock.move(61)
    heir.turn()
    world.clock.move(61)
    world.rows["0"] = 9
    assert not heir.goes_on()
    assert sorted(world.spans) == ["0: 1 to 3", "0: 4 to 9", "1: 1 to 3"]
    assert heir.surveys


def test_nothing_is_planned_of_an_origin_that_must_be_surveyed_again(world: World) -> None:
    """The new survey waits until all batches in flight of this origin are settled."""
    first = Partner(world, "a")
    second = Partner(world, "b")
    first.turn()
    world.clock.move(7)
    first.turn()
    assert first.lanes == ("0",)
    second.turn()
    second.turn()
    assert second.lanes == ("1",)
    second.journal.record(Entry(kind="release", body={"status": "stopped"}))
    world.clock.move(7)
    surveys = first.surveys
    first.turn()
    assert set(first.lanes) == {*LANES}
    assert list(first.dispatcher.work.flights) == ["0", "1"]
    first.worker_pool.finish("0")
    first.turn()
    assert (list(first.dispatcher.work.flights), first.surveys) == (["1"], surveys)
    assert not first.goes_on()
    assert first.surveys > surveys
    assert sorted(world.spans) == ["0: 1 to 3", "1: 1 to 3"]


def test_rows_that_a_joining_run_saw_are_processed(world: World) -> None:
    """Either run may process them. A run that looked earlier cannot declare a lane done."""
    early = Partner(world, "a")
    early.turn()
    early.turn()
    world.rows.update(dict.fromkeys(LANES, 9))
    late = Partner(world, "b")
    for _ in range(4):
        world.clock.move(2)
        late.turn()
    here = [early, late]
    for _ in range(20):
        here = [partner for partner in here if partner.goes_on(1)]
    assert here == []
    assert {lane: late.journal.state.get_lane(lane).offset for lane in LANES} == dict.fromkeys(LANES, 9)


def test_a_run_that_follows_takes_the_lanes_that_an_ended_run_had_done(world: World) -> None:
    """For a run that follows, no lane is ever done."""
    service = Partner(world, "a", follow=True)
    service.turn()
    by_hand = Partner(world, "b")
    for _ in range(20):
        world.clock.move(2)
        service.goes_on(1)
        if by_hand.journal.state.find_owner(by_hand.journal.owner) is not None:
            by_hand.goes_on(1)
    assert by_hand.journal.state.find_owner(by_hand.journal.owner) is None
    world.rows.update(dict.fromkeys(LANES, 9))
    assert service.goes_on(20)
    assert {lane: service.journal.state.get_lane(lane).offset for lane in LANES} == dict.fromkeys(LANES, 9)
