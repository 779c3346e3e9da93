"""`files`: rows of files, each file read once."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timezone
from functools import cached_property
from typing import TYPE_CHECKING, ClassVar, Literal, cast

from origins.batch import Backlog, Batch, Json, Span
from origins.batch_rows import BatchRows, TableRows, compute_once
from origins.capabilities import AddsColumns, EvolvesSchema, FetchesAhead, KeepsParts, ReactsToCommits, SeesOtherColumns
from origins.errors import OriginError
from origins.files.changes import RESCUED, Changes, check_changes, grow_schema
from origins.files.file_scan import METADATA, list_folder_columns, make_index_sql, with_metadata, with_text
from origins.files.file_systems import SMALL, File, is_local, without_scheme
from origins.files.in_process import make_plain_array
from origins.files.listing import FileBacklog, FilePattern, Terms, list_files, make_span, parse_pattern
from origins.files.options import FORMATS, check_options, complete_options
from origins.lazy import DataFrame, SparkSession, T, pa
from origins.names import HIDDEN, is_one_disk, quote_name
from origins.origin import BATCH, PLACE, Origin, Progress
from origins.quantities import check_seconds, parse_seconds
from origins.schema import check_schema, parse_schema
from origins.store_access import StoreError, canonicalise, is_store_url

if TYPE_CHECKING:
    from origins.files.formats import FileRows


_AT_ONCE = 256
"""The most files that one query reads for several batches."""

_PART, _ROW = HIDDEN + "part", HIDDEN + "row"
"""The columns for the file of a row that was read in this process, and for the row's number in it, from 0."""
_FILE_NAME = "file_name"
"""The fact about a file that rows can have which this process reads."""
_RUN_AGAIN = "Run again: if no destination has the batch yet, Wherry plans it again from the current files."


