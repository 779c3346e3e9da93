"""One execution of a pipeline: take it, finish what was left open, carry what waits, let it go."""

from __future__ import annotations

import contextlib
import logging
import os
import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from destinations.destination import Destination
from destinations.discard import Discard
from origins.batch import JSON
from origins.errors import WherryError
from origins.quantities import seconds
from runners.backfill import Backfill
from runners.clock import Clock
from runners.crew import Threads
from runners.dispatcher import Dispatcher
from runners.entry import Entry
from runners.errors import Owned
from runners.events import BatchRests, Event, Listener, Noticed, RunEnded, RunStarted, rested
from runners.flight import Rules
from runners.following import Following
from runners.journal import Journal
from runners.layout import check_layout, resolved, start_over, waive
from runners.line import named
from runners.opening import Opening
from runners.ownership import StateLock, end_orphan, host_identity, process_identity
from runners.pace import Pace
from runners.pipeline import Pipeline
from runners.place import Place, check_pipeline
from runners.report import Bookkeeper, Report, RunError
from runners.retry import policy
from runners.ruling import Ruling
from runners.run_history import RunRow, scribe_of, told
from runners.runner import Runner
from runners.scribe import Scribe
from runners.secrets import discreet, without
from runners.session import jvm_process, obtain, own
from runners.source import Source, notices_of
from runners.stopping import ledger_forces, signals_stop

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
    take_over: str = ""
    """Why this run may take the pipeline from an owner on another host."""
    spark: SparkSession | None = None
    """The Spark to use; by default the one that there is, or one that is started."""
    pool: str = ""
    """With whom its work on Spark shares the cores fairly."""
    ruling: Ruling = Ruling()  # noqa: RUF009  (it is frozen)

    def __post_init__(self) -> None:
        self.id = uuid.uuid4().hex
        self.place = Place.of(self.pipeline)
        self.destinations = named(self.pipeline.destinations)
        self.dlq: Destination = self.pipeline.dlq.destination or self.place.dlq()
        self.books = Bookkeeper(tuple(self.destinations), resolved(self.destinations))
        self.dispatcher: Dispatcher | None = None

    def carry(self) -> Report:
        """Carry what waits. Raises only when the pipeline could not be taken; all else is in the report."""
        began = self.clock.elapsed()
        self.place.make()
        with self._locked(), discreet(self.pipeline.secrets):
            journal = None if self.place.needs_spark else self._journal(None)
            options = self.pipeline.spark
            given = self.spark or obtain(options.conf, options.packages)
            spark = own(given, self.pipeline.run_options.time_zone)
            journal = journal or self._journal(spark)
            self._acquire(journal, spark)
            began_row, scribe = self._began()
            status, error = self._carry(journal, spark)
            stopping = self.dispatcher.stopping if self.dispatcher else ""
            report = self.books.report(
                pipeline=self.pipeline.name,
                run=self.id,
                status=status,
                reason=stopping or ("failed" if error else "nothing left to do"),
                seconds=self.clock.elapsed() - began,
                error=RunError.of(error, self.pipeline.secrets) if error else None,
            )
            self._release(journal, report)
        if scribe is not None:
            facts = without(self.pipeline.secrets, report.json())
            scribe.put(began_row.ended(report, facts, self.clock.now()))
            told(scribe, self.pipeline.name)
        return report

    def stop(self, reason: str = "asked to stop", *, force: bool = False) -> None:
        """Stop from another thread: what is in flight finishes, or with `force` is left as it is."""
        if self.dispatcher is not None:
            self.dispatcher.request_stop(reason, force=force)

    def _began(self) -> tuple[RunRow, Scribe[RunRow] | None]:
        """The run's row in the run history, and who writes it: nobody waits for that."""
        row = RunRow(
            run=self.id,
            pipeline=self.pipeline.name,
            status="running",
            started_at=self.clock.now(),
            definition=self.hash,
            host=str(host_identity()["host"]),
        )
        history = self.place.history(self.pipeline)
        if history is None:
            return row, None
        scribe = scribe_of(history.path, history.retain)
        scribe.put(row)
        return row, scribe

    def _journal(self, spark: SparkSession | None) -> Journal:
        """The ledger in our hands. Raises when it is another pipeline's, or somebody on another host owns it."""
        journal = Journal(self.place.ledger(spark))
        check_pipeline(self.pipeline, self.place, journal.state)
        owner = journal.state.owner
        if owner is not None and owner["host"] != host_identity()["host"] and not self.take_over:
            raise Owned(
                f"{self.pipeline.name} is run by another host: {owner['host']}, process {owner['pid']}, "
                f"since {owner['at']}.",
                hint='If that run is surely gone:  --take-over "why you know"',
            )
        return journal

    def _acquire(self, journal: Journal, spark: SparkSession) -> None:
        here, before = host_identity(), journal.state.owner
        if before is not None:
            end_orphan(before)
        jvm = jvm_process(spark)
        body: Mapping[str, JSON] = {
            **here,
            "pipeline": self.pipeline.name,
            "run": self.id,
            "jvm": process_identity(jvm) if jvm else None,
            "take_over": self.take_over,
            "ruling": self.ruling.json(),
        }
        journal.acquire(body)

    def _carry(self, journal: Journal, spark: SparkSession) -> tuple[str, Exception | None]:
        """How the run ended, and the first error; later ones are attached to it."""
        options = self.pipeline.run_options
        lanes = [lane for origin in self.pipeline.every_origin for lane in self.pipeline.lanes_of(origin)]
        runner = self._runner(spark)
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
            listeners=[self.books, _logged, *self.listeners],
            pace=Pace(seconds(options.batch.target)),
            retry=policy(options.retry),
        )
        raised: list[Exception] = []
        try:
            ledger, every = self.place.ledger(spark), FORCED_AT_ONCE if self.place.directory else FORCED_SOON
            with (
                signals_stop(dispatcher, runner.cancel),
                ledger_forces(ledger, dispatcher, runner.cancel, every=every),
            ):
                self._carry_all(journal, dispatcher, runner, spark)
        except Exception as error:
            raised.append(error)
        if raised or dispatcher.forced:
            runner.cancel()
        crew.close()
        runner.close()
        errors = [*dispatcher.errors, *raised]
        for later in errors[1:]:
            if isinstance(errors[0], WherryError):
                errors[0].later.append(later)
        if errors:
            return "failed", errors[0]
        return ("stopped" if dispatcher.stopping else "succeeded"), None

    def _carry_all(self, journal: Journal, dispatcher: Dispatcher, runner: Runner, spark: SparkSession) -> None:
        """First the batches that an earlier run left open, then what waits."""
        waive(journal, self.destinations, self.ruling)
        state = journal.state
        self.place.store().sweep(spark, [plan.decision.path for plan in state.open_plans if plan.decision])
        dispatcher.recover()
        dispatcher.run()
        if dispatcher.stopping:
            return
        check_layout(self.pipeline, self.destinations, journal.state, self.ruling)
        if self.backfill is None:
            start_over(self.pipeline, journal, self.ruling)
        opening = Opening(
            pipeline=self.pipeline,
            run=self.id,
            text=self.text,
            hash=self.hash,
            destinations=self.destinations,
            dlq=self.dlq,
            ruling=self.ruling,
        )

        noticed: set[tuple[str, str]] = set()

        def opened(source: Source | None) -> Source | None:
            runner.lines = opening.lines
            for notice in [each for each in notices_of(source) if each not in noticed]:
                noticed.add(notice)
                self._say(Noticed(origin=notice[0], message=notice[1]))
            return source

        def again(source: Source | None, offsets: Mapping[str, JSON]) -> Source | None:
            return opened(opening.again(source, offsets, journal, spark))

        source = opened(opening.source(journal, spark))
        if source is not None and self.backfill is not None:
            source = self.backfill.source(source, self.pipeline, journal)
        dispatcher.source = source
        if self.follow:
            every = seconds(self.pipeline.run_options.poll)
            dispatcher.following = Following(every=every, again=again, now=self.clock.elapsed())
        self._say(RunStarted(pipeline=self.pipeline.name, run=self.id))
        dispatcher.run()

    def _release(self, journal: Journal, report: Report) -> None:
        """Let the pipeline go. A ledger that cannot be written keeps us as its owner: the next run sees us gone."""
        with contextlib.suppress(WherryError) if report.error else contextlib.nullcontext():
            journal.record(Entry(kind="release", body=without(self.pipeline.secrets, report.json())))
        self._say(RunEnded(status=report.status, reason=report.reason, lanes=report.lanes))

    def _say(self, event: Event) -> None:
        hear: Sequence[Listener] = [self.books, *self.listeners]
        for listener in hear:
            listener(event)

    def _runner(self, spark: SparkSession) -> Runner:
        return Runner(
            spark=spark,
            group=f"wherry-{self.id}",
            origins={origin.name or "origin": origin for origin in self.pipeline.every_origin},
            destinations={name: self.destinations[now] for name, now in resolved(self.destinations).items()},
            dlq=self.dlq,
            keep_original=self.pipeline.dlq.original,
            store=self.place.store(),
            time_zone=self.pipeline.run_options.time_zone,
            pool=self.pool,
            assume=self.ruling.assume,
            secrets=self.pipeline.secrets,
        )

    @contextlib.contextmanager
    def _locked(self) -> Iterator[None]:
        lock = StateLock(self.place.lock)
        if not lock.acquire():
            raise Owned(
                f"{self.pipeline.name} is being run already, on this host.",
                hint="Wait for it, or stop it first.",
            )
        try:
            yield
        finally:
            lock.release()


def _logged(event: Event) -> None:
    """Whoever waits for a run wants to know why it waits."""
    if isinstance(event, BatchRests):
        log.warning(rested(event))
