"""One execution of a pipeline: take it, finish what was left open, carry what waits, let it go."""

from __future__ import annotations

import contextlib
import logging
import os
import tempfile
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, TypeAlias

from destinations.delta.delta import Delta
from destinations.destination import Deadline, Destination, OpenDestination
from destinations.discard import Discard
from destinations.dlq import DLQ, FALLBACK, FILTERED
from origins.batch import JSON, Batch
from origins.errors import WherryError, list_errors
from origins.quantities import parse_seconds
from origins.quick_dataclass import dataclass
from origins.spark_private import find_jvm_number
from runners.engine.batch_machine import DeliveryRules
from runners.engine.batch_planner import BatchPlanner, list_notices
from runners.engine.dispatcher import CarryingOptions, Dispatcher, ProgressCallbacks
from runners.engine.lane_coordination import LaneCoordination
from runners.engine.planning import Follower
from runners.engine.worker_pool import WorkerPool
from runners.listeners.hook_runner import HookRunner
from runners.model.batch_timing import BatchSizing
from runners.model.causes import Causes
from runners.model.clock import Clock
from runners.model.entry import Entry, OwnerBody
from runners.model.error_kinds import classify, is_disk_full
from runners.model.errors import Paused, WorkCancelled, tell_full_disk
from runners.model.events import (
    Event,
    LimitExceeded,
    Listener,
    Noticed,
    RunEnded,
    RunStarted,
    describe_warning,
)
from runners.model.masking import hide_in_logs, warn_of_short_secrets
from runners.model.pipeline_state import REPLAY
from runners.model.run_report import MOST_REPORTED, Report, RunError, RunReportBuilder
from runners.model.spec import PipelineSpec, make_end_facts, make_limit_facts, make_policy, make_start_facts
from runners.model.tasks import Outcome, Task
from runners.model.text import show_moment, summarise_error
from runners.running.activity import RunActivity
from runners.running.aggregates import OF_A_BACKFILL, OF_A_REPLAY
from runners.running.backfill import Backfill
from runners.running.choice import count_causes_of_run
from runners.running.compatibility import (
    OperatorOverrides,
    check_layout,
    make_recogniser,
    resolve_names,
    start_over,
    waive,
)
from runners.running.dead_letter_rows import DeadLetterRows, drop_filtered, tidy
from runners.running.given_rows import GivenRows, find_given
from runners.running.merge_fallback import FallbackMerge
from runners.running.opening import RunOpening, list_suites, list_unchanged, make_chains
from runners.running.redo import Redo
from runners.running.refused_budget import RefusedBudget, count_waiting_rows
from runners.running.replay import Replay
from runners.running.shared_folders import check_shared
from runners.running.stop import force_in_time, stop_on_signals
from runners.spark.session import (
    check_alive,
    count_active_work,
    find_jvm_process,
    give_up_waiting,
    hear_start,
    is_connect,
    is_given,
    list_local_folders,
    make_own_session,
    measure_clock_offset,
    obtain_for,
)
from runners.spark.warm import begin_use, end_use
from runners.state.background_writer import BackgroundWriter
from runners.state.journal import Journal, Lease, list_decided
from runners.state.location import StateLocation, check_lasting, check_pipeline
from runners.state.process_locks import (
    StateLock,
    end_orphan,
    forget_jvm,
    identify_host,
    identify_process,
    note_jvm,
    sweep_locks,
)
from runners.state.run_history import RunRow, Timeline, await_writer, get_writer
from runners.state.store_patience import PatientLedger, StorePatience
from runners.state.takeover import Takeover, make_kept_error
from runners.ways.choose import list_ways_off
from runners.ways.dlq_copies import open_dlq
from runners.ways.large_values import sweep_stores
from runners.ways.stage_chain import name_destinations
from runners.ways.task_executor import TaskExecutor
from runners.ways.way import Thresholds

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

FORCED_AT_ONCE, FORCED_SOON = 1.0, 30.0
"""Seconds until a run sees a forced stop: with a local ledger, and with a ledger that Spark reads."""


log = logging.getLogger("wherry")


Process: TypeAlias = Callable[[Task], Outcome]
"""What a runner does with a task."""


