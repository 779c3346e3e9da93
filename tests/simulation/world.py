"""A world without Spark around the real dispatcher: tables, a ledger in memory, and processes that die at any moment.

Rows are numbers. Each process has a separate journal, dispatcher and worker pool. It shares the ledger, tables and the
prepared rows. A killed process leaves the writes that its JVM had begun. They land later, or never.
"""

from __future__ import annotations

import random
from collections import Counter, defaultdict
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from destinations.destination import Written
from destinations.dlq import DLQ, FALLBACK, Dlq
from origins.batch import JSON, Backlog, Batch, Limits, Span
from origins.origin import read_count
from runners.engine.batch_machine import DeliveryRules
from runners.engine.batch_planner import BatchPlanner, OriginFeed
from runners.engine.dispatcher import Dispatcher
from runners.engine.planning import Follower
from runners.engine.worker_pool import Finished, TaskWorkers
from runners.model.entry import Entry, Settled
from runners.model.errors import Fenced, WindowTripped
from runners.model.events import Event
from runners.model.planned_batch import BranchCounts, Counts, PlannedBatch
from runners.model.spec import FOR_EVER, NEVER, RetryOptions
from runners.model.tasks import (
    Answers,
    AskDestinations,
    Checked,
    CheckRefusals,
    Counted,
    Declined,
    Deliver,
    Explain,
    Explained,
    Failed,
    GroupWritten,
    Landed,
    Outcome,
    Prepare,
    Prepared,
    ShowEmptyBatch,
    Task,
    WriteGroup,
    WriteStraight,
)
from runners.state.journal import Journal
from runners.state.ledger import Ledger
from tests.manual_clock import ManualClock
from tests.runners.state.ledger.memory_ledger import MemoryLedger
from tests.spark_errors import make_spark_error

Work = Generator[None, None, Outcome]


STALE = -1
"""A row of a table before the load that replaces it."""


class Killed(BaseException):
    """A SIGKILL, after which the process runs no code."""


CONSTRAINT = ("DELTA_VIOLATE_CONSTRAINT_WITH_VALUES", "CHECK constraint", "23001")
"""The error of Delta for a row that violates a constraint."""


class Broken(Exception):
    """A write that was reported as failed."""


class MetadataChanged(Broken):
    """A write that did not land, because the table was fenced after its beginning."""


@dataclass(frozen=True)
class Protections:
    """The rules of the protocol. A test turns one off to show that it is needed."""

    conditional: bool = True
    """The ledger refuses an append by a process that has not read its end."""
    fence: bool = True
    """A process that asks a destination first makes earlier writes fail."""
    decide_once: bool = True
    """The delivered rows are the prepared rows, and are not computed again."""
    only_writes: bool = True
    """A label on a commit that is no write proves nothing."""
    ask: bool = True
    """Destinations are asked about an open batch before anything else is done with it."""
    recover: bool = True
    """Open batches are finished before others are planned."""
    alone: bool = True
    """The batch that replaces a table is settled before another is planned."""
    goes_on: bool = True
    """A run after an unfinished run replaces nothing."""
    lease: bool = True
    """A process takes a pipeline from another only after a whole lease without an entry."""
    deadline: bool = True
    """A write that begins after the end of the lease raises."""
    same_again: bool = True
    """A batch with rows in the DLQ is decided again only if these rows are refused again."""
    judged_last: bool = True
    """The end of the lease is checked after the table was read, and not before."""


ALL = Protections()


@dataclass
class Commit:
    key: str
    """The batch. Several batches are separated by spaces."""
    rows: list[int]
    operation: str = "WRITE"
    replaces: bool = False


@dataclass
class Table:
    """A table that remembers its batches: ordered commits, and a counter that a fence increases."""

    commits: list[Commit] = field(default_factory=list)
    fences: int = 0
    once: bool = False
    """Whether it is a folder, which takes the rows of a batch once."""
    forgets: bool = False
    """Whether it is a sink, which remembers no batch and cannot be fenced."""

    def takes(self, key: str) -> bool:
        """Whether a write of the batch with this key may land."""
        return not self.once or all(commit.key != key or commit.operation != "WRITE" for commit in self.commits)

    @property
    def rows(self) -> list[int]:
        """The rows that a reader finds: all rows since the last commit that replaced the table."""
        first = max((index for index, commit in enumerate(self.commits) if commit.replaces), default=0)
        return [row for commit in self.commits[first:] for row in commit.rows]


