"""Which files there are: a path with wildcards, looked up on this machine or wherever Spark can look.

`*`, `?` and `[a-z]` match within one folder or file name, `**` any number of folders. A folder stands for the
files that lie directly in it. Names that begin with `_` or `.` are never seen. A link is a file, or a folder, under
its own name. Only regular files are files: to open a named pipe may take for ever.
"""

from __future__ import annotations

import difflib
import os
import re
import stat
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import partial
from operator import itemgetter
from typing import TYPE_CHECKING, NamedTuple

from origins.errors import OriginError
from origins.names import SCHEME

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


NOTHING: Mapping[str, File] = {}
_file = partial(tuple.__new__, File)
"""Makes one in half the time."""
_KINDS = {
    stat.S_IFDIR: "a folder",
    stat.S_IFIFO: "a named pipe",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
}


@dataclass(frozen=True, kw_only=True)
class Place:
    """A path, taken apart into a root that is fixed and the wildcards below it."""

    root: str
    """Absolute, as Spark takes it."""
    segments: tuple[str, ...]
    local: bool
    """Whether this machine's own file system is asked, which needs no Spark job."""

    def full(self, name: str) -> str:
        """The path of one file."""
        return f"{self.root.rstrip('/')}/{name}"

    def patterns(self, names: Iterable[str]) -> list[str]:
        """The paths of files as Spark's readers take them: patterns which only these files fit."""
        return [literally(self.full(name)) for name in names]

    @property
    def is_there(self) -> bool:
        """Whether this machine has the root; of what only Spark can see nobody knows, and it is taken to be there."""
        return not self.local or os.path.isdir(without_scheme(self.root))

    @property
    def is_open(self) -> bool:
        """Whether this user may list the root; of what only Spark can see nobody knows, and it is taken to be."""
        return not self.local or os.access(without_scheme(self.root), os.R_OK | os.X_OK)

    def files(
        self,
        spark: SparkSession,
        known: Mapping[str, File] = NOTHING,
        pass_over: Callable[[str, str], None] = lambda name, why: None,
    ) -> list[File]:
        """What is there now, in order. Raises `OriginError` when the root is not there, or cannot be listed.

        A file that is `known` is not looked at where this machine has it: it is told as it is known. What fits the
        pattern and is no regular file, or cannot be looked at, is no file: `pass_over` gets its name, and why.
        """
        if self.local:
            if not self.is_there:
                raise _missing(self.root)
            root = without_scheme(self.root)
            found = _found(root, self.segments, "", known, pass_over)
            once = set(found) if "**" in self.segments else found
            return _in_order(once)
        listed = self._listed(spark, [literally(self.root)])
        return _in_order(file for file in listed if _fits(file.name, self.segments))

    def look(self, spark: SparkSession, names: Sequence[str]) -> dict[str, File]:
        """The files of these names as they are now; one that is gone is left out."""
        if not self.local:
            return {file.name: file for file in self._listed(spark, self.patterns(names))}
        root = without_scheme(self.root)
        try:
            found = [_seen(os.path.join(root, name), name) for name in names]
        except OSError as error:
            raise OriginError(
                f"{error.filename} cannot be looked at: {error.strerror}.",
                hint="Give this user the right to read it, or put the file back.",
            ) from error
        return {file.name: file for file in found if type(file) is File}

    def finds(self, path: str) -> bool:
        """Whether a file of this machine at this path would be found."""
        root = without_scheme(self.root).rstrip("/") + "/"
        return path.startswith(root) and _fits(path.removeprefix(root), self.segments)

    def _listed(self, spark: SparkSession, paths: list[str]) -> Iterator[File]:
        from pyspark.errors import PySparkException
        from pyspark.sql import functions as F

        try:
            frame = spark.read.format("binaryFile").option("recursiveFileLookup", "true").load(paths)
            rows = frame.select("path", "length", F.unix_millis("modificationTime").alias("modified")).collect()
        except PySparkException as error:
            if error.getCondition() != "PATH_NOT_FOUND":
                raise
            raise _missing(self.root) from error
        for row in rows:
            name = row.path[row.path.index(self.root.rstrip("/") + "/") + len(self.root.rstrip("/")) + 1 :]
            yield File(row.modified, name, row.length)


def _in_order(files: Iterable[File]) -> list[File]:
    """By name and then, since sorting keeps the order of equals, by time: a third of what comparing pairs costs."""
    ordered = sorted(files, key=itemgetter(1))
    ordered.sort(key=itemgetter(0))
    return ordered


