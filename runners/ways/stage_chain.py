"""The stages of a pipeline in the order in which a batch passes them. Each has a unique name."""

from __future__ import annotations

import importlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timezone
from typing import Protocol, cast

from destinations.destination import Destination
from destinations.dlq import DLQ, FALLBACK, FILTERED
from origins.batch import JSON, Batch
from origins.lazy import SparkSession, T
from origins.names import get_last_part
from origins.schema import make_empty_frame
from runners.model.errors import Refusal, StageError
from runners.model.text import summarise_error
from stages.capabilities import StoresValues
from stages.rows import Rows, enter_stage, make_rows, take_clean
from stages.stage import Stage, apply_stage, is_repeatable

SAMPLE_LABELS: Mapping[str, str | int | datetime] = {
    "origin": "",
    "lane": "",
    "number": 0,
    "run": "",
    "batch_time": datetime(2000, 1, 1, tzinfo=timezone.utc),
}
"""Sample values of the labels that expressions may use, for the time before there is a batch."""


@dataclass(frozen=True, kw_only=True)
class PlacedStage:
    """A stage at its place. `number` counts from 1 over the whole batch."""

    number: int
    name: str
    stage: Stage
    destination: str | None = None
    """The destination that demands the stage; None if the definition has the stage."""


@dataclass(frozen=True, kw_only=True)
class StageChain:
    """The stages that all rows pass, then the stages for each destination."""

    common: Sequence[PlacedStage]
    branches: Mapping[str, Sequence[PlacedStage]]
    _stages: Sequence[Stage] = field(default=(), repr=False, compare=False)
    _destinations: Mapping[str, Destination] = field(default_factory=dict, repr=False, compare=False)

    @staticmethod
    def of(
        stages: Sequence[Stage],
        destinations: Mapping[str, Destination],
        demands: Mapping[str, Sequence[Stage]] | None = None,
    ) -> StageChain:
        """Make it from the stages, numbered and named, with the demands of each destination after them.

        If there is only one destination, its stages become common stages.
        """
        names: Counter[str] = Counter()
        number = 0

        def steps(stages: Sequence[Stage], prefix: str, destination: str | None = None) -> list[PlacedStage]:
            nonlocal number
            found = []
            for stage in stages:
                name = prefix + (stage.name or type(stage).__name__.lower())
                names[name] += 1
                number += 1
                unique = name if names[name] == 1 else f"{name}#{names[name]}"
                found.append(PlacedStage(number=number, name=unique, stage=stage, destination=destination))
            return found

        common = steps(stages, "")
        branches: dict[str, Sequence[PlacedStage]] = {
            name: [*steps(each.stages, f"{name}/"), *steps((demands or {}).get(name, ()), f"{name}/", name)]
            for name, each in destinations.items()
        }
        if len(branches) == 1:
            ((only, own),) = branches.items()
            common, branches = [*common, *own], {only: ()}
        return StageChain(common=common, branches=branches, _stages=stages, _destinations=destinations)

    def with_demands(self, demands: Mapping[str, Sequence[Stage]]) -> StageChain:
        """Return the same chain with these demands of the destinations instead of the earlier ones."""
        return StageChain.of(self._stages, self._destinations, demands)

    def narrow(self, destinations: Iterable[str]) -> StageChain:
        """Return the chain for rows that only these destinations get."""
        return replace(self, branches={name: self.branches[name] for name in destinations})

    @property
    def steps(self) -> Sequence[PlacedStage]:
        """All stages, in the order of their numbers."""
        return [*self.common, *(step for branch in self.branches.values() for step in branch)]

    def pins(self, spark: SparkSession) -> Mapping[str, JSON]:
        """Return what the stages must find unchanged when a batch that is planned now is computed again."""
        found = {step.name: step.stage.pin(spark) for step in self.steps}
        return {name: pin for name, pin in found.items() if pin is not None}

    @property
    def answers_again(self) -> bool:
        """Whether no stage may return other rows for the same rows in a later run."""
        return all(type(step.stage).pin is Stage.pin and is_repeatable(step.stage) for step in self.steps)

    @property
    def is_describable(self) -> bool:
        """Whether a batch can be described before its turn.

        It can if no stage pins anything at that time, changes rows, or has to compute the rows before it.
        """
        stages = [step.stage for step in self.steps]
        return all(type(each).pin is Stage.pin and not each.changes_rows and not each.prepares for each in stages)

    @property
    def repeatable(self) -> bool:
        """Whether all stages give the same answer if they run again."""
        return all(is_repeatable(step.stage) for step in self.steps)


