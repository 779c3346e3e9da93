"""A lock that lets one process at a time commit to a Delta table on a local disk.

On a local disk, Spark prevents two commits from taking the same version only inside one JVM. Two processes can take the
same version, and one commit is then lost without an error. So a process holds an operating-system lock while it writes.
Its threads share the lock until another process waits. Threads that come after that also wait, and take turns with the
other process. A thread that commits without Spark holds the lock alone.

The lock is on the table's folders. So there is no lock file to leave behind, and every process that can write the table
can lock it. If a process dies, its lock is free. The lock does not stop writers that do not take it. Only those in a
JVM of this process can be held (`SparkCommits`).
"""

from __future__ import annotations

import contextlib
import fcntl
import functools
import json
import logging
import os
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import unquote

from destinations.destination import DestinationError
from origins.delta_actions import explain_broken_log
from origins.lazy import SparkSession

log = logging.getLogger("wherry")

_PAUSE = 0.01
"""The pause before another try to take the lock, in seconds."""
_LONG = 60.0
"""How long a thread waits for the lock before it logs a warning, in seconds."""


@contextlib.contextmanager
def hold_table(
    table: Path | str, patience: float | None = None, *, apart: bool = False, waits: bool = False
) -> Iterator[bool]:
    """Hold the table's lock. Give whether it is held; after `patience` seconds the caller continues without it.

    A table in an object store is given by its URL. There the lock only separates the threads of this process.

    A thread that does not commit through Spark passes `apart`, and then shares the lock with no other thread. It does
    not wait for threads that commit through Spark, unless it passes `waits`.
    """
    turns = _get_turns(table)
    if apart:
        time.sleep(turns.breath.pause(time.monotonic()))
    held = turns.enter(patience, apart=apart, waits=waits)
    try:
        yield held
    finally:
        if held:
            turns.leave()


def is_held_by_spark(table: Path) -> bool:
    """Whether a thread of this process holds the table's lock for a commit through Spark."""
    turns = _get_turns(table)
    with turns.changed:
        return turns.inside > 0 and not turns.apart


class SparkCommits:
    """The commits of a Spark whose JVM belongs to this process.

    They include the commits of other programs in that JVM. If the JVM does not belong to this process, there is nothing
    to hold.
    """

    def can_be_held(self) -> bool:
        """Whether `hold` stops all of these commits. If not, only Spark may commit."""
        return True

    def hold(self, table: Path) -> AbstractContextManager[None]:
        """Let no commit of that JVM take a version of the table in this folder.

        Raises `TimeoutError` if one does not end.
        """
        return contextlib.nullcontext()


_commits: weakref.WeakKeyDictionary[SparkSession, SparkCommits] = weakref.WeakKeyDictionary()


def set_commits(spark: SparkSession, commits: SparkCommits) -> None:
    _commits[spark] = commits


def get_commits(spark: SparkSession) -> SparkCommits:
    return _commits.get(spark) or SparkCommits()


@contextlib.contextmanager
def hold_thread_lock(table: str) -> Iterator[None]:
    """Let only one thread of this process at a time run this block for a table, given its id.

    `table` may also name a part of the table's work.
    """
    with _known_lock:
        mine = _alone.setdefault(table, threading.Lock())
    with mine:
        yield


@contextlib.contextmanager
def hold_making_lock(table: Path) -> Iterator[None]:
    """Hold the lock under which a missing table is created: the lock of the nearest existing folder above it."""
    handle = _lock_folder(next(folder for folder in table.parents if folder.is_dir()))
    try:
        yield
    finally:
        if handle is not None:
            os.close(handle)


@dataclass
class YieldPause:
    """Decides when a writer that commits every few milliseconds pauses for another process.

    The Spark of another process writes its files, then reads all commits since it began, and only then tries the next
    version. If commits arrive faster than it reads them, it never gets a version.
    """

    waits: Callable[[], bool]
    """Whether files of another process wait for their commit. It is called from time to time."""
    every: float = 0.3
    """The time between two looks, in seconds."""
    gap: float = 0.5
    """How many seconds another process needs for its commit."""
    _next: float = float("-inf")
    """When the next look is due."""
    _until: float = float("-inf")
    """The end of the last pause, for all threads."""

    def pause(self, now: float) -> float:
        """Return how many seconds to wait before a commit that would begin now."""
        if now >= self._until and now >= self._next:
            if self.waits():
                self._until = now + self.gap
            self._next = max(now, self._until) + self.every
        return max(0.0, self._until - now)


