"""From numbers of rows to the equation of a batch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from runners.counts import Branch, Counts, StageCount
from runners.line import Line, Step

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, Observation


class Tally:
    """Counts the rows of a straight batch while they pass, at no cost of their own."""

    def __init__(self) -> None:
        self._seen: list[tuple[int, DataFrame, Observation]] = []

    def observe(self, frame: DataFrame, step: int) -> DataFrame:
        """The same frame; the rows that pass here are counted under the step's number."""
        from pyspark.sql import Observation
        from pyspark.sql import functions as F

        observation = Observation()
        self._seen.append((step, frame, observation))
        return frame.observe(observation, F.count(F.lit(1)).alias("rows"))

    def counts(self, line: Line, delivered: int | None) -> Counts:
        """The equation. What was observed is believed only if its end agrees with the destination's own count;
        a task that was retried is observed twice, and then all is counted again."""
        passed = {step: observation.get.get("rows") for step, _, observation in self._seen}
        last = passed[self._seen[-1][0]]
        if None in passed.values() or (delivered is not None and last != delivered):
            passed = {step: frame.count() for step, frame, _ in self._seen}
        return straight_counts(line, {step: rows for step, rows in passed.items() if rows is not None})


def straight_counts(line: Line, passed: Mapping[int, int]) -> Counts:
    """The equation of a batch in which nothing was refused, from the rows that passed each step (0: read)."""
    (name,) = line.branches
    current, filtered, changed = passed[0], 0, 0
    stages = []
    for step in line.common:
        left = passed.get(step.number, current)
        lost = 0 if step.stage.changes_rows else current - left
        stages.append(StageCount(stage=step.name, entered=current, left=left, filtered=lost))
        filtered += lost
        changed += left - current if step.stage.changes_rows else 0
        current = left
    branch = Branch(expected=current, filtered=filtered, changed=changed)
    return Counts(read=passed[0], branches={name: branch}, stages=stages)


def stage_counts(steps: Sequence[Step], entered: int, states: Mapping[int, int]) -> tuple[list[StageCount], int]:
    """What each stage did, from the rows by state (n: filtered by step n, -n: refused by it); and the rows left."""
    stages = []
    for step in steps:
        filtered, nacked = states.get(step.number, 0), states.get(-step.number, 0)
        left = entered - filtered - nacked
        stages.append(StageCount(stage=step.name, entered=entered, left=left, filtered=filtered, nacked=nacked))
        entered = left
    return stages, entered