@dataclass(frozen=True, kw_only=True)
class Files(Origin, AddsColumns, EvolvesSchema, FetchesAhead, SeesOtherColumns, KeepsParts, ReactsToCommits):
    """Reads the rows of files in a folder. Each file is read once, and one batch holds all of it.

    Wherry reads files in the order of their time, then of their names. It remembers each file that it has read. So a
    file that arrives late is read, even if newer files were read before it. A file that changes after it was read is
    not read again, and the run says so. A hash of its name gives each file its lane.

    Example:
        files:
          path: landing/orders/*.json
          format: json
          schema: "id long, email string, amount string, at timestamp"
          on_change: {extra: evolve}
    """

    binds: ClassVar[frozenset[str]] = frozenset({"files", "bytes"})
    whole_by: ClassVar[str] = "batch: whole"
    decides_by: ClassVar[str] = "`on_change: {extra: evolve}` or `{extra: ignore}`"

    path: str = field(metadata={"path": "pattern"})
    """A file, a folder, or a pattern with `*`, `?`, `[a-z]` and `**`."""
    format: str
    """`json` (one object a line), `csv`, `parquet` or `text`."""
    schema: str | Mapping[str, str] | None = None
    """The columns and their types. By default the first run infers them from the files, and they then stay."""
    options: Mapping[str, str | int | float | bool] = field(default_factory=dict)
    """Options of Spark's reader for the format, for example `multiLine`."""
    on_change: Mapping[str, str] = field(default_factory=dict)
    """What Wherry does when a file does not fit the schema, for each kind of change. The kinds are `missing`, `extra`,
    `wider`, `other`, `corrupt` and `doubled`."""
    exclude: Sequence[str] = field(default=(), metadata={"like": ["*-draft.json"]})
    """Files that are left out: their names, or patterns of names. `old/a.json` means this file in a folder `old`."""
    max_files: int | None = None
    """How many files a batch holds at most. `run.batch` has limits too, and the lowest one counts."""
    min_age: str = field(default="0s", metadata={"like": "2s"})
    """How old a file must be before it is read. A younger file may still be growing."""
    metadata: Sequence[str] = ()
    """Facts about a file that become columns: `file_path`, `file_name`, `file_size`, `file_modification_time`."""
    after: Literal["keep", "move", "delete"] = "keep"
    """What happens to a file once every destination has its rows."""
    move_to: str | None = field(default=None, metadata={"path": True})
    """The folder to which files move. The default is `_carried`, below the part of the path before any wildcard."""

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
        check_seconds("min_age", self.min_age)
        _check_names(self.metadata, self.exclude)
        if self.after not in ("keep", "move", "delete"):
            raise ValueError(f"after: expected keep, move or delete, got {self.after!r}")
        stored = is_store_url(self.path)
        if self.after != "keep" and not is_local(self.path) and not stored:
            raise ValueError(f"after: expected keep, since Spark cannot {self.after} the files of {self.path}")
        if self.move_to is not None and self.after != "move":
            raise ValueError(f"move_to: expected `after: move` beside it, got after: {self.after}")
        if self.move_to is not None and stored and _get_bucket(self.move_to) != _get_bucket(self.path):
            raise ValueError(f"move_to: expected a folder of {_get_bucket(self.path)}, got {self.move_to!r}")
        if self.move_to is not None and not stored and not is_local(self.move_to):
            raise ValueError(f"move_to: expected a folder of this machine, got {self.move_to!r}")

    @property
    def infers(self) -> bool:
        return self.schema is None

    @property
    def evolves(self) -> bool:
        return self.changes.evolves or self.changes.rescues

    @property
    def listens(self) -> bool:
        return self.after != "keep"

    @property
    def place(self) -> str:
        return self.path

    @property
    def is_listed_here(self) -> bool:
        """Whether a survey needs no Spark."""
        return self._parse_path().is_read_here

    def survey(self, spark: SparkSession, progress: Progress) -> FileBacklog:
        carried = {file.name: file for file in list_files(progress.parts)}
        terms = Terms(
            lanes=self.lane_names(),
            max_files=self.max_files,
            min_age=parse_seconds(self.min_age),
            plain=self.format != "parquet",
        )
        waiting = FileBacklog(terms, self._parse_path(), spark, carried)
        if self.after == "move":
            self._check_archive(waiting)
        return waiting

    def columns(self, spark: SparkSession, backlog: Backlog) -> str | None:
        assert isinstance(backlog, FileBacklog)
        folders = list_folder_columns(file.name for file in backlog.files)
        if self.schema is not None:
            schema = self._declare_schema(spark, self.schema, folders)
        elif (found := self.make_reader(backlog.place).infer(spark, backlog.files)) is not None:
            schema = with_text(found, folders)
        else:
            return None
        return str(check_schema(schema, self.path).json())

    def evolve_schema(self, spark: SparkSession, backlog: Backlog, schema: str, before: str | None) -> str:
        assert isinstance(backlog, FileBacklog)
        if not self.changes.evolves:
            return schema
        known = T.StructType.fromJson(json.loads(schema))
        if before is not None:
            known = grow_schema(known, T.StructType.fromJson(json.loads(before)), self.changes)
        names = [file.name for file in backlog.files if file.size]
        if names:
            found = self.make_reader(backlog.place).infer_beyond(spark, names, known)
            folders = list_folder_columns(names) if self.changes.extra == "evolve" else []
            known = with_text(grow_schema(known, found, self.changes), folders)
        return str(check_schema(known, self.path).json())

    def complete_schema(self, schema: str) -> str:
        read = T.StructType.fromJson(json.loads(schema))
        whole = with_metadata(read, self.metadata)
        if self.changes.rescues:
            whole = T.StructType([*whole.fields, T.StructField(RESCUED, T.StringType())])
        return str(check_schema(whole, self.path).json())

    def list_left_out(self, backlog: Backlog, schema: str) -> Sequence[str]:
        assert isinstance(backlog, FileBacklog)
        if self.schema is None or "extra" in self.on_change or self.format == "text":
            return ()
        from origins.files.heads import list_left_out

        files = [file for file in backlog.files if file.size]
        known = [column["name"] for column in json.loads(schema)["fields"]]
        return list_left_out(backlog.place, files, self.format, complete_options(self.format, self.options), known)

    def fetch(self, spark: SparkSession, batches: Sequence[Batch], *, places: bool = False) -> BatchRows:
        return _FilesRows(self, spark, batches, places)

    def joins(self, batches: Sequence[Batch]) -> bool:
        names = [name for batch in batches for name in self.parts(batch)]
        return len(names) <= _AT_ONCE and len(set(names)) == len(names)

    def check(self, spark: SparkSession, batch: Batch) -> None:
        place, planned = self._parse_path(), list_files(batch.span.parts)
        _check_same(place, planned, place.stat(spark, [file.name for file in planned]))

    def find_changed(self, parts: Sequence[Json]) -> Mapping[str, str]:
        place, no_spark = self._parse_path(), cast("SparkSession", None)
        if not place.is_read_here:
            return {}
        carried = {file.name: file for file in list_files(parts)}
        try:
            there = place.stat(no_spark, list(carried)).values() if place.local else place.list_files(no_spark)
        except (OriginError, StoreError):
            if place.local:
                raise
            return {}
        now = {file.name: file for file in there if file.name in carried}
        return {
            name: _describe_difference(carried[name], file)
            for name, file in now.items()
            if not place.is_same(carried[name], file)
        }

    def make_span(self, spark: SparkSession, part: str) -> Span | None:
        file = self._parse_path().stat(spark, [part]).get(part)
        return None if file is None else make_span(None, [file])

    def list_paths(self, part: str) -> Sequence[str]:
        path = self._parse_path().join_path(part)
        bare = without_scheme(path)
        return (bare, f"file:{bare}", f"file://{bare}") if is_local(path) else (path,)

    def parts(self, batch: Batch) -> Sequence[str]:
        return [file.name for file in list_files(batch.span.parts)]

    def committed(self, spark: SparkSession, batch: Batch) -> None:
        if not self.listens:
            return
        place, carried = self._parse_path(), list_files(batch.span.parts)
        now = place.stat(spark, [file.name for file in carried])
        there = [file.name for file in carried if place.is_same(now.get(file.name), file)]
        if self.after == "delete":
            place.files.delete([place.join_path(name) for name in there])
        else:
            archive = self._archive_folder(place)
            place.files.move({place.join_path(name): f"{archive}/{name}" for name in there})

    def _parse_path(self) -> FilePattern:
        return replace(parse_pattern(self.path, changes=self.listens), exclude=tuple(self.exclude))

    def _archive_folder(self, place: FilePattern) -> str:
        folder = self.move_to or place.join_path("_carried")
        return os.path.abspath(without_scheme(folder)) if place.local else canonicalise(folder)

    def _check_archive(self, waiting: FileBacklog) -> None:
        """Raise `OriginError` if a moved file would be found again, and so be read twice."""
        archive = self._archive_folder(waiting.place)
        if any(waiting.place.matches(f"{archive}/{file.name}") for file in waiting.files):
            raise OriginError(
                f"Files that are moved to {archive} would be read again, since they match {self.path} there.",
                hint="Set `move_to` to a folder outside the path, or give its name a leading `_`.",
            )

    @property
    def changes(self) -> Changes:
        """The policies for files that do not match the schema."""
        return Changes.of(self.format, self.on_change, given=self.schema is not None)

    def make_reader(self, place: FilePattern) -> FileRows:
        from origins.files.formats import FileRows

        return FileRows(
            format=self.format, place=place, options=complete_options(self.format, self.options), changes=self.changes
        )

    def _declare_schema(
        self, spark: SparkSession, schema: str | Mapping[str, str], folders: Sequence[str]
    ) -> T.StructType:
        columns = parse_schema(spark, schema, self.path)
        nested = [
            column.name for column in columns if isinstance(column.dataType, T.ArrayType | T.MapType | T.StructType)
        ]
        if self.format == "csv" and nested:
            raise OriginError(
                f"Column {nested[0]} of {self.path} is {columns[nested[0]].dataType.simpleString()}; "
                "a field of a CSV file holds one value.",
                hint="Read it as a string, and parse it in a stage with from_json or split.",
            )
        given = {folder.lower() for folder in folders}
        types = [column.dataType.typeName() for column in columns if column.name.lower() not in given]
        if self.format == "text" and types != ["string"]:
            raise OriginError(
                f"The schema of {self.path} is {schema}; text files have one column, of type string.",
                hint='Leave the schema out (the column is then called value), or write it like "line string".',
            )
        return columns


