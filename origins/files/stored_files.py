"""Files in an object store, which this process lists in pages, reads, moves and deletes without Spark.

A store has no folders: the part of an object's key before a `/` counts as one. An empty object is not a file, since
stores use such objects to mark folders.
"""

from __future__ import annotations

import errno
import io
import itertools
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from fnmatch import fnmatchcase
from types import SimpleNamespace
from typing import IO, Any, TypeVar

from origins.errors import OriginError
from origins.files.file_systems import (
    SMALL,
    WILD,
    File,
    OpenFileSystem,
    PassOver,
    fits,
    is_hidden,
    join_path,
    make_missing_error,
    make_one_file_error,
)
from origins.object_store import ObjectStore, StoredObject
from origins.store_access import StoreError, get_key

Asked = TypeVar("Asked")
Answer = TypeVar("Answer")

_AT_ONCE = 16
"""The most requests at the same time."""
_PIECE = 8 << 20
"""The bytes of a large object that one request reads, if all of the object is read."""
_BUFFER = 1 << 20
"""The bytes that one request reads of an object that is opened as a file."""
_BEHIND_FOLDER = "/\U0010ffff"
"""A suffix of a folder's name that sorts after all keys in the folder."""


class StoredFiles(OpenFileSystem):
    """The files of one bucket."""

    def __init__(self, store: ObjectStore) -> None:
        self._store = store

    def list_files(
        self, root: str, segments: Sequence[str], known: Mapping[str, File], pass_over: PassOver, *, may_be_gone: bool
    ) -> Iterable[File]:
        listing = _Listing(self._store, get_key(root))
        found = [file for file in listing.find(segments) if file.size and fits(file.name, segments)]
        if listing.is_empty and listing.folder and not may_be_gone:
            raise make_one_file_error(root) if self._store.exists(listing.folder) else make_missing_error(root)
        return found

    def stat(self, root: str, names: Sequence[str]) -> Iterable[File]:
        found = _ask_together(self._store.find, [get_key(join_path(root, name)) for name in names])
        return [_make_file(each, name) for name, each in zip(names, found, strict=True) if each is not None]

    def now(self) -> float:
        return self._store.read_clock()

    def find_file(self, path: str, size: int | None, content: bytes | None = None) -> StoredFile:
        return StoredFile(self._store, path, size, content)

    def read(self, root: str, planned: Sequence[File]) -> Mapping[str, tuple[File, bytes]]:
        keys = [get_key(join_path(root, file.name)) for file in planned]
        found = zip(planned, _ask_together(self._store.read_object, keys), strict=True)
        return {file.name: (_make_file(each[0], file.name), each[1]) for file, each in found if each is not None}

    def delete(self, paths: Sequence[str]) -> None:
        try:
            self._store.delete([*map(get_key, paths)])
        except StoreError as error:
            raise _explain(", ".join(paths[:3]), "deleted", error) from error

    def move(self, paths: Mapping[str, str]) -> None:
        _ask_together(lambda pair: self._move(*pair), list(paths.items()))

    def _move(self, path: str, target: str) -> None:
        key, wanted = get_key(path), get_key(target)
        try:
            for name in itertools.chain([wanted], (f"{wanted}~{number}" for number in itertools.count(2))):
                if (not self._store.exists(name) and self._copy(key, name)) or self._has_same(key, name):
                    break
            self._store.delete([key])
        except FileNotFoundError:  # another process has taken it
            return
        except StoreError as error:
            raise _explain(path, f"moved to {target}", error) from error

    def _copy(self, key: str, target: str) -> bool:
        """Return whether this made a copy. It makes none if the object is missing or the target exists."""
        try:
            return self._store.copy_new(key, target)
        except FileNotFoundError:  # the object, or an upload that a request without an answer has completed
            return False

    def _has_same(self, key: str, other: str) -> bool:
        """Return whether two objects have the same content. Raise `FileNotFoundError` if the first one is missing."""
        one, two = self._store.find(key), self._store.find(other)
        if one is None:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), key)
        if two is None or one.size != two.size:
            return False
        return all(
            self._store.read_range(key, *each) == self._store.read_range(other, *each)
            for each in _list_pieces(one.size)
        )


class StoredFile:
    """An object that is opened and read like a path of this machine. Raises `OSError` if it cannot be read.

    The content of a small object is kept once it is read.
    """

    def __init__(self, store: ObjectStore, path: str, size: int | None, content: bytes | None = None) -> None:
        self._store, self._path, self._key, self._size = store, path, get_key(path), size
        self._content = content

    def __str__(self) -> str:
        return self._path

    @property
    def name(self) -> str:
        """Return the last part of its path."""
        return self._path.rpartition("/")[2]

    def stat(self) -> SimpleNamespace:
        """Return its size, as `st_size`."""
        if self._size is None:
            found = self._ask(self._store.find)
            if found is None:
                raise self._make_gone()
            self._size = found.size
        return SimpleNamespace(st_size=self._size)

    def read_bytes(self) -> bytes:
        """Return its content."""
        if self._content is not None:
            return self._content
        if self._size is not None and self._size > SMALL:
            return b"".join(self.read_range(*each) for each in _list_pieces(self._size))
        found = self._ask(self._store.read_object)
        if found is None:
            raise self._make_gone()
        self._size = found[0].size
        if self._size <= SMALL:
            self._content = found[1]
        return found[1]

    def open(self, mode: str, *, encoding: str | None = None) -> IO[Any]:
        """Open it at its beginning, as text or (`rb`) as bytes.

        Of a large object only the requested parts are fetched.
        """
        small = self.stat().st_size <= SMALL
        opened: IO[bytes] = io.BytesIO(self.read_bytes()) if small else self.open_parts(_BUFFER)
        return opened if "b" in mode else io.TextIOWrapper(opened, encoding=encoding)

    def open_parts(self, buffer: int) -> IO[bytes]:
        """Open it for reads of any part, as bytes. A request fetches the requested bytes, and at least this number."""
        return io.BufferedReader(_Pieces(self), buffer)

    def read_range(self, start: int, end: int) -> bytes:
        """Return a range of its bytes, which must not be empty."""
        return self._ask(lambda key: self._store.read_range(key, start, end))

    def _ask(self, question: Callable[[str], Answer]) -> Answer:
        try:
            return question(self._key)
        except StoreError as error:
            raise OSError(errno.EIO, error.message, self._path) from error

    def _make_gone(self) -> FileNotFoundError:
        return FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), self._path)


