"""A pipeline: the definition, and what can be done with it from Python."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from destinations.destination import Destination
from destinations.dlq import Dlq
from origins.batch import JSON
from origins.origin import Origin
from origins.protection import Protection
from runners.listeners.hook import Hook
from stages.stage import Stage

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from runners.audits.finding import Audit
    from runners.audits.repairing import Repaired
    from runners.backfill import Backfill
    from runners.dlq.letters import Decided
    from runners.dlq.replay import Choice
    from runners.dlq.replaying import Replay
    from runners.events import Listener
    from runners.lanes import Lanes
    from runners.previews.preview import Preview
    from runners.report import Report
    from runners.ruling import Ruling


@dataclass(frozen=True, kw_only=True)
class BatchOptions:
    """When a batch is full. Which limits bind is said by each origin (`wherry kinds`)."""

    rows: int | None = 100_000
    bytes: str | None = field(default="1GiB", metadata={"like": "256MiB"})
    files: int | None = 1_000
    wait: str = field(default="0s", metadata={"like": "10s"})
    """With `--follow`: how long a batch that is not full waits for more, from its first row."""
    target: str = field(default="0s", metadata={"like": "10s"})
    """How long a batch should take: batches begin small and grow or shrink within the limits; 0s is as large as they
    allow."""


@dataclass(frozen=True, kw_only=True)
class RetryOptions:
    """What becomes of a batch that meets an error which passes by itself."""

    attempts: int = 7
    """How often the same batch is tried again; -1 is for ever, 0 never."""
    wait: str = field(default="1s", metadata={"like": "10s"})
    """How long the first wait is; each later one is twice as long."""
    most: str = field(default="5m", metadata={"like": "1m"})
    """How long a wait is at most."""
    within: str = field(default="1h", metadata={"like": "1d"})
    """After how long since the first error nothing is tried any more."""
    also: Sequence[str] = ()
    """Words in an error that mean that it passes by itself, beside those that are known."""


@dataclass(frozen=True, kw_only=True)
class RunOptions:
    """How batches are carried."""

    runners: int | None = None
    """How many batches are worked on at a time; default: the lesser of lanes and cores."""
    max_in_flight: int | None = None
    """How many batches may be planned and not committed; default: the lanes."""
    batch: BatchOptions = BatchOptions()
    retry: RetryOptions = RetryOptions()
    drain: str = field(default="0s", metadata={"like": "5m"})
    """How long a stop lets what is in flight finish before it cancels it; 0s is for ever."""
    poll: str = field(default="1s", metadata={"like": "10s"})
    """With `--follow`: how often to look for more; less often where looking takes long."""
    idle: str = field(default="0s", metadata={"like": "60s"})
    """With `--follow`: after how long without a batch stages and destinations see an empty one; 0s is never."""
    ownership: Literal["on", "off"] = "on"
    """Whether a run keeps others away by a lease; off where a scheduler surely never starts two."""
    assignment: Literal["single", "round_robin", "local_only"] = "single"
    """Whether one run has all lanes, or all runs of the same definition share them; then those of a run that is gone
    are dealt out to the others, or, with `local_only`, stay with it until `--take-over`."""
    lease: str = field(default="60s", metadata={"like": "30s"})
    """After how long without a word from a run on another host its pipeline may be taken over."""
    time_zone: str = "UTC"
    history: str = field(default="90d", metadata={"like": "30d"})
    """How long a run stays in the run history; 0s: there is none."""
    snapshot: int = 20
    """How many rows of the batch that failed a run are kept beside the error, at most 20; 0: none."""


@dataclass(frozen=True, kw_only=True)
class ScheduleOptions:
    """When `wherry schedule` runs it: by one of `cron`, `every` and `after`."""

    cron: str | None = field(default=None, metadata={"like": '"30 2 * * *"'})
    """As in crontab: minute, hour, day of month, month, weekday; or `@daily` and its like."""
    every: str | None = field(default=None, metadata={"like": "5m"})
    """Always after the same time, counted from the beginning of 1970 in UTC."""
    after: str | None = field(default=None, metadata={"like": "orders"})
    """The name of a pipeline of the same directory, after each run of which that succeeded."""
    time_zone: str = "UTC"
    """In which `cron` speaks of time."""
    on_overlap: Literal["skip", "queue"] = "skip"
    """What becomes of a run that is due while the one before it has not ended."""
    catch_up: Literal["none", "once", "all"] = "once"
    """What becomes of the runs that were due while nothing was scheduled here, or it was paused; of many, `all` is the
    last thousand."""
    jitter: str = field(default="0s", metadata={"like": "30s"})
    """Up to how much later each run begins, so that not all begin at once."""


@dataclass(frozen=True, kw_only=True)
class SparkOptions:
    """For a session that Wherry starts itself; a session that is there already is used as it is."""

    conf: Mapping[str, str] = field(default_factory=dict)
    packages: Sequence[str] = ()


@dataclass(frozen=True, kw_only=True)
class SchemaState:
    """The state as tables of a catalog's schema: `<name>_ledger`, `<name>_dlq`."""

    schema: str


