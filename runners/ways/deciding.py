"""Decides a batch: every row gets its verdict once, and Wherry writes the decision down before any delivery."""

from __future__ import annotations

import functools
import uuid
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeAlias, TypeVar

from origins.batch import JSON
from origins.capabilities import check_source
from origins.lazy import DataFrame, F, SparkSession, pa
from origins.names import HIDDEN, quote_name, quote_text
from origins.origin import PLACE
from runners.model.planned_batch import Counts
from runners.model.tasks import Prepared
from runners.state.decided_rows import NACKED, WHY, make_block_key, read_apart, scan_apart
from runners.state.prepared_store import PreparedStore
from runners.ways.batch_source import list_columns, strip_lane_prefix
from runners.ways.row_outcomes import (
    PLACE_COLUMNS,
    VERDICT_COLUMNS,
    NoteObserver,
    RowOutcomes,
    by_arrow,
    count_by_spark,
    count_notes,
    count_sections,
    group_by_arrow,
    group_by_spark,
    is_filter,
)
from runners.ways.stage_chain import StageChain, apply_chain, make_labels
from runners.ways.way import Candidate, Thresholds
from stages.expressions import SqlText
from stages.query import Schemas
from stages.rows import (
    NOTE,
    ORIGINAL,
    POISON,
    STATE,
    VERDICT,
    Expression,
    Rows,
    complete_verdicts,
    compute_once,
    list_notes,
    make_rows,
    make_struct,
)

B = TypeVar("B")
Noted: TypeAlias = "Callable[[str, Sequence[str]], Mapping[str, Mapping[str, int]]]"
"""Counts the notes in some columns of a section."""

COMMON = HIDDEN + "common"
BEFORE = HIDDEN + "before"
"""The columns and the state with which every branch begins."""
FILTERED_BY = SqlText(f"if({BEFORE} = 0 AND {STATE} > 0, {STATE}, 0)")
"""SQL for the step of a destination that filtered a row; 0 if none did."""


