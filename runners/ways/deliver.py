"""Delivers a decided batch to its destinations, and asks them about a batch that they may already have."""

from __future__ import annotations

import json
import logging
import time
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial

from destinations.capabilities import stop_writers
from destinations.dead_letters import DeadLetters, make_dlq_schema, make_filtered_schema, select_lacking
from destinations.delta.delta import Delta
from destinations.destination import Misfit, OpenDestination, Written, find_or_assume
from destinations.dlq import DLQ, FALLBACK, FILTERED
from destinations.labels import Deadline, Label
from origins.batch import Batch, Json
from origins.batch_rows import BatchRows, FrameRows
from origins.crash_points import reach
from origins.errors import OriginError, list_spark_errors
from origins.lazy import DataFrame, F, SparkSession
from runners.model.causes import CauseCounter, Causes
from runners.model.error_kinds import is_large
from runners.model.masking import without
from runners.model.pipeline_state import is_replay
from runners.model.planned_batch import PlannedBatch
from runners.model.spec import PipelineSpec
from runners.model.tasks import (
    Answers,
    AskDestinations,
    Checked,
    CheckRefusals,
    Counted,
    CountSpan,
    Deliver,
    Explain,
    Explained,
    Landed,
)
from runners.spark.session_pool import SessionPool
from runners.state.decided_rows import FilteredRows, RefusedRows, select_rows_for
from runners.state.prepared_store import PreparedStore
from runners.ways.batch_source import BatchReader, would_refuse
from runners.ways.row_outcomes import group_refusals
from runners.ways.stage_chain import make_labels

log = logging.getLogger("wherry")


