"""What schedulers and servers of a directory share: which runs began, which pipelines are paused, and full groups."""

from __future__ import annotations

import contextlib
import dataclasses
import enum
import fcntl
import json
import logging
import os
import threading
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from runners.model.errors import Refusal

_MOMENTS = ("served", "open", "succeeded")
SCHEDULE, REQUESTS = "schedule", "requests"
"""Those whose runs wait for groups: the scheduler, and what callers of a server ask for."""
log = logging.getLogger("wherry")


@dataclass(frozen=True, kw_only=True)
class RunMark:
    """What is known about one pipeline."""

    served: datetime
    """When the last run that began was due. Before the first run, when the pipeline was first seen."""
    open: datetime | None = None
    """When the run that began and has no recorded end was due. It still works, or was cut off."""
    succeeded: datetime | None = None
    """When a run of the pipeline last succeeded."""
    paused: str | None = None
    """Why no run of the pipeline begins. None if it is not paused."""


class ClaimResult(enum.Enum):
    """Whether a scheduler may begin a run."""

    GRANTED = enum.auto()
    TAKEN = enum.auto()
    """A scheduler has begun this run, or a later one."""
    BUSY = enum.auto()
    """Another scheduler has a run of this pipeline under way."""
    CUT_OFF = enum.auto()
    """The run before it was cut off, and comes first."""


