"""A trace: the rows of one batch, the steps of the real chain, and the outcomes. Nothing is written.

Every row passes every stage once, as in a run, and columns beside the row record it after every step. The views are
`preview`, `wherry test`, `compare`, `find`, `dlq explain` and the preview of a fix. They ask Spark for what they show.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal, TypeAlias, TypeVar

from origins.batch import JSON, Batch
from origins.codec import UNSTORED
from origins.lazy import Column, DataFrame, F, T, pyspark
from origins.names import HIDDEN
from origins.origin import PLACE
from runners.model.causes import CauseCounter
from runners.model.error_kinds import classify
from runners.model.errors import Refusal
from runners.model.spec import PipelineSpec
from runners.operations.row_condition import MATCHES, RowCondition
from runners.state.prepared_store import MemoryStore
from runners.ways.batch_source import list_columns
from runners.ways.bisect_rows import RowErrorIsolator, split_runs
from runners.ways.deciding import FILTERED_BY, BatchDecision, pass_branches
from runners.ways.row_outcomes import count_by_spark, group_refusals
from runners.ways.stage_chain import PlacedStage, StageChain, apply_chain, make_labels
from stages.capabilities import StatesRules
from stages.rows import (
    ORIGINAL,
    REFUSED_BY_ORIGIN,
    STATE,
    VERDICT,
    Expression,
    Rows,
    complete_verdicts,
    compute_once,
    encode_struct,
    make_rows,
    make_struct,
    take_live,
)

Found = TypeVar("Found")
PassRows: TypeAlias = "Callable[[Rows, StageChain, Mapping[str, JSON]], Trace]"

SEEN = HIDDEN + "seen"
FILTERED = HIDDEN + "filtered"


def ask(view: Callable[[PassRows], Found]) -> Found:
    """Return what a view finds. If a row may have made a stage raise, ask again, with traces that isolate such rows.

    `view` gets `Trace.of`.
    """
    try:
        return view(Trace.of)
    except Exception as error:  # a stage may raise anything
        if isinstance(error, Refusal) or not classify(error).is_row:
            raise
        return view(functools.partial(Trace.of, isolates=True))


def begin_rows(frame: DataFrame, batch: Batch, parts: Sequence[str], *, most: int | None = None) -> Rows:
    """Return the rows of `RowSource.fetch`, with their places, ready for a trace. `most` limits their number."""
    frame = frame if most is None else frame.orderBy(*list_arrival_columns(parts)).limit(most)
    rows = make_rows(frame, list_columns(batch), make_labels(batch))
    return replace(rows, parts=parts, hold=_hold_nothing, claims=None)


def choose_rows(rows: Rows, condition: RowCondition, chain: StageChain) -> Rows:
    """Return the rows, marked so that a trace shows only those for which the condition is true.

    The other rows pass the stages too, because a stage may compare rows. They are left out if a stage changes rows,
    because Wherry cannot recognise a row after that stage.
    """
    frame = condition.mark(rows.frame, F.col(STATE) != REFUSED_BY_ORIGIN)
    if any(step.stage.changes_rows for step in chain.steps):
        return rows.with_frame(frame.where(F.col(MATCHES)).drop(MATCHES))
    return replace(rows.with_frame(frame), kept=(*rows.kept, MATCHES))


def list_arrival_columns(parts: Sequence[str]) -> list[Column]:
    """Return the columns that sort rows in the order in which they were read."""
    part = F.array_position(F.lit(list(parts)), F.col(PLACE)["part"])
    return [part, F.col(PLACE)["block"], F.col(PLACE)["row"]]


@dataclass(frozen=True, kw_only=True)
class Trace:
    """The rows of one batch after all stages, with what became of them."""

    chain: StageChain
    pins: Mapping[str, JSON]
    rows: Rows
    """The rows as they were read."""
    sections: list[Section] = field(default_factory=list)
    findings: dict[str, Sequence[Mapping[str, JSON]]] = field(default_factory=dict)
    """What stages found out about the batch, by stage."""

    @staticmethod
    def of(rows: Rows, chain: StageChain, pins: Mapping[str, JSON], *, isolates: bool = False) -> Trace:
        """Pass the rows of `begin_rows` through the chain. Spark computes them when a view asks.

        With `isolates`, the stages refuse the rows at which they raise. No failing batch stops, so that all steps are
        seen.
        """
        trace = Trace(chain=chain, pins=pins, rows=rows, sections=[Section()])
        rows = replace(rows, materialise=trace._end_section, note_finding=trace.findings.__setitem__)
        isolator = _make_isolator(rows, chain, pins) if isolates else None
        rows = trace._record(rows)
        for run in split_runs(chain.common):
            rows = trace._pass(isolator.isolate(rows, run) if isolator else rows, run)
        rows = trace._pass_branches(isolator.isolate_for_branches(rows) if isolator else rows)
        trace.sections[-1].frame = complete_verdicts(rows).frame
        return trace

    def begin_again(self, outcome: str) -> Rows:
        """Return the rows as they were read, for another trace. The column `outcome` has what `Section.pack` gives.

        No stage may have changed rows.
        """
        (section,) = self.sections
        is_unread = F.col(STATE) == REFUSED_BY_ORIGIN
        frame = section.frame.select(
            F.col(PLACE),
            F.when(is_unread, F.col(STATE)).otherwise(0).alias(STATE),
            F.when(is_unread, F.col(VERDICT)).alias(VERDICT),
            F.col(ORIGINAL),
            *map(F.col, self.rows.kept),
            section.pack().alias(outcome),
            *[F.col(ORIGINAL)[name].alias(name) for name in self.rows.names],
        )
        return replace(self.rows.with_frame(frame), kept=(*self.rows.kept, outcome))

    def select_delivered(self, destination: str) -> DataFrame:
        """Return the rows that one destination gets, as text in the column `row`."""
        section = self.sections[-1]
        frame = section.frame.where(section.find_exit(destination) == 0)
        return frame.select(section.get_last(destination).encode().alias("row"))

    def name_step(self, state: int) -> str:
        """Return the name of the stage that filtered or refused rows of this state; empty for live rows."""
        names = {0: "", -REFUSED_BY_ORIGIN: "origin", **{step.number: step.name for step in self.chain.steps}}
        return names[abs(state)]

    def list_failures(self) -> Iterator[tuple[str, StatesRules, Sequence[str]]]:
        """Yield the stages at which the whole batch fails, each with why: a line for each expectation."""
        for step in self.chain.steps:
            if step.name in self.findings and isinstance(step.stage, StatesRules):
                why = step.stage.list_failures(self.findings[step.name])
                yield from [(step.name, step.stage, why)] if why else []

    def collect(self, most: int) -> Examples:
        """Return at most so many rows of each outcome, and how many such rows there are."""
        found = [section.collect(most, self.rows.parts) for section in self.sections]
        rows, groups = ([row for each in found for row in each[at]] for at in (0, 1))
        return Examples(trace=self, most=most, rows=rows, groups=groups)

    def _pass(self, rows: Rows, steps: Sequence[PlacedStage], destination: str = "") -> Rows:
        for step in steps:
            before = self.sections[-1].get_last(destination).column
            rows = apply_chain(rows, [_without_stop(step)], self.pins, checked=True)
            if step.stage.changes_rows:
                self.sections.append(Section())
            rows = self._record(rows, before, destination)
        return rows

    def _pass_branches(self, rows: Rows) -> Rows:
        section, branches = self.sections[-1], {name: steps for name, steps in self.chain.branches.items() if steps}
        section.filters.update({name: f"{FILTERED}{at}" for at, name in enumerate(branches)})

        def own(rows: Rows, name: str) -> tuple[Rows, Mapping[str, Expression]]:
            return self._pass(rows, branches[name], name), {section.filters[name]: FILTERED_BY}

        return pass_branches(rows, branches, own)

    def _record(self, rows: Rows, before: str = "", destination: str = "") -> Rows:
        section = self.sections[-1]
        column, filters = f"{SEEN}{len(section.snapshots)}", section.filters.get(destination, "")
        section.snapshots.append(
            Snapshot(
                number=rows.step,
                name=rows.stage,
                column=column,
                schema=rows.schema.json(),
                before=before,
                filters=filters,
            )
        )
        query = rows.query.select("*", compute_once(make_struct(rows.names), column))
        return replace(rows, query=query, kept=(*rows.kept, column))

    def _end_section(self, rows: Rows) -> DataFrame:
        """Return the live rows, for a stage that changes rows."""
        self.sections[-1].frame = complete_verdicts(rows).frame
        return take_live(rows)


@dataclass
class Section:
    """The rows up to a step that changes rows, or to the end."""

    snapshots: list[Snapshot] = field(default_factory=list)
    filters: dict[str, str] = field(default_factory=dict)
    """By destination, the column that records which of its stages filtered a row."""
    frame: DataFrame = field(init=False)
    """All rows with their states and verdicts, and the columns of the snapshots and filters."""

    def get_last(self, destination: str = "") -> Snapshot:
        """Return the last snapshot on the way to a destination."""
        return [each for each in self.snapshots if each.filters in ("", self.filters.get(destination, ""))][-1]

    def get_schema(self, destination: str) -> T.StructType:
        """Return the columns of the rows that a destination gets."""
        return T.StructType.fromJson(json.loads(self.get_last(destination).schema))

    def pack(self) -> Column:
        """Return the outcome of a row for every destination as one column."""
        rows = dict.fromkeys(each.column for each in [self.get_last(), *map(self.get_last, self.filters)])
        return F.struct(STATE, VERDICT, *self.filters.values(), *rows)

    def find_exit(self, destination: str, of: str = "") -> Column:
        """Return at which step a row left on its way to a destination, as in `STATE`; 0 if the destination gets it.

        `of` names the column into which `pack` put the outcome.
        """
        names = [STATE, *([self.filters[destination]] if destination in self.filters else [])]
        state, *filters = [F.col(f"{of}.{name}" if of else name) for name in names]
        return F.when(state != 0, state).otherwise(filters[0] if filters else 0)

    def collect(self, most: int, parts: Sequence[str]) -> tuple[list[Example], list[Example]]:
        """Return the first rows of each outcome, and the refused rows in groups.

        Groups cost no more queries unless more rows were refused than `most`.
        """
        frame = self.frame.where(F.col(MATCHES)) if MATCHES in self.frame.columns else self.frame
        filters, seen = [*self.filters.values()], [each.column for each in self.snapshots]
        needed = frame.select(PLACE, STATE, VERDICT, *filters, *seen)
        outcome: list[Column | str] = [F.col(STATE).alias("state"), *filters]
        outcome += [F.col(VERDICT)[name].alias(name) for name in ("code", "message", "row")]
        arrival = list_arrival_columns(parts)
        alike = pyspark.sql.Window.partitionBy(STATE, F.col(VERDICT)["code"], *filters)
        nth = F.row_number().over(alike.orderBy(*arrival)).alias("nth")
        first = needed.select("*", nth, F.count(F.lit(1)).over(alike).alias("alike")).where(F.col("nth") <= most)
        texts = [each.encode().alias(each.column) for each in self.snapshots]
        counted = F.when(F.col("nth") == 1, F.col("alike")).otherwise(0).alias("alike")
        query = first.select(*outcome, *texts, counted, F.array(*arrival).alias("arrival"))
        found = sorted((self._make_example(row.asDict()) for row in query.collect()), key=lambda row: row.arrival)
        refused = [row for row in found if row.state < 0]
        if all(row.alike <= most for row in refused):
            return found, [replace(row, alike=1, files=[*parts][row.part - 1 : row.part]) for row in refused]
        rows = needed.where(F.col(STATE) < 0).select(*outcome, texts[0], F.col(PLACE)["part"].alias("part"))
        groups = group_refusals(rows, ["state", "code", *filters], ["message", "row", seen[0]])
        return found, [self._make_example(group) for group in groups]

    def _make_example(self, row: Mapping[str, JSON]) -> Example:
        names = ("state", "code", "message", "row", "alike", "arrival", "files")
        return Example(section=self, seen=row, **{name: row[name] for name in names if name in row})


@dataclass(frozen=True, kw_only=True)
class Snapshot:
    """The column with the rows after a step. The column `before` has the rows that did not leave the step."""

    number: int
    """The number of the step; 0 for the rows as they were read."""
    name: str
    column: str
    schema: str
    before: str
    filters: str = ""
    """The column with the filters of the step's destination; empty for a step that all rows pass."""

    def encode(self, of: str = "") -> Column:
        """Return the rows as text. `of` names the column into which `Section.pack` put them."""
        return F.expr(encode_struct(f"{of}.{self.column}" if of else self.column, self.schema))


