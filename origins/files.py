"""`files`: rows out of files, each file read once."""

from __future__ import annotations

import json
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, ClassVar

from origins.batch import JSON, Batch, Limits, Span
from origins.errors import OriginError
from origins.file_options import FORMATS, check_options, completed
from origins.file_rows import FileRows
from origins.listing import File, Place, place_of
from origins.origin import Backlog, Origin, Progress
from origins.schema import checked, declared

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType


@dataclass(frozen=True, kw_only=True)
class Files(Origin):
    """The rows of files in a folder, each file once and never split over two batches.

    Files are carried in the order of their time, then of their names. What was carried is remembered file by
    file, so that one that comes late is read though it is older than others. One that changes after it was
    carried is not read again, and the run says so. A file belongs to one lane, by a hash of its name.
    """

    binds: ClassVar[frozenset[str]] = frozenset({"files", "bytes"})
    keeps_parts: ClassVar[bool] = True
    foresees: ClassVar[bool] = True

    path: str = field(metadata={"path": "pattern"})
    """A file, a folder, or a pattern with `*`, `?`, `[a-z]` and `**`."""
    format: str
    """`json` (one object a line), `csv`, `parquet` or `text`."""
    schema: str | Mapping[str, str] | None = None
    """The columns and their types; if it is missing, they are found out when a run begins."""
    options: Mapping[str, str | int | float | bool] = field(default_factory=dict)
    """Options of Spark's reader for the format."""
    max_files: int | None = None
    """How many files a batch holds at most; `run.batch` has limits too, and the least of them binds."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.path.strip():
            raise ValueError("path: expected a file, a folder or a pattern, got nothing")
        if self.max_files is not None and self.max_files < 1:
            raise ValueError(f"max_files: expected at least 1, got {self.max_files}")
        if self.format not in FORMATS:
            raise ValueError(f"format: expected {', '.join(FORMATS)}, got {self.format!r}")
        check_options(self.format, self.options)

    @property
    def infers(self) -> bool:
        return self.schema is None

    @property
    def place(self) -> str:
        return self.path

    def survey(self, spark: SparkSession, progress: Progress) -> Waiting:
        carried = {name: (size, modified) for name, size, modified in progress.parts}
        return Waiting(self, place_of(self.path), spark, carried)

    def columns(self, spark: SparkSession, backlog: Backlog) -> str | None:
        assert isinstance(backlog, Waiting)
        if self.schema is None:
            schema = self._rows(backlog.place).infer(spark, backlog.files)
        else:
            schema = self._declared(spark, self.schema)
        if schema is None:
            return None
        return str(checked(schema, self.path).json())

    def fetch(self, spark: SparkSession, batch: Batch, *, places: bool = False) -> DataFrame:
        from pyspark.sql.types import StructType

        self.check(spark, batch)
        place, names = place_of(self.path), self.parts(batch)
        schema = StructType.fromJson(json.loads(batch.schema))
        return self._rows(place).read(spark, names, schema, places=places, exact=self.schema is None)

    def check(self, spark: SparkSession, batch: Batch) -> None:
        place = place_of(self.path)
        planned = [File(modified, name, size) for name, size, modified in batch.span.parts]
        _check(place, planned, place.look(spark, [file.name for file in planned]))

    def parts(self, batch: Batch) -> Sequence[str]:
        return [name for name, _, _ in batch.span.parts]

    def _rows(self, place: Place) -> FileRows:
        return FileRows(format=self.format, place=place, options=completed(self.format, self.options))

    def _declared(self, spark: SparkSession, schema: str | Mapping[str, str]) -> StructType:
        from pyspark.sql.types import ArrayType, MapType, StructType

        columns = declared(spark, schema, self.path)
        nested = [column.name for column in columns if isinstance(column.dataType, ArrayType | MapType | StructType)]
        if self.format == "csv" and nested:
            raise OriginError(
                f"Column {nested[0]} of {self.path} is {columns[nested[0]].dataType.simpleString()}; "
                "a field of a CSV file holds one value.",
                hint="Read it as a string, and take it apart in a stage: from_json, split.",
            )
        if self.format == "text" and [column.dataType.typeName() for column in columns] != ["string"]:
            raise OriginError(
                f"The schema of {self.path} is {schema}; text files have one column, of type string.",
                hint='Leave the schema out (the column is then called value), or write it like "line string".',
            )
        return columns


class Waiting(Backlog):
    """The files that were there and not yet carried, lane by lane."""

    def __init__(self, origin: Files, place: Place, spark: SparkSession, carried: dict[str, tuple[int, int]]) -> None:
        self.place = place
        self._origin = origin
        self._carried = carried
        """Size and time of every file that was handed out, by name."""
        found = place.files(spark)
        self.changed = [file for file in found if carried.get(file.name, _seen(file)) != _seen(file)]
        self._lanes: dict[str, list[File]] = {lane: [] for lane in origin.lane_names()}
        for file in found:
            if file.name not in carried:
                self._lanes[str(zlib.crc32(file.name.encode()) % origin.lanes)].append(file)
        self._next = {
            lane: {file.name: index + 1 for index, file in enumerate(files)} for lane, files in self._lanes.items()
        }

    def again(self, spark: SparkSession, offsets: Mapping[str, JSON]) -> Waiting:
        for lane, files in self._lanes.items():
            planned = files[: len(files) - len(self._after(lane, offsets.get(lane)))]
            self._carried.update({file.name: _seen(file) for file in planned})
        return Waiting(self._origin, self.place, spark, self._carried)

    @property
    def files(self) -> list[File]:
        """All of them, in order."""
        return sorted(file for files in self._lanes.values() for file in files)

    @property
    def notices(self) -> Sequence[str]:
        return [f"{file.name} changed after it was carried; it is not read again" for file in self.changed]

    def take(self, lane: str, start: JSON, limits: Limits) -> Span | None:
        waiting = self._after(lane, start)
        taken, size = 0, 0
        for file in waiting:
            size += file.size
            many = _over(taken + 1, limits.files) or _over(taken + 1, self._origin.max_files)
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
        )

    def _is_full(self, files: int, size: int, limits: Limits) -> bool:
        """Whether a limit is reached, so that no other file would fit."""
        most = (limits.files, self._origin.max_files)
        return files in most or (limits.bytes is not None and size >= limits.bytes)

    def behind(self, lane: str, start: JSON) -> str:
        waiting = self._after(lane, start)
        size = sum(file.size for file in waiting)
        return f"{len(waiting)} file{'s' * (len(waiting) != 1)}, {size:,} bytes" if waiting else ""

    def _after(self, lane: str, start: JSON) -> Sequence[File]:
        """What waits behind an offset; one from before this survey is before all of it."""
        return self._lanes[lane][self._next[lane].get(start["file"], 0) if start else 0 :]


def _seen(file: File) -> tuple[int, int]:
    return file.size, file.modified


def _over(amount: int, limit: int | None) -> bool:
    return limit is not None and amount > limit


def _check(place: Place, planned: Sequence[File], now: Mapping[str, File]) -> None:
    """Raise `OriginError` for the first file that is not what was planned."""
    for file in planned:
        found = now.get(file.name)
        if found == file:
            continue
        what = "is gone" if found is None else f"has changed (it had {file.size:,} bytes and now has {found.size:,})"
        raise OriginError(
            f"{place.full(file.name)} {what} since its batch was planned; nothing of the batch was read.",
            hint="Run again: a batch that no destination has yet is planned anew from the files as they are.",
        )
