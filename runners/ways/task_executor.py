"""Does the work of a runner on Spark for one batch at a time: it gets a task and returns an outcome.

It decides nothing.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from functools import partial

from destinations.capabilities import ConfirmsBatches, NeedsMaintenance, NoticesPauses
from destinations.destination import Destination, OpenDestination
from destinations.dlq import FILTERED
from destinations.labels import Deadline, Label, Late
from origins.batch import JSON, Batch
from origins.batch_rows import FrameRows
from origins.capabilities import ReactsToCommits, check_source
from origins.crash_points import reach
from origins.errors import WherryError, list_errors
from origins.files.changes import find_schema_stop
from origins.lazy import DataFrame, F, SparkSession
from origins.nack import REFUSED, encode_payload
from origins.names import quote_name
from origins.origin import RowSource
from origins.protection import Protection
from origins.secret import cut_text
from origins.spark_versions import is_connect
from runners.model.error_kinds import classify, is_executor_unfit, is_large, is_our_own_jvm
from runners.model.errors import CarryFailed, Unbalanced
from runners.model.masking import without
from runners.model.pipeline_state import is_aside
from runners.model.planned_batch import PlannedBatch
from runners.model.spec import PipelineSpec
from runners.model.tasks import (
    AskDestinations,
    CheckRefusals,
    CountSpan,
    Declined,
    Deliver,
    EmptyBatchShown,
    Explain,
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
    list_batches,
)
from runners.model.text import escape_line, join_some, summarise_error
from runners.spark.session import is_here, is_late, measure_clock_offset, reconnect
from runners.spark.session_pool import SessionPool
from runners.state.journal import Lease
from runners.state.prepared_store import PreparedStore
from runners.ways.batch_source import BatchReader, Describe, Described, Lookahead, list_columns, strip_lane_prefix
from runners.ways.bisect_rows import RowErrorIsolator
from runners.ways.choose import GROUPED, STRAIGHT, WRITTEN, choose
from runners.ways.deciding import BatchDecision
from runners.ways.deliver import Delivery
from runners.ways.stage_chain import apply_chain
from runners.ways.straight import Commit, DescribedRows
from runners.ways.way import Candidate, Thresholds
from stages.rows import take_live


def with_batch_context(batches: Sequence[Batch], error: Exception, protection: Protection) -> WherryError:
    """Return the error with the batches that were being processed. Wherry's errors keep their type."""
    stop = find_schema_stop(error, protection)
    failed: WherryError
    if isinstance(error, WherryError):
        failed = _without_values(error, protection)
    elif stop is not None:
        failed = stop
        failed.__cause__ = error
    else:
        reason = protection.mask_error(error, summarise_error(error))
        if any(map(is_our_own_jvm, list_errors(error))):
            reason = f"Spark has ended, and this process cannot start it again ({reason})"
        failed = _make_failure(batches, reason)
        failed.__cause__ = error
    if len(batches) == 1 and failed.batch is None:
        failed.batch = batches[0]
    return failed


def _make_failure(batches: Sequence[Batch], reason: str) -> CarryFailed:
    named = [f"batch {batch.number} of lane {batch.lane} ({escape_line(batch.span.label)})" for batch in batches]
    stays = "Its offset stays; the next run finishes this batch first."
    if len(named) > 1:
        stays = "Their offsets stay; the next run finishes these batches first."
    return CarryFailed(f"{join_some(named)}: {reason}", hint=stays)


def _without_values(error: WherryError, protection: Protection) -> WherryError:
    """Return an error of Wherry with masked values, if it quotes an error of other code."""
    cause = error.__cause__
    if cause is not None and protection and not isinstance(cause, WherryError):
        for text in (
            f"{type(cause).__name__}: {cause}",
            str(cause),
            str(cause).partition("\n")[0],
            summarise_error(cause),
        ):
            error.message = error.message.replace(text, protection.mask_error(cause, text)) if text else error.message
    return error


log = logging.getLogger("wherry")


