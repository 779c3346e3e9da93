"""The file systems that hold files: this machine's, and those that Spark can list.

Object stores are in `stored_files`.
"""

from __future__ import annotations

import contextlib
import difflib
import errno
import filecmp
import itertools
import os
import re
import shutil
import stat
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from typing import IO, Any, NamedTuple, Protocol

from origins.errors import OriginError, get_condition, has_no_links
from origins.lazy import F, SparkSession, spark_errors
from origins.names import SCHEME

WILD = re.compile(r"[*?\[]")
"""The characters that make a name a pattern."""
SMALL = 1 << 20
"""The most bytes of files that are quicker to check here, line by line, than by a scan in Spark."""
MODERATE = 256 << 20
"""The most bytes of files that are quicker to check here as a whole. Most clean files are shown to be clean so."""
_PIECE = 8 << 20


class File(NamedTuple):
    """A file at the moment of a listing. Files are carried in this order: by time, then by name."""

    modified: int
    """Milliseconds since 1970."""
    name: str
    """Relative to the listing's root, with `/` between folders."""
    size: int


class ReadableFile(Protocol):
    """A file that this process reads: a path of this machine, or an object that is opened and read like one."""

    @property
    def name(self) -> str: ...

    def stat(self) -> Any: ...

    def open(self, mode: str, *, encoding: str | None = None) -> IO[Any]: ...

    def read_bytes(self) -> bytes: ...


def is_small(files: Sequence[ReadableFile]) -> bool:
    """Return whether the files are small enough for a check of each line."""
    return _sum_sizes(files) <= SMALL


def is_moderate(files: Sequence[ReadableFile]) -> bool:
    """Return whether the files are small enough to count characters in them.

    From elsewhere only small files are fetched.
    """
    return _sum_sizes(files) <= (MODERATE if all(isinstance(file, Path) for file in files) else SMALL)


def read_pieces(files: Sequence[ReadableFile], encoding: str) -> Iterator[str]:
    """Yield the text of the files: small files whole, larger ones in pieces of whole lines.

    Errors of reading are raised. An empty file gives one empty piece. Lines end with a line feed, also where the file
    has a carriage return, as in Spark.
    """
    most = -1 if is_small(files) else _PIECE
    for file in files:
        with file.open("r", encoding=encoding) as opened:
            yield opened.read(most) + opened.readline()
            while piece := opened.read(most):
                yield piece + opened.readline()


def _sum_sizes(files: Sequence[ReadableFile]) -> int:
    return sum(int(file.stat().st_size) for file in files)


PassOver = Callable[[str, str], None]
"""A callback that gets the name of an entry that fits a pattern but cannot be read as a file, and the reason."""


class FileSystem(ABC):
    """A file system. A root is a place without wildcards, and names are relative to it."""

    @abstractmethod
    def list_files(
        self, root: str, segments: Sequence[str], known: Mapping[str, File], pass_over: PassOver, *, may_be_gone: bool
    ) -> Iterable[File]:
        """Return the files that fit a pattern, in any order, each at least once. A `known` file need not be examined.

        Raise `OriginError` if the root is missing or cannot be listed. With `may_be_gone`, the root may be missing if
        it disappears with its last file, on systems where a folder exists only with files.
        """

    @abstractmethod
    def stat(self, root: str, names: Sequence[str]) -> Iterable[File]:
        """Return the current state of the files with these names, without missing ones."""

    def now(self) -> float:
        """Return the time in seconds by the clock that sets the times of files."""
        return time.time()


class OpenFileSystem(FileSystem):
    """A file system whose files this process reads, moves and deletes itself."""

    @abstractmethod
    def find_file(self, path: str, size: int | None, content: bytes | None = None) -> ReadableFile:
        """Return a file object for this path. Its size and its content are given if known."""

    @abstractmethod
    def read(self, root: str, planned: Sequence[File]) -> Mapping[str, tuple[File, bytes]]:
        """Return the content of these files, and which file each was during the read; without missing files.

        If a file was another file at any moment of the read, the result names that other file.
        """

    @abstractmethod
    def delete(self, paths: Sequence[str]) -> None:
        """Delete files. A missing file counts as deleted."""

    @abstractmethod
    def move(self, paths: Mapping[str, str]) -> None:
        """Move each file to a new place, under a name that no other file has there.

        At every moment one of the two places has the complete file. If a process died and both have it, another move
        completes the first.
        """


