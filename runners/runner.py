"""What a runner does with one batch on Spark. It decides nothing: a task comes, an outcome goes back."""

from __future__ import annotations

import functools
import json
import logging
import threading
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, TypeVar

from destinations.destination import Destination, Identity, Label, Unsure, Written
from origins.batch import JSON, Batch
from origins.errors import OriginError, WherryError
from origins.origin import Origin
from runners.errors import CarryFailed
from runners.line import Line, labels_of, passing
from runners.outcome import (
    DLQ,
    Alone,
    Answers,
    Ask,
    Carry,
    Count,
    Counted,
    Deliver,
    Explain,
    Explained,
    Failed,
    Landed,
    Outcome,
    Prepare,
    Prepared,
    Refused,
    Shared,
    Task,
    Tick,
    Ticked,
    Together,
)
from runners.progress import Plan
from runners.secrets import without
from runners.session import cancel, in_short, named_work, sees_ends
from runners.session import own as own_session
from runners.store import Store
from runners.upkeep import Upkeep

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from runners.counting import Tally
    from runners.preparing import Preparation

T = TypeVar("T")
log = logging.getLogger("wherry")


@dataclass(frozen=True, kw_only=True)
class Ahead:
    """The rows of a batch, described before it is this batch's turn."""

    plan: str
    session: SparkSession
    rows: Future[Any]

    def serves(self, batch: Batch, session: SparkSession) -> bool:
        """Whether these are the rows of the batch, for whoever works in this session."""
        return self.plan == batch.plan and self.session is session and self.rows.exception() is None