@dataclass
class Transaction:
    """A write in progress, in a JVM that may outlive its process."""

    table: Table
    commit: Commit
    fences: int

    ended: bool = False
    in_time: Callable[[], bool] = lambda: True
    """Whether the write may continue."""

    def land(self) -> None:
        """Commit, unless the table was fenced meanwhile.

        A commit without rows has no effect, except if it replaces the table. A second call has no effect.
        """
        there = self.commit.rows or self.commit.replaces
        takes = self.fences == self.table.fences and self.table.takes(self.commit.key)
        if takes and there and not self.ended and self.in_time():
            self.table.commits.append(self.commit)
        self.ended = True


class SharedLedger(Ledger):
    """The view of the ledger of one process, which may be killed before or after any append."""

    def __init__(self, world: World, shared: Ledger) -> None:
        self.world = world
        self.shared = shared

    @property
    def place(self) -> str:
        return "memory"

    def read(self, after: int = 0) -> list[Entry]:
        return self.shared.read(after)

    def append(self, entries: Sequence[Entry], *, after: int) -> list[Entry]:
        self.world.may_die()
        if not self.world.protections.conditional:
            last = self.shared.read()
            after = last[-1].seq if last else 0
        landed = self.shared.append(entries, after=after)
        self.world.may_die()
        return landed

    def compact(self, snapshot: Entry, settled: Sequence[Settled], *, after: int) -> Entry:
        self.world.may_die()
        landed = self.shared.compact(snapshot, settled, after=after)
        self.world.may_die()
        return landed

    def history(self, since: str = "") -> list[Settled]:  # type: ignore[override]
        return list(self.shared.history(since))


class Numbers(Backlog):
    """Each lane is a range of numbers, of which those up to `rows` have arrived. Its offset is the last number read."""

    def __init__(self, rng: random.Random, rows: int, largest: int) -> None:
        self.rng, self.rows, self.largest = rng, rows, largest

    def take(self, lane: str, start: JSON, limits: Limits) -> Span | None:
        first = int(start or 0)
        if first >= self.rows:
            return None
        end = min(self.rows, first + self.rng.randint(1, self.largest))
        return Span(start=start, end=end, parts=(), label=f"{first + 1}..{end}", full=end - first == self.largest)


class SteppedWorkers(TaskWorkers):
    """Runners for which the test chooses every step."""

    def __init__(self, size: int, process: Callable[[Task], Work]) -> None:
        self.size = size
        self.process = process
        self.work: dict[str, Work] = {}
        self.finished: list[Finished] = []

    def start(self, lane: str, task: Task) -> None:
        assert lane not in self.work, "a lane has one task at a time"
        self.work[lane] = self.process(task)
        assert len(self.work) <= self.size, "nothing queues"

    def step(self, lane: str) -> None:
        try:
            next(self.work[lane])
        except StopIteration as stop:
            del self.work[lane]
            self.finished.append((lane, stop.value))

    def wait(self, seconds: float | None) -> Sequence[Finished]:
        raise AssertionError("the test decides what happens next")

    def wake(self) -> None:
        pass

    def close(self) -> None:
        pass


