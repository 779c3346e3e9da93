"""What a runner does with one batch on Spark. It decides nothing: a task comes, an outcome goes back."""

from __future__ import annotations

import functools
import json
import logging
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, TypeVar

from destinations.deadline import Deadline
from destinations.delta import Delta
from destinations.destination import Destination, Identity, Label, Misfit, Unsure, Written
from destinations.dlq import DLQ
from origins.batch import JSON, Batch
from origins.crash_points import reached
from origins.errors import OriginError, WherryError
from origins.origin import Origin
from origins.protection import Protection
from runners.ahead import Ahead
from runners.blame import of_a_row
from runners.causes import forgotten
from runners.definitions.secrets import without
from runners.delivering import Delivering
from runners.demanding import demanded_now, refuses
from runners.line import labels_of, passing
from runners.nack_window import NackWindow
from runners.outcome import (
    Alone,
    Answers,
    Ask,
    Carry,
    Check,
    Checked,
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
from runners.plan import Decision, Plan
from runners.reading import AnyRows, Reading, columns, own
from runners.reconnecting import reconnect
from runners.session import ahead, in_short, is_here
from runners.sessions import Sessions
from runners.state import is_replay
from runners.store import Store
from runners.telling import told
from runners.upkeep import Upkeep

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from runners.counting import Tally
    from runners.preparing import Preparation
    from stages.rows import Marked

T = TypeVar("T")
log = logging.getLogger("wherry")


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
    protection: Protection = Protection()
    """What masks the rows that are shown."""
    deadline: Deadline | None = None
    """Until when a write may begin; None where nobody can take the pipeline over."""
    also: Sequence[str] = ()
    """Words of errors that pass by themselves, beside those that are known."""
    explained: int = 3
    """How many refused rows are fetched to say why a batch tripped the window, at most."""
    reading: Reading = field(init=False)
    """Where rows come from."""
    _in_vain: set[tuple[str, str]] = field(default_factory=set)
    """The lanes with each way in which a batch of theirs could not be decided; with `PICKS` until one has no refused
    row."""
    _delivering: Delivering = field(init=False)
    """Where they go."""
    _sessions: Sessions = field(init=False)
    _ahead: Ahead = field(default_factory=Ahead)
    _upkeep: Upkeep = field(init=False)

    def __post_init__(self) -> None:
        self.reading = Reading(self.origins, self.destinations)
        self._delivering = Delivering(self.store, self.keep_original, self.secrets)
        self._sessions = Sessions(self.spark, self.group, self.pool, self.time_zone, len(self.destinations) + 1)
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
            Check: self._check,
            Tick: self._tick,
        }
        try:
            with self._sessions.own() as spark:
                outcome = doing[type(task)](spark, task)
        except Exception as error:
            return Failed(error=told(_batches(task), self._met(error), self.protection))
        self._upkeep.behind(outcome)
        return outcome

    def cancel(self) -> None:
        """Cancel what Spark is doing for this run. May be called from another thread."""
        self._sessions.cancel()

    def planning(self) -> AbstractContextManager[None]:
        """What this thread asks of Spark in here is cancelled with the rest; what it asks later is not."""
        return self._sessions.planning()

    def confirm(self) -> Iterator[Exception]:
        """What destinations tell of batches of this run that they have no more."""
        for destination in {id(each): each for each in (*self.destinations.values(), self.dlq)}.values():
            try:
                destination.confirm()
            except (WherryError, OSError) as error:
                yield error

    def close(self) -> None:
        """Let the threads go that work beside the runners."""
        self._upkeep.close()
        self._sessions.close()

    def listening(self, spark: SparkSession) -> Mapping[str, Callable[[Batch], None]]:
        """The origins that do something when a batch's offset is durable, by name."""

        def telling(origin: Origin) -> Callable[[Batch], None]:
            return lambda batch: None if is_replay(batch.lane) else origin.committed(spark, own(batch))

        hear = {name: each for name, each in self.origins.items() if each.listens}
        return {name: telling(origin) for name, origin in hear.items()}

    def sample(self, spark: SparkSession, batch: Batch, most: int) -> list[JSON]:
        """Some rows of a batch as they are read, masked; none where they cannot be read."""
        from runners.snapshot import rows_of

        try:
            rows = rows_of(self.reading.fetched(spark, batch), columns(batch), most, self.protection)
        except Exception:  # the run has failed already; why is what matters, and may well be the same
            return []
        shown: list[JSON] = without(self.secrets, rows)
        return shown

    def forget(self, spark: SparkSession, plan: Plan) -> None:
        """Remove what was prepared for a batch that is finished."""
        if plan.decision is not None:
            self.store.remove(spark, plan.decision.path)

    def _carry(self, spark: SparkSession, task: Carry) -> Outcome:
        from stages.rows import MARK

        (name,) = task.plan.destinations
        began = time.monotonic()
        rows, tally = self._described(spark, task, self.reading.ready)
        described = time.monotonic() - began
        try:
            reached("before-write", name)
            written = self._written_straight(spark, name, rows, [self._label(task.plan, name)])
            reached("after-write", name)
            reached("after-writes")
        except Exception as error:
            if MARK in str(error):
                return Refused()
            if of_a_row(error, self.also):
                self._ask_demands(spark, task.plan.batch)
                return Refused()
            raise
        return Landed(written={name: written}, counts=tally.counts(written.rows), described=described)

    def _ask_demands(self, spark: SparkSession, batch: Batch) -> None:
        """Go by what destinations demand by now: a table may have got a constraint since the run began."""
        line = self.reading.lines[batch.origin].demanding({})
        rows = passing(self.reading.nothing(spark, batch), line.common, {})
        leaving = {name: passing(rows, steps, {}).schema for name, steps in line.branches.items()}
        demands = {name: demanded_now(spark, self.destinations[name], schema) for name, schema in leaving.items()}
        self.reading.lines = {**self.reading.lines, batch.origin: line.demanding(demands)}

    def _together(self, spark: SparkSession, task: Together) -> Shared | Alone:
        """Whatever one of them raises before the write, it raises again by itself."""
        from runners.counting import apart
        from stages.rows import MARK

        (name,) = task.carries[0].plan.destinations
        labels = [self._label(carry.plan, name) for carry in task.carries]
        began = time.monotonic()
        try:
            rows, tallies = self._joined(spark, task.carries)
        except Exception as error:
            self._parted(labels, error)
            return Alone()
        took = time.monotonic() - began
        try:
            reached("before-write", name)
            written = self._written_straight(spark, name, rows, labels)
            reached("after-write", name)
            reached("after-writes")
        except Exception as error:
            if MARK in str(error) or of_a_row(error, self.also):
                return Alone()
            self._parted(labels, error)
            return Alone(error=error)
        figures = apart(tallies, written.rows)
        landed = {
            label.batch.lane: Landed(written={name: replace(written, rows=got)}, counts=counts, described=took)
            for label, (counts, got) in zip(labels, figures, strict=True)
        }
        return Shared(landed=landed)

    def _joined(self, spark: SparkSession, carries: Sequence[Carry]) -> tuple[AnyRows, Sequence[Tally]]:
        """The rows of straight batches in one piece, and who counts those of each."""
        found = self.reading.together(spark, [carry.plan for carry in carries])
        if found is not None:
            for carry in carries:
                self._ahead.drop(carry.plan.batch)
            return found
        described = [self._described(spark, carry, self.reading.ready) for carry in carries]
        frames = (_as_frame(spark, rows) for rows, _ in described)
        return functools.reduce(lambda above, below: above.union(below), frames), [tally for _, tally in described]

    def _label(self, plan: Plan, name: str) -> Label:
        """The label of a straight batch."""
        return Label(batch=plan.batch, destination=name, few=self.reading.is_few(plan), deadline=self.deadline)

    def _parted(self, labels: Sequence[Label], error: Exception) -> None:
        said = self.protection.words(error, in_short(error))
        log.warning("the batches of %s lanes go one by one: %s", len(labels), said)

    def _written_straight(self, spark: SparkSession, name: str, rows: AnyRows, labels: Sequence[Label]) -> Written:
        import pyarrow as pa

        destination = self.destinations[name]
        written = destination.write_here(spark, rows.to_reader(), labels) if isinstance(rows, pa.Table) else None
        return destination.write(spark, _as_frame(spark, rows), labels) if written is None else written

    def _described(self, spark: SparkSession, task: Carry | Prepare, describe: Callable[[SparkSession, Plan], T]) -> T:
        """The task's rows, described by this or, while those before were carried, already in another thread; there
        those of the next batch are described from then on."""
        batch, ahead = task.plan.batch, task.ahead
        rows = self._ahead.taken(batch, spark)
        if rows is not None:
            self.reading.origin(batch).check(spark, own(batch))
        described: T = describe(spark, task.plan) if rows is None else rows.result()
        if ahead is not None:
            coming = self._sessions.helpers().submit(self._in_case, spark, ahead)
            self._ahead.begin(ahead.batch, spark, coming)
        return described

    def _in_case(self, spark: SparkSession, plan: Plan) -> object:
        with self._sessions.named(spark):
            return self.reading.ready(spark, plan) if plan.straight else self._marked(spark, plan)

    def _prepare(self, spark: SparkSession, task: Prepare) -> Prepared:
        from runners.preparing import COPIES, PICKS

        try:
            preparation, frame = self._described(spark, task, self._marked)
            lane = task.plan.batch.lane
            ways = [way for way in (COPIES, PICKS) if is_here(spark) and (lane, way) not in self._in_vain]
            prepared = preparation.decide(frame, few=self.reading.is_few(task.plan), ways=ways)
            self._in_vain |= {(lane, way) for way in preparation.in_vain}
            if not prepared.counts.nacked and PICKS not in preparation.in_vain:
                self._in_vain.discard((lane, PICKS))
        except Exception as error:
            if not of_a_row(error, self.also):
                raise
            prepared = self._sifted(spark, task.plan)
        reached("after-prepare")
        return self._coded(spark, prepared) if prepared.nacks and task.codes else prepared

    def _sifted(self, spark: SparkSession, plan: Plan) -> Prepared:
        """Decide a batch of which rows make a stage raise."""
        from runners.sifting import Sieve

        preparation, rows = self._begun(spark, plan)
        return preparation.decide(Sieve(preparation, self.also).describe(rows))

    def _coded(self, spark: SparkSession, prepared: Prepared) -> Prepared:
        """With the reason for which each row was refused."""
        from runners.preparing import refused_rows

        decision = Decision(
            path=prepared.path,
            counts=prepared.counts,
            window=NackWindow(),
            sections=prepared.sections,
            bases=prepared.bases,
        )
        found = refused_rows(spark, self.store, decision).select("position", "nack.code").collect()
        codes = [(min(row["position"], prepared.counts.read), row["code"]) for row in found]
        return replace(prepared, codes=codes)

    def _marked(self, spark: SparkSession, plan: Plan) -> tuple[Preparation, DataFrame]:
        """The rows of a batch with their verdicts, and who decides it."""
        preparation, rows = self._begun(spark, plan)
        return preparation, preparation.describe(rows)

    def _begun(self, spark: SparkSession, plan: Plan) -> tuple[Preparation, Marked]:
        """The rows of a batch as they were read, and who decides it."""
        from runners.preparing import Preparation
        from stages.rows import Marked

        batch = plan.batch
        origin = self.reading.origin(batch)
        preparation = Preparation(
            spark=spark,
            store=self.store,
            name=f"{batch.plan}-{uuid.uuid4().hex[:8]}",
            line=self.reading.line(plan),
            pins=plan.pins,
            order=origin.parts(own(batch)),
            protected=self.protection.columns,
            lying=lambda: origin.files_here(spark, own(batch)),
            check=lambda: origin.check(spark, own(batch)),
        )
        frame = self.reading.fetched(spark, batch, places=True)
        return preparation, Marked.begin(frame, columns(batch), labels_of(batch), preparation.keep)

    def _deliver(self, spark: SparkSession, task: Deliver) -> Landed:
        """The first of them in this thread, the others beside it."""
        moments: dict[str, float] = {}

        def deliver(session: SparkSession, name: str) -> Written | Exception:
            ended = self._delivered(session, task, name)
            moments[name] = time.monotonic()
            return ended

        def beside(name: str) -> Written | Exception:
            with self._sessions.own() as session:
                return deliver(session, name)

        first, *others = task.names
        started = [(name, self._sessions.helpers().submit(beside, name)) for name in others]
        ended = {first: deliver(spark, first), **{name: each.result() for name, each in started}}
        if task.plan.destinations[-1] in task.names:
            reached("after-writes")
        last = max((moment for name, moment in moments.items() if name != DLQ), default=None)
        return Landed(
            written={name: each for name, each in ended.items() if isinstance(each, Written)},
            failed={name: each for name, each in ended.items() if isinstance(each, Exception)},
            outlasted=max(0.0, moments[DLQ] - last) if DLQ in moments and last is not None else 0.0,
        )

    def _delivered(self, spark: SparkSession, task: Deliver, name: str) -> Written | Exception:
        kind = "dlq" if name == DLQ else "write"
        try:
            reached(f"before-{kind}", name)
            written = self._written(spark, task, name)
            reached(f"after-{kind}", name)
        except Exception as error:
            return told([task.plan.batch], self._met(error), self.protection)
        return written

    def _written(self, spark: SparkSession, task: Deliver, name: str) -> Written:
        decision = task.decision
        label = Label(batch=task.plan.batch, destination=name, deadline=self.deadline)
        rows = decision.counts.nacked if name == DLQ else decision.counts.branches[name].expected
        return self._delivering.written(spark, self._named(name), label, decision, rows)

    def _ask(self, spark: SparkSession, task: Ask) -> Answers:
        found: dict[str, Written] = {}
        token = uuid.uuid4().hex
        for name in task.names:
            destination = self._named(name)
            if destination.remembers and not task.ended:
                destination.fence(spark, token)
                reached("after-fence", name)
        for name in task.names:
            written = self._found(spark, Label(batch=task.plan.batch, destination=name), task.identities[name])
            reached("after-ask", name)
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
            read = self.reading.fetched(spark, batch).count()
        except OriginError as error:
            log.warning("batch %s of lane %s was delivered; its rows as read: %s", batch.number, batch.lane, error)
            return Counted(read=None)
        if task.written.rows is not None or not self.reading.is_known(task.plan):
            return Counted(read=read)
        return Counted(read=read, left=self.reading.straight(spark, task.plan)[0].count())

    def _explain(self, spark: SparkSession, task: Explain) -> Explained:
        from pyspark.sql import functions as F

        from runners.preparing import refused_rows

        refused = refused_rows(spark, self.store, task.decision)
        upto = refused.where(F.col("position") <= task.place).orderBy(F.col("position").desc())
        if task.stages:
            upto = refused.where(F.col("nack")["stage"].isin(*task.stages)).orderBy("position")
        rows = upto.limit(max(3, self.explained)).collect()
        nacks = [self.protection.nack(_shown(row["nack"].asDict())) for row in rows]
        said = ("message", "row", "original")
        shown = [{**nack, **without(self.secrets, {name: nack.get(name) for name in said})} for nack in nacks]
        return Explained(nacks=shown)

    def _check(self, spark: SparkSession, task: Check) -> Checked:
        from runners.preparing import rows_for

        batch = task.plan.batch
        opened = batch.origin in self.reading.lines
        for name in task.plan.destinations:
            rows = rows_for(spark, self.store, task.decision, name)
            try:
                refused = refuses(spark, self._named(name), rows, labels_of(batch))
            except Misfit:
                if opened:
                    raise
                refused = True  # whoever opens the run next tells of it, and of the way out
            if refused and opened:
                self._ask_demands(spark, batch)
            if refused:
                return Checked(refusing=name, same=opened and self._is_same_again(task.plan))
        return Checked()

    def _is_same_again(self, plan: Plan) -> bool:
        """Whether the batch, decided once more, is the same one, and the DLQ can tell what it has of it."""
        origin = self.reading.origin(plan.batch)
        return self.reading.line(plan).repeatable and origin.repeatable and isinstance(self.dlq, Delta)

    def _tick(self, spark: SparkSession, task: Tick) -> Ticked:
        batch, line = task.batch, self.reading.lines[task.batch.origin]
        rows = passing(self.reading.nothing(spark, batch), line.common, {})
        for name, steps in line.branches.items():
            own_rows = passing(rows, steps, {})
            self.destinations[name].tick(spark, own_rows.frame, Label(batch=batch, destination=name))
        return Ticked()

    def _tend(self, name: str) -> None:
        with self._sessions.own() as spark:
            self._named(name).tend(spark)

    def _named(self, name: str) -> Destination:
        return self.dlq if name == DLQ else self.destinations[name]

    def _met(self, error: Exception) -> Exception:
        """The error that a task of this thread met. Where its session was forgotten there is another one for the next
        task; else why there is none is the error."""
        if not forgotten(error):
            return error
        self._sessions.lose()
        try:
            reconnect(self.spark)
            if self.deadline is not None:
                self.deadline = replace(self.deadline, ahead=ahead(self.spark))
        except Exception as other:
            return other
        return error


def _as_frame(spark: SparkSession, rows: AnyRows) -> DataFrame:
    import pyarrow as pa

    return spark.createDataFrame(rows) if isinstance(rows, pa.Table) else rows


def _batches(task: Task) -> Sequence[Batch]:
    if isinstance(task, Tick):
        return [task.batch]
    return [each.plan.batch for each in (task.carries if isinstance(task, Together) else [task])]


def _shown(nack: Mapping[str, str]) -> Mapping[str, JSON]:
    return {**nack, "row": json.loads(nack["row"]), "original": json.loads(nack["original"])}
