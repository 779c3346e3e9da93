"""The dispatcher: the one thread that owns progress."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import replace

import pytest

from destinations.dlq import Dlq
from origins.batch import JSON, Backlog, Batch, Limits, Span
from origins.origin import read_count
from runners.engine.batch_machine import DeliveryRules
from runners.engine.batch_planner import BatchPlanner, OriginFeed
from runners.engine.dispatcher import Dispatcher
from runners.engine.planning import Follower
from runners.model.entry import Entry
from runners.model.errors import Fenced, WindowTripped
from runners.model.events import BatchPlanned, BatchRests, BatchSettled, Event
from runners.model.spec import RetryOptions
from runners.model.tasks import (
    Answers,
    AskDestinations,
    Declined,
    EmptyBatchShown,
    Failed,
    Landed,
    ShowEmptyBatch,
    Task,
    WriteGroup,
    WriteStraight,
)
from runners.model.tasks import GroupWritten as SharedOutcome
from runners.state.journal import Journal
from tests.manual_clock import ManualClock
from tests.runners.state.ledger.memory_ledger import MemoryLedger
from tests.simulation.world import SteppedWorkers, Work, World
from tests.spark_errors import make_spark_error


class Rows(Backlog):
    """Batches of one row. Each lane has this many."""

    def __init__(self, rows: int) -> None:
        self.rows = rows

    def take(self, lane: str, start: JSON, limits: Limits) -> Span | None:
        row = (start or 0) + 1
        return Span(start=start, end=row) if row <= self.rows else None


class Bench:
    """A dispatcher with runners that the test steps by hand. They succeed, unless the test sets an error."""

    def __init__(self, *, lanes: int = 1, runners: int = 1, max_in_flight: int | None = None, rows: int = 3) -> None:
        self.world = World(random.Random(0), faults=0)
        self.events: list[Event] = []
        self.told: list[Batch] = []
        self.tasks: list[Task] = []
        self.error: Exception | None = None
        self.ledger = MemoryLedger()
        self.journal = Journal(self.ledger)
        self.journal.acquire({"pipeline": "orders"})
        self.journal.record(Entry(kind="open", body={"pipeline": "orders"}))
        self.worker_pool = SteppedWorkers(runners, self.carry)
        names = [str(number) for number in range(lanes)]
        self.dispatcher = Dispatcher(
            journal=self.journal,
            worker_pool=self.worker_pool,
            clock=ManualClock(),
            rules=DeliveryRules(dlq=Dlq()),
            max_in_flight=max_in_flight or lanes,
            committed={"rows": self.told.append},
            forget=lambda plan: None,
            listeners=[self.events.append],
        )
        self.dispatcher.planning.source = BatchPlanner(
            pipeline="orders",
            run="r",
            definition="",
            destinations=("orders",),
            feeds=[
                OriginFeed(
                    origin="rows",
                    lanes={name: name for name in names},
                    schema="",
                    backlog=Rows(rows),
                    straight=True,
                    predictable=True,
                )
            ],
        )

    def carry(self, task: Task) -> Work:
        self.tasks.append(task)
        return self._carried()

    def _carried(self) -> Work:
        yield
        if self.error is not None:
            return Failed(error=self.error)
        from destinations.destination import Written
        from runners.model.planned_batch import BranchCounts, Counts

        counts = Counts(read=1, branches={"orders": BranchCounts(expected=1)})
        return Landed(written={"orders": Written(rows=1)}, counts=counts)

    def turn(self, *lanes: str) -> bool:
        """Let the tasks of these lanes finish, then take one turn."""
        for lane in lanes:
            while lane in self.worker_pool.work:
                self.worker_pool.step(lane)
        finished, self.worker_pool.finished = self.worker_pool.finished, []
        return self.dispatcher.take_turn(finished)

    def planned(self) -> list[tuple[str, int]]:
        return [(event.batch.lane, event.batch.number) for event in self.events if isinstance(event, BatchPlanned)]

    def settled(self) -> list[tuple[str, int]]:
        return [(event.batch.lane, event.batch.number) for event in self.events if isinstance(event, BatchSettled)]


def test_a_task_has_the_likely_next_batch_of_its_lane() -> None:
    """The ledger gets that batch later, exactly as it was predicted."""
    bench = Bench(rows=2)
    bench.turn()
    (first,) = bench.tasks
    assert isinstance(first, WriteStraight)
    assert first.following is not None
    assert first.following.batch.number == 2
    assert bench.planned() == [("0", 1)]
    bench.turn("0")
    second = bench.tasks[-1]
    assert isinstance(second, WriteStraight)
    assert (second.plan, second.following) == (first.following, None)
    assert [entry.plan for entry in bench.ledger.read() if entry.kind == "plan"][1] == first.following.batch.plan


def test_a_batch_that_differs_from_its_prediction_is_planned_again() -> None:
    """Here the batch has another definition."""
    bench = Bench(rows=5)
    bench.turn()
    (first,) = bench.tasks
    assert isinstance(first, WriteStraight)
    assert first.following is not None
    source = bench.dispatcher.planning.source
    assert source is not None
    bench.dispatcher.planning.source = replace(source, definition="another")
    bench.turn("0")
    second = bench.tasks[-1]
    assert isinstance(second, WriteStraight)
    assert second.plan.batch.plan != first.following.batch.plan
    assert second.plan.batch.definition == "another"


@pytest.mark.promise("SS-10", "HP-19", "HP-20")
def test_a_lane_has_one_batch_in_flight() -> None:
    """The next batch is planned only after the last one is committed."""
    bench = Bench(runners=4, max_in_flight=4)
    bench.turn()
    assert bench.planned() == [("0", 1)]
    bench.turn("0")
    assert (bench.settled(), bench.planned()) == ([("0", 1)], [("0", 1), ("0", 2)])


@pytest.mark.promise("HP-08")
def test_an_origin_is_notified_of_each_batch_independently_of_other_lanes() -> None:
    """It can acknowledge a batch as soon as its lane has committed it, while another lane has made no progress."""
    bench = Bench(lanes=2, runners=2)
    bench.dispatcher.committed = {"rows": bench.told.append}
    bench.turn()
    for _ in range(3):
        bench.turn("1")
    assert [(batch.lane, batch.number) for batch in bench.told] == [("1", 1), ("1", 2), ("1", 3)]
    assert "0" in bench.worker_pool.work


@pytest.mark.promise("HP-09", "HP-21", "CD-08")
def test_no_more_batches_are_planned_than_may_be_in_flight() -> None:
    """The limit counts before planning, so the ledger never has more open plans."""
    bench = Bench(lanes=5, runners=5, max_in_flight=2)
    bench.turn()
    assert len(bench.journal.state.open_plans) == 2


@pytest.mark.promise("SS-15", "SS-16")
def test_a_lane_with_work_waits_for_a_free_runner() -> None:
    """No batch is planned before a runner can take it."""
    bench = Bench(lanes=5, runners=2)
    bench.turn()
    assert len(bench.journal.state.open_plans) == 2


@pytest.mark.promise("HP-01")
def test_every_lane_gets_its_turn() -> None:
    """With one runner and three lanes, each lane is served once before any lane is served twice."""
    bench = Bench(lanes=3, runners=1)
    bench.turn()
    for lane in ("0", "1", "2", "0", "1"):
        bench.turn(lane)
    assert [lane for lane, _ in bench.planned()] == ["0", "1", "2", "0", "1", "2"]


@pytest.mark.promise("CD-24", "X3")
def test_lanes_commit_independently_and_in_order_within_a_lane() -> None:
    """A slow lane does not delay a fast one."""
    bench = Bench(lanes=2, runners=2)
    bench.turn()
    bench.turn("1")
    bench.turn("1")
    bench.turn("0")
    assert bench.settled() == [("1", 1), ("1", 2), ("0", 1)]


@pytest.mark.promise("CD-32", "CD-33", "CD-09")
def test_a_stop_drains_the_batches_in_flight() -> None:
    """No batch is planned after the stop. The batches in flight are committed."""
    bench = Bench(lanes=2, runners=2)
    bench.turn()
    bench.dispatcher.request_stop("asked")
    assert bench.turn("0", "1") is False
    assert (bench.settled(), len(bench.planned())) == ([("0", 1), ("1", 1)], 2)


@pytest.mark.promise("CD-34", "X6")
def test_a_forced_stop_leaves_batches_in_flight_open() -> None:
    """No offset is committed, and the next run continues the batch."""
    bench = Bench()
    bench.turn()
    bench.dispatcher.request_stop("asked", force=True)
    assert bench.turn("0") is False
    assert (bench.settled(), len(bench.journal.state.open_plans)) == ([], 1)


@pytest.mark.promise("CD-35")
def test_the_first_error_is_kept_and_the_others_finish() -> None:
    """A failure in one lane stops planning. Batches of other lanes are committed."""
    bench = Bench(lanes=2, runners=2)
    bench.turn()
    bench.error = OSError("first")
    bench.turn("0")
    bench.error = None
    assert bench.turn("1") is False
    assert ([str(error) for error in bench.dispatcher.errors], bench.settled()) == (["first"], [("1", 1)])


@pytest.mark.promise("CD-18")
def test_a_listener_that_raises_stops_the_pipeline() -> None:
    """Its error is raised by the turn."""
    bench = Bench()

    def raising(event: Event) -> None:
        raise RuntimeError("I do not like it")

    bench.dispatcher.listeners = [raising]
    with pytest.raises(RuntimeError, match="I do not like it"):
        bench.turn()


@pytest.mark.promise("CN-20", "CN-21")
def test_an_owner_that_was_replaced_records_nothing() -> None:
    """Another process acquired the pipeline. The first process stops, and its batch is not committed."""
    bench = Bench()
    bench.turn()
    other = Journal(bench.ledger)
    other.acquire({"pipeline": "orders", "host": "elsewhere", "pid": 7})
    with pytest.raises(Fenced, match="elsewhere, process 7"):
        bench.turn("0")
    assert all(entry.kind != "settle" for entry in bench.ledger.read())


def test_a_stop_from_another_process_is_noticed_at_the_next_append() -> None:
    """The request is an entry in the ledger. The owner reads it when it commits, and drains."""
    bench = Bench()
    bench.turn()
    state = Journal(bench.ledger).state
    bench.ledger.append([Entry(kind="stop", body={"reason": "maintenance"})], after=state.seq)
    assert bench.turn("0") is False
    assert (bench.dispatcher.stopping, bench.settled()) == ("maintenance", [("0", 1)])


@pytest.mark.promise("X8", "DQ-09")
def test_a_window_trips_at_the_same_row_for_every_batch_size() -> None:
    """Every fifth row is refused.

    Row 15 is the third refused row in 11 rows, and whole batches before it are delivered.
    """
    reached = set()
    for largest in (1, 2, 5, 40):
        world = World(random.Random(1), rows=40, largest=largest, dlq=Dlq(window=11, threshold=3), faults=0)
        world.run()
        (error,) = world.tripped
        assert isinstance(error, WindowTripped)
        delivered = [row for commit in world.tables["d0"].commits for row in commit.rows]
        assert delivered == [row for row in range(1, read_count(error.batch.span.start) + 1) if row * 7 % 5]
        reached.add(read_count(error.batch.span.start) + int(str(error).split(", row ")[1].split()[0].rstrip(":")))
    assert reached == {15}


class Arriving(Backlog):
    """Rows that arrive while the run goes on. `there` is the number of rows now, and three rows fill a batch."""

    def __init__(self) -> None:
        self.there = 0

    def take(self, lane: str, start: JSON, limits: Limits) -> Span | None:
        end = min(self.there, (start or 0) + 3)
        return Span(start=start, end=end, full=end == (start or 0) + 3) if end > (start or 0) else None


class Going(Bench):
    """A run that follows. It looks every second, and waits ten seconds for a batch to fill."""

    def __init__(self) -> None:
        super().__init__()
        self.arriving = Arriving()
        self.looks = 0
        self.clock = ManualClock()
        feed = OriginFeed(
            origin="rows", lanes={"0": "0"}, schema="", backlog=self.arriving, straight=True, predictable=True
        )
        self.dispatcher.clock = self.clock
        self.dispatcher.planning.source = BatchPlanner(
            pipeline="orders", run="r", definition="", destinations=("orders",), feeds=[feed], wait=10
        )
        self.dispatcher.planning.following = Follower(every=1, again=self.look, now=0)

    def look(self, source: BatchPlanner | None, offsets: Mapping[str, JSON]) -> BatchPlanner | None:
        self.looks += 1
        return source

    def ask_to_stop(self) -> None:
        """Request a stop as another process does."""
        self.ledger.append([Entry(kind="stop", body={"reason": "the night"})], after=self.journal.state.seq)

    def after(self, seconds: float, *, rows: int = 0) -> list[JSON]:
        """Add rows, let time pass and take a turn. Return the ends of all planned batches."""
        self.arriving.there += rows
        self.clock.move(seconds)
        self.turn("0")
        return [event.batch.span.end for event in self.events if isinstance(event, BatchPlanned)]


@pytest.mark.promise("SS-04", "HP-16", "HP-18")
def test_a_batch_that_is_not_full_waits_for_a_limited_time() -> None:
    """The wait begins with its first row, by the clock of the run."""
    run = Going()
    assert run.after(0) == []
    assert run.after(5, rows=1) == []
    assert run.after(9, rows=1) == []
    assert run.after(1) == [2]


@pytest.mark.promise("SS-03", "HP-16")
def test_a_full_batch_does_not_wait() -> None:
    """A batch that becomes full while it waits is planned at once."""
    run = Going()
    assert run.after(1, rows=1) == []
    assert run.after(1, rows=3) == [3]
    assert run.after(1) == [3]
    assert run.after(9) == [3]
    assert run.after(1) == [3, 4]


@pytest.mark.promise("HP-10", "HP-17")
def test_a_stop_plans_the_batch_that_waits_for_rows() -> None:
    """Its rows are processed, and then the run ends."""
    run = Going()
    run.after(1, rows=2)
    run.dispatcher.request_stop("asked")
    assert run.after(0, rows=5) == [3]
    assert run.turn("0") is False
    assert run.settled() == [("0", 1)]


def test_a_stop_that_arrives_as_a_batch_begins_to_wait_plans_that_batch() -> None:
    """The stop comes from another process. The run reads it with the append that commits the batch before."""
    run = Going()
    run.dispatcher.committed = {}
    assert run.after(1, rows=4) == [3]
    run.ask_to_stop()
    assert run.turn("0") is True
    assert (run.dispatcher.stopping, run.dispatcher.patience()) == ("the night", 0)
    assert run.after(0) == [3, 4]
    assert run.turn("0") is False
    assert run.settled() == [("0", 1), ("0", 2)]


def test_a_stop_plans_no_batch_if_batches_do_not_wait_for_rows() -> None:
    """Rows that were not planned before the stop are left to the next run."""
    run = Going()
    run.dispatcher.planning.following = Follower(every=60, again=run.look, now=0)
    assert run.dispatcher.planning.source is not None
    run.dispatcher.planning.source = replace(run.dispatcher.planning.source, wait=0)
    run.ask_to_stop()
    assert run.after(0, rows=1) == []
    assert run.after(0) == []
    assert run.turn() is False


def test_a_run_that_follows_looks_again_when_it_is_time() -> None:
    """It does not look at every turn. It sleeps until the next look, or until a batch has waited long enough."""
    run = Going()
    run.after(0.5)
    assert (run.looks, run.dispatcher.patience()) == (0, 0.5)
    run.after(0.5)
    assert (run.looks, run.dispatcher.patience()) == (1, 1)
    run.dispatcher.planning.following = Follower(every=60, again=run.look, now=-59)
    run.after(0, rows=1)
    assert run.dispatcher.patience() == 10


def test_looking_takes_at_most_a_hundredth_of_the_time() -> None:
    """A listing that takes two seconds is repeated after 200 seconds."""
    run = Going()

    def slow(source: BatchPlanner | None, offsets: Mapping[str, JSON]) -> BatchPlanner | None:
        run.clock.move(2)
        return source

    run.dispatcher.planning.following = Follower(every=1, again=slow, now=-1)
    run.turn()
    assert run.dispatcher.patience() == 200


def test_an_idle_run_notices_a_stop_of_another_process_at_its_next_look() -> None:
    """An idle run records nothing, so it reads the ledger."""
    run = Going()
    run.after(0)
    run.ask_to_stop()
    assert run.turn() is True
    run.clock.move(1)
    assert run.turn() is False
    assert run.dispatcher.stopping == "the night"


@pytest.mark.parametrize(("hears", "appends"), [(True, 2), (False, 1)])
def test_a_settled_batch_and_the_next_plan_are_recorded_together_unless_the_origin_listens(
    hears: bool, appends: int
) -> None:
    """An origin that listens is notified of the durable offset before its next batch is planned."""
    bench = Bench()
    told: list[Batch] = []
    bench.dispatcher.committed = {"rows": told.append} if hears else {}
    bench.turn()
    asked: list[int] = []
    append = bench.ledger.append

    def counted(entries: Sequence[Entry], *, after: int) -> list[Entry]:
        asked.append(after)
        return append(entries, after=after)

    bench.ledger.append = counted  # type: ignore[method-assign]
    bench.turn("0")
    assert len(asked) == appends
    assert len(told) == hears
    assert bench.planned() == [("0", 1), ("0", 2)]


def test_a_plan_is_given_up_when_a_stop_comes_before_it_is_recorded() -> None:
    """The batch before it is settled."""
    bench = Bench()
    bench.dispatcher.committed = {}
    bench.turn()
    bench.ledger.append([Entry(kind="stop", body={"reason": "the night"})], after=bench.journal.state.seq)
    assert bench.turn("0") is False
    assert (bench.settled(), bench.planned()) == ([("0", 1)], [("0", 1)])
    assert bench.journal.state.open_plans == ()


def test_the_first_batch_of_a_run_that_replaces_is_settled_before_another_is_planned() -> None:
    """Otherwise the run would also replace the rows of another lane."""
    bench = Bench(lanes=3, runners=3)
    assert bench.dispatcher.planning.source is not None
    bench.dispatcher.planning.source = replace(bench.dispatcher.planning.source, first_alone=True)
    bench.turn()
    assert bench.planned() == [("0", 1)]
    bench.turn("0")
    assert bench.planned() == [("0", 1), ("1", 1), ("2", 1), ("0", 2)]
    firsts = [event.batch.first for event in bench.events if isinstance(event, BatchPlanned)]
    assert firsts == [True, False, False, False]


def test_each_whole_batch_is_the_first_of_a_load() -> None:
    """This is also true after an earlier run died. If there are several lanes, only the run's first batch is."""
    firsts = []
    for lanes, died in ((1, False), (1, True), (2, False)):
        bench = Bench(lanes=lanes, runners=lanes)
        assert bench.dispatcher.planning.source is not None
        feeds = [replace(feed, whole=True) for feed in bench.dispatcher.planning.source.feeds]
        bench.dispatcher.planning.source = replace(bench.dispatcher.planning.source, feeds=feeds)
        bench.dispatcher.planning.begun = died
        bench.turn()
        bench.turn("0")
        firsts.append([event.batch.first for event in bench.events if isinstance(event, BatchPlanned)])
    assert firsts == [[True, True], [True, True], [True, False, False]]


