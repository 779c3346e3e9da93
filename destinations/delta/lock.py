"""One process at a time commits to a Delta table on a local disk.

There Spark keeps two commits apart only inside one JVM: two processes can take the same version, and one of them is
lost in silence. So a process holds an operating-system lock while it writes. Its threads go together, until another
process waits: then those that come later wait as well, and take turns with it. One that commits without Spark goes
apart from the others.

What is locked are the table's own folders, so that there is no file to leave behind, and whoever can write the table
can lock it. The lock of a process that dies is free. Strangers who do not take it are not kept apart; but those in a
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
from dataclasses import field
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import unquote

from destinations.destination import DestinationError
from origins.quick_dataclass import dataclass

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

log = logging.getLogger("wherry")

_PAUSE = 0.01
"""How long one waits before one tries again, in seconds."""
_LONG = 60.0
"""How long one waits before one says so, in seconds."""


@contextlib.contextmanager
def hold_table(
    table: Path | str, patience: float | None = None, *, apart: bool = False, waits: bool = False
) -> Iterator[bool]:
    """Hold the table's lock; gives whether it is held. After `patience` seconds one goes on without it. A table in an
    object store is named by its URL: there the lock keeps the threads of this process apart only.

    One that does not commit through Spark goes `apart` from all other threads, and does not wait for those that do
    unless it `waits`.
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
    """Whether a thread of this process holds the table's lock for a commit of Spark's."""
    turns = _get_turns(table)
    with turns.changed:
        return turns.inside > 0 and not turns.apart


class SparkCommits:
    """The commits of a Spark whose JVM belongs to this process, strangers' commits in that JVM included. A Spark
    without a JVM of this process has none that are to be kept out."""

    def can_be_held(self) -> bool:
        """Whether `hold` keeps all of them out. Where it does not, only Spark may commit."""
        return True

    def hold(self, table: Path) -> AbstractContextManager[None]:
        """Let no commit of that JVM take a version of the table in this folder. Raises `TimeoutError` if one of them
        does not end."""
        return contextlib.nullcontext()


_commits: weakref.WeakKeyDictionary[SparkSession, SparkCommits] = weakref.WeakKeyDictionary()


def say_commits(spark: SparkSession, commits: SparkCommits) -> None:
    _commits[spark] = commits


def get_commits(spark: SparkSession) -> SparkCommits:
    return _commits.get(spark) or SparkCommits()


@contextlib.contextmanager
def hold_thread_lock(table: str) -> Iterator[None]:
    """Let no other thread of this process in here for the table with this id, or for a part of its work."""
    with _known_lock:
        mine = _alone.setdefault(table, threading.Lock())
    with mine:
        yield


@contextlib.contextmanager
def hold_making_lock(table: Path) -> Iterator[None]:
    """Hold the lock under which a table is made that is not there yet: that of the nearest folder above it."""
    handle = _lock_folder(next(folder for folder in table.parents if folder.is_dir()))
    try:
        yield
    finally:
        if handle is not None:
            os.close(handle)


@dataclass
class YieldPause:
    """When a writer that commits every few milliseconds lets another process in.

    A stranger's Spark writes its files, and reads all commits that came in between before it tries the next version. As
    long as others come faster than it reads them, it never wins.
    """

    waits: Callable[[], bool]
    """Whether files of a stranger wait for their commit. It is asked now and then."""
    every: float = 0.3
    """From one look to the next, in seconds."""
    gap: float = 0.5
    """How many seconds a stranger needs."""
    _next: float = float("-inf")
    """When the next look is due."""
    _until: float = float("-inf")
    """Until when the last gap is, for all threads."""

    def pause(self, now: float) -> float:
        """How many seconds to wait before a commit that would begin now."""
        if now >= self._until and now >= self._next:
            if self.waits():
                self._until = now + self.gap
            self._next = max(now, self._until) + self.every
        return max(0.0, self._until - now)


@dataclass
class ForeignWrites:
    """The files in a table's folder that are written and not committed yet."""

    table: Path
    patience: int = 4
    """How many looks find the same file waiting: one that is never committed is waited for no longer."""
    _known: set[str] | None = None
    _version: int = -1
    _waiting: dict[str, int] = field(default_factory=dict)
    """The files that were not committed at the last look, and how many looks have found them so."""

    def wait(self) -> bool:
        """Whether there are any that waited at the last look as well; a file of ours is committed before the next."""
        try:
            files = {name for name in os.listdir(self.table) if name.endswith(".parquet")}
        except FileNotFoundError:
            return False  # whoever takes the lock next says that the table is gone
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
            for line in file.read_text(encoding="utf-8").split("\n"):
                if line.startswith('{"add"'):
                    yield unquote(json.loads(line)["add"]["path"])


@dataclass
class _TableTurns:
    """This process's threads at one table."""

    table: Path
    """Its folder is locked by the process that is next, until it has the table."""
    breath: YieldPause = field(init=False)
    changed: threading.Condition = field(default_factory=threading.Condition)
    inside: int = 0
    taking: bool = False
    """Whether one of them waits for other processes."""
    handle: int | None = None
    apart: bool = False
    """Whether the one that is inside wants nobody beside it."""

    def __post_init__(self) -> None:
        self.breath = YieldPause(ForeignWrites(self.table).wait)

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
        gate = _lock_folder(self.table, deadline)
        if gate is None:
            return None
        try:
            return _lock_folder(self.table / "_delta_log", deadline)
        finally:
            os.close(gate)

    def _is_wanted(self) -> bool:
        gate = _lock_folder(self.table, time.monotonic())
        if gate is not None:
            os.close(gate)
        return gate is None


@dataclass
class _TurnsAtStore(_TableTurns):
    """The same at a table in an object store, where there is no folder to lock against other processes."""

    def __post_init__(self) -> None:
        self.breath = YieldPause(lambda: False)

    def _take_lock(self, deadline: float | None) -> int | None:
        return os.open(os.devnull, os.O_RDONLY)

    def _is_wanted(self) -> bool:
        return False


_known: dict[Path | str, _TableTurns] = {}
_alone: dict[str, threading.Lock] = {}
_known_lock = threading.Lock()


def _get_turns(table: Path | str) -> _TableTurns:
    if isinstance(table, str):
        with _known_lock:
            return _known.setdefault(table, _TurnsAtStore(Path()))
    real = table.resolve()
    with _known_lock:
        return _known.setdefault(real, _TableTurns(real))


def _lock_folder(folder: Path, deadline: float | None = None) -> int | None:
    """An open handle of the folder, locked against other processes; None when the deadline passed first."""
    tell = time.monotonic() + _LONG
    while True:
        handle = _try_lock(folder)
        if handle is not None:
            return handle
        if deadline is not None and time.monotonic() >= deadline:
            return None
        if time.monotonic() >= tell:
            log.warning("waiting for another process that writes %s", folder)
            tell = float("inf")
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
