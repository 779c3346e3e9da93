"""The redo of one file: a preview of what it does, and the discard of the old file's refused rows afterwards."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timezone
from typing import Any

from destinations.delta.delta import Delta
from origins.batch import JSON, Batch
from origins.capabilities import complete_schema
from origins.lazy import SparkSession
from runners.model.errors import Refusal
from runners.model.spec import PipelineSpec
from runners.model.text import format_count
from runners.operations.dlq import choose_letters, discard
from runners.operations.pipeline_access import open_session, open_state
from runners.running.choice import Choice
from runners.running.opening import find_recorded_schema
from runners.running.redo import FileRedo, OldLetters, plan_redo
from runners.spark.own_session import put_settings_back
from runners.state.journal import Journal
from runners.state.location import find_dlq
from runners.ways.stage_chain import name_destinations


@dataclass(frozen=True, kw_only=True)
class RedoPreview:
    """What a redo of a file would do. Nothing has happened yet."""

    file: str
    read: int | None
    """The number of rows in the file now; None if this version was read already, so that only the DLQ is left."""
    leaving: Mapping[str, int | None] = field(default_factory=dict)
    """By destination, the number of old rows that are removed; None if the new rows are merged."""
    conditions: Mapping[str, str] = field(default_factory=dict)
    """By destination, the condition that identifies the old rows."""
    letters: int = 0
    """The number of refused rows of the old file that wait in the DLQ. The redo discards them."""
    unsure: Sequence[str] = ()
    """The ids of waiting rows in the DLQ that may be from the old file. They stay."""

    @property
    def notices(self) -> Sequence[str]:
        """Sentences about what happens to these refused rows."""
        return [
            *_describe_old_letters(self.file, self.letters, done=False),
            *_describe_unsure_letters(self.file, self.unsure),
        ]

    @staticmethod
    def of(printed: JSON) -> RedoPreview:
        """Make the preview from what `json` returns."""
        to: Mapping[str, Mapping[str, Any]] = printed["destinations"]
        return RedoPreview(
            file=printed["file"],
            read=printed["read"],
            leaving={name: each["leaving"] for name, each in to.items()},
            conditions={name: each["condition"] for name, each in to.items() if each["condition"]},
            letters=printed["letters"],
            unsure=printed["unsure"],
        )

    def json(self) -> dict[str, JSON]:
        return {
            "file": self.file,
            "read": self.read,
            "destinations": {
                name: {"leaving": rows, "condition": self.conditions.get(name)} for name, rows in self.leaving.items()
            },
            "letters": self.letters,
            "unsure": list(self.unsure),
        }


@put_settings_back()
def preview_redo(pipeline: PipelineSpec, file: str, *, say: Callable[[str], None] = lambda _: None) -> RedoPreview:
    """Return what a redo of the file would do. `say` gets messages about progress.

    Raises `Refusal` if a destination cannot identify the rows of the file.
    """
    journal, spark, plan = check_redo(pipeline, file)
    say("looking for refused rows of the file in the DLQ")
    found = _find_old_letters(pipeline, plan)
    letters, unsure = len(found.old), found.unsure
    if plan.span is None:
        return RedoPreview(file=plan.file, read=None, letters=letters, unsure=unsure)
    destinations = name_destinations(pipeline.every_destination)
    leaving: dict[str, int | None] = {}
    for name, old in plan.tables.items():
        each = destinations[name]
        assert isinstance(each, Delta)
        say(f"counting the old rows in '{name}'")
        leaving[name] = spark.table(each.sql_name).where(old.condition).count() if old.condition else None
    say(f"counting the rows that {plan.file} has now")
    return RedoPreview(
        file=plan.file,
        read=_count_rows(spark, plan, pipeline, journal),
        leaving=leaving,
        conditions={name: old.condition for name, old in plan.tables.items() if old.condition},
        letters=letters,
        unsure=unsure,
    )


@put_settings_back()
def discard_old_letters(pipeline: PipelineSpec, file: str, *, reason: str) -> Sequence[str]:
    """Discard the refused rows of the file's old version. Return sentences about them, and about rows that stay."""
    _, _, plan = check_redo(pipeline, file)
    if plan.span is not None:
        return ()
    found = _find_old_letters(pipeline, plan)
    why = reason or f"{plan.file} was redone"
    done = discard(pipeline, Choice(ids=found.old), reason=why) if found.old else 0
    return [*_describe_old_letters(plan.file, done, done=True), *_describe_unsure_letters(plan.file, found.unsure)]


def _describe_old_letters(file: str, rows: int, *, done: bool) -> Sequence[str]:
    """Return how many refused rows of the old file wait or were discarded; empty if none."""
    counted = f"{format_count(rows, 'refused row', 'refused rows')} of the old {file}"
    if not rows or done:
        return [f"Discarded from the DLQ: {counted}."] if rows else []
    return [
        f"{counted} {'waits' if rows == 1 else 'wait'} in the DLQ. The redo discards {'it' if rows == 1 else 'them'}."
    ]


def _describe_unsure_letters(file: str, ids: Sequence[str]) -> Sequence[str]:
    """Return that these rows still wait, and how to discard them if the old file had them; empty if none."""
    if not ids:
        return []
    counted = format_count(len(ids), "refused row that still waits", "refused rows that still wait")
    reason = shlex.quote(f"{file} was redone")
    return [
        f"The old {file} may have had {counted} in the DLQ. If so, discard:  wherry dlq discard FILE --reason {reason} "
        f"--id {' --id '.join(ids)}"
    ]


@put_settings_back()
def check_redo(pipeline: PipelineSpec, file: str) -> tuple[Journal, SparkSession, FileRedo]:
    """Return the ledger, the session and the plan of a redo.

    Raises `Refusal` if the pipeline has not run yet, or if a destination cannot identify the rows of the file.
    """
    journal = open_state(pipeline)[1]
    if not journal.state.pipeline:
        raise Refusal(f"{pipeline.name} has not run yet, so there is nothing to redo.", hint="wherry run FILE")
    spark = open_session(pipeline)
    return journal, spark, plan_redo(pipeline, journal, spark, file)


def _find_old_letters(pipeline: PipelineSpec, plan: FileRedo) -> OldLetters:
    """Return the waiting rows of the old file, if the DLQ can be read."""
    dlq, spark = find_dlq(pipeline)
    if not (plan.alone or plan.mixed) or not isinstance(dlq, Delta):
        return OldLetters()
    waiting = choose_letters(pipeline, Choice())[1]
    return plan.sort_letters(Choice().list_letters(dlq, spark), waiting) if waiting else OldLetters()


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
        schema=complete_schema(plan.origin, schema),
        time=datetime.now(timezone.utc),
    )
    rows = plan.origin.fetch(spark, [batch])
    known = rows.count()
    return rows.frame().count() if known is None else known