@dataclass(frozen=True, kw_only=True)
class Delivery:
    """Delivers decided batches, and asks origins, destinations and the store about batches.

    Any number of threads may use it at once.
    """

    sessions: SessionPool
    reading: BatchReader
    pipeline: PipelineSpec
    store: PreparedStore
    opened: Mapping[str, OpenDestination]
    """The open destinations by all names that they have or had, with the DLQ and the table with filtered rows."""
    small_refused: int
    """The number of refused rows up to which they are read in this process."""
    deadline: Callable[[], Deadline | None]
    """Returns the end of the time in which a write may begin; None if there is none."""
    fail: Callable[[Batch, Exception], Exception]
    """Returns the error of a write or a question, in words for a person."""
    assume: str = ""
    """The answer if a destination does not know whether it has a batch:

    `delivered` or `missing`. If empty, the run stops.
    """

    def deliver(self, spark: SparkSession, task: Deliver) -> Landed:
        """Write what was decided for these destinations: the first one in this thread, and the others in parallel."""
        moments: dict[str, float] = {}

        def deliver(session: SparkSession, name: str) -> Written | Exception:
            ended = self._deliver_one(session, task, name)
            moments[name] = time.monotonic()
            return ended

        def beside(name: str) -> Written | Exception:
            with self.sessions.use_session() as session:
                return deliver(session, name)

        first, *others = task.names
        started = [(name, self.sessions.get_helpers().submit(beside, name)) for name in others]
        ended = {first: deliver(spark, first), **{name: each.result() for name, each in started}}
        if task.plan.destinations[-1] in task.names:
            reach("after-writes")
        last = max((moment for name, moment in moments.items() if name not in (DLQ, FALLBACK)), default=None)
        return Landed(
            written={name: each for name, each in ended.items() if isinstance(each, Written)},
            failed={name: each for name, each in ended.items() if isinstance(each, Exception)},
            outlasted=max(0.0, moments[DLQ] - last) if DLQ in moments and last is not None else 0.0,
        )

    def _deliver_one(self, spark: SparkSession, task: Deliver, name: str) -> Written | Exception:
        kind = "dlq" if name in (DLQ, FALLBACK) else "write"
        try:
            reach(f"before-{kind}", name)
            written = self._write(spark, task, name)
            reach(f"after-{kind}", name)
        except Exception as error:  # noqa: BLE001 -- the edge of the thread, where an error is an outcome
            return self.fail(task.plan.batch, error)
        return written

    def _write(self, spark: SparkSession, task: Deliver, name: str) -> Written:
        label = Label(batch=task.plan.batch, destination=name, deadline=self.deadline())
        if name == FALLBACK:
            self.opened[name].ensure_place(spark, make_dlq_schema())  # old batches may be finished first
        if name in (DLQ, FALLBACK, FILTERED):
            rows = self._read_beside(spark, task, name)
        else:
            rows = select_rows_for(spark, self.store, task.decision, name)
        return self.opened[name].write(spark, rows, [label])

    def _read_beside(self, spark: SparkSession, task: Deliver, name: str) -> BatchRows:
        """Return the refused rows, or the filtered rows, as they are stored.

        If the batch is decided again, the DLQ gets only the refused rows that it lacks.
        """
        batch, decided = task.plan.batch, (spark, self.store, task.decision, self.small_refused)
        stored = partial(
            DeadLetters,
            batch=batch,
            original=self.pipeline.dlq.original,
            secrets=self.pipeline.secrets,
            source=self.reading.name_source(batch),
        )
        if name == FILTERED:
            return stored(refused=FilteredRows(*decided), columns=make_filtered_schema())
        replayed = [str(part) for part in batch.span.parts] if is_replay(batch.lane) else ()
        letters = stored(refused=RefusedRows(*decided), replayed=replayed)
        if name != DLQ or not task.decision.again:
            return letters
        dlq = self.reading.destinations[DLQ]
        assert isinstance(dlq, Delta), "another destination could not say what it has"
        return FrameRows(select_lacking(spark, dlq, letters.frame(), batch))

    def ask(self, spark: SparkSession, task: AskDestinations) -> Answers:
        """Make sure that no write of the batch is in progress, then ask which destinations have it."""
        found: dict[str, Written] = {}
        failed: dict[str, Exception] = {}
        token = uuid.uuid4().hex

        def ask_one(name: str, ask: Callable[[], None]) -> None:
            try:
                ask()
            except Exception as error:
                if name != DLQ or FALLBACK not in self.opened:
                    raise
                failed[name] = self.fail(task.plan.batch, error)

        def fence(name: str) -> None:
            stop_writers(self.opened[name], spark, token)
            reach("after-fence", name)

        def find(name: str) -> None:
            label = Label(batch=task.plan.batch, destination=name)
            written = find_or_assume(self.opened[name], spark, label, task.identities[name], self.assume)
            reach("after-ask", name)
            if written is not None:
                found[name] = written

        for name in task.names:
            if self.reading.destinations[name].remembers and not task.ended:
                ask_one(name, partial(fence, name))
        for name in task.names:
            ask_one(name, partial(find, name))
        return Answers(found={name: each for name, each in found.items() if name not in failed}, failed=failed)

    def count(self, spark: SparkSession, task: CountSpan) -> Counted:
        """Count the rows of a batch that an earlier process delivered."""
        batch = task.plan.batch
        try:
            rows = self.reading.fetch_rows(spark, batch)
            table = rows.table()
            read = rows.frame().count() if table is None else table.num_rows
        except OriginError as error:
            log.warning("batch %s of lane %s was delivered; its rows as read: %s", batch.number, batch.lane, error)
            return Counted(read=None)
        if task.written.rows is not None or not self.reading.is_known(task.plan):
            return Counted(read=read)
        if not self.reading.find_known_chain(task.plan).common:
            return Counted(read=read, left=read)
        return Counted(read=read, left=self._count_left(spark, task.plan))

    def _count_left(self, spark: SparkSession, plan: PlannedBatch) -> int:
        try:
            return self.reading.read_straight_frame(spark, plan)[0].count()
        except list_spark_errors() as error:
            if not is_large(error):
                raise
            self.reading.begin_claims(plan)
            return self.reading.read_straight_frame(spark, plan)[0].count()

    def explain(self, spark: SparkSession, task: Explain) -> Explained:
        """Fetch the refused rows that explain why a batch stops the run, masked."""
        refused = RefusedRows(spark, self.store, task.decision).frame()
        upto = refused.where(F.col("position") <= task.place).orderBy(F.col("position").desc())
        if task.stages:
            upto = refused.where(F.col("nack")["stage"].isin(*task.stages)).orderBy("position")
        rows = upto.limit(max(3, self.pipeline.run_options.snapshot)).collect()
        nacks = [self.reading.protection.mask_nack(_parse(row["nack"].asDict())) for row in rows]
        texts = ("message", "row", "original")
        shown = [{**nack, **without(self.pipeline.secrets, {name: nack.get(name) for name in texts})} for nack in nacks]
        few = task.stages or task.decision.counts.nacked <= len(shown)
        return Explained(nacks=shown, causes=Causes() if few else self._count_causes(refused, task))

    def _count_causes(self, refused: DataFrame, task: Explain) -> Causes:
        """Return why these rows were refused, with values masked as in `explain`."""
        counter, source = CauseCounter(), self.reading.name_source(task.plan.batch)
        shown = ["code", "stage", "destination", "message", "row", "original"]
        for group in group_refusals(refused.select("nack.*", "part"), shown[:3], shown):
            known = self.reading.protection.mask_nack(_parse(group))
            message = without(self.pipeline.secrets, known["message"])
            counter.add({**known, "message": message}, group["alike"], [source] if source else group["files"])
        return counter.count(of=task.decision.counts.nacked)

    def check(self, spark: SparkSession, task: CheckRefusals) -> Checked:
        """Find out whether a destination would refuse rows that were decided for it."""
        batch = task.plan.batch
        opened = batch.origin in self.reading.chains
        for name in task.plan.destinations:
            rows = select_rows_for(spark, self.store, task.decision, name).frame()
            try:
                refused = would_refuse(spark, self.reading.destinations[name], rows, make_labels(batch))
            except Misfit:
                if opened:
                    raise
                refused = True  # the run that opens next reports it, with the way out
            if refused and opened:
                self.reading.ask_demands(spark, batch)
            if refused:
                return Checked(refusing=name, same=opened and self._is_same_again(task.plan))
        return Checked()

    def _is_same_again(self, plan: PlannedBatch) -> bool:
        """Whether a second decision of the batch gives the same rows, and the DLQ can report which of them it has."""
        origin, dlq = self.reading.find_origin(plan.batch), self.reading.destinations[DLQ]
        return self.reading.find_chain(plan).repeatable and origin.repeatable and isinstance(dlq, Delta)


def _parse(nack: Mapping[str, str]) -> Mapping[str, Json]:
    return {**nack, "row": json.loads(nack["row"]), "original": json.loads(nack["original"])}
