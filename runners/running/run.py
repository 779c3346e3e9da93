"""One run of a pipeline: take the pipeline, finish open batches, process waiting rows, release the pipeline."""

from __future__ import annotations

import contextlib
import logging
import os
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

from destinations.delta.delta import Delta
from destinations.destination import Destination, OpenDestination
from destinations.discard import Discard
from destinations.dlq import DLQ, FALLBACK, FILTERED
from origins.batch import JSON, Batch
from origins.codec import encode
from origins.errors import WherryError, list_errors
from origins.lazy import SparkSession
from origins.origin import RowSource
from origins.quantities import parse_seconds
from origins.spark_private import forget_context_settings
from runners.engine.batch_machine import DeliveryRules
from runners.engine.batch_planner import BatchPlanner
from runners.engine.dispatcher import Dispatcher
from runners.engine.lane_coordination import LaneCoordination
from runners.engine.planning import Follower
from runners.engine.worker_pool import WorkerPool
from runners.listeners.hook_runner import HookRunner
from runners.model.clock import Clock
from runners.model.error_kinds import classify, is_disk_full
from runners.model.errors import WorkCancelled, add_full_disk
from runners.model.events import Event, LimitExceeded, Listener, Noticed, RunEnded, RunStarted, describe_warning
from runners.model.masking import hide_in_logs, warn_of_short_secrets
from runners.model.pipeline_state import REPLAY
from runners.model.run_report import Report, RunError, RunReportBuilder
from runners.model.spec import PipelineSpec, make_end_facts, make_limit_facts, make_start_facts
from runners.running.choice import count_causes_of_report
from runners.running.cleanup import Cleanup
from runners.running.compatibility import (
    OperatorOverrides,
    check_layout,
    make_recogniser,
    resolve_names,
    start_over,
    waive,
)
from runners.running.local_folders import check_shared, list_written_folders
from runners.running.opening import RunOpening, list_suites, list_unchanged, make_chains
from runners.running.refused_budget import RefusedBudget, WaitingRows
from runners.running.renamed import check_renamed
from runners.running.replay import DeadLetterRows
from runners.running.stop import (
    ENDED,
    FORCED_AT_ONCE,
    FORCED_SOON,
    LEAVE,
    finish_unless,
    force_in_time,
    is_forced_for,
    stop_on_signals,
)
from runners.running.work import OpenRun, WaitingBatches, Work
from runners.spark.own_session import make_own_session, put_settings_back
from runners.spark.session import check_alive, check_store_access, give_up_waiting, is_given, obtain_for
from runners.state.journal import Journal, Lease
from runners.state.location import StateLocation, check_lasting
from runners.state.ownership import Ownership, make_deadline, make_kept_error
from runners.state.run_history import RunRow, Timeline, await_writer, record_begin
from runners.state.store_patience import PatientLedger, StorePatience
from runners.ways.dlq_copies import open_dlq
from runners.ways.stage_chain import name_destinations
from runners.ways.task_executor import TaskExecutor
from runners.ways.way import Thresholds

SOON = 1.0
"""The seconds that a run waits for its hooks, and for its run history, after a forced stop."""
log = logging.getLogger("wherry")


