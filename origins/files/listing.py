"""The files of a path with wildcards, and their backlog. They are on this machine, in a store, or listed by Spark.

`*`, `?` and `[a-z]` match within one folder or file name, `**` any number of folders. A folder means the files directly
in it. Names that begin with `_` or `.` are never listed. A link is a file or a folder under the link's name. Only
regular files are read, since opening a named pipe may never return.
"""

from __future__ import annotations

import bisect
import math
import os
import re
import time
import zlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from functools import cached_property
from pathlib import Path
from types import MappingProxyType
from typing import TypeVar

from origins.batch import Backlog, Json, Limits, Span
from origins.codec import decode, encode
from origins.files.file_systems import (
    SMALL,
    WILD,
    File,
    FileSystem,
    LocalDisk,
    OpenFileSystem,
    PassOver,
    ReadableFile,
    SparkFiles,
    escape_pattern,
    fits,
    is_local,
    join_path,
    without_scheme,
)
from origins.files.stored_files import StoredFiles
from origins.lazy import SparkSession
from origins.object_store import can_reach_stores, open_bucket
from origins.store_access import StoreError, StoreUrl, is_driver_here, is_store_url

T = TypeVar("T")

_KEPT = 64
"""The most files of a pattern whose content is kept."""
_LOOKED_AT: dict[str, tuple[File, tuple[File, bytes]]] = {}
"""By root, a file of a store that was read before its batch, and what the read returned. The next read takes it."""
_LEFT_TO_SPARK: set[str] = set()
"""The roots to which this process was refused access. From then on Spark lists them."""


@dataclass(frozen=True, kw_only=True)
class FilePattern:
    """A path, split into a fixed root and the wildcards below it."""

    root: str
    """The absolute path in Spark's form."""
    segments: tuple[str, ...]
    local: bool
    """Whether the files are on this machine, so that no Spark job is needed."""
    changes: bool = field(default=False, compare=False)
    """Whether this process moves or deletes files there, and so needs direct access to them."""
    exclude: tuple[str, ...] = ()
    """The patterns of files that are left out: of their names, or of the ends of their paths."""
    sizes: Mapping[str, int] = field(default_factory=dict, compare=False, repr=False)
    """The known sizes of files."""
    _found: dict[str, ReadableFile] = field(default_factory=dict, init=False, compare=False, repr=False)

    @property
    def is_read_here(self) -> bool:
        """Return whether this process reads the files itself, without a Spark job."""
        return self._files is not None

    @property
    def files(self) -> OpenFileSystem:
        """Return the file system with which this process reads, moves and deletes the files."""
        assert self._files is not None
        return self._files

    @property
    def _files(self) -> OpenFileSystem | None:
        return None if not self.changes and self.root in _LEFT_TO_SPARK else self._file_system

    @cached_property
    def _file_system(self) -> OpenFileSystem | None:
        """The file system of the files; None if only Spark may have access, or no library for stores is installed."""
        if self.local:
            return LocalDisk()
        ours = self.changes or (can_reach_stores() and is_driver_here())
        return StoredFiles(open_bucket(self.root)) if ours and is_store_url(self.root) else None

    def _ask(self, spark: SparkSession, question: Callable[[FileSystem], T]) -> T:
        """Return the file system's answer.

        If this process has no access, return Spark's answer, if a Spark is given.
        """
        files = self._files
        if files is None:
            return question(SparkFiles(spark))
        try:
            return question(files)
        except StoreError as error:
            if self.changes or not spark or not error.is_of_here:
                raise
            _LEFT_TO_SPARK.add(str(self.root))
            return question(SparkFiles(spark))

    def join_path(self, name: str) -> str:
        return join_path(self.root, name)

    def find_file(self, name: str) -> ReadableFile:
        """Return a file that this process reads. The content of a small file in a store is kept for a while."""
        if name not in self._found:
            if len(self._found) >= _KEPT:
                self._found.clear()
            self._found[name] = self.files.find_file(self.join_path(name), self.sizes.get(name))
        return self._found[name]

    def find_path(self, name: str) -> Path:
        """Return the path of a file on this machine."""
        return Path(without_scheme(self.join_path(name)))

    def make_patterns(self, names: Iterable[str]) -> list[str]:
        """Return the paths of files for Spark's readers, as patterns that only these files fit."""
        return [escape_pattern(self.join_path(name)) for name in names]

    @property
    def is_there(self) -> bool:
        """Return whether the root exists on this machine; true if it is elsewhere."""
        return not self.local or os.path.isdir(without_scheme(self.root))

    @property
    def is_open(self) -> bool:
        """Return whether this user may list the root; true if it is elsewhere."""
        return not self.local or os.access(without_scheme(self.root), os.R_OK | os.X_OK)

    def list_files(
        self,
        spark: SparkSession,
        known: Mapping[str, File] = MappingProxyType({}),
        pass_over: PassOver = lambda name, why: None,
        *,
        may_be_gone: bool = False,
    ) -> list[File]:
        """Return the current files, in order. Raise `OriginError` if the root is missing or cannot be listed.

        A `known` file on this machine is not examined again, and the result has it as known. An entry that fits the
        pattern but is not a regular file, or cannot be read, is left out: `pass_over` gets its name and the reason.
        With `may_be_gone` a store without any file there is no error.
        """

        def find(files: FileSystem) -> list[File]:
            found = files.list_files(self.root, self.segments, known, pass_over, may_be_gone=may_be_gone)
            kept = [file for file in found if not self._is_excluded(file.name)] if self.exclude else found
            return sorted(set(kept) if "**" in self.segments else kept)

        return self._ask(spark, find)

    def stat(self, spark: SparkSession, names: Sequence[str]) -> dict[str, File]:
        """Return the current state of the files with these names, without missing ones."""
        return {file.name: file for file in self._ask(spark, lambda files: files.stat(self.root, names))}

    def read(self, planned: Sequence[File]) -> Mapping[str, tuple[File, bytes]] | None:
        """Return the content of these files, and which file each was during the read; without missing files.

        It is None if this process has no access after all. If a file was another file at any moment of the read, the
        result names that other file.
        """
        file, known = _LOOKED_AT.pop(str(self.root), (None, None))
        try:
            found = dict(self.files.read(self.root, [each for each in planned if each != file]))
        except StoreError as error:
            if not error.is_of_here:
                raise
            return None
        if file is not None and known is not None and file in planned:
            found[file.name] = known
        for name, (file, content) in found.items():
            self._found[name] = self.files.find_file(self.join_path(name), file.size, content)
        return found

    def look_at(self, file: File) -> None:
        """Read a small file of a store before its batch. The next `read` then makes no second request for it."""
        found = None if self.local or file.size > SMALL else self.read([file])
        if found and file.name in found:
            _LOOKED_AT[str(self.root)] = (file, found[file.name])

    def is_same(self, one: File | None, other: File) -> bool:
        """Return whether a file is unchanged. Some answers of a store omit fractions of a second."""
        if one == other or one is None or self.local or one.size != other.size:
            return one == other
        seconds = one.modified // 1_000 == other.modified // 1_000
        return seconds and (one.modified % 1_000 == 0 or other.modified % 1_000 == 0)

    def now(self) -> float:
        """Return the time in seconds by the clock that sets the times of the files."""
        return time.time() if self._files is None else self._files.now()

    def matches(self, path: str) -> bool:
        root = without_scheme(self.root).rstrip("/") + "/"
        name = path.removeprefix(root)
        return path.startswith(root) and fits(name, self.segments) and not self._is_excluded(name)

    def _is_excluded(self, name: str) -> bool:
        parts = name.split("/")
        ends = [pattern.split("/") for pattern in self.exclude]
        return any(len(end) <= len(parts) and all(map(fnmatchcase, parts[-len(end) :], end)) for end in ends)


