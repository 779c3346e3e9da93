"""Redoing one file: what it does first, and afterwards the rows of the old file in the DLQ are given up."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timezone
from typing import TYPE_CHECKING

from destinations.delta.delta import Delta
from origins.batch import JSON, Batch
from runners.model.errors import Refusal
from runners.model.spec import PipelineSpec
from runners.operations.dlq import choose_letters, discard
from runners.operations.pipeline_access import open_session, open_state
from runners.running.choice import Choice
from runners.running.opening import find_recorded_schema
from runners.running.redo import FileRedo, plan_redo
from runners.state.location import find_dlq
from runners.ways.stage_chain import name_destinations

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from runners.state.journal import Journal


@dataclass(frozen=True, kw_only=True)
class RedoPreview:
    """What a redo of a file would do; nothing has happened yet."""

    file: str
    read: int | None
    """How many rows the file has now; None where it was read as it is now, so that only the DLQ is left."""
    leaving: Mapping[str, int | None] = field(default_factory=dict)
    """For each destination how many old rows leave; None where the new rows are merged."""
    conditions: Mapping[str, str] = field(default_factory=dict)
    """By which a destination tells the old rows."""
    letters: int = 0
    """How many refused rows of the old file wait in the DLQ, and are discarded."""

    @property
    def does_nothing(self) -> bool:
        return self.read is None and not self.letters

    def json(self) -> dict[str, JSON]:
        return {
            "file": self.file,
            "read": self.read,
            "destinations": {
                name: {"leaving": rows, "condition": self.conditions.get(name)} for name, rows in self.leaving.items()
            },
            "letters": self.letters,
        }


def check_redo(pipeline: PipelineSpec, file: str) -> None:
    """Raises `Refusal` where a destination cannot tell the rows of the file."""
    _plan(pipeline, file)


def preview_redo(pipeline: PipelineSpec, file: str) -> RedoPreview:
    """What a redo of the file would do. Raises `Refusal` where a destination cannot tell the rows of the file."""
    journal, spark, plan = _plan(pipeline, file)
    letters = len(choose_letters(pipeline, Choice(where=plan.letters))[1]) if _keeps_letters(pipeline, plan) else 0
    if plan.span is None:
        return RedoPreview(file=plan.file, read=None, letters=letters)
    destinations = name_destinations(pipeline.every_destination)
    leaving: dict[str, int | None] = {}
    for name, old in plan.tables.items():
        each = destinations[name]
        assert isinstance(each, Delta)
        leaving[name] = spark.table(each.sql_name).where(old.condition).count() if old.condition else None
    return RedoPreview(
        file=plan.file,
        read=_count_rows(spark, plan, pipeline, journal),
        leaving=leaving,
        conditions={name: old.condition for name, old in plan.tables.items() if old.condition},
        letters=letters,
    )


def discard_old_letters(pipeline: PipelineSpec, file: str, *, reason: str) -> int:
    """Discard the refused rows that the file left before it was redone; how many there were."""
    _, _, plan = _plan(pipeline, file)
    if plan.span is not None or not _keeps_letters(pipeline, plan):
        return 0
    return discard(pipeline, Choice(where=plan.letters), reason=reason or f"{plan.file} was redone")


def _plan(pipeline: PipelineSpec, file: str) -> tuple[Journal, SparkSession, FileRedo]:
    journal = open_state(pipeline)[1]
    if not journal.state.pipeline:
        raise Refusal(f"{pipeline.name} has not run yet, so there is nothing to redo.", hint="wherry run FILE")
    spark = open_session(pipeline)
    return journal, spark, plan_redo(pipeline, journal, spark, file)


def _keeps_letters(pipeline: PipelineSpec, plan: FileRedo) -> bool:
    """Whether the DLQ may have rows of the old file."""
    return bool(plan.alone or plan.mixed) and isinstance(find_dlq(pipeline)[0], Delta)


def _count_rows(spark: SparkSession, plan: FileRedo, pipeline: PipelineSpec, journal: Journal) -> int:
    assert plan.span is not None
    schema = find_recorded_schema(plan.origin, journal)
    assert schema is not None, "its rows were read"
    batch = Batch(
        pipeline=pipeline.name,
        run="",
        origin=plan.origin.name or "origin",
        lane=plan.lane.rpartition("/")[2],
        number=0,
        plan="",
        span=replace(plan.span, start=None),
        schema=plan.origin.complete_schema(schema),
        time=datetime.now(timezone.utc),
    )
    rows = plan.origin.fetch(spark, [batch])
    known = rows.count()
    return rows.frame().count() if known is None else known
