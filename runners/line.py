"""The stages of a pipeline in the order in which a batch passes them, each under a name of its own."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, TypeVar, cast

from origins.batch import Batch
from runners.checks import last_part
from runners.errors import Refusal, StageError
from runners.outcome import DLQ
from runners.session import in_short
from stages.stage import Stage

if TYPE_CHECKING:
    from destinations.destination import Destination
    from stages.rows import Rows

    R = TypeVar("R", bound=Rows)


@dataclass(frozen=True, kw_only=True)
class Step:
    """A stage at its place; `number` counts from 1 over the whole batch."""

    number: int
    name: str
    stage: Stage


@dataclass(frozen=True, kw_only=True)
class Line:
    """The stages that all rows pass, then those on the way to each destination."""

    common: Sequence[Step]
    branches: Mapping[str, Sequence[Step]]

    @staticmethod
    def of(stages: Sequence[Stage], destinations: Mapping[str, Destination]) -> Line:
        """The stages, numbered and named. With a single destination its stages are everybody's."""
        names: Counter[str] = Counter()
        number = 0

        def steps(stages: Sequence[Stage], prefix: str) -> list[Step]:
            nonlocal number
            found = []
            for stage in stages:
                name = prefix + (stage.name or type(stage).__name__.lower())
                names[name] += 1
                number += 1
                unique = name if names[name] == 1 else f"{name}#{names[name]}"
                found.append(Step(number=number, name=unique, stage=stage))
            return found

        common = steps(stages, "")
        if len(destinations) == 1:
            ((only, destination),) = destinations.items()
            return Line(common=[*common, *steps(destination.stages, f"{only}/")], branches={only: ()})
        return Line(
            common=common,
            branches={name: steps(each.stages, f"{name}/") for name, each in destinations.items()},
        )

    @property
    def steps(self) -> Sequence[Step]:
        """All stages, in the order of their numbers."""
        return [*self.common, *(step for branch in self.branches.values() for step in branch)]

    @property
    def repeatable(self) -> bool:
        """Whether all stages give the same answer when they are run again."""
        return all(step.stage.repeatable for step in self.steps)


def named(destinations: Sequence[Destination]) -> Mapping[str, Destination]:
    """The destinations by their names; by default the last part of the path or table."""
    found: dict[str, Destination] = {}
    for destination in destinations:
        name = destination.name or last_part(destination.place)
        if name in found or name == DLQ:
            raise Refusal(f"Two destinations are called '{name}'.", hint="Give one of them a `name:` of its own.")
        found[name] = destination
    return found


def passing(rows: R, steps: Sequence[Step], *, checked: bool = False) -> R:
    """The rows behind these stages. With `checked` every stage is analysed, and blamed by name."""
    for step in steps:
        try:
            rows = cast("R", step.stage.apply(rows.entering(step.name, step.number)))
            if checked:
                rows.frame.isLocal()  # analyses, also on Connect, where a filter's schema is known without
        except Exception as error:
            if not checked:
                raise
            raise StageError(f"stage '{step.name}': {in_short(error)}") from error
    return rows


def labels_of(batch: Batch) -> Mapping[str, str | int | datetime]:
    """What expressions may ask of their batch."""
    return {
        "origin": batch.origin,
        "lane": batch.lane,
        "number": batch.number,
        "run": batch.run,
        "batch_time": batch.time,
    }
