"""Deciding a batch: every row gets its verdict, once, and what was decided is written down before any delivery."""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, TypeAlias

from pyspark.sql import functions as F

from origins.batch import JSON
from origins.names import HIDDEN, quoted
from origins.origin import PLACE
from runners.copying import Copying
from runners.counting import stage_counts
from runners.counts import Branch, Counts, StageCount
from runners.groups import by_arrow, groups_of
from runners.line import Line, Step, passing
from runners.notes import notes_of
from runners.outcome import Prepared
from runners.picking import Picking
from runners.verdicts import Verdicts, Witness, verdict
from stages.rows import NOTE, ORIGINAL, POISON, REFUSED_BY_ORIGIN, STATE, VERDICT, Marked

if TYPE_CHECKING:
    from pathlib import Path

    import pyarrow
    from pyspark.sql import Column, DataFrame, SparkSession

    from runners.plan import Decision
    from runners.store import Store

Noted: TypeAlias = "Callable[[str, Sequence[str]], Mapping[str, Mapping[str, int]]]"
"""Counts the notes in some columns of a section."""

NACKED = "nack"
COPIES, PICKS = "copies", "picks"
"""How live rows are written by themselves: copied out of the files in which they were read, or picked by Spark."""
LIVE = "-live"
"""Behind the name of a batch: where its live rows lie, if they lie by themselves."""
COMMON = HIDDEN + "common"
BEFORE = HIDDEN + "before"
"""The columns and the state that every branch begins with."""


