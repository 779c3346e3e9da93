"""Opens a run: finds waiting rows, checks that everything fits and is protected, and records it in the ledger.

It processes no row yet.
"""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from destinations.capabilities import GrowsColumns, SharesPlace, list_demands
from destinations.dead_letters import make_dlq_schema, make_filtered_schema
from destinations.destination import Destination, DestinationError, Identity, OpenDestination
from destinations.dlq import DLQ, FALLBACK, FILTERED
from origins.batch import JSON, Backlog, Limits
from origins.capabilities import EvolvesSchema, FetchesAhead, KeepsParts, KnowsPlace, SeesOtherColumns, complete_schema
from origins.codec import encode
from origins.lazy import SparkSession, T
from origins.names import list_given_paths
from origins.origin import Origin, Progress
from origins.quantities import parse_seconds, parse_size
from origins.schema import format_ddl
from runners.definitions.document import suggest_nearest
from runners.engine.batch_planner import BatchPlanner, OriginFeed
from runners.model.entry import DestinationBody, Entry, IdentityBody, OpenBody, OriginBody, Settled
from runners.model.errors import Refusal
from runners.model.masking import hide_secrets
from runners.model.pipeline_state import BACKFILL
from runners.model.run_report import Suites
from runners.model.spec import BatchOptions, PipelineSpec
from runners.model.text import join_some
from runners.running.aggregates import check_mixing, list_splits, warn_of_deduplicates
from runners.running.compatibility import OperatorOverrides, check_newest, mark_salts
from runners.running.renamed import digest_place
from runners.running.work import WaitingBatches, Work
from runners.spark.session import start_ahead
from runners.state.journal import Journal
from runners.ways.choose import GROUPED, STRAIGHT
from runners.ways.stage_chain import PlacedStage, StageChain, apply_chain, make_empty_rows, name_destinations
from runners.ways.way import Candidate
from stages.capabilities import StatesRules
from stages.rows import Rows
from stages.stage import Stage

_FACTS = ("kind", "place", "given")
"""What the ledger stores of what a destination says of itself."""