@dataclass(frozen=True, kw_only=True)
class Examples:
    """What was collected from a trace."""

    trace: Trace
    most: int
    rows: Sequence[Example]
    groups: Sequence[Example]
    """The refused rows in groups: one row of each group, with the group's number of rows and files."""

    def list_rows(self, section: Section | None = None) -> Sequence[Example]:
        """Return the rows of a section, by default as they were read."""
        return [row for row in self.rows if row.section is (section or self.trace.sections[0])]

    def find_delivered(self, row: Example, destination: str) -> str | None:
        """Return the row as a destination gets it, as text; None if the destination does not get it."""
        section = self.trace.sections[-1]
        gone = row.section is not section or row.state or row.seen.get(section.filters.get(destination, ""))
        return None if gone else str(row.seen[section.get_last(destination).column])

    def count_delivered(self) -> Mapping[str, int]:
        """Return how many rows each destination gets."""
        return {
            name: sum(row.alike for row in self.rows if self.find_delivered(row, name) is not None)
            for name in self.trace.chain.branches
        }

    def count_causes(
        self, groups: Iterable[Example], counter: CauseCounter, pipeline: PipelineSpec, source: str = ""
    ) -> None:
        """Count the causes of these groups.

        `source` is where all rows came from, if a person knows that better than their parts.
        """
        for group in groups:
            refusal = {**show_example(group, pipeline), "stage": self.trace.name_step(group.state)}
            counter.add(refusal, group.alike, [source] if source else group.files)

    def show_rows(self, pipeline: PipelineSpec, beside: str = "") -> Iterator[TracedRow]:
        """Yield the masked rows as they were read, each with its outcome.

        Each shows its values before and after the stage with the name `beside`.
        """
        section, name_step = self.trace.sections[0], self.trace.name_step
        changing = next((step.name for step in self.trace.chain.common if step.stage.changes_rows), "")
        near = next((each for each in section.snapshots if beside and each.name == beside), None)
        for row in self.list_rows():
            filtered = {name: name_step(at) for name, column in section.filters.items() if (at := row.seen[column])}
            wanted = [name for name in self.trace.chain.branches if self.find_delivered(row, name) is not None]
            live: Literal["changed", "wanted", "filtered"] = (
                "changed" if changing else "wanted" if wanted else "filtered"
            )
            yield TracedRow(
                **show_example(row, pipeline),
                outcome="rejected" if row.state < 0 else "filtered" if row.state else live,
                stage=name_step(row.state) if row.state else changing,
                destinations=wanted,
                filtered_for={} if row.state else filtered,
                position=row.arrival[2],
                alike=row.alike,
                before=show_text(row, near.before, pipeline) if near else None,
                after=show_text(row, near.column, pipeline) if near and row.has_left(near) else None,
            )