@dataclass
class Preparation:
    """One batch being decided. `sections` are what lies in the store: one, and one more behind each stage that
    changes rows."""

    spark: SparkSession
    store: Store
    name: str
    line: Line
    pins: Mapping[str, JSON]
    order: Sequence[str]
    """The parts of the batch in the order in which their rows count as read."""
    sections: list[str] = field(default_factory=list)
    seen: list[Verdicts | None] = field(default_factory=list)
    """The verdicts of each section, if they were seen for sure."""
    findings: dict[str, JSON] = field(default_factory=dict)
    """What stages found out about the batch, by their names."""
    noted: list[Sequence[str]] = field(default_factory=list)
    """The columns with notes that each section has."""
    passed: Marked | None = None
    """The rows behind all common stages, if nothing had to be written before."""
    in_vain: set[str] = field(default_factory=set)
    """The ways in which it was to be decided, and that did not do for its rows: `COPIES` and `PICKS`."""
    lying: Callable[[], Mapping[str, Path]] = dict
    """The files in which the rows lie as they were read, if they do; `Origin.files_here`."""
    check: Callable[[], None] = lambda: None
    """Raises if the batch is not what was planned any more; `Origin.check`."""
    holds: int = 0
    """How often rows were written down on their way, to be judged."""
    protected: Sequence[str] = ()
    """The columns whose values nobody is shown."""

    def describe(self, rows: Marked) -> DataFrame:
        """The rows behind all stages, with their verdicts. What stands before a stage that changes rows is written."""
        passed = passing(self.ready(rows), self.line.common, self.pins)
        self.passed = None if self.sections else passed
        return branched(passed, self.line, self.pins)

    def ready(self, rows: Marked) -> Marked:
        """The rows as they begin their way."""
        return replace(
            rows,
            materialise=self.keep,
            hold=self.hold,
            tell=self.findings.__setitem__,
            protected=tuple(self.protected),
            parts=self.order,
        )

    def decide(self, described: DataFrame, *, few: bool = False, ways: Collection[str] = ()) -> Prepared:
        """Write the rows with their verdicts, and count them; `few` may pass through this process. In these `ways`, if
        they can be gone, the live rows are written by themselves."""
        if few and not self.sections:
            table = self.store.write_few(f"{self.name}-0", described)
            if table is not None:
                self._lies(described)
                return self._asked([by_arrow(table)])
        for way in (COPIES, PICKS):
            prepared = self._by_themselves(described, way) if way in ways and not few else None
            if prepared is not None:
                return prepared
        branches = {f"f{index}": steps for index, steps in enumerate(self.line.branches.values())}
        self._write(described, branches)
        seen = [each for each in self.seen if each is not None]
        if len(seen) == len(self.sections):
            counts = replace(self._counted(seen), findings=self._found())
            return Prepared(path=self.name, sections=len(self.sections), counts=counts)
        return self._asked([groups_of(self.spark, self.store, section) for section in self.sections])

    def _by_themselves(self, described: DataFrame, way: str) -> Prepared | None:
        """Decide in one pass; None, and nothing of it is left, where that was not possible."""
        live, rows = f"{self.name}{LIVE}", self.passed
        if rows is None:
            return None
        copies = way == COPIES
        deciding = Copying.of(rows, self.line, self.lying) if copies else Picking.of(rows, self.line, self.order)
        if deciding is None:
            return None
        picked = deciding.picked(self.store, f"{live}-0")
        if copies:
            self.check()
        beside = type(described.schema)([field for field in described.schema if field.name != "live"])
        if picked is None or not self.store.put(f"{self.name}-0", picked.refused, beside):
            self.store.remove(self.spark, live)
            self.in_vain.add(way)
            return None
        self._lies(described)
        counts = self._counted([picked.verdicts])
        placed = self._placed([deciding.groups(picked) if picked.refused else []], counts)
        counts = replace(counts, findings=self._found(lambda _, names: deciding.notes(picked, names)))
        return replace(placed, counts=counts, stops=self._stops(counts))

    def _asked(self, groups: Sequence[Sequence[Mapping[str, JSON]]]) -> Prepared:
        """What was decided, as the rows of each section say that were written."""
        counts = self._counted([Verdicts.of(each) for each in groups])
        placed = self._placed(groups, replace(counts, findings=self._found()))
        return replace(placed, stops=self._stops(placed.counts))

    def _found(self, noted: Noted | None = None) -> Mapping[str, JSON]:
        """What the stages found: told while the batch was judged, or in the notes beside its rows; `noted` counts
        those, by default as they were written."""
        noted = noted or functools.partial(notes_of, self.spark, self.store)
        names = {f"{NOTE}{step.number}": step for step in self.line.steps if step.name not in self.findings}
        for section, frame in zip(self.sections, self.noted, strict=True):
            asked = [name for name in frame if name in names]
            for name, notes in noted(section, asked).items():
                said = names[name].stage.found(notes)
                if said is not None:
                    self.findings[names[name].name] = said
        return self.findings

    def _stops(self, counts: Counts) -> Sequence[str]:
        """The stages that refused a row and then stop the run."""
        stop = {step.name for step in self.line.steps if step.stage.on_error == "stop"}
        return [stage.stage for stage in counts.stages if stage.nacked and stage.stage in stop]

    def keep(self, rows: Marked) -> DataFrame:
        """Write rows that reach a stage which changes them; gives the live ones back."""
        live = F.when(F.col(STATE) == 0, struct_of(rows.names)).alias("live")
        self._write(rows.frame.select(*verdict(), *rows.notes, live), {})
        written = self.store.read(self.spark, self.sections[-1])
        return written.where(F.col("live").isNotNull()).select("live.*")

    def hold(self, rows: Marked, note: str) -> tuple[Marked, Mapping[str, int]]:
        """Write the rows as they stand, for a stage that judges the batch; as `Rows.hold` says."""
        name = f"{self.name}-held{self.holds}"
        self.holds += 1
        self.store.write(name, rows.frame)
        notes = notes_of(self.spark, self.store, name, [note] if note else [])
        return replace(rows, frame=self.store.read(self.spark, name)), notes.get(note, {})

    def _write(self, frame: DataFrame, branches: Mapping[str, Sequence[Step]]) -> None:
        witness = Witness.of(frame, self.line.common, branches) if self.store.tells else Witness(frame)
        self.seen.append(witness.verdicts(self.store.write(f"{self.name}-{len(self.sections)}", witness.frame)))
        self._lies(frame)

    def _lies(self, frame: DataFrame) -> None:
        """The frame lies in the store, as one more section."""
        self.sections.append(f"{self.name}-{len(self.sections)}")
        self.noted.append([name for name in frame.columns if name.startswith(NOTE)])

    def _counted(self, sections: Sequence[Verdicts]) -> Counts:
        read = entered = sections[0].rows
        stages: list[StageCount] = []
        filtered = changed = nacked = 0
        states = Counter[int]()
        for verdicts, steps in zip(sections, sections_of(self.line.common), strict=True):
            changing = 0 if verdicts is sections[0] else 1
            for step in steps[:changing]:
                lost = {"filtered": states[step.number], "nacked": states[-step.number]}
                stages.append(StageCount(stage=step.name, entered=entered, left=verdicts.rows, **lost))
                changed += verdicts.rows - (entered - sum(lost.values()))
            states = verdicts.states
            counted, entered = stage_counts(steps[changing:], verdicts.rows - states[REFUSED_BY_ORIGIN], states)
            stages += counted
            filtered += sum(rows for state, rows in states.items() if state > 0)
            nacked += verdicts.refused
        last = sections[-1]
        refused = Counter({state: rows for state, rows in last.states.items() if state < 0})
        branches = {}
        for index, (name, own) in enumerate(self.line.branches.items()):
            by_filter = last.filters.get(f"f{index}", Counter())
            kept = last.states[0] - by_filter.total()
            branches[name] = Branch(expected=kept, filtered=filtered + by_filter.total(), changed=changed)
            counted, _ = stage_counts(own, entered, by_filter + refused)
            stages += counted
            entered -= sum(count.nacked for count in counted)
        return Counts(read=read, nacked=nacked, branches=branches, stages=stages)

    def _placed(self, sections: Sequence[Sequence[Mapping[str, JSON]]], counts: Counts) -> Prepared:
        """Where the refused rows stood in the batch, counted from 1; those of later sections after its last row."""
        if not counts.nacked:
            return Prepared(path=self.name, sections=len(sections), counts=counts)
        bases: dict[str, int] = {}
        nacks: list[int] = []
        before = 0
        for number, groups in enumerate(sections):
            found, refused = _bases(groups, self.order if number == 0 else ("",), before)
            bases.update({f"{number}:{key}": base for key, base in found.items() if key in refused})
            for group in groups:
                base = found[_key(group["part"], group["block"])]
                nacks += [min(base + row, counts.read) for row in group["refused"]]
            before += _total(groups)
        return Prepared(path=self.name, sections=len(sections), counts=counts, nacks=sorted(nacks), bases=bases)


