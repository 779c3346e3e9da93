"""How many rows of a decided batch have which verdict: seen while they are written, or asked of what was written."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from origins.batch import JSON
from origins.origin import PLACE
from runners.line import Step

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, Observation

MOST_FIGURES = 16
"""Up to so many figures it is quicker to count while rows are written than to read them once more."""


@dataclass(frozen=True, kw_only=True)
class Verdicts:
    """The rows that were written in one go."""

    states: Counter[int]
    """By state: 0 live, n filtered by the n-th stage, -n refused by it."""
    filters: Mapping[str, Counter[int]] = field(default_factory=dict)
    """The live ones of which a destination's own stage filtered some, by its column and by that stage."""

    @property
    def rows(self) -> int:
        """All of them."""
        return self.states.total()

    @property
    def refused(self) -> int:
        """Those that were refused."""
        return sum(rows for state, rows in self.states.items() if state < 0)

    @staticmethod
    def of(groups: Sequence[Mapping[str, JSON]]) -> Verdicts:
        """Of rows that were grouped by `state` and by the columns of filters, with their number as `rows`."""
        states = Counter[int]()
        filters: dict[str, Counter[int]] = {}
        for group in groups:
            states[group["state"]] += group["rows"]
            for name in group if group["state"] == 0 else ():
                if is_filter(name) and group[name]:
                    filters.setdefault(name, Counter())[group[name]] += group["rows"]
        return Verdicts(states=states, filters=filters)


@dataclass(frozen=True)
class Witness:
    """Sees the verdicts of a frame while it is written."""

    frame: DataFrame
    """The frame to write."""
    _observation: Observation | None = None
    _figures: Mapping[str, tuple[str, int]] = field(default_factory=dict)

    @staticmethod
    def of(frame: DataFrame, common: Sequence[Step], branches: Mapping[str, Sequence[Step]]) -> Witness:
        """Of a frame with a `state`, set by these stages, and with a column for the filters of each branch."""
        from pyspark.sql import Observation
        from pyspark.sql import functions as F

        figures = {f"state {step.number}": ("state", step.number) for step in common}
        for name, steps in branches.items():
            figures.update({f"{name} {step.number}": (name, step.number) for step in steps})
        if len(figures) > MOST_FIGURES:
            return Witness(frame)

        def rows(holds: Column) -> Column:
            return F.count(F.when(holds, F.lit(1)))

        def those(name: str, number: int) -> Column:
            filtered = F.col(name) == number
            return filtered if name == "state" else filtered & (F.col("state") == 0)

        counted = [rows(those(*figure)).alias(told) for told, figure in figures.items()]
        totals = [F.count(F.lit(1)).alias("rows"), rows(F.col("state") < 0).alias("refused")]
        observation = Observation()
        return Witness(frame.observe(observation, *totals, *counted), observation, figures)

    def verdicts(self, written: int | None) -> Verdicts | None:
        """What was seen; None unless it is sure. Spark may run a task again and count its rows twice, so it is sure
        only if just as many rows were written. Where a row was refused, the stage that did it was not seen."""
        seen = found(self._observation)
        if not seen or seen["refused"] or seen["rows"] != written:
            return None
        states, filters = Counter[int](), dict[str, Counter[int]]()
        for told, (name, number) in self._figures.items():
            if name == "state":
                states[number] = seen[told]
            else:
                filters.setdefault(name, Counter())[number] = seen[told]
        states[0] = seen["rows"] - states.total()
        return Verdicts(states=states, filters=filters)


def place() -> list[Column]:
    """Where a row stood, as it is kept beside it."""
    from pyspark.sql import functions as F

    return [F.col(PLACE)[name].alias(name) for name in ("part", "block", "row")]


def verdict() -> list[Column]:
    """Where a row stood, and what became of it, as these are kept beside it."""
    from pyspark.sql import functions as F

    from stages.rows import STATE, VERDICT

    return [*place(), F.col(STATE).alias("state"), F.col(VERDICT).alias("nack")]


def is_filter(name: str) -> bool:
    """Whether this is the column of what a destination's own stages filtered."""
    return name[0] == "f" and name[1:].isdigit()


def found(observation: Observation | None) -> Mapping[str, Any]:
    """What was observed; nothing where the optimizer left out the rows that would have passed."""
    try:
        return observation.get if observation is not None else {}
    except Exception:  # classic Spark raises where Spark Connect gives nothing
        return {}