@dataclass
class ForeignWrites:
    """The files in a table's folder that were written but are not committed yet."""

    table: Path
    patience: int = 4
    """How many looks may find the same file waiting. After that, Wherry assumes that it is never committed."""
    _known: set[str] | None = None
    _version: int = -1
    _waiting: dict[str, int] = field(default_factory=dict)
    """The files that the last look found uncommitted, with the number of looks that found them so."""

    def wait(self) -> bool:
        """Whether any file was already waiting at the last look.

        A file of this process is committed before the next look.
        """
        try:
            files = {name for name in os.listdir(self.table) if name.endswith(".parquet")}
        except FileNotFoundError:
            return False  # the next caller to take the lock reports that the table is missing
        if self._known is None:
            log = self.table / "_delta_log"
            self._known, self._version = files, max((int(each.stem) for each in log.glob("0*.json")), default=-1)
            return False
        before, committed = self._waiting, set(self._list_committed())
        new = (files - self._known | before.keys()) - committed
        self._known = files
        self._waiting = {name: before.get(name, 0) + 1 for name in new & files}
        return any(1 < looks <= self.patience for looks in self._waiting.values())

    def _list_committed(self) -> Iterator[str]:
        while (file := self.table / "_delta_log" / f"{self._version + 1:020}.json").exists():
            self._version += 1
            with explain_broken_log(DestinationError, str(self.table), self._version):
                lines = file.read_text(encoding="utf-8").split("\n")
                added = [unquote(json.loads(line)["add"]["path"]) for line in lines if line.startswith('{"add"')]
            yield from added


@dataclass
class _TableTurns:
    """The turns of this process's threads at one table."""

    table: Path | None
    """The table's folder. The process that is next locks it until that process holds the table.

    It is None for a table in an object store, which has no folder to lock against other processes.
    """
    breath: YieldPause = field(init=False)
    changed: threading.Condition = field(default_factory=threading.Condition)
    inside: int = 0
    taking: bool = False
    """Whether a thread of this process waits for other processes."""
    handle: int | None = None
    apart: bool = False
    """Whether the thread that holds the lock shares it with no other thread."""

    def __post_init__(self) -> None:
        self.breath = YieldPause(ForeignWrites(self.table).wait if self.table else lambda: False)

    def enter(self, patience: float | None, *, apart: bool, waits: bool = False) -> bool:
        deadline = None if patience is None else time.monotonic() + patience
        with self.changed:
            while self.inside or self.taking:
                if apart and not waits and self.inside and not self.apart:
                    return False
                if not apart and not self.apart and not self.taking and not self._is_wanted():
                    self.inside += 1
                    return True
                if not self.changed.wait(None if deadline is None else max(0.0, deadline - time.monotonic())):
                    return False
            self.taking = True
        try:
            self.handle = self._take_lock(deadline)
        finally:
            with self.changed:
                self.taking = False
                self.apart = apart
                self.inside = int(self.handle is not None)
                self.changed.notify_all()
        return self.handle is not None

    def leave(self) -> None:
        with self.changed:
            self.inside -= 1
            if not self.inside and self.handle is not None:
                os.close(self.handle)
                self.handle = None
            self.changed.notify_all()

    def _take_lock(self, deadline: float | None) -> int | None:
        if self.table is None:
            return os.open(os.devnull, os.O_RDONLY)
        gate = _lock_folder(self.table, deadline)
        if gate is None:
            return None
        try:
            return _lock_folder(self.table / "_delta_log", deadline)
        finally:
            os.close(gate)

    def _is_wanted(self) -> bool:
        if self.table is None:
            return False
        gate = _lock_folder(self.table, time.monotonic())
        if gate is not None:
            os.close(gate)
        return gate is None


_known: dict[Path | str, _TableTurns] = {}
_alone: dict[str, threading.Lock] = {}
_known_lock = threading.Lock()


def _get_turns(table: Path | str) -> _TableTurns:
    folder = None if isinstance(table, str) else table.resolve()
    with _known_lock:
        return _known.setdefault(folder or table, _TableTurns(folder))


def _lock_folder(folder: Path, deadline: float | None = None) -> int | None:
    """Return an open, locked handle of the folder; None if the deadline passes first."""
    warn_at = time.monotonic() + _LONG
    while True:
        handle = _try_lock(folder)
        if handle is not None:
            return handle
        if deadline is not None and time.monotonic() >= deadline:
            return None
        if time.monotonic() >= warn_at:
            log.warning("waiting for another process that writes %s", folder)
            warn_at = float("inf")
        time.sleep(_PAUSE)


def _try_lock(folder: Path) -> int | None:
    try:
        handle = os.open(folder, os.O_RDONLY)
    except FileNotFoundError as error:
        raise DestinationError(f"The table {folder} is missing.") from error
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(handle)
        return None
    except OSError as error:
        _warn(f"{folder} cannot be locked ({error.strerror}): no other process may write there")
    return handle


@functools.cache
def _warn(message: str) -> None:
    log.warning(message)