@dataclass
class RunOpening:
    """A definition that is about to run on a session."""

    pipeline: PipelineSpec
    run: str
    text: str
    """The whole definition, as the ledger keeps it."""
    hash: str
    destinations: Mapping[str, Destination]
    ends: Mapping[str, Destination]
    """The destinations by name, with the DLQ, its fallback, and the table for rows that stages filter."""
    opened: Mapping[str, OpenDestination]
    """The same, as this run has them open."""
    ruling: OperatorOverrides = field(default_factory=OperatorOverrides)
    follow: bool = False
    """Whether the run continues when nothing is left."""
    work: Work = field(default_factory=WaitingBatches)
    """What the run does with the rows."""
    chains: Mapping[str, StageChain] = field(default_factory=dict)
    """The stage chain of each origin, after the origin was opened."""
    notices: Sequence[tuple[str, str]] = ()
    """Notices about what the run found at the origins, each with its origin."""
    left_out: Mapping[str, Sequence[str]] = field(default_factory=dict)
    """The columns of each origin that the schema leaves out, as far as the run has a notice about them."""

    def open_source(self, journal: Journal, spark: SparkSession) -> BatchPlanner | None:
        """Return the planner of this run, or None if it has nothing to plan.

        That is so while no schema is known. It is also so if no row waits and nothing has changed since the last run.
        Wherry then analyses no stage, because that needs a JVM.

        Records the definition, the layout and the identity of each destination. Wherry needs them to ask the
        destinations later.
        """
        backlogs = {name: survey_origin(self.pipeline, each, journal, spark) for name, each in self._origins.items()}
        self.notices = [(name, notice) for name, backlog in backlogs.items() for notice in backlog.notices]
        if self._is_idle(journal, spark, backlogs):
            return None
        if any(chain.steps for chain in make_chains(self.pipeline, self.destinations).values()):
            start_ahead(spark)
        schemas = self._find_schemas(journal, spark, backlogs)
        return self._make_source(journal, spark, backlogs, schemas) if schemas else None

    def _is_idle(self, journal: Journal, spark: SparkSession, backlogs: Mapping[str, Backlog]) -> bool:
        """Whether no row waits and nothing has changed since the last run."""
        state = journal.state
        if self.ruling or not self.work.takes_waiting or journal.is_shared or state.open_plans:
            return False
        if state.opened.hash != self.hash:
            return False
        for name, backlog in backlogs.items():
            lanes = self.pipeline.lanes_of(self._origins[name])
            if find_recorded_schema(self._origins[name], journal) is None or any(
                backlog.take(own, state.get_lane(lane).offset, _ONE_FILE) for lane, own in lanes.items()
            ):
                return False
        self._expect(journal)
        for name in self.destinations:
            known = state.identities.get(name)
            if known is None or self.ensure_place(name, spark, None).id != known.id:
                return False
        check_newest(journal, self.pipeline.name, self.destinations, self.opened, self.ruling)
        return True

    def _make_source(
        self, journal: Journal, spark: SparkSession, backlogs: Mapping[str, Backlog], schemas: Mapping[str, str]
    ) -> BatchPlanner:
        whole = {name: complete_schema(self._origins[name], schema) for name, schema in schemas.items()}
        news = {name: list(self._describe_schema(name, schema, journal)) for name, schema in schemas.items()}
        if len(whole) == len(self._origins):
            check_protected(self.pipeline.protect, spark, make_chains(self.pipeline, self.destinations), whole)
        for name, sentences in self._check_mixing(spark, whole).items():
            news[name] += sentences
        for name, columns in self._list_left_out(backlogs, whole).items():
            if columns != self.left_out.get(name, ()):
                origin = self._origins[name]
                assert isinstance(origin, SeesOtherColumns)
                add = f"Add them to it{origin.decides_by and f', or decide with {origin.decides_by}'}"
                news[name].append(f"the rows have columns that the schema leaves out: {join_some(columns)}. {add}")
                self.left_out = {**self.left_out, name: columns}
        self._expect(journal)
        identities = self._open_destinations(spark, whole)
        check_newest(journal, self.pipeline.name, self.destinations, self.opened, self.ruling)
        if journal.is_shared:
            journal.refresh()  # after the look at the tables: any batch that is still unknown began later
        given = list_given_paths([self.pipeline.state]) if isinstance(self.pipeline.state, str) else ()
        body = OpenBody(
            pipeline=self.pipeline.name,
            run=self.run,
            definition=self.text,
            hash=self.hash,
            salts=mark_salts(self.pipeline),
            state=next(iter(given), None),
            origins={
                name: OriginBody(
                    lanes=tuple(self.pipeline.lanes_of(each)),
                    place=hide_secrets(each).place,
                    given=each.given_paths,
                    schema=schemas.get(name),
                    left_out=self.left_out.get(name, ()),
                )
                for name, each in self._origins.items()
            },
            destinations={
                each: replace(
                    self._describe_identity(journal.state.identities.get(each), identity, journal),
                    **{name: fact for name, fact in hide_secrets(self.ends[each]).describe().items() if name in _FACTS},
                )
                for each, identity in identities.items()
            },
        )
        journal.record(Entry(kind="open", body=encode(body)))
        batch = self.pipeline.run_options.batch
        return BatchPlanner(
            pipeline=self.pipeline.name,
            run=self.run,
            definition=self.hash,
            destinations=tuple(self.destinations),
            feeds=[
                replace(self._make_feed(spark, name, schema, backlogs[name]), news=news[name])
                for name, schema in whole.items()
            ],
            limits=make_limits(batch),
            wait=parse_seconds(batch.wait),
            idle=parse_seconds(self.pipeline.run_options.idle),
            first_alone=any(each.replaces for each in self.destinations.values()),
            job=self.pipeline.job,
        )

    def refresh_source(
        self, source: BatchPlanner | None, offsets: Mapping[str, JSON], journal: Journal, spark: SparkSession
    ) -> BatchPlanner | None:
        """Return the planner with the rows that wait now, after these offsets.

        Opens an origin that had no schema once it has a schema.
        """
        if source is None:
            return self.open_source(journal, spark)

        def now(feed: OriginFeed) -> OriginFeed:
            own = {feed.lanes[lane]: offsets[lane] for lane in feed.lanes}
            return replace(feed, backlog=feed.backlog.again(spark, own))

        source = replace(source, feeds=[now(feed) for feed in source.feeds])
        backlogs = {feed.origin: feed.backlog for feed in source.feeds}
        unopened = [name for name in self._origins if name not in backlogs]
        known = {feed.origin: feed.schema for feed in source.feeds}
        is_told = all(
            columns == self.left_out.get(name) for name, columns in self._list_left_out(backlogs, known).items()
        )
        if is_told and not unopened and not any(_evolves(self._origins[name]) for name in backlogs):
            return source
        backlogs |= {name: survey_origin(self.pipeline, self._origins[name], journal, spark) for name in unopened}
        schemas = self._find_schemas(journal, spark, backlogs)
        whole = {name: complete_schema(self._origins[name], schema) for name, schema in schemas.items()}
        if is_told and whole == known:
            return source
        return self._make_source(journal, spark, backlogs, schemas)

    def resurvey_origins(
        self, source: BatchPlanner, origins: Collection[str], journal: Journal, spark: SparkSession
    ) -> BatchPlanner:
        """Return the planner with the rows that wait now at these origins, according to the ledger.

        It is for lanes that another run had before. This run may have no batch of these origins in flight.
        """
        backlogs = {name: survey_origin(self.pipeline, self._origins[name], journal, spark) for name in origins}
        feeds = [replace(feed, backlog=backlogs.get(feed.origin, feed.backlog)) for feed in source.feeds]
        return replace(source, feeds=feeds)

    @property
    def _origins(self) -> Mapping[str, Origin]:
        return self.pipeline.origins_by_name

    def _check_mixing(self, spark: SparkSession, schemas: Mapping[str, str]) -> Mapping[str, Sequence[str]]:
        """Return warnings about stages that see one batch at a time, by origin. Raises `SplitAggregate`."""
        chains, again = make_chains(self.pipeline, self.destinations), self.work.split
        notices = check_mixing(
            self.pipeline, spark, chains, schemas, follow=self.follow, again=again, only=self.work.only
        )

        def twice(name: str) -> Iterator[str]:
            splits = list_splits(self.pipeline, self._origins[name], chains[name], follow=self.follow, again=again)
            return warn_of_deduplicates(self.pipeline, chains[name], splits)

        return {name: [*sentences, *twice(name)] for name, sentences in notices.items()}

    def _find_schemas(
        self, journal: Journal, spark: SparkSession, backlogs: Mapping[str, Backlog]
    ) -> Mapping[str, str]:
        """Return the schema of each origin that has one: recorded earlier, given, or inferred from waiting rows."""
        found = {}
        for name, backlog in backlogs.items():
            known = None if name in self.ruling.fresh else find_recorded_schema(self._origins[name], journal)
            schema = find_schema(self._origins[name], known, spark, backlog)
            if schema is not None:
                found[name] = schema
        return found

    def _list_left_out(
        self, backlogs: Mapping[str, Backlog], schemas: Mapping[str, str]
    ) -> Mapping[str, Sequence[str]]:
        """Return the columns that each origin's schema leaves out, those that the run knows first."""
        found = {}
        for name, schema in schemas.items():
            origin, known = self._origins[name], self.left_out.get(name, ())
            if isinstance(origin, SeesOtherColumns):
                new = [each for each in origin.list_left_out(backlogs[name], schema) if each not in known]
                if known or new:
                    found[name] = [*known, *new]
        return found

    def _describe_schema(self, name: str, schema: str, journal: Journal) -> Iterator[str]:
        """Yield a notice about an inferred schema, once and after each change."""
        origin, before = self._origins[name], find_recorded_schema(self._origins[name], journal)
        if schema == before or not (origin.infers or (_evolves(origin) and before)):
            return
        message = "changed schema" if before else "inferred schema, now fixed"
        yield f'{message}. To declare it:  schema: "{format_ddl(T.StructType.fromJson(json.loads(schema)))}"'

    def _make_feed(self, spark: SparkSession, name: str, schema: str, backlog: Backlog) -> OriginFeed:
        chain, origin = self.chains[name], self._origins[name]
        own = tuple(chain.branches)
        candidate = make_candidate(self.pipeline, origin, chain, self.destinations)
        return OriginFeed(
            origin=name,
            lanes=self.pipeline.lanes_of(origin),
            schema=schema,
            backlog=backlog,
            reads=digest_place(origin),
            straight=not STRAIGHT.why_not(candidate),
            shares=not GROUPED.why_not(candidate),
            destinations=(lambda span: own) if len(own) < len(self.destinations) else None,
            predictable=isinstance(origin, FetchesAhead) and chain.is_describable,
            pins=lambda: chain.pins(spark),
            whole=origin.batch == "whole",
        )

    def _expect(self, journal: Journal) -> None:
        """Give each destination its recorded identity. It is empty if the run treats the place as moved or fresh."""
        known = journal.state.identities
        for name in [name for name in self.ends if name != FILTERED]:
            before = known.get(name) or known.get(self.ends[name].was or "")
            ruled = name in (*self.ruling.fresh, *self.ruling.moved) or name == self.work.refilled
            destination = self.opened[name]
            destination.expects(Identity(place="") if before is None or ruled else before)
            if journal.is_shared and isinstance(destination, SharesPlace):
                destination.share()

    def _open_destinations(self, spark: SparkSession, schemas: Mapping[str, str]) -> Mapping[str, Identity]:
        """Return the identity of each destination. Makes missing tables and checks each schema that will arrive."""
        identities, chains = {}, {}
        for name, schema in schemas.items():
            chain = make_chain(self.pipeline, self._origins[name], self.destinations)
            leaving = analyse_chain(spark, schema, chain)
            demands: dict[str, list[Stage]] = {}
            for each in chain.branches:
                destination = self.opened[each]
                if _evolves(self._origins[name]) and isinstance(destination, GrowsColumns):
                    destination.grow(spark, leaving[each])
                identities[each] = self.ensure_place(each, spark, leaving[each])
                demands[each] = list(list_demands(destination, spark, leaving[each]))
            chains[name] = make_chain(self.pipeline, self._origins[name], self.destinations, demands)
            if any(demands.values()):
                analyse_chain(spark, schema, chains[name])
        self.chains = chains
        for name in (each for each in (DLQ, FALLBACK) if each in self.ends):
            identities[name] = self.ensure_place(name, spark, make_dlq_schema())
        if self.pipeline.keeps_filtered:
            identities[FILTERED] = self.opened[FILTERED].ensure_place(spark, make_filtered_schema())
        return identities

    def ensure_place(self, name: str, spark: SparkSession, schema: T.StructType | None) -> Identity:
        """Return the identity of a destination, or of the DLQ or its fallback."""
        try:
            return self.opened[name].ensure_place(spark, schema)
        except DestinationError as error:
            if error.is_other_place:
                only = shlex.quote(name)
                again = f'To deliver all old batches again:  wherry backfill FILE --only {only} --again --reason "…"\n'
                error.hint = (
                    "Wherry wrote nothing. Put back what was there.\n"
                    + (again if name in self.destinations else "")
                    + f'To start empty, with new batches only:  wherry run FILE --fresh {only} --reason "…"'
                )
            raise

    def _describe_identity(self, before: Identity | None, identity: Identity, journal: Journal) -> DestinationBody:
        """Return what Wherry needs later to ask the destination about a batch.

        While a batch is open, this stays the version from before its write, and the places that got its copies.
        """
        version = identity.version
        if before is not None and before.id == identity.id and journal.state.open_plans:
            version = min(before.version, version)
        copies: dict[str, IdentityBody] = {}
        for name, now in identity.copies.items():
            known = before.copies.get(name) if before else None
            replaced = known is not None and known.id != now.id and journal.state.open_plans
            copy = known if known is not None and replaced else now
            asked = self._describe_identity(known, copy, journal)
            copies[name] = IdentityBody(place=copy.place, id=asked.id, version=asked.version)
        return DestinationBody(id=identity.id, version=version, copies=copies)


