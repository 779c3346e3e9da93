"""What waits in a folder: the files that were there at one moment and were not carried yet."""

from __future__ import annotations

import bisect
import re
import time
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from origins.batch import JSON, Limits, Span
from origins.listing import File, Place
from origins.origin import Backlog

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

CHANGED_AGAIN = 60.0
"""For so many seconds a run that goes on does not look again whether files that it carried have changed."""
_SURROGATE = re.compile("[\ud800-\udfff]")
_PACKED = (".gz", ".bz2", ".zst", ".lz4", ".snappy", ".deflate", ".xz")


@dataclass(frozen=True, kw_only=True)
class Terms:
    """How files are handed out."""

    lanes: Sequence[str]
    max_files: int | None
    min_age: float
    """A file that is younger, in seconds, may still be written, and waits."""
    plain: bool
    """Whether a file is about as large as its rows, unless its name says that it is packed."""


class Waiting(Backlog):
    """The files that were there and not yet carried, lane by lane."""

    def __init__(
        self,
        terms: Terms,
        place: Place,
        spark: SparkSession,
        carried: dict[str, tuple[int, int]],
        *,
        before: Waiting | None = None,
    ) -> None:
        self.place = place
        self._terms = terms
        self._carried = carried
        """Size and time of every file that was handed out, by name."""
        now = time.time()
        lately = before is not None and time.monotonic() - before._looked < CHANGED_AGAIN
        self._looked: float = before._looked if before is not None and lately else time.monotonic()
        """When all files were looked at, and not only those that were not carried."""
        known = before._known if before is not None and lately else {}
        carried_before = {name: file for name, file in known.items() if name in carried}
        self._passed: dict[str, str] = {}
        """What fits the path and cannot be read as a file, by name, and why."""
        everything = place.files(spark, carried_before, self._passed.__setitem__)
        self._known: Mapping[str, File] = {file.name: file for file in everything}
        found = everything if not terms.min_age else [file for file in everything if _age(file, now) >= terms.min_age]
        self._young = len(everything) - len(found) if before is None else 0
        self.changed = [file for file in found if carried.get(file.name, _seen(file)) != _seen(file)]
        self._lanes: dict[str, list[File]] = {lane: [] for lane in terms.lanes}
        for file in found:
            if not _is_text(file.name):
                self._passed[file.name] = "is no text in UTF-8, so Spark cannot open the file"
            elif file.name not in carried:
                self._lanes[_lane(file, terms.lanes)].append(file)

    def again(self, spark: SparkSession, offsets: Mapping[str, JSON]) -> Waiting:
        for lane, files in self._lanes.items():
            planned = files[: len(files) - len(self._after(lane, offsets.get(lane)))]
            self._carried.update({file.name: _seen(file) for file in planned})
        return Waiting(self._terms, self.place, spark, self._carried, before=self)

    @property
    def files(self) -> list[File]:
        """All of them, in order."""
        return sorted(file for files in self._lanes.values() for file in files)

    @property
    def notices(self) -> Sequence[str]:
        copied = [file for file in self.changed if self._carried[file.name][0] == file.size]
        several = len(copied) > 1
        changed = [
            f"{file.name} changed after it was carried; it is not read again"
            for file in self.changed
            if not several or file not in copied
        ]
        if several:
            changed.append(
                f"{copied[0].name} and {len(copied) - 1} more have another time than when they were carried, and the "
                "same size: a copy without its times (cp -r; cp -a keeps them) looks so; none is read again"
            )
        changed += [f"{_shown(name)} {why}" for name, why in self._passed.items()]
        young = f"{self._young} file{'s' * (self._young != 1)} may still be written, by min_age, and will be read later"
        return [*changed, young] if self._young else changed

    def take(self, lane: str, start: JSON, limits: Limits) -> Span | None:
        waiting = self._after(lane, start)
        taken, size = 0, 0
        for file in waiting:
            size += file.size
            many = _over(taken + 1, limits.files) or _over(taken + 1, self._terms.max_files)
            if taken and (many or _over(size, limits.bytes)):
                break
            taken += 1
        if not taken:
            return None
        files = waiting[:taken]
        last = files[-1]
        return Span(
            start=start,
            end={"file": last.name, "modified": last.modified},
            parts=tuple([file.name, file.size, file.modified] for file in files),
            label=files[0].name if taken == 1 else f"{files[0].name} … {last.name} ({taken} files)",
            full=self._is_full(taken, sum(file.size for file in files), limits) or taken < len(waiting),
            bytes=self._bytes(files),
        )

    def _bytes(self, files: Sequence[File]) -> int | None:
        packed = any(file.name.lower().endswith(_PACKED) for file in files)
        return sum(file.size for file in files) if self._terms.plain and not packed else None

    def _is_full(self, files: int, size: int, limits: Limits) -> bool:
        """Whether a limit is reached, so that no other file would fit."""
        most = (limits.files, self._terms.max_files)
        return files in most or (limits.bytes is not None and size >= limits.bytes)

    def behind(self, lane: str, start: JSON) -> str:
        waiting = self._after(lane, start)
        size = sum(file.size for file in waiting)
        return f"{len(waiting)} file{'s' * (len(waiting) != 1)}, {size:,} bytes" if waiting else ""

    def _after(self, lane: str, start: JSON) -> Sequence[File]:
        """What waits behind an offset; one from before this survey is before all of it."""
        files = self._lanes[lane]
        if not start:
            return files
        last = (start["modified"], start["file"])
        behind = bisect.bisect_right(files, last, key=lambda file: file[:2])
        return files[behind:] if behind and files[behind - 1][:2] == last else files


def _seen(file: File) -> tuple[int, int]:
    return file.size, file.modified


def _age(file: File, now: float) -> float:
    """In seconds; below zero for a file from the future."""
    return now - file.modified / 1_000


def _is_text(name: str) -> bool:
    """Whether a name is UTF-8. The system's other names hold surrogates in Python."""
    return name.isascii() or _SURROGATE.search(name) is None


def _shown(name: str) -> str:
    """The name on one line, and as text that can be written."""
    return name if name.isprintable() else repr(name)


def _lane(file: File, lanes: Sequence[str]) -> str:
    """The lane of a file, by its name alone."""
    return lanes[zlib.crc32(file.name.encode()) % len(lanes)]


def _over(amount: int, limit: int | None) -> bool:
    return limit is not None and amount > limit
