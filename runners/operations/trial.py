"""A trial of the waiting rows: plans the next batches of an origin as the next run would, and records nothing."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timezone

from origins.batch import Batch, Span
from origins.errors import OriginError, WherryError
from origins.files.changes import find_schema_stop
from origins.lazy import SparkSession
from origins.origin import Origin, Progress
from runners.definitions.definition import Definition
from runners.definitions.document import suggest_nearest
from runners.engine.batch_planner import BatchPlanner, OriginFeed
from runners.model.entry import EndedBody, ErrorBody, Settled
from runners.model.errors import CarryFailed, Refusal
from runners.model.masking import without
from runners.model.pipeline_state import REPLAY, LaneState
from runners.model.planned_batch import PlannedBatch
from runners.model.text import summarise_error
from runners.operations.batch_trial import BatchTrial, TracedRow, isolate_if_needed, make_isolator
from runners.operations.pipeline_access import open_session, open_state
from runners.operations.preview import BatchPreview, Preview
from runners.operations.row_condition import RowCondition
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
from runners.ways.batch_source import list_columns, list_demands_now, strip_lane_prefix
from runners.ways.bisect_rows import RowErrorIsolator
from runners.ways.stage_chain import StageChain, name_destinations


@put_settings_back()
def preview(definition: Definition, *, rows: int | None, shown: int, lane: str | None, from_beginning: bool) -> Preview:
    """Try the next batch of each origin, or of one lane, as `Pipeline.preview` describes."""
    found = TrialRun.open(definition).trace_next(rows=rows, shown=shown, lane=lane, from_beginning=from_beginning)
    return Preview(pipeline=definition.pipeline.name, batches=tuple(tried for _, _, tried, _ in found))


@dataclass(frozen=True, kw_only=True)
class TrialRun:
    """A look at what waits, which changes nothing."""

    definition: Definition
    journal: Journal
    spark: SparkSession

    @staticmethod
    def open(definition: Definition) -> TrialRun:
        spark = open_session(definition.pipeline)
        return TrialRun(definition=definition, journal=open_state(definition.pipeline)[1], spark=spark)

    def trace_next(
        self, *, rows: int | None, shown: int, lane: str | None, from_beginning: bool
    ) -> Iterator[tuple[Origin, Batch, BatchPreview, Sequence[TracedRow]]]:
        """Yield the next batch of each origin, or of one lane, with what happens to it and to its example rows."""
        pipeline = self.definition.pipeline
        known = [name for origin in pipeline.every_origin for name in pipeline.lanes_of(origin)]
        if lane is not None and lane not in known:
            raise Refusal(f"There is no lane '{lane}'; {suggest_nearest(lane, known)}")
        for origin in pipeline.every_origin:
            waiting = next(self.list_waiting(origin, [lane] if lane else known, from_beginning=from_beginning), None)
            if waiting is not None:
                yield origin, waiting[1].batch, *self.trace_batch(origin, *waiting, rows=rows, shown=shown)

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
        schema = origin.complete_schema(schema)
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
        failed = ((self.journal.state.ended or EndedBody()).get("error") or ErrorBody()).get("lane")
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
        return origin.complete_schema(schema) if schema else None

    def make_batch(self, settled: Settled, origin: str, schema: str) -> Batch:
        """Return a settled batch in a form that is read again with this schema."""
        span = settled.span
        return Batch(
            pipeline=self.definition.pipeline.name,
            run=settled.run,
            origin=origin,
            lane=settled.lane,
            number=settled.number,
            plan=settled.plan,
            span=Span(start=span["start"], end=span["end"], parts=tuple(span["parts"]), label=span["label"]),
            schema=schema,
            time=datetime.fromisoformat(settled.at),
            definition=self.definition.hash,
        )

    def make_replay(
        self, origin: str, span: Span, schema: str, chain: StageChain, *, run: str = "", plan: str = ""
    ) -> PlannedBatch:
        """Return a plan for a replay of rows of the DLQ with these stages. The ledger does not have it."""
        batch = Batch(
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
        pins = chain.pins(self.spark)
        return PlannedBatch(batch=batch, destinations=tuple(chain.branches), straight=False, pins=pins)

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
        origin: Origin,
        chain: StageChain,
        plan: PlannedBatch,
        *,
        rows: int | None = None,
        shown: int,
        wanted: RowCondition | None = None,
        beside: str = "",
    ) -> tuple[BatchPreview, Sequence[TracedRow]]:
        """Return the outcome of the batch's rows, and of some rows one by one.

        With `wanted`, only rows count for which this condition is true; a line that could not be read never counts.
        With `beside`, each row shows its values before and after the stage of this name.
        """
        batch, pipeline = plan.batch, self.definition.pipeline
        order = origin.parts(strip_lane_prefix(batch))

        def try_batch(isolator: RowErrorIsolator | None) -> tuple[BatchPreview, Sequence[TracedRow]]:
            trial = BatchTrial(
                chain=chain,
                pins=plan.pins,
                order=order,
                source=origin.name_source(batch.span),
                most=shown,
                secrets=pipeline.secrets,
                protection=pipeline.protection,
                isolator=isolator,
                wanted=wanted,
                beside=beside,
            )
            frame = origin.fetch(self.spark, [strip_lane_prefix(batch)], places=True).frame()
            return trial.of(batch, frame, list_columns(batch), rows=rows), tuple(trial.trace_rows())

        with self.name_failure(batch, "previewed"):
            return isolate_if_needed(try_batch, lambda: make_isolator(self.spark, chain, plan.pins, order))

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
