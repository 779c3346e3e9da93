"""Passes one batch through all stages and writes nothing.

Every row passes every stage once, as in a run, and some rows are kept as examples. Columns beside each row record how
it left every stage. At the end, one query for each section between stages that change rows collects the outcomes.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal, TypeVar

from origins.batch import JSON, Batch
from origins.lazy import Column, DataFrame, F, SparkSession, pyspark
from origins.names import HIDDEN
from origins.origin import PLACE
from origins.protection import Protection
from runners.model.causes import CauseCounter, Causes
from runners.model.error_kinds import classify
from runners.model.json_form import to_json
from runners.model.masking import without
from runners.model.planned_batch import StageCount
from runners.operations.preview import READ, BatchPreview, SeenRow, StageFailure, StagePreview
from runners.operations.row_condition import MATCHES, RowCondition
from runners.state.prepared_store import MemoryStore
from runners.ways.bisect_rows import RowErrorIsolator, split_runs
from runners.ways.deciding import FILTERED_BY, BatchDecision, pass_branches
from runners.ways.row_outcomes import count_by_spark, group_refusals
from runners.ways.stage_chain import PlacedStage, StageChain, apply_chain, make_labels
from stages.expect.expect import Expect
from stages.expect.expectation import list_failures
from stages.rows import (
    REFUSED_BY_ORIGIN,
    STATE,
    VERDICT,
    Expression,
    Rows,
    compute_once,
    encode_struct,
    make_struct,
)

Found = TypeVar("Found")
Isolator = TypeVar("Isolator")

SEEN = HIDDEN + "seen"
FILTERED = HIDDEN + "filtered"
WANTED = HIDDEN + "wanted"
"""The column that is true for rows that the trial looks for."""


@dataclass(frozen=True, kw_only=True)
class TracedRow:
    """A row as it was read, and its outcome."""

    row: JSON
    """The masked row as it was read; for a refused row, as it was at the refusal."""
    outcome: Literal["wanted", "filtered", "rejected", "changed"]
    """`changed` is a row from which a stage makes other rows."""
    stage: str = ""
    """The stage that filtered, refused or changed it."""
    code: str | None = None
    message: str | None = None
    """Why the row is refused."""
    destinations: Sequence[str] = ()
    """The destinations that want the row."""
    filtered_for: Mapping[str, str] = field(default_factory=dict)
    """By destination, the stage that filtered the row for that destination only."""
    position: int = 0
    """The place of the row in its part of the batch, as in `PLACE`."""
    alike: int = 0
    """The number of rows in the batch with this outcome, at the first of them; 0 at the others."""
    before: JSON = None
    """The masked row before the stage `BatchTrial.beside`."""
    after: JSON = None
    """The masked row after that stage; None if the row did not leave the stage."""
    as_read: str = field(default="", repr=False)
    """The row as it was read, in JSON, with the values of protected columns."""

    def json(self) -> dict[str, JSON]:
        shown = {"row", "outcome", "stage", "code", "message", "destinations", "filtered_for"}
        return {name: to_json(value) for name, value in vars(self).items() if name in shown}


@dataclass(frozen=True, kw_only=True)
class StepNote:
    """The column with the rows after a step. The column `before` has the rows that did not leave the step."""

    step: PlacedStage | None
    column: str
    schema: str
    before: str
    filters: str = ""
    """The column with the filters of the step's destination; empty for a step that all rows pass."""


@dataclass
class TrialSection:
    """The steps up to a step that changes rows, or to the end."""

    notes: list[StepNote] = field(default_factory=list)
    filters: dict[str, str] = field(default_factory=dict)
    """By destination, the column that records which of its stages filtered a row."""
    found: Sequence[Mapping[str, JSON]] = ()
    """Example rows, each with its outcome and the number of rows with the same outcome."""
    refused: Sequence[Mapping[str, JSON]] = ()
    """Groups of refused rows: one row of each, their number, and their files."""

    @property
    def rows(self) -> int:
        """The number of rows that entered the section."""
        return sum(row["alike"] for row in self.found if row["nth"] == 1)

    @property
    def live(self) -> int:
        """The number of rows that reach the step that changes rows."""
        return sum(row["alike"] for row in self.found if row["nth"] == 1 and row["state"] == 0)


