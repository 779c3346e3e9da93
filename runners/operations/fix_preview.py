"""What a replay with a fix would do: every row passes the fix and today's stages, and nothing is written."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from destinations.dead_letters import read_dead_letters
from destinations.delta.delta import Delta
from origins.batch import JSON
from origins.codec import JsonForm, decode, encode
from origins.lazy import SparkSession
from runners.definitions.definition import Definition
from runners.model.causes import CauseCounter, Causes
from runners.model.errors import Refusal
from runners.model.spec import PipelineSpec
from runners.operations.trace import TracedRow
from runners.operations.tracer import Tracer
from runners.running.fix import Fix
from runners.running.opening import analyse_chain
from runners.running.replay import DeadLetterRows, Replay, SortedLetters
from runners.spark.own_session import put_settings_back
from runners.state.location import StateLocation, find_dlq

SHOWN = 3
"""The number of example rows for each outcome."""


@dataclass(frozen=True, kw_only=True)
class FixedRow:
    """A row of the DLQ before and after the fix, and its outcome."""

    id: str
    row: TracedRow

    def json(self) -> dict[str, JSON]:
        """Return the form that `--json` prints."""
        return {"id": self.id, "before": self.row.before, "after": self.row.after, **encode(self.row)}


@dataclass(frozen=True, kw_only=True)
class FixPreview(JsonForm):
    """The outcome of the rows that a replay with a fix would process."""

    pipeline: str
    fix: Fix
    passing: int
    """How many rows a destination wants."""
    filtered: int
    refused: int
    causes: Causes
    """Why rows are refused."""
    destinations: Mapping[str, int]
    """How many rows each destination would get."""
    rows: Sequence[FixedRow]
    left: Mapping[str, int]
    """How many chosen rows cannot be replayed, by reason."""

    @property
    def read(self) -> int:
        """How many rows would be processed."""
        return self.passing + self.filtered + self.refused

    @staticmethod
    def of(printed: JSON) -> FixPreview:
        """Make the preview of a replay without a fix from what `json` returns."""
        rows = [
            FixedRow(id=each["id"], row=replace(decode(TracedRow, each), before=each["before"], after=each["after"]))
            for each in printed["rows"]
        ]
        preview = decode(FixPreview, {**printed, "fix": {}, "causes": {}, "rows": []})
        return replace(preview, causes=Causes.of(printed["causes"]), rows=rows)

    def json(self) -> dict[str, JSON]:
        """Return the form that `--json` prints."""
        return {**super().json(), "fix": self.fix.key, "read": self.read}


@put_settings_back()
def preview_fix(
    definition: Definition, letters: SortedLetters, replay: Replay, *, say: Callable[[str], None] = lambda _: None
) -> FixPreview:
    """Return what a replay of these rows with this fix would do. `say` gets messages about progress. Writes nothing.

    Raises `StageError` if the fix does not suit the rows. Raises `Refusal` if the origin has no schema yet, or if a
    replay with another fix was interrupted.
    """
    pipeline, fix = definition.pipeline, replay.fix
    tracer, (dlq, spark) = Tracer.open(definition), find_dlq(pipeline)
    assert isinstance(dlq, Delta)  # another DLQ could not have been read
    replay.check(tracer.journal, dlq, spark)
    given = (
        fix.rows if fix.rows.texts or not fix.rows else fix.rows.load(StateLocation.of(pipeline).store(), tracer.spark)
    )
    outcomes: Counter[str] = Counter()
    destinations: Counter[str] = Counter()
    causes, seen = CauseCounter(), dict[tuple[str, str | None, str], list[FixedRow]]()
    for name, batches in letters.batches.items():
        origin = pipeline.origins_by_name[name]
        schema = tracer.find_schema(origin)
        if schema is None:
            raise Refusal(f"The origin '{name}' has no schema yet, so nothing can be tried.")
        chain = tracer.make_chain(origin, schema)
        names = {step.name for step in chain.steps}
        for number, (span, wanted) in enumerate(batches, 1):
            say(f"trying {span.label}, batch {number} of {len(batches)}")
            own = letters.put_fix(fix, chain.narrow(wanted), span)
            analyse_chain(tracer.spark, schema, own)
            batch, pins = tracer.make_replay(name, span, schema), own.pins(tracer.spark)
            beside = next((step.name for step in own.steps if step.name not in names), "")
            rows_read = DeadLetterRows(name=name, dlq=dlq, corrected=given.texts)
            traced = tracer.trace_batch(rows_read, own, batch, pins, shown=SHOWN)
            destinations.update(traced.count_delivered())
            traced.count_causes(sorted(traced.groups, key=lambda group: -group.state), causes, pipeline)
            for row in traced.show_rows(pipeline, beside):
                outcomes[row.outcome] += row.alike
                kept = seen.setdefault((row.outcome, row.code, row.stage), [])
                if len(kept) < SHOWN:
                    kept.append(FixedRow(id=str(span.parts[row.position]), row=row))
    shown_rows = [row for rows in seen.values() for row in rows]
    if given:
        shown_rows = _put_beside(shown_rows, given.texts, dlq, spark, pipeline)
    return FixPreview(
        pipeline=pipeline.name,
        fix=fix,
        passing=outcomes["wanted"] + outcomes["changed"],
        filtered=outcomes["filtered"],
        refused=outcomes["rejected"],
        causes=causes.count(),
        destinations=dict(destinations),
        rows=shown_rows,
        left=letters.left,
    )


def _put_beside(
    rows: Sequence[FixedRow],
    texts: Mapping[str, str],
    dlq: Delta,
    spark: Callable[[], SparkSession],
    pipeline: PipelineSpec,
) -> list[FixedRow]:
    """Add to the rows their masked form in the DLQ, and their masked form after a person's correction."""
    originals = {each["id"]: each["original"] for each in read_dead_letters(dlq, spark, ids=[row.id for row in rows])}
    found = []
    for each in rows:
        before, after = originals.get(each.id), json.loads(texts[each.id])
        shown = replace(each.row, before=pipeline.mask_row(before, after), after=pipeline.mask_row(after, before))
        found.append(replace(each, row=shown))
    return found
