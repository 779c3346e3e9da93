"""One execution of a pipeline: take it, finish what was left open, carry what waits, let it go."""

from __future__ import annotations

import contextlib
import logging
import os
import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from destinations.deadline import Deadline
from destinations.delta import Delta
from destinations.destination import Destination
from destinations.discard import Discard
from origins.batch import JSON
from origins.errors import WherryError
from origins.origin import Origin
from origins.quantities import seconds
from runners.backfill import Backfill
from runners.causes import is_cancelled
from runners.clock import Clock
from runners.crew import Threads
from runners.definitions.secrets import discreet, warn_of_short_secrets
from runners.dispatcher import Dispatcher
from runners.dlq.dead_letter_rows import DeadLetterRows
from runners.dlq.letters import decided
from runners.dlq.replaying import Replay
from runners.dlq.retention import tidy
from runners.events import BatchRests, Event, Listener, Noticed, RunEnded, RunStarted, rested
from runners.flight import Rules
from runners.following import Following
from runners.journal import Journal, newest_of
from runners.layout import Recognises, check_layout, resolved, start_over, waive
from runners.ledgers.entry import Entry
from runners.line import named
from runners.listeners.herald import Herald
from runners.listeners.hook import facts_of_end, facts_of_start
from runners.listeners.scribe import Scribe
from runners.mixing import OF_A_BACKFILL, OF_A_REPLAY
from runners.opening import Opening, line_of, standing
from runners.owners.company import Company
from runners.owners.ownership import StateLock, end_orphan, host_identity, process_identity, sweep_locks
from runners.owners.taking import Taking, kept
from runners.owners.tenure import Tenure
from runners.pace import Pace
from runners.pipeline import Pipeline
from runners.place import Place, check_lasting, check_pipeline
from runners.report import Bookkeeper, Report, RunError
from runners.reports.run_history import RunRow, scribe_of, told
from runners.reports.timeline import Timeline
from runners.retry import policy
from runners.ruling import Ruling
from runners.runner import Runner
from runners.session import ahead, answers, is_connect, is_given, jvm_process, obtain, own
from runners.snapshot import snapshot
from runners.source import Source, notices_of
from runners.state import REPLAY
from runners.stopping import forced_in_time, signals_stop
from runners.suites import suites_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

FORCED_AT_ONCE, FORCED_SOON = 1.0, 30.0
"""After how many seconds a forced stop is heard, of a ledger on this machine and of one that Spark reads."""


log = logging.getLogger("wherry")


