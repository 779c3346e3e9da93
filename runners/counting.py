"""From numbers of rows to the equation of a batch."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, partial
from typing import TYPE_CHECKING

from origins.names import HIDDEN
from origins.origin import BATCH
from runners.counts import Branch, Counts, StageCount
from runners.line import Line, Step
from runners.verdicts import found

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

_PASS = HIDDEN + "pass"
ROW_OF_PARTITION = (1 << 33) - 1
"""The bits of Spark's increasing ids that count the rows of one partition, from 0."""


@dataclass(frozen=True, kw_only=True)
class Figure:
    """How many rows were seen to pass a step, and how to find out for sure."""

    step: int
    seen: int | None
    """None when they were not seen."""
    twice: bool = False
    """Whether some of them were surely seen twice."""
    again: Callable[[], int]
    """Counts them, by a query of its own."""


@dataclass(frozen=True)
class Tally:
    """Counts the rows of a straight batch while they pass.

    Spark adds what a task has seen whenever one succeeds, and tasks in front of a shuffle run again when what they
    wrote is lost. So where a stage brings rows of several tasks together, each task leaves its partition's number as
    well, and a partition that is there twice gives the retry away. In front of a stage that may be content with some
    of its rows nothing is observed: those rows are counted afterwards. Rows that their origin has counted are not
    looked at for it.
    """

    line: Line
    _observed: list[tuple[int, DataFrame | None, Callable[[], Mapping[str, int]]]]
    """The steps at which rows are counted: the rows, unless they are over and done with, and what was seen of them."""
    _batches: int = 0
    """How many batches pass in one frame, each row beside `BATCH`; 0: only one, and no row says so."""
    _own: int = 0
    """Which of them is this one."""
    _read: int | None = None
    """How many rows it has, where its origin can say so."""

    @staticmethod
    def of(line: Line, read: int | None = None) -> Tally:
        """A tally for one batch that passes this line, and has so many rows if its origin can say so."""
        return Tally(line, [], _read=read)

    @staticmethod
    def of_several(line: Line, batches: int) -> Sequence[Tally]:
        """A tally for each of so many batches that pass this line in one frame, which any of them observes."""
        first = Tally(line, [], batches)
        return [replace(first, _own=own) for own in range(batches)]

    @staticmethod
    def of_rows(line: Line, rows: int) -> Tally:
        """That of a batch whose rows were counted before they pass a line without stages."""
        return Tally(line, [(0, None, lambda: {_rows(0): rows})])

    def observe(self, frame: DataFrame, step: int) -> DataFrame:
        """The same frame; the rows that pass here are counted under the step's number."""
        from pyspark.sql import Observation
        from pyspark.sql import functions as F

        if step == 0 and self._read is not None:
            told = {_rows(0): self._read}
            self._observed.append((step, frame, lambda: told))
            return frame
        ahead = [each.stage for each in self.line.common if each.number > step and each.stage.changes_rows]
        if not all(stage.takes_all for stage in ahead):
            self._observed.append((step, frame, dict))
            return frame
        observation = Observation()
        self._observed.append((step, frame, cache(lambda: found(observation))))
        rows = [F.expr(f"count_if({BATCH} = {own}) as {_rows(own)}") for own in range(self._batches)]
        rows = rows or [F.count(F.lit(1)).alias(_rows(0))]
        if not any(each.stage.gathers for each in self.line.common):
            return frame.observe(observation, *rows)
        passes = F.collect_list(_PASS)
        twice = (F.size(passes) != F.size(F.array_distinct(passes))).alias("twice")
        return frame.select("*", _partition_once().alias(_PASS)).observe(observation, *rows, twice).drop(_PASS)

    def counts(self, delivered: int | None, *, doubtful: bool = False) -> Counts:
        """The equation, of a batch of which the destination says that it got so many rows; `doubtful` if what was seen
        is wrong for a reason that is known elsewhere."""
        figures = []
        for step, frame, seen in self._observed:
            twice, rows = bool(seen().get("twice")), seen().get(_rows(self._own))
            again = partial(self._count, frame, rows)
            figures.append(Figure(step=step, seen=rows, twice=twice, again=again))
        return straight_counts(self.line, believed(figures, delivered, doubtful=doubtful))

    def _count(self, frame: DataFrame | None, seen: int | None) -> int:
        if frame is None:
            assert seen is not None
            return seen
        return (frame.where(f"{BATCH} = {self._own}") if self._batches else frame).count()


def apart(tallies: Sequence[Tally], delivered: int | None) -> Sequence[tuple[Counts, int | None]]:
    """The equations of batches that were written together, and how many rows of each the destination got, which tells
    the number of all. What does not add up stands at the first of them."""
    counted = [tally.counts(None) for tally in tallies]
    if delivered is not None and sum(map(_expected, counted)) != delivered:
        counted = [tally.counts(None, doubtful=True) for tally in tallies]
    if delivered is None:
        return [(counts, None) for counts in counted]
    others = [_expected(counts) for counts in counted[1:]]
    return list(zip(counted, [delivered - sum(others), *others], strict=True))


def believed(figures: Sequence[Figure], delivered: int | None, *, doubtful: bool = False) -> Mapping[int, int]:
    """The rows that passed each step. What was seen is believed only if nothing was seen twice, and if its end
    agrees with the destination's own count; what was not seen is counted."""
    last = figures[-1].seen
    differs = None not in (last, delivered) and last != delivered
    again = doubtful or differs or any(figure.twice for figure in figures)
    return {figure.step: figure.again() if again or figure.seen is None else figure.seen for figure in figures}


def straight_counts(line: Line, passed: Mapping[int, int]) -> Counts:
    """The equation of a batch in which nothing was refused, from the rows that passed each step (0: read)."""
    (name,) = line.branches
    current, filtered, changed = passed[0], 0, 0
    stages, findings = [], {}
    for step in line.common:
        left = passed.get(step.number, current)
        lost = 0 if step.stage.changes_rows else current - left
        stages.append(StageCount(stage=step.name, entered=current, left=left, filtered=lost))
        filtered += lost
        changed += left - current if step.stage.changes_rows else 0
        said = step.stage.found({"": current - lost})
        if said is not None:
            findings[step.name] = said
        current = left
    branch = Branch(expected=current, filtered=filtered, changed=changed)
    return Counts(read=passed[0], branches={name: branch}, stages=stages, findings=findings)


def stage_counts(steps: Sequence[Step], entered: int, states: Mapping[int, int]) -> tuple[list[StageCount], int]:
    """What each stage did, from the rows by state (n: filtered by step n, -n: refused by it); and the rows left."""
    stages = []
    for step in steps:
        filtered, nacked = states.get(step.number, 0), states.get(-step.number, 0)
        left = entered - filtered - nacked
        stages.append(StageCount(stage=step.name, entered=entered, left=left, filtered=filtered, nacked=nacked))
        entered = left
    return stages, entered


def _expected(counts: Counts) -> int:
    (branch,) = counts.branches.values()
    return branch.expected


def _rows(own: int) -> str:
    """What the number of a batch's rows is called among what was observed."""
    return f"rows{own}"


def _partition_once() -> Column:
    """The number of the partition, beside its first row only."""
    from pyspark.sql import functions as F

    place = F.monotonically_increasing_id().bitwiseAND(F.lit(ROW_OF_PARTITION))
    return F.when(place == 0, F.spark_partition_id())
