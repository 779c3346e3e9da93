"""The versions of a plain Delta table, as this process reads them in the table's log, without Spark."""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import re
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import ClassVar, TypeAlias

from destinations.destination import DestinationError
from origins.delta_actions import explain_broken_log
from origins.lazy import deltalake
from origins.object_store import open_delta_table

Mark: TypeAlias = tuple[int, int] | str
"""What distinguishes a version's file from another file with this name."""


@dataclass(frozen=True)
class LogHead:
    """A table at a version of its log."""

    version: int
    id: str
    schema: str
    """The schema, as Delta writes it."""
    configuration: Mapping[str, str]
    partitions: Sequence[str]
    protocol: tuple[int, int]
    """The versions of Delta's protocol that a reader and a writer must support."""
    file: Mark | None
    """What distinguishes the version's file from another file with this name; None if the file is gone."""
    seen: float
    """When this was surely the newest version, by a clock that also counts the sleep of the machine."""

    @property
    def is_old(self) -> bool:
        """Whether later versions may already have been cleaned up, in any order.

        A table that Wherry appends to in this way keeps its log for at least a day.
        """
        return read_clock() - self.seen > _RECENT


class TableVersions(ABC):
    """The versions of a table, by the files in its log."""

    @property
    @abstractmethod
    def name(self) -> str:
        """The place, as a person would name it."""

    def open(self) -> deltalake.DeltaTable:
        """Open the table through `deltalake`. Raises `DeltaError`, `OSError` or `StoreError` if it cannot be read."""
        table = open_delta_table(self.name)
        if table is None:
            raise FileNotFoundError(self.name)
        return table

    sure: ClassVar[float] = 0.0
    """For how many seconds a look at the versions counts as current."""

    @abstractmethod
    def list_names(self, first: int) -> Iterable[str]:
        """Return the names in the log, from this version on. Earlier ones may be among them."""

    @abstractmethod
    def look(self, first: int) -> Callable[[int], Mark | None]:
        """Return a function that gives the mark of a version from `first` on; None if the version has no file."""

    @abstractmethod
    def read(self, name: str) -> bytes | None:
        """Return the content of a file below the place; None if it is missing."""

    def list_versions(self, first: int = 0) -> list[int]:
        """Return at least the versions from this one on, in any order; none if this process may not list them."""
        with contextlib.suppress(PermissionError):
            return [int(match[1]) for name in self.list_names(first) if (match := _VERSION.fullmatch(name))]
        return []

    def find_newest(self, known: int = -1) -> int:
        """Return the newest version; -1 without one. It is found quickly if `known` is a recent one."""
        later = self._follow(known) if known >= 0 else ()
        return max(later or self.list_versions(), default=-1)

    def identify(self, version: int) -> Mark | None:
        """Return the mark of a version's file; None if there is none."""
        return self.look(version)(version)

    def _follow(self, version: int) -> Mapping[int, Mark | None]:
        """Return the mark of this version, and of each version after it up to the first gap."""
        mark_of = self.look(version)
        marks = ((each, mark_of(each)) for each in itertools.count(version))
        return dict(itertools.takewhile(lambda each: each[1] is not None, marks))

    def list_checkpoints(self, after: int) -> list[str]:
        """Return the names of the checkpoints of later versions."""
        return [name for name in self.list_names(after) if _CHECKPOINT.match(name) and int(name[:20]) > after]

    def open_head(self) -> tuple[deltalake.DeltaTable, LogHead]:
        """Return the table and its newest version. Raises as `open` does."""
        seen, table = read_clock(), self.open()
        metadata, protocol = table.metadata(), table.protocol()
        return table, LogHead(
            version=table.version(),
            id=str(metadata.id),
            schema=table.schema().to_json(),
            configuration=metadata.configuration,
            partitions=tuple(metadata.partition_columns),
            protocol=(protocol.min_reader_version, protocol.min_writer_version),
            file=self.identify(table.version()),
            seen=seen,
        )

    def find_head(self, known: LogHead | None) -> LogHead:
        """Return the newest version. It is faster with a known version. Raises as `open` does."""
        if known is not None and known.file is not None and self.is_current(known):
            return known
        later = None if known is None else self.advance(known)
        return self.open_head()[1] if later is None else later

    def is_current(self, head: LogHead) -> bool:
        """Whether the last look at this version counts as current."""
        return read_clock() - head.seen < self.sure

    def advance(self, head: LogHead) -> LogHead | None:
        """Return the newest version, reading only the versions after this one.

        It is None if one of them changes the table's metadata, or if some of them may be missing.
        """
        now, found = read_clock(), self._follow(head.version)
        if head.file is None or found.get(head.version) != head.file:
            return None
        newest = max(found)
        for version in range(head.version + 1, newest + 1):
            with explain_broken_log(DestinationError, self.name, version):
                content = self.read(format_key(version))
                if content is None or changes_table(content.decode()):
                    return None
        if head.is_old and self.list_checkpoints(newest):
            return None
        return replace(head, version=newest, file=found[newest], seen=now)


@dataclass(frozen=True)
class FolderVersions(TableVersions):
    """The versions of a table in a folder of this machine."""

    folder: Path

    @property
    def name(self) -> str:
        return str(self.folder)

    def list_names(self, first: int) -> Iterable[str]:
        with contextlib.suppress(FileNotFoundError, NotADirectoryError):
            return os.listdir(self.folder / "_delta_log")
        return ()

    def look(self, first: int) -> Callable[[int], Mark | None]:
        return lambda version: identify_file(self.folder / format_key(version))

    def read(self, name: str) -> bytes | None:
        try:
            return (self.folder / name).read_bytes()
        except (FileNotFoundError, NotADirectoryError):
            return None


def changes_table(commit: str) -> bool:
    """Whether a version with these lines changes the table's metadata."""
    lines = (line for line in commit.split("\n") if any(action in line for action in _SAME))
    return any(not _SAME.isdisjoint(json.loads(line)) for line in lines)


_SAME = frozenset({"metaData", "protocol"})
_VERSION = re.compile(r"(\d{20})\.json")
_CHECKPOINT = re.compile(r"\d{20}\.checkpoint\.")
_RECENT = 60.0
"""How many seconds old a head may be so that no log clean-up can have passed it."""
_COUNTS_SLEEP = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


def read_clock() -> float:
    """Return the seconds by a clock that also counts the sleep of the machine."""
    return time.clock_gettime(_COUNTS_SLEEP)


def identify_file(file: Path) -> tuple[int, int] | None:
    """Return what distinguishes a version's file from another file with this name; None if the file is gone."""
    try:
        status = file.stat()
    except (FileNotFoundError, NotADirectoryError):
        return None
    return status.st_ino, status.st_mtime_ns


def format_key(version: int) -> str:
    """Return the name of a version's file below its table."""
    return f"_delta_log/{version:020}.json"