class Idling(Going):
    """A run that follows, and shows an empty batch after a minute without rows."""

    def __init__(self) -> None:
        super().__init__()
        assert self.dispatcher.planning.source is not None
        self.dispatcher.planning.source = replace(self.dispatcher.planning.source, wait=0, idle=60)
        self.ticks: list[Batch] = []

    def carry(self, task: Task) -> Work:
        if isinstance(task, ShowEmptyBatch):
            yield
            self.ticks.append(task.batch)
            return Failed(error=self.error) if self.error else EmptyBatchShown()
        return (yield from super().carry(task))


@pytest.mark.promise("X7", "SS-19", "SS-20")
def test_an_empty_batch_is_shown_after_each_idle_period() -> None:
    """It has no number and no offset, and the ledger does not record it."""
    run = Idling()
    assert run.after(59) == []
    seq = run.journal.state.seq
    run.after(1)
    run.turn("0")
    assert [(batch.number, batch.span.start, batch.span.end) for batch in run.ticks] == [(0, None, None)]
    run.after(60)
    run.turn("0")
    assert (len(run.ticks), run.journal.state.seq) == (2, seq)
    assert run.after(1, rows=1) == [1]


def test_a_batch_restarts_the_idle_period() -> None:
    """A run without an idle time shows no empty batch."""
    run = Idling()
    run.after(50, rows=1)
    run.after(20)
    run.turn("0")
    run.after(39)
    assert run.ticks == []
    run.after(21)
    run.turn("0")
    assert len(run.ticks) == 1
    never = Going()
    never.after(10_000)
    assert never.worker_pool.work == {}


