"""What some stages can do besides `apply`. A stage that can do it inherits the class too."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Literal, Protocol

from origins.batch import JSON
from stages.stage import Stage


class BatchRule(Protocol):
    """A rule about each row, or about a batch."""

    @property
    def label(self) -> str:
        """Its name in reports, with what it expects."""

    @property
    def severity(self) -> str: ...

    @property
    def of_rows(self) -> bool:
        """Whether it is about rows. If not, a batch meets it or fails it."""


class StatesRules(ABC):
    """A stage with rules. Its `summarise_notes` gives a finding for each rule. It copies no value of a row."""

    on_batch_failure: Literal["stop", "quarantine", "report"]
    """What happens to a batch that fails as a whole."""

    @property
    @abstractmethod
    def rules(self) -> Sequence[BatchRule]:
        """Return the rules, in the order of the findings."""

    @abstractmethod
    def without_stop(self) -> Stage:
        """Return the stage in a form that stops no batch."""

    @abstractmethod
    def list_failures(self, found: Sequence[Mapping[str, Any]]) -> Sequence[str]:
        """Return why the batch with these findings fails as a whole, one line for each rule that it fails."""

    @abstractmethod
    def make_validation(
        self, found: Sequence[Mapping[str, Any]], *, suite: str, run: str, batch: str, at: str
    ) -> Mapping[str, JSON]:
        """Return the findings of a batch as Great Expectations writes them. It was planned `at` this moment."""


class WorksInPython(ABC):
    """A stage that calls Python in Spark's workers."""

    @abstractmethod
    def list_worker_packages(self) -> set[str]:
        """Return the packages that the workers need."""


class StoresValues(ABC):
    """A stage that puts values of rows into a store of its own, and takes them from there."""

    upkeep: ClassVar[str]
    """The module that keeps these stores in order. It is an `Upkeep`."""