@dataclass
class TaskExecutor:
    """Does tasks, in as many threads as call it. Each thread has a separate Spark session."""

    spark: SparkSession
    group: str
    """The name with which all its work on Spark can be cancelled."""
    pipeline: PipelineSpec
    origins: Mapping[str, RowSource]
    destinations: Mapping[str, Destination]
    """The destinations by all names that they have or had, with the DLQ, its fallback, and the filtered rows."""
    opened: Mapping[str, OpenDestination]
    """The same, as this run has them open."""
    store: PreparedStore
    pool: str = ""
    """The pool of the fair scheduler for its work. If it is empty, Spark uses the default pool."""
    assume: str = ""
    """The answer if a destination does not know whether it has a batch:

    `delivered` or `missing`. If empty, the run stops.
    """
    deadline: Deadline | None = None
    """The end of the time in which a write may begin; None if no other process can take over the pipeline."""
    sessions: SessionPool = field(init=False)
    reading: BatchReader = field(init=False)
    """The source of the rows."""
    thresholds: Thresholds = field(default_factory=Thresholds)
    """The thresholds by which the way of each batch is chosen."""
    drop_filtered: Callable[[SparkSession], None] = lambda _: None
    """Drops the filtered rows that were kept long enough."""
    _alone: set[str] = field(default_factory=set)
    """The lanes whose batches share no write with others."""
    _delivery: Delivery = field(init=False)
    _lookahead: Lookahead = field(init=False)
    _maintenance: Maintenance = field(init=False)

    def __post_init__(self) -> None:
        options, self._protection = self.pipeline.run_options, self.pipeline.protection
        self._also = options.retry.also
        self.reading = BatchReader(self.origins, self.destinations, protection=self._protection)
        self.sessions = SessionPool(self.spark, self.group, self.pool, options.time_zone, len(self.destinations))
        self.reading.fit_large_rows = lambda: self.sessions.fit_large_rows()
        self._delivery = Delivery(
            sessions=self.sessions,
            reading=self.reading,
            pipeline=self.pipeline,
            store=self.store,
            opened=self.opened,
            small_refused=self.thresholds.small_refused,
            deadline=lambda: self.deadline,
            fail=lambda batch, error: self._explain([batch], error),
            assume=self.assume,
        )
        self._lookahead = Lookahead(self.sessions)
        self._maintenance = Maintenance(self._needs_maintenance, self._maintain)

    def process(self, task: Task) -> Outcome:
        """Do the task. An error is returned as the outcome `Failed`, which names the batch."""
        doing: Mapping[type, Callable[..., Outcome]] = {
            WriteStraight: self._write_straight,
            WriteGroup: self._write_group,
            Prepare: self._prepare,
            Deliver: self._delivery.deliver,
            AskDestinations: self._delivery.ask,
            CountSpan: self._delivery.count,
            Explain: self._delivery.explain,
            CheckRefusals: self._delivery.check,
            ShowEmptyBatch: self._tick,
        }
        try:
            with self.sessions.use_session() as spark:
                outcome = doing[type(task)](spark, task)
        except Exception as error:  # noqa: BLE001 -- the edge of the thread, where an error is an outcome
            return Failed(error=self._explain(list_batches(task), error))
        self._maintenance.note_outcome(outcome)
        return outcome

    def confirm(self) -> Iterator[Exception]:
        """Return the destinations' errors about batches of this run that they no longer have."""
        for destination in {id(each): each for each in self.opened.values()}.values():
            try:
                if isinstance(destination, ConfirmsBatches):
                    destination.confirm()
            except Exception as error:  # noqa: BLE001 -- the run's report has it behind the first error
                yield error

    def close(self) -> None:
        """Stop the threads that work beside the runners."""
        self._maintenance.close()
        self.sessions.close()

    def leave(self, tenure: Lease | None) -> None:
        """Leave threads behind that still work for the run. No write of theirs begins any more."""
        self.deadline = Deadline(left=lambda: -1.0, secure=_refuse)
        if tenure is not None:
            tenure.lose()

    def list_listening(self, spark: SparkSession) -> Mapping[str, Callable[[Batch], None]]:
        """Return what to call once a batch's offset is durable, by the names of the origins that need it."""

        def notify(origin: ReactsToCommits, batch: Batch) -> None:
            if not is_aside(batch.lane):
                origin.committed(spark, strip_lane_prefix(batch))

        listening = {name: each for name, each in self.origins.items() if isinstance(each, ReactsToCommits)}
        return {name: partial(notify, each) for name, each in listening.items() if each.listens}

    def describe_failure(self, spark: SparkSession, error: Exception, most: int) -> Mapping[str, JSON] | None:
        """Return the batch in which the run failed, masked.

        It has its refused rows if they caused the failure, else its first rows.
        """
        batch: Batch | None = getattr(error, "batch", None)
        if batch is None or not most:
            return None
        rows = getattr(error, "rows", None) or self.sample(spark, batch, most)
        known = {"lane": batch.lane, "number": batch.number, "of": batch.span.label}
        return {**known, "stage": getattr(error, "stage", None), "rows": [_cut_value(row) for row in rows[:most]]}

    def sample(self, spark: SparkSession, batch: Batch, most: int) -> list[JSON]:
        """Return some rows of a batch as they are read, masked; none if they cannot be read.

        A batch that needed no Spark passed no stage, so its rows explain nothing.
        """
        if is_late(spark):
            return []
        try:
            rows = sample_rows(
                self.reading.fetch_rows(spark, batch).frame(), list_columns(batch), most, self._protection
            )
        except Exception:  # noqa: BLE001 -- the run has failed already, and the reason must not be hidden
            return []
        shown: list[JSON] = without(self.pipeline.secrets, rows)
        return shown

    def forget(self, spark: SparkSession, plan: PlannedBatch) -> None:
        """Remove what was prepared for a finished batch."""
        if plan.decision is not None:
            self.store.remove(spark, plan.decision.path)

    def _write_straight(self, spark: SparkSession, task: WriteStraight) -> Landed | Declined:
        if self.thresholds.leaves_out(STRAIGHT.name):
            return Declined(reason="this run leaves it out", way=STRAIGHT.name)
        work = self._commit(spark, lambda _: self._describe(spark, task, self._describe_straight))
        result = STRAIGHT.carry([self.make_candidate(spark, task.plan)], work)
        return replace(result, way=STRAIGHT.name)

    def _write_group(self, spark: SparkSession, task: WriteGroup) -> GroupWritten | Declined:
        lanes = {write.plan.batch.lane for write in task.writes}
        if self.thresholds.leaves_out(GROUPED.name) or not self._alone.isdisjoint(lanes):
            return Declined(reason="an earlier batch of a lane declined it", way=GROUPED.name)
        batches = [self.make_candidate(spark, write.plan) for write in task.writes]
        result = GROUPED.carry(batches, self._commit(spark, partial(self._describe_straight, spark)))
        if isinstance(result, GroupWritten):
            return GroupWritten(
                outcomes={lane: replace(each, way=GROUPED.name) for lane, each in result.outcomes.items()}
            )
        if result.remember:
            self._alone |= lanes
        return replace(result, way=GROUPED.name)

    def _commit(self, spark: SparkSession, describe_rows: Callable[[PlannedBatch], DescribedRows]) -> Commit:
        return Commit(
            spark=spark,
            reading=self.reading,
            opened=self.opened,
            deadline=lambda: self.deadline,
            also=self._also,
            describe_rows=describe_rows,
        )

    def _describe_straight(self, spark: SparkSession, plan: PlannedBatch) -> DescribedRows:
        batch = self.make_candidate(spark, plan)
        frame, tally = self.reading.read_straight_frame(spark, plan, batch.rows)
        return FrameRows(frame, batch.size), tally

    def _describe_decision(self, spark: SparkSession, plan: PlannedBatch) -> tuple[Candidate, BatchDecision]:
        batch = self.make_candidate(spark, plan, places=True)
        work, rows = BatchDecision.of(batch, spark, self.store, self._protection.columns, self.reading.schemas)
        work.described = work.describe(rows)
        return batch, work

    def _describe(self, spark: SparkSession, task: WriteStraight | Prepare, describe: Describe[Described]) -> Described:
        """Return the description of the batch, perhaps made before its turn. Also begin to describe the next batch."""
        batch, found = task.plan.batch, self._lookahead.take(task.plan, spark)
        if found is not None:
            check_source(self.reading.find_origin(batch), spark, strip_lane_prefix(batch))
        described: Described = describe(spark, task.plan) if found is None else found
        if task.following is not None:
            describe_next = self._describe_straight if task.following.straight else self._describe_decision
            self._lookahead.begin(task.following, spark, describe_next)
        return described

    def make_candidate(self, spark: SparkSession, plan: PlannedBatch, *, places: bool = False) -> Candidate:
        """Return the batch with all that a way may look at."""
        batch, chain = plan.batch, self.reading.find_chain(plan)
        return Candidate(
            origin=self.reading.find_origin(batch),
            chain=chain,
            destinations=[self.destinations[name] for name in chain.branches],
            plan=plan,
            rows=self.reading.fetch_rows(spark, batch, places=places),
            keeps_few=self.store.takes_few or is_here(spark),
            thresholds=self.thresholds,
            keeps_filtered=self.pipeline.keeps_filtered,
            claims=batch.lane in self.reading.claiming,
        )

    def _prepare(self, spark: SparkSession, task: Prepare) -> Prepared:
        try:
            batch, work = self._describe(spark, task, self._describe_decision)
            way = choose(batch)
            prepared = replace(way.carry([batch], work), way=way.name)
            _ensure_complete(batch, prepared)
        except Exception as error:
            if is_large(error):
                self.reading.begin_claims(task.plan)
                return self._prepare(spark, replace(task, following=None))
            if not classify(error, self._also).is_row:
                raise
            prepared = self._bisect(spark, task.plan)
        reach("after-prepare")
        return prepared

    def _bisect(self, spark: SparkSession, plan: PlannedBatch) -> Prepared:
        """Decide a batch in which some rows make a stage raise."""
        batch = self.make_candidate(spark, plan, places=True)
        work, rows = BatchDecision.of(batch, spark, self.store, self._protection.columns, self.reading.schemas)
        work.described = RowErrorIsolator(work, self._also).describe(rows)
        prepared = replace(WRITTEN.carry([batch], work), way=WRITTEN.name)
        _ensure_complete(batch, prepared)
        return prepared

    def _tick(self, spark: SparkSession, task: ShowEmptyBatch) -> EmptyBatchShown:
        batch, chain = task.batch, self.reading.chains[task.batch.origin]
        rows = apply_chain(self.reading.make_empty_rows(spark, batch), chain.common, {})
        for name, steps in chain.branches.items():
            own_rows = apply_chain(rows, steps, {})
            if isinstance(destination := self.opened[name], NoticesPauses):
                destination.tick(spark, take_live(own_rows), Label(batch=batch, destination=name))
        return EmptyBatchShown()

    def _needs_maintenance(self, name: str) -> bool:
        destination = self.opened.get(name)
        return name == FILTERED or (isinstance(destination, NeedsMaintenance) and destination.needs_maintenance)

    def _maintain(self, name: str) -> None:
        with self.sessions.use_session() as spark:
            if name == FILTERED:
                self.drop_filtered(spark)
            elif isinstance(destination := self.opened.get(name), NeedsMaintenance):
                destination.maintain(spark)

    def _explain(self, batches: Sequence[Batch], error: Exception) -> WherryError:
        """Return the error with its batches.

        If the executors are on other machines, add a hint how to find the cause.
        """
        error = self._handle_error(error)
        failed = with_batch_context(batches, error, self._protection)
        if is_executor_unfit(error) and not (is_here(self.spark) or is_connect(self.spark)):
            failed.hint += "\nSee what executors lack:  wherry doctor --cluster FILE"
        return failed

    def _handle_error(self, error: Exception) -> Exception:
        """Return the error that a task of this thread met.

        If Spark has lost the thread's session, create another one for the next task. If that fails, return that error
        instead.
        """
        if not classify(error).is_session_lost:
            return error
        self.sessions.replace_session()
        try:
            reconnect(self.spark)
            if self.deadline is not None:
                self.deadline = replace(self.deadline, ahead=measure_clock_offset(self.spark))
        except Exception as other:  # noqa: BLE001 -- it replaces the first error
            return other
        return error


