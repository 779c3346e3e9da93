"""Rows in this process's memory, for tests of pipelines."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, ClassVar

from destinations.destination import Destination, DestinationError, Identity, Label, Written
from origins.batch import JSON

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


@dataclass(frozen=True)
class _Commit:
    keys: frozenset[str]
    rows: Sequence[Mapping[str, JSON]]


@dataclass
class _Kept:
    """What one instance holds; changed under its lock only."""

    commits: list[_Commit] = field(default_factory=list)
    fence: str = ""
    lock: threading.Lock = field(default_factory=threading.Lock)


@dataclass(frozen=True, kw_only=True)
class Memory(Destination):
    """Keeps rows in the instance, for tests of pipelines. It behaves as a table does, fence included."""

    remembers: ClassVar[bool] = True
    guarantee: ClassVar[str] = "effectively once, as long as this process lives: rows and labels are kept together"

    _kept: _Kept = field(default_factory=_Kept, init=False, repr=False, compare=False)

    @property
    def place(self) -> str:
        return "memory"

    @property
    def rows(self) -> list[Mapping[str, JSON]]:
        """Every row that was written, in the order of the writes; structs are mappings as well."""
        with self._kept.lock:
            return [row for commit in self._kept.commits for row in commit.rows]

    def write(self, spark: SparkSession, rows: DataFrame, labels: Sequence[Label]) -> Written:
        fence = self._kept.fence
        collected = [row.asDict(recursive=True) for row in rows.collect()]
        with self._kept.lock:
            if self._kept.fence != fence:
                raise DestinationError("A write that began before the fence does not land.")
            if not collected:
                return Written(rows=0)
            self._kept.commits.append(_Commit(frozenset(label.key for label in labels), collected))
            return Written(rows=len(collected), version=len(self._kept.commits))

    def find(self, spark: SparkSession, label: Label, identity: Identity) -> Written | None:
        with self._kept.lock:
            for version, commit in enumerate(self._kept.commits, start=1):
                if label.key in commit.keys:
                    return Written(rows=len(commit.rows) if len(commit.keys) == 1 else None, version=version)
        return None

    def fence(self, spark: SparkSession, token: str) -> None:
        with self._kept.lock:
            self._kept.fence = token
