"""A folder on this disk in which batches of files are published, each once.

The operating system never renames a folder onto another folder that has files. So the first rename to a name wins, even
if several processes try at the same time.

All attempts are in one hidden folder. A fence renames that folder. No attempt that began earlier then finds its files,
so it cannot publish them.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import json
import os
import re
import shutil
import threading
import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar

from destinations.capabilities import BroughtBatch, Loss
from destinations.destination import DestinationError, Written
from destinations.labels import BatchLabel, Label
from origins.codec import LEFT_OUT, decode, encode
from origins.errors import has_no_links

_ESCAPED = re.compile(r"""[\x00-\x1f\x7f"#%'*/:=?\\{}\[\]^]""")
NOTE = "_wherry.json"
"""The file beside a batch's rows.

It has the batch's labels and its row count. Readers skip names that begin with `_`.
"""
_WRITING = "_writing"


class NameTaken(Exception):
    """A batch was published under this name, or another process claimed the name, or a fence stopped the attempt.

    The fence may be of another lane of the same run. The run then asks for the batch, and writes it again.
    """


@dataclass(frozen=True, kw_only=True)
class NoteBody:
    """The note beside a batch's rows. The folder's note has only the folder's id."""

    id: str = field(default="", metadata=LEFT_OUT)
    whole: bool = field(default=False, metadata=LEFT_OUT)
    keys: Sequence[str] = field(default=(), metadata=LEFT_OUT)
    pipeline: str = field(default="", metadata=LEFT_OUT)
    lane: str = field(default="", metadata=LEFT_OUT)
    number: int = field(default=0, metadata=LEFT_OUT)
    rows: int | None = field(default=None, metadata=LEFT_OUT)
    bytes: int | None = field(default=None, metadata=LEFT_OUT)
    reads: str = field(default="", metadata=LEFT_OUT)
    job: Mapping[str, str] = field(default_factory=dict, metadata=LEFT_OUT)


@dataclass(frozen=True)
class BatchFolders:
    """A folder in which batches are published."""

    root: Path
    is_whole: ClassVar[bool] = True

    def make(self) -> str:
        """Create the folder if it is missing. Return its id, which never changes."""
        try:
            self.root.mkdir(parents=True, exist_ok=True)
            with self.open_attempt() as attempt:
                self._probe(attempt)
                new = attempt / "id"
                new.write_text(json.dumps({"id": uuid.uuid4().hex}), encoding="utf-8")
                with contextlib.suppress(FileExistsError):
                    os.link(new, self.root / NOTE)
        except OSError as error:
            raise DestinationError(
                f"The folder cannot be written: {self.root} ({error.strerror}).",
                hint=_INSTEAD if has_no_links(error) else "",
            ) from error
        return self.id

    @property
    def id(self) -> str:
        """The folder's id; empty if the folder is missing, or Wherry never created it."""
        note = _read_note(self.root / NOTE)
        return "" if note is None else note.id

    @contextlib.contextmanager
    def open_attempt(self) -> Iterator[Path]:
        """Create an empty folder for one attempt. Readers do not see it, and it is removed at the end."""
        attempt = self.root / _WRITING / uuid.uuid4().hex
        attempt.mkdir(parents=True)
        try:
            yield attempt
        finally:
            shutil.rmtree(attempt, ignore_errors=True)

    def publish(self, rows: Path, name: str) -> None:
        """Rename a folder of an attempt to this name.

        Raises `NameTaken` if the name is taken, and `FileNotFoundError` if a fence came first.
        """
        target = self.root / name
        target.parent.mkdir(exist_ok=True)
        _rename(rows, target)

    def claim(self, name: str, note: NoteBody) -> bool:
        """Claim a name with a folder that has only a note. Return whether the name was free."""
        with _get_lock(self.root), self.open_attempt() as attempt:
            void = attempt / "void"
            void.mkdir()
            (void / NOTE).write_text(json.dumps(encode(note)), encoding="utf-8")
            try:
                self.publish(void, name)
            except NameTaken:
                return False
        return True

    def find(self, label: Label) -> Written | None:
        """Return what is published with this label; None if nothing is."""
        return next((describe_written(note) for _, note in self._list_published(f"*{make_digest(label)}*")), None)

    def locate(self, label: Label) -> str | None:
        """Return the folder with the rows of this label; None if no batch with this label is published."""
        return next((str(folder) for folder, _ in self._list_published(f"*{make_digest(label)}*")), None)

    def list_brought(self) -> tuple[list[BroughtBatch], list[Loss]]:
        """Return the published batches, each with the loss of its rows, if there is one. No other loss is known."""
        brought: list[BroughtBatch] = []
        for folder, note in self._list_published():
            size = sum(each.stat().st_size for each in list_data_files(folder))
            brought += describe_brought(note, str(folder), size)
        return brought, []

    def list_labels(self) -> Iterator[BatchLabel]:
        """Yield the labels of the published batches, those with the highest numbers first."""
        names = {each.name.removeprefix("_batch=") for each in self.root.glob("_lane=*/_batch=*")}
        newest = (note for name in sorted(names, reverse=True) for _, note in self._list_published(name))
        return (label for note in newest for label in make_labels(note))

    def _list_published(self, names: str = "*") -> Iterator[tuple[Path, NoteBody]]:
        for folder in sorted(self.root.glob(f"_lane=*/_batch={names}")):
            note = _read_note(folder / NOTE)
            if note is not None and note.rows is not None:
                yield folder, note

    def fence(self, token: str) -> None:
        """Prevent all attempts that began earlier from being published."""
        fenced = self.root / f"_fenced-{token}"
        with _get_lock(self.root), contextlib.suppress(FileNotFoundError):
            (self.root / _WRITING).rename(fenced)
        shutil.rmtree(fenced, ignore_errors=True)

    def _probe(self, attempt: Path) -> None:
        """Raise unless this disk refuses to rename a folder onto another folder that has files."""
        for name in ("one", "other"):
            (attempt / name).mkdir()
            (attempt / name / NOTE).touch()
        with contextlib.suppress(NameTaken):
            _rename(attempt / "one", attempt / "other")
            raise DestinationError(
                f"The disk of {self.root} lets a folder replace another full folder, so Wherry cannot keep two "
                "writers apart.",
                hint="Choose a path on another disk.",
            )