def _list_pieces(size: int) -> Iterator[tuple[int, int]]:
    """Return the ranges in which an object of this size is fetched, one after the other."""
    return ((start, min(start + _PIECE, size)) for start in range(0, size, _PIECE))


class _Pieces(io.RawIOBase):
    """An object as a file whose parts can be read in any order."""

    def __init__(self, file: StoredFile) -> None:
        self._file, self._size, self._at = file, int(file.stat().st_size), 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        self._at = offset + {os.SEEK_SET: 0, os.SEEK_CUR: self._at, os.SEEK_END: self._size}[whence]
        return self._at

    def readinto(self, buffer: Any) -> int:
        end = min(self._at + len(buffer), self._size)
        if end <= self._at:
            return 0
        content = self._file.read_range(self._at, end)
        buffer[: len(content)] = content
        self._at += len(content)
        return len(content)


class _Listing:
    """A search below a folder. It skips folders that do not fit, but below `**` it lists all."""

    def __init__(self, store: ObjectStore, folder: str) -> None:
        self._store, self.folder = store, folder
        self.is_empty = True
        """Whether nothing was found at all, not even a folder's mark."""

    def find(self, segments: Sequence[str]) -> Iterator[File]:
        """Yield the files that may fit the pattern. Some may not fit."""
        folders = [""]
        for segment in segments[:-1]:
            if segment == "**":
                break
            if WILD.search(segment):
                below = (name for names, _ in self._list(folders) for name in names)
                folders = [name for name in below if _fits_folder(name, segment)]
            else:
                folders = [_join(folder, segment) for folder in folders]
        if "**" in segments:
            for folder in folders:
                yield from self._list_deep(folder)
            return
        listed = self._list(folders)
        yield from (file for _, files in listed for file in files)
        last = segments[-1]
        if last != "*":
            below = (name for names, _ in listed for name in names)
            for _, files in self._list([name for name in below if _fits_folder(name, last)]):
                yield from files

    def _list(self, folders: Sequence[str]) -> list[tuple[list[str], list[File]]]:
        """Return the folders and the files directly in each of these folders."""
        return _ask_together(self._list_folder, folders)

    def _list_folder(self, folder: str) -> tuple[list[str], list[File]]:
        folders, objects = self._store.list_folder(_join(self.folder, folder))
        self.is_empty = self.is_empty and not folders and not objects
        inside = [name for key in folders if (name := self._get_name(key)) and name != folder]
        return inside, self._make_files(objects)

    def _list_deep(self, folder: str) -> Iterator[File]:
        """Yield all files below a folder. The rest of a hidden folder that continues on the next page is skipped."""
        after: str | None = ""
        while after is not None:
            pages, after = self._store.list_objects(_join(self.folder, folder), after), None
            for page in pages:
                self.is_empty = self.is_empty and not page
                yield from self._make_files(page)
                hidden = _find_hidden_folder(self._get_name(page[-1].key)) if page and self._store.is_sorted else ""
                if hidden:
                    after = _join(self.folder, hidden) + _BEHIND_FOLDER
                    break

    def _make_files(self, objects: Iterable[StoredObject]) -> list[File]:
        return [_make_file(each, name) for each in objects if (name := self._get_name(each.key))]

    def _get_name(self, key: str) -> str:
        """Return the name below the folder; empty for the folder itself."""
        return key[len(self.folder) + 1 :] if self.folder else key


def _find_hidden_folder(name: str) -> str:
    """Return the first hidden folder above a file; empty if there is none."""
    parts = name.split("/")[:-1]
    at = next((at for at, part in enumerate(parts) if part and is_hidden(part)), None)
    return "" if at is None else "/".join(parts[: at + 1])


def _fits_folder(name: str, segment: str) -> bool:
    own = name.rpartition("/")[2]
    return not is_hidden(own) and fnmatchcase(own, segment)


def _join(folder: str, name: str) -> str:
    return f"{folder}/{name}" if folder and name else folder or name


def _make_file(found: StoredObject, name: str) -> File:
    return File(found.modified, name, found.size)


def _ask_together(question: Callable[[Asked], Answer], asked: Sequence[Asked]) -> list[Answer]:
    """Return the answers, in order, to questions that are asked at the same time."""
    if len(asked) < 2:
        return [*map(question, asked)]
    with ThreadPoolExecutor(min(_AT_ONCE, len(asked))) as pool:
        return [*pool.map(question, asked)]


def _explain(path: str, what: str, error: StoreError) -> OriginError:
    return OriginError(
        f"{path} was processed, but it cannot be {what}: {error.message}",
        hint=f"No row is lost or read twice. {error.hint} The next run tries again.",
    )
