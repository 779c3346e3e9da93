"""A batch tried out: every row passes every stage once, as when it is decided, and some rows are kept to be seen.

Beside each row stands how it left every stage; what became of it is asked at the end, in one query for each part
between stages that change rows.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from pyspark.sql import Window
from pyspark.sql import functions as F

from origins.batch import JSON, Batch
from origins.names import HIDDEN, quoted
from origins.origin import PLACE
from origins.protection import Protection
from runners.counts import StageCount
from runners.definitions.secrets import without
from runners.line import Line, Step, labels_of, passing
from runners.notes import by_spark
from runners.preparing import BEFORE, COMMON, behind_branch, struct_of
from runners.previews.preview import READ, BatchPreview, Failure, Seen, StagePreview
from runners.sifting import Sieve, runs_of
from stages.expect import Expect
from stages.findings import failures
from stages.rows import ORIGINAL, REFUSED_BY_ORIGIN, STATE, VERDICT, Marked, payload_of

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

SEEN = HIDDEN + "seen"
FILTERED = HIDDEN + "filtered"


@dataclass(frozen=True, kw_only=True)
class Note:
    """How rows left a step, under a column of its own; `before` is where it stood before, for those that did not."""

    step: Step | None
    column: str
    schema: str
    before: str
    filters: str = ""
    """The column of its destination's filters; empty for a step that all rows pass."""


@dataclass
class Section:
    """The steps up to one that changes rows, or to the end."""

    notes: list[Note] = field(default_factory=list)
    filters: dict[str, str] = field(default_factory=dict)
    """By destination the column that says which of its own steps filtered a row."""
    found: Sequence[Mapping[str, JSON]] = ()
    """Rows to be seen, each with what became of it and of how many others."""

    @property
    def rows(self) -> int:
        """How many rows it had."""
        return sum(row["alike"] for row in self.found if row["nth"] == 1)

    @property
    def live(self) -> int:
        """How many of them reach the step that changes rows."""
        return sum(row["alike"] for row in self.found if row["nth"] == 1 and row["state"] == 0)


