"""The upkeep of stores into which stages put values of rows."""

from __future__ import annotations

import importlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence

from destinations.destination import Destination
from origins.lazy import SparkSession
from runners.ways.stage_chain import StageChain
from stages.capabilities import StoresValues


class Upkeep(ABC):
    """Keeps the stores of one kind of stage in order."""

    @abstractmethod
    def note_user(self, chain: StageChain, pipeline: str) -> None:
        """Record in the stores of a chain that this pipeline uses them. Raise an error if a store cannot be used."""

    @abstractmethod
    def sweep(
        self,
        chains: Iterable[StageChain],
        pipeline: str,
        kept: Sequence[Destination],
        spark: Callable[[], SparkSession],
        now: float,
    ) -> None:
        """Remove values that no row needs. `kept` are the tables with refused or filtered rows.

        No batch of the pipeline may be in progress. An error here only costs space.
        """


def list_upkeep(chains: Iterable[StageChain]) -> Sequence[Upkeep]:
    """Return the upkeep of each kind of stage in these chains that stores values."""
    stages = (step.stage for chain in chains for step in chain.steps)
    names = dict.fromkeys(stage.upkeep for stage in stages if isinstance(stage, StoresValues))
    parts = (name.partition(":") for name in names)
    return [getattr(importlib.import_module(module), name)() for module, _, name in parts]