_ONE_FILE = Limits(files=1)


def make_limits(options: BatchOptions) -> Limits:
    """Return the limits at which a batch is full."""
    return Limits(rows=options.rows, bytes=parse_size(options.bytes) if options.bytes else None, files=options.files)


def make_chain(
    pipeline: PipelineSpec,
    origin: Origin,
    destinations: Mapping[str, Destination] | None = None,
    demands: Mapping[str, list[Stage]] | None = None,
) -> StageChain:
    """Return the stages for an origin's rows: of the origin, of the pipeline, and of each destination."""
    lanes, every = pipeline.lanes_of(origin), destinations or name_destinations(pipeline.every_destination)
    own = {name: each for name, each in every.items() if each.takes(lanes)}
    return StageChain.of([*origin.stages, *pipeline.stages], own, demands)


def make_chains(
    pipeline: PipelineSpec, destinations: Mapping[str, Destination] | None = None
) -> Mapping[str, StageChain]:
    """Return the stages for the rows of each origin, by its name."""
    return {name: make_chain(pipeline, origin, destinations) for name, origin in pipeline.origins_by_name.items()}


def make_candidate(
    pipeline: PipelineSpec, origin: Origin, chain: StageChain, destinations: Mapping[str, Destination]
) -> Candidate:
    """Return the facts that decide the way of an origin's batches, before a batch exists."""
    own = [destinations[name] for name in chain.branches]
    return Candidate(
        origin=origin,
        chain=chain,
        destinations=own,
        lanes=len(pipeline.lanes_of(origin)),
        keeps_filtered=pipeline.keeps_filtered,
    )


