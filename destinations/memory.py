"""The destination that keeps rows in this process's memory, for tests of pipelines."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

from destinations.capabilities import StopsWriters
from destinations.destination import DestinationError, Identity, StatelessDestination, Written
from destinations.labels import Label
from origins.batch_rows import BatchRows
from origins.lazy import SparkSession


@dataclass(frozen=True)
class _MemoryCommit:
    keys: frozenset[str]
    rows: Sequence[Mapping[str, Any]]


@dataclass
class _KeptRows:
    """What one instance keeps. It changes only under the lock."""

    commits: list[_MemoryCommit] = field(default_factory=list)
    fence: str = ""
    lock: threading.Lock = field(default_factory=threading.Lock)


@dataclass(frozen=True, kw_only=True)
class Memory(StatelessDestination, StopsWriters):
    """Keeps rows in memory, for tests of pipelines. It keeps the same promises as a table, until the process ends.

    Example:
        memory: {}
    """

    remembers: ClassVar[bool] = True
    guarantee: ClassVar[str] = "effectively once, while this process lives: rows and labels are kept together"

    _kept: _KeptRows = field(default_factory=_KeptRows, init=False, repr=False, compare=False)

    @property
    def place(self) -> str:
        return "memory"

    @property
    def rows(self) -> list[Mapping[str, Any]]:
        """All rows that were written, in the order of the writes. Structs are mappings too."""
        with self._kept.lock:
            return [row for commit in self._kept.commits for row in commit.rows]

    def write(self, spark: SparkSession, rows: BatchRows, labels: Sequence[Label]) -> Written:
        fence = self._kept.fence
        collected = [row.asDict(recursive=True) for row in rows.frame().collect()]
        with self._kept.lock:
            if self._kept.fence != fence:
                raise DestinationError("A write that began before the fence does not land.")
            if not collected:
                return Written(rows=0)
            self._kept.commits.append(_MemoryCommit(frozenset(label.key for label in labels), collected))
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
