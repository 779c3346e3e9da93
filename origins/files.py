"""`files`: rows out of files, each file read once."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timezone
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, Literal, cast

from origins.batch import JSON, Batch
from origins.changes import RESCUED, Changes, check_changes
from origins.errors import OriginError
from origins.file_after import delete, move
from origins.file_backlog import Terms, Waiting
from origins.file_columns import METADATA, folder_columns, index_of, names_of_folders, with_folders, with_metadata
from origins.file_options import FORMATS, check_options, completed
from origins.growth import grown
from origins.listing import File, Place, is_local, place_of, without_scheme
from origins.look import SMALL
from origins.one_disk import is_one_disk
from origins.origin import BATCH, Backlog, Origin, Progress
from origins.quantities import seconds
from origins.schema import checked, declared

if TYPE_CHECKING:
    import pyarrow
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

    from origins.file_rows import FileRows
    from origins.file_schema import FileSchema

_AT_ONCE = 256
"""Up to so many files of several batches are told apart in one query."""
_LENIENT = ("spark.sql.files.ignoreCorruptFiles", "spark.sql.files.ignoreMissingFiles")
"""The settings by which Spark may read fewer rows than there are."""
_SHIFTED = "spark.sql.parquet.int96TimestampConversion"
"""The setting by which it may read other moments than a file says."""


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
    whole_by: ClassVar[str] = "batch: whole"

    path: str = field(metadata={"path": "pattern"})
    """A file, a folder, or a pattern with `*`, `?`, `[a-z]` and `**`."""
    format: str
    """`json` (one object a line), `csv`, `parquet` or `text`."""
    schema: str | Mapping[str, str] | None = None
    """The columns and their types; if it is missing, they are found out when a run begins."""
    options: Mapping[str, str | int | float | bool] = field(default_factory=dict)
    """Options of Spark's reader for the format."""
    on_change: Mapping[str, str] = field(default_factory=dict)
    """What is done when files are not as the schema says, by kind of change: `missing`, `extra`, `wider`, `other`,
    `corrupt`."""
    max_files: int | None = None
    """How many files a batch holds at most; `run.batch` has limits too, and the least of them binds."""
    min_age: str = field(default="0s", metadata={"like": "2s"})
    """A file that is younger may still be written, and waits."""
    metadata: Sequence[str] = ()
    """What of a file becomes a column: `file_path`, `file_name`, `file_size`, `file_modification_time`."""
    after: Literal["keep", "move", "delete"] = "keep"
    """What becomes of a file once its rows are carried."""
    move_to: str | None = field(default=None, metadata={"path": True})
    """The folder that files are moved to; by default `_carried` below the path's part before the first wildcard."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.path.strip():
            raise ValueError("path: expected a file, a folder or a pattern, got nothing")
        if self.max_files is not None and self.max_files < 1:
            raise ValueError(f"max_files: expected at least 1, got {self.max_files}")
        if self.max_files is not None and self.batch == "whole":
            raise ValueError(f"max_files: expected none beside `batch: whole`, got {self.max_files}")
        if self.format not in FORMATS:
            raise ValueError(f"format: expected {', '.join(FORMATS)}, got {self.format!r}")
        check_options(self.format, self.options)
        check_changes(self.format, self.on_change, self.options)
        self._check_min_age()
        for name in self.metadata:
            if name not in METADATA:
                raise ValueError(f"metadata: expected {', '.join(METADATA)}, got {name!r}")
        if self.after not in ("keep", "move", "delete"):
            raise ValueError(f"after: expected keep, move or delete, got {self.after!r}")
        if self.after != "keep" and not is_local(self.path):
            raise ValueError(f"after: expected keep, since Spark cannot {self.after} the files of {self.path}")
        if self.move_to is not None and self.after != "move":
            raise ValueError(f"move_to: expected `after: move` beside it, got after: {self.after}")
        if self.move_to is not None and not is_local(self.move_to):
            raise ValueError(f"move_to: expected a folder of this machine, got {self.move_to!r}")

    def _check_min_age(self) -> None:
        try:
            seconds(self.min_age)
        except ValueError as error:
            raise ValueError(f"min_age: {error}") from error

    @property
    def infers(self) -> bool:
        return self.schema is None

    @property
    def evolves(self) -> bool:
        return self._changes.evolves or self._changes.rescues

    @property
    def listens(self) -> bool:
        return self.after != "keep"

    @property
    def place(self) -> str:
        return self.path

    def survey(self, spark: SparkSession, progress: Progress) -> Waiting:
        carried = {name: (size, modified) for name, size, modified in progress.parts}
        terms = Terms(
            lanes=self.lane_names(),
            max_files=self.max_files,
            min_age=seconds(self.min_age),
            plain=self.format != "parquet",
        )
        waiting = Waiting(terms, place_of(self.path), spark, carried)
        if self.after == "move":
            self._check_archive(waiting)
        return waiting

    def columns(self, spark: SparkSession, backlog: Backlog) -> str | None:
        assert isinstance(backlog, Waiting)
        folders = names_of_folders(file.name for file in backlog.files)
        if self.schema is None:
            schema = with_folders(self._schemas(backlog.place).of(spark, backlog.files), folders)
        else:
            schema = self._declared(spark, self.schema, folders)
        if schema is None:
            return None
        return str(checked(schema, self.path).json())

    def evolved(self, spark: SparkSession, backlog: Backlog, schema: str, before: str | None) -> str:
        from pyspark.sql.types import StructType

        assert isinstance(backlog, Waiting)
        if not self._changes.evolves:
            return schema
        known = StructType.fromJson(json.loads(schema))
        if before is not None:
            known = grown(known, StructType.fromJson(json.loads(before)), self._changes)
        names = [file.name for file in backlog.files if file.size]
        if names:
            found = self._schemas(backlog.place).beyond(spark, names, known)
            folders = names_of_folders(names) if self._changes.extra == "evolve" else []
            known = with_folders(grown(known, found, self._changes), folders) or known
        return str(checked(known, self.path).json())

    def completed(self, schema: str) -> str:
        from pyspark.sql.types import StringType, StructField, StructType

        read = StructType.fromJson(json.loads(schema))
        whole = with_metadata(read, self.metadata)
        if self._changes.rescues:
            whole = StructType([*whole.fields, StructField(RESCUED, StringType())])
        return str(checked(whole, self.path).json())

    def fetch(self, spark: SparkSession, batch: Batch, *, places: bool = False) -> DataFrame:
        from pyspark.sql.types import StructType

        self.check(spark, batch)
        place, names = place_of(self.path), self.parts(batch)
        schema = StructType.fromJson(json.loads(batch.schema))
        rows = replace(self._rows(place), metadata=tuple(self.metadata))
        return rows.read(spark, names, schema, places=places)

    def fetch_several(self, spark: SparkSession, batches: Sequence[Batch]) -> DataFrame | None:
        from pyspark.sql.types import StructType

        of_batches = [self.parts(batch) for batch in batches]
        names = [name for of_batch in of_batches for name in of_batch]
        if len(names) > _AT_ONCE or len(set(names)) < len(names):
            return None
        for batch in batches:
            self.check(spark, batch)
        place, schema = place_of(self.path), StructType.fromJson(json.loads(batches[0].schema))
        told = {BATCH: index_of(place.root, of_batches)}
        rows = replace(self._rows(place), metadata=tuple(self.metadata), told=told)
        return rows.read(spark, names, schema, places=False)

    def fetch_here(self, spark: SparkSession, batch: Batch) -> pyarrow.Table | None:
        from pyspark.sql.types import StructType

        place, names = place_of(self.path), self.parts(batch)
        few = batch.span.bytes is not None and batch.span.bytes <= SMALL
        if not few or not place.local or self.metadata or self.options or not is_one_disk(spark):
            return None
        self.check(spark, batch)
        found = self._rows(place).read_here(spark, names, StructType.fromJson(json.loads(batch.schema)))
        self.check(spark, batch)
        return found

    def files_here(self, spark: SparkSession, batch: Batch) -> Mapping[str, Path]:
        from pyspark.sql.types import StructType

        from origins.parquet_here import is_plain

        place = place_of(self.path)
        if self.format != "parquet" or not place.local or self.metadata or self.options or not is_one_disk(spark):
            return {}
        self.check(spark, batch)
        odd = self._changes.rescues or any(folder_columns(name) for name in self.parts(batch))
        lenient = any(spark.conf.get(key, "false") != "false" for key in (*_LENIENT, _SHIFTED))
        files = {name: Path(without_scheme(place.full(name))) for name in self.parts(batch)}
        schema = StructType.fromJson(json.loads(batch.schema))
        return files if not odd and not lenient and all(is_plain(file, schema) for file in files.values()) else {}

    def count(self, batch: Batch) -> int | None:
        from origins.parquet_rows import rows_in

        place = place_of(self.path)
        return rows_in(place, self.parts(batch)) if self.format == "parquet" and place.local else None

    def check(self, spark: SparkSession, batch: Batch) -> None:
        place = place_of(self.path)
        planned = [File(modified, name, size) for name, size, modified in batch.span.parts]
        _check(place, planned, place.look(spark, [file.name for file in planned]))

    def changed(self, parts: Sequence[JSON]) -> Mapping[str, str]:
        if not is_local(self.path):
            return {}
        place, carried = place_of(self.path), {name: (size, modified) for name, size, modified in parts}
        now = place.look(cast("SparkSession", None), list(carried))
        return {
            name: _difference(File(carried[name][1], name, carried[name][0]), file)
            for name, file in now.items()
            if (file.size, file.modified) != carried[name]
        }

    def parts(self, batch: Batch) -> Sequence[str]:
        return [name for name, _, _ in batch.span.parts]

    def committed(self, spark: SparkSession, batch: Batch) -> None:
        place = place_of(self.path)
        carried = [File(modified, name, size) for name, size, modified in batch.span.parts] if self.listens else []
        now = place.look(spark, [file.name for file in carried])
        for file in carried:
            if now.get(file.name) == file and self.after == "delete":
                delete(without_scheme(place.full(file.name)))
            elif now.get(file.name) == file:
                move(without_scheme(place.full(file.name)), os.path.join(self._archive(place), file.name))

    def _archive(self, place: Place) -> str:
        return os.path.abspath(without_scheme(self.move_to or place.full("_carried")))

    def _check_archive(self, waiting: Waiting) -> None:
        """Raises `OriginError` when a file that is moved would be found again, and read twice."""
        archive = self._archive(waiting.place)
        if any(waiting.place.finds(os.path.join(archive, file.name)) for file in waiting.files):
            raise OriginError(
                f"Files that are moved to {archive} would be read again: {self.path} finds them there.",
                hint="Set move_to to a folder elsewhere, or to one whose name begins with `_`.",
            )

    @property
    def _changes(self) -> Changes:
        return Changes.of(self.format, self.on_change, given=self.schema is not None)

    def _schemas(self, place: Place) -> FileSchema:
        from origins.file_schema import FileSchema

        return FileSchema(rows=self._rows(place))

    def _rows(self, place: Place) -> FileRows:
        from origins.file_rows import FileRows

        return FileRows(
            format=self.format, place=place, options=completed(self.format, self.options), changes=self._changes
        )

    def _declared(self, spark: SparkSession, schema: str | Mapping[str, str], folders: Sequence[str]) -> StructType:
        from pyspark.sql.types import ArrayType, MapType, StructType

        columns = declared(spark, schema, self.path)
        nested = [column.name for column in columns if isinstance(column.dataType, ArrayType | MapType | StructType)]
        if self.format == "csv" and nested:
            raise OriginError(
                f"Column {nested[0]} of {self.path} is {columns[nested[0]].dataType.simpleString()}; "
                "a field of a CSV file holds one value.",
                hint="Read it as a string, and take it apart in a stage: from_json, split.",
            )
        given = {folder.lower() for folder in folders}
        types = [column.dataType.typeName() for column in columns if column.name.lower() not in given]
        if self.format == "text" and types != ["string"]:
            raise OriginError(
                f"The schema of {self.path} is {schema}; text files have one column, of type string.",
                hint='Leave the schema out (the column is then called value), or write it like "line string".',
            )
        return columns


def _check(place: Place, planned: Sequence[File], now: Mapping[str, File]) -> None:
    """Raise `OriginError` for the first file that is not what was planned."""
    for file in planned:
        found = now.get(file.name)
        if found == file:
            continue
        what = "is gone" if found is None else f"has changed ({_difference(file, found)})"
        raise OriginError(
            f"{place.full(file.name)} {what} since its batch was planned; nothing of the batch was read.",
            hint="Run again: a batch that no destination has yet is planned anew from the files as they are.",
        )


def _difference(then: File, now: File) -> str:
    """In what a file differs from what it was: its size, or else the time when it was written."""
    if then.size != now.size:
        return f"it had {then.size:,} bytes and now has {now.size:,}"
    return f"it was written at {_moment(then)} and again at {_moment(now)}, or copied then; its size is the same"


def _moment(file: File) -> str:
    return datetime.fromtimestamp(file.modified / 1000, timezone.utc).isoformat(" ", "milliseconds")[:-6] + " UTC"