class RunMarks:
    """The marks of all pipelines of a directory, in small files of a folder. Several schedulers may share them.

    A scheduler that claims a run holds a lock of the pipeline until the run has ended. The system frees the lock when
    the process ends, so that the other schedulers see which runs were cut off.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._held: dict[str, int] = {}
        """The locks of the pipelines whose runs this scheduler has claimed."""
        try:
            folder.mkdir(parents=True, exist_ok=True)
            self._lock = os.open(folder / "lock", os.O_CREAT | os.O_RDWR, 0o644)
            with contextlib.suppress(BlockingIOError):  # another scheduler has it, so the file system has locks
                fcntl.flock(self._lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
            fcntl.flock(self._lock, fcntl.LOCK_UN)
        except OSError as error:
            raise Refusal(
                f"The scheduler cannot note its runs: {folder} ({error.strerror}).",
                hint="Make the folder writable, on a disk with locks: the notes there prevent lost and double runs.",
            ) from error

    def get(self, name: str) -> RunMark | None:
        """Return the mark of a pipeline, or None."""
        try:
            noted = json.loads((self.folder / f"{name}.json").read_text(encoding="utf-8"))
            moments = [noted[each] and datetime.fromisoformat(noted[each]) for each in _MOMENTS]
            return RunMark(**dict(zip(_MOMENTS, moments, strict=True)), paused=noted["paused"])
        except (FileNotFoundError, ValueError, KeyError, TypeError):  # a new one, or half written
            return None

    def put(self, name: str, mark: RunMark) -> None:
        """Write a mark. A reader sees either the old mark or this one."""
        moments = {each: getattr(mark, each) for each in _MOMENTS}
        noted = {each: moment and moment.isoformat() for each, moment in moments.items()} | {"paused": mark.paused}
        file = self.folder / f"{name}.json"
        new = file.with_name(f".{name}.{os.getpid()}")
        new.write_text(json.dumps(noted) + "\n", encoding="utf-8")
        new.replace(file)

    @contextlib.contextmanager
    def hold(self) -> Iterator[None]:
        """Keep other processes from changing a mark during this block."""
        fcntl.flock(self._lock, fcntl.LOCK_EX)
        try:
            yield
        finally:
            fcntl.flock(self._lock, fcntl.LOCK_UN)

    def get_or_make(self, name: str, now: datetime) -> RunMark:
        """Return the mark of the pipeline. Create it now if the pipeline is new."""
        with self.hold():
            mark = self.get(name)
            if mark is None:
                mark = RunMark(served=now)
                self.put(name, mark)
            return mark

    def claim(self, name: str, due: datetime, *, drop_cut_off: bool = False) -> ClaimResult:
        """Claim the run that was due at this time. One caller is granted it.

        With `drop_cut_off`, a run before it that was cut off is forgotten.
        """
        with self.hold():
            mark = self.get(name)
            if mark is not None and mark.served >= due:
                return ClaimResult.TAKEN
            was_held = name in self._held
            if not self._take_lock(name):
                return ClaimResult.BUSY
            if mark is not None and mark.open is not None and not was_held and not drop_cut_off:
                self._free_lock(name)
                return ClaimResult.CUT_OFF
            self.put(name, dataclasses.replace(mark or RunMark(served=due), served=due, open=due))
            return ClaimResult.GRANTED

    def find_cut_off(self, name: str) -> datetime | None:
        """Return when the run was due that was cut off. None if the last run has ended, or is still under way."""
        with self.hold():
            mark = self.get(name)
            if mark is None or mark.open is None or name in self._held or not self._take_lock(name):
                return None
            self._free_lock(name)
            return mark.open

    def claim_again(self, name: str, due: datetime) -> ClaimResult:
        """Claim the run that was due at this time and was cut off.

        It can be claimed only once, because it may have caused the end of the process.
        """
        with self.hold():
            mark = self.get(name)
            if mark is None or mark.open != due:
                return ClaimResult.TAKEN
            if not self._take_lock(name):
                return ClaimResult.BUSY
            self.put(name, dataclasses.replace(mark, open=None))
            return ClaimResult.GRANTED

    def note_ended(self, name: str, *, succeeded: datetime | None = None, cut_off: datetime | None = None) -> None:
        """Record that a run has ended.

        `succeeded` is when it succeeded. `cut_off` is when it was due, if it ended because all runs had to end.
        """
        with self.hold():
            mark = self.get(name)
            if mark is not None:
                self.put(name, dataclasses.replace(mark, open=cut_off, succeeded=succeeded or mark.succeeded))
            self._free_lock(name)

    def close(self) -> None:
        """Let other schedulers begin the runs that this one has claimed, as the end of its process does."""
        for name in list(self._held):
            self._free_lock(name)

    def _take_lock(self, name: str) -> bool:
        if name in self._held:
            return True
        lock = _lock_file(self.folder / f"{name}.lock")
        if lock is not None:
            self._held[name] = lock
        return lock is not None

    def _free_lock(self, name: str) -> None:
        if name in self._held:
            os.close(self._held.pop(name))

    def pause(self, name: str, why: str | None, now: datetime) -> None:
        """Let no run of the pipeline begin, for this reason. With None, let runs begin again."""
        with self.hold():
            self.put(name, dataclasses.replace(self.get(name) or RunMark(served=now), paused=why))


def _lock_file(file: Path) -> int | None:
    """Lock a file, and return it open. Return None while another user has the lock."""
    opened = os.open(file, os.O_CREAT | os.O_RDWR, 0o644)
    try:
        fcntl.flock(opened, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        os.close(opened)
        if isinstance(error, BlockingIOError):
            return None
        raise
    return opened


class RunGroups:
    """The groups of pipelines, and how many runs each has at a time. Any thread may use it.

    Schedulers and servers that share a folder share the groups. Each run holds the lock of a file of its group, which
    the system frees with the process.
    """

    def __init__(self, folder: Path | None = None, limits: Mapping[str, int] | None = None) -> None:
        self.limits = limits or {}
        """How many runs of a group work at a time. Every other group has one."""
        if any(most < 1 for most in self.limits.values()):
            raise Refusal(f"Each group needs a limit of at least 1 run, and the limits are {self.limits}.")
        self._folder, self._lock = folder, threading.Lock()
        self._working: dict[str, list[int | None]] = {}
        """The locked files of the runs of each group. None stands for a run that other servers cannot see."""
        self._waiting: dict[str, Mapping[str, datetime]] = {}

    def choose(self, who: str, waiting: Sequence[tuple[str | None, datetime]]) -> int | None:
        """Let the first of these runs begin whose group has room. Return its place, or None if none can begin.

        Each run has its group and since when it waits, and the oldest is first. In a group, a run that waits longer
        elsewhere in this process comes before them. `leave` must follow. A run without a group always begins.
        """
        with self._lock:
            full: dict[str, datetime] = {}
            for at, (group, since) in enumerate(waiting):
                if group is None or (group not in full and self._enter(who, group, since)):
                    return at
                full.setdefault(group, since)
            self._waiting[who] = full
            return None

    def leave(self, group: str | None) -> None:
        """Note that a run of this group has ended, or did not begin."""
        with self._lock:
            lock = self._working[group].pop() if group is not None else None
            if lock is not None:
                fcntl.flock(lock, fcntl.LOCK_UN)  # a child that a run has forked may still have the file open
                os.close(lock)

    def _enter(self, who: str, group: str, since: datetime) -> bool:
        others = [each[group] for name, each in self._waiting.items() if name != who and group in each]
        working, most = self._working.setdefault(group, []), self.limits.get(group, 1)
        if len(working) >= most or min(others, default=since) < since:
            return False
        lock = None
        try:
            if self._folder is not None:
                self._folder.mkdir(parents=True, exist_ok=True)
                locks = (_lock_file(self._folder / f"{group}.{number}") for number in range(most))
                lock = next(each for each in locks if each is not None)
        except StopIteration:
            return False
        except OSError as error:
            log.warning("Other servers cannot see a run of the group %s: %s", group, error.strerror)
        working.append(lock)
        return True