@dataclass(frozen=True)
class _FilesRows(BatchRows):
    """The rows of the files of some batches. Every form raises `OriginError` if a file no longer matches the plan."""

    origin: Files
    spark: SparkSession
    batches: Sequence[Batch]
    places: bool

    @property
    def schema(self) -> T.StructType:
        return T.StructType.fromJson(json.loads(self.batches[0].schema))

    @compute_once
    def frame(self) -> DataFrame:
        if self._tables is not None:
            return self._make_frame(self._tables)
        self._check()
        several = len(self.batches) > 1
        more_columns = {BATCH: make_index_sql(self._place.root, [self.origin.parts(batch) for batch in self.batches])}
        rows = replace(
            self.origin.make_reader(self._place),
            metadata=tuple(self.origin.metadata),
            added=more_columns if several else {},
        )
        return rows.read(self.spark, self._names, self.schema, places=self.places)

    @compute_once
    def table(self) -> pa.Table | None:
        return None if self.places or self._tables is None else pa.concat_tables(self._tables.values())

    def size(self) -> int | None:
        table = self.table()
        return None if table is None else int(table.nbytes)

    def count(self) -> int | None:
        counts = self.count_parts()
        return None if counts is None else sum(counts.values())

    @compute_once
    def count_parts(self) -> Mapping[str, int] | None:
        from origins.files.parquet_rows import count_rows

        if self.origin.format != "parquet" or not self._place.local:
            return None
        try:
            return {name: count_rows(self._place.find_path(name)) for name in self._names}
        except (pa.ArrowException, OSError):
            return None

    def count_given(self) -> int | None:
        return None if self._tables is None else sum(table.num_rows for table in self._tables.values())

    def _make_frame(self, tables: Mapping[str, pa.Table]) -> DataFrame:
        """Return a frame of the rows that were read in this process, which Spark reads in one task."""
        rows, columns = pa.concat_tables(tables.values()), T.StructType([*self.schema.fields])
        if not self.places:
            return TableRows(self.spark, rows, columns).frame()
        parts = [name for name, table in tables.items() for _ in range(table.num_rows)]
        numbers = [number for table in tables.values() for number in range(table.num_rows)]
        rows = rows.append_column(_PART, make_plain_array(parts, pa.string()))
        rows = rows.append_column(_ROW, make_plain_array(numbers, pa.int64()))
        columns = columns.add(_PART, T.StringType()).add(_ROW, T.LongType())
        place = f"named_struct('part', {_PART}, 'block', 0L, 'row', {_ROW}) as {PLACE}"
        return TableRows(self.spark, rows, columns).frame().selectExpr(*map(quote_name, self.schema.names), place)

    @cached_property
    def _tables(self) -> Mapping[str, pa.Table] | None:
        """Return the rows of each file, read in this process; None if Spark has to read one of the files."""
        batch, *others = self.batches
        planned, reader = list_files(batch.span.parts), self.origin.make_reader(self._place)
        few = not others and sum(file.size for file in planned) <= SMALL
        schema = self.schema
        facts = {*self.origin.metadata}.intersection(schema.names)
        lines = T.StructType([column for column in schema if column.name not in facts])
        if not few or facts - {_FILE_NAME} or not self._is_here or not reader.parses_here(self._names, lines):
            return None
        found = self._place.read(planned)
        if found is None:
            return None
        _check_same(self._place, planned, {name: file for name, (file, _) in found.items()})
        tables = {}
        for name in self._names:
            table = reader.parse_here(self.spark, found[name][1], lines)
            if table is None:
                return None
            if facts:
                named = table.append_column(_FILE_NAME, pa.repeat(os.path.basename(name), table.num_rows))
                table = named.select(schema.names)
            tables[name] = table
        return tables or None

    @property
    def _is_here(self) -> bool:
        return self._place.is_read_here and (is_one_disk(self.spark) or not self._place.local)

    @cached_property
    def _place(self) -> FilePattern:
        planned = [file for batch in self.batches for file in list_files(batch.span.parts)]
        return replace(self.origin._parse_path(), sizes={file.name: file.size for file in planned})  # noqa: SLF001 -- the origin's rows

    @cached_property
    def _names(self) -> Sequence[str]:
        return [name for batch in self.batches for name in self.origin.parts(batch)]

    def _check(self) -> None:
        for batch in self.batches:
            self.origin.check(self.spark, batch)


