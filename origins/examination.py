"""What an origin or destination needs in addition to Spark, and whether it is there. `wherry doctor` shows it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, kw_only=True)
class Need:
    """One thing that was looked for."""

    state: Literal["ok", "problem", "not needed"]
    found: str
    advice: str = ""
    """What to do; empty if nothing needs to be done."""


class Examinable(ABC):
    """An origin or destination that can look, without Spark, whether what it needs is there."""

    @abstractmethod
    def examine(self, jars: Sequence[str]) -> Iterator[Need]:
        """Yield what was looked for. `jars` are the packages and files that the definition gives to Spark."""
