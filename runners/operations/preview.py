"""A preview: what would happen to the waiting rows, stage by stage."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from origins.batch import JSON, Batch
from origins.capabilities import name_source
from origins.codec import INLINE, JsonForm
from origins.lazy import DataFrame, SparkSession
from origins.origin import Origin
from runners.model.causes import CauseCounter, Causes
from runners.model.masking import without
from runners.model.planned_batch import StageCount
from runners.model.spec import PipelineSpec
from runners.model.text import (
    ShownRow,
    escape_line,
    format_count,
    format_repr,
    format_rows,
    paint,
    render_text,
    shorten_paths,
)
from runners.operations.trace import Example, Examples, Section, Snapshot, show_example, show_text

READ = "as read"
"""Shown in place of a stage's name for rows that no stage has seen yet."""
_OUTCOMES = {
    "stop": "which stops the run",
    "quarantine": "and the whole batch goes to the DLQ",
    "report": "which is only reported",
}


@dataclass(frozen=True, kw_only=True)
class SeenRow(JsonForm):
    """A row at a stage: as it left if it was kept, or else as it came."""

    outcome: Literal["kept", "filtered", "refused"]
    row: JSON
    code: str | None = None
    message: str | None = None
    """Why the row is refused."""


@dataclass(frozen=True, kw_only=True)
class StageFailure(JsonForm):
    """A failure of the whole batch at a stage."""

    why: tuple[str, ...]
    """What was expected and what was found, a line for each expectation."""
    then: Literal["stop", "quarantine", "report"]
    """What happens to the batch: it stops the run, goes whole to the DLQ, or is only reported.

    The rows are shown as if a batch that stops the run were only reported.
    """

    @property
    def outcome(self) -> str:
        return _OUTCOMES[self.then]


@dataclass(frozen=True, kw_only=True)
class StagePreview:
    """What one stage does to the batch: the number of rows, and some examples."""

    counts: StageCount = field(metadata=INLINE)
    failure: StageFailure | None = None
    """How the whole batch fails; None if it does not."""
    rows: tuple[SeenRow, ...]
    causes: Causes = Causes()
    """Why rows are refused."""


@dataclass(frozen=True, kw_only=True)
class BatchPreview(JsonForm):
    """What happens to the next batch of one lane."""

    lane: str
    number: int
    label: str
    """The source of the batch in words."""
    read: int
    stages: tuple[StagePreview, ...]
    destinations: Mapping[str, int]
    """How many rows each destination would get, if no failing batch stopped the run."""

    @property
    def stops(self) -> bool:
        """Whether the batch stops the run, so that no row is delivered."""
        return any(stage.failure is not None and stage.failure.then == "stop" for stage in self.stages)

    def json(self) -> dict[str, Any]:
        return {**super().json(), "stops": self.stops}


def describe_batch(pipeline: PipelineSpec, origin: Origin, batch: Batch, found: Examples) -> BatchPreview:
    """Return what the examples of a trace show about a batch of the origin."""
    sections, source = found.trace.sections, name_source(origin, batch.span)
    stages = [
        _describe_stage(found, section, at, before if at is section.snapshots[0] else None, pipeline, source)
        for before, section in zip([None, *sections], sections, strict=False)
        for at in section.snapshots
    ]
    failures = {
        name: StageFailure(why=tuple(without(pipeline.secrets, why)), then=stage.on_batch_failure)
        for name, stage, why in found.trace.list_failures()
    }
    return BatchPreview(
        lane=batch.lane,
        number=batch.number,
        label=batch.span.label,
        read=sum(row.alike for row in found.list_rows(sections[0])),
        stages=tuple(replace(stage, failure=failures.get(stage.counts.stage)) for stage in stages),
        destinations=found.count_delivered(),
    )