class Process:
    """One owner: a real journal and a real dispatcher, with a worker pool that the test steps."""

    def __init__(self, world: World, definition: int) -> None:
        self.world = world
        self.definition = definition
        self.transactions: dict[str, Transaction] = {}
        self.clock = ManualClock()
        self.journal = Journal(SharedLedger(world, world.ledger))
        if not world.protections.goes_on:
            self.journal.state = replace(self.journal.state, midway=False)
        self.acquire()
        self.worker_pool = SteppedWorkers(world.runners, self.carry)
        self.dispatcher = Dispatcher(
            journal=self.journal,
            worker_pool=self.worker_pool,
            clock=self.clock,
            dice=world.rng,
            rules=DeliveryRules(
                dlq=world.dlq,
                delivery=world.delivery,  # type: ignore[arg-type]
                replacing=frozenset(world.names if world.replaces else ()),
            ),
            max_in_flight=world.max_in_flight,
            retry=RetryOptions(attempts=FOR_EVER, within="10000d") if world.retries else NEVER,
            committed={"numbers": world.note_committed} if world.hears else {},
            forget=world.forget,
            listeners=[world.events.append],
        )
        self.opened = False
        self.over = False
        self.recover()

    def acquire(self) -> None:
        """Become the owner."""
        self.journal.acquire({"pipeline": "numbers"})

    def recover(self) -> None:
        """Continue where an earlier run ended."""
        if self.world.protections.recover:
            self.dispatcher.recover()

    @property
    def idle(self) -> bool:
        """Whether no batch is in flight now."""
        return not self.dispatcher.work.flights

    def turn(self) -> None:
        """Take one turn of the dispatcher with all finished tasks."""
        finished, self.worker_pool.finished = self.worker_pool.finished, []
        going = self.dispatcher.take_turn(finished)
        if going:
            return
        if self.opened or self.dispatcher.stopping:
            self.over = True
            return
        self.opened = True
        self.journal.record(Entry(kind="open", body={"pipeline": "numbers", "run": "", **self.world.opened}))
        self.dispatcher.planning.source = self._source()
        if self.world.follows:
            again = lambda _source, _offsets: self._source()  # noqa: E731
            self.dispatcher.planning.following = Follower(every=1, again=again, now=self.clock.elapsed())
        self.turn()

    def _source(self) -> BatchPlanner:
        world = self.world
        return BatchPlanner(
            pipeline="numbers",
            run="",
            definition=str(self.definition),
            destinations=world.names,
            wait=3,
            first_alone=world.replaces and world.protections.alone,
            feeds=[
                OriginFeed(
                    origin="numbers",
                    lanes={lane: lane for lane in world.lanes},
                    schema="",
                    backlog=Numbers(world.rng, world.arrived, world.largest),
                    straight=len(world.names) == 1 and not world.fickle,
                    shares=world.shares,
                    predictable=world.predictable,
                )
            ],
        )

    def carry(self, task: Task) -> Work:
        """Work on one task, in steps between which something else may happen."""
        try:
            yield
            outcome = yield from self._carry(task)
        except (Broken, Fenced) as error:
            return Failed(error=error)
        return outcome

    def _carry(self, task: Task) -> Work:  # noqa: C901, PLR0912 -- one branch for each fault
        assert not isinstance(task, ShowEmptyBatch), "nobody asked for empty batches"
        if isinstance(task, WriteGroup):
            outcome = yield from self._carry_together(task)
            return outcome
        world, batch = self.world, task.plan.batch
        failed: dict[str, Exception] = {}
        rows = world.rows_of(batch)
        if isinstance(task, WriteStraight):
            good, bad = world.verdicts(rows, self.definition)
            if bad:
                return Declined(reason="a row is refused", way="straight")
            written = yield from self._write(world.names[0], [batch], good)
            counts = Counts(read=len(rows), branches={world.names[0]: BranchCounts(expected=len(good))})
            return Landed(written={world.names[0]: written}, counts=counts)
        if isinstance(task, Prepare):
            good, bad = world.verdicts(rows, self.definition)
            path = f"{batch.plan}-{world.rng.random()}"
            yield
            world.prepared[path] = (good, bad)
            branches = {name: BranchCounts(expected=len(good)) for name in world.names}
            counts = Counts(read=len(rows), nacked=len(bad), branches=branches)
            return Prepared(path=path, counts=counts, nacks=[rows.index(row) + 1 for row in bad])
        if isinstance(task, Deliver):
            if task.decision.path not in world.prepared:
                raise Broken("what was prepared is gone")
            good, bad = world.prepared[task.decision.path]
            if not world.protections.decide_once:
                good, bad = world.verdicts(rows, self.definition)
            landed: dict[str, Written] = {}
            for name in task.names:
                refused = name in (DLQ, FALLBACK)
                rows = (
                    self._list_lacking(batch, bad) if name == DLQ and task.decision.again else bad if refused else good
                )
                try:
                    world.check_dlq(name, f"{batch.plan}/{name}", rows)
                    if not refused and world.may_break():
                        raise Broken("a row breaks a constraint") from make_spark_error(*CONSTRAINT)
                    landed[name] = yield from self._write(name, [batch], rows)
                except Broken as error:
                    failed[name] = error
            return Landed(written=landed, failed=failed)
        if isinstance(task, AskDestinations):
            try:
                for name in task.names:
                    world.check_dlq(name)
            except Broken as error:
                failed = {DLQ: error}
                task = replace(task, names=[name for name in task.names if name != DLQ])
            found = yield from self._ask(task)
            return Answers(found=found, failed=failed)
        if isinstance(task, Explain):
            return Explained(nacks=[])
        if isinstance(task, CheckRefusals):
            refuses = world.rng.random() < 0.5
            return Checked(
                refusing=world.names[-1] if refuses else "", same=not (world.fickle and world.protections.same_again)
            )
        good, _ = world.verdicts(rows, self.definition)
        return Counted(read=len(rows), left=len(good))

    def _list_lacking(self, batch: Batch, refused: list[int]) -> list[int]:
        """Return the refused rows that the DLQ does not have."""
        own = [commit for commit in self.world.tables[DLQ].commits if commit.key == f"{batch.plan}/{DLQ}"]
        there = {row for commit in own for row in commit.rows}
        return [row for row in refused if row not in there]

    def _carry_together(self, task: WriteGroup) -> Work:
        world, name = self.world, self.world.names[0]
        batches = [carry.plan.batch for carry in task.writes]
        read = [world.rows_of(batch) for batch in batches]
        if any(world.verdicts(rows, self.definition)[1] for rows in read):
            return Declined(reason="a row is refused", way="grouped")
        try:
            yield from self._write(name, batches, [row for rows in read for row in rows])
        except Broken as error:
            return Declined(reason="the write failed", way="grouped", error=error)
        landed = {}
        for batch, rows in zip(batches, read, strict=True):
            counts = Counts(read=len(rows), branches={name: BranchCounts(expected=len(rows))})
            landed[batch.lane] = Landed(written={name: Written(rows=len(rows))}, counts=counts)
        return GroupWritten(outcomes=landed)

    def _ask(self, task: AskDestinations) -> Generator[None, None, Mapping[str, Written]]:
        world, found = self.world, {}
        for name in task.names:
            if world.protections.fence and not task.ours and not world.tables[name].forgets:
                world.tables[name].fences += 1
            if world.rng.random() < 0.1:
                world.tables[name].commits.append(Commit(f"{task.plan.batch.plan}/{name}", [], "SET TBLPROPERTIES"))
            yield
        for name in task.names:
            key = f"{task.plan.batch.plan}/{name}"
            for commit in world.tables[name].commits:
                counts = commit.operation == "WRITE" or not world.protections.only_writes
                keys = commit.key.split()
                if key in keys and counts and world.protections.ask and not world.tables[name].forgets:
                    found[name] = Written(rows=len(commit.rows) if len(keys) == 1 else None)
            yield
        return found

    def _write(self, name: str, batches: Sequence[Batch], rows: list[int]) -> Generator[None, None, Written]:
        yield
        table, key = self.world.tables[name], " ".join(f"{batch.plan}/{name}" for batch in batches)
        replaces = self.world.replaces and batches[0].first and name not in (DLQ, FALLBACK)
        transaction = Transaction(table, Commit(key, list(rows), replaces=replaces), table.fences)
        yield from self.begin(key, transaction)
        yield
        transaction = self.transactions.pop(key)
        if transaction.fences != table.fences:
            raise MetadataChanged("fenced")
        if not table.takes(transaction.commit.key):
            raise Broken("the batch is there already")
        if self.world.retries and self.world.may_break():
            raise Broken("TimeoutError: nothing landed")
        transaction.land()
        if self.world.may_break():
            raise Broken("TimeoutError: landed, though nobody was told")
        return Written(rows=len(rows))

    def begin(self, key: str, transaction: Transaction) -> Generator[None, None, None]:
        """Begin the write after the JVM has read the table."""
        self.transactions[key] = transaction
        yield from ()


