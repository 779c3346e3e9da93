"""Traces batches of a pipeline: the next ones, planned as the next run would plan them, or earlier ones."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timezone
from itertools import islice

from origins.batch import JSON, Batch, Span
from origins.capabilities import complete_schema
from origins.errors import OriginError, WherryError
from origins.files.changes import find_schema_stop
from origins.lazy import SparkSession
from origins.origin import Origin, Progress, RowSource
from runners.definitions.definition import Definition
from runners.definitions.document import suggest_nearest
from runners.engine.batch_planner import BatchPlanner, OriginFeed
from runners.model.entry import Settled
from runners.model.errors import CarryFailed, Refusal
from runners.model.masking import without
from runners.model.pipeline_state import REPLAY, LaneState
from runners.model.planned_batch import PlannedBatch
from runners.model.text import summarise_error
from runners.operations.pipeline_access import open_session, open_state
from runners.operations.preview import Preview
from runners.operations.row_condition import RowCondition
from runners.operations.trace import Examples, PassRows, ask, begin_rows, choose_rows
from runners.running.opening import (
    analyse_chain,
    check_protected,
    find_recorded_schema,
    find_schema,
    make_chain,
    make_limits,
    survey_origin,
)
from runners.spark.own_session import put_settings_back
from runners.state.journal import Journal
from runners.ways.batch_source import list_demands_now, strip_lane_prefix
from runners.ways.stage_chain import StageChain, name_destinations
from stages.rows import Rows


@put_settings_back()
def preview(definition: Definition, *, rows: int | None, shown: int, lane: str | None, from_beginning: bool) -> Preview:
    """Try the next batch of each origin, or of one lane, as `Pipeline.preview` describes."""
    traced = Tracer.open(definition).trace_next(rows=rows, shown=shown, lane=lane, from_beginning=from_beginning)
    return Preview.of(definition.pipeline, traced)


@dataclass(frozen=True, kw_only=True)
class Tracer:
    """Traces the batches of one pipeline, and writes nothing."""

    definition: Definition
    journal: Journal
    spark: SparkSession

    @staticmethod
    def open(definition: Definition) -> Tracer:
        spark = open_session(definition.pipeline)
        return Tracer(definition=definition, journal=open_state(definition.pipeline)[1], spark=spark)

    def trace_next(
        self, *, rows: int | None, shown: int, lane: str | None, from_beginning: bool
    ) -> Iterator[tuple[Origin, Batch, Examples]]:
        """Yield the next batch of each origin, or of one lane, with what happens to its rows."""
        pipeline = self.definition.pipeline
        known = [name for origin in pipeline.every_origin for name in pipeline.lanes_of(origin)]
        if lane is not None and lane not in known:
            raise Refusal(f"There is no lane '{lane}'; {suggest_nearest(lane, known)}")
        for origin in pipeline.every_origin:
            lanes = [lane] if lane else known
            for chain, plan in islice(self.list_waiting(origin, lanes, from_beginning=from_beginning), 1):
                yield origin, plan.batch, self.trace_batch(origin, chain, plan.batch, plan.pins, shown=shown, rows=rows)

    def list_waiting(
        self, origin: Origin, lanes: Sequence[str], *, from_beginning: bool = False
    ) -> Iterator[tuple[StageChain, PlannedBatch]]:
        """Yield the waiting batches of the origin by lane, each with its stages."""
        pipeline, options = self.definition.pipeline, self.definition.pipeline.run_options.batch
        backlog = (
            origin.survey(self.spark, Progress())
            if from_beginning
            else survey_origin(pipeline, origin, self.journal, self.spark)
        )
        schema = find_schema(origin, find_recorded_schema(origin, self.journal), self.spark, backlog)
        if schema is None:
            return
        schema = complete_schema(origin, schema)
        chain = self.make_chain(origin, schema)
        source = BatchPlanner(
            pipeline=pipeline.name,
            run="",
            definition=self.definition.hash,
            destinations=tuple(chain.branches),
            feeds=[
                OriginFeed(
                    origin=origin.name or "origin",
                    lanes=pipeline.lanes_of(origin),
                    schema=schema,
                    backlog=backlog,
                    pins=lambda: chain.pins(self.spark),
                    whole=origin.batch == "whole",
                )
            ],
            limits=make_limits(options),
        )
        failed = ((self.journal.state.ended or {}).get("error") or {}).get("lane")
        for lane in sorted(lanes, key=lambda lane: lane != failed):  # begins with the lane in which the last run failed
            state = LaneState() if from_beginning else self.journal.state.get_lane(lane)
            while lane in source.lanes and (span := source.take(lane, state.offset)) is not None:
                plan = source.plan(lane, state, span, datetime.now(timezone.utc), first=False)
                yield chain, plan
                state = replace(state, offset=span.end, number=plan.batch.number)

    def find_schema(self, origin: Origin) -> str | None:
        """Return the schema with which the next run would read the origin, or if its place is gone, the last run's."""
        schema = recorded = find_recorded_schema(origin, self.journal)
        with contextlib.suppress(OriginError):
            backlog = survey_origin(self.definition.pipeline, origin, self.journal, self.spark)
            schema = find_schema(origin, recorded, self.spark, backlog)
        return complete_schema(origin, schema) if schema else None

    def make_batch(self, settled: Settled, origin: str, schema: str) -> Batch:
        """Return a settled batch in a form that is read again with this schema."""
        return Batch(
            pipeline=self.definition.pipeline.name,
            run=settled.run,
            origin=origin,
            lane=settled.lane,
            number=settled.number,
            plan=settled.plan,
            span=settled.span,
            schema=schema,
            time=datetime.fromisoformat(settled.at),
            definition=self.definition.hash,
        )

    def make_replay(self, origin: str, span: Span, schema: str, *, run: str = "", plan: str = "") -> Batch:
        """Return a batch of rows of the DLQ. The ledger does not have it."""
        return Batch(
            pipeline=self.definition.pipeline.name,
            run=run,
            origin=origin,
            lane=f"{REPLAY}{origin}",
            number=0,
            plan=plan,
            span=span,
            schema=schema,
            time=datetime.now(timezone.utc),
            definition=self.definition.hash,
        )

    @contextlib.contextmanager
    def name_failure(self, batch: Batch, what: str) -> Iterator[None]:
        """Let an error in this block name its batch, and `what` could not be done with it."""
        try:
            yield
        except WherryError:
            raise
        except Exception as error:
            where = f"batch {batch.number} of lane {batch.lane} ({batch.span.label})"
            failed = CarryFailed(f"{where} cannot be {what}: {self.mask_error(error)}")
            raise (find_schema_stop(error, self.definition.pipeline.protection) or failed) from error

    def mask_error(self, error: BaseException) -> str:
        """Return the message of an error. Wherry's messages are about files, but other messages may quote values."""
        if isinstance(error, WherryError) and error.__cause__ is None:
            message = error.message
        else:
            message = self.definition.pipeline.protection.mask_error(error, summarise_error(error))
        return str(without(self.definition.pipeline.secrets, message))

    def trace_batch(
        self,
        origin: RowSource,
        chain: StageChain,
        batch: Batch,
        pins: Mapping[str, JSON],
        *,
        shown: int,
        rows: int | None = None,
        wanted: RowCondition | None = None,
    ) -> Examples:
        """Pass the batch's rows through the stages. Return `shown` rows of each outcome.

        With `rows`, only the first rows of the batch pass. With `wanted`, only rows count for which this condition is
        true; a line that could not be read never counts.
        """

        def view(pass_rows: PassRows) -> Examples:
            begun = self.begin_rows(origin, batch, most=rows)
            begun = choose_rows(begun, wanted, chain) if wanted else begun
            return pass_rows(begun, chain, pins).collect(shown)

        with self.name_failure(batch, "previewed"):
            return ask(view)

    def begin_rows(self, origin: RowSource, batch: Batch, *, most: int | None = None) -> Rows:
        """Read the batch's rows for a trace. `most` limits their number."""
        own = strip_lane_prefix(batch)
        frame = origin.fetch(self.spark, [own], places=True).frame()
        rows = begin_rows(frame, batch, origin.parts(own), most=most)
        return replace(rows, protected=tuple(self.definition.pipeline.protect))

    def make_chain(self, origin: Origin, schema: str) -> StageChain:
        """Return the stages for the origin's rows, with the demands of the destinations. Raises `StageError`."""
        pipeline = self.definition.pipeline
        destinations = name_destinations(pipeline.every_destination)
        chain = make_chain(pipeline, origin, destinations)
        arriving = analyse_chain(self.spark, schema, chain)
        if pipeline.origin is not None:
            check_protected(pipeline.protect, self.spark, {"origin": chain}, {"origin": schema})
        demands = {
            name: list(list_demands_now(self.spark, destinations[name], arriving[name])) for name in chain.branches
        }
        return make_chain(pipeline, origin, destinations, demands)