def _check_names(metadata: Sequence[str], exclude: Sequence[str]) -> None:
    for name in metadata:
        if name not in METADATA:
            raise ValueError(f"metadata: expected {', '.join(METADATA)}, got {name!r}")
    for name in exclude:
        if not all(name.split("/")):
            raise ValueError(f"exclude: expected names of files, or patterns of names, got {name!r}")


def _get_bucket(url: str) -> str:
    return "/".join(canonicalise(url).split("/")[:3])


def _check_same(place: FilePattern, planned: Sequence[File], now: Mapping[str, File]) -> None:
    """Raise `OriginError` for the first file that no longer matches the plan."""
    for file in planned:
        found = now.get(file.name)
        if not place.is_same(found, file):
            what = "is gone" if found is None else f"has changed ({_describe_difference(file, found)})"
            raise OriginError(
                f"{place.join_path(file.name)} {what} since its batch was planned; no row of the batch was read.",
                hint=_RUN_AGAIN,
            )


def _describe_difference(then: File, now: File) -> str:
    """Return how a file differs from its earlier state: in its size, or else in its time of writing."""
    if then.size != now.size:
        return f"it had {then.size:,} bytes and now has {now.size:,}"
    return (
        f"it was written at {_format_time(then)}, and written again or copied at {_format_time(now)}; its size is the "
        "same"
    )


def _format_time(file: File) -> str:
    return datetime.fromtimestamp(file.modified / 1000, timezone.utc).isoformat(" ", "milliseconds")[:-6] + " UTC"