class LocalDisk(OpenFileSystem):
    """This machine's file system. It needs no Spark job."""

    def list_files(
        self, root: str, segments: Sequence[str], known: Mapping[str, File], pass_over: PassOver, *, may_be_gone: bool
    ) -> Iterable[File]:
        folder = without_scheme(root)
        if not os.path.isdir(folder):
            raise make_missing_error(root)
        return _find_files(folder, segments, "", known, pass_over)

    def stat(self, root: str, names: Sequence[str]) -> Iterable[File]:
        folder = without_scheme(root)
        try:
            found = [_stat_file(os.path.join(folder, name), name) for name in names]
        except OSError as error:
            raise OriginError(
                f"{error.filename} cannot be read: {error.strerror}.",
                hint="Give this user the right to read it, or put the file back.",
            ) from error
        return [file for file in found if type(file) is File]

    def find_file(self, path: str, size: int | None, content: bytes | None = None) -> Path:
        return Path(without_scheme(path))

    def read(self, root: str, planned: Sequence[File]) -> Mapping[str, tuple[File, bytes]]:
        folder, names, contents = Path(without_scheme(root)), [file.name for file in planned], dict[str, bytes]()
        before = {file.name: file for file in self.stat(root, names)}
        for name in before:
            with contextlib.suppress(FileNotFoundError):
                contents[name] = (folder / name).read_bytes()
        after = {file.name: file for file in self.stat(root, names)}
        return {
            file.name: (before[file.name] if before[file.name] != file else after[file.name], contents[file.name])
            for file in planned
            if file.name in contents and file.name in after
        }

    def delete(self, paths: Sequence[str]) -> None:
        for path in map(without_scheme, paths):
            with _wrap_os_errors(path, "deleted"):
                os.unlink(path)

    def move(self, paths: Mapping[str, str]) -> None:
        for path, target in paths.items():
            _move(without_scheme(path), without_scheme(target))


class SparkFiles(FileSystem):
    """Files that Spark lists. They are neither moved nor deleted."""

    def __init__(self, spark: SparkSession) -> None:
        self._spark = spark

    def list_files(
        self, root: str, segments: Sequence[str], known: Mapping[str, File], pass_over: PassOver, *, may_be_gone: bool
    ) -> Iterable[File]:
        listed = list(self._list(root, [escape_pattern(root)]))
        if any(not file.name for file in listed):
            raise make_one_file_error(root)
        return [file for file in listed if fits(file.name, segments)]

    def stat(self, root: str, names: Sequence[str]) -> Iterable[File]:
        return self._list(root, [escape_pattern(join_path(root, name)) for name in names])

    def _list(self, root: str, paths: list[str]) -> Iterator[File]:
        try:
            frame = self._spark.read.format("binaryFile").option("recursiveFileLookup", "true").load(paths)
            rows = frame.select("path", "length", F.unix_millis("modificationTime").alias("modified")).collect()
        except spark_errors.PySparkException as error:
            if get_condition(error) != "PATH_NOT_FOUND":
                raise
            raise make_missing_error(root) from error
        for row in rows:
            _, _, name = row.path.partition(root.rstrip("/") + "/")
            yield File(row.modified, name, row.length)


def join_path(root: str, name: str) -> str:
    """Return the path of the file with this name."""
    return f"{root.rstrip('/')}/{name}"


def escape_pattern(path: str) -> str:
    """Return a pattern for Spark that fits only this path, with all special characters escaped."""
    return re.sub(r"([\\{}\[\]*?])", r"\\\1", path)


def is_local(path: str) -> bool:
    """Return whether the path is on this machine's file system."""
    return not SCHEME.match(path) or path.startswith("file:")


def without_scheme(path: str) -> str:
    """Return a path of this machine in the form of the operating system."""
    return re.sub(r"^file:/+", "/", path)