def refused_rows(spark: SparkSession, store: Store, decision: Decision) -> DataFrame:
    """The refused rows of a decided batch: `nack`, `part`, and `position`, their place in the batch from 1."""
    frames = []
    for number in range(decision.sections):
        own = {key.partition(":")[2]: base for key, base in decision.bases.items() if key.startswith(f"{number}:")}
        if own:
            key = F.concat_ws("#", F.col("block").cast("string"), F.col("part"))
            base = F.create_map(*[F.lit(each) for pair in own.items() for each in pair])[key]
            position = (base + F.col("row")).cast("bigint").alias("position")
            frame = store.read(spark, f"{decision.path}-{number}").where("state < 0")
            frames.append(frame.select(F.col(NACKED), F.col("part"), position))
    first, *others = frames
    for frame in others:
        first = first.unionByName(frame)
    return first


def refused_rows_here(store: Store, decision: Decision) -> list[dict[str, JSON]] | None:
    """The same in this process; None where Spark has to read them."""
    import pyarrow.compute as pc

    if decision.sections > 1:
        return None
    found = store.scan(f"{decision.path}-0", lambda column: column in (NACKED, "part", "block", "row", "state"))
    if found is None:
        return None
    rows = [row for piece in found for row in piece.filter(pc.less(piece["state"], 0)).to_pylist()]
    return [{**row, "position": decision.bases[f"0:{_key(row['part'], row['block'])}"] + row["row"]} for row in rows]


def rows_for(spark: SparkSession, store: Store, decision: Decision, name: str) -> DataFrame:
    """The rows that were decided for one destination."""
    index = list(decision.counts.branches).index(name)
    frame = store.read(spark, f"{decision.path}-{decision.sections - 1}")
    if _by_themselves(frame.columns):
        return store.read(spark, f"{decision.path}{LIVE}-0")
    if f"b{index}" not in frame.columns:
        return frame.where("state = 0").select("live.*")
    return frame.where(f"state = 0 and f{index} = 0").select(f"b{index}.*")


def rows_here_for(store: Store, decision: Decision, name: str) -> pyarrow.RecordBatchReader | None:
    """The same, read in this process piece by piece; None where Spark has to read them."""
    import pyarrow as pa
    import pyarrow.compute as pc

    index = list(decision.counts.branches).index(name)
    own, filters = f"b{index}", f"f{index}"
    section = f"{decision.path}-{decision.sections - 1}"
    found = store.scan(section, lambda column: column in ("state", "live", own, filters))
    if found is None:
        return None
    if _by_themselves(found.schema.names):
        return store.scan(f"{decision.path}{LIVE}-0", lambda column: True)
    parted = own in found.schema.names
    rows = own if parted else "live"

    def delivered() -> Iterator[pyarrow.RecordBatch]:
        for piece in found:
            stays = pc.equal(piece["state"], 0)
            if parted:
                stays = pc.and_(stays, pc.equal(piece[filters], 0))
            yield pa.RecordBatch.from_struct_array(piece.filter(stays)[rows])

    return pa.RecordBatchReader.from_batches(pa.schema(list(found.schema.field(rows).type)), delivered())


