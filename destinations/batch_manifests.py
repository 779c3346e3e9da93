"""A folder of an object store in which manifests publish batches of files, each once.

A manifest is a text with the URL of each file of a batch, one a line. It is put only if the store has none with its
name: that decides, whoever comes at the same time, and nobody changes it afterwards. An empty one claims the name.

No two attempts use the same names for their files. Each attempt is noted in `_writing` before its first file. To fence
is to claim the manifests of all attempts that are noted there, and to remove the files of those that came too late.
"""

from __future__ import annotations

import contextlib
import json
import uuid
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Literal, TypedDict

from destinations.batch_folders import (
    NOTE,
    NameTaken,
    NoteBody,
    describe_brought,
    describe_written,
    make_digest,
    make_note,
    name_folder,
)
from destinations.destination import BroughtBatch, DestinationError, Label, Written
from origins.json_shape import check_shape
from origins.object_store import ObjectStore, open_store
from origins.quick_dataclass import dataclass
from origins.store_access import StoreError, StoreUrl, find_problem

MANIFESTS = "_symlink_format_manifest"
"""The folder of the manifests, by the name and in the format in which Delta writes them for Hive and its like."""
_WRITING = "_writing"
_ALONE = "Or set `manifest: false`. Then Spark alone writes there, and a batch is there at least once."
_AT_ONCE = 16
"""So many objects are read at once."""


class AttemptBody(TypedDict):
    """What is noted of an attempt that is under way."""

    folder: str
    manifest: str


@dataclass(eq=False)
class StoreAttempt:
    """The files of one attempt to write a batch, which no reader of manifests sees before it is published."""

    folder: str
    """Where its files are, below the root."""
    manifest: str
    url: str
    """Where its files are, for Spark."""
    state: Literal["open", "in doubt", "published"] = "open"