_KINDS = {
    stat.S_IFDIR: "a folder",
    stat.S_IFIFO: "a named pipe",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
}


def _find_files(
    folder: str, segments: Sequence[str], prefix: str, known: Mapping[str, File], pass_over: PassOver
) -> Iterator[File]:
    """Yield the files under a folder that fit the rest of the pattern."""
    head, rest = segments[0], segments[1:]
    if head == "**":
        yield from _find_files(folder, rest or ("*",), prefix, known, pass_over)
    fits_all = head == "*"
    for entry in _scan_folder(folder, prefix, pass_over):
        name = entry.name
        if is_hidden(name):
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
    """Return whether a link leads to a folder above it. A search below such a link would never end."""
    target = os.path.realpath(link)
    return any(os.path.realpath(folder) == target for folder in Path(link).parents)


def _scan_folder(folder: str, prefix: str, pass_over: PassOver) -> Iterable[os.DirEntry[str]]:
    """Return the entries of a folder. Raise `OriginError` if the root, which has no prefix, cannot be listed."""
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
    """Return the file as it is at this moment; None if it is missing.

    If the entry is not a regular file, return the name of its kind.
    """
    try:
        found = os.stat(path)
    except (FileNotFoundError, NotADirectoryError):
        return None
    if stat.S_ISREG(found.st_mode):
        return File(found.st_mtime_ns // 1_000_000, name, found.st_size)
    return _KINDS.get(stat.S_IFMT(found.st_mode), "no regular file")


def fits(name: str, segments: Sequence[str]) -> bool:
    """Return whether a file below the root fits the pattern and is not hidden."""
    parts = name.split("/")
    if any(is_hidden(part) for part in parts):
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


def is_hidden(name: str) -> bool:
    """Return whether Spark too ignores a file of this name."""
    return name[0] in "_." or name.endswith("._COPYING_")


def make_missing_error(path: str) -> OriginError:
    near = _find_similar(without_scheme(path)) if is_local(path) else ""
    return OriginError(
        f"There is nothing at {path}.",
        hint=f"{near}Create the folder (it may be empty), or correct the origin's `path`.",
    )


def make_one_file_error(url: str) -> OriginError:
    """Return the error for a path that is the URL of a single file."""
    folder, _, name = url.rpartition("/")
    return OriginError(
        f"{url} is a file, and a URL names a folder or a pattern.",
        hint=f"Write it as a pattern that only this file fits:  path: {folder}/[{name[0]}]{name[1:]}",
    )


def _find_similar(path: str) -> str:
    folder, name = os.path.split(path)
    while not os.path.isdir(folder):
        folder, name = os.path.split(folder)
    there = os.listdir(folder) if os.access(folder, os.R_OK) else []
    near = difflib.get_close_matches(name, there, n=1)
    return f"Did you mean {os.path.join(folder, near[0])}? " if near else ""


def _move(path: str, target: str) -> None:
    with _wrap_os_errors(path, f"moved to {target}"):
        os.makedirs(os.path.dirname(target), exist_ok=True)
        for name in itertools.chain([target], (f"{target}~{number}" for number in itertools.count(2))):
            if not os.path.lexists(name):
                _link_or_copy(path, name)
                break
            if filecmp.cmp(path, name, shallow=False):
                break
        os.unlink(path)


def _link_or_copy(path: str, target: str) -> None:
    if os.path.islink(path):
        os.symlink(os.path.realpath(path), target)
        return
    try:
        os.link(path, target)
    except OSError as error:
        if error.errno != errno.EXDEV and not has_no_links(error):
            raise
        half = os.path.join(os.path.dirname(target), f"_half-{os.path.basename(target)}")
        shutil.copy2(path, half)
        os.rename(half, target)


@contextlib.contextmanager
def _wrap_os_errors(path: str, what: str) -> Iterator[None]:
    """Raise `OriginError` if the operating system refuses something. A missing file is no error."""
    try:
        yield
    except OSError as error:
        if not os.path.lexists(path):
            return
        raise OriginError(
            f"{path} was processed, but it cannot be {what}: {error.strerror}.",
            hint="No row is lost or read twice. Give this user the right to do it; the next run tries again.",
        ) from error