class Shared(Bench):
    """A bench whose lanes may be written together."""

    def __init__(self, *, lanes: int, runners: int, max_in_flight: int | None = None) -> None:
        super().__init__(lanes=lanes, runners=runners, max_in_flight=max_in_flight)
        source = self.dispatcher.planning.source
        assert source is not None
        self.dispatcher.planning.source = replace(source, feeds=[replace(feed, shares=True) for feed in source.feeds])
        self.refuses = False

    def carry(self, task: Task) -> Work:
        self.tasks.append(task)
        return self._together(task) if isinstance(task, WriteGroup) else self._carried()

    def _together(self, task: WriteGroup) -> Work:
        yield
        if self.refuses:
            return Declined(reason="parted", way="grouped")
        landed = {}
        for carry in task.writes:
            outcome = yield from self._carried()
            if isinstance(outcome, Failed):
                return outcome
            assert isinstance(outcome, Landed)
            landed[carry.plan.batch.lane] = outcome
        return SharedOutcome(outcomes=landed)


@pytest.mark.promise("SS-14", "SS-21")
def test_lanes_that_are_ready_together_share_one_task_and_one_append() -> None:
    """More batches than runners are in flight. The same append plans the next batches of all lanes."""
    bench = Shared(lanes=4, runners=1)
    bench.turn()
    (task,) = bench.tasks
    assert isinstance(task, WriteGroup)
    assert [carry.plan.batch.lane for carry in task.writes] == ["0", "1", "2", "3"]
    bench.dispatcher.committed = {}
    bench.turn("0")
    assert bench.settled() == [("0", 1), ("1", 1), ("2", 1), ("3", 1)]
    assert [entry.kind for entry in bench.ledger.read()[-8:]] == ["settle"] * 4 + ["plan"] * 4