@dataclass
class BatchDecision:
    """A batch that is being decided.

    `sections` are the rows in the store: one section, and one more after each stage that changes rows.
    """

    spark: SparkSession
    store: PreparedStore
    name: str
    chain: StageChain
    pins: Mapping[str, JSON]
    order: Sequence[str]
    """The parts of the batch, in the order in which their rows count as read."""
    sections: list[str] = field(default_factory=list)
    findings: dict[str, JSON] = field(default_factory=dict)
    """The findings of stages about the batch, by the stages' names."""
    noted: list[Sequence[str]] = field(default_factory=list)
    """The columns with notes that each section has."""
    passed: Rows | None = None
    """The rows after all common stages, if no section had to be written before."""
    described: DataFrame = field(init=False)
    """The rows after all stages, with their verdicts."""
    check: Callable[[], None] = lambda: None
    """Raises if the batch is no longer what was planned; `FetchesAhead.check`."""
    holds: int = 0
    """How often rows were written down between stages, for a stage that judges them."""
    protected: Sequence[str] = ()
    """The columns whose values are masked."""
    keeps_filtered: bool = False
    """Whether filtered rows are written as they were before the stage."""
    claims: bool = False
    """Whether stages put large values into their store and read them from it."""
    limits: Thresholds = field(default_factory=Thresholds)
    count_parts: Callable[[], Mapping[str, int] | None] = lambda: None
    """Returns the number of rows of each part, if it is known; `BatchRows.count_parts`."""

    @staticmethod
    def of(
        batch: Candidate, spark: SparkSession, store: PreparedStore, protected: Sequence[str], schemas: Schemas
    ) -> tuple[BatchDecision, Rows]:
        """Return the decision for this batch, under a unique name, and the batch's rows as they were read."""
        plan, rows = batch.plan, batch.rows
        assert plan is not None
        assert rows is not None
        mine = strip_lane_prefix(plan.batch)
        work = BatchDecision(
            spark=spark,
            store=store,
            name=f"{plan.batch.plan}-{uuid.uuid4().hex[:8]}",
            chain=batch.chain,
            pins=plan.pins,
            order=batch.origin.parts(mine),
            protected=protected,
            keeps_filtered=batch.keeps_filtered,
            claims=batch.claims,
            check=lambda: check_source(batch.origin, spark, mine),
            limits=batch.thresholds,
            count_parts=rows.count_parts,
        )
        names, labels = list_columns(plan.batch), make_labels(plan.batch)
        return work, make_rows(rows.frame(), names, labels, work.keep, schemas=schemas)

    def describe(self, rows: Rows) -> DataFrame:
        """Return the rows after all stages, with their verdicts. Rows before a stage that changes rows are written."""
        passed = apply_chain(self.begin_rows(rows), self.chain.common, self.pins)
        self.passed = None if self.sections else passed
        return apply_branches(passed, self.chain, self.pins)

    def begin_rows(self, rows: Rows) -> Rows:
        """Return the rows, set up to pass the stages."""
        return replace(
            rows,
            materialise=self.keep,
            hold=self.hold,
            note_finding=self.findings.__setitem__,
            protected=tuple(self.protected),
            keeps_filtered=self.keeps_filtered,
            claims=self.claims,
            parts=self.order,
        )

    def decide_by(self, groups: Sequence[Sequence[Mapping[str, JSON]]], noted: Noted | None = None) -> Prepared:
        """Return the decision for sections that were written, from the groups of their rows."""
        counts = count_sections(self.chain, [RowOutcomes.of(each) for each in groups])
        placed = self._place_refused(groups, replace(counts, findings=self._collect_findings(noted)))
        return replace(placed, stops=self._list_stopping_stages(placed.counts))

    def decide_apart(self) -> Prepared:
        """Write the rows apart by their states, and return the decision that follows from the files."""
        rows = self.passed
        assert rows is not None, "no stage before changes rows"
        observer, section = NoteObserver.of(rows, self.chain.common), f"{self.name}-0"
        self.store.write(section, separate_rows(observer.rows), by=STATE)
        self.record_section(list_notes(rows))
        outcomes = RowOutcomes(states=self.store.count_by(self.spark, section, STATE))
        table = scan_apart(self.store, section, lambda state: state < 0) if outcomes.refused else None
        groups = self._group_apart(rows, outcomes.rows, table) if outcomes.refused else []
        noted = observer.count_notes(
            outcomes,
            lambda names: count_by_spark(self._read_refused(), names) if table is None else by_arrow(table, names),
        )
        others = [name for name in list_notes(rows) if name not in noted]
        every = {**noted, **(count_by_spark(rows.frame, others) if others else {})}
        self.check()
        findings = self._collect_findings(lambda _, asked: {name: every[name] for name in asked})
        counts = replace(count_sections(self.chain, [outcomes]), findings=findings)
        return replace(self._place_refused([groups], counts), stops=self._list_stopping_stages(counts))

    def _read_refused(self) -> DataFrame:
        """Return the refused rows that were written apart."""
        return read_apart(self.store.read(self.spark, self.sections[-1])).where("state < 0")

    def _group_apart(self, rows: Rows, count: int, table: pa.Table | None) -> Sequence[Mapping[str, JSON]]:
        """Return the groups of so many rows that were written apart. A refused row counts with the rows of its block.

        Spark is asked for the blocks, unless the origin knows them. `table` has the refused rows; None if Spark has to
        read them.
        """
        counts, whole = self.count_parts() or {}, {"block": 0, "state": 0, "first": 0, "refused": ()}
        blocks: Sequence[Mapping[str, JSON]] = [{**whole, "part": part, "rows": each} for part, each in counts.items()]
        if sum(counts.values()) != count:
            blocks = group_by_spark(rows.frame.selectExpr(*PLACE_COLUMNS, "0 AS state"))
        refused = group_by_spark(self._read_refused()) if table is None else group_by_arrow(table)
        return [*blocks, *({**group, "rows": 0} for group in refused)]

    def _collect_findings(self, noted: Noted | None = None) -> Mapping[str, JSON]:
        """Return the findings of the stages: reported while the batch was judged, or from the notes beside its rows.

        `noted` counts the notes. By default, they are counted from the rows that were written.
        """
        noted = noted or functools.partial(count_notes, self.spark, self.store)
        names = {f"{NOTE}{step.number}": step for step in self.chain.steps if step.name not in self.findings}
        for section, frame in zip(self.sections, self.noted, strict=True):
            asked = [name for name in frame if name in names]
            for name, notes in noted(section, asked).items():
                finding = names[name].stage.summarise_notes(notes)
                if finding is not None:
                    self.findings[names[name].name] = finding
        return self.findings

    def _list_stopping_stages(self, counts: Counts) -> Sequence[str]:
        """Return the stages that refused a row and then stop the run."""
        stop = {step.name for step in self.chain.steps if step.stage.on_error == "stop"}
        return [stage.stage for stage in counts.stages if stage.nacked and stage.stage in stop]

    def keep(self, rows: Rows) -> DataFrame:
        """Write rows that reach a stage which changes rows. Return the live ones."""
        live = f"if({STATE} = 0, {make_struct(rows.names)}, NULL) AS live"
        self.write(complete_verdicts(rows).query.select(*VERDICT_COLUMNS, *list_notes(rows), live).frame)
        written = self.store.read(self.spark, self.sections[-1])
        return written.where(F.col("live").isNotNull()).select("live.*")

    def hold(self, rows: Rows, note: str) -> tuple[Rows, Mapping[str, int]]:
        """Write the current rows for a stage that judges the batch, as `Rows.hold` describes."""
        name = f"{self.name}-held{self.holds}"
        self.holds += 1
        self.store.write(name, rows.frame)
        notes = count_notes(self.spark, self.store, name, [note] if note else [])
        return rows.with_frame(self.store.read(self.spark, name)), notes.get(note, {})

    def write_few(self) -> pa.Table | None:
        """Write the rows in this process, as the only section, and return them. None if Spark has to write them."""
        table = None if self.sections else self.store.write_few(f"{self.name}-0", self.described)
        if table is not None:
            self.record_section(self.described.columns)
        return table

    def write(self, frame: DataFrame) -> None:
        """Write a section."""
        self.store.write(f"{self.name}-{len(self.sections)}", frame)
        self.record_section(frame.columns)

    def group_section(self, section: str) -> Sequence[Mapping[str, JSON]]:
        """Return the groups of the rows in a section that was written."""
        keys = ("part", "block", "row", "state")
        found = self.store.scan(section, lambda column: column in keys or is_filter(column))
        return (
            group_by_spark(self.store.read(self.spark, section)) if found is None else group_by_arrow(found.read_all())
        )

    def record_section(self, columns: Sequence[str]) -> None:
        """Record one more section, which has these columns."""
        self.sections.append(f"{self.name}-{len(self.sections)}")
        self.noted.append([name for name in columns if name.startswith(NOTE)])

    def _place_refused(self, sections: Sequence[Sequence[Mapping[str, JSON]]], counts: Counts) -> Prepared:
        """Return the decision with the refused rows' places in the batch, counted from 1.

        Rows of later sections come after the last row of the batch.
        """
        if not counts.nacked:
            return Prepared(path=self.name, sections=len(sections), counts=counts)
        bases: dict[str, int] = {}
        nacks: list[int] = []
        before = 0
        for number, groups in enumerate(sections):
            found, refused = _compute_bases(groups, self.order if number == 0 else ("",), before)
            bases.update({f"{number}:{key}": base for key, base in found.items() if key in refused})
            for group in groups:
                base = found[make_block_key(group["part"], group["block"])]
                nacks += [min(base + row, counts.read) for row in group["refused"]]
            before += sum(group["rows"] for group in groups)
        return Prepared(path=self.name, sections=len(sections), counts=counts, nacks=sorted(nacks), bases=bases)