@dataclass(frozen=True, kw_only=True)
class Example:
    """A row of a section, with its outcome."""

    section: Section = field(repr=False)
    seen: Mapping[str, JSON]
    """By column, the row after each step as text, and which step filtered it for a destination."""
    state: int
    """As in `STATE`."""
    code: str | None
    message: str | None
    row: str | None
    """A refused row as it was at the refusal, as text."""
    alike: int
    """The number of rows with the same outcome, at the first of them; 0 at the others."""
    arrival: list[int] = field(default_factory=list)
    """Its part of the batch, from 1, and its place in that part."""
    files: Sequence[str] = ()
    """The files with such rows."""

    @property
    def as_read(self) -> str:
        """The row as it entered the section, as text."""
        return str(self.seen[self.section.snapshots[0].column])

    @property
    def part(self) -> int:
        """The number of its part of the batch, from 1; 0 for a row that a stage made."""
        return self.arrival[0]

    def has_left(self, at: Snapshot) -> bool:
        """Whether the row was still live after a step, or filtered for its destination only."""
        return not self.state or (self.state != REFUSED_BY_ORIGIN and abs(self.state) > at.number)

    def find_outcome(self, at: Snapshot) -> Literal["kept", "filtered", "refused", ""]:
        """Return the outcome at a step; empty if the row did not reach it."""
        filtered = self.seen[at.filters] if at.filters else 0
        left: list[tuple[int, Literal["filtered", "refused"]]] = [(filtered, "filtered")] if filtered else []
        if self.state:
            number = 0 if self.state == REFUSED_BY_ORIGIN else abs(self.state)
            left.append((number, "refused" if self.state < 0 else "filtered"))
        number, how = min(left, default=(at.number + 1, "refused"))
        return "kept" if number > at.number else how if number == at.number else ""


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
    position: int = field(default=0, metadata=UNSTORED)
    """The place of the row in its part of the batch, as in `PLACE`."""
    alike: int = field(default=0, metadata=UNSTORED)
    """The number of rows in the batch with this outcome, at the first of them; 0 at the others."""
    before: JSON = field(default=None, metadata=UNSTORED)
    """The masked row before the stage that a view names."""
    after: JSON = field(default=None, metadata=UNSTORED)
    """The masked row after that stage; None if the row did not leave the stage."""