def test_batches_that_share_a_write_respect_max_in_flight() -> None:
    """Four batches could be written together, but only three may be in flight."""
    bench = Shared(lanes=4, runners=1, max_in_flight=3)
    bench.turn()
    assert len(bench.planned()) == 3


def test_batches_of_a_declined_group_go_one_by_one() -> None:
    """Each runner takes one. The next batches are tried together again."""
    bench = Shared(lanes=3, runners=2)
    bench.refuses = True
    bench.turn()
    bench.turn("0")
    assert [type(task).__name__ for task in bench.tasks] == ["WriteGroup", "WriteStraight", "WriteStraight"]
    bench.turn("0", "1")
    bench.turn("2")
    assert sorted(bench.settled()) == [("0", 1), ("1", 1), ("2", 1)]
    assert any(isinstance(task, WriteGroup) for task in bench.tasks[1:])


def test_an_error_of_a_shared_write_is_one_error_and_leaves_its_batches_open() -> None:
    """The next run asks for each of them whether it landed."""
    bench = Shared(lanes=2, runners=1)
    bench.error = ConnectionError("gone")
    bench.turn()
    assert not bench.turn("0")
    assert bench.dispatcher.errors == [bench.error]
    assert {plan.batch.lane for plan in bench.journal.state.open_plans} == {"0", "1"}