@dataclass
class BatchTrial:
    """A trial of one batch."""

    chain: StageChain
    pins: Mapping[str, JSON]
    order: Sequence[str]
    """The parts of the batch in the order in which their rows are read."""
    source: str = field(default="", kw_only=True)
    """Where all rows came from, if a person knows that better than their parts."""
    most: int
    """The number of example rows of each kind."""
    secrets: Mapping[str, str] = field(default_factory=dict)
    """The secrets to hide, each with the text that replaces it."""
    protection: Protection = Protection()
    """Masks the example rows."""
    isolator: RowErrorIsolator | None = None
    """Finds the rows at which stages raise; None while no stage is known to raise."""
    wanted: RowCondition | None = None
    """A condition on the rows as read. Only rows for which it is true are counted and shown.

    The other rows pass the stages too, because a stage may compare rows. They are left out if a stage changes rows,
    because Wherry cannot recognise a row after that stage.
    """
    beside: str = ""
    """The stage before and after which the rows are recorded."""
    sections: list[TrialSection] = field(default_factory=list)
    findings: dict[str, Sequence[Mapping[str, JSON]]] = field(default_factory=dict)
    """What stages found out about the batch, by stage."""

    def of(self, batch: Batch, frame: DataFrame, names: tuple[str, ...], *, rows: int | None = None) -> BatchPreview:
        """Pass the rows of `Origin.fetch`, with their places, through the stages. `rows` limits their number."""
        if rows is not None:
            frame = frame.orderBy(*self._list_arrival_columns()).limit(rows)
        begun = Rows.begin(frame, names, make_labels(batch), self._close_section)
        begun = replace(
            begun,
            parts=self.order,
            hold=hold_nothing,
            note_finding=self.findings.__setitem__,
            protected=tuple(self.protection.columns),
            claims=None,
        )
        self.sections.append(TrialSection())
        rows_now = self._note_rows(self._mark_wanted(begun), None, "")
        for run in split_runs(self.chain.common):
            rows_now = self._apply_steps(self.isolator.isolate(rows_now, run) if self.isolator else rows_now, run)
        self._close(self._apply_branches(self.isolator.isolate_for_branches(rows_now) if self.isolator else rows_now))
        last = self.sections[-1]
        live = [row for row in last.found if row["nth"] == 1 and row["state"] == 0]
        return BatchPreview(
            lane=batch.lane,
            number=batch.number,
            label=batch.span.label,
            read=self.sections[0].rows,
            stages=tuple(self._list_stages()),
            destinations={
                name: sum(row["alike"] for row in live if not row.get(last.filters.get(name, "")))
                for name in self.chain.branches
            },
        )

    def trace_rows(self) -> Iterator[TracedRow]:
        """Yield the example rows as they were read, each with its outcome."""
        section, names = self.sections[0], {step.number: step.name for step in self.chain.steps}
        first = section.notes[0].column
        changing = next((step.name for step in self.chain.common if step.stage.changes_rows), "")
        for row in section.found:
            yield replace(
                self._trace_row(row, first, names, changing),
                position=row["arrival"][2],
                alike=row["alike"] if row["nth"] == 1 else 0,
                as_read=row[first],
                **self._look_beside(row, first),
            )

    def _look_beside(self, row: Mapping[str, JSON], first: str) -> dict[str, JSON]:
        """Return the row before and after the stage `beside`."""
        note = next((each for each in self.sections[0].notes if each.step and each.step.name == self.beside), None)
        if note is None or note.step is None:
            return {}
        before, state = self._mask_row(row[note.before], row[first]), row["state"]
        left = state == 0 or (state != REFUSED_BY_ORIGIN and abs(state) > note.step.number)
        return {"before": before, "after": self._mask_row(row[note.column], row[first]) if left else None}

    def _trace_row(self, row: Mapping[str, JSON], first: str, names: Mapping[int, str], changing: str) -> TracedRow:
        section, state = self.sections[0], row["state"]
        if state < 0:
            seen = self._describe_refused(row, first)
            stage = "origin" if state == REFUSED_BY_ORIGIN else names[-state]
            return TracedRow(row=seen.row, outcome="rejected", stage=stage, code=seen.code, message=seen.message)
        as_read = self._mask_row(row[first], row[first])
        if state > 0:
            return TracedRow(row=as_read, outcome="filtered", stage=names[state])
        if changing:
            return TracedRow(row=as_read, outcome="changed", stage=changing)
        filtered = {name: names[at] for name, column in section.filters.items() if (at := row[column])}
        wanted = [name for name in self.chain.branches if name not in filtered]
        return TracedRow(
            row=as_read,
            outcome="wanted" if wanted else "filtered",
            destinations=wanted,
            filtered_for=filtered,
        )

    def _mark_wanted(self, rows: Rows) -> Rows:
        if self.wanted is None:
            return rows
        frame = self.wanted.mark(rows.frame, F.col(STATE) != REFUSED_BY_ORIGIN)
        frame = frame.withColumn(WANTED, F.coalesce(F.col(MATCHES), F.lit(False))).drop(MATCHES)
        if any(step.stage.changes_rows for step in self.chain.steps):
            return rows.with_frame(frame.where(F.col(WANTED)).drop(WANTED))
        return replace(rows.with_frame(frame), kept=(*rows.kept, WANTED))

    def _apply_steps(self, rows: Rows, steps: Sequence[PlacedStage], filters: str = "") -> Rows:
        for step in steps:
            before = [note.column for note in self.sections[-1].notes if note.filters in ("", filters)][-1]
            rows = apply_chain(rows, [without_stop(step)], self.pins, checked=True)
            if step.stage.changes_rows:
                self.sections.append(TrialSection())
            rows = self._note_rows(rows, step, before, filters)
        return rows

    def _note_rows(self, rows: Rows, step: PlacedStage | None, before: str, filters: str = "") -> Rows:
        notes = self.sections[-1].notes
        column = f"{SEEN}{len(notes)}"
        notes.append(StepNote(step=step, column=column, schema=rows.schema.json(), before=before, filters=filters))
        query = rows.query.select("*", compute_once(make_struct(rows.names), column))
        return replace(rows, query=query, kept=(*rows.kept, column))

    def _apply_branches(self, rows: Rows) -> DataFrame:
        steps = {name: own for name, own in self.chain.branches.items() if own}
        self.sections[-1].filters.update({name: f"{FILTERED}{index}" for index, name in enumerate(steps)})

        def own(rows: Rows, name: str) -> tuple[Rows, Mapping[str, Expression]]:
            filters = self.sections[-1].filters[name]
            return self._apply_steps(rows, steps[name], filters), {filters: FILTERED_BY}

        return pass_branches(rows, steps, own).frame

    def _close_section(self, rows: Rows) -> DataFrame:
        """Return the live rows, for a stage that changes rows."""
        self._close(rows.frame)
        return rows.take_live()

    def _close(self, frame: DataFrame) -> None:
        """Collect the outcomes of the rows of the last section: the number of rows of each, and the first rows."""
        section = self.sections[-1]
        frame = frame.where(F.col(WANTED)) if WANTED in frame.columns else frame
        filters = list(section.filters.values())
        needed = frame.select(PLACE, STATE, VERDICT, *filters, *[note.column for note in section.notes])
        alike = pyspark.sql.Window.partitionBy(STATE, F.col(VERDICT)["code"], *filters)
        nth = F.row_number().over(alike.orderBy(*self._list_arrival_columns())).alias("nth")
        first = needed.select("*", nth, F.count(F.lit(1)).over(alike).alias("alike")).where(F.col("nth") <= self.most)
        rows = first.select(
            F.col(STATE).alias("state"),
            *[F.col(name) for name in filters],
            *[F.col(VERDICT)[name].alias(name) for name in ("code", "message", "row")],
            *[F.expr(encode_struct(note.column, note.schema)).alias(note.column) for note in section.notes],
            "nth",
            "alike",
            F.array(*self._list_arrival_columns()).alias("arrival"),
        )
        section.found = sorted((row.asDict() for row in rows.collect()), key=lambda row: row["arrival"])
        section.refused = self._group_refused(needed, section)

    def _group_refused(self, frame: DataFrame, section: TrialSection) -> Sequence[Mapping[str, JSON]]:
        """Return the refused rows in groups. Asks Spark only if more rows were refused than are shown."""
        refused = [row for row in section.found if row["state"] < 0]
        if all(row["alike"] <= self.most for row in refused):
            return [{**row, "alike": 1, "files": self._list_files(row["arrival"][0])} for row in refused]
        first, filters = section.notes[0], list(section.filters.values())
        why = [F.col(VERDICT)[name].alias(name) for name in ("code", "message", "row")]
        read = F.expr(encode_struct(first.column, first.schema)).alias(first.column)
        part = F.col(PLACE)["part"].alias("part")
        rows = frame.where(F.col(STATE) < 0).select(F.col(STATE).alias("state"), *filters, *why, read, part)
        return group_refusals(rows, ["state", "code", *filters], ["message", "row", first.column])

    def _list_files(self, number: int) -> list[str]:
        """Return the part of the batch with this number, from 1."""
        return [self.order[number - 1]] if 1 <= number <= len(self.order) else []

    def _list_arrival_columns(self) -> list[Column]:
        """Return the columns that sort rows in the order in which they were read."""
        part = F.array_position(F.lit(list(self.order)), F.col(PLACE)["part"])
        return [part, F.col(PLACE)["block"], F.col(PLACE)["row"]]

    def _list_stages(self) -> Iterator[StagePreview]:
        for number, section in enumerate(self.sections):
            for note in section.notes:
                changes = note.step is not None and note.step.stage.changes_rows
                yield self._describe_stage(section, note, self.sections[number - 1] if changes else None)

    def _describe_stage(self, section: TrialSection, note: StepNote, before: TrialSection | None) -> StagePreview:
        """Describe what a step did.

        `before` is the section that entered a step that changes rows. That section has the rows that the step refused
        at its input.
        """
        number = note.step.number if note.step else 0
        rows: dict[str, list[Mapping[str, JSON]]] = {"kept": [], "filtered": [], "refused": []}
        totals = dict.fromkeys(rows, 0)
        left = [row for row in before.found if abs(row["state"]) == number] if before else []
        for row in [*section.found, *left]:
            outcome = _find_outcome(row, note, number)
            if outcome:
                rows[outcome].append(row)
                totals[outcome] += row["alike"] if row["nth"] == 1 else 0
        kept = sorted(rows["kept"], key=lambda row: bool(row["state"] or row.get(note.filters)))[: self.most]
        first = section.notes[0].column
        filtered = rows["filtered"][: self.most]
        seen = [
            *(SeenRow(outcome="kept", row=self._mask_row(row[note.column], row[first])) for row in kept),
            *(SeenRow(outcome="filtered", row=self._mask_row(row[note.before], row[first])) for row in filtered),
            *(self._describe_refused(row, first) for row in rows["refused"]),
        ]
        changed = totals["kept"] - before.live if before else 0
        counts = StageCount(
            stage=note.step.name if note.step else READ,
            entered=sum(totals.values()) - changed,
            left=totals["kept"],
            filtered=totals["filtered"],
            nacked=totals["refused"],
        )
        groups = [*section.refused, *(row for row in (before.refused if before else ()) if -row["state"] == number)]
        causes = self._count_causes(
            [row for row in groups if _find_outcome(row, note, number) == "refused"], note, first
        )
        return StagePreview(counts=counts, rows=tuple(seen), failure=self._find_failure(note.step), causes=causes)

    def _count_causes(self, groups: Sequence[Mapping[str, JSON]], note: StepNote, first: str) -> Causes:
        counter = CauseCounter()
        for group in groups:
            seen = self._describe_refused(group, first)
            stage = note.step.name if note.step else "origin"
            files = [self.source] if self.source else group["files"]
            counter.add({"code": seen.code, "stage": stage, "message": seen.message}, group["alike"], files)
        return counter.count()

    def _find_failure(self, step: PlacedStage | None) -> StageFailure | None:
        """Return how the whole batch fails at a step, or None if it does not."""
        if step is None or step.name not in self.findings or not isinstance(step.stage, Expect):
            return None
        why = list_failures(step.stage.rules, self.findings[step.name])
        masked = tuple(str(without(self.secrets, line)) for line in why)
        return StageFailure(why=masked, then=step.stage.on_batch_failure) if why else None

    def _mask_row(self, row: str, as_it_came: str) -> JSON:
        return without(self.secrets, self.protection.mask_row(json.loads(row), json.loads(as_it_came)))

    def _describe_refused(self, row: Mapping[str, JSON], first: str) -> SeenRow:
        stage = "origin" if row["state"] == REFUSED_BY_ORIGIN else None
        rows = {"row": json.loads(row["row"]), "original": json.loads(row[first])}
        nack = self.protection.mask_nack({"stage": stage, "message": row["message"], **rows})
        message = without(self.secrets, nack["message"])
        return SeenRow(outcome="refused", row=without(self.secrets, nack["row"]), code=row["code"], message=message)