@dataclass
class Runner:
    """Does tasks, in as many threads as call it; each has a Spark session of its own."""

    spark: SparkSession
    group: str
    """The name under which all its work on Spark can be cancelled."""
    origins: Mapping[str, Origin]
    destinations: Mapping[str, Destination]
    """By all names that they have or had."""
    dlq: Destination
    keep_original: bool
    store: Store
    time_zone: str = "UTC"
    pool: str = ""
    """With whom its work shares the cores fairly; nothing: with whoever else is in no pool."""
    assume: str = ""
    """What holds for a batch of which a destination cannot say whether it has it; nothing: the run stops."""
    secrets: Mapping[str, str] = field(default_factory=dict)
    """What no reason for which a row is refused says, with what stands in its place."""
    lines: Mapping[str, Line] = field(default_factory=dict)
    """The stages of each origin's rows, once the run is open."""
    _local: threading.local = field(default_factory=threading.local)
    _sessions: list[SparkSession] = field(default_factory=list)
    _pools: list[ThreadPoolExecutor] = field(default_factory=list)
    _ahead: dict[str, Ahead] = field(default_factory=dict)
    """The rows of the batch that each lane most likely carries next."""
    _upkeep: Upkeep = field(init=False)

    def __post_init__(self) -> None:
        self._upkeep = Upkeep(lambda name: self._named(name).keeps_house, self._tend)

    def process(self, task: Task) -> Outcome:
        """Do the task. An error is an outcome: `Failed`, with the batch named."""
        doing: Mapping[type, Callable[..., Outcome]] = {
            Carry: self._carry,
            Together: self._together,
            Prepare: self._prepare,
            Deliver: self._deliver,
            Ask: self._ask,
            Count: self._count,
            Explain: self._explain,
            Tick: self._tick,
        }
        spark = self._session()
        try:
            with named_work(spark, self.group, self.pool):
                outcome = doing[type(task)](spark, task)
        except Exception as error:
            return Failed(error=_told(_batches(task), error))
        self._upkeep.behind(outcome)
        return outcome

    def cancel(self) -> None:
        """Cancel what Spark is doing for this run. May be called from another thread."""
        for session in tuple(self._sessions):
            cancel(session, self.group)

    def close(self) -> None:
        """Let the threads go that work beside the runners."""
        self._upkeep.close()
        for pool in self._pools:
            pool.shutdown()

    def listening(self, spark: SparkSession) -> Mapping[str, Callable[[Batch], None]]:
        """The origins that do something when a batch's offset is durable, by name."""

        def telling(origin: Origin) -> Callable[[Batch], None]:
            return lambda batch: origin.committed(spark, own(batch))

        hear = {name: each for name, each in self.origins.items() if type(each).committed is not Origin.committed}
        return {name: telling(origin) for name, origin in hear.items()}

    def forget(self, spark: SparkSession, plan: Plan) -> None:
        """Remove what was prepared for a batch that is finished."""
        if plan.decision is not None:
            self.store.remove(spark, plan.decision.path)

    def _carry(self, spark: SparkSession, task: Carry) -> Outcome:
        from stages.rows import MARK

        batch, (name,) = task.plan.batch, task.plan.destinations
        began = time.monotonic()
        frame, tally = self._described(spark, task, self._straight)
        described = time.monotonic() - began
        try:
            written = self.destinations[name].write(spark, frame, [Label(batch=batch, destination=name)])
        except Exception as error:
            if MARK in str(error):
                return Refused()
            raise
        return Landed(written={name: written}, counts=tally.counts(written.rows), described=described)

    def _together(self, spark: SparkSession, task: Together) -> Shared | Alone:
        """Whatever one of them raises before the write, it raises again by itself."""
        from runners.counting import apart
        from stages.rows import MARK

        (name,) = task.carries[0].plan.destinations
        labels = [Label(batch=carry.plan.batch, destination=name) for carry in task.carries]
        began = time.monotonic()
        try:
            described = [self._described(spark, carry, self._straight) for carry in task.carries]
            rows = functools.reduce(lambda above, below: above.union(below), (frame for frame, _ in described))
        except Exception as error:
            log.info("the batches of %s lanes go one by one: %s", len(labels), in_short(error))
            return Alone()
        took = time.monotonic() - began
        try:
            written = self.destinations[name].write(spark, rows, labels)
        except Exception as error:
            if MARK in str(error):
                return Alone()
            raise
        figures = apart([tally for _, tally in described], written.rows)
        landed = {
            label.batch.lane: Landed(written={name: replace(written, rows=got)}, counts=counts, described=took)
            for label, (counts, got) in zip(labels, figures, strict=True)
        }
        return Shared(landed=landed)

    def _straight(self, spark: SparkSession, plan: Plan) -> tuple[DataFrame, Tally]:
        """The rows of a straight batch, and who counts them."""
        from runners.counting import Tally
        from stages.rows import Straight

        batch, line = plan.batch, self.lines[plan.batch.origin]
        tally = Tally.of(line)
        rows = Straight.begin(self._fetched(spark, batch), columns(batch), labels_of(batch), tally.observe)
        return passing(rows, line.common, plan.pins).frame, tally

    def _described(self, spark: SparkSession, task: Carry | Prepare, describe: Callable[[SparkSession, Plan], T]) -> T:
        """The task's rows, described by this or, while those before were carried, already in another thread; where
        those of the next batch are described from now on."""
        batch, ahead = task.plan.batch, task.ahead
        begun = self._ahead.pop(batch.lane, None)
        if ahead is not None:
            rows = self._pool().submit(self._in_case, spark, ahead)
            self._ahead[batch.lane] = Ahead(plan=ahead.batch.plan, session=spark, rows=rows)
        if begun is None or not begun.serves(batch, spark):
            return describe(spark, task.plan)
        self.origins[batch.origin].check(spark, own(batch))
        described: T = begun.rows.result()
        return described

    def _in_case(self, spark: SparkSession, plan: Plan) -> object:
        with named_work(spark, self.group, self.pool):
            return self._straight(spark, plan) if plan.straight else self._marked(spark, plan)

    def _prepare(self, spark: SparkSession, task: Prepare) -> Prepared:
        preparation, frame = self._described(spark, task, self._marked)
        return preparation.decide(frame)

    def _marked(self, spark: SparkSession, plan: Plan) -> tuple[Preparation, DataFrame]:
        """The rows of a batch with their verdicts, and who decides it."""
        from runners.preparing import Preparation
        from stages.rows import Marked

        batch = plan.batch
        preparation = Preparation(
            spark=spark,
            store=self.store,
            name=f"{batch.plan}-{uuid.uuid4().hex[:8]}",
            line=self.lines[batch.origin],
            pins=plan.pins,
            order=self.origins[batch.origin].parts(own(batch)),
        )
        frame = self._fetched(spark, batch, places=True)
        rows = Marked.begin(frame, columns(batch), labels_of(batch), preparation.keep)
        return preparation, preparation.describe(rows)

    def _deliver(self, spark: SparkSession, task: Deliver) -> Landed:
        """The first of them in this thread, the others beside it."""

        def beside(name: str) -> Written | Exception:
            session = self._session()
            with named_work(session, self.group, self.pool):
                return self._delivered(session, task, name)

        first, *others = task.names
        started = [(name, self._pool().submit(beside, name)) for name in others]
        ended = {first: self._delivered(spark, task, first), **{name: each.result() for name, each in started}}
        return Landed(
            written={name: each for name, each in ended.items() if isinstance(each, Written)},
            failed={name: each for name, each in ended.items() if isinstance(each, Exception)},
        )

    def _delivered(self, spark: SparkSession, task: Deliver, name: str) -> Written | Exception:
        from destinations.dead_letters import dead_letters
        from runners.preparing import refused_rows, rows_for

        batch, decision = task.plan.batch, task.decision
        try:
            if name == DLQ:
                refused = refused_rows(spark, self.store, decision)
                rows = dead_letters(refused, batch, original=self.keep_original, secrets=self.secrets)
            else:
                rows = rows_for(spark, self.store, decision, name)
            return self._named(name).write(spark, rows, [Label(batch=batch, destination=name)])
        except Exception as error:
            return _told([batch], error)

    def _ask(self, spark: SparkSession, task: Ask) -> Answers:
        found: dict[str, Written] = {}
        token = uuid.uuid4().hex
        for name in task.names:
            destination = self._named(name)
            if destination.remembers and not (task.ours and sees_ends(spark)):
                destination.fence(spark, token)
        for name in task.names:
            written = self._found(spark, Label(batch=task.plan.batch, destination=name), task.identities[name])
            if written is not None:
                found[name] = written
        return Answers(found=found)

    def _found(self, spark: SparkSession, label: Label, identity: Identity) -> Written | None:
        try:
            return self._named(label.destination).find(spark, label, identity)
        except Unsure as error:
            if not self.assume:
                raise
            log.warning("%s  As you said, it is %s.", error.message, self.assume)
            return Written(rows=None) if self.assume == "delivered" else None

    def _count(self, spark: SparkSession, task: Count) -> Counted:
        batch = task.plan.batch
        try:
            left = self._straight(spark, task.plan)[0].count() if task.written.rows is None else None
            return Counted(read=self._fetched(spark, batch).count(), left=left)
        except OriginError as error:
            log.warning("batch %s of lane %s was delivered; its rows as read: %s", batch.number, batch.lane, error)
            return Counted(read=None)

    def _explain(self, spark: SparkSession, task: Explain) -> Explained:
        from pyspark.sql import functions as F

        from runners.preparing import refused_rows

        refused = refused_rows(spark, self.store, task.decision)
        upto = refused.where(F.col("position") <= task.place).orderBy(F.col("position").desc()).limit(3)
        return Explained(nacks=[without(self.secrets, _shown(row["nack"].asDict())) for row in upto.collect()])

    def _tick(self, spark: SparkSession, task: Tick) -> Ticked:
        from pyspark.sql.types import StructType

        from stages.rows import Straight

        batch, line = task.batch, self.lines[task.batch.origin]
        nothing = spark.createDataFrame([], StructType.fromJson(json.loads(batch.schema)))
        rows = Straight.begin(nothing, columns(batch), labels_of(batch), lambda frame, _: frame)
        rows = passing(rows, line.common, {})
        for name, steps in line.branches.items():
            own_rows = passing(rows, steps, {})
            self.destinations[name].tick(spark, own_rows.frame, Label(batch=batch, destination=name))
        return Ticked()

    def _tend(self, name: str) -> None:
        spark = self._session()
        with named_work(spark, self.group, self.pool):
            self._named(name).tend(spark)

    def _fetched(self, spark: SparkSession, batch: Batch, *, places: bool = False) -> DataFrame:
        origin = self.origins.get(batch.origin)
        if origin is None:
            raise OriginError(f"There is no origin '{batch.origin}' any more.", hint="Put it back under that name.")
        return origin.fetch(spark, own(batch), places=places)

    def _named(self, name: str) -> Destination:
        return self.dlq if name == DLQ else self.destinations[name]

    def _pool(self) -> ThreadPoolExecutor:
        """The threads beside this one."""
        pool: ThreadPoolExecutor | None = getattr(self._local, "pool", None)
        if pool is None:
            pool = self._local.pool = ThreadPoolExecutor(len(self.destinations) + 1, "wherry-beside")
            self._pools.append(pool)
        return pool

    def _session(self) -> SparkSession:
        session: SparkSession | None = getattr(self._local, "session", None)
        if session is None:
            session = self._local.session = own_session(self.spark, self.time_zone)
            self._sessions.append(session)
        return session


