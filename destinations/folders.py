"""Batches as folders on this machine: each attempt is written apart, and published by one rename.

A folder that holds something is never renamed onto one that holds something: that is what decides here, once for
each name, whoever comes at the same time. All attempts lie in one hidden folder; to fence is to rename that one, and
every attempt begun before is gone from where its writer looks for it.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import shutil
import uuid
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from destinations.destination import DestinationError
from origins.batch import JSON

NOTE = "_wherry.json"
"""What stands beside a batch's rows: its labels and how many rows they are. Readers pass over such names."""
_WRITING = "_writing"


class Taken(Exception):
    """The name is taken: a batch was published there, or somebody claimed it."""


@dataclass(frozen=True)
class Folders:
    """A folder in which batches are published."""

    root: Path

    def make(self) -> str:
        """Make it if it is missing, and give the id that it has from then on."""
        try:
            self.root.mkdir(parents=True, exist_ok=True)
            with self.attempt() as attempt:
                self._probe(attempt)
                new = attempt / "id"
                new.write_text(json.dumps({"id": uuid.uuid4().hex}), encoding="utf-8")
                with contextlib.suppress(FileExistsError):
                    os.link(new, self.root / NOTE)
        except OSError as error:
            raise DestinationError(f"The folder cannot be written: {self.root} ({error.strerror}).") from error
        return self.id

    @property
    def id(self) -> str:
        """Which folder this is; nothing for one that is gone, or was never made."""
        note = _read(self.root / NOTE)
        return "" if note is None else str(note["id"])

    @contextlib.contextmanager
    def attempt(self) -> Iterator[Path]:
        """An empty folder for one attempt, which readers do not see and which is gone afterwards."""
        attempt = self.root / _WRITING / uuid.uuid4().hex
        attempt.mkdir(parents=True)
        try:
            yield attempt
        finally:
            shutil.rmtree(attempt, ignore_errors=True)

    def publish(self, rows: Path, name: str) -> None:
        """Make a folder within an attempt the one of this name. Raises `Taken`; or `FileNotFoundError` when a fence
        came between."""
        target = self.root / name
        target.parent.mkdir(exist_ok=True)
        _rename(rows, target)

    def claim(self, name: str, note: Mapping[str, JSON]) -> bool:
        """Take a name for a folder that stays empty but for a note; whether nobody was there before."""
        with self.attempt() as attempt:
            void = attempt / "void"
            void.mkdir()
            (void / NOTE).write_text(json.dumps(note), encoding="utf-8")
            try:
                self.publish(void, name)
            except Taken:
                return False
        return True

    def notes(self, pattern: str) -> Iterator[Mapping[str, JSON]]:
        """The notes in all folders whose names are like this."""
        for folder in self.root.glob(pattern):
            note = _read(folder / NOTE)
            if note is not None:
                yield note

    def fence(self, token: str) -> None:
        """Every attempt that was begun before this cannot be published any more."""
        fenced = self.root / f"_fenced-{token}"
        with contextlib.suppress(FileNotFoundError):
            (self.root / _WRITING).rename(fenced)
        shutil.rmtree(fenced, ignore_errors=True)

    def _probe(self, attempt: Path) -> None:
        """Raises unless two folders that hold something are kept apart here."""
        for name in ("one", "other"):
            (attempt / name).mkdir()
            (attempt / name / NOTE).touch()
        with contextlib.suppress(Taken):
            _rename(attempt / "one", attempt / "other")
            raise DestinationError(
                f"On the disk of {self.root} a folder can be renamed onto one that holds something, so that two "
                "writers are not kept apart.",
                hint="Write to another disk.",
            )


def _rename(source: Path, target: Path) -> None:
    try:
        source.rename(target)
    except OSError as error:
        if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):
            raise
        raise Taken(str(target)) from error


def _read(note: Path) -> Mapping[str, JSON] | None:
    try:
        found: Mapping[str, JSON] = json.loads(note.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None
    return found