def survey_origin(pipeline: PipelineSpec, origin: Origin, journal: Journal, spark: SparkSession) -> Backlog:
    """Return the rows that wait at the origin, beyond what the run has processed according to the ledger."""
    parts = list_carried_parts(pipeline, origin, journal.list_settled()) if isinstance(origin, KeepsParts) else []
    lanes = journal.state.lanes
    offsets = {own: lanes[lane].offset for lane, own in pipeline.lanes_of(origin).items() if lane in lanes}
    return origin.survey(spark, Progress(offsets=offsets, parts=parts))


def list_carried_parts(pipeline: PipelineSpec, origin: Origin, carried: Iterable[Settled]) -> Sequence[JSON]:
    """Return the parts that these batches read from an origin that keeps them.

    Each part is in its newest version: for a file that was redone, as the redo read it.
    """
    own: list[Settled] = []
    again: list[Settled] = []
    for batch in carried:
        if pipeline.owns(origin, batch.lane):
            own.append(batch)
        elif pipeline.owns(origin, get_lane_read(batch)):
            again.append(batch)
    parts = [part for batch in own for part in batch.span.parts]
    if not again:
        return parts
    newest: dict[str, JSON] = {}
    for batch in sorted([*own, *again], key=lambda each: each.at):
        newest.update({str(part[0]): part for part in batch.span.parts})  # type: ignore[index]  # a file's is a list
    return [newest[name] for name in dict.fromkeys(str(part[0]) for part in parts)]  # type: ignore[index]


