"""The stages of a pipeline in the order in which a batch passes them, each under a name of its own."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import TYPE_CHECKING, TypeVar

from destinations.dlq import DLQ
from origins.batch import JSON, Batch
from origins.names import last_part
from runners.errors import Refusal, StageError
from runners.session import in_short
from stages.door import answers_again, passed
from stages.stage import Stage

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from destinations.destination import Destination
    from stages.rows import Rows

    R = TypeVar("R", bound=Rows)


@dataclass(frozen=True, kw_only=True)
class Step:
    """A stage at its place; `number` counts from 1 over the whole batch."""

    number: int
    name: str
    stage: Stage
    destination: str | None = None
    """The destination that demands it, if it is not the definition that does."""


@dataclass(frozen=True, kw_only=True)
class Line:
    """The stages that all rows pass, then those on the way to each destination."""

    common: Sequence[Step]
    branches: Mapping[str, Sequence[Step]]

    @staticmethod
    def of(
        stages: Sequence[Stage],
        destinations: Mapping[str, Destination],
        demands: Mapping[str, Sequence[Stage]] | None = None,
    ) -> Line:
        """The stages, numbered and named, and behind them what each destination demands. With a single destination
        its stages are everybody's."""
        names: Counter[str] = Counter()
        number = 0

        def steps(stages: Sequence[Stage], prefix: str, destination: str | None = None) -> list[Step]:
            nonlocal number
            found = []
            for stage in stages:
                name = prefix + (stage.name or type(stage).__name__.lower())
                names[name] += 1
                number += 1
                unique = name if names[name] == 1 else f"{name}#{names[name]}"
                found.append(Step(number=number, name=unique, stage=stage, destination=destination))
            return found

        common = steps(stages, "")
        branches = {
            name: [*steps(each.stages, f"{name}/"), *steps((demands or {}).get(name, ()), f"{name}/", name)]
            for name, each in destinations.items()
        }
        if len(branches) == 1:
            ((only, own),) = branches.items()
            return Line(common=[*common, *own], branches={only: ()})
        return Line(common=common, branches=branches)

    def demanding(self, demands: Mapping[str, Sequence[Stage]]) -> Line:
        """The same line, of which the destinations demand this instead of what they did."""
        names = {step.name for step in self.steps if step.destination is None}
        number = itertools.count(1)

        def steps(before: Sequence[Step], destination: str) -> list[Step]:
            found = [replace(step, number=next(number)) for step in before if step.destination is None]
            for stage in demands.get(destination, ()):
                at, name = next(number), f"{destination}/{stage.name or type(stage).__name__.lower()}"
                unique = name if name not in names else f"{name}#{at}"
                found.append(Step(number=at, name=unique, stage=stage, destination=destination))
            return found

        if len(self.branches) == 1:
            (only,) = self.branches
            return Line(common=steps(self.common, only), branches=self.branches)
        common = steps(self.common, "")
        return Line(common=common, branches={name: steps(own, name) for name, own in self.branches.items()})

    @property
    def steps(self) -> Sequence[Step]:
        """All stages, in the order of their numbers."""
        return [*self.common, *(step for branch in self.branches.values() for step in branch)]

    def pins(self, spark: SparkSession) -> Mapping[str, JSON]:
        """What the stages must find the same when a batch that is planned now is computed again."""
        found = {step.name: step.stage.pin(spark) for step in self.steps}
        return {name: pin for name, pin in found.items() if pin is not None}

    @property
    def answers_again(self) -> bool:
        """Whether no stage may give other rows for the same ones in a later run."""
        return all(type(step.stage).pin is Stage.pin and answers_again(step.stage) for step in self.steps)

    @property
    def describable(self) -> bool:
        """Whether the way of a batch can be described before its time: no stage pins anything then, or has to compute
        the rows before it."""
        stages = [step.stage for step in self.steps]
        return all(type(each).pin is Stage.pin and not each.changes_rows and not each.prepares for each in stages)

    @property
    def by_row(self) -> bool:
        """Whether no stage looks at more than a row, so that the rows of several batches may pass it side by side."""
        return not any(step.stage.gathers or step.stage.changes_rows for step in self.steps)

    @property
    def repeatable(self) -> bool:
        """Whether all stages give the same answer when they are run again."""
        return all(answers_again(step.stage) for step in self.steps)


def named(destinations: Sequence[Destination]) -> Mapping[str, Destination]:
    """The destinations by their names; by default the last part of the path or table."""
    found: dict[str, Destination] = {}
    for destination in destinations:
        name = destination.name or last_part(destination.place)
        if name in found or name == DLQ:
            raise Refusal(f"Two destinations are called '{name}'.", hint="Give one of them a `name:` of its own.")
        found[name] = destination
    return found


def passing(rows: R, steps: Sequence[Step], pins: Mapping[str, JSON], *, checked: bool = False) -> R:
    """The rows behind these stages, each with what it pinned. With `checked` every stage is analysed, and blamed by
    name."""
    for step in steps:
        entering = rows.entering(step.name, step.number, destination=step.destination, pin=pins.get(step.name))
        try:
            rows = passed(step.stage, entering)
            if checked:
                rows.frame.isLocal()  # analyses, also on Connect, where a filter's schema is known without
        except Exception as error:
            if not checked:
                raise
            raise StageError(f"stage '{step.name}': {in_short(error)}") from error
    return rows


class Differs(Exception):
    """A stage asks for what is not the same for all batches that pass it in one frame."""


class Common(Mapping[str, "str | int | datetime"]):
    """What expressions may ask of several batches at once: raises `Differs` for what is not the same for all."""

    def __init__(self, batches: Sequence[Batch]) -> None:
        self._each = [labels_of(batch) for batch in batches]

    def __getitem__(self, name: str) -> str | int | datetime:
        first, *others = (labels[name] for labels in self._each)
        if any(other != first for other in others):
            raise Differs(name)
        return first

    def __iter__(self) -> Iterator[str]:
        return iter(self._each[0])

    def __len__(self) -> int:
        return len(self._each[0])


def labels_of(batch: Batch) -> Mapping[str, str | int | datetime]:
    """What expressions may ask of their batch."""
    return {
        "origin": batch.origin,
        "lane": batch.lane,
        "number": batch.number,
        "run": batch.run,
        "batch_time": batch.time,
    }