def show_example(row: Example, pipeline: PipelineSpec) -> dict[str, JSON]:
    """Return the masked `row` as it entered its section; for a refused row, as it was at the refusal and why."""
    if row.state >= 0:
        return {"row": show_text(row, row.section.snapshots[0].column, pipeline)}
    stage = "origin" if row.state == REFUSED_BY_ORIGIN else None
    nack = {
        "stage": stage,
        "message": row.message,
        "row": json.loads(row.row or ""),
        "original": json.loads(row.as_read),
    }
    nack = pipeline.mask_nack(nack)
    return {"row": nack["row"], "code": row.code, "message": nack["message"]}


def show_text(row: Example, column: str, pipeline: PipelineSpec) -> JSON:
    """Return the masked row after the step that a column records."""
    return pipeline.mask_row(json.loads(row.seen[column]), json.loads(row.as_read))


def _hold_nothing(rows: Rows, note: str) -> tuple[Rows, Mapping[str, int]]:
    """Return the rows unchanged, because nothing is written, and the number of rows with each note.

    A stage that needs the whole batch computes it again.
    """
    return rows, count_by_spark(rows.frame, [note])[note] if note else {}


def _without_stop(step: PlacedStage) -> PlacedStage:
    """Return the step in a form that stops no batch that fails as a whole, so that later steps can be seen."""
    return replace(step, stage=step.stage.without_stop()) if isinstance(step.stage, StatesRules) else step


def _make_isolator(rows: Rows, chain: StageChain, pins: Mapping[str, JSON]) -> RowErrorIsolator:
    spark, store = rows.frame.sparkSession, MemoryStore()
    return RowErrorIsolator(
        BatchDecision(spark=spark, store=store, name="preview", chain=chain, pins=pins, order=rows.parts)
    )
