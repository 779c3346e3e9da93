"""A preview as a person reads it on a terminal."""

from __future__ import annotations

import json
from collections.abc import Iterator

from runners.command_line.printing import here
from runners.previews.preview import BatchPreview, Preview, Seen, StagePreview
from runners.printable import escape_line


def preview(said: Preview) -> str:
    """Every stage with what it does to the batch, and some of the rows."""
    if not said.batches:
        return f"Nothing waits for {said.pipeline}. What was carried already:  --from-beginning"
    return "\n\n".join(line for batch in said.batches for line in _batch(batch))


def _batch(batch: BatchPreview) -> Iterator[str]:
    label = f" ({escape_line(here(batch.label))})" if batch.label else ""
    yield f"Batch {batch.number} of lane {batch.lane}{label}, tried out: {_rows(batch.read)}. Nothing is written."
    for stage in batch.stages:
        yield "\n".join([_counts(stage), *_failure(stage), *map(_row, stage.rows)])
    if batch.stops:
        yield "Nothing of it would be delivered: the run would stop. If that batch were only reported,"
    yield "\n".join(f"{name} would get {_rows(rows)}." for name, rows in batch.destinations.items())


def _failure(stage: StagePreview) -> Iterator[str]:
    if stage.failure is not None:
        yield f"  the batch fails, {stage.failure.outcome}:"
        yield from (escape_line(f"    {line}") for line in stage.failure.why)


def _counts(stage: StagePreview) -> str:
    counts = stage.counts
    into = counts.left + counts.filtered + counts.nacked
    changed = f" in, {counts.left:,} out" if into != counts.entered else ""
    lost = [f"{counts.filtered:,} filtered"] if counts.filtered else []
    lost += [f"{counts.nacked:,} refused"] if counts.nacked else []
    return f"{counts.stage}: {_rows(counts.entered)}{changed}{', '.join(['', *lost])}"


def _row(seen: Seen) -> str:
    row = escape_line(json.dumps(seen.row, ensure_ascii=False))
    return f"  {seen.outcome:<9} {row}" + (f"\n{'':<12}{escape_line(seen.message)}" if seen.message else "")


def _rows(number: int) -> str:
    return f"{number:,} row" if number == 1 else f"{number:,} rows"