_INSTEAD = (
    "The destination `files` needs hard links, and folders of /Volumes and /Workspace have none. Write to a table with "
    "`delta: {table: …}`, or to the URL of a store with `files: {path: …}`."
)

_LOCKS: dict[Path, threading.Lock] = {}
"""The lock of each folder. Without it, a fence of one lane could remove the claim of another lane."""


def _get_lock(root: Path) -> threading.Lock:
    return _LOCKS.setdefault(root, threading.Lock())


def _rename(source: Path, target: Path) -> None:
    try:
        source.rename(target)
    except OSError as error:
        if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):
            raise
        raise NameTaken(str(target)) from error


def _read_note(note: Path) -> NoteBody | None:
    try:
        return decode(NoteBody, json.loads(note.read_text(encoding="utf-8")))
    except FileNotFoundError:
        return None


def name_folder(labels: Sequence[Label], claims: int = 0) -> str:
    """Return the name of a batch's folder. Each claim changes it, so only the process that claimed last knows it."""
    batch = labels[0].batch
    lane = _ESCAPED.sub(lambda found: f"%{ord(found.group()):02X}", batch.lane)
    digests = "+".join(map(make_digest, labels))
    return f"_lane={lane}/_batch={batch.number:08}-{digests}" + (f".{claims}" if claims else "")


def make_digest(label: Label) -> str:
    return hashlib.sha256(label.key.encode()).hexdigest()[:16]


def make_note(labels: Sequence[Label], found: Written | None) -> NoteBody:
    """Return the note beside a batch's rows. A note without rows records that a claim keeps the folder empty."""
    batch = labels[0].batch
    return NoteBody(
        keys=[label.key for label in labels],
        pipeline=batch.pipeline,
        lane=batch.lane,
        number=batch.number,
        rows=found.rows if found else None,
        bytes=found.bytes if found else None,
        reads=batch.reads,
        job=batch.job,
    )


def describe_written(note: NoteBody) -> Written:
    """Return what the note records of a batch. The numbers are unknown if the folder has several batches."""
    alone = len(note.keys) == 1
    return Written(rows=note.rows if alone else None, bytes=note.bytes if alone else None)


def describe_brought(note: NoteBody, folder: str, size: int) -> Iterator[BroughtBatch]:
    """Return the batches of a note. `size` is the number of bytes of rows that are in its folder now."""
    loss, noted = None, note.bytes
    if (size != noted) if noted is not None else (not size and note.rows):
        reason = f"{folder} holds {size:,} bytes instead of {'some' if noted is None else f'{noted:,}'}"
        loss = Loss(code="FILE_CHANGED" if size else "FILE_GONE", reason=reason, whole=not size)
    for label in make_labels(note):
        yield BroughtBatch(label=label, rows=note.rows, together=note.keys, loss=loss)


def make_labels(note: NoteBody) -> Iterator[BatchLabel]:
    """Return the labels of the batches of a note."""
    for key in note.keys:
        plan, _, destination = key.rpartition("/")
        yield BatchLabel(
            pipeline=note.pipeline,
            lane=note.lane,
            number=note.number,
            plan=plan,
            destination=destination,
            key=key,
            reads=note.reads,
            job=note.job,
        )


def list_data_files(folder: Path) -> list[Path]:
    """Return the files of rows that readers see."""
    return [file for file in folder.rglob("*") if file.is_file() and not file.name.startswith(("_", "."))]
