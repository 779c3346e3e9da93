"""What a scheduler leaves for the next one, and for others beside it: which runs were begun, and what is paused."""

from __future__ import annotations

import contextlib
import dataclasses
import fcntl
import json
import os
from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from runners.errors import Refusal

_MOMENTS = ("served", "open", "succeeded")


@dataclass(frozen=True, kw_only=True)
class Mark:
    """What is known of one pipeline."""

    served: datetime
    """When the last run was due that was begun; before there was any, when the pipeline was first seen."""
    open: datetime | None = None
    """When the run was due that was begun and whose end nobody noted: it goes on, or was cut off."""
    succeeded: datetime | None = None
    """When a run of it last ended well."""
    paused: str | None = None
    """Why nothing of it begins; None when it is not paused."""


class Marks(ABC):
    """The marks of all pipelines of a directory. All that change them do so one after another."""

    @abstractmethod
    def of(self, name: str) -> Mark | None:
        """The mark of a pipeline."""

    @abstractmethod
    def put(self, name: str, mark: Mark) -> None:
        """Write a mark; whoever reads sees the old one or this one."""

    @abstractmethod
    @contextlib.contextmanager
    def alone(self) -> Iterator[None]:
        """Nobody else changes a mark in here."""
        yield

    def seen(self, name: str, now: datetime) -> Mark:
        """The mark of the pipeline, made now if it is new."""
        with self.alone():
            mark = self.of(name)
            if mark is None:
                mark = Mark(served=now)
                self.put(name, mark)
            return mark

    def claim(self, name: str, due: datetime) -> bool:
        """Take the run that was due then: True for one that asks, False for all others."""
        with self.alone():
            mark = self.of(name)
            if mark is not None and mark.served >= due:
                return False
            self.put(name, dataclasses.replace(mark or Mark(served=due), served=due, open=due))
            return True

    def claim_again(self, name: str, due: datetime) -> bool:
        """Take the run that was due then and was cut off: once, for it may be what ended the process."""
        with self.alone():
            mark = self.of(name)
            if mark is None or mark.open != due:
                return False
            self.put(name, dataclasses.replace(mark, open=None))
            return True

    def ended(self, name: str, *, succeeded: datetime | None = None, cut_off: datetime | None = None) -> None:
        """A run has ended: well at this moment, or because all had to end, and then when it was due."""
        with self.alone():
            mark = self.of(name)
            if mark is not None:
                self.put(name, dataclasses.replace(mark, open=cut_off, succeeded=succeeded or mark.succeeded))

    def pause(self, name: str, why: str | None, now: datetime) -> None:
        """Let nothing of it begin, for this reason, or again with None."""
        with self.alone():
            self.put(name, dataclasses.replace(self.of(name) or Mark(served=now), paused=why))


class MemoryMarks(Marks):
    """Marks that end with the process."""

    def __init__(self) -> None:
        self.marks: dict[str, Mark] = {}

    def of(self, name: str) -> Mark | None:
        return self.marks.get(name)

    def put(self, name: str, mark: Mark) -> None:
        self.marks[name] = mark

    @contextlib.contextmanager
    def alone(self) -> Iterator[None]:
        yield


class FolderMarks(Marks):
    """Marks as small files of a folder, which several schedulers may share."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        try:
            folder.mkdir(parents=True, exist_ok=True)
            self._lock = os.open(folder / "lock", os.O_CREAT | os.O_RDWR, 0o644)
        except OSError as error:
            raise Refusal(
                f"What was run cannot be noted: {folder} ({error.strerror}).",
                hint="Make it writable: a scheduler notes there which runs it began, so that none is lost or doubled.",
            ) from error

    def of(self, name: str) -> Mark | None:
        try:
            noted = json.loads((self.folder / f"{name}.json").read_text(encoding="utf-8"))
            moments = [noted[each] and datetime.fromisoformat(noted[each]) for each in _MOMENTS]
            return Mark(**dict(zip(_MOMENTS, moments, strict=True)), paused=noted["paused"])
        except FileNotFoundError:
            return None
        except (ValueError, KeyError, TypeError):  # the machine went down while it was written: it begins anew
            return None

    def put(self, name: str, mark: Mark) -> None:
        moments = {each: getattr(mark, each) for each in _MOMENTS}
        noted = {each: moment and moment.isoformat() for each, moment in moments.items()} | {"paused": mark.paused}
        file = self.folder / f"{name}.json"
        new = file.with_name(f".{name}.{os.getpid()}")
        new.write_text(json.dumps(noted) + "\n", encoding="utf-8")
        new.replace(file)

    @contextlib.contextmanager
    def alone(self) -> Iterator[None]:
        fcntl.flock(self._lock, fcntl.LOCK_EX)
        try:
            yield
        finally:
            fcntl.flock(self._lock, fcntl.LOCK_UN)