class Resting(Bench):
    """A bench that tries batches again. When its runners are asked, no destination has a batch."""

    def __init__(self, **shape: int) -> None:
        super().__init__(**shape)
        self.dispatcher.resting.retry = RetryOptions(attempts=2)
        self.error = TimeoutError("timed out")

    def carry(self, task: Task) -> Work:
        self.tasks.append(task)
        return self._nobody() if isinstance(task, AskDestinations) else self._carried()

    def _nobody(self) -> Work:
        yield
        return Answers(found={})

    def move(self, seconds: float) -> None:
        """Let time pass."""
        clock = self.dispatcher.clock
        assert isinstance(clock, ManualClock)
        clock.move(seconds)

    def names(self) -> list[str]:
        """Return the type names of the tasks that the runners got."""
        return [type(task).__name__ for task in self.tasks]


def test_a_batch_with_a_pin_is_planned_again_when_a_file_was_deleted() -> None:
    """The new plan has new pins.

    It is made after no destination is found to have the batch, and the tries are not reset.
    """
    bench = Resting(rows=1)
    versions = iter(range(7, 99))
    source = bench.dispatcher.planning.source
    assert source is not None
    pinning = replace(source.feeds[0], pins=lambda: {"lookup": next(versions)}, predictable=False)
    bench.dispatcher.planning.source = replace(source, feeds=[pinning])
    bench.error = make_spark_error("FAILED_READ_FILE.FILE_NOT_EXIST", "Encountered error while reading a file", "KD001")
    bench.turn()
    bench.turn("0")
    bench.error = None
    bench.move(1)
    for _ in range(3):
        bench.turn("0")
    assert bench.names() == ["WriteStraight", "AskDestinations", "WriteStraight"]
    first, _, second = (task.plan for task in bench.tasks if isinstance(task, WriteStraight | AskDestinations))
    assert (first.pins, second.pins) == ({"lookup": 7}, {"lookup": 8})
    assert (bench.settled(), bench.journal.state.get_lane("0").offset) == ([("0", 2)], 1)