class World:
    """Everything that outlives a process, and the dice."""

    def __init__(
        self,
        rng: random.Random,
        *,
        protections: Protections = ALL,
        destinations: int = 1,
        lanes: int = 1,
        rows: int = 6,
        largest: int = 3,
        fickle: bool = False,
        delivery: str = "after_all",
        dlq: Dlq | None = None,
        hears: bool = True,
        predictable: bool = False,
        shares: bool = False,
        retries: bool = False,
        follows: bool = False,
        replaces: bool = False,
        faults: int = 6,
        takeovers: int = 0,
    ) -> None:
        self.rng = rng
        self.protections = protections
        self.names = tuple(f"d{number}" for number in range(destinations))
        self.lanes = tuple(str(number) for number in range(lanes))
        self.rows = rows
        self.largest = largest
        self.fickle = fickle
        """Whether stages give other results when they run again."""
        self.delivery = delivery
        self.dlq = dlq or Dlq(window=0)
        self.hears = hears
        """Whether the origin is notified. If not, a settle entry and the next plan are recorded together."""
        self.predictable = predictable
        """Whether a batch is described while the batch before it is processed."""
        self.shares = shares and not replaces
        """Whether lanes that are ready at the same time are written together."""
        self.retries = retries
        """Whether the same run repeats a write that was reported as failed."""
        self.follows = follows
        """Whether runs continue while rows arrive, until they are asked to stop."""
        self.arrived = 0 if follows else rows
        """The number of rows that have arrived in each lane."""
        self.replaces = replaces
        """Whether the first batch of a run replaces the rows of the tables."""
        self.faults = faults
        """How many more processes may be killed or writes broken. After that the load ends without faults."""
        self.takeovers = takeovers
        """How many more times a process falls asleep between two batches, and another process takes the pipeline over.
        """
        self.taken_over: list[Process] = []
        self.runners = rng.randint(1, lanes)
        self.max_in_flight = rng.randint(self.runners, lanes)
        self.ledger = MemoryLedger()
        self.tables = {name: Table([Commit("before", [STALE])] if replaces else []) for name in self.names}
        self.tables[DLQ] = Table()
        self.opened: Mapping[str, JSON] = {}
        """Other facts that an opening records."""
        self.prepared: dict[str, tuple[list[int], list[int]]] = {}
        self.orphans: list[Transaction] = []
        self.heard: defaultdict[str, list[Any]] = defaultdict(list)
        self.tripped: list[WindowTripped] = []
        self.events: list[Event] = []
        """The events of all processes that listeners heard."""
        self.definition = 0
        self.alive = False

    def run(self) -> None:
        """Start processes until all rows are processed or the window trips, with all possible faults."""
        process: Process | None = None
        for _ in range(20_000):
            if process is None:
                process = self._start()
            elif process.over:
                self.tripped += [error for error in process.dispatcher.errors if isinstance(error, WindowTripped)]
                if self.tripped or (self._carried(process) and self._the_rest_is_done()):
                    return
                if process.dispatcher.errors or not self._carried(process):
                    self._end_process(process)
                    process = None
            elif self.taken_over and self.rng.random() < 0.3:
                self._thaw()
            elif self.takeovers and process.idle and self.rng.random() < 0.1:
                self.takeovers -= 1
                self.taken_over.append(process)
                process = None
            else:
                process = self._move(process)
        raise AssertionError("the load never ends")

    def _carried(self, process: Process) -> bool:
        """Whether this run ended well and left no rows. It must have processed all rows that it saw before a stop."""
        if process.dispatcher.errors:
            return False
        if process.dispatcher.planning.following is not None:
            assert not process.dispatcher.planning.following.gathering, "rows were seen, and left"
        return all(process.journal.state.get_lane(lane).offset == self.rows for lane in self.lanes)

    def may_die(self) -> None:
        """Kill the process at some of these moments."""
        if self.alive and self.faults and self.rng.random() < 0.02:
            self.faults -= 1
            raise Killed

    def may_break(self) -> bool:
        """Whether this write, which has landed, is reported as failed."""
        broken = bool(self.faults) and self.rng.random() < 0.05
        self.faults -= broken
        return broken

    def check_dlq(self, name: str, key: str = "", rows: Sequence[int] = ()) -> None:
        """Raise if the destination is the DLQ and the DLQ is down. A write of these rows may still land."""

    def rows_of(self, batch: Batch) -> list[int]:
        """Return the rows of a batch. The thousands are the number of the lane."""
        lane = int(batch.lane) * 1_000
        return [lane + row for row in range(read_count(batch.span.start) + 1, read_count(batch.span.end) + 1)]

    def verdicts(self, rows: Sequence[int], definition: int) -> tuple[list[int], list[int]]:
        """Return the rows that pass and the rows that are refused. Another definition refuses other rows."""
        if self.fickle:
            bad = {row for row in rows if self.rng.random() < 0.3}
        else:
            bad = {row for row in rows if (row * 7 + definition * 3) % 5 == 0}
        return [row for row in rows if row not in bad], [row for row in rows if row in bad]

    def note_committed(self, batch: Batch) -> None:
        """Check as an origin that the offset of the batch is durable."""
        entries = self.ledger.read()
        assert any(entry.kind == "settle" and entry.plan == batch.plan for entry in entries) or any(
            entry.kind == "snapshot" for entry in entries
        ), "told before the offset was durable"
        self.heard[batch.lane].append(batch.span.end)

    def forget(self, plan: PlannedBatch) -> None:
        """Remove the prepared rows of the batch."""
        if plan.decision is not None:
            self.prepared.pop(plan.decision.path, None)

    def faults_found(self) -> set[str]:
        """Return what is wrong at the end: rows that are lost, doubled, in two places or out of order."""
        found = set()
        refused = Counter(self.tables[DLQ].rows)
        for name in self.names:
            landed = self.tables[name].rows
            delivered = Counter(landed)
            found |= {"not replaced"} if delivered[STALE] else set()
            for lane in self.lanes:
                for row in range(int(lane) * 1_000 + 1, int(lane) * 1_000 + self.rows + 1):
                    found |= {"lost"} if not delivered[row] + refused[row] else set()
                    found |= {"doubled"} if max(delivered[row], refused[row]) > 1 else set()
                    found |= {"delivered and nacked"} if delivered[row] and refused[row] else set()
            for lane in self.lanes:
                order = [row for row in landed if row // 1_000 == int(lane)]
                found |= {"out of order"} if order != sorted(order) else set()
        return found

    def _start(self) -> Process | None:
        self.alive = True
        try:
            return self._process()
        except Killed:
            self._end_process(None)
            return None

    def _process(self) -> Process:
        return Process(self, self.definition)

    def _move(self, process: Process) -> Process | None:
        if self.orphans and self.rng.random() < 0.2:
            self._orphan_ends()
            return process
        if self.faults and self.rng.random() < 0.02:
            self.faults -= 1
            self._end_process(process)
            return None
        process.clock.move(self.rng.random() if self.retries else 0)
        if self.follows:
            self._time_passes(process)
        try:
            if process.worker_pool.work and (process.worker_pool.finished or self.rng.random() < 0.7):
                process.worker_pool.step(self.rng.choice(sorted(process.worker_pool.work)))
            elif process.worker_pool.finished or not process.worker_pool.work or self.follows:
                process.turn()
        except Killed:
            self._end_process(process)
            return None
        return process

    def _time_passes(self, process: Process) -> None:
        """Let rows arrive, and sometimes ask the run to stop. After all rows have arrived, a stop always comes."""
        process.clock.move(self.rng.random())
        self.arrived = min(self.rows, self.arrived + (self.rng.random() < 0.1))
        if self.rng.random() < (0.1 if self.arrived == self.rows else 0.005):
            if self.rng.random() < 0.5:
                process.dispatcher.request_stop("asked")
            else:
                last = self.ledger.read()[-1].seq
                self.ledger.append([Entry(kind="stop", body={"reason": "asked"})], after=last)

    def _end_process(self, process: Process | None) -> None:
        self.alive = False
        self.definition += self.rng.random() < 0.3
        if process is not None:
            self.orphans += process.transactions.values()

    def _orphan_ends(self) -> None:
        orphan = self.orphans.pop(self.rng.randrange(len(self.orphans)))
        if self.rng.random() < 0.7:
            orphan.land()

    def _thaw(self) -> None:
        """Let a process continue that slept while another process took the pipeline over."""
        process = self.rng.choice(self.taken_over)
        process.clock.move(1)
        if process.worker_pool.work:
            process.worker_pool.step(self.rng.choice(sorted(process.worker_pool.work)))
            return
        try:
            process.turn()
        except (Killed, Fenced):
            process.over = True
        if process.over:
            self.taken_over.remove(process)

    def _the_rest_is_done(self) -> bool:
        while self.taken_over:
            self._thaw()
        while self.orphans:
            self._orphan_ends()
        return True