def _refuse() -> None:
    raise Late()


def _ensure_complete(batch: Candidate, prepared: Prepared) -> None:
    """Raise `Unbalanced` if Spark did not see all rows that this process gave to it."""
    given = batch.rows.count_given() if batch.rows else None
    if batch.plan is not None and given not in (None, prepared.counts.read):
        its = batch.plan.batch
        raise Unbalanced(
            f"Spark saw {prepared.counts.read:,} of the {given:,} rows of batch {its.number} of lane {its.lane} "
            f"({escape_line(its.span.label)}). Nothing was delivered, and its offset stays.",
            hint="Run again. If it happens again, report the fault with the versions that `wherry doctor` prints.",
        )


class Maintenance:
    """Runs the maintenance of destinations after writes. It skips a destination whose maintenance is still running."""

    def __init__(self, keeps: Callable[[str], bool], maintain: Callable[[str], None]) -> None:
        self._keeps = keeps
        """Whether the destination of this name ever needs maintenance."""
        self._maintain_destination = maintain
        self._thread = ThreadPoolExecutor(1, "wherry-maintenance")
        self._last: dict[str, Future[None]] = {}

    def note_outcome(self, outcome: Outcome) -> None:
        """Begin the maintenance of the destinations that were written. It does not wait for the end."""
        for name in _list_written(outcome):
            last = self._last.get(name)
            if self._keeps(name) and (last is None or last.done()):
                self._last[name] = self._thread.submit(self._maintain, name)

    def close(self) -> None:
        """Wait for the end of all maintenance."""
        self._thread.shutdown()

    def _maintain(self, name: str) -> None:
        try:
            self._maintain_destination(name)
        except Exception as error:  # noqa: BLE001 -- the edge of the thread: no row depends on this
            log.warning("%s: its maintenance failed and will be tried again: %s", name, summarise_error(error))