@pytest.mark.promise("SS-23")
def test_a_batch_with_a_transient_error_rests_and_is_tried_again() -> None:
    """It keeps its plan. Meanwhile its runner is free, and the run waits no longer than the rest."""
    bench = Resting()
    bench.turn()
    assert bench.turn("0")
    assert (bench.names(), bench.dispatcher.work.working) == (["WriteStraight"], {})
    patience = bench.dispatcher.patience()
    assert patience is not None
    assert 0.8 < patience <= 1
    bench.turn()
    assert bench.names() == ["WriteStraight"]
    bench.error = None
    bench.move(1)
    for _ in range(2):
        bench.turn("0")
    bench.turn("0")
    assert bench.names()[:3] == ["WriteStraight", "AskDestinations", "WriteStraight"]
    assert (
        len({task.plan.batch.plan for task in bench.tasks[:3] if isinstance(task, WriteStraight | AskDestinations)})
        == 1
    )
    assert bench.settled() == [("0", 1)]
    assert [event.tried for event in bench.events if isinstance(event, BatchRests)] == [1]


@pytest.mark.promise("SS-23")
def test_a_batch_is_tried_a_limited_number_of_times() -> None:
    """Then the run fails with the error, and the batch stays open."""
    bench = Resting()
    going = bench.turn()
    for _ in range(20):
        bench.move(10)
        going = bench.turn("0")
        if not going:
            break
    assert not going
    assert bench.names() == ["WriteStraight", "AskDestinations", "WriteStraight", "AskDestinations", "WriteStraight"]
    assert bench.dispatcher.errors == [bench.error]
    assert len(bench.journal.state.open_plans) == 1