@dataclass(frozen=True, kw_only=True)
class Pipeline:
    """What is carried from where through what to where. The same whether it was written in YAML or in Python."""

    name: str
    origin: Origin | None = None
    """Where rows come from; this or `origins`."""
    origins: Sequence[Origin] = ()
    """Several origins, each with a name; their rows pass the same stages and go to the same destinations."""
    destinations: Sequence[Destination]
    stages: Sequence[Stage] = ()
    delivery: Literal["after_all", "after_any"] = "after_all"
    dlq: Dlq = Dlq()
    protect: Sequence[str] = ()
    """The columns whose values nobody is shown: they are masked in errors, logs, previews and reports."""
    state: str | SchemaState | None = field(default=None, metadata={"path": True})
    """A directory or a schema; default: `.wherry/<name>` beside the definition."""
    run_options: RunOptions = RunOptions()
    spark: SparkOptions = SparkOptions()
    hooks: Sequence[Hook] = ()
    """Who is told when a run begins, succeeds, fails or is stopped."""
    schedule: ScheduleOptions | None = None
    """When it runs by itself; default: when somebody runs it."""
    secrets: Mapping[str, str] = field(default_factory=dict, repr=False, compare=False, metadata={"hidden": True})
    """The secrets that stand in it, each with the reference that is shown and stored in its place."""

    @property
    def protection(self) -> Protection:
        """What masks the protected columns of a row that is shown."""
        return Protection(tuple(self.protect))

    @property
    def given_origins(self) -> Sequence[Origin]:
        """The one origin, or all of them, as they were given."""
        return self.origins if self.origin is None else (self.origin,)

    @cached_property
    def every_origin(self) -> Sequence[Origin]:
        """The origins as they are read: one of several tables is an origin for each; among several origins its name
        begins with that of the one that it is of."""
        if self.origin is not None:
            return self.origin.each()
        return [each for given in self.origins for each in given.each(f"{given.name}/")]

    @cached_property
    def every_destination(self) -> Sequence[Destination]:
        """The destinations as they are written: one with `{lane}` in its place is a destination for each lane that is
        a table."""
        lanes = [origin.name or "" for origin in self.every_origin if origin.only_lane]
        given = [(each, lanes if each.by_lane else ("",)) for each in self.destinations]
        return [each.of_lane(lane) if lane else each for each, own in given for lane in own]

    def lanes_of(self, origin: Origin) -> Mapping[str, str]:
        """The origin's own names of its lanes, by the names that they have in the pipeline."""
        if origin.only_lane:
            return {origin.name or origin.only_lane: origin.only_lane}
        prefix = "" if self.origin is not None else f"{origin.name}/"
        return {prefix + lane: lane for lane in origin.lane_names()}

    def owns(self, origin: Origin, lane: str) -> bool:
        """Whether a lane of the pipeline is one that this origin has or had."""
        if origin.only_lane:
            return lane == origin.name
        return "/" not in lane if self.origin is not None else lane.startswith(f"{origin.name}/")

    @staticmethod
    def load(
        path: str | Path,
        *,
        variables: Mapping[str, str] | None = None,
        overrides: Mapping[str, str] | None = None,
        secrets: Mapping[str, str] | None = None,
    ) -> Pipeline:
        """The pipeline in a definition file; `overrides` are values by their paths, such as `dlq.window`.

        `variables` are put in for `${NAME}` and `secrets` for `${secret:NAME}`, before the environment's.

        Raises `DefinitionError` with all that is wrong with it.
        """
        from runners.definitions.definition import load

        return load(path, variables=variables, overrides=overrides, secrets=secrets).pipeline

    def run(
        self,
        *,
        check: bool = True,
        follow: bool = False,
        listeners: Sequence[Listener] = (),
        take_over: str = "",
        ruling: Ruling | None = None,
    ) -> Report:
        """Carry what waits; listeners hear every event. Raises `PipelineFailed` unless `check` is false.

        With `follow` it goes on when nothing is left, and carries what comes until it is stopped. Raises `Owned`
        when another run has the pipeline, and `Refusal` when state and definition do not fit. From a run that has said
        nothing for a whole lease it is taken; `take_over` says why one on another host is surely gone, and nobody
        waits. A `ruling` says what no state can know.
        """
        from runners.ruling import Ruling

        return self._carried(check, follow=follow, listeners=listeners, take_over=take_over, ruling=ruling or Ruling())

    def _carried(self, check: bool, **how: Any) -> Report:
        from runners.definitions.definition import of
        from runners.errors import PipelineFailed
        from runners.reports.reports import beside
        from runners.run import Run

        definition = of(self)
        run = Run(pipeline=definition.pipeline, text=definition.text, hash=definition.hash, **how)
        report = run.carry()
        report = replace(report, beside=partial(beside, definition, report))
        if check and report.status == "failed":
            raise PipelineFailed(report)
        return report

    def backfill(
        self,
        backfill: Backfill,
        *,
        check: bool = True,
        listeners: Sequence[Listener] = (),
    ) -> Report:
        """Carry again what was carried before, in lanes of its own; the pipeline's own offsets stay where they are.

        Called again after a crash it goes on where it was. Raises as `run` does.
        """
        return self._carried(check, listeners=listeners, backfill=backfill)

    def replay(self, replay: Replay, *, check: bool = True, listeners: Sequence[Listener] = ()) -> Report:
        """Carry rows of the DLQ again, as they were read, through this definition, to the destinations that do not have
        them; each once, however often this is called. Raises as `run` does.
        """
        return self._carried(check, listeners=listeners, replay=replay)

    def discard_dead_letters(self, choice: Choice | None = None, *, reason: str) -> int:
        """Throw rows of the DLQ away on purpose, by default all that wait; how many there were. They stay in the table,
        and no replay takes them. Raises `Owned` while a replay is under way."""
        from runners.definitions.definition import of
        from runners.dlq.discarding import discard
        from runners.dlq.replay import Choice

        return discard(of(self).pipeline, choice or Choice(), reason=reason)

    def dead_letter_causes(self) -> list[dict[str, JSON]]:
        """Why rows were refused: by cause how many, how many of them wait, the first and the last, and an example."""
        from runners.definitions.definition import of
        from runners.dlq.dlq_summary import summary

        protection = of(self).pipeline.protection
        causes = summary(*self._dead_letters())
        return [
            {**cause, "example": protection.nack({**cause["example"], "stage": cause["stage"]})} for cause in causes
        ]

    def preview(
        self,
        *,
        rows: int | None = None,
        shown: int = 3,
        lane: str | None = None,
        from_beginning: bool = False,
    ) -> Preview:
        """What would become of the next batch of each origin: rows behind every stage, kept, filtered, refused and why.

        Reads what waits and the ledger; nothing is written, and no offset moves. With `rows` only the batch's first so
        many rows pass; of each kind of row `shown` are seen. `lane` chooses one; without it the lane in which the last
        run failed, or else the first that has something. A Python function in front of a stage that changes rows is
        called twice. Raises `StageError` where a stage does not fit the rows that reach it.
        """
        from runners.definitions.definition import of
        from runners.previews.previews import preview

        return preview(of(self), rows=rows, shown=shown, lane=lane, from_beginning=from_beginning)

    def stop(self, reason: str = "asked to stop", *, force: bool = False, within: str = "") -> bool:
        """Ask a run of this pipeline, in whatever process, to stop once the batches in flight are finished.

        It hears at its next entry in the ledger. With `force` it hears within seconds (a state in a catalog: half a
        minute) and leaves what is in flight as it is, for the next run to look at; with `within`, such as "30s", it
        does so when that time is over. Whether anybody was there to ask.
        """
        from origins.quantities import seconds
        from runners.definitions.definition import of
        from runners.place import Place
        from runners.session import obtain
        from runners.stopping import ask_to_stop

        pipeline = of(self).pipeline
        place = Place.of(pipeline)
        spark = obtain(pipeline.spark.conf, pipeline.spark.packages) if place.needs_spark else None
        after = seconds(within) if within else None
        return ask_to_stop(place.ledger(spark), reason, force=force, within=after).owner is not None

    def status(self) -> dict[str, JSON]:
        """How the pipeline is, as its state says."""
        from runners.definitions.definition import of
        from runners.status import status

        definition = of(self)
        return status(definition.pipeline, definition=definition.hash)

    def audit(self) -> Audit:
        """Whether every row that was read can be shown to be where it should be, by the destinations' own history and
        rows and by the DLQ. Changes nothing."""
        from runners.audits.auditing import audit
        from runners.definitions.definition import of

        return audit(of(self).pipeline)

    def repair(self, *, reason: str, accept: Sequence[str] = ()) -> Repaired:
        """Mend what an audit finds and what can be mended without guessing; `accept` are the ids of findings that are
        right as they are. Each is kept in the ledger. Raises `Owned` while the pipeline is run."""
        from runners.audits.repairing import repair
        from runners.definitions.definition import of

        return repair(of(self).pipeline, reason=reason, accept=accept)

    def runs(
        self,
        *,
        status: str = "",
        since: datetime | None = None,
        run: str = "",
        limit: int = 20,
        report: bool = False,
        archived: bool = False,
    ) -> list[dict[str, JSON]]:
        """The newest runs, the newest first; `run` is how the name of one begins. With `report` what each reported,
        with `archived` also those that are older than `run.history`, without what they reported.

        The status of one is `running`, `succeeded`, `failed`, `stopped`, or `killed` where its process ended without a
        word: another run took over, or the ledger shows that it lives no more.

        Raises `Refusal` where no run history is kept.
        """
        from runners.definitions.definition import of
        from runners.errors import Refusal
        from runners.journal import Journal
        from runners.place import Place
        from runners.reports.run_history import MOST_BEGUN, Wanted, fates
        from runners.session import obtain, own

        pipeline = of(self).pipeline
        place = Place.of(pipeline)

        def spark() -> SparkSession:
            return own(obtain(pipeline.spark.conf, pipeline.spark.packages))

        history = place.history(pipeline, spark)
        if history is None:
            raise Refusal(f"{pipeline.name} keeps no run history: run.history is 0s.")
        begun = history.runs(Wanted(status="running", limit=MOST_BEGUN, archived=archived))
        known: Mapping[str, str] = {}
        if begun:  # the ledger is read behind them, so that a run that begins meanwhile is not taken for a dead one
            known = fates(begun, Journal(place.ledger(spark() if place.needs_spark else None)).state, place)
        return history.runs(
            Wanted(status=status, since=since, run=run, limit=limit, report=report, archived=archived, fates=known)
        )

    def lanes(self) -> Lanes:
        """How far every lane is, and what is open; in a notebook a table."""
        from runners.definitions.definition import of
        from runners.lanes import Lanes

        return Lanes.of(of(self).pipeline)

    def dead_letters(self, limit: int | None = None, *, reveal: bool = False) -> list[dict[str, JSON]]:
        """The last `limit` refused rows (default: all), the newest last; with `reveal` protected columns as they are.

        Raises `DestinationError` for a DLQ that cannot be read again.
        """
        from destinations.dead_letters import read_dead_letters
        from runners.definitions.definition import of

        dlq, spark, known = self._dead_letters()
        rows = read_dead_letters(dlq, spark, limit=limit, replayed=known.replayed, discarded=known.discarded)
        return rows if reveal else [of(self).pipeline.protection.nack(row) for row in rows]

    def _dead_letters(self) -> tuple[Destination, Callable[[], SparkSession], Decided]:
        """The DLQ, a Spark to ask it with, and what was decided of its rows."""
        from runners.definitions.definition import of
        from runners.dlq.letters import decided
        from runners.journal import Journal
        from runners.place import Place
        from runners.session import obtain

        pipeline = of(self).pipeline
        place = Place.of(pipeline)

        def spark() -> SparkSession:
            return obtain(pipeline.spark.conf, pipeline.spark.packages)

        journal = Journal(place.ledger(spark() if place.needs_spark else None))
        return pipeline.dlq.destination or place.dlq(), spark, decided(journal)
