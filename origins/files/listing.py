"""Which files there are: a path with wildcards, looked up on this machine or wherever Spark can look; and what waits
there.

`*`, `?` and `[a-z]` match within one folder or file name, `**` any number of folders. A folder stands for the
files that lie directly in it. Names that begin with `_` or `.` are never seen. A link is a file, or a folder, under
its own name. Only regular files are files: to open a named pipe may take for ever.
"""

from __future__ import annotations

import bisect
import difflib
import math
import os
import re
import stat
import time
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from operator import itemgetter
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple, TypedDict

from origins.batch import Json, Limits, Span
from origins.errors import OriginError
from origins.json_shape import check_shape
from origins.lazy import F, spark_errors
from origins.names import SCHEME
from origins.origin import Backlog

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


_WILD = re.compile(r"[*?\[]")


class File(NamedTuple):
    """One file as it was found. Files are carried in this order: by time, then by name."""

    modified: int
    """Milliseconds since 1970."""
    name: str
    """Relative to the listing's root, with `/` between folders."""
    size: int


_KINDS = {
    stat.S_IFDIR: "a folder",
    stat.S_IFIFO: "a named pipe",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
}


@dataclass(frozen=True, kw_only=True)
class FilePattern:
    """A path, taken apart into a root that is fixed and the wildcards below it."""

    root: str
    """Absolute, as Spark takes it."""
    segments: tuple[str, ...]
    local: bool
    """Whether this machine's own file system is asked, which needs no Spark job."""

    def join_path(self, name: str) -> str:
        return f"{self.root.rstrip('/')}/{name}"

    def find_path(self, name: str) -> Path:
        """The path of one file on this machine."""
        return Path(without_scheme(self.join_path(name)))

    def make_patterns(self, names: Iterable[str]) -> list[str]:
        """The paths of files as Spark's readers take them: patterns which only these files fit."""
        return [escape_pattern(self.join_path(name)) for name in names]

    @property
    def is_there(self) -> bool:
        """Whether this machine has the root; true if only Spark can see it."""
        return not self.local or os.path.isdir(without_scheme(self.root))

    @property
    def is_open(self) -> bool:
        """Whether this user may list the root; true if only Spark can see it."""
        return not self.local or os.access(without_scheme(self.root), os.R_OK | os.X_OK)

    def list_files(
        self,
        spark: SparkSession,
        known: Mapping[str, File] = MappingProxyType({}),
        pass_over: Callable[[str, str], None] = lambda name, why: None,
    ) -> list[File]:
        """What is there now, in order. Raises `OriginError` when the root is not there, or cannot be listed.

        A file that is `known` is not looked at where this machine has it: it is told as it is known. What fits the
        pattern and is no regular file, or cannot be looked at, is no file: `pass_over` gets its name, and why.
        """
        if not self.local:
            listed = self._list_by_spark(spark, [escape_pattern(self.root)])
            return _sort_files(file for file in listed if _fits(file.name, self.segments))
        if not self.is_there:
            raise _make_missing_error(self.root)
        found = _find_files(without_scheme(self.root), self.segments, "", known, pass_over)
        return _sort_files(set(found) if "**" in self.segments else found)

    def stat(self, spark: SparkSession, names: Sequence[str]) -> dict[str, File]:
        """The files of these names as they are now, without missing ones."""
        if not self.local:
            return {file.name: file for file in self._list_by_spark(spark, self.make_patterns(names))}
        root = without_scheme(self.root)
        try:
            found = [_stat_file(os.path.join(root, name), name) for name in names]
        except OSError as error:
            raise OriginError(
                f"{error.filename} cannot be read: {error.strerror}.",
                hint="Give this user the right to read it, or put the file back.",
            ) from error
        return {file.name: file for file in found if type(file) is File}

    def matches(self, path: str) -> bool:
        root = without_scheme(self.root).rstrip("/") + "/"
        return path.startswith(root) and _fits(path.removeprefix(root), self.segments)

    def _list_by_spark(self, spark: SparkSession, paths: list[str]) -> Iterator[File]:
        try:
            frame = spark.read.format("binaryFile").option("recursiveFileLookup", "true").load(paths)
            rows = frame.select("path", "length", F.unix_millis("modificationTime").alias("modified")).collect()
        except spark_errors.PySparkException as error:
            if error.getCondition() != "PATH_NOT_FOUND":
                raise
            raise _make_missing_error(self.root) from error
        for row in rows:
            _, _, name = row.path.partition(self.root.rstrip("/") + "/")
            yield File(row.modified, name, row.length)