def get_lane_read(settled: Settled) -> str:
    """Return the lane from which a batch was read, for the first time or again."""
    return settled.lane.partition("/")[2] if settled.lane.startswith(BACKFILL) else settled.lane


def list_unchanged(opening: RunOpening, journal: Journal, spark: SparkSession) -> Collection[str]:
    """Return the origins that are read whole and would give the same rows to the same tables again.

    Nothing new waits at them, the definition has not changed, and every stage gives the same answers again.
    """
    pipeline, state = opening.pipeline, journal.state
    found: list[str] = []
    if opening.ruling or state.opened.hash != opening.hash or _OF_A_RUN.search(opening.text):
        return found
    for name, origin in pipeline.origins_by_name.items():
        if origin.read != "whole" or not isinstance(origin, KnowsPlace):
            continue
        offsets = {own: state.get_lane(lane).offset for lane, own in pipeline.lanes_of(origin).items()}
        if None in offsets.values() or not origin.stands(spark, offsets):
            continue
        chain = make_chain(pipeline, origin, opening.destinations)
        known = {destination: state.identities.get(destination) for destination in chain.branches}
        are_there = all(
            each is not None and each.id and opening.ensure_place(destination, spark, None).id == each.id
            for destination, each in known.items()
        )
        if are_there and chain.answers_again:
            found.append(name)
    return found