def separate_rows(rows: Rows) -> DataFrame:
    """Return the rows with `STATE`, with their columns if they are live, and else with `WHY` if it is stored."""
    stored = f"{STATE} <> 0" if rows.keeps_filtered else f"{STATE} < 0"
    live = [f"if({STATE} = 0, {quote_name(name)}, NULL) AS {quote_name(name)}" for name in rows.names]
    place = [f"'{name}', {PLACE}.{name}" for name in ("part", "block", "row")]
    noted = [f"'{name}', {name}" for name in list_notes(rows)]
    why = ", ".join([*place, f"'{NACKED}', {VERDICT}", *noted])
    whole = complete_verdicts(rows).query
    return whole.select(STATE, *live, f"if({stored}, named_struct({why}), NULL) AS {WHY}").frame


def apply_branches(rows: Rows, chain: StageChain, pins: Mapping[str, JSON]) -> DataFrame:
    """Return the rows with what each destination would get (`b0`, `b1` …), and what its stages filtered (`f0` …).

    All destinations without stages share one column (`live`). If filtered rows are kept, there are columns for them
    (`k0`, `k1` …).

    Every branch begins with the common columns. A row that one branch refuses is refused for all, and no later branch
    looks at it. A row that a branch filters stays live in the others.
    """
    names = rows.names
    own_stages = {index: steps for index, steps in enumerate(chain.branches.values()) if steps}
    destinations = list(chain.branches)
    if not own_stages:
        live = f"if({STATE} = 0, {make_struct(names)}, NULL) AS live"
        return complete_verdicts(rows).query.select(*VERDICT_COLUMNS, *list_notes(rows), live).frame

    def own(rows: Rows, index: int) -> tuple[Rows, Mapping[str, Expression]]:
        branch = apply_chain(rows, own_stages[index], pins)
        live = SqlText(f"if({STATE} = 0, {make_struct(branch.names)}, NULL)")
        beside: dict[str, Expression] = {f"b{index}": live, f"f{index}": FILTERED_BY}
        if rows.keeps_filtered:
            branch = complete_verdicts(branch)
            kept = F.col(VERDICT).withField("destination", F.lit(destinations[index]))
            beside[f"k{index}"] = F.when(F.expr(f"{FILTERED_BY} != 0"), kept)
        return branch, beside

    rows = pass_branches(rows, own_stages, own)
    kept = [name for name in rows.kept if name not in (COMMON, BEFORE, POISON)]
    if len(own_stages) < len(chain.branches):
        kept.append(f"if({STATE} = 0, {COMMON}, NULL) AS live")
    return complete_verdicts(rows).query.select(*VERDICT_COLUMNS, *kept).frame


