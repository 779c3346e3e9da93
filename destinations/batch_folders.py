"""A folder on this disk in which batches of files are published, each once.

A folder that holds something is never renamed onto one that holds something: that is what decides here, once for
each name, whoever comes at the same time. All attempts lie in one hidden folder; to fence is to rename that one, and
every attempt begun before is gone from where its writer looks for it.
"""

from __future__ import annotations

import contextlib
import errno
import functools
import hashlib
import json
import os
import re
import shutil
import threading
import uuid
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import ClassVar, TypedDict

from destinations.destination import BatchLabel, BroughtBatch, DestinationError, Label, Loss, Written
from origins.json_shape import check_shape
from origins.quick_dataclass import dataclass

_ESCAPED = re.compile(r"""[\x00-\x1f\x7f"#%'*/:=?\\{}\[\]^]""")
NOTE = "_wherry.json"
"""What stands beside a batch's rows: its labels and how many rows they are. Readers pass over such names."""
_WRITING = "_writing"


class NameTaken(Exception):
    """The name is taken: a batch was published there, or somebody claimed it."""


class NoteBody(TypedDict, total=False):
    """The note beside a batch's rows; for the folder itself its id."""

    id: str
    whole: bool
    keys: Sequence[str]
    pipeline: str
    lane: str
    number: int
    rows: int | None
    bytes: int | None


@dataclass(frozen=True)
class BatchFolders:
    """A folder in which batches are published."""

    root: Path
    is_whole: ClassVar[bool] = True

    def make(self) -> str:
        """Make it if it is missing, and give the id that it has from then on."""
        try:
            self.root.mkdir(parents=True, exist_ok=True)
            with self.open_attempt() as attempt:
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
        """The folder's id; nothing if it is missing, or was never created."""
        note = _read_note(self.root / NOTE)
        return "" if note is None else str(note["id"])

    @contextlib.contextmanager
    def open_attempt(self) -> Iterator[Path]:
        """An empty folder for one attempt, which readers do not see and which is gone afterwards."""
        attempt = self.root / _WRITING / uuid.uuid4().hex
        attempt.mkdir(parents=True)
        try:
            yield attempt
        finally:
            shutil.rmtree(attempt, ignore_errors=True)

    def publish(self, rows: Path, name: str) -> None:
        """Make a folder within an attempt the one of this name. Raises `NameTaken`; or `FileNotFoundError` when a fence
        came between."""
        target = self.root / name
        target.parent.mkdir(exist_ok=True)
        _rename(rows, target)

    def claim(self, name: str, note: NoteBody) -> bool:
        """Take a name for a folder that stays empty but for a note; whether the name was free."""
        with _get_lock(self.root), self.open_attempt() as attempt:
            void = attempt / "void"
            void.mkdir()
            (void / NOTE).write_text(json.dumps(note), encoding="utf-8")
            try:
                self.publish(void, name)
            except NameTaken:
                return False
        return True

    def find(self, label: Label) -> Written | None:
        """What is published of the batch with this label; None where nothing is."""
        return next((describe_written(note) for _, note in self._list_published(label)), None)

    def locate(self, label: Label) -> str | None:
        """Return the folder with the rows of this label; None if no batch with this label is published."""
        return next((str(folder) for folder, _ in self._list_published(label)), None)

    def _list_published(self, label: Label) -> Iterator[tuple[Path, NoteBody]]:
        for folder in self.root.glob(f"_lane=*/_batch=*{make_digest(label)}*"):
            note = _read_note(folder / NOTE)
            if note is not None and note["rows"] is not None:
                yield folder, note

    def list_brought(self) -> Iterator[BroughtBatch]:
        """The batches that are published, each with what became of its rows."""
        for file in sorted(self.root.glob(f"_lane=*/_batch=*/{NOTE}")):
            note = _read_note(file)
            if note is not None and note.get("rows") is not None:
                size = sum(each.stat().st_size for each in list_data_files(file.parent))
                yield from describe_brought(note, str(file.parent), size)

    def fence(self, token: str) -> None:
        """Every attempt that was begun before this cannot be published any more."""
        fenced = self.root / f"_fenced-{token}"
        with _get_lock(self.root), contextlib.suppress(FileNotFoundError):
            (self.root / _WRITING).rename(fenced)
        shutil.rmtree(fenced, ignore_errors=True)

    def _probe(self, attempt: Path) -> None:
        """Raises unless two folders that hold something are kept apart here."""
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


@functools.cache
def _get_lock(root: Path) -> threading.Lock:
    """Keeps a fence of one lane out of what another lane of this process claims."""
    return threading.Lock()


def _rename(source: Path, target: Path) -> None:
    try:
        source.rename(target)
    except OSError as error:
        if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):
            raise
        raise NameTaken(str(target)) from error


def _read_note(note: Path) -> NoteBody | None:
    try:
        return check_shape(NoteBody, json.loads(note.read_text(encoding="utf-8")))
    except FileNotFoundError:
        return None


def name_folder(labels: Sequence[Label], claims: int = 0) -> str:
    """The name of a batch's folder. Each claim gives it another name, which only the last process to claim it knows."""
    batch = labels[0].batch
    lane = _ESCAPED.sub(lambda found: f"%{ord(found.group()):02X}", batch.lane)
    digests = "+".join(map(make_digest, labels))
    return f"_lane={lane}/_batch={batch.number:08}-{digests}" + (f".{claims}" if claims else "")


def make_digest(label: Label) -> str:
    return hashlib.sha256(label.key.encode()).hexdigest()[:16]


def make_note(labels: Sequence[Label], found: Written | None) -> NoteBody:
    """The note beside a batch's rows; without rows it notes that a claim keeps the folder empty."""
    batch = labels[0].batch
    return {
        "keys": [label.key for label in labels],
        "pipeline": batch.pipeline,
        "lane": batch.lane,
        "number": batch.number,
        "rows": found.rows if found else None,
        "bytes": found.bytes if found else None,
    }


def describe_written(note: NoteBody) -> Written:
    """What the note has of a batch. It is unknown where the rows of several batches are in one folder."""
    alone = len(note["keys"]) == 1
    return Written(rows=note["rows"] if alone else None, bytes=note["bytes"] if alone else None)


def describe_brought(note: NoteBody, folder: str, size: int) -> Iterator[BroughtBatch]:
    """The batches of a note, in whose folder there are so many bytes of rows."""
    loss = None
    if size != note["bytes"]:
        reason = f"{folder} holds {size:,} bytes instead of {note['bytes']:,}"
        loss = Loss(code="FILE_CHANGED" if size else "FILE_GONE", reason=reason, whole=not size)
    for key in note["keys"]:
        plan, _, destination = key.rpartition("/")
        label: BatchLabel = {
            "pipeline": note["pipeline"],
            "lane": note["lane"],
            "number": note["number"],
            "plan": plan,
            "destination": destination,
            "key": key,
        }
        yield BroughtBatch(label=label, rows=note["rows"], together=note["keys"], loss=loss)


def list_data_files(folder: Path) -> list[Path]:
    """The files of rows, as readers see them."""
    return [file for file in folder.rglob("*") if file.is_file() and not file.name.startswith(("_", "."))]