@dataclass(frozen=True)
class BatchManifests:
    """A folder of a store in which batches are published."""

    root: StoreUrl

    @property
    def store(self) -> ObjectStore:
        """With the access as it is now: credentials may be renewed while a run lasts."""
        return open_store(self.root)

    @property
    def id(self) -> str:
        """The folder's id; nothing if it is missing, or was never created."""
        return str((self._read_note(NOTE) or {}).get("id", ""))

    @property
    def is_whole(self) -> bool:
        """Whether it has had a manifest for each batch from its beginning."""
        return bool((self._read_note(NOTE) or {}).get("whole"))

    def make(self) -> str:
        """Make it if it is missing, and give the id that it has from then on."""
        problem = find_problem(self.root)
        if problem is not None:
            raise DestinationError(f"The path of a `files` destination is wrong: {problem}.", hint=_ALONE)
        store = self.store
        try:
            store.check_put_if_new()
            if not self.id:
                earlier = any(folder.startswith("_lane=") for folder in store.list_folders())
                note: NoteBody = {"id": uuid.uuid4().hex, "whole": not earlier}
                store.put_new(NOTE, json.dumps(note).encode())
        except StoreError as error:
            if error.is_away:
                raise
            raise DestinationError(
                f"The manifests of {self.root} cannot be written: {error.message}",
                hint=f"{error.hint} {_ALONE}",
            ) from error
        return self.id

    @contextlib.contextmanager
    def open_attempt(self, labels: Sequence[Label], claims: int) -> Iterator[StoreAttempt]:
        """An attempt to write a batch. What it wrote is removed afterwards, unless it may be published."""
        name, token, store = name_folder(labels, claims), uuid.uuid4().hex, self.store
        note: AttemptBody = {"folder": f"{name}.{token}", "manifest": _name_manifest(name)}
        store.put_new(f"{_WRITING}/{token}", json.dumps(note).encode())
        attempt = StoreAttempt(folder=note["folder"], manifest=note["manifest"], url=f"{self.root}/{note['folder']}")
        try:
            yield attempt
        finally:
            with contextlib.suppress(StoreError):  # it costs space until a fence
                if attempt.state == "open":
                    store.delete_folder(attempt.folder)
                if attempt.state != "in doubt":
                    store.delete([f"{_WRITING}/{token}"])

    def list_files(self, attempt: StoreAttempt) -> Mapping[str, int]:
        """The files of rows that an attempt has written, each with its size. A file without a byte has no row: it may
        stand for a folder."""
        found = [each for page in self.store.list_objects(attempt.folder) for each in page]
        return {each.key: each.size for each in found if each.size and not _is_hidden(each.key)}

    def publish(
        self, attempt: StoreAttempt, labels: Sequence[Label], written: Written, files: Mapping[str, int]
    ) -> None:
        """Let readers see the files of an attempt. Raises `NameTaken` where the batch was published, claimed or fenced
        before."""
        store, lines = self.store, "".join(f"{self.root}/{file}\n" for file in sorted(files))
        store.put_new(f"{attempt.folder}/{NOTE}", json.dumps(make_note(labels, written)).encode())
        attempt.state = "in doubt"
        if store.take(attempt.manifest, lines.encode()) is None:
            attempt.state = "open"
            raise NameTaken(attempt.manifest)
        attempt.state = "published"

    def claim(self, name: str, note: NoteBody) -> bool:
        """Take the name of a batch's folder by a manifest that stays empty; whether the name was free."""
        return self.store.put_new(_name_manifest(name), b"")

    def find(self, label: Label) -> Written | None:
        """What is published of the batch with this label; None where nothing is."""
        return next((describe_written(note) for _, note in self._list_published(label)), None)

    def locate(self, label: Label) -> str | None:
        """Return the folder with the files of this label, for Spark; None if no batch with this label is published."""
        return next((f"{self.root}/{_get_folder(files[0])}" for files, _ in self._list_published(label)), None)

    def list_brought(self) -> Iterator[BroughtBatch]:
        """The batches that are published, each with what became of its rows."""
        keys = sorted(key for page in self.store.list_pages(MANIFESTS) for key in page)
        sizes = {each.key: each.size for page in self.store.list_objects() for each in page}  # newer than the manifests
        for files, note in self._read_published(keys):
            size = sum(sizes.get(file, 0) for file in files)
            yield from describe_brought(note, f"{self.root}/{_get_folder(files[0])}", size)

    def fence(self, token: str) -> None:
        """Every attempt that was begun before this cannot be published any more."""
        store = self.store
        for key in [key for page in store.list_pages(_WRITING) for key in page]:
            found = store.read_object(key)
            if found is None:
                continue  # its writer has ended
            note = check_shape(AttemptBody, json.loads(found[1]))
            store.put_new(note["manifest"], b"")
            published = note["folder"] in map(_get_folder, self._read_manifest(note["manifest"]))
            with contextlib.suppress(StoreError):  # it costs space until the next fence
                if not published:
                    store.delete_folder(note["folder"])
                store.delete([key])

    def _list_published(self, label: Label) -> Iterator[tuple[list[str], NoteBody]]:
        keys = [key for page in self.store.list_pages(MANIFESTS) for key in page if make_digest(label) in key]
        yield from self._read_published(keys)

    def _read_published(self, manifests: Sequence[str]) -> Iterator[tuple[list[str], NoteBody]]:
        """The files and the note of each batch that one of these manifests publishes."""
        with ThreadPoolExecutor(_AT_ONCE) as pool:
            published = [files for files in pool.map(self._read_manifest, manifests) if files]
            notes = pool.map(self._read_note, [f"{_get_folder(files[0])}/{NOTE}" for files in published])
            yield from ((files, note) for files, note in zip(published, notes, strict=True) if note is not None)

    def _read_manifest(self, manifest: str) -> list[str]:
        """The keys of the files that it names. They are found wherever the folder was copied to."""
        lines = self.store.read(manifest).decode().splitlines()
        return [line[line.rindex("/_lane=") + 1 :] for line in lines]

    def _read_note(self, key: str) -> NoteBody | None:
        found = self.store.read_object(key)
        return None if found is None else check_shape(NoteBody, json.loads(found[1]))


def _name_manifest(folder: str) -> str:
    """The key of the manifest of a batch's folder. It begins with a digit, since readers pass over `_` and `.`."""
    return f"{MANIFESTS}/{folder.partition('/_batch=')[2]}"


def _get_folder(file: str) -> str:
    return "/".join(file.split("/")[:2])


def _is_hidden(key: str) -> bool:
    return any(part.startswith(".") or (part.startswith("_") and "=" not in part) for part in key.split("/"))
