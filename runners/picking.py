"""A batch decided in one pass: its live rows are written while the refused ones, if they are few, are picked out."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from origins.batch import JSON
from origins.names import HIDDEN
from runners.counting import ROW_OF_PARTITION
from runners.line import Step
from runners.notes import by_spark
from runners.verdicts import MOST_FIGURES, Verdicts, found
from stages.rows import NOTE

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, Observation

MOST = 10_000
"""Refused rows up to which a task picks them; a batch with more is decided as any other."""
_LONGEST = 16 << 10
"""The length of a refused row's texts up to which it is picked."""
_PICKED = HIDDEN + "picked"
_BESIDE = ("part", "block", "row", "state", "nack")


@dataclass(frozen=True, kw_only=True)
class Picked:
    """What was seen of a batch while its live rows were written."""

    verdicts: Verdicts
    refused: Sequence[Mapping[str, JSON]]
    """The refused rows, with all that stands beside them."""
    block: tuple[str, int, int] | None
    """Where its only block of rows stands: part, block, and the number of the first row; None where it has several."""
    notes: Mapping[str, Mapping[str, int]]
    """How many rows have which note, of each column in which all that were not refused have the same."""


@dataclass(frozen=True)
class Picking:
    """One pass over a batch; `live` is what is written."""

    frame: DataFrame
    """Its rows, with what became of each."""
    live: DataFrame
    _observation: Observation
    _steps: Sequence[Step]

    @staticmethod
    def of(frame: DataFrame, steps: Sequence[Step]) -> Picking | None:
        """Of a frame with the rows that live as `live`; None where one pass does not do, for a question is asked again
        that is dear, or that others notice."""
        from pyspark.sql import Observation

        again = any(step.stage.gathers or step.stage.asks_outside for step in steps)
        if again or "live" not in frame.columns or len(steps) > MOST_FIGURES:
            return None
        refused, nack = F.col("state") < 0, F.col("nack")
        nth = F.when(refused, F.monotonically_increasing_id().bitwiseAND(ROW_OF_PARTITION))
        length = sum(
            (F.coalesce(F.octet_length(nack[of]), F.lit(0)) for of in ("message", "row", "original")), F.lit(0)
        )
        row = F.struct(*_BESIDE, *_notes(frame))
        picked = F.when((nth < MOST) & (length <= _LONGEST), row)
        observation = Observation()
        seen = frame.withColumn(_PICKED, picked).observe(observation, *_figures(frame, steps))
        return Picking(frame, seen.where("state = 0").select("live.*"), observation, steps)

    def seen(self, written: int | None) -> Picked | None:
        """What was seen; None where it is not sure, or more rows were refused than could be picked."""
        seen = found(self._observation)
        if not seen or written is None:
            return None
        refused: list[Mapping[str, JSON]] = json.loads(str(seen["picked"]))
        states = Counter({step.number: seen[f"state {step.number}"] for step in self._steps})
        states[0] = seen["rows"] - seen["refused"] - states.total()
        if len(refused) != seen["refused"] or states[0] != written:
            return None
        states.update(row["state"] for row in refused)
        only = seen["least"] == seen["highest"] and seen["first part"] == seen["last part"]
        block = (str(seen["first part"]), seen["least"], seen["first"]) if only and seen["rows"] else None
        return Picked(verdicts=Verdicts(states=+states), refused=refused, block=block, notes=self._noted(seen, refused))

    def notes(self, picked: Picked, columns: Sequence[str]) -> Mapping[str, Mapping[str, int]]:
        """For each of these columns, how many rows have which note. Asks Spark where rows of different notes live."""
        others = [name for name in columns if name not in picked.notes]
        known = {name: picked.notes[name] for name in columns if name in picked.notes}
        return {**known, **(by_spark(self.frame, others) if others else {})}

    def blocks(self) -> Sequence[Mapping[str, JSON]]:
        """For each block of rows: its `part`, how many `rows` there are, and the `first` of them. Asks Spark."""
        rows, first = F.count(F.lit(1)).alias("rows"), F.min("row").alias("first")
        return [row.asDict() for row in self.frame.groupBy("part", "block").agg(rows, first).collect()]

    def _noted(
        self, seen: Mapping[str, JSON], refused: Sequence[Mapping[str, JSON]]
    ) -> Mapping[str, Mapping[str, int]]:
        notes = {}
        for name in _notes(self.frame):
            if seen[f"{name} least"] == seen[f"{name} highest"]:
                counted = Counter(row[name] for row in refused if row.get(name) is not None)
                if seen[name]:
                    counted[seen[f"{name} least"]] += seen[name]
                notes[name] = counted
        return notes


def _figures(frame: DataFrame, steps: Sequence[Step]) -> list[Column]:
    state = F.col("state")

    def rows(holds: Column) -> Column:
        return F.count(F.when(holds, F.lit(1)))

    figures = {
        "rows": F.count(F.lit(1)),
        "refused": rows(state < 0),
        "picked": F.to_json(F.collect_list(_PICKED)),
        "first part": F.min("part"),
        "last part": F.max("part"),
        "least": F.min("block"),
        "highest": F.max("block"),
        "first": F.min("row"),
        **{f"state {step.number}": rows(state == step.number) for step in steps},
    }
    for name in _notes(frame):
        kept = F.when(state >= 0, F.col(name))
        figures |= {name: F.count(kept), f"{name} least": F.min(kept), f"{name} highest": F.max(kept)}
    return [column.alias(name) for name, column in figures.items()]


def _notes(frame: DataFrame) -> list[str]:
    return [name for name in frame.columns if name.startswith(NOTE)]
