"""Opening a run: what waits, whether everything fits, and what the ledger keeps of it. Nothing is read yet."""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timezone
from typing import TYPE_CHECKING

from destinations.destination import Destination, Identity
from destinations.dlq import DLQ
from origins.batch import JSON, Limits
from origins.given_path import list_given_paths
from origins.origin import Backlog, Origin, Progress
from origins.quantities import seconds, size
from origins.schema import ddl
from runners.definitions.secrets import hide_secrets
from runners.journal import Journal
from runners.layout import check_newest, mark_salts
from runners.ledgers.entry import Entry
from runners.line import Line, passing
from runners.mixing import Split, check_mixing, keys_twice, splits_of
from runners.pipeline import BatchOptions, Pipeline
from runners.protected import check_protected
from runners.ruling import Ruling
from runners.source import Feed, Source
from stages.door import answers_again

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
    follow: bool = False
    """Whether the run goes on when nothing is left."""
    split: Split | None = None
    """Why rows come in several batches whatever the origins say, if they do."""
    only: str | None = None
    """The one destination that gets the rows; by default all."""
    lines: Mapping[str, Line] = field(default_factory=dict)
    """The way of each origin's rows, once it is open."""

    def source(self, journal: Journal, spark: SparkSession) -> Source | None:
        """What this run plans from; None when nothing waits from which a schema could be told.

        Records the definition, the layout, and what each destination is, so that it can be asked later.
        """
        backlogs = {name: surveyed(self.pipeline, each, journal, spark) for name, each in self._origins.items()}
        schemas = self._schemas(journal, spark, backlogs)
        return self._source(journal, spark, backlogs, schemas) if schemas else None

    def _source(
        self, journal: Journal, spark: SparkSession, backlogs: Mapping[str, Backlog], schemas: Mapping[str, str]
    ) -> Source:
        whole = {name: self._origins[name].completed(schema) for name, schema in schemas.items()}
        news = {name: list(self._news(name, schema, journal)) for name, schema in schemas.items()}
        if len(whole) == len(self._origins):
            lines = {name: line_of(self.pipeline, self._origins[name], self.destinations) for name in whole}
            check_protected(self.pipeline.protect, spark, lines, whole)
        for name, sentences in self._mixing(spark, whole).items():
            news[name] += sentences
        self._expect(journal)
        identities = self._opened(spark, whole)
        check_newest(journal, self.pipeline.name, self.destinations, self.ruling)
        if journal.shares:
            journal.refresh()  # behind the look at the tables, so that no open batch of others is older than that
        body = {
            "pipeline": self.pipeline.name,
            "run": self.run,
            "definition": self.text,
            "hash": self.hash,
            "salts": mark_salts(self.pipeline),
            "state": next(iter(list_given_paths([self.pipeline.state])), None)
            if isinstance(self.pipeline.state, str)
            else None,
            "origins": {
                name: {
                    "lanes": list(self.pipeline.lanes_of(each)),
                    "place": hide_secrets(each).place,
                    "given": list(each.given),
                    "schema": schemas.get(name),
                }
                for name, each in self._origins.items()
            },
            "destinations": {
                each: {
                    **hide_secrets(self._named(each)).describe(),
                    "id": identity.id,
                    "version": self._asked_from(each, identity, journal),
                }
                for each, identity in identities.items()
            },
        }
        journal.record(Entry(kind="open", body=body))
        batch = self.pipeline.run_options.batch
        return Source(
            pipeline=self.pipeline.name,
            run=self.run,
            definition=self.hash,
            destinations=tuple(self.destinations),
            feeds=[
                replace(self._feed(spark, name, schema, backlogs[name]), news=news[name])
                for name, schema in whole.items()
            ],
            limits=limits_of(batch),
            wait=seconds(batch.wait),
            idle=seconds(self.pipeline.run_options.idle),
            first_alone=any(each.replaces for each in self.destinations.values()),
        )

    def again(
        self, source: Source | None, offsets: Mapping[str, JSON], journal: Journal, spark: SparkSession
    ) -> Source | None:
        """What waits now, behind these offsets; an origin that had no schema yet is opened once it has one."""
        if source is None:
            return self.source(journal, spark)

        def now(feed: Feed) -> Feed:
            own = {feed.lanes[lane]: offsets[lane] for lane in feed.lanes}
            return replace(feed, backlog=feed.backlog.again(spark, own))

        source = replace(source, feeds=[now(feed) for feed in source.feeds])
        backlogs = {feed.origin: feed.backlog for feed in source.feeds}
        unopened = [name for name in self._origins if name not in backlogs]
        if not unopened and not any(self._origins[name].evolves for name in backlogs):
            return source
        backlogs |= {name: surveyed(self.pipeline, self._origins[name], journal, spark) for name in unopened}
        schemas = self._schemas(journal, spark, backlogs)
        whole = {name: self._origins[name].completed(schema) for name, schema in schemas.items()}
        if whole == {feed.origin: feed.schema for feed in source.feeds}:
            return source
        return self._source(journal, spark, backlogs, schemas)

    def anew(self, source: Source, origins: Collection[str], journal: Journal, spark: SparkSession) -> Source:
        """The same with what waits at these origins now by the ledger's word, for lanes in which another run was
        before. Nothing of them may be in flight here."""

        def now(feed: Feed) -> Feed:
            if feed.origin not in origins:
                return feed
            return replace(feed, backlog=surveyed(self.pipeline, self._origins[feed.origin], journal, spark))

        return replace(source, feeds=[now(feed) for feed in source.feeds])

    @property
    def _origins(self) -> Mapping[str, Origin]:
        return {origin.name or "origin": origin for origin in self.pipeline.every_origin}

    def _mixing(self, spark: SparkSession, schemas: Mapping[str, str]) -> Mapping[str, Sequence[str]]:
        """What a person should know of stages that see one batch at a time. Raises `SplitAggregate`."""
        lines = {name: line_of(self.pipeline, self._origins[name], self.destinations) for name in schemas}
        told = check_mixing(self.pipeline, spark, lines, schemas, follow=self.follow, again=self.split, only=self.only)

        def twice(name: str) -> Iterator[str]:
            splits = splits_of(self.pipeline, self._origins[name], lines[name], follow=self.follow, again=self.split)
            return keys_twice(self.pipeline, lines[name], splits)

        return {name: [*sentences, *twice(name)] for name, sentences in told.items()}

    def _schemas(self, journal: Journal, spark: SparkSession, backlogs: Mapping[str, Backlog]) -> Mapping[str, str]:
        """The schema of each origin that has one: pinned by an earlier run, given, or told from what waits."""
        found = {}
        for name, backlog in backlogs.items():
            known = None if name in self.ruling.fresh else recorded_schema(self._origins[name], journal)
            schema = schema_of(self._origins[name], known, spark, backlog)
            if schema is not None:
                found[name] = schema
        return found

    def _news(self, name: str, schema: str, journal: Journal) -> Iterator[str]:
        """What a person is told of a schema that nobody has written: once, and again when it has changed."""
        from pyspark.sql.types import StructType

        origin, before = self._origins[name], recorded_schema(self._origins[name], journal)
        if schema == before or not (origin.infers or (origin.evolves and before)):
            return
        said = "its columns have changed" if before else "its columns were found out, and stay as they are"
        yield f'{said}; in the definition they are  schema: "{ddl(StructType.fromJson(json.loads(schema)))}"'

    def _feed(self, spark: SparkSession, name: str, schema: str, backlog: Backlog) -> Feed:
        line, origin = self.lines[name], self._origins[name]
        own = tuple(line.branches)
        return Feed(
            origin=name,
            lanes=self.pipeline.lanes_of(origin),
            schema=schema,
            backlog=backlog,
            straight=not any(prepared_because(self.pipeline, origin, line)),
            foresees=origin.foresees and line.describable,
            shares=all(self.destinations[each].takes_several for each in own),
            destinations=(lambda span: own) if len(own) < len(self.destinations) else None,
            pins=lambda: line.pins(spark),
            whole=origin.batch == "whole",
        )

    def _expect(self, journal: Journal) -> None:
        """Tell every destination what it was, unless a person said that it is another one now."""
        known = journal.state.identities
        for name in (*self.destinations, DLQ):
            before = known.get(name) or known.get(self._named(name).was or "")
            ruled = name in (*self.ruling.fresh, *self.ruling.moved)
            self._named(name).expects(Identity(place="") if before is None or ruled else before)

    def _opened(self, spark: SparkSession, schemas: Mapping[str, str]) -> Mapping[str, Identity]:
        """What each destination is. Tables are made, and every schema that will arrive there is checked."""
        from destinations.dead_letters import opened
        from destinations.dead_letters import schema as dead_letter_schema

        identities, lines = {}, {}
        for name, schema in schemas.items():
            line = line_of(self.pipeline, self._origins[name], self.destinations)
            leaving = analysed(spark, schema, line)
            demands: dict[str, list[Stage]] = {}
            for each in line.branches:
                destination = self.destinations[each]
                if self._origins[name].evolves:
                    destination.grow(spark, leaving[each])
                identities[each] = destination.open(spark, leaving[each])
                demands[each] = list(destination.demands(spark, leaving[each]))
            lines[name] = line_of(self.pipeline, self._origins[name], self.destinations, demands)
            if any(demands.values()):
                analysed(spark, schema, lines[name])
        self.lines = lines
        ours = self.pipeline.dlq.destination is None
        return {**identities, DLQ: opened(self.dlq, spark) if ours else self.dlq.open(spark, dead_letter_schema())}

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
    lanes = pipeline.lanes_of(origin)
    own = {name: each for name, each in destinations.items() if each.takes(lanes)}
    return Line.of([*origin.stages, *pipeline.stages], own, demands)