def find_recorded_schema(origin: Origin, journal: Journal) -> str | None:
    """Return the schema with which an earlier run read the origin, from the ledger."""
    return journal.state.opened.origins.get(origin.name or "origin", OriginBody()).schema


def find_schema(origin: Origin, recorded: str | None, spark: SparkSession, backlog: Backlog) -> str | None:
    """Return the schema to read with.

    An inferred schema stays as recorded. A given schema has priority. Both may evolve.
    """
    schema = recorded if origin.infers and recorded else origin.columns(spark, backlog)
    if not schema or not isinstance(origin, EvolvesSchema):
        return schema
    return origin.evolve_schema(spark, backlog, schema, recorded)


def _evolves(origin: Origin) -> bool:
    return isinstance(origin, EvolvesSchema) and origin.evolves


def analyse_chain(spark: SparkSession, schema: str, chain: StageChain) -> Mapping[str, T.StructType]:
    """Return the schema of the rows at each destination. Raises `StageError`, which names the stage. Reads no row."""
    arriving = T.StructType.fromJson(json.loads(schema))
    if all(step.stage.keeps_columns for step in chain.steps):
        return dict.fromkeys(chain.branches, arriving)
    rows = apply_chain(make_empty_rows(spark, arriving), chain.common, {}, checked=True)
    return {name: apply_chain(rows, steps, {}, checked=True).schema for name, steps in chain.branches.items()}


_OF_A_RUN = re.compile(r":(?:batch_time|run|number)\b")
"""Names in expressions whose values differ from run to run.

A match outside an expression does no harm: Wherry then reads everything again.
"""


def list_suites(pipeline: PipelineSpec) -> Suites:
    """Return the stages of a pipeline that state rules, by origin and name."""
    return {
        origin: {step.name: step.stage for step in chain.steps if isinstance(step.stage, StatesRules)}
        for origin, chain in make_chains(pipeline).items()
    }


def check_protected(
    protect: Sequence[str], spark: SparkSession, chains: Mapping[str, StageChain], schemas: Mapping[str, str]
) -> None:
    """Raises `Refusal` for a protected column that no origin gives and no stage makes. Reads no row."""
    known: dict[str, str] = {}
    for origin, schema in schemas.items() if protect else ():
        known.update({name.lower(): name for name in _list_names(spark, chains[origin], schema)})
    for column in protect:
        if column.lower() not in known:
            near = suggest_nearest(column, known.values())
            raise Refusal(
                f"protect: no row has a column '{column}', neither as read nor after a stage; {near}",
                hint="It would protect nothing: correct the name, or remove it.",
            )


def _list_names(spark: SparkSession, chain: StageChain, schema: str) -> list[str]:
    """Return the names of the columns and their fields, as they are read and after each stage."""
    rows = make_empty_rows(spark, T.StructType.fromJson(json.loads(schema)))
    names = [*_list_inner_names(rows.schema)]

    def behind(rows: Rows, steps: Sequence[PlacedStage]) -> Rows:
        for step in steps:
            rows = apply_chain(rows, [step], {}, checked=True)
            names.extend(_list_inner_names(rows.schema))
        return rows

    common = behind(rows, chain.common)
    for steps in chain.branches.values():
        behind(common, steps)
    return names


def _list_inner_names(kind: T.DataType, above: str = "") -> Iterator[str]:
    """Yield the names of all fields in a value of this type, for example `buyer.email`."""
    if isinstance(kind, T.ArrayType):
        yield from _list_inner_names(kind.elementType, above)
    elif isinstance(kind, T.StructType):
        for field in kind.fields:
            yield above + field.name
            yield from _list_inner_names(field.dataType, f"{above}{field.name}.")