def name_destinations(destinations: Sequence[Destination]) -> Mapping[str, Destination]:
    """Return the destinations by name. The default name is the last part of the path or table."""
    found: dict[str, Destination] = {}
    for destination in destinations:
        name = destination.name or get_last_part(destination.place)
        if name in found or name in (DLQ, FALLBACK, FILTERED):
            raise Refusal(f"Two destinations have the name '{name}'.", hint="Give one of them another `name:`.")
        found[name] = destination
    return found


def apply_chain(rows: Rows, steps: Sequence[PlacedStage], pins: Mapping[str, JSON], *, checked: bool = False) -> Rows:
    """Return the rows after these stages, each with what it pinned.

    With `checked`, every stage is analysed, and an error names the stage.
    """
    for step in steps:
        pin = pins.get(step.name)
        entering = enter_stage(rows, step.name, step.number, destination=step.destination, pin=pin, one_by_one=checked)
        try:
            rows = apply_stage(step.stage, entering)
            if checked:
                rows.frame.isLocal()  # analyses, also on Connect, which knows a filter's schema without analysis
        except Exception as error:  # a user's stage may raise anything
            if not checked:
                raise
            raise StageError(f"stage '{step.name}': {summarise_error(error)}") from error
    return rows


def make_empty_rows(
    spark: SparkSession,
    schema: T.StructType,
    labels: Mapping[str, str | int | datetime] = SAMPLE_LABELS,
    *,
    alias: str = "",
) -> Rows:
    """Return no rows, but with these columns, so that stages can be analysed. Plans show the frame as `alias`."""
    empty = make_empty_frame(spark, schema)
    frame = empty.alias(alias) if alias else empty
    return make_rows(frame, tuple(schema.names), labels, take_clean, explains=False)


class CommonLabels(Mapping[str, "str | int | datetime"]):
    """The labels of several batches for expressions: the first batch's values, and a record of labels that differ."""

    def __init__(self, batches: Sequence[Batch]) -> None:
        self._each = [make_labels(batch) for batch in batches]
        self.differing: list[str] = []
        """The labels that an expression used and that differ between the batches."""

    def __getitem__(self, name: str) -> str | int | datetime:
        first, *others = (labels[name] for labels in self._each)
        if any(other != first for other in others):
            self.differing.append(name)
        return first

    def __iter__(self) -> Iterator[str]:
        return iter(self._each[0])

    def __len__(self) -> int:
        return len(self._each[0])


def make_labels(batch: Batch) -> Mapping[str, str | int | datetime]:
    """Return the labels of the batch that expressions may use."""
    return {
        "origin": batch.origin,
        "lane": batch.lane,
        "number": batch.number,
        "run": batch.run,
        "batch_time": batch.time,
    }


class Upkeep(Protocol):
    """A module that keeps the stores of one kind of stage in order."""

    def note_user(self, chain: StageChain, pipeline: str) -> None:
        """Record in the stores of a chain that this pipeline uses them. Raise an error if a store cannot be used."""

    def sweep(
        self,
        chains: Iterable[StageChain],
        pipeline: str,
        kept: Sequence[Destination],
        spark: Callable[[], SparkSession],
        now: float,
    ) -> None:
        """Remove values that no row needs. `kept` are the tables with refused or filtered rows."""


def list_upkeep(chains: Iterable[StageChain]) -> Sequence[Upkeep]:
    """Return the upkeep of each kind of stage in these chains that stores values."""
    stages = (step.stage for chain in chains for step in chain.steps)
    names = dict.fromkeys(stage.upkeep for stage in stages if isinstance(stage, StoresValues))
    return [cast("Upkeep", importlib.import_module(name)) for name in names]