def surveyed(pipeline: Pipeline, origin: Origin, journal: Journal, spark: SparkSession) -> Backlog:
    """What waits at the origin beyond what the ledger says was carried."""
    settled = journal.settled() if origin.keeps_parts else ()
    parts = [part for batch in settled if pipeline.owns(origin, batch.lane) for part in batch.span["parts"]]
    lanes = journal.state.lanes
    offsets = {own: lanes[lane].offset for lane, own in pipeline.lanes_of(origin).items() if lane in lanes}
    return origin.survey(spark, Progress(offsets=offsets, parts=parts))


def standing(opening: Opening, journal: Journal, spark: SparkSession) -> Collection[str]:
    """The origins that are read whole, and would give the same rows to the same tables once more: nothing is new, the
    definition is the one that carried them, and every stage answers again as it did."""
    pipeline, state = opening.pipeline, journal.state
    found: list[str] = []
    if opening.ruling or state.opened.get("hash") != opening.hash or _OF_A_RUN.search(opening.text):
        return found
    for origin in pipeline.every_origin:
        offsets = {own: state.lane(lane).offset for lane, own in pipeline.lanes_of(origin).items()}
        if origin.read != "whole" or None in offsets.values() or not origin.stands(spark, offsets):
            continue
        line = line_of(pipeline, origin, opening.destinations)
        known = {name: state.identities.get(name) for name in line.branches}
        are_there = all(
            each is not None and each.id and opening.destinations[name].open(spark, None).id == each.id
            for name, each in known.items()
        )
        if are_there and line.answers_again:
            found.append(origin.name or "origin")
    return found


