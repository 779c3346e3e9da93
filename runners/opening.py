"""Opening a run: what waits, whether everything fits, and what the ledger keeps of it. Nothing is read yet."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timezone
from typing import TYPE_CHECKING

from destinations.destination import Destination, Identity
from origins.batch import JSON, Limits
from origins.origin import Backlog, Origin, Progress
from origins.quantities import seconds, size
from runners.entry import Entry
from runners.journal import Journal
from runners.line import Line, passing
from runners.outcome import DLQ
from runners.pipeline import BatchOptions, Pipeline
from runners.ruling import Ruling
from runners.secrets import without
from runners.source import Feed, Source

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.types import StructType

    from stages.stage import Stage


@dataclass
class Opening:
    """A definition about to be run on a session."""

    pipeline: Pipeline
    run: str
    text: str
    """The definition, whole, as the ledger keeps it."""
    hash: str
    destinations: Mapping[str, Destination]
    dlq: Destination
    ruling: Ruling = Ruling()  # noqa: RUF009  (it is frozen)
    lines: Mapping[str, Line] = field(default_factory=dict)
    """The way of each origin's rows, once it is open."""

    def source(self, journal: Journal, spark: SparkSession) -> Source | None:
        """What this run plans from; None when nothing waits from which a schema could be told.

        Records the definition, the layout, and what each destination is, so that it can be asked later.
        """
        backlogs = {name: surveyed(self.pipeline, each, journal, spark) for name, each in self._origins.items()}
        schemas = self._schemas(journal, spark, backlogs)
        if not schemas:
            return None
        whole = {name: self._origins[name].completed(schema) for name, schema in schemas.items()}
        identities = self._opened(spark, whole)
        body = {
            "pipeline": self.pipeline.name,
            "run": self.run,
            "definition": self.text,
            "hash": self.hash,
            "origins": {
                name: {"lanes": list(self.pipeline.lanes_of(each)), "place": each.place, "schema": schemas.get(name)}
                for name, each in self._origins.items()
            },
            "destinations": {
                each: {
                    **self._named(each).describe(),
                    "id": identity.id,
                    "version": self._asked_from(each, identity, journal),
                }
                for each, identity in identities.items()
            },
        }
        journal.record(Entry(kind="open", body=without(self.pipeline.secrets, body)))
        batch = self.pipeline.run_options.batch
        return Source(
            pipeline=self.pipeline.name,
            run=self.run,
            definition=self.hash,
            destinations=tuple(self.destinations),
            feeds=[self._feed(spark, name, schema, backlogs[name]) for name, schema in whole.items()],
            limits=limits_of(batch),
            wait=seconds(batch.wait),
            idle=seconds(self.pipeline.run_options.idle),
            first_alone=any(each.replaces for each in self.destinations.values()),
        )

    def again(
        self, source: Source | None, offsets: Mapping[str, JSON], journal: Journal, spark: SparkSession
    ) -> Source | None:
        """What waits now, behind these offsets; an origin that had no schema yet is opened once it has one."""
        feeds = {feed.origin: feed for feed in source.feeds} if source else {}
        unopened = {
            name: surveyed(self.pipeline, origin, journal, spark)
            for name, origin in self._origins.items()
            if name not in feeds
        }
        if source is None or self._schemas(journal, spark, unopened):
            return self.source(journal, spark)

        def now(feed: Feed) -> Feed:
            own = {feed.lanes[lane]: offsets[lane] for lane in feed.lanes}
            return replace(feed, backlog=feed.backlog.again(spark, own))

        return replace(source, feeds=[now(feed) for feed in source.feeds])

    @property
    def _origins(self) -> Mapping[str, Origin]:
        return {origin.name or "origin": origin for origin in self.pipeline.every_origin}

    def _schemas(self, journal: Journal, spark: SparkSession, backlogs: Mapping[str, Backlog]) -> Mapping[str, str]:
        """The schema of each origin that has one: pinned by an earlier run, given, or told from what waits."""
        found = {}
        for name, backlog in backlogs.items():
            pinned = None if name in self.ruling.fresh else pinned_schema(self._origins[name], journal)
            schema = pinned or self._origins[name].columns(spark, backlog)
            if schema is not None:
                found[name] = schema
        return found

    def _feed(self, spark: SparkSession, name: str, schema: str, backlog: Backlog) -> Feed:
        line, origin = self.lines[name], self._origins[name]
        return Feed(
            origin=name,
            lanes=self.pipeline.lanes_of(origin),
            schema=schema,
            backlog=backlog,
            straight=not any(prepared_because(self.pipeline, origin, line)),
            foresees=origin.foresees and line.describable,
            shares=all(destination.takes_several for destination in self.destinations.values()),
            pins=lambda: line.pins(spark),
        )

    def _opened(self, spark: SparkSession, schemas: Mapping[str, str]) -> Mapping[str, Identity]:
        """What each destination is. Tables are made, and every schema that will arrive there is checked."""
        from destinations.dead_letters import schema as dead_letter_schema

        identities, lines = {}, {}
        for name, schema in schemas.items():
            line = line_of(self.pipeline, self._origins[name], self.destinations)
            leaving = analysed(spark, schema, line)
            demands: dict[str, list[Stage]] = {}
            for each, destination in self.destinations.items():
                identities[each] = destination.open(spark, leaving[each])
                demands[each] = list(destination.demands(spark, leaving[each]))
            lines[name] = line_of(self.pipeline, self._origins[name], self.destinations, demands)
            if any(demands.values()):
                analysed(spark, schema, lines[name])
        self.lines = lines
        return {**identities, DLQ: self.dlq.open(spark, dead_letter_schema())}

    def _asked_from(self, name: str, identity: Identity, journal: Journal) -> int:
        """From which version on a destination is asked. While a batch is open it stays the one from before that batch
        was written."""
        before = journal.state.identities.get(name)
        if before is None or before.id != identity.id or not journal.state.open_plans:
            return identity.version
        return min(before.version, identity.version)

    def _named(self, name: str) -> Destination:
        return self.dlq if name == DLQ else self.destinations[name]