@dataclass
class Run:
    """A run of a pipeline, from taking it to letting it go."""

    pipeline: Pipeline
    text: str
    """The definition, whole, as the ledger keeps it."""
    hash: str
    listeners: Sequence[Listener] = ()
    clock: Clock = Clock()  # noqa: RUF009  (it has no state)
    follow: bool = False
    """Whether to go on when nothing is left, and to carry what comes."""
    backfill: Backfill | None = None
    """What of the past to carry again, in place of what waits."""
    finish: bool = False
    """Whether to finish what an earlier run left open, and to carry nothing else."""
    replay: Replay | None = None
    """What of the DLQ to carry again, in place of what waits."""
    take_over: str = ""
    """Why this run may take the pipeline from an owner on another host."""
    spark: SparkSession | None = None
    """The Spark to use; by default the one that there is, or one that is started."""
    pool: str = ""
    """With whom its work on Spark shares the cores fairly."""
    ruling: Ruling = Ruling()  # noqa: RUF009  (it is frozen)
    hooks_wait: float | None = None
    """How many seconds to wait, at the end, for hooks that are still being told; by default for half a minute."""

    def __post_init__(self) -> None:
        self.id = uuid.uuid4().hex
        self.place = Place.of(self.pipeline)
        protection, dead = self.pipeline.protection, self.pipeline.dlq.destination or self.place.dlq()
        self.destinations = named([each.discreet(protection) for each in self.pipeline.every_destination])
        self.dlq: Destination = dead.discreet(protection)
        self.books = Bookkeeper(tuple(self.destinations), resolved(self.destinations), suites_of(self.pipeline))
        self.dispatcher: Dispatcher | None = None
        self.snapshot: Mapping[str, JSON] | None = None
        self.timeline = Timeline(self.clock)
        self._before: Sequence[Mapping[str, JSON]] = ()
        """From whom it has taken the pipeline over: they never let it go."""

    @property
    def assignment(self) -> str:
        """How this run shares the lanes; whatever concerns all of them takes the pipeline alone."""
        aside = self.backfill or self.replay or self.finish or self.ruling
        return "single" if aside else self.pipeline.run_options.assignment

    def carry(self) -> Report:
        """Carry what waits. Raises only when the pipeline could not be taken; all else is in the report."""
        with contextlib.ExitStack() as to_the_end:
            report, herald = self._carry_and_tell(to_the_end)
        try:
            herald.ended(self.pipeline.name, self.hooks_wait)
        except KeyboardInterrupt:
            log.warning("%s: hooks that are still being told are waited for no more.", self.pipeline.name)
        return report

    def _carry_and_tell(self, to_the_end: contextlib.ExitStack) -> tuple[Report, Herald]:
        """Carry what waits, and write down how it went. From the first batch `to_the_end` a signal only stops."""
        began = self.clock.elapsed()
        self.place.make()
        for notice in warn_of_short_secrets(self.pipeline.secrets):
            log.warning("%s: %s", self.pipeline.name, notice)
        with self._locked() as taking, discreet(self.pipeline.secrets):
            journal = None if self.place.needs_spark else self._journal(None, taking)
            options = self.pipeline.spark
            starts = self.spark is None and not is_given()
            given = self.spark or obtain(options.conf, options.packages)
            if starts:
                check_lasting(self.pipeline, given)
            spark = own(given, self.pipeline.run_options.time_zone)
            journal = journal or self._journal(spark, taking)
            self._acquire(journal, spark, taking)
            began_row, scribe = self._began(spark)
            herald = Herald(self.pipeline.hooks, self.pipeline.secrets)
            herald.tell(facts_of_start(self.pipeline.name, self.id, self.clock.now().isoformat()))
            status, errors = self._carry(journal, spark, to_the_end)
            stopping = self.dispatcher.stopping if self.dispatcher else ""
            if self.dispatcher and status != "succeeded":
                stopping = stopping or self.dispatcher.asked_to_stop
            report = self.books.report(
                pipeline=self.pipeline.name,
                run=self.id,
                status=status,
                reason=stopping or ("failed" if errors else "nothing left to do"),
                seconds=self.clock.elapsed() - began,
                error=RunError.of(errors[0], self.pipeline.secrets, self.pipeline.protection, errors[1:])
                if errors
                else None,
                snapshot=self.snapshot,
                timeline=self.timeline.json(),
            ).mask(self.pipeline.secrets)
            if self.replay is not None and not errors:
                kept = seconds(self.pipeline.dlq.retain)
                tidy(spark, self.dlq, decided(journal), retain=kept, now=self.clock.now())
            self._release(journal, report)
        facts = report.json()
        herald.tell(facts_of_end(facts, self.clock.now().isoformat()))
        if scribe is not None:
            scribe.put(began_row.ended(report, {**facts, "timeline": report.timeline}, self.clock.now()))
            told(scribe, self.pipeline.name)
        return report, herald

    def stop(self, reason: str = "asked to stop", *, force: bool = False) -> None:
        """Stop from another thread: what is in flight finishes, or with `force` is left as it is."""
        if self.dispatcher is not None:
            self.dispatcher.request_stop(reason, force=force)

    def _began(self, spark: SparkSession) -> tuple[RunRow, Scribe[RunRow] | None]:
        """The run's row in the run history, and who writes it: nobody waits for that."""
        row = RunRow(
            run=self.id,
            pipeline=self.pipeline.name,
            status="running",
            started_at=self.clock.now(),
            definition=self.hash,
            host=str(host_identity()["host"]),
        )
        history = self.place.history(self.pipeline, lambda: own(spark))
        if history is None:
            return row, None
        scribe = scribe_of(history)
        for owner in self._before:
            scribe.put(RunRow.killed(owner, self.pipeline.name, self.id))
        scribe.put(row)
        return row, scribe

    def _journal(self, spark: SparkSession | None, taking: Taking | None) -> Journal:
        """The ledger in our hands. Raises when it is another pipeline's, or somebody else owns it and lives."""
        tenure = None if taking is None else Tenure(self.clock, seconds(self.pipeline.run_options.lease))
        journal = Journal(self.place.ledger(spark), tenure)
        check_pipeline(self.pipeline, self.place, journal.state)
        if taking is not None:
            taking.may(journal)
        return journal

    def _acquire(self, journal: Journal, spark: SparkSession, taking: Taking | None) -> None:
        jvm = jvm_process(spark)
        body: Mapping[str, JSON] = {
            **host_identity(),
            "pipeline": self.pipeline.name,
            "run": self.id,
            "jvm": process_identity(jvm) if jvm else None,
            "ownership": self.pipeline.run_options.ownership,
            "lock": taking.lock.path.name if taking else None,
            "take_over": self.take_over,
            "replay": self.replay.json() if self.replay else None,
            "ruling": self.ruling.json(),
            "finish": self.finish,
            "assignment": self.assignment,
            "hash": self.hash,
            "follow": self.follow,
        }
        before = journal.acquire(body, may=taking.may) if taking else journal.acquire(body)
        sweep_locks(self.place.lock, named=[str(owner.get("lock")) for owner in journal.state.owners])
        for owner in before:
            end_orphan(owner)
        self._before = before

    def _carry(
        self, journal: Journal, spark: SparkSession, to_the_end: contextlib.ExitStack
    ) -> tuple[str, Sequence[Exception]]:
        """How the run ended, and what went wrong, in its order."""
        options = self.pipeline.run_options
        lanes = [lane for origin in self.pipeline.every_origin for lane in self.pipeline.lanes_of(origin)]
        runner = self._runner(spark, journal.tenure)
        crew = Threads(options.runners or min(len(lanes), os.cpu_count() or 1), runner.process)
        dispatcher = self.dispatcher = Dispatcher(
            journal=journal,
            crew=crew,
            clock=self.clock,
            rules=Rules(
                dlq=self.pipeline.dlq,
                delivery=self.pipeline.delivery,
                discards=isinstance(self.dlq, Discard),
                replacing=frozenset(name for name, each in self.destinations.items() if each.replaces),
            ),
            max_in_flight=options.max_in_flight or len(lanes),
            committed=runner.listening(spark),
            forget=lambda plan: runner.forget(spark, plan),
            listeners=[self.books, self.timeline, _logged, *self.listeners],
            pace=Pace(seconds(options.batch.target)),
            retry=policy(options.retry),
            pulse=lambda: answers(spark),
        )
        raised: list[Exception] = []
        ledger, every = self.place.ledger(spark), FORCED_AT_ONCE if self.place.directory else FORCED_SOON
        drain = seconds(options.drain)
        to_the_end.enter_context(signals_stop(dispatcher))
        with forced_in_time(ledger, dispatcher, runner.cancel, every=every, drain=drain):
            try:
                self._carry_all(journal, dispatcher, runner, spark)
            except Exception as error:
                raised.append(error)
            if raised or dispatcher.forced:
                runner.cancel()
            elif dispatcher.errors:
                self.snapshot = self._kept(runner, spark, dispatcher.errors[0])
            crew.close()
            raised += runner.confirm()
            runner.close()
        errors = [*dispatcher.errors, *(error for error in raised if not (dispatcher.forced and is_cancelled(error)))]
        if errors:
            return "failed", errors
        return ("stopped" if dispatcher.stopping or dispatcher.forced else "succeeded"), []

    def _kept(self, runner: Runner, spark: SparkSession, error: Exception) -> Mapping[str, JSON] | None:
        """What the run was doing when a batch failed: its refused rows if it was they, else its first ones."""
        batch, most = getattr(error, "batch", None), self.pipeline.run_options.snapshot
        if batch is None or not most:
            return None
        rows = getattr(error, "rows", None) or runner.sample(spark, batch, most)
        return snapshot(batch, getattr(error, "stage", None), rows[:most])

    def _carry_all(self, journal: Journal, dispatcher: Dispatcher, runner: Runner, spark: SparkSession) -> None:
        """First the batches that an earlier run left open, then what waits."""
        company = self._company(journal)
        if company is not None:
            company.await_opening(lambda: bool(dispatcher.asked_to_stop or journal.state.stopping))
        if company is None or company.alone:
            self._finish_open(journal, dispatcher, company, spark)
        if company is not None and (dispatcher.asked_to_stop or journal.state.stopping):
            dispatcher.turn()
        if dispatcher.stopping or self.finish:
            return
        check_layout(self.pipeline, self.destinations, journal.state, self.ruling, self._recognises(journal, spark))
        opening = Opening(
            pipeline=self.pipeline,
            run=self.id,
            text=self.text,
            hash=self.hash,
            destinations=self.destinations,
            dlq=self.dlq,
            ruling=self.ruling,
            follow=self.follow,
            split=OF_A_BACKFILL if self.backfill else OF_A_REPLAY if self.replay else None,
            only=self.backfill.only if self.backfill else None,
        )
        if self.backfill is None and self.replay is None:
            start_over(self.pipeline, journal, self.ruling, stand=standing(opening, journal, spark))

        noticed: set[tuple[str, str]] = set()

        def opened(source: Source | None) -> Source | None:
            runner.reading.lines = opening.lines
            for notice in [each for each in notices_of(source) if each not in noticed]:
                noticed.add(notice)
                self._say(Noticed(origin=notice[0], message=notice[1]))
            return source

        def again(source: Source | None, offsets: Mapping[str, JSON]) -> Source | None:
            if source is None and company is not None and not company.may_open:
                return None
            with runner.planning():
                return opened(opening.again(source, offsets, journal, spark))

        source = None
        if company is not None:
            company.surveys()
        if company is None or company.may_open:
            with runner.planning():
                source = opened(opening.source(journal, spark))
        if source is not None and self.backfill is not None:
            source = self.backfill.source(source, self.pipeline, journal)
        if source is not None and self.replay is not None:
            with runner.planning():
                source = opened(self.replay.source(source, opening.lines, self.destinations, self.dlq, journal, spark))
        dispatcher.source = source
        if company is not None:
            company.again = lambda source, origins: opening.anew(source, origins, journal, spark)
            company.begin()
            dispatcher.company = company
        if self.follow:
            every = seconds(self.pipeline.run_options.poll)
            dispatcher.following = Following(every=every, again=again, now=self.clock.elapsed())
        self._say(RunStarted(pipeline=self.pipeline.name, run=self.id, waiting=self._waiting(journal, source)))
        dispatcher.run()
        if company is not None and not dispatcher.stopping and company.left is not None:
            raise kept(self.pipeline.name, journal.state, company.left)

    def _recognises(self, journal: Journal, spark: SparkSession) -> Recognises:
        """Who tells by what lies there whether an origin or a destination is the one that the state knows."""
        state = journal.state
        origins = {origin.name or "origin": origin for origin in self.pipeline.every_origin}

        def recognise(name: str) -> bool:
            if name in origins:
                lanes = [lane for lane in state.lanes if self.pipeline.owns(origins[name], lane)]
                return origins[name].is_still(spark, [state.lanes[lane].offset for lane in lanes])
            called = name if name in state.identities else self.destinations[name].was or ""
            known = state.identities.get(called)
            return known is not None and self.destinations[name].is_still(spark, known, newest_of(journal, called))

        return recognise

    def _company(self, journal: Journal) -> Company | None:
        """The others with whom the lanes are shared."""
        if self.assignment == "single" or journal.tenure is None:
            return None
        return Company(
            journal=journal,
            tenure=journal.tenure,
            place=self.place,
            lanes=[lane for origin in self.pipeline.every_origin for lane in self.pipeline.lanes_of(origin)],
            definition=self.hash,
            frees=self.assignment == "round_robin" or bool(self.take_over),
            follows=self.follow,
        )

    def _finish_open(
        self, journal: Journal, dispatcher: Dispatcher, company: Company | None, spark: SparkSession
    ) -> None:
        """Finish the batches that an earlier run left open; others that come meanwhile get their share."""
        waive(journal, self.destinations, self.ruling)

        def prepared() -> Sequence[str]:
            journal.refresh()
            plans = journal.state.open_plans
            return [plan.decision.path for plan in plans if plan.decision] + [
                plan.batch.plan for plan in plans if company is not None
            ]

        self.place.store().sweep(spark, prepared)
        if company is None:
            dispatcher.recover()
        else:
            company.begin()
            dispatcher.company = company
        dispatcher.run()
        if company is not None and not dispatcher.forced:  # then a write may be under way until runners are closed
            dispatcher.company = None
            company.rest()

    def _waiting(self, journal: Journal, source: Source | None) -> Mapping[str, int]:
        """For those who show how far it is; of a run that goes on nobody knows."""
        if source is None or self.follow or not self.listeners:
            return {}
        offsets = {lane: journal.state.lane(lane).offset for lane in source.lanes}
        return source.waiting(offsets, Pace(seconds(self.pipeline.run_options.batch.target)), self.clock)

    def _release(self, journal: Journal, report: Report) -> None:
        """Let the pipeline go. A ledger that cannot be written keeps us as its owner: the next run sees us gone."""
        with contextlib.suppress(WherryError) if report.error else contextlib.nullcontext():
            journal.record(Entry(kind="release", body=report.json()))
        self._say(RunEnded(status=report.status, reason=report.reason, lanes=report.lanes))

    def _say(self, event: Event) -> None:
        hear: Sequence[Listener] = [self.books, *self.listeners]
        for listener in hear:
            listener(event)

    def _runner(self, spark: SparkSession, tenure: Tenure | None) -> Runner:
        origins: dict[str, Origin] = {origin.name or "origin": origin for origin in self.pipeline.every_origin}
        if self.replay is not None and isinstance(self.dlq, Delta):
            origins[REPLAY] = DeadLetterRows(dlq=self.dlq)
        deadline = None
        if tenure is not None:
            apart = ahead(spark) if is_connect(spark) else 0.0
            deadline = Deadline(left=tenure.left, secure=tenure.secure, ahead=apart)
        runner = Runner(
            spark=spark,
            group=f"wherry-{self.id}",
            origins=origins,
            destinations={name: self.destinations[now] for name, now in resolved(self.destinations).items()},
            dlq=self.dlq,
            keep_original=self.pipeline.dlq.original,
            store=self.place.store(),
            time_zone=self.pipeline.run_options.time_zone,
            pool=self.pool,
            assume=self.ruling.assume,
            secrets=self.pipeline.secrets,
            protection=self.pipeline.protection,
            also=self.pipeline.run_options.retry.also,
            explained=self.pipeline.run_options.snapshot,
            deadline=deadline,
        )
        runner.reading.definition = self.hash
        runner.reading.before = {
            name: line_of(self.pipeline, origin, self.destinations)
            for name, origin in origins.items()
            if name != REPLAY
        }
        return runner

    @contextlib.contextmanager
    def _locked(self) -> Iterator[Taking | None]:
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
            yield Taking(
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


def _logged(event: Event) -> None:
    """Whoever waits for a run wants to know why it waits."""
    if isinstance(event, BatchRests):
        log.warning(rested(event))