def pass_branches(
    rows: Rows, branches: Iterable[B], own: Callable[[Rows, B], tuple[Rows, Mapping[str, Expression]]]
) -> Rows:
    """Return the rows after every branch. Each branch begins with the common columns.

    `own` returns the rows after one branch, and the columns to keep beside them.
    """
    names = rows.names
    common, before = compute_once(make_struct(names), COMMON), compute_once(SqlText(STATE), BEFORE)
    rows = replace(rows, query=rows.query.select("*", common, before), kept=(*rows.kept, COMMON, BEFORE))
    for each in branches:
        branch, beside = own(rows, each)
        state = f"if({STATE} < 0, {STATE}, {BEFORE})"
        verdict = f"if({state} != 0, {VERDICT}, NULL)" if rows.keeps_filtered else VERDICT
        query = branch.query.select(
            PLACE,
            compute_once(SqlText(verdict), VERDICT),
            ORIGINAL,
            compute_once(SqlText(state), STATE),
            compute_once(SqlText(state), BEFORE),
            *[name for name in branch.kept if name != BEFORE],
            *[compute_once(column, name) for name, column in beside.items()],
            *[compute_once(SqlText(f"{COMMON}[{quote_text(name)}]"), name) for name in names],
        )
        rows = replace(rows, query=query, kept=(*branch.kept, *beside), judged=branch.judged)
    return rows


def _compute_bases(
    groups: Sequence[Mapping[str, JSON]], order: Sequence[str], before: int
) -> tuple[dict[str, int], set[str]]:
    """Return, for each block, what to add to a row's number to get its place, and the blocks with a refused row."""
    rows, first, refused = Counter[tuple[str, int]](), dict[tuple[str, int], int](), set[str]()
    for group in groups:
        block = (group["part"], group["block"])
        rows[block] += group["rows"]
        first[block] = min(group["first"], first.get(block, group["first"]))
        if group["state"] < 0:
            refused.add(make_block_key(*block))
    rank = {part: number for number, part in enumerate(order)}
    bases = {}
    for part, start in sorted(rows, key=lambda block: (rank[block[0]], block[1])):
        bases[make_block_key(part, start)] = before + 1 - first[part, start]
        before += rows[part, start]
    return bases, refused