def limits_of(options: BatchOptions) -> Limits:
    """When a batch is full."""
    return Limits(rows=options.rows, bytes=size(options.bytes) if options.bytes else None, files=options.files)


def line_of(
    pipeline: Pipeline,
    origin: Origin,
    destinations: Mapping[str, Destination],
    demands: Mapping[str, list[Stage]] | None = None,
) -> Line:
    """The stages that an origin's rows pass: its own, the pipeline's, each destination's."""
    return Line.of([*origin.stages, *pipeline.stages], destinations, demands)


def surveyed(pipeline: Pipeline, origin: Origin, journal: Journal, spark: SparkSession) -> Backlog:
    """What waits at the origin beyond what the ledger says was carried."""
    settled = journal.settled() if origin.keeps_parts else ()
    parts = [part for batch in settled if pipeline.owns(origin, batch.lane) for part in batch.span["parts"]]
    lanes = journal.state.lanes
    offsets = {own: lanes[lane].offset for lane, own in pipeline.lanes_of(origin).items() if lane in lanes}
    return origin.survey(spark, Progress(offsets=offsets, parts=parts))


def pinned_schema(origin: Origin, journal: Journal) -> str | None:
    """The schema that was told from what waited at an earlier run; None for an origin that is given one."""
    opened: Mapping[str, JSON] = journal.state.opened.get("origins", {})
    return opened.get(origin.name or "origin", {}).get("schema") if origin.infers else None


def prepared_because(pipeline: Pipeline, origin: Origin, line: Line) -> Iterator[str]:
    """Why every batch is decided and written under the state before it is delivered; nothing if a clean one is not."""
    if len(pipeline.destinations) > 1:
        yield f"there are {len(pipeline.destinations)} destinations"
    for destination in pipeline.destinations:
        if not destination.remembers and len(pipeline.destinations) == 1:
            yield f"{destination.name} cannot be asked whether it has a batch"
    if not origin.repeatable:
        yield f"{origin.name} may give other rows when a batch is read again"
    for step in line.steps:
        if not step.stage.repeatable:
            yield f"{step.name} may answer differently when it is run again"
        if step.stage.needs_places:
            yield f"{step.name} asks in which order rows were read"


def analysed(spark: SparkSession, schema: str, line: Line) -> Mapping[str, StructType]:
    """The schema in which rows reach each destination. Raises `StageError` that names the stage; reads nothing."""
    from pyspark.sql.types import StructType

    from stages.rows import Straight

    arriving = StructType.fromJson(json.loads(schema))
    empty = spark.createDataFrame([], arriving)
    rows = Straight.begin(empty, tuple(arriving.names), _SAMPLE, lambda frame, _: frame)
    rows = passing(rows, line.common, {}, checked=True)
    return {name: passing(rows, steps, {}, checked=True).schema for name, steps in line.branches.items()}


_SAMPLE: Mapping[str, str | int | datetime] = {
    "origin": "",
    "lane": "",
    "number": 0,
    "run": "",
    "batch_time": datetime(2000, 1, 1, tzinfo=timezone.utc),
}