def parse_pattern(path: str, *, changes: bool = False) -> FilePattern:
    """Split a path into a pattern. A path that exists on this machine under exactly this name is taken literally.

    With `changes` this process moves or deletes files there.
    """
    local = is_local(path)
    if local:
        scheme, bare = ("file:", without_scheme(path)) if path.startswith("file:") else ("", path)
        bare = os.path.abspath(bare)
        if os.path.isdir(bare):
            return FilePattern(root=scheme + bare, segments=("*",), local=True)
        if os.path.exists(bare):
            folder, name = os.path.split(bare)
            return FilePattern(root=scheme + folder, segments=(re.sub(r"([*?\[])", r"[\1]", name),), local=True)
        path = scheme + bare
    if is_store_url(path):
        path = StoreUrl(path, getattr(path, "settings", {}))
    fixed = path[: found.start()] if (found := WILD.search(path)) else path.rstrip("/") + "/"
    root = fixed[: fixed.rindex("/")] if "/" in fixed else fixed
    rest = path[len(root) + 1 :] if found else "*"
    if is_store_url(path):
        root = StoreUrl(root, getattr(path, "settings", {}))
    return FilePattern(root=root or "/", segments=tuple(rest.split("/")), local=local, changes=changes)


CHANGED_AGAIN = 60.0
"""The seconds within which a run does not check again whether carried files have changed."""
_SURROGATE = re.compile("[\ud800-\udfff]")
"""A pattern for the characters that Python uses in a name that is not UTF-8."""
PACKED = (".bz2", ".deflate", ".gz", ".lz4", ".lzo", ".snappy", ".xz", ".zst", ".zstd")
"""The endings of the names of packed files."""


@dataclass(frozen=True, kw_only=True)
class Terms:
    """The options that decide how files are divided into batches."""

    lanes: Sequence[str]
    max_files: int | None
    min_age: float
    """The age in seconds below which a file waits, since it may still be written."""
    plain: bool
    """Whether a file is about as large as its rows, unless its name shows that it is packed."""


