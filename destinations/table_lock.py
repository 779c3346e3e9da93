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
import logging
import os
import threading
import time
import weakref
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from destinations.destination import DestinationError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

log = logging.getLogger("wherry")

_PAUSE = 0.01
"""How long one waits before one tries again, in seconds."""
_LONG = 60.0
"""How long one waits before one says so, in seconds."""


@contextlib.contextmanager
def committing(table: Path, patience: float | None = None, *, apart: bool = False) -> Iterator[bool]:
    """Hold the table's lock; gives whether it is held. After `patience` seconds one goes on without it.

    One that does not commit through Spark goes `apart` from all other threads, and does not wait for those that do.
    """
    turns = _turns_at(table)
    if apart:
        time.sleep(turns.breath.pause(time.monotonic()))
    held = turns.enter(patience, apart)
    try:
        yield held
    finally:
        if held:
            turns.leave()
        if apart:
            turns.breath.ended(time.monotonic())


class SparkCommits(ABC):
    """The commits of a Spark whose JVM belongs to this process, strangers' commits in that JVM included."""

    @abstractmethod
    def can_be_held(self) -> bool:
        """Whether `held` keeps all of them out. Where it does not, only Spark may commit."""

    @abstractmethod
    def held(self, table: Path) -> AbstractContextManager[None]:
        """Let no commit of that JVM take a version of the table in this folder. Raises `TimeoutError` if one of them
        does not end."""


class NoCommits(SparkCommits):
    """Those of a Spark without a JVM of this process: there are none to keep out."""

    def can_be_held(self) -> bool:
        return True

    def held(self, table: Path) -> AbstractContextManager[None]:
        return contextlib.nullcontext()


_commits: weakref.WeakKeyDictionary[SparkSession, SparkCommits] = weakref.WeakKeyDictionary()


def say_commits(spark: SparkSession, commits: SparkCommits) -> None:
    """Note which commits are those of this session's JVM."""
    _commits[spark] = commits


def commits_of(spark: SparkSession) -> SparkCommits:
    """The commits that whoever made the session noted."""
    return _commits.get(spark) or NoCommits()


@contextlib.contextmanager
def alone(table: str) -> Iterator[None]:
    """Let no other thread of this process in here for the table with this id, or for a part of its work."""
    with _known_lock:
        mine = _alone.setdefault(table, threading.Lock())
    with mine:
        yield


@contextlib.contextmanager
def making(table: Path) -> Iterator[None]:
    """Hold the lock under which a table is made that is not there yet: that of the nearest folder above it."""
    handle = _locked(next(folder for folder in table.parents if folder.is_dir()))
    try:
        yield
    finally:
        if handle is not None:
            os.close(handle)


@dataclass
class Breath:
    """When one that commits every few milliseconds leaves a stranger room.

    A stranger's Spark reads all that came in between and tries again with the next version. As long as another commit
    comes before it has read them, it never wins.
    """

    every: float = 1.5
    """After how many seconds of commits without a gap there is one."""
    gap: float = 0.1
    """How many seconds a stranger needs."""
    _since: float = float("-inf")
    """When the commits without a gap began."""
    _last: float = float("-inf")
    """When the last commit ended."""
    _until: float = float("-inf")
    """Until when the last gap is, for all threads."""

    def pause(self, now: float) -> float:
        """How many seconds to wait before a commit that would begin now."""
        if now >= self._until:
            if now - self._last >= self.gap:
                self._since = now
            elif now - self._since >= self.every:
                self._since = self._until = self._last + self.gap
        return max(0.0, self._until - now)

    def ended(self, now: float) -> None:
        """A commit has ended."""
        self._last = now


@dataclass
class _Turns:
    """This process's threads at one table."""

    table: Path
    """Its folder is locked by the process that is next, until it has the table."""
    breath: Breath = field(default_factory=Breath)
    changed: threading.Condition = field(default_factory=threading.Condition)
    inside: int = 0
    taking: bool = False
    """Whether one of them waits for other processes."""
    handle: int | None = None
    apart: bool = False
    """Whether the one that is inside wants nobody beside it."""

    def enter(self, patience: float | None, apart: bool) -> bool:
        deadline = None if patience is None else time.monotonic() + patience
        with self.changed:
            while self.inside or self.taking:
                if apart and self.inside and not self.apart:
                    return False
                if not apart and not self.apart and not self.taking and not self._wanted():
                    self.inside += 1
                    return True
                if not self.changed.wait(_left(deadline)):
                    return False
            self.taking = True
        try:
            self.handle = self._taken(deadline)
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

    def _taken(self, deadline: float | None) -> int | None:
        gate = _locked(self.table, deadline)
        if gate is None:
            return None
        try:
            return _locked(self.table / "_delta_log", deadline)
        finally:
            os.close(gate)

    def _wanted(self) -> bool:
        """Whether another process waits for the table."""
        gate = _locked(self.table, time.monotonic())
        if gate is not None:
            os.close(gate)
        return gate is None


_known: dict[Path, _Turns] = {}
_alone: dict[str, threading.Lock] = {}
_known_lock = threading.Lock()


def _turns_at(table: Path) -> _Turns:
    real = table.resolve()
    with _known_lock:
        return _known.setdefault(real, _Turns(real))


def _locked(folder: Path, deadline: float | None = None) -> int | None:
    """An open handle of the folder, locked against other processes; None when the deadline passed first."""
    tell = time.monotonic() + _LONG
    while True:
        handle = _try(folder)
        if handle is not None:
            return handle
        if deadline is not None and time.monotonic() >= deadline:
            return None
        if time.monotonic() >= tell:
            log.warning("waiting for another process that writes %s", folder)
            tell = float("inf")
        time.sleep(_PAUSE)


def _try(folder: Path) -> int | None:
    try:
        handle = os.open(folder, os.O_RDONLY)
    except FileNotFoundError as error:
        raise DestinationError(f"The table is gone: {folder}.") from error
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(handle)
        return None
    except OSError as error:
        _warn(f"{folder} cannot be locked ({error.strerror}): let no other process write there")
    return handle


@functools.cache
def _warn(message: str) -> None:
    log.warning(message)


def _left(deadline: float | None) -> float | None:
    return None if deadline is None else max(0.0, deadline - time.monotonic())
