"""A folder of an object store in which manifests publish batches of files, each once.

A manifest is a text with the URL of each file of a batch, one a line. Wherry puts a manifest only if the store has none
with this name. So the first writer wins, and no process changes a manifest afterwards. An empty manifest claims the
name.

No two attempts use the same names for their files. Each attempt is recorded in `_writing` before its first file. A
fence claims the manifests of all recorded attempts. It then removes the files of the attempts that were not published.
"""

from __future__ import annotations

import contextlib
import json
import uuid
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Literal

from destinations.batch_folders import (
    NOTE,
    NameTaken,
    NoteBody,
    describe_brought,
    describe_written,
    make_digest,
    make_labels,
    make_note,
    name_folder,
)
from destinations.capabilities import BroughtBatch, Loss
from destinations.destination import DestinationError, Written, make_unsure_error
from destinations.labels import BatchLabel, Label
from origins.codec import decode, encode
from origins.object_store import ObjectStore, open_store
from origins.store_access import StoreError, StoreUrl, find_problem

MANIFESTS = "_symlink_format_manifest"
"""The folder of the manifests. Its name and its format are those that Delta writes for Hive and similar readers."""
_WRITING = "_writing"
_ALONE = "Or set `manifest: false`. Then Spark alone writes there, and a batch is there at least once."
_AT_ONCE = 16
"""How many objects are read at once."""


@dataclass(frozen=True, kw_only=True)
class AttemptBody:
    """The record of an attempt that is in progress."""

    folder: str
    manifest: str


@dataclass(eq=False)
class StoreAttempt:
    """The files of one attempt to write a batch. No reader of manifests sees them before the attempt is published."""

    folder: str
    """The path of its files, below the root."""
    manifest: str
    url: str
    """The URL of its files, for Spark."""
    state: Literal["open", "in doubt", "published"] = "open"