def hold_nothing(rows: Rows, note: str) -> tuple[Rows, Mapping[str, int]]:
    """Return the rows unchanged, because nothing is written, and the number of rows with each note.

    A stage that needs the whole batch computes it again.
    """
    return rows, count_by_spark(rows.frame, [note])[note] if note else {}


def without_stop(step: PlacedStage) -> PlacedStage:
    """Return the step in a form that stops no batch that fails as a whole, so that later steps can be seen."""
    stage = step.stage
    if isinstance(stage, Expect) and stage.on_batch_failure == "stop":
        return replace(step, stage=replace(stage, on_batch_failure="report"))
    return step


def _find_outcome(row: Mapping[str, JSON], note: StepNote, number: int) -> str:
    """Return the outcome of a row at a step; empty if the row did not reach it."""
    state, filtered = row["state"], row[note.filters] if note.filters else 0
    left = [(0, "refused")] if state == REFUSED_BY_ORIGIN else []
    left += [(-state, "refused")] if state < 0 else [(state, "filtered")] if state else []
    left += [(filtered, "filtered")] if filtered else []
    at, how = min(left, default=(number + 1, ""))
    return "kept" if at > number else how if at == number else ""


def isolate_if_needed(attempt: Callable[[Isolator | None], Found], make: Callable[[], Isolator]) -> Found:
    """Return the result of the attempt. If a row may have made it fail, try again with what `make` gives."""
    try:
        return attempt(None)
    except Exception as error:  # a stage may raise anything
        if not classify(error).is_row:
            raise
        return attempt(make())


def make_isolator(
    spark: SparkSession, chain: StageChain, pins: Mapping[str, JSON], order: Sequence[str]
) -> RowErrorIsolator:
    """Return an isolator of the rows at which stages raise, for a trial that writes nothing."""
    decision = BatchDecision(spark=spark, store=MemoryStore(), name="preview", chain=chain, pins=pins, order=order)
    return RowErrorIsolator(decision)