def _sort_files(files: Iterable[File]) -> list[File]:
    """By name and then, since sorting keeps the order of equals, by time: a third of what comparing pairs costs."""
    ordered = sorted(files, key=itemgetter(1))
    ordered.sort(key=itemgetter(0))
    return ordered


def escape_pattern(path: str) -> str:
    """A pattern for Spark that fits only this path, with all characters escaped."""
    return re.sub(r"([\\{}\[\]*?])", r"\\\1", path)


def parse_pattern(path: str) -> FilePattern:
    """Take a path apart. What exists under exactly this name is meant literally."""
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
    fixed = path[: found.start()] if (found := _WILD.search(path)) else path.rstrip("/") + "/"
    root = fixed[: fixed.rindex("/")] if "/" in fixed else fixed
    rest = path[len(root) + 1 :] if found else "*"
    return FilePattern(root=root or "/", segments=tuple(rest.split("/")), local=local)


def is_local(path: str) -> bool:
    """Whether this machine's own file system has it."""
    return not SCHEME.match(path) or path.startswith("file:")


def without_scheme(path: str) -> str:
    """A path of this machine as the operating system takes it."""
    return re.sub(r"^file:/+", "/", path)


def _find_files(
    folder: str,
    segments: Sequence[str],
    prefix: str,
    known: Mapping[str, File],
    pass_over: Callable[[str, str], None],
) -> Iterator[File]:
    """The files under a folder that fit what is left of the pattern."""
    head, rest = segments[0], segments[1:]
    if head == "**":
        yield from _find_files(folder, rest or ("*",), prefix, known, pass_over)
    fits_all = head == "*"
    for entry in _scan_folder(folder, prefix, pass_over):
        name = entry.name
        if _is_hidden(name):
            continue
        try:
            is_folder = entry.is_dir()
            if not is_folder and (rest or not (fits_all or fnmatchcase(name, head))):
                continue
            file = None if is_folder else known.get(prefix + name) or _stat_file(entry.path, prefix + name)
        except OSError as error:
            if head == "**" or fnmatchcase(name, head):
                pass_over(prefix + name, f"cannot be read: {error.strerror}")
            continue
        if isinstance(file, str):
            pass_over(prefix + name, f"is {file}; Wherry reads only regular files")
        elif file is not None:
            yield file
        elif is_folder and head == "**":
            if not (entry.is_symlink() and _leads_back(entry.path)):
                yield from _find_files(entry.path, segments, f"{prefix}{name}/", known, pass_over)
        elif is_folder and fnmatchcase(name, head) and (rest or not fits_all):
            yield from _find_files(entry.path, rest or ("*",), f"{prefix}{name}/", known, pass_over)


def _leads_back(link: str) -> bool:
    """Whether a link leads to a folder that it lies in, so that there would be no end below it."""
    target, folder = os.path.realpath(link), os.path.dirname(link)
    while os.path.realpath(folder) != target:
        folder, below = os.path.dirname(folder), folder
        if folder == below:
            return False
    return True