def literally(path: str) -> str:
    """A pattern for Spark that only this path fits, whatever stands in it."""
    return re.sub(r"([\\{}\[\]*?])", r"\\\1", path)


def place_of(path: str) -> Place:
    """Take a path apart. What exists under exactly this name is meant literally."""
    local = is_local(path)
    if local:
        scheme, bare = ("file:", without_scheme(path)) if path.startswith("file:") else ("", path)
        bare = os.path.abspath(bare)
        if os.path.isdir(bare):
            return Place(root=scheme + bare, segments=("*",), local=True)
        if os.path.exists(bare):
            folder, name = os.path.split(bare)
            return Place(root=scheme + folder, segments=(re.sub(r"([*?\[])", r"[\1]", name),), local=True)
        path = scheme + bare
    fixed = path[: found.start()] if (found := _WILD.search(path)) else path.rstrip("/") + "/"
    root = fixed[: fixed.rindex("/")] if "/" in fixed else fixed
    rest = path[len(root) + 1 :] if found else "*"
    return Place(root=root or "/", segments=tuple(rest.split("/")), local=local)


def is_local(path: str) -> bool:
    """Whether this machine's own file system has it."""
    return not SCHEME.match(path) or path.startswith("file:")


def without_scheme(path: str) -> str:
    """A path of this machine as the operating system takes it."""
    return re.sub(r"^file:/+", "/", path)


def _found(
    folder: str,
    segments: Sequence[str],
    prefix: str,
    known: Mapping[str, File],
    pass_over: Callable[[str, str], None],
) -> Iterator[File]:
    """The files under a folder that fit what is left of the pattern."""
    head, rest = segments[0], segments[1:]
    if head == "**":
        yield from _found(folder, rest or ("*",), prefix, known, pass_over)
    fits_all = head == "*"
    for entry in _entries(folder, prefix, pass_over):
        name = entry.name
        if _is_hidden(name):
            continue
        try:
            is_folder = entry.is_dir()
            if not is_folder and (rest or not (fits_all or fnmatchcase(name, head))):
                continue
            file = None if is_folder else known.get(prefix + name) or _seen(entry.path, prefix + name)
        except OSError as error:
            if head == "**" or fnmatchcase(name, head):
                pass_over(prefix + name, f"cannot be looked at: {error.strerror}")
            continue
        if isinstance(file, str):
            pass_over(prefix + name, f"is {file}, and only regular files are read")
        elif file is not None:
            yield file
        elif is_folder and head == "**":
            if not (entry.is_symlink() and _leads_back(entry.path)):
                yield from _found(entry.path, segments, f"{prefix}{name}/", known, pass_over)
        elif is_folder and fnmatchcase(name, head) and (rest or not fits_all):
            yield from _found(entry.path, rest or ("*",), f"{prefix}{name}/", known, pass_over)


def _leads_back(link: str) -> bool:
    """Whether a link leads to a folder that it lies in, so that there would be no end below it."""
    target, folder = os.path.realpath(link), os.path.dirname(link)
    while os.path.realpath(folder) != target:
        folder, below = os.path.dirname(folder), folder
        if folder == below:
            return False
    return True


def _entries(folder: str, prefix: str, pass_over: Callable[[str, str], None]) -> Iterable[os.DirEntry[str]]:
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


def _seen(path: str, name: str) -> File | str | None:
    """The file as it is at this moment; what is there instead, where that is no regular file; None when it is gone."""
    try:
        found = os.stat(path)
    except (FileNotFoundError, NotADirectoryError):
        return None
    if stat.S_ISREG(found.st_mode):
        return _file((found.st_mtime_ns // 1_000_000, name, found.st_size))
    return _KINDS.get(stat.S_IFMT(found.st_mode), "no regular file")


def _fits(name: str, segments: Sequence[str]) -> bool:
    """Whether a file below the root is one that `_found` would find."""
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


def _missing(path: str) -> OriginError:
    near = _near(without_scheme(path)) if is_local(path) else ""
    return OriginError(
        f"There is nothing at {path}.",
        hint=f"{near}Make the folder (an empty one is fine), or correct the origin's path.",
    )


def _near(path: str) -> str:
    """What there is of nearly the same name."""
    folder, name = os.path.split(path)
    while not os.path.isdir(folder):
        folder, name = os.path.split(folder)
    there = os.listdir(folder) if os.access(folder, os.R_OK) else []
    near = difflib.get_close_matches(name, there, n=1)
    return f"There is {os.path.join(folder, near[0])}. " if near else ""