def _batches(task: Task) -> Sequence[Batch]:
    if isinstance(task, Tick):
        return [task.batch]
    return [each.plan.batch for each in (task.carries if isinstance(task, Together) else [task])]


def _told(batches: Sequence[Batch], error: Exception) -> Exception:
    """The error as a person is told of it, with the batches that were being carried."""
    if isinstance(error, WherryError):
        return error
    named = [f"batch {batch.number} of lane {batch.lane} ({batch.span.label})" for batch in batches]
    more = f" and {len(named) - 3} more" if len(named) > 3 else ""
    failed = CarryFailed(
        f"{', '.join(named[:3])}{more}: {in_short(error)}",
        hint="Its offset stays where it was; the next run looks at this batch first."
        if len(named) == 1
        else "Their offsets stay where they were; the next run looks at these batches first.",
    )
    failed.__cause__ = error
    return failed


def own(batch: Batch) -> Batch:
    """The batch as its origin knows it: with the origin's own name of the lane."""
    return replace(batch, lane=batch.lane.rpartition("/")[2])


def columns(batch: Batch) -> tuple[str, ...]:
    """The names of the columns that the batch was planned with."""
    return tuple(field["name"] for field in json.loads(batch.schema)["fields"])


def _shown(nack: Mapping[str, str]) -> Mapping[str, JSON]:
    return {**nack, "row": json.loads(nack["row"]), "original": json.loads(nack["original"])}