class FileBacklog(Backlog):
    """The files that existed at the survey and are not yet carried, lane by lane."""

    def __init__(
        self,
        terms: Terms,
        place: FilePattern,
        spark: SparkSession,
        carried: dict[str, File],
        *,
        before: FileBacklog | None = None,
    ) -> None:
        self._terms = terms
        self._carried = carried
        """Every file that was planned, by name."""
        now = place.now() if terms.min_age else 0.0
        lately = before is not None and time.monotonic() - before._looked < CHANGED_AGAIN  # noqa: SLF001 -- of the same class
        self._looked: float = before._looked if before is not None and lately else time.monotonic()  # noqa: SLF001 -- of the same class
        """When all files were examined, including the carried ones."""
        known = before._known if before is not None and lately else {}  # noqa: SLF001 -- of the same class
        carried_before = {name: file for name, file in known.items() if name in carried}
        self._passed: dict[str, str] = {}
        """The entries that fit the path but cannot be read as files: by name, the reason."""
        everything = place.list_files(
            spark, carried_before, self._passed.__setitem__, may_be_gone=before is not None or bool(carried)
        )
        self._known: Mapping[str, File] = {file.name: file for file in everything}
        self.place = place if place.local else replace(place, sizes={file.name: file.size for file in everything})
        found = everything
        if terms.min_age:
            found = [file for file in everything if now - file.modified / 1_000 >= terms.min_age]
        self._young = len(everything) - len(found) if before is None else 0
        self.changed = [file for file in found if not place.is_same(carried.get(file.name, file), file)]
        self._lanes: dict[str, list[File]] = {lane: [] for lane in terms.lanes}
        for file in found:
            if not file.name.isascii() and _SURROGATE.search(file.name):
                self._passed[file.name] = "has a name that is not UTF-8, so Spark cannot open the file"
            elif file.name not in carried:
                lane = terms.lanes[zlib.crc32(file.name.encode()) % len(terms.lanes)]
                self._lanes[lane].append(file)

    def again(self, spark: SparkSession, offsets: Mapping[str, Json]) -> FileBacklog:
        for lane, files in self._lanes.items():
            planned = files[: self._find_first(lane, offsets.get(lane))]
            self._carried.update({file.name: file for file in planned})
        return FileBacklog(self._terms, self.place, spark, self._carried, before=self)

    @property
    def files(self) -> list[File]:
        """Return all waiting files, in order."""
        return sorted(file for files in self._lanes.values() for file in files)

    @property
    def notices(self) -> Sequence[str]:
        copied = [file for file in self.changed if self._carried[file.name].size == file.size]
        several = len(copied) > 1
        changed = [
            f"{file.name} changed after it was processed; Wherry does not read it again"
            for file in self.changed
            if not several or file not in copied
        ]
        if several:
            changed.append(
                f"{copied[0].name} and {len(copied) - 1} more files have a new time and their old size, as after `cp "
                "-r` (`cp -a` keeps times). Wherry does not read them again"
            )
        changed += [f"{name if name.isprintable() else repr(name)} {why}" for name, why in self._passed.items()]
        young = f"{self._young} file{'s' * (self._young != 1)} younger than min_age will be read later"
        return [*changed, young] if self._young else changed

    def take(self, lane: str, start: Json, limits: Limits) -> Span | None:
        waiting, first = self._lanes[lane], self._find_first(lane, start)
        most_files = min(most for most in (limits.files, self._terms.max_files, len(waiting)) if most is not None)
        most_bytes = math.inf if limits.bytes is None else limits.bytes
        files: list[File] = []
        size = 0
        for number in range(first, len(waiting)):
            file = waiting[number]
            if files and (len(files) >= most_files or size + file.size > most_bytes):
                break
            files.append(file)
            size += file.size
        if not files:
            return None
        most = (limits.files, self._terms.max_files)
        full = first + len(files) < len(waiting) or len(files) in most or size >= most_bytes
        plain = self._terms.plain and not any(file.name.lower().endswith(PACKED) for file in files)
        return replace(make_span(start, files), full=full, bytes=size if plain else None)

    def _find_first(self, lane: str, start: Json) -> int:
        """Return the index of the first file after an offset.

        It is 0 if the offset is from before this survey.
        """
        files = self._lanes[lane]
        if not start:
            return 0
        offset = decode(FileOffset, start)
        last = (offset.modified, offset.file)
        behind = bisect.bisect_right(files, last, key=lambda file: file[:2])
        return behind if behind and files[behind - 1][:2] == last else 0


def make_span(start: Json, files: Sequence[File]) -> Span:
    """Return the span of these files, at least one, after `start`."""
    last = files[-1]
    return Span(
        start=start,
        end=encode(FileOffset(file=last.name, modified=last.modified)),
        parts=tuple([file.name, file.size, file.modified] for file in files),
        label=last.name if len(files) == 1 else f"{files[0].name} … {last.name}, {len(files)} files",
    )


@dataclass(frozen=True, kw_only=True)
class FileOffset:
    """The last file that was read in a lane."""

    file: str
    modified: int


def list_files(parts: Sequence[Json]) -> list[File]:
    """Return the files of one or several spans, in their state at the survey. A part has name, size and time."""
    return [File(modified, name, size) for name, size, modified in decode(tuple[tuple[str, int, int], ...], parts)]