def _scan_folder(folder: str, prefix: str, pass_over: Callable[[str, str], None]) -> Iterable[os.DirEntry[str]]:
    """What is in a folder. Raises `OriginError` when the root, which has no prefix, cannot be listed."""
    try:
        with os.scandir(folder) as entries:
            return list(entries)
    except (FileNotFoundError, NotADirectoryError):
        return []
    except OSError as error:
        if prefix:
            pass_over(prefix.rstrip("/"), f"cannot be listed: {error.strerror}")
            return []
        raise OriginError(
            f"The folder {folder} cannot be read: {error.strerror}.",
            hint="Give this user the right to list it, or take it out of the path.",
        ) from error


def _stat_file(path: str, name: str) -> File | str | None:
    """The file as it is at this moment; what is there instead, where that is no regular file; None when it is gone."""
    try:
        found = os.stat(path)
    except (FileNotFoundError, NotADirectoryError):
        return None
    if stat.S_ISREG(found.st_mode):
        return File(found.st_mtime_ns // 1_000_000, name, found.st_size)
    return _KINDS.get(stat.S_IFMT(found.st_mode), "no regular file")


def _fits(name: str, segments: Sequence[str]) -> bool:
    """Whether a file below the root is one that `_find_files` would find."""
    parts = name.split("/")
    if any(_is_hidden(part) for part in parts):
        return False
    in_a_folder_that_fits = segments[-1] not in ("*", "**") and _match(parts[:-1], segments)
    return _match(parts, segments) or in_a_folder_that_fits


def _match(parts: Sequence[str], segments: Sequence[str]) -> bool:
    if not segments or segments == ("**",):
        return bool(segments) == bool(parts)
    if segments[0] == "**" and parts and _match(parts[1:], segments):
        return True
    if segments[0] == "**":
        return _match(parts, segments[1:])
    return bool(parts) and fnmatchcase(parts[0], segments[0]) and _match(parts[1:], segments[1:])


def _is_hidden(name: str) -> bool:
    """Whether Spark would not read a file of this name either."""
    return name[0] in "_." or name.endswith("._COPYING_")


def _make_missing_error(path: str) -> OriginError:
    near = _find_similar(without_scheme(path)) if is_local(path) else ""
    return OriginError(
        f"There is nothing at {path}.",
        hint=f"{near}Create the folder (it may be empty), or correct the origin's `path`.",
    )


def _find_similar(path: str) -> str:
    folder, name = os.path.split(path)
    while not os.path.isdir(folder):
        folder, name = os.path.split(folder)
    there = os.listdir(folder) if os.access(folder, os.R_OK) else []
    near = difflib.get_close_matches(name, there, n=1)
    return f"Did you mean {os.path.join(folder, near[0])}? " if near else ""


CHANGED_AGAIN = 60.0
"""For so many seconds a run that goes on does not look again whether files that it carried have changed."""
_SURROGATE = re.compile("[\ud800-\udfff]")
"""What stands in Python in a name that is not UTF-8."""
PACKED = (".bz2", ".deflate", ".gz", ".lz4", ".lzo", ".snappy", ".xz", ".zst", ".zstd")
"""How the names of files end that are packed."""


@dataclass(frozen=True, kw_only=True)
class Terms:
    """How files are handed out."""

    lanes: Sequence[str]
    max_files: int | None
    min_age: float
    """A file that is younger, in seconds, may still be written, and waits."""
    plain: bool
    """Whether a file is about as large as its rows, unless its name says that it is packed."""


class FileBacklog(Backlog):
    """The files that were there and not yet carried, lane by lane."""

    def __init__(
        self,
        terms: Terms,
        place: FilePattern,
        spark: SparkSession,
        carried: dict[str, File],
        *,
        before: FileBacklog | None = None,
    ) -> None:
        self.place = place
        self._terms = terms
        self._carried = carried
        """Every file that was handed out, by name."""
        now = time.time()
        lately = before is not None and time.monotonic() - before._looked < CHANGED_AGAIN  # noqa: SLF001 -- one of its own kind
        self._looked: float = before._looked if before is not None and lately else time.monotonic()  # noqa: SLF001 -- one of its own kind
        """When all files were looked at, and not only those that were not carried."""
        known = before._known if before is not None and lately else {}  # noqa: SLF001 -- one of its own kind
        carried_before = {name: file for name, file in known.items() if name in carried}
        self._passed: dict[str, str] = {}
        """What fits the path and cannot be read as a file, by name, and why."""
        everything = place.list_files(spark, carried_before, self._passed.__setitem__)
        self._known: Mapping[str, File] = {file.name: file for file in everything}
        found = everything
        if terms.min_age:
            found = [file for file in everything if now - file.modified / 1_000 >= terms.min_age]
        self._young = len(everything) - len(found) if before is None else 0
        self.changed = [file for file in found if carried.get(file.name, file) != file]
        self._lanes: dict[str, list[File]] = {lane: [] for lane in terms.lanes}
        for file in found:
            if not file.name.isascii() and _SURROGATE.search(file.name):
                self._passed[file.name] = "has a name that is not UTF-8, so Spark cannot open the file"
            elif file.name not in carried:
                lane = terms.lanes[zlib.crc32(file.name.encode()) % len(terms.lanes)]
                self._lanes[lane].append(file)

    def again(self, spark: SparkSession, offsets: Mapping[str, Json]) -> FileBacklog:
        for lane, files in self._lanes.items():
            planned = files[: len(files) - len(self._list_after(lane, offsets.get(lane)))]
            self._carried.update({file.name: file for file in planned})
        return FileBacklog(self._terms, self.place, spark, self._carried, before=self)

    @property
    def files(self) -> list[File]:
        """All of them, in order."""
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
        waiting = self._list_after(lane, start)
        most_files = min(most for most in (limits.files, self._terms.max_files, len(waiting)) if most is not None)
        most_bytes = math.inf if limits.bytes is None else limits.bytes
        files: list[File] = []
        size = 0
        for file in waiting:
            if files and (len(files) >= most_files or size + file.size > most_bytes):
                break
            files.append(file)
            size += file.size
        if not files:
            return None
        full = len(files) < len(waiting) or len(files) in (limits.files, self._terms.max_files) or size >= most_bytes
        plain = self._terms.plain and not any(file.name.lower().endswith(PACKED) for file in files)
        return replace(make_span(start, files), full=full, bytes=size if plain else None)

    def behind(self, lane: str, start: Json) -> str:
        waiting = self._list_after(lane, start)
        size = sum(file.size for file in waiting)
        return f"{len(waiting)} file{'s' * (len(waiting) != 1)}, {size:,} bytes" if waiting else ""

    def _list_after(self, lane: str, start: Json) -> Sequence[File]:
        """What waits behind an offset; one from before this survey is before all of it."""
        files = self._lanes[lane]
        if not start:
            return files
        offset = check_shape(FileOffset, start)
        last = (offset["modified"], offset["file"])
        behind = bisect.bisect_right(files, last, key=lambda file: file[:2])
        return files[behind:] if behind and files[behind - 1][:2] == last else files


def make_span(start: Json, files: Sequence[File]) -> Span:
    """The span of these files, of which there is one at least, behind `start`."""
    last = files[-1]
    return Span(
        start=start,
        end={"file": last.name, "modified": last.modified},
        parts=tuple([file.name, file.size, file.modified] for file in files),
        label=last.name if len(files) == 1 else f"{files[0].name} … {last.name}, {len(files)} files",
    )


class FileOffset(TypedDict):
    """The last file that was read of a lane."""

    file: str
    modified: int


class _Parts(TypedDict):
    parts: Sequence[tuple[str, int, int]]
    """Names, sizes and times."""


def list_files(parts: Sequence[Json]) -> list[File]:
    """The files of a span, or of several, as they were found."""
    found = check_shape(_Parts, {"parts": parts})["parts"]
    return [File(modified, name, size) for name, size, modified in found]