def test_a_runner_processes_another_lane_while_a_batch_rests() -> None:
    """The resting batch counts as in flight."""
    bench = Resting(lanes=2, runners=1, max_in_flight=2)
    bench.turn()
    bench.turn("0")
    assert [task.plan.batch.lane for task in bench.tasks if isinstance(task, WriteStraight)] == ["0", "1"]
    bounded = Resting(lanes=2, runners=1, max_in_flight=1)
    bounded.turn()
    bounded.turn("0")
    assert bounded.planned() == [("0", 1)]


@pytest.mark.promise("CD-32")
def test_a_stop_does_not_wait_for_a_resting_batch() -> None:
    """The batch stays open, and the next run starts with it."""
    bench = Resting()
    bench.turn()
    bench.turn("0")
    bench.dispatcher.request_stop("asked")
    assert not bench.turn()
    assert (bench.dispatcher.errors, len(bench.journal.state.open_plans)) == ([], 1)


def test_a_run_that_lost_the_pipeline_writes_nothing_after_a_rest() -> None:
    """The run reads the ledger before a batch is tried again."""
    bench = Resting()
    bench.turn()
    bench.turn("0")
    Journal(bench.ledger).acquire({"pipeline": "orders"})
    bench.move(1)
    with pytest.raises(Fenced):
        bench.turn()
    assert bench.names() == ["WriteStraight"]


def test_a_stop_in_the_ledger_is_noticed_while_a_batch_rests() -> None:
    """The run notices it within seconds, even if the rest is long. Then the batch is not tried again."""
    bench = Resting()
    bench.dispatcher.resting.retry = RetryOptions(attempts=9, wait="5m")
    bench.turn()
    bench.turn("0")
    patience = bench.dispatcher.patience()
    assert patience is not None
    assert patience <= 5
    bench.ledger.append([Entry(kind="stop", body={"reason": "from elsewhere"})], after=bench.journal.state.seq)
    bench.move(5)
    assert not bench.turn()
    assert (bench.dispatcher.stopping, bench.names()) == ("from elsewhere", ["WriteStraight"])