@dataclass
class PipelineRun:
    """A run of a pipeline, from taking it to releasing it."""

    pipeline: PipelineSpec
    text: str
    """The whole definition, as the ledger keeps it."""
    hash: str
    listeners: Sequence[Listener] = ()
    clock: Clock = field(default_factory=Clock)
    follow: bool = False
    """Whether to continue when nothing is left, and to process new rows."""
    work: Work = field(default_factory=WaitingBatches)
    """What the run does; by default it processes the waiting rows."""
    take_over: str = ""
    """Why this run may take the pipeline from an owner on another host."""
    spark: SparkSession | None = None
    """The Spark to use; by default the active session, or a new session."""
    pool: str = ""
    """The pool of Spark's fair scheduler for the run's work."""
    ruling: OperatorOverrides = field(default_factory=OperatorOverrides)
    hooks_wait: float | None = None
    """The seconds to wait for hooks at the end; by default half a minute."""
    thresholds: Thresholds = field(default_factory=Thresholds)
    """The sizes by which the run chooses the way of each batch."""

    def __post_init__(self) -> None:
        self.id = uuid.uuid4().hex
        self.place = StateLocation.of(self.pipeline)
        protection, dead = self.pipeline.protection, self.pipeline.dlq.destination or self.place.make_dlq()
        self.destinations = name_destinations([each.discreet(protection) for each in self.pipeline.every_destination])
        self.dlq: Destination = dead.discreet(protection)
        self.fallback = self.pipeline.dlq.fallback
        self.filtered = self.place.make_filtered()
        self.report_builder = RunReportBuilder(
            tuple(self.destinations), resolve_names(self.destinations), list_suites(self.pipeline)
        )
        self.ends: Mapping[str, Destination] = {**self.destinations, DLQ: self.dlq, FILTERED: self.filtered}
        """The destinations by name, with the DLQ, its fallback, and the table with filtered rows."""
        if self.fallback is not None:
            self.ends = {**self.ends, FALLBACK: self.fallback}
        self.opened: Mapping[str, OpenDestination] = {}
        """The same, once this run has them open."""
        self.dispatcher: Dispatcher | None = None
        self.errors_before: Sequence[Exception] | None = None
        """The errors before a forced run stopped waiting for Spark; None if it did not."""
        self.patience = StorePatience(self.pipeline.run_options.retry, self.clock, is_forced=self._is_forced)
        self.snapshot: Mapping[str, JSON] | None = None
        self.timeline = Timeline(self.clock)
        self.cleanup = Cleanup(self.pipeline, self.place, self.destinations, self.dlq, self.filtered, self.clock)

    @property
    def assignment(self) -> str:
        """How this run shares the lanes. A run that works on all lanes needs the pipeline alone."""
        shares = self.work.takes_waiting and not self.ruling
        return self.pipeline.run_options.assignment if shares else "single"

    @put_settings_back()
    def carry(self) -> Report:
        """Do the work. Raises only if it cannot take the pipeline; the report has all other errors."""
        try:
            with contextlib.ExitStack() as to_the_end:
                report, hook_runner = self._carry_and_report(to_the_end)
        except WherryError as error:
            if is_disk_full(error):
                error.hint = add_full_disk(error.hint, list_written_folders(self.place, self.destinations))
            raise
        try:
            hook_runner.await_hooks(self.pipeline.name, SOON if self._is_forced() else self.hooks_wait)
        except KeyboardInterrupt:
            log.warning("%s: the run does not wait any longer for hooks.", self.pipeline.name)
        return report

    def _carry_and_report(self, to_the_end: contextlib.ExitStack) -> tuple[Report, HookRunner]:
        """Do the work and write the report.

        From the first batch until `to_the_end` closes, a signal only asks the run to stop.
        """
        began = self.clock.elapsed()
        forget_context_settings()
        if self.spark is None:
            check_store_access(self.pipeline)
        self.place.make()
        for notice in warn_of_short_secrets(self.pipeline.secrets):
            log.warning("%s: %s", self.pipeline.name, notice)
        ownership = self.make_ownership()
        with ownership.hold_lock(), hide_in_logs(self.pipeline.secrets):
            journal = None if self.place.needs_spark else ownership.open_journal(None)
            starts = self.spark is None and not is_given()
            given = self.spark or obtain_for(self.pipeline)
            if starts:
                check_lasting(self.pipeline, given)
            zone = self.pipeline.run_options.time_zone
            spark = make_own_session(given, zone)
            journal = journal or ownership.open_journal(spark)
            check_shared(self.pipeline, spark)
            ownership.acquire(journal, spark)
            history = self.place.open_history(self.pipeline, lambda: make_own_session(spark, zone))
            began_row = RunRow.make_running(self.pipeline.name, self.id, self.hash, self.clock.now())
            writer = record_begin(history, began_row, ownership.before)
            hook_runner = HookRunner(self.pipeline.hooks, self.pipeline.secrets)
            hook_runner.notify(make_start_facts(self.pipeline.name, self.id, self.clock.now().isoformat()))
            status, errors = self._carry(journal, spark, to_the_end, hook_runner)
            stopping = self.dispatcher.stopping if self.dispatcher else ""
            if self.dispatcher and status != "succeeded":
                stopping = stopping or self.dispatcher.asked_to_stop
            ended = Report(
                pipeline=self.pipeline.name,
                run=self.id,
                status=status,
                reason=stopping or ("failed" if errors else "nothing left to do"),
                job=self.pipeline.job,
                seconds=self.clock.elapsed() - began,
                error=self._describe_error(errors, spark) if errors else None,
                snapshot=self.snapshot,
                timeline=self.timeline.json(),
            )
            report = self.report_builder.complete(ended).mask(self.pipeline.secrets)
            report = replace(report, left_open=len(journal.state.open_plans))
            if self.errors_before is None:
                causes = count_causes_of_report(report, self.dlq, lambda: spark, self.pipeline.protection)
                report = replace(report, causes=causes)
                self._clean_up(journal, spark, errors)
                ownership.release(journal, report)
            else:
                self._try_to_release(ownership, journal, report)
            self._emit(RunEnded(status=report.status, reason=report.reason, lanes=report.lanes))
            if self.errors_before is None and journal.state.replay is None:
                self.work.clean_up(self.place.store(), spark)
        facts = report.json()
        hook_runner.notify(make_end_facts(facts, self.clock.now().isoformat()))
        if writer is not None:
            writer.put(began_row.end(report, {**facts, "timeline": report.timeline}, self.clock.now()))
            await_writer(writer, self.pipeline.name, *([SOON] if self._is_forced() else []))
        return report, hook_runner

    def _clean_up(self, journal: Journal, spark: SparkSession, errors: Sequence[Exception]) -> None:
        """Remove what is not needed any longer."""
        if errors:
            return
        if self.work.takes_letters:
            self.cleanup.delete_dead_letters(journal, spark)
        self.cleanup.drop_filtered(spark)
        self.cleanup.sweep_large_values(journal, spark)

    def _try_to_release(self, ownership: Ownership, journal: Journal, report: Report) -> None:
        """Release the pipeline after Spark did not answer, if that is soon done.

        Otherwise the run stays its owner, and the next run sees that this one has ended.
        """

        def release() -> None:
            with contextlib.suppress(Exception):  # the next run sees that this one has ended
                ownership.release(journal, report)

        dispatcher = self.dispatcher
        finish_unless(lambda: dispatcher is None or is_forced_for(dispatcher, ENDED - 1), release)

    def make_ownership(self) -> Ownership:
        return Ownership(
            pipeline=self.pipeline,
            place=self.place,
            run=self.id,
            clock=self.clock,
            hash=self.hash,
            assignment=self.assignment,
            take_over=self.take_over,
            replay=self.work.json(),
            ruling=encode(self.ruling),
            finish=not self.work.plans,
            follow=self.follow,
            runs_paused=not self.work.takes_waiting,
            check=lambda journal, spark: self.work.check(journal, self.dlq, lambda: spark),
        )

    def _describe_error(self, errors: Sequence[Exception], spark: SparkSession) -> RunError:
        """Return the first of the errors for the report."""
        asked = spark if is_disk_full(errors[0]) else None
        places = list_written_folders(self.place, self.destinations, asked)
        return RunError.of(errors[0], self.pipeline.secrets, self.pipeline.protection, errors[1:], places)

    def stop(self, reason: str = "asked to stop", *, force: bool = False) -> None:
        """Stop from another thread. Batches in flight finish, or with `force` stay open."""
        if self.dispatcher is not None:
            self.dispatcher.request_stop(reason, force=force)

    def _carry(
        self, journal: Journal, spark: SparkSession, to_the_end: contextlib.ExitStack, hook_runner: HookRunner
    ) -> tuple[str, Sequence[Exception]]:
        """Return the status of the run, and its errors in order."""
        options = self.pipeline.run_options
        lanes = [lane for origin in self.pipeline.every_origin for lane in self.pipeline.lanes_of(origin)]
        self.opened = {name: each.open() for name, each in self.ends.items()}
        journal.ledger = PatientLedger(journal.ledger, self.patience)
        copies = [each.discreet(self.pipeline.protection) for each in self.pipeline.dlq.copies]
        ours = self.pipeline.dlq.destination is None
        self.opened = {**self.opened, **open_dlq(self.opened, copies, self.ruling.assume, ours=ours)}
        budget = self._make_budget(journal, spark)
        runner = self._make_executor(spark, journal.tenure)
        runner.sessions.note_thread()
        workers = options.runners or min(len(lanes), os.cpu_count() or 1)
        worker_pool = WorkerPool(workers, runner.process)
        dispatcher = self.dispatcher = Dispatcher(
            journal=journal,
            worker_pool=worker_pool,
            clock=self.clock,
            rules=DeliveryRules(
                dlq=self.pipeline.dlq,
                delivery=self.pipeline.delivery,
                discards=isinstance(self.dlq, Discard),
                replacing=frozenset(name for name, each in self.destinations.items() if each.replaces),
                keeps_filtered=self.pipeline.keeps_filtered,
            ),
            max_in_flight=options.max_in_flight or len(lanes),
            grouped_lanes=self.thresholds.grouped_lanes,
            retry=options.retry,
            committed={
                name: partial(self._notify_origin, commit) for name, commit in runner.list_listening(spark).items()
            },
            forget=lambda plan: self.patience.outlast(lambda: runner.forget(spark, plan)),
            pulse=lambda: check_alive(spark),
            over_budget=budget.check if budget else None,
            listeners=[
                self.report_builder,
                self.timeline,
                _log_warning,
                partial(self._notify_hooks, hook_runner),
                *self.listeners,
            ],
        )
        raised: list[Exception] = []
        ledger, every = self.place.open_ledger(spark), FORCED_AT_ONCE if self.place.directory else FORCED_SOON
        drain = parse_seconds(options.drain)
        to_the_end.enter_context(stop_on_signals(dispatcher))
        with (
            give_up_waiting(spark, runner.group, lambda: bool(dispatcher.asked_to_stop)),
            force_in_time(
                ledger,
                dispatcher,
                runner.sessions.cancel,
                every=every,
                drain=drain,
                cut_calls=partial(self._cut_calls, dispatcher, runner),
            ),
        ):
            try:
                self._carry_all(journal, dispatcher, runner, spark)
            except WorkCancelled:
                dispatcher.take_turn()
            except Exception as error:  # noqa: BLE001 -- the edge of the run: its report has the error
                raised.append(error)
            errors = [each for each in dispatcher.errors if not (dispatcher.stopping and _did_wait_for_spark(each))]
            if raised or dispatcher.forced:
                with contextlib.suppress(Exception):  # a lost Spark has no work left to cancel
                    runner.sessions.cancel()
            elif errors:
                self.snapshot = runner.describe_failure(spark, errors[0], options.snapshot)

            def close() -> None:
                runner.sessions.note_thread()
                worker_pool.close()
                raised.extend(runner.confirm())
                runner.close()
                raised.extend(_close_all(self.opened.values()))

            if not finish_unless(lambda: is_forced_for(dispatcher, LEAVE), close):
                runner.leave(journal.tenure)
        errors += [error for error in raised if not (dispatcher.forced and classify(error).is_cancelled)]
        if self.errors_before is not None:  # the later errors come from calls that were cut
            errors = list(self.errors_before)
        if errors:
            return "failed", errors
        return ("stopped" if dispatcher.stopping or dispatcher.forced else "succeeded"), []

    def _cut_calls(self, dispatcher: Dispatcher, runner: TaskExecutor) -> None:
        """Stop waiting for Spark after a forced stop. It may be planning, which it does not interrupt."""
        if self.errors_before is None:
            log.warning(
                "%s: Spark does not answer the forced stop, so the run does not wait for it", self.pipeline.name
            )
            self.errors_before = [each for each in dispatcher.errors if not _did_wait_for_spark(each)]
        runner.sessions.cut_calls()

    def _is_forced(self) -> bool:
        return self.dispatcher is not None and self.dispatcher.forced

    def _make_budget(self, journal: Journal, spark: SparkSession) -> RefusedBudget | None:
        """Return the budget for waiting refused rows. A run that plans no new batch has no budget."""
        if self.pipeline.dlq.budget is None or self.work.takes_letters or not self.work.plans:
            return None
        waiting = WaitingRows(dlq=self.dlq, fallback=self.fallback, spark=lambda: spark, journal=journal)
        return RefusedBudget(self.pipeline.dlq.budget, waiting.count)

    def _notify_hooks(self, hook_runner: HookRunner, event: Event) -> None:
        if isinstance(event, LimitExceeded):
            hook_runner.notify(make_limit_facts(event, self.clock.now().isoformat()))

    def _notify_origin(self, committed: Callable[[Batch], None], batch: Batch) -> None:
        self.patience.outlast(lambda: committed(batch))

    def _carry_all(self, journal: Journal, dispatcher: Dispatcher, runner: TaskExecutor, spark: SparkSession) -> None:  # noqa: C901 -- one run, from open batches to waiting rows
        """Finish the batches that an earlier run left open, and then do the work."""
        run = OpenRun(
            pipeline=self.pipeline,
            dlq=self.dlq,
            reading=runner.reading,
            journal=journal,
            spark=spark,
            deadline=lambda: runner.deadline,
            is_stopped=lambda: bool(dispatcher.asked_to_stop or journal.state.stopping),
        )
        coordination = self._join_coordination(journal)
        if coordination is not None:
            coordination.await_opening(run.is_stopped)
        if coordination is None or coordination.alone:
            self._finish_open(journal, dispatcher, coordination, spark)
        if not dispatcher.stopping:
            self.work.complete(run)
            if run.is_stopped():
                dispatcher.take_turn()
        if dispatcher.stopping or not self.work.plans:
            return
        recognises = make_recogniser(self.pipeline, self.destinations, journal, spark)
        check_renamed(self.pipeline, self.destinations, journal, self.ruling, spark)
        check_layout(self.pipeline, self.destinations, journal.state, self.ruling, recognises)
        opening = RunOpening(
            pipeline=self.pipeline,
            run=self.id,
            text=self.text,
            hash=self.hash,
            destinations=self.destinations,
            ends=self.ends,
            opened=self.opened,
            ruling=self.ruling,
            follow=self.follow,
            work=self.work,
        )
        if self.work.takes_waiting:
            start_over(self.pipeline, journal, self.ruling, stand=list_unchanged(opening, journal, spark))

        noticed: set[tuple[str, str]] = set()

        def take_in(source: BatchPlanner | None) -> BatchPlanner | None:
            runner.reading.chains = opening.chains
            found = opening.notices
            if source is not None:
                news = [(feed.origin, each) for feed in source.feeds for each in feed.news]
                source = self.patience.outlast(partial(self.work.make_source, source, run))
                found = [*news, *((feed.origin, each) for feed in source.feeds for each in feed.backlog.notices)]
            for origin, message in [each for each in dict.fromkeys(found) if each not in noticed]:
                noticed.add((origin, message))
                self._emit(Noticed(origin=origin, message=message))
            return source

        def again(source: BatchPlanner | None, offsets: Mapping[str, JSON]) -> BatchPlanner | None:
            if source is None and coordination is not None and not coordination.may_open:
                return None
            with runner.sessions.cancel_planning():
                return take_in(self.patience.outlast(lambda: opening.refresh_source(source, offsets, journal, spark)))

        source = None
        if coordination is not None:
            coordination.note_survey()
        if coordination is None or coordination.may_open:
            with runner.sessions.cancel_planning():
                source = take_in(opening.open_source(journal, spark))
        dispatcher.planning.source = source
        if coordination is not None:
            coordination.again = lambda source, origins: opening.resurvey_origins(source, origins, journal, spark)
            coordination.begin()
            dispatcher.planning.coordination = coordination
        if self.follow:
            dispatcher.planning.following = Follower(
                every=parse_seconds(self.pipeline.run_options.poll), again=again, now=self.clock.elapsed()
            )
        self._emit(RunStarted(pipeline=self.pipeline.name, run=self.id, waiting=self._count_waiting(journal, source)))
        if source is not None:
            dispatcher.budget.ask_first(self.clock.elapsed())
        dispatcher.run()
        if coordination is not None and not dispatcher.stopping and coordination.left is not None:
            raise make_kept_error(self.pipeline.name, journal.state, coordination.left)

    def _join_coordination(self, journal: Journal) -> LaneCoordination | None:
        """Return the coordination with other runs that share the lanes; None if this run has the pipeline alone."""
        if self.assignment == "single" or journal.tenure is None:
            return None
        return LaneCoordination(
            journal=journal,
            tenure=journal.tenure,
            place=self.place,
            lanes=[lane for origin in self.pipeline.every_origin for lane in self.pipeline.lanes_of(origin)],
            definition=self.hash,
            frees=self.assignment == "round_robin" or bool(self.take_over),
            follows=self.follow,
        )

    def _finish_open(
        self, journal: Journal, dispatcher: Dispatcher, coordination: LaneCoordination | None, spark: SparkSession
    ) -> None:
        """Finish the batches that an earlier run left open. Runs that join meanwhile get a share of them."""
        waive(journal, self.destinations, self.ruling)

        self.patience.outlast(lambda: self.cleanup.sweep_prepared(journal, spark, is_shared=coordination is not None))
        if coordination is None:
            dispatcher.recover()
        else:
            coordination.begin()
            dispatcher.planning.coordination = coordination
        dispatcher.run()
        if coordination is not None and not dispatcher.forced:  # if forced, a write may last until workers close
            dispatcher.planning.coordination = None
            coordination.release_lanes()

    def _count_waiting(self, journal: Journal, source: BatchPlanner | None) -> Mapping[str, int]:
        """Count the waiting batches, for listeners that show progress. Empty for a run that follows."""
        if source is None or self.follow or not self.listeners:
            return {}
        offsets = {lane: journal.state.get_lane(lane).offset for lane in source.lanes}
        return source.count_waiting(offsets, self.clock)

    def _emit(self, event: Event) -> None:
        listeners: Sequence[Listener] = [self.report_builder, *self.listeners]
        for listener in listeners:
            listener(event)

    def _make_executor(self, spark: SparkSession, tenure: Lease | None) -> TaskExecutor:
        origins = dict[str, RowSource](self.pipeline.origins_by_name)
        if isinstance(self.dlq, Delta):
            origins[REPLAY] = DeadLetterRows(dlq=self.dlq)
        names = resolve_names(self.destinations)
        runner = TaskExecutor(
            spark=spark,
            group=f"wherry-{self.id}",
            pipeline=self.pipeline,
            origins=origins,
            destinations={**{name: self.destinations[now] for name, now in names.items()}, **self.ends},
            opened={**{name: self.opened[now] for name, now in names.items()}, **self.opened},
            store=self.place.store(),
            pool=self.pool,
            assume=self.ruling.assume,
            deadline=make_deadline(tenure, spark),
            thresholds=self.thresholds,
            drop_filtered=self.cleanup.drop_filtered,
        )
        runner.reading.definition = self.hash
        runner.reading.before = make_chains(self.pipeline, self.destinations)
        return runner


def _close_all(opened: Iterable[OpenDestination]) -> Iterator[Exception]:
    """Close all open destinations. Yield the errors."""
    for each in opened:
        try:
            each.close()
        except Exception as error:  # noqa: BLE001 -- the edge of the run: its report has the error
            yield error


def _did_wait_for_spark(error: Exception) -> bool:
    """Whether a batch failed only because the run was stopped before Spark had started. The next run reads it."""
    return any(isinstance(each, WorkCancelled) for each in list_errors(error))


def _log_warning(event: Event) -> None:
    """Log at once the events that may need a person's action: rests, exceeded limits and the fallback."""
    if warning := describe_warning(event):
        log.warning("%s", warning)