@dataclass(frozen=True)
class BatchManifests:
    """A folder of an object store in which batches are published."""

    root: StoreUrl

    @property
    def store(self) -> ObjectStore:
        """The store, with the current credentials, which may be renewed during a run."""
        return open_store(self.root)

    @property
    def id(self) -> str:
        """The folder's id; empty if the folder is missing, or Wherry never created it."""
        return (self._read_note(NOTE) or NoteBody()).id

    @property
    def is_whole(self) -> bool:
        """Whether every batch in the folder has had a manifest from the folder's beginning."""
        return (self._read_note(NOTE) or NoteBody()).whole

    def make(self) -> str:
        """Create the folder if it is missing. Return its id, which never changes."""
        problem = find_problem(self.root)
        if problem is not None:
            raise DestinationError(f"The path of a `files` destination is wrong: {problem}.", hint=_ALONE)
        store = self.store
        try:
            store.check_put_if_new()
            if not self.id:
                earlier = any(folder.startswith("_lane=") for folder in store.list_folder()[0])
                note = NoteBody(id=uuid.uuid4().hex, whole=not earlier)
                if store.take(NOTE, json.dumps(encode(note)).encode()) is not None:
                    return note.id
        except StoreError as error:
            if error.is_away:
                raise
            raise DestinationError(
                f"The manifests of {self.root} cannot be written: {error.message}", hint=f"{error.hint} {_ALONE}"
            ) from error
        return self.id

    @contextlib.contextmanager
    def open_attempt(self, labels: Sequence[Label], claims: int) -> Iterator[StoreAttempt]:
        """Begin an attempt to write a batch. At the end, its files are removed unless they may be published."""
        name, token, store = name_folder(labels, claims), uuid.uuid4().hex, self.store
        note = AttemptBody(folder=f"{name}.{token}", manifest=_name_manifest(name))
        store.put_new(f"{_WRITING}/{token}", json.dumps(encode(note)).encode())
        attempt = StoreAttempt(folder=note.folder, manifest=note.manifest, url=f"{self.root}/{note.folder}")
        try:
            yield attempt
        finally:
            with contextlib.suppress(StoreError):  # the files only cost space until a fence
                if attempt.state == "open":
                    store.delete_folder(attempt.folder)
                if attempt.state != "in doubt":
                    store.delete([f"{_WRITING}/{token}"])

    def list_files(self, attempt: StoreAttempt) -> Mapping[str, int]:
        """Return the files of rows that an attempt has written, with their sizes.

        A file without a byte has no row, because it may stand for a folder.
        """
        found = [each for page in self.store.list_objects(attempt.folder) for each in page]
        return {each.key: each.size for each in found if each.size and not _is_hidden(each.key)}

    def is_taken(self, attempt: StoreAttempt) -> bool:
        """Whether a batch, a claim or a fence has the manifest of an attempt. A fence also deletes its files."""
        return self.store.read_object(attempt.manifest) is not None

    def publish(
        self, attempt: StoreAttempt, labels: Sequence[Label], written: Written, files: Mapping[str, int]
    ) -> None:
        """Let readers see the files of an attempt.

        Raises `NameTaken` if the batch was already published, claimed or fenced.
        """
        store, lines = self.store, "".join(f"{self.root}/{file}\n" for file in sorted(files))
        store.put_new(f"{attempt.folder}/{NOTE}", json.dumps(encode(make_note(labels, written))).encode())
        attempt.state = "in doubt"
        if store.take(attempt.manifest, lines.encode()) is None:
            attempt.state = "open"
            raise NameTaken(attempt.manifest)
        attempt.state = "published"

    def claim(self, name: str, note: NoteBody) -> bool:
        """Claim the name of a batch's folder with an empty manifest. Return whether the name was free."""
        return self.store.claim(_name_manifest(name))

    def find(self, label: Label) -> Written | None:
        """Return what is published with this label; None if nothing is. Raise `Unsure` if its note is missing."""
        for files, note in self._list_published(label):
            if note is None:
                raise make_unsure_error(label, self._describe_missing_note(files), "Look for its files there.")
            return describe_written(note)
        return None

    def locate(self, label: Label) -> str | None:
        """Return the folder with the files of this label, for Spark; None if no batch with this label is published."""
        return next((f"{self.root}/{_get_folder(files[0])}" for files, _ in self._list_published(label)), None)

    def list_brought(self) -> tuple[list[BroughtBatch], list[Loss]]:
        """Return the published batches, each with the loss of its rows, if there is one.

        Also return the losses of batches whose notes are missing, so that nothing says which batches they are.
        """
        brought: list[BroughtBatch] = []
        losses: list[Loss] = []
        keys = sorted(key for page in self.store.list_pages(MANIFESTS) for key in page)
        sizes = {each.key: each.size for page in self.store.list_objects() for each in page}  # listed last
        for files, note in self._read_published(keys):
            if note is None:
                losses.append(Loss(code="LOG_BROKEN", reason=self._describe_missing_note(files)))
                continue
            size = sum(sizes.get(file, 0) for file in files)
            brought += describe_brought(note, f"{self.root}/{_get_folder(files[0])}", size)
        return brought, losses

    def list_labels(self) -> Iterator[BatchLabel]:
        """Yield the labels of the published batches, those with the highest numbers first."""
        for key in sorted((key for page in self.store.list_pages(MANIFESTS) for key in page), reverse=True):
            for _, note in self._read_published([key]):
                yield from make_labels(note) if note else ()

    def _describe_missing_note(self, files: Sequence[str]) -> str:
        return f"a manifest publishes the files of {self.root}/{_get_folder(files[0])}, and {NOTE} is missing there"

    def fence(self, token: str) -> None:
        """Prevent all attempts that began earlier from being published."""
        store = self.store
        for key in [key for page in store.list_pages(_WRITING) for key in page]:
            found = store.read_object(key)
            if found is None:
                continue  # its writer has finished
            note = decode(AttemptBody, json.loads(found[1]))
            manifest = note.manifest
            published = not store.claim(manifest) and note.folder in map(_get_folder, self._read_manifest(manifest))
            with contextlib.suppress(StoreError):  # the files only cost space until the next fence
                if not published:
                    store.delete_folder(note.folder)
                store.delete([key])

    def _list_published(self, label: Label) -> Iterator[tuple[list[str], NoteBody | None]]:
        keys = [key for page in self.store.list_pages(MANIFESTS) for key in page if make_digest(label) in key]
        yield from self._read_published(keys)

    def _read_published(self, manifests: Sequence[str]) -> Iterator[tuple[list[str], NoteBody | None]]:
        """Return the files and the note of each batch that one of these manifests publishes. Each batch has a note."""
        with ThreadPoolExecutor(_AT_ONCE) as pool:
            published = [files for files in pool.map(self._read_manifest, manifests) if files]
            notes = pool.map(self._read_note, [f"{_get_folder(files[0])}/{NOTE}" for files in published])
            yield from zip(published, notes, strict=True)

    def _read_manifest(self, manifest: str) -> list[str]:
        """Return the keys of the files that a manifest names.

        They are also right if the folder was copied elsewhere.
        """
        lines = self.store.read(manifest).decode().splitlines()
        return [line[line.rindex("/_lane=") + 1 :] for line in lines]

    def _read_note(self, key: str) -> NoteBody | None:
        found = self.store.read_object(key)
        return None if found is None else decode(NoteBody, json.loads(found[1]))


def _name_manifest(folder: str) -> str:
    """Return the key of the manifest for a batch's folder. It begins with a digit, because readers skip `_` and `.`."""
    return f"{MANIFESTS}/{folder.partition('/_batch=')[2]}"


def _get_folder(file: str) -> str:
    return "/".join(file.split("/")[:2])


def _is_hidden(key: str) -> bool:
    return any(part.startswith(".") or (part.startswith("_") and "=" not in part) for part in key.split("/"))
