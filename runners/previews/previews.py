"""Trying out what waits: the next batch of each origin passes all stages, and nothing is written."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import datetime, timezone
from typing import TYPE_CHECKING

from origins.changes import stopped
from origins.errors import WherryError
from origins.origin import Origin, Progress
from origins.quantities import seconds
from runners.blame import of_a_row
from runners.definitions.definition import Definition
from runners.definitions.problems import nearest
from runners.errors import CarryFailed, Refusal
from runners.journal import Journal
from runners.line import Line, labels_of, named, passing
from runners.opening import analysed, limits_of, line_of, recorded_schema, schema_of, surveyed
from runners.pace import Pace
from runners.place import Place, check_pipeline
from runners.plan import Plan
from runners.previews.preview import BatchPreview, Preview
from runners.protected import check_protected
from runners.reading import columns, own
from runners.session import in_short, obtain
from runners.session import own as own_session
from runners.source import Feed, Source
from runners.state import Lane
from runners.store import Kept

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from stages.rows import Marked
    from stages.stage import Stage


def preview(definition: Definition, *, rows: int | None, shown: int, lane: str | None, from_beginning: bool) -> Preview:
    """Try out the next batch of each origin, or of one lane; as `Pipeline.preview` says."""
    pipeline = definition.pipeline
    known = [each for origin in pipeline.every_origin for each in pipeline.lanes_of(origin)]
    if lane is not None and lane not in known:
        raise Refusal(f"There is no lane '{lane}'; {nearest(lane, known)}")
    place = Place.of(pipeline)
    spark = own_session(obtain(pipeline.spark.conf, pipeline.spark.packages), pipeline.run_options.time_zone)
    journal = Journal(place.ledger(spark if place.needs_spark else None))
    check_pipeline(pipeline, place, journal.state)
    look = _Look(definition=definition, journal=journal, spark=spark, from_beginning=from_beginning)
    tried = []
    for origin in pipeline.every_origin:
        found = look.waiting(origin, [lane] if lane else known)
        if found is not None:
            tried.append(look.tried(origin, *found, rows=rows, shown=shown))
    return Preview(pipeline=pipeline.name, batches=tuple(tried))


def next_rows(definition: Definition, without: type[Stage]) -> DataFrame | None:
    """The rows of the next batch behind the stages that all rows pass, but for those of this kind, without those that
    are filtered or refused; None when nothing waits. Nothing is written."""
    from stages.rows import Marked

    pipeline = definition.pipeline
    place = Place.of(pipeline)
    spark = own_session(obtain(pipeline.spark.conf, pipeline.spark.packages), pipeline.run_options.time_zone)
    journal = Journal(place.ledger(spark if place.needs_spark else None))
    check_pipeline(pipeline, place, journal.state)
    look = _Look(definition=definition, journal=journal, spark=spark, from_beginning=False)
    for origin in pipeline.every_origin:
        found = look.waiting(origin, [*pipeline.lanes_of(origin)])
        if found is not None:
            line, plan = found
            steps = [step for step in line.common if not isinstance(step.stage, without)]
            frame = origin.fetch(spark, own(plan.batch), places=True)
            rows = Marked.begin(frame, columns(plan.batch), labels_of(plan.batch), _live)
            rows = passing(replace(rows, parts=origin.parts(own(plan.batch))), steps, plan.pins, checked=True)
            return _live(rows)
    return None


def _live(rows: Marked) -> DataFrame:
    from stages.rows import STATE

    return rows.frame.where(f"{STATE} = 0").select(*[rows.column(name) for name in rows.names])


@dataclass(frozen=True, kw_only=True)
class _Look:
    """A look at what waits, which leaves everything as it is."""

    definition: Definition
    journal: Journal
    spark: SparkSession
    from_beginning: bool

    def waiting(self, origin: Origin, lanes: list[str]) -> tuple[Line, Plan] | None:
        """The next batch of the origin's first lane that has one, and the stages that it passes."""
        pipeline, options = self.definition.pipeline, self.definition.pipeline.run_options.batch
        backlog = (
            origin.survey(self.spark, Progress())
            if self.from_beginning
            else surveyed(pipeline, origin, self.journal, self.spark)
        )
        schema = schema_of(origin, recorded_schema(origin, self.journal), self.spark, backlog)
        if schema is None:
            return None
        schema = origin.completed(schema)
        line = self._line(origin, schema)
        source = Source(
            pipeline=pipeline.name,
            run="",
            definition=self.definition.hash,
            destinations=tuple(line.branches),
            feeds=[
                Feed(
                    origin=origin.name or "origin",
                    lanes=pipeline.lanes_of(origin),
                    schema=schema,
                    backlog=backlog,
                    pins=lambda: line.pins(self.spark),
                    whole=origin.batch == "whole",
                )
            ],
            limits=limits_of(options),
        )
        pace = Pace(seconds(options.target))
        for lane in self._in_order(lanes):
            state = Lane() if self.from_beginning else self.journal.state.lane(lane)
            span = source.take(lane, state.offset, pace) if lane in source.lanes else None
            if span is not None:
                return line, source.plan(lane, state, span, datetime.now(timezone.utc), first=False)
        return None

    def tried(self, origin: Origin, line: Line, plan: Plan, *, rows: int | None, shown: int) -> BatchPreview:
        """What becomes of the batch's rows."""
        from runners.preparing import Preparation
        from runners.previews.trial import Trial
        from runners.sifting import Sieve

        batch, pipeline = plan.batch, self.definition.pipeline
        order = origin.parts(own(batch))

        def tried(sieve: Sieve | None = None) -> BatchPreview:
            trial = Trial(
                line=line,
                pins=plan.pins,
                order=order,
                most=shown,
                secrets=pipeline.secrets,
                protection=pipeline.protection,
                sieve=sieve,
            )
            return trial.of(batch, origin.fetch(self.spark, own(batch), places=True), columns(batch), rows=rows)

        def sifted() -> BatchPreview:
            preparation = Preparation(
                spark=self.spark, store=Kept(), name="preview", line=line, pins=plan.pins, order=order
            )
            return tried(Sieve(preparation))

        try:
            try:
                return tried()
            except Exception as error:
                if not of_a_row(error):
                    raise
                return sifted()
        except WherryError:
            raise
        except Exception as error:
            where = f"batch {batch.number} of lane {batch.lane} ({batch.span.label})"
            protection = self.definition.pipeline.protection
            failed = CarryFailed(f"{where} cannot be tried out: {protection.words(error, in_short(error))}")
            raise (stopped(error, protection) or failed) from error

    def _line(self, origin: Origin, schema: str) -> Line:
        pipeline, destinations = self.definition.pipeline, named(self.definition.pipeline.every_destination)
        line = line_of(pipeline, origin, destinations)
        arriving = analysed(self.spark, schema, line)
        if pipeline.origin is not None:
            check_protected(pipeline.protect, self.spark, {"origin": line}, {"origin": schema})
        afresh = {name: dataclasses.replace(each) for name, each in destinations.items()}
        demands = {name: list(afresh[name].demands(self.spark, arriving[name])) for name in line.branches}
        return line_of(pipeline, origin, destinations, demands)

    def _in_order(self, lanes: list[str]) -> Iterator[str]:
        """The lane in which the last run failed comes first."""
        ended = self.journal.state.ended or {}
        failed = (ended.get("error") or {}).get("lane")
        yield from sorted(lanes, key=lambda lane: lane != failed)