def _list_written(outcome: Outcome) -> Iterable[str]:
    if isinstance(outcome, GroupWritten):
        return {name for landed in outcome.outcomes.values() for name in landed.written}
    return list(outcome.written) if isinstance(outcome, Landed) else ()


LONGEST = 200
"""How many characters of a text are kept."""


def sample_rows(frame: DataFrame, names: Sequence[str], most: int, protection: Protection) -> list[JSON]:
    """Return the first rows of a batch as they are read, masked. A line that could not be read is `{"raw": line}`."""
    columns = [F.col(quote_name(name)) for name in names]
    refused = F.col(REFUSED)["raw"] if REFUSED in frame.columns else F.lit(None).cast("string")
    row = encode_payload({name: quote_name(name) for name in names}, frame.select(*columns).schema)
    found = frame.select(F.expr(row).alias("row"), refused.alias("raw")).limit(most).collect()
    return [_mask_row(json.loads(each["row"]), each["raw"], protection) for each in found]


def _mask_row(row: JSON, raw: str | None, protection: Protection) -> JSON:
    if raw is None:
        return protection.mask_row(row)
    return protection.mask_nack({"stage": "origin", "row": {"raw": raw}, "message": ""})["row"]


def _cut_value(value: JSON) -> JSON:
    if isinstance(value, Mapping):
        return {name: _cut_value(inner) for name, inner in value.items()}
    if isinstance(value, list):
        return [_cut_value(inner) for inner in value]
    return cut_text(value, LONGEST) if isinstance(value, str) else value