@dataclass
class Trial:
    """One batch being tried out."""

    line: Line
    pins: Mapping[str, JSON]
    order: Sequence[str]
    """The parts of the batch in the order in which their rows count as read."""
    most: int
    """Of each kind of row so many are seen."""
    secrets: Mapping[str, str] = field(default_factory=dict)
    """What is not shown, with what stands in its place."""
    protection: Protection = Protection()
    """What masks the rows that are seen."""
    sieve: Sieve | None = None
    """What finds the rows at which stages raise; None while none is known to."""
    sections: list[Section] = field(default_factory=list)
    findings: dict[str, Sequence[Mapping[str, JSON]]] = field(default_factory=dict)
    """What stages found out about the batch, by their names."""

    def of(self, batch: Batch, frame: DataFrame, names: tuple[str, ...], *, rows: int | None = None) -> BatchPreview:
        """What becomes of the rows, which `Origin.fetch` gave with their places; with `rows` of the first so many."""
        if rows is not None:
            frame = frame.orderBy(*self._arrival()).limit(rows)
        begun = Marked.begin(frame, names, labels_of(batch), self._closed)
        protected = tuple(self.protection.columns)
        begun = replace(begun, parts=self.order, hold=_held, tell=self.findings.__setitem__, protected=protected)
        self.sections.append(Section())
        rows_now = self._noted(begun, None, "")
        for run in runs_of(self.line.common):
            rows_now = self._passing(self.sieve.sifted(rows_now, run) if self.sieve else rows_now, run)
        self._close(self._branched(self.sieve.sifted_for_branches(rows_now) if self.sieve else rows_now))
        last = self.sections[-1]
        return BatchPreview(
            lane=batch.lane,
            number=batch.number,
            label=batch.span.label,
            read=self.sections[0].rows,
            stages=tuple(self._stages()),
            destinations={
                name: sum(row["alike"] for row in last.found if row["nth"] == 1 and _left(row, last.filters.get(name)))
                for name in self.line.branches
            },
        )

    def _passing(self, rows: Marked, steps: Sequence[Step], filters: str = "") -> Marked:
        for step in steps:
            before = [each.column for each in self.sections[-1].notes if each.filters in ("", filters)][-1]
            rows = passing(rows, [_going_on(step)], self.pins, checked=True)
            if step.stage.changes_rows:
                self.sections.append(Section())
            rows = self._noted(rows, step, before, filters)
        return rows

    def _noted(self, rows: Marked, step: Step | None, before: str, filters: str = "") -> Marked:
        notes = self.sections[-1].notes
        column = f"{SEEN}{len(notes)}"
        notes.append(Note(step=step, column=column, schema=rows.schema.json(), before=before, filters=filters))
        frame = rows.frame.withColumn(column, struct_of(rows.names))
        return replace(rows, frame=frame, kept=(*rows.kept, column))

    def _branched(self, rows: Marked) -> DataFrame:
        """The rows behind every destination's own steps, each of which begins with what is common to all. A row that
        one of them refuses is refused for all, and no later one looks at it."""
        own = {name: steps for name, steps in self.line.branches.items() if steps}
        frame = rows.frame.withColumns({COMMON: struct_of(rows.names), BEFORE: F.col(STATE)})
        names, rows = rows.names, replace(rows, frame=frame, kept=(*rows.kept, COMMON, BEFORE))
        for index, (name, steps) in enumerate(own.items()):
            filters = self.sections[-1].filters[name] = f"{FILTERED}{index}"
            branch = self._passing(rows, steps, filters)
            state, left_out = behind_branch()
            frame = branch.frame.select(
                *[F.col(name) for name in (PLACE, VERDICT, ORIGINAL)],
                state.alias(STATE),
                state.alias(BEFORE),
                *[F.col(name) for name in branch.kept if name != BEFORE],
                left_out.alias(filters),
                *[F.col(COMMON)[name].alias(name) for name in names],
            )
            rows = replace(rows, frame=frame, kept=(*branch.kept, filters))
        return rows.frame

    def _closed(self, rows: Marked) -> DataFrame:
        """What a stage that changes rows gets: the live ones."""
        self._close(rows.frame)
        return rows.frame.where(F.col(STATE) == 0).select(*[F.col(quoted(name)) for name in rows.names])

    def _close(self, frame: DataFrame) -> None:
        """Ask what became of the rows of the last section: for each outcome how many there are, and the first ones."""
        section = self.sections[-1]
        filters = list(section.filters.values())
        needed = frame.select(PLACE, STATE, VERDICT, *filters, *[note.column for note in section.notes])
        alike = Window.partitionBy(STATE, F.col(VERDICT)["code"], *filters)
        nth = F.row_number().over(alike.orderBy(*self._arrival())).alias("nth")
        first = needed.select("*", nth, F.count(F.lit(1)).over(alike).alias("alike")).where(F.col("nth") <= self.most)
        found = first.select(
            F.col(STATE).alias("state"),
            *[F.col(name) for name in filters],
            *[F.col(VERDICT)[name].alias(name) for name in ("code", "message", "row")],
            *[payload_of(note.column, note.schema).alias(note.column) for note in section.notes],
            "nth",
            "alike",
            F.array(*self._arrival()).alias("arrival"),
        )
        section.found = sorted((row.asDict() for row in found.collect()), key=lambda row: row["arrival"])

    def _arrival(self) -> list[Column]:
        """By what rows stand in the order in which they were read."""
        part = F.array_position(F.lit(list(self.order)), F.col(PLACE)["part"])
        return [part, F.col(PLACE)["block"], F.col(PLACE)["row"]]

    def _stages(self) -> Iterator[StagePreview]:
        for number, section in enumerate(self.sections):
            for note in section.notes:
                changes = note.step is not None and note.step.stage.changes_rows
                yield self._stage(section, note, self.sections[number - 1] if changes else None)

    def _stage(self, section: Section, note: Note, before: Section | None) -> StagePreview:
        """What a step did; `before` is what it was given, where it gave other rows, and where those stay that it
        refused at its door."""
        number = note.step.number if note.step else 0
        rows: dict[str, list[Mapping[str, JSON]]] = {"kept": [], "filtered": [], "refused": []}
        totals = dict.fromkeys(rows, 0)
        left = [row for row in before.found if abs(row["state"]) == number] if before else []
        for row in [*section.found, *left]:
            outcome = _outcome(row, note, number)
            if outcome:
                rows[outcome].append(row)
                totals[outcome] += row["alike"] if row["nth"] == 1 else 0
        kept = sorted(rows["kept"], key=lambda row: bool(row["state"] or row.get(note.filters)))[: self.most]
        first = section.notes[0].column
        seen = [Seen(outcome="kept", row=self._shown(row[note.column], row[first])) for row in kept]
        filtered = rows["filtered"][: self.most]
        seen += [Seen(outcome="filtered", row=self._shown(row[note.before], row[first])) for row in filtered]
        seen += [self._refused(row, first) for row in rows["refused"]]
        changed = totals["kept"] - before.live if before else 0
        counts = StageCount(
            stage=note.step.name if note.step else READ,
            entered=sum(totals.values()) - changed,
            left=totals["kept"],
            filtered=totals["filtered"],
            nacked=totals["refused"],
        )
        return StagePreview(counts=counts, rows=tuple(seen), failure=self._failure(note.step))

    def _failure(self, step: Step | None) -> Failure | None:
        """How the batch fails at a step as a whole, if it was judged there and does."""
        if step is None or step.name not in self.findings or not isinstance(step.stage, Expect):
            return None
        why = failures(step.stage.rules, self.findings[step.name])
        said = tuple(str(without(self.secrets, line)) for line in why)
        return Failure(why=said, then=step.stage.on_batch_failure) if why else None

    def _shown(self, row: str, as_it_came: str) -> JSON:
        return without(self.secrets, self.protection.row(json.loads(row), json.loads(as_it_came)))

    def _refused(self, row: Mapping[str, JSON], first: str) -> Seen:
        stage = "origin" if row["state"] == REFUSED_BY_ORIGIN else None
        rows = {"row": json.loads(row["row"]), "original": json.loads(row[first])}
        nack = self.protection.nack({"stage": stage, "message": row["message"], **rows})
        said = without(self.secrets, nack["message"])
        return Seen(outcome="refused", row=without(self.secrets, nack["row"]), code=row["code"], message=said)


def _held(rows: Marked, note: str) -> tuple[Marked, Mapping[str, int]]:
    """The rows as they are, for nothing is written: who looks at the whole batch computes it. How many have which
    note."""
    return rows, by_spark(rows.frame, [note])[note] if note else {}


def _going_on(step: Step) -> Step:
    """The step, at which no batch stops that fails as a whole, so that what follows can be seen."""
    stage = step.stage
    if isinstance(stage, Expect) and stage.on_batch_failure == "stop":
        return replace(step, stage=replace(stage, on_batch_failure="report"))
    return step


def _outcome(row: Mapping[str, JSON], note: Note, number: int) -> str:
    """What became of a row at a step; nothing if it did not come there."""
    state, filtered = row["state"], row[note.filters] if note.filters else 0
    left = [(0, "refused")] if state == REFUSED_BY_ORIGIN else []
    left += [(-state, "refused")] if state < 0 else [(state, "filtered")] if state else []
    left += [(filtered, "filtered")] if filtered else []
    at, how = min(left, default=(number + 1, ""))
    return "kept" if at > number else how if at == number else ""


def _left(row: Mapping[str, JSON], filters: str | None) -> bool:
    return row["state"] == 0 and not (filters and row[filters])
