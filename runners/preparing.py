"""Deciding a batch: every row gets its verdict, once, and what was decided is written down before any delivery."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from origins.batch import JSON
from origins.names import HIDDEN, quoted
from origins.origin import PLACE
from runners.counting import stage_counts
from runners.counts import Branch, Counts, StageCount
from runners.groups import groups_of
from runners.line import Line, Step, passing
from runners.outcome import Prepared
from runners.verdicts import Verdicts, Witness
from stages.rows import ORIGINAL, REFUSED_BY_ORIGIN, STATE, VERDICT, Marked

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

    from runners.progress import Decision
    from runners.store import Store

NACKED = "nack"
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

    def describe(self, rows: Marked) -> DataFrame:
        """The rows behind all stages, with their verdicts. What stands before a stage that changes rows is written."""
        rows = passing(replace(rows, materialise=self.keep, parts=self.order), self.line.common, self.pins)
        return _branched(rows, self.line, self.pins)

    def decide(self, described: DataFrame) -> Prepared:
        """Write the rows with their verdicts, and count them."""
        branches = {f"f{index}": steps for index, steps in enumerate(self.line.branches.values())}
        self._write(described, branches)
        seen = [each for each in self.seen if each is not None]
        if len(seen) == len(self.sections):
            return Prepared(path=self.name, sections=len(self.sections), counts=self._counted(seen))
        groups = [groups_of(self.spark, self.store, section) for section in self.sections]
        return self._placed(groups, self._counted([Verdicts.of(each) for each in groups]))

    def keep(self, rows: Marked) -> DataFrame:
        """Write rows that reach a stage which changes them; gives the live ones back."""
        live = F.when(F.col(STATE) == 0, struct_of(rows.names)).alias("live")
        self._write(rows.frame.select(*_verdict(), live), {})
        written = self.store.read(self.spark, self.sections[-1])
        return written.where(F.col("live").isNotNull()).select("live.*")

    def _write(self, frame: DataFrame, branches: Mapping[str, Sequence[Step]]) -> None:
        section = f"{self.name}-{len(self.sections)}"
        witness = Witness.of(frame, self.line.common, branches) if self.store.tells else Witness(frame)
        self.seen.append(witness.verdicts(self.store.write(section, witness.frame)))
        self.sections.append(section)

    def _counted(self, sections: Sequence[Verdicts]) -> Counts:
        read = entered = sections[0].rows
        stages: list[StageCount] = []
        filtered = changed = nacked = 0
        for verdicts, steps in zip(sections, _sections(self.line.common), strict=True):
            changing = 0 if verdicts is sections[0] else 1
            for step in steps[:changing]:
                stages.append(StageCount(stage=step.name, entered=entered, left=verdicts.rows))
                changed += verdicts.rows - entered
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


def rows_for(spark: SparkSession, store: Store, decision: Decision, name: str) -> DataFrame:
    """The rows that were decided for one destination."""
    index = list(decision.counts.branches).index(name)
    frame = store.read(spark, f"{decision.path}-{decision.sections - 1}")
    if f"b{index}" not in frame.columns:
        return frame.where("state = 0").select("live.*")
    return frame.where(f"state = 0 and f{index} = 0").select(f"b{index}.*")


def _branched(rows: Marked, line: Line, pins: Mapping[str, JSON]) -> DataFrame:
    """The rows with what each destination would get (`b0`, `b1` …) and what its own stages filtered (`f0` …); what
    those get that have no stages of their own is there once (`live`).

    Every branch begins with the common columns. A row that one branch refuses is refused for all, and no later
    branch looks at it; one that a branch filters lives on in the others.
    """
    names = rows.names
    own_stages = {index: steps for index, steps in enumerate(line.branches.values()) if steps}
    if not own_stages:
        return rows.frame.select(*_verdict(), F.when(F.col(STATE) == 0, struct_of(names)).alias("live"))
    frame = rows.frame.withColumns({COMMON: struct_of(names), BEFORE: F.col(STATE)})
    rows = replace(rows, frame=frame, kept=(COMMON, BEFORE))
    for index, steps in own_stages.items():
        branch = passing(rows, steps, pins)
        before, filtered = behind_branch()
        own = {
            f"b{index}": F.when(F.col(STATE) == 0, struct_of(branch.names)),
            f"f{index}": filtered,
        }
        others = [F.col(name) for name in rows.kept if name != BEFORE]
        frame = branch.frame.select(
            *[F.col(name) for name in (PLACE, VERDICT, ORIGINAL)],
            before.alias(STATE),
            before.alias(BEFORE),
            *others,
            *[column.alias(name) for name, column in own.items()],
            *[F.col(COMMON)[name].alias(name) for name in names],
        )
        rows = replace(rows, frame=frame, kept=(*rows.kept, *own))
    kept = [F.col(name) for name in rows.kept if name not in (COMMON, BEFORE)]
    if len(own_stages) < len(line.branches):
        kept.append(F.when(F.col(STATE) == 0, F.col(COMMON)).alias("live"))
    return rows.frame.select(*_verdict(), *kept)


def _sections(steps: Sequence[Step]) -> list[list[Step]]:
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


def _verdict() -> list[Column]:
    """Where a row stood, and what became of it."""
    place = [F.col(PLACE)[field].alias(field) for field in ("part", "block", "row")]
    return [*place, F.col(STATE).alias("state"), F.col(VERDICT).alias(NACKED)]