def recorded_schema(origin: Origin, journal: Journal) -> str | None:
    """The schema that an earlier run read the origin with, as the ledger has it."""
    opened: Mapping[str, JSON] = journal.state.opened.get("origins", {})
    found: str | None = opened.get(origin.name or "origin", {}).get("schema")
    return found


def schema_of(origin: Origin, recorded: str | None, spark: SparkSession, backlog: Backlog) -> str | None:
    """The schema to read with: what was told once and recorded stays, what is given holds, and either may evolve."""
    schema = recorded if origin.infers and recorded else origin.columns(spark, backlog)
    return schema and origin.evolved(spark, backlog, schema, recorded)


def prepared_because(pipeline: Pipeline, origin: Origin, line: Line) -> Iterator[str]:
    """Why every batch is decided and written under the state before it is delivered; nothing if a clean one is not."""
    destinations = [each for each in pipeline.every_destination if each.takes(pipeline.lanes_of(origin))]
    if len(destinations) > 1:
        yield f"there are {len(destinations)} destinations"
    for destination in destinations:
        if not destination.remembers and len(destinations) == 1:
            yield f"{destination.name} cannot be asked whether it has a batch"
    if not origin.repeatable:
        yield f"{origin.name} may give other rows when a batch is read again"
    for step in line.steps:
        if not answers_again(step.stage):
            yield f"{step.name} may answer differently when it is run again"
        if step.stage.prepares:
            yield f"{step.name} {step.stage.prepares}"
        if step.stage.needs_places:
            yield f"{step.name} asks in which order rows were read"


def analysed(spark: SparkSession, schema: str, line: Line) -> Mapping[str, StructType]:
    """The schema in which rows reach each destination. Raises `StageError` that names the stage; reads nothing."""
    from pyspark.sql.types import StructType

    from stages.rows import Straight

    arriving = StructType.fromJson(json.loads(schema))
    if not line.steps:
        return dict.fromkeys(line.branches, arriving)
    empty = spark.createDataFrame([], arriving)
    rows = Straight.begin(empty, tuple(arriving.names), SAMPLE, lambda frame, _: frame)
    rows = passing(rows, line.common, {}, checked=True)
    return {name: passing(rows, steps, {}, checked=True).schema for name, steps in line.branches.items()}


_OF_A_RUN = re.compile(r":(?:batch_time|run|number)\b")
"""What expressions ask that differs from run to run. It may be found where none asks: then all is read again."""
SAMPLE: Mapping[str, str | int | datetime] = {
    "origin": "",
    "lane": "",
    "number": 0,
    "run": "",
    "batch_time": datetime(2000, 1, 1, tzinfo=timezone.utc),
}
"""What expressions may ask of their batch, where there is none yet."""