@dataclass(frozen=True, kw_only=True)
class CarriedRun:
    """What is known of a run by something that works beside its runners."""

    id: str
    spark: SparkSession
    journal: Journal
    deadline: Deadline | None
    """Until when a write may begin."""
    is_stopping: Callable[[], bool]
    """Whether nothing may hold a batch up any longer."""


@dataclass
class PipelineRun:
    """A run of a pipeline, from taking it to letting it go."""

    pipeline: PipelineSpec
    text: str
    """The definition, whole, as the ledger keeps it."""
    hash: str
    listeners: Sequence[Listener] = ()
    clock: Clock = Clock()
    follow: bool = False
    """Whether to go on when nothing is left, and to carry what comes."""
    backfill: Backfill | None = None
    """What of the past to carry again, in place of what waits."""
    finish: bool = False
    """Whether to finish what an earlier run left open, and to carry nothing else."""
    merge: bool = False
    """Whether to bring the refused rows back that wait in the fallback, and to carry nothing else."""
    replay: Replay | None = None
    """What of the DLQ to carry again, in place of what waits."""
    redo: Redo | None = None
    """Which file to read again in the place of its old rows, and nothing else."""
    take_over: str = ""
    """Why this run may take the pipeline from an owner on another host."""
    spark: SparkSession | None = None
    """The Spark to use; by default the active session, or a new one."""
    pool: str = ""
    """The fair scheduler's pool for its work on Spark."""
    ruling: OperatorOverrides = OperatorOverrides()
    hooks_wait: float | None = None
    """How many seconds to wait for hooks at the end; by default half a minute."""
    thresholds: Thresholds = Thresholds()
    """By what the way of each batch is chosen."""
    accompany: Callable[[Process, CarriedRun], Process] = lambda process, _: process
    """Puts something beside what the runners do."""

    def __post_init__(self) -> None:
        self.id = uuid.uuid4().hex
        self.place = StateLocation.of(self.pipeline)
        protection, dead = self.pipeline.protection, self.pipeline.dlq.destination or self.place.make_dlq()
        self.destinations = name_destinations([each.discreet(protection) for each in self.pipeline.every_destination])
        self.dlq: Destination = dead.discreet(protection)
        fallback = self.pipeline.dlq.fallback
        self.fallback = fallback and fallback.discreet(protection)
        self.filtered = self.place.make_filtered()
        self.books = RunReportBuilder(
            tuple(self.destinations), resolve_names(self.destinations), list_suites(self.pipeline)
        )
        self.opened: Mapping[str, OpenDestination] = {}
        """The destinations as this run has them open, by name, the DLQ, and the table with filtered rows."""
        self.dispatcher: Dispatcher | None = None
        self.finish = self.finish or self.merge
        self.budget: RefusedBudget | None = None
        """How many refused rows may wait, where that is limited."""
        self.merged: FallbackMerge | None = None
        """What it has brought back, where it was to do that."""
        self.patience = StorePatience(
            make_policy(self.pipeline.run_options.retry),
            self.clock,
            is_forced=lambda: self.dispatcher is not None and self.dispatcher.forced,
        )
        self.snapshot: Mapping[str, JSON] | None = None
        self.timeline = Timeline(self.clock)
        self._dropped: float | None = None
        """When it last dropped old filtered rows."""
        self._before: Sequence[OwnerBody] = ()
        """From whom it has taken the pipeline over: they never let it go."""

    @property
    def assignment(self) -> str:
        """How this run shares the lanes; work on all lanes takes the pipeline alone."""
        aside = self.backfill or self.redo or self.replay or self.finish or self.ruling
        return "single" if aside else self.pipeline.run_options.assignment

    def carry(self) -> Report:
        """Carry what waits. Raises only when the pipeline could not be taken; all else is in the report."""
        try:
            with contextlib.ExitStack() as to_the_end:
                report, herald = self._carry_and_tell(to_the_end)
        except WherryError as error:
            if is_disk_full(error):
                error.hint = tell_full_disk(error.hint, self._list_places())
            raise
        try:
            herald.await_hooks(self.pipeline.name, self.hooks_wait)
        except KeyboardInterrupt:
            log.warning("%s: the run does not wait any longer for hooks.", self.pipeline.name)
        return report

    def _carry_and_tell(self, to_the_end: contextlib.ExitStack) -> tuple[Report, HookRunner]:
        """Carry what waits, and write down how it went. From the first batch `to_the_end` a signal only stops."""
        began = self.clock.elapsed()
        self.place.make()
        for notice in warn_of_short_secrets(self.pipeline.secrets):
            log.warning("%s: %s", self.pipeline.name, notice)
        with self._hold_lock() as taking, hide_in_logs(self.pipeline.secrets):
            journal = None if self.place.needs_spark else self._open_journal(None, taking)
            starts = self.spark is None and not is_given()
            given = self.spark or obtain_for(self.pipeline)
            if starts:
                check_lasting(self.pipeline, given)
            spark = make_own_session(given, self.pipeline.run_options.time_zone)
            journal = journal or self._open_journal(spark, taking)
            with hear_start(spark, self._note_jvm):
                check_shared(self.pipeline, spark)
                self._acquire(journal, spark, taking)
                began_row, scribe = self._record_begin(spark)
                herald = HookRunner(self.pipeline.hooks, self.pipeline.secrets)
                herald.tell(make_start_facts(self.pipeline.name, self.id, self.clock.now().isoformat()))
                status, errors = self._carry(journal, spark, to_the_end, herald)
                stopping = self.dispatcher.stopping if self.dispatcher else ""
                if self.dispatcher and status != "succeeded":
                    stopping = stopping or self.dispatcher.asked_to_stop
                report = self.books.build_report(
                    pipeline=self.pipeline.name,
                    run=self.id,
                    status=status,
                    reason=stopping or ("failed" if errors else "nothing left to do"),
                    seconds=self.clock.elapsed() - began,
                    error=self._describe_error(errors, spark) if errors else None,
                    snapshot=self.snapshot,
                    timeline=self.timeline.json(),
                ).mask(self.pipeline.secrets)
                left_open = len(journal.state.open_plans)
                report = replace(report, causes=self._count_causes(report, spark), left_open=left_open)
                if self.replay is not None and not errors:
                    periods = {code: parse_seconds(each) for code, each in self.pipeline.dlq.periods.items()}
                    tidy(spark, self.dlq, list_decided(journal), retain=periods, now=self.clock.now())
                if not errors:
                    self._drop_filtered(spark)
                    self._sweep_claims(journal, spark)
                self._release(journal, report)
                if journal.state.replay is None and self.replay is not None and self.replay.fix.rows:
                    self.replay.fix.rows.remove(self.place.store(), spark)
        facts = report.json()
        herald.tell(make_end_facts(facts, self.clock.now().isoformat()))
        if scribe is not None:
            scribe.put(began_row.end(report, {**facts, "timeline": report.timeline}, self.clock.now()))
            await_writer(scribe, self.pipeline.name)
        return report, herald

    def _drop_filtered(self, spark: SparkSession) -> None:
        """Drop the filtered rows that were kept long enough, at most once an hour."""
        now = self.clock.elapsed()
        if self.pipeline.keeps_filtered and (self._dropped is None or now >= self._dropped + 3_600):
            self._dropped = now
            retain = parse_seconds(self.pipeline.keep_filtered)
            drop_filtered(spark, self.filtered, retain=retain, now=self.clock.now())

    def _sweep_claims(self, journal: Journal, spark: SparkSession) -> None:
        """Remove large values that nothing names any more, while no batch is open and no other run has lanes."""
        if journal.state.open_plans or journal.is_shared:
            return
        kept = [self.dlq, *([self.filtered] if self.pipeline.keeps_filtered else [])]
        chains = make_chains(self.pipeline, self.destinations)
        sweep_stores(list(chains.values()), self.pipeline.name, kept, lambda: spark, self.clock.now().timestamp())

    def _list_places(self) -> dict[str, str]:
        """Where on this machine the run writes, by what lies there."""
        places = {"the state": str(self.place.directory)} if self.place.directory else {}
        places |= {f"'{name}'": each.place for name, each in self.destinations.items() if getattr(each, "path", None)}
        return {**places, "temporary files": tempfile.gettempdir()}

    def _describe_error(self, errors: Sequence[Exception], spark: SparkSession) -> RunError:
        """The first of the errors, as the report has it."""
        places = self._list_places()
        if is_disk_full(errors[0]):
            places |= {f"Spark's temporary files in {folder}": folder for folder in list_local_folders(spark)}
        return RunError.of(errors[0], self.pipeline.secrets, self.pipeline.protection, errors[1:], places)

    def _count_causes(self, report: Report, spark: SparkSession) -> Causes:
        """Why the run refused rows. Where the DLQ cannot tell, a warning says so; the run does not fail."""
        if report.nacked <= report.discarded or not isinstance(self.dlq, Delta):
            return Causes()
        if report.error is not None and self.dlq.folder is None:
            return Causes()  # Spark may be what failed
        try:
            causes = count_causes_of_run(self.dlq, lambda: spark, self.id, self.pipeline.protection)
            return causes.keep_first(MOST_REPORTED)
        except Exception as error:  # noqa: BLE001 -- the run is done, and its report is not written yet
            message = self.pipeline.protection.mask_error(error, summarise_error(error))
            log.warning("the causes of the refused rows could not be counted: %s", message)
            return Causes()

    def stop(self, reason: str = "asked to stop", *, force: bool = False) -> None:
        """Stop from another thread: what is in flight finishes, or with `force` is left as it is."""
        if self.dispatcher is not None:
            self.dispatcher.request_stop(reason, force=force)

    def _record_begin(self, spark: SparkSession) -> tuple[RunRow, BackgroundWriter[RunRow] | None]:
        """The run's row in the run history, and who writes it: nobody waits for that."""
        row = RunRow(
            run=self.id,
            pipeline=self.pipeline.name,
            status="running",
            started_at=self.clock.now(),
            definition=self.hash,
            host=str(identify_host()["host"]),
        )
        history = self.place.open_history(self.pipeline, lambda: make_own_session(spark))
        if history is None:
            return row, None
        scribe = get_writer(history)
        for owner in self._before:
            scribe.put(RunRow.make_killed(owner, self.pipeline.name, self.id))
        scribe.put(row)
        return row, scribe

    def _open_journal(self, spark: SparkSession | None, taking: Takeover | None) -> Journal:
        """The ledger in our hands. Raises when it is another pipeline's, or somebody else owns it and lives."""
        tenure = None if taking is None else Lease(self.clock, parse_seconds(self.pipeline.run_options.lease))
        journal = Journal(self.place.open_ledger(spark), tenure)
        check_pipeline(self.pipeline, self.place, journal.state)
        self._may_take(journal, taking)
        return journal

    def _may_take(self, journal: Journal, taking: Takeover | None) -> bool:
        """Whether to join those who have the pipeline. Raises `Owned` or `Paused` where it may not be run."""
        joins = taking.may(journal) if taking else False
        paused, aside = journal.state.paused, self.backfill or self.redo or self.replay or self.finish
        if paused is not None and not aside:
            raise Paused(
                self.pipeline.name,
                since=show_moment(paused["at"]),
                lane=paused["lane"],
                number=paused["number"],
                reason=paused["reason"],
            )
        return joins

    def _acquire(self, journal: Journal, spark: SparkSession, taking: Takeover | None) -> None:
        jvm = find_jvm_process(spark)
        host = identify_host()
        body: OwnerBody = {
            "host": host["host"],
            "boot": host["boot"],
            "pid": host["pid"],
            "started": host["started"],
            "pipeline": self.pipeline.name,
            "run": self.id,
            "jvm": identify_process(jvm) if jvm else None,
            "ownership": self.pipeline.run_options.ownership,
            "lock": taking.lock.path.name if taking else None,
            "lock_file": taking.lock.identity if taking else None,
            "take_over": self.take_over,
            "replay": self.replay.json() if self.replay else None,
            "ruling": self.ruling.json(),
            "finish": self.finish,
            "assignment": self.assignment,
            "hash": self.hash,
            "follow": self.follow,
        }
        begin_use(self.id)

        def may(journal: Journal) -> bool:
            if self.replay is not None:
                self.replay.check_fix(journal, self.dlq, lambda: spark)
            return self._may_take(journal, taking)

        before = journal.acquire(body, may=may)
        sweep_locks(self.place.lock, named=[str(owner.get("lock")) for owner in journal.state.owners])
        for owner in before:
            end_orphan(owner, self.place.lock)
        self._before = before

    def _note_jvm(self) -> None:
        jvm = find_jvm_number()
        if jvm is not None:
            note_jvm(self.place.lock, self.id, jvm)

    def _carry(
        self, journal: Journal, spark: SparkSession, to_the_end: contextlib.ExitStack, herald: HookRunner
    ) -> tuple[str, Sequence[Exception]]:
        """How the run ended, and what went wrong, in its order."""
        options = self.pipeline.run_options
        lanes = [lane for origin in self.pipeline.every_origin for lane in self.pipeline.lanes_of(origin)]
        ends = {**self.destinations, DLQ: self.dlq, FILTERED: self.filtered}
        self.opened = {name: each.open() for name, each in ends.items()}
        journal.ledger = PatientLedger(journal.ledger, self.patience)
        copies = [each.discreet(self.pipeline.protection) for each in self.pipeline.dlq.copies]
        self.opened = {**self.opened, **open_dlq(self.opened[DLQ], self.fallback, copies, self.ruling.assume)}
        budget = self.budget = self._make_budget(journal, spark)
        runner = self._make_executor(spark, journal.tenure)
        activity = RunActivity(
            pipeline=self.pipeline.name,
            run=self.id,
            folder=self.place.activity,
            count_work=lambda: count_active_work(spark, runner.group),
            list_runs=lambda: [str(owner.get("run")) for owner in journal.state.owners],
            clock=self.clock,
        )
        deadline = _make_deadline(journal.tenure, spark)
        carried = CarriedRun(id=self.id, spark=spark, journal=journal, deadline=deadline, is_stopping=self._is_stopping)
        process = self.accompany(runner.process, carried)
        crew = WorkerPool(options.runners or min(len(lanes), os.cpu_count() or 1), activity.watch(process))
        dispatcher = self.dispatcher = Dispatcher(
            journal=journal,
            crew=crew,
            clock=self.clock,
            rules=DeliveryRules(
                dlq=self.pipeline.dlq,
                delivery=self.pipeline.delivery,
                discards=isinstance(self.dlq, Discard),
                replacing=frozenset(name for name, each in self.destinations.items() if each.replaces),
                keeps_filtered=self.pipeline.keeps_filtered,
            ),
            options=CarryingOptions(
                max_in_flight=options.max_in_flight or len(lanes),
                grouped_lanes=self.thresholds.grouped_lanes,
                retry=make_policy(options.retry),
            ),
            callbacks=ProgressCallbacks(
                committed={
                    name: partial(self._tell_origin, hear) for name, hear in runner.list_listening(spark).items()
                },
                forget=lambda plan: self.patience.outlast(lambda: runner.forget(spark, plan)),
                pulse=lambda: check_alive(spark),
                over_budget=budget.check if budget else None,
                listeners=[self.books, self.timeline, _log_warning, partial(self._tell_hooks, herald), *self.listeners],
            ),
            pace=BatchSizing(parse_seconds(options.batch.target)),
        )
        raised: list[Exception] = []
        ledger, every = self.place.open_ledger(spark), FORCED_AT_ONCE if self.place.directory else FORCED_SOON
        drain = parse_seconds(options.drain)
        to_the_end.enter_context(stop_on_signals(dispatcher))
        with (
            activity,
            give_up_waiting(spark, runner.group, lambda: bool(dispatcher.asked_to_stop)),
            force_in_time(ledger, dispatcher, runner.cancel, every=every, drain=drain, beside=activity.store),
        ):
            try:
                self._carry_all(journal, dispatcher, runner, spark)
            except WorkCancelled:
                dispatcher.take_turn()
            except Exception as error:  # noqa: BLE001 -- the edge of the run: its report says what ended it
                raised.append(error)
            errors = [each for each in dispatcher.errors if not (dispatcher.stopping and _waited_for_spark(each))]
            if raised or dispatcher.forced:
                runner.cancel()
            elif errors:
                self.snapshot = runner.describe_failure(spark, errors[0], options.snapshot)
            crew.close()
            raised += runner.confirm()
            runner.close()
            raised += _close_all(self.opened.values())
        errors += [error for error in raised if not (dispatcher.forced and classify(error).is_cancelled)]
        if errors:
            return "failed", errors
        return ("stopped" if dispatcher.stopping or dispatcher.forced else "succeeded"), []

    def _make_budget(self, journal: Journal, spark: SparkSession) -> RefusedBudget | None:
        """What limits the refused rows that wait. Nothing limits a run that plans no new batch."""
        limit, has_fallback = self.pipeline.dlq.budget, self.fallback is not None
        if limit is None or self.replay is not None or self.finish:
            return None
        return RefusedBudget(
            limit, lambda: count_waiting_rows(self.dlq, lambda: spark, journal, has_fallback=has_fallback)
        )

    def _check_budget(self, source: BatchPlanner | None) -> None:
        """Raises `BudgetExceeded` where batches may wait, and too many refused rows do."""
        over = self.budget.check() if self.budget is not None and source is not None else None
        if over is not None:
            raise over

    def _tell_hooks(self, herald: HookRunner, event: Event) -> None:
        if isinstance(event, LimitExceeded):
            herald.tell(make_limit_facts(event, self.clock.now().isoformat()))

    def _tell_origin(self, committed: Callable[[Batch], None], batch: Batch) -> None:
        self.patience.outlast(lambda: committed(batch))

    def _is_stopping(self) -> bool:
        return self.dispatcher is not None and bool(self.dispatcher.asked_to_stop or self.dispatcher.stopping)

    def _carry_all(self, journal: Journal, dispatcher: Dispatcher, runner: TaskExecutor, spark: SparkSession) -> None:  # noqa: C901 -- one run, from what is open to what waits
        """First the batches that an earlier run left open, then what waits."""
        company = self._join_company(journal)
        if company is not None:
            company.await_opening(lambda: bool(dispatcher.asked_to_stop or journal.state.stopping))
        if company is None or company.alone:
            self._finish_open(journal, dispatcher, company, spark)
        if company is not None and (dispatcher.asked_to_stop or journal.state.stopping):
            dispatcher.take_turn()
        if dispatcher.stopping or self.finish:
            self._merge_fallback(journal, dispatcher, spark)
            return
        recognises = make_recogniser(self.pipeline, self.destinations, journal, spark)
        check_layout(self.pipeline, self.destinations, journal.state, self.ruling, recognises)
        opening = RunOpening(
            pipeline=self.pipeline,
            run=self.id,
            text=self.text,
            hash=self.hash,
            destinations=self.destinations,
            dlq=self.dlq,
            fallback=self.fallback,
            filtered=self.filtered,
            opened=self.opened,
            ruling=self.ruling,
            follow=self.follow,
            split=OF_A_BACKFILL if self.backfill or self.redo else OF_A_REPLAY if self.replay else None,
            only=self.backfill.only if self.backfill else None,
        )
        if self.backfill is None and self.replay is None and self.redo is None:
            start_over(self.pipeline, journal, self.ruling, stand=list_unchanged(opening, journal, spark))

        noticed: set[tuple[str, str]] = set()

        def take_in(source: BatchPlanner | None) -> BatchPlanner | None:
            runner.reading.lines = opening.lines
            found = [*list_notices(source)] if source else opening.notices
            found = [] if self.redo else found  # what waits in other files is not read
            for notice in [each for each in found if each not in noticed]:
                noticed.add(notice)
                self._emit(Noticed(origin=notice[0], message=notice[1]))
            return source

        def again(source: BatchPlanner | None, offsets: Mapping[str, JSON]) -> BatchPlanner | None:
            if source is None and company is not None and not company.may_open:
                return None
            with runner.cancel_planning():
                return take_in(self.patience.outlast(lambda: opening.survey_again(source, offsets, journal, spark)))

        source = None
        if company is not None:
            company.note_survey()
        if company is None or company.may_open:
            with runner.cancel_planning():
                source = take_in(opening.open_source(journal, spark))
        if source is not None:
            source = self._choose_past(source, journal, spark)
        if source is not None and self.replay is not None:
            self._take_given_rows(self.replay.fix.rows, runner, spark)
            with runner.cancel_planning():
                chosen, runner.reading.fix = self.replay.make_source(
                    source, opening.lines, self.destinations, self.dlq, journal, spark
                )
                source = take_in(chosen)
        dispatcher.planning.source = source
        if company is not None:
            company.again = lambda source, origins: opening.survey_anew(source, origins, journal, spark)
            company.begin()
            dispatcher.planning.company = company
        if self.follow:
            dispatcher.planning.following = Follower(
                every=parse_seconds(self.pipeline.run_options.poll), again=again, now=self.clock.elapsed()
            )
        self._emit(RunStarted(pipeline=self.pipeline.name, run=self.id, waiting=self._count_waiting(journal, source)))
        self._check_budget(source)
        dispatcher.run()
        if company is not None and not dispatcher.stopping and company.left is not None:
            raise make_kept_error(self.pipeline.name, journal.state, company.left)

    def _take_given_rows(self, rows: GivenRows, runner: TaskExecutor, spark: SparkSession) -> None:
        """Keep the rows that a person corrected in the state before the first of them is planned, and read these."""
        if rows and isinstance(self.dlq, Delta):
            kept = self.patience.outlast(lambda: rows.keep(self.place.store(), spark))
            runner.reading.origins = {
                **runner.reading.origins,
                REPLAY: DeadLetterRows(dlq=self.dlq, corrected=kept.texts),
            }

    def _merge_fallback(self, journal: Journal, dispatcher: Dispatcher, spark: SparkSession) -> None:
        """Bring the refused rows back that wait in the fallback, where this run is to do that."""
        if dispatcher.stopping or not self.merge:
            return
        assert isinstance(self.dlq, Delta), "no other DLQ has a fallback"
        assert self.fallback is None or isinstance(self.fallback, Delta), "no other destination can be one"
        self.merged = FallbackMerge(
            pipeline=self.pipeline.name,
            dlq=self.dlq,
            fallback=self.fallback,
            journal=journal,
            spark=spark,
            deadline=_make_deadline(journal.tenure, spark),
        )
        self.merged.merge(lambda: bool(dispatcher.asked_to_stop or journal.state.stopping))
        if dispatcher.asked_to_stop or journal.state.stopping:
            dispatcher.take_turn()

    def _choose_past(self, source: BatchPlanner, journal: Journal, spark: SparkSession) -> BatchPlanner:
        """What a backfill or a redo plans from; for other runs what waits."""
        if self.redo is not None:
            return self.redo.make_source(source, self.pipeline, journal, spark)
        return source if self.backfill is None else self.backfill.make_source(source, self.pipeline, journal)

    def _join_company(self, journal: Journal) -> LaneCoordination | None:
        """The others with whom the lanes are shared."""
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
        self, journal: Journal, dispatcher: Dispatcher, company: LaneCoordination | None, spark: SparkSession
    ) -> None:
        """Finish the batches that an earlier run left open; others that come meanwhile get their share."""
        waive(journal, self.destinations, self.ruling)

        def list_prepared() -> Sequence[str]:
            journal.refresh()
            plans = journal.state.open_plans
            shared = [plan.batch.plan for plan in plans if company is not None]
            given = find_given(journal)
            return [
                *(plan.decision.path for plan in plans if plan.decision),
                *shared,
                *([given.name] if given else []),
            ]

        self.patience.outlast(lambda: self.place.store().sweep(spark, list_prepared))
        if company is None:
            dispatcher.recover()
        else:
            company.begin()
            dispatcher.planning.company = company
        dispatcher.run()
        if company is not None and not dispatcher.forced:  # then a write may be under way until runners are closed
            dispatcher.planning.company = None
            company.release_lanes()

    def _count_waiting(self, journal: Journal, source: BatchPlanner | None) -> Mapping[str, int]:
        """For those who show how far it is; of a run that goes on nobody knows."""
        if source is None or self.follow or not self.listeners:
            return {}
        offsets = {lane: journal.state.get_lane(lane).offset for lane in source.lanes}
        return source.count_waiting(
            offsets, BatchSizing(parse_seconds(self.pipeline.run_options.batch.target)), self.clock
        )

    def _release(self, journal: Journal, report: Report) -> None:
        """Let the pipeline go. A ledger that cannot be written keeps us as its owner: the next run sees us gone."""
        with contextlib.suppress(WherryError) if report.error else contextlib.nullcontext():
            journal.record(Entry(kind="release", body=report.json()))
            forget_jvm(self.place.lock, self.id)
            end_use(self.id)
        self._emit(RunEnded(status=report.status, reason=report.reason, lanes=report.lanes))

    def _emit(self, event: Event) -> None:
        hear: Sequence[Listener] = [self.books, *self.listeners]
        for listener in hear:
            listener(event)

    def _make_executor(self, spark: SparkSession, tenure: Lease | None) -> TaskExecutor:
        origins = dict(self.pipeline.origins_by_name)
        if self.replay is not None and isinstance(self.dlq, Delta):
            origins[REPLAY] = DeadLetterRows(dlq=self.dlq)
        names = resolve_names(self.destinations)
        runner = TaskExecutor(
            spark=spark,
            group=f"wherry-{self.id}",
            origins=origins,
            destinations={FILTERED: self.filtered, **{name: self.destinations[now] for name, now in names.items()}},
            dlq=self.dlq,
            opened={
                **{name: self.opened[name] for name in (DLQ, FALLBACK, FILTERED) if name in self.opened},
                **{name: self.opened[now] for name, now in names.items()},
            },
            keep_original=self.pipeline.dlq.original,
            store=self.place.store(),
            time_zone=self.pipeline.run_options.time_zone,
            pool=self.pool,
            assume=self.ruling.assume,
            secrets=self.pipeline.secrets,
            protection=self.pipeline.protection,
            also=self.pipeline.run_options.retry.also,
            fallback=self.fallback,
            explained=self.pipeline.run_options.snapshot,
            deadline=_make_deadline(tenure, spark),
            thresholds=self.thresholds,
            off=list_ways_off(self.pipeline.run_options.ways),
            keeps_filtered=self.pipeline.keeps_filtered,
            drop_filtered=self._drop_filtered,
        )
        runner.reading.definition = self.hash
        runner.reading.before = make_chains(self.pipeline, self.destinations)
        return runner

    @contextlib.contextmanager
    def _hold_lock(self) -> Iterator[Takeover | None]:
        """While in here others on this host can see that this process lives. None where a scheduler is the lock.

        Where somebody has that lock already it is one of our own: his ledger says whether he lives.
        """
        if self.pipeline.run_options.ownership == "off":
            yield None
            return
        lock = StateLock(self.place.lock)
        if self.assignment != "single" or not lock.acquire():
            lock = StateLock(lock.path.with_name(f"{lock.path.name}-{self.id}"))
            lock.acquire()
        try:
            yield Takeover(
                pipeline=self.pipeline.name,
                place=self.place,
                lock=lock,
                clock=self.clock,
                take_over=self.take_over,
                assignment=self.assignment,
                hash=self.hash,
            )
        finally:
            if lock.path != self.place.lock:
                lock.path.unlink(missing_ok=True)
            lock.release()


def _make_deadline(tenure: Lease | None, spark: SparkSession) -> Deadline | None:
    """Until when a write may begin; None where nobody takes the pipeline over."""
    if tenure is None:
        return None
    apart = measure_clock_offset(spark) if is_connect(spark) else 0.0
    return Deadline(left=tenure.seconds_left, secure=tenure.secure, ahead=apart)


def _close_all(opened: Iterable[OpenDestination]) -> Iterator[Exception]:
    """Let go of what the run has open; what goes wrong in that."""
    for each in opened:
        try:
            each.close()
        except Exception as error:  # noqa: BLE001 -- the edge of the run: its report says what ended it
            yield error


def _waited_for_spark(error: Exception) -> bool:
    """Whether a batch failed only because the run was to stop before its Spark was up: the next run reads it."""
    return any(isinstance(each, WorkCancelled) for each in list_errors(error))


def _log_warning(event: Event) -> None:
    """Whoever waits for a run wants to know why it waits, and hears of limits at once."""
    if warning := describe_warning(event):
        log.warning("%s", warning)