def _describe_stage(
    found: Examples, section: Section, at: Snapshot, before: Section | None, pipeline: PipelineSpec, source: str
) -> StagePreview:
    """Describe what a step did. The section `before` entered a step that changes rows."""

    def pick(rows: Sequence[Example], outcome: str) -> list[Example]:
        """Return the rows with an outcome. The section before has the rows that the step refused at its input."""
        own = [row for row in rows if row.section is section or (row.section is before and abs(row.state) == at.number)]
        return [row for row in own if row.find_outcome(at) == outcome]

    kept, filtered, refused = (pick(found.rows, outcome) for outcome in ("kept", "filtered", "refused"))
    left, *lost = (sum(row.alike for row in rows) for rows in (kept, filtered, refused))
    came = sum(row.alike for row in found.list_rows(before) if not row.state) if before else left
    kept.sort(key=lambda row: bool(row.state or row.seen.get(at.filters)))
    seen = [
        *(SeenRow(outcome="kept", row=show_text(row, at.column, pipeline)) for row in kept[: found.most]),
        *(SeenRow(outcome="filtered", row=show_text(row, at.before, pipeline)) for row in filtered[: found.most]),
        *(SeenRow(outcome="refused", **show_example(row, pipeline)) for row in refused),
    ]
    counter = CauseCounter()
    found.count_causes(pick(found.groups, "refused"), counter, pipeline, source)
    return StagePreview(
        counts=StageCount(stage=at.name or READ, entered=came + sum(lost), left=left, filtered=lost[0], nacked=lost[1]),
        rows=tuple(seen),
        causes=counter.count(),
    )


@dataclass(frozen=True, kw_only=True)
class Preview(JsonForm):
    """What would happen to the waiting rows. A notebook shows it as tables."""

    pipeline: str
    batches: tuple[BatchPreview, ...]
    """The next batch of each origin; empty if no row waits."""

    @staticmethod
    def of(pipeline: PipelineSpec, traced: Iterable[tuple[Origin, Batch, Examples]]) -> Preview:
        """Describe these batches, of which examples were collected."""
        return Preview(pipeline=pipeline.name, batches=tuple(describe_batch(pipeline, *each) for each in traced))

    def to_frame(self, spark: SparkSession) -> DataFrame:
        """Return a Spark DataFrame of this session, with the shown rows at each stage. `row` is JSON."""
        rows = [
            (
                *(batch.lane, batch.number, stage.counts.stage, seen.outcome, seen.code, seen.message),
                json.dumps(seen.row, ensure_ascii=False),
            )
            for batch in self.batches
            for stage in batch.stages
            for seen in stage.rows
        ]
        return spark.createDataFrame(
            rows, "lane string, number bigint, stage string, outcome string, code string, message string, row string"
        )

    def __str__(self) -> str:
        return format_preview(self)

    def __repr__(self) -> str:
        batches = [f"batch {batch.number} of lane {batch.lane}, {format_count(batch.read)}" for batch in self.batches]
        return format_repr("Preview", self.pipeline, *(batches or ["no rows wait"]))

    def _repr_html_(self) -> str:
        return render_text(format_preview(self, wide=True))


def format_preview(preview: Preview, *, wide: bool = False) -> str:
    """Format every stage with what it does to the batch, and a table of some rows. With `wide` the rows are whole."""
    if not preview.batches:
        return f"No rows wait for {preview.pipeline}. To preview old rows:  --from-beginning"
    return "\n\n".join(line for batch in preview.batches for line in _format_batch(batch, wide=wide))


def _format_batch(batch: BatchPreview, *, wide: bool) -> Iterator[str]:
    label = f" ({escape_line(shorten_paths(batch.label))})" if batch.label else ""
    yield (
        f"Batch {batch.number} of lane {batch.lane}{label}, preview of {format_count(batch.read)}. Nothing is written."
    )
    for stage in batch.stages:
        rows = [ShownRow(row=seen.row, lead=seen.outcome, note=seen.message or "") for seen in stage.rows]
        why = [f"  {line}" for line in stage.causes.describe(placed=False)]
        yield "\n".join([_format_counts(stage), *_format_failure(stage), *why, *format_rows(rows, wide=wide)])
    if batch.stops:
        warning = paint("No row of it would be delivered: the run would stop.", "red")
        yield f"{warning} If that batch were only reported,"
    yield "\n".join(f"{name} would get {format_count(rows)}." for name, rows in batch.destinations.items())


def _format_failure(stage: StagePreview) -> Iterator[str]:
    if stage.failure is not None:
        yield f"  {paint('the batch fails', 'red')}, {stage.failure.outcome}:"
        yield from (escape_line(f"    {line}") for line in stage.failure.why)


def _format_counts(stage: StagePreview) -> str:
    counts = stage.counts
    into = counts.left + counts.filtered + counts.nacked
    changed = f" in, {counts.left:,} out" if into != counts.entered else ""
    lost = [f"{counts.filtered:,} filtered"] if counts.filtered else []
    lost += [paint(f"{counts.nacked:,} refused", "yellow")] if counts.nacked else []
    return f"{paint(counts.stage, 'bold')}: {format_count(counts.entered)}{changed}{', '.join(['', *lost])}"