def files_for(store: Store, decision: Decision) -> Sequence[Path]:
    """The files in which the rows lie that were decided for every destination, where these lie by themselves."""
    return store.files(f"{decision.path}{LIVE}-0")


def _by_themselves(columns: Sequence[str]) -> bool:
    """Whether the live rows lie by themselves, and beside these columns there are none of them."""
    return not any(column == "live" or (column[0] == "b" and column[1:].isdigit()) for column in columns)


def branched(rows: Marked, line: Line, pins: Mapping[str, JSON]) -> DataFrame:
    """The rows with what each destination would get (`b0`, `b1` …) and what its own stages filtered (`f0` …); what
    those get that have no stages of their own is there once (`live`).

    Every branch begins with the common columns. A row that one branch refuses is refused for all, and no later
    branch looks at it; one that a branch filters lives on in the others.
    """
    names = rows.names
    own_stages = {index: steps for index, steps in enumerate(line.branches.values()) if steps}
    if not own_stages:
        live = F.when(F.col(STATE) == 0, struct_of(names)).alias("live")
        return rows.frame.select(*verdict(), *rows.notes, live)
    frame = rows.frame.withColumns({COMMON: struct_of(names), BEFORE: F.col(STATE)})
    rows = replace(rows, frame=frame, kept=(*rows.kept, COMMON, BEFORE))
    for index, steps in own_stages.items():
        branch = passing(rows, steps, pins)
        before, filtered = behind_branch()
        own = {
            f"b{index}": F.when(F.col(STATE) == 0, struct_of(branch.names)),
            f"f{index}": filtered,
        }
        others = [F.col(name) for name in branch.kept if name != BEFORE]
        frame = branch.frame.select(
            *[F.col(name) for name in (PLACE, VERDICT, ORIGINAL)],
            before.alias(STATE),
            before.alias(BEFORE),
            *others,
            *[column.alias(name) for name, column in own.items()],
            *[F.col(COMMON)[name].alias(name) for name in names],
        )
        rows = replace(rows, frame=frame, kept=(*branch.kept, *own))
    kept = [F.col(name) for name in rows.kept if name not in (COMMON, BEFORE, POISON)]
    if len(own_stages) < len(line.branches):
        kept.append(F.when(F.col(STATE) == 0, F.col(COMMON)).alias("live"))
    return rows.frame.select(*verdict(), *kept)


def sections_of(steps: Sequence[Step]) -> list[list[Step]]:
    """The stages between the places where batches are written down; later ones begin with a changing stage."""
    sections: list[list[Step]] = [[]]
    for step in steps:
        if step.stage.changes_rows:
            sections.append([])
        sections[-1].append(step)
    return sections


def _bases(groups: Sequence[Mapping[str, JSON]], order: Sequence[str], before: int) -> tuple[dict[str, int], set[str]]:
    """For each block, what to add to a row's number to get its place; and the blocks that have a refused row."""
    rows, first, refused = Counter[tuple[str, int]](), dict[tuple[str, int], int](), set[str]()
    for group in groups:
        block = (group["part"], group["block"])
        rows[block] += group["rows"]
        first[block] = min(group["first"], first.get(block, group["first"]))
        if group["state"] < 0:
            refused.add(_key(*block))
    rank = {part: number for number, part in enumerate(order)}
    bases = {}
    for part, start in sorted(rows, key=lambda block: (rank[block[0]], block[1])):
        bases[_key(part, start)] = before + 1 - first[part, start]
        before += rows[part, start]
    return bases, refused


def _key(part: str, block: int) -> str:
    return f"{block}#{part}"


def _total(groups: Sequence[Mapping[str, JSON]]) -> int:
    return sum(group["rows"] for group in groups)


def behind_branch() -> tuple[Column, Column]:
    """Behind a destination's own steps: the state for the others, and by which of these steps it was filtered here."""
    refused = F.when(F.col(STATE) < 0, F.col(STATE)).otherwise(F.col(BEFORE))
    return refused, F.when((F.col(BEFORE) == 0) & (F.col(STATE) > 0), F.col(STATE)).otherwise(0)


def struct_of(names: Sequence[str]) -> Column:
    """These columns as one."""
    return F.struct(*[F.col(quoted(name)) for name in names])
