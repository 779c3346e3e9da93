"""Writes to a plain table without Spark's Delta, on this machine or in an object store.

A write makes one file of rows, and one version in the log. It is for few rows that Spark computes, and for rows that
were decided and are read in this process.

A commit through Spark takes a fifth of a second for any number of rows. This one takes some milliseconds for any number
of files in the table. The result is the same: a version of the table with the batch's tag. The commit fails if the
table's metadata changed since the write began, which is what a fence does.

A plain table is also created here. Its files are those of Spark's `CREATE TABLE`, with the checksum beside the version.
With the checksum, Delta opens the table without a job.
"""

from __future__ import annotations

import contextlib
import json
import logging
import math
import os
import re
import threading
import uuid
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, cast
from urllib.parse import unquote

from destinations.delta.data_files import (
    AdoptableFiles,
    ColumnName,
    FileStatistics,
    bring,
    describe_files,
    list_unnoted,
    make_counted_property,
    make_file_name,
    measure_file,
    name_for_table,
    write,
)
from destinations.delta.direct_commit import (
    FolderPlace,
    MetadataChanged,
    TablePlace,
    count_rows,
    create_in_folder,
    open_to_readers,
)
from destinations.delta.store_commit import create_in_store, is_empty_store
from destinations.delta.versions import LogHead
from destinations.destination import Written
from origins.batch import Json
from origins.crash_points import reach
from origins.delta_actions import FileBody, NestedBody, TypeBody
from origins.errors import clean_up_by, is_too_large, list_spark_errors
from origins.lazy import DataFrame, F, SparkSession, T, delta_errors, deltalake, pa, pc
from origins.names import quote_name
from origins.object_store import open_store
from origins.spark_private import list_context_settings
from origins.spark_settings import read_all
from origins.store_access import StoreError

log = logging.getLogger("wherry")

UNUSABLE = re.compile(r"[\x00-\x1f\x7f\[\]\\^|]|%[0-9A-Fa-f]{2}")
"""The characters that a folder's name may not have if `deltalake` is to work in it."""

_PROPERTIES = frozenset({
    "delta.appendOnly", "delta.checkpointInterval", "delta.isolationLevel",
})  # fmt: skip
"""The properties of Delta that do not change how rows are appended."""
_KEPT = frozenset({"delta.deletedFileRetentionDuration", "delta.logRetentionDuration"})
_DAYS_OR_MORE = re.compile(r"interval [1-9]\d* (day|week)s?")
"""How long a table may keep removed files: at least a day, in words that `deltalake` and Delta both understand."""
_SIMPLE = frozenset({"boolean", "byte", "short", "integer", "long", "float", "double", "string", "binary"})
_DATED = frozenset({"date", "timestamp"})
_DAYS = (-719_162, 2_932_896)
"""The first and last day from year 1 to 9999, in days from 1970. Readers write years outside this range differently."""
_MICROSECONDS = (_DAYS[0] * 86_400_000_000, (_DAYS[1] + 1) * 86_400_000_000 - 1)
_NEVER = 1_000_000_000
"""The checkpoint interval of a staging table, which exists only during a run: no checkpoint at all."""
_AT_ONCE = 16
"""How many footers are read at the same time."""
_INTERVAL = 10
"""The number of versions between two checkpoints, if the table does not set it."""


@dataclass
class DirectTable:
    """A table at the last look at its log. Threads may share it."""

    place: TablePlace
    id: str
    _known: LogHead | None = None
    _probed: bool = False
    """Whether Wherry has checked that the place separates two writers."""
    _is_newest_ours: bool = False
    """Whether this process commits here, and its last commit succeeded."""
    _closed: bool = False
    """Whether the table was found not to be a plain one, so that only Spark writes to it."""
    _stagings: dict[tuple[str, frozenset[ColumnName]], _Staging] = field(default_factory=dict)
    """The staging tables of the run, by their schema and the columns whose values Spark counts and compares in them."""
    _unnoted: set[ColumnName] = field(default_factory=set)
    """Further columns that Spark compares, because a file's footer left them out."""
    _kept: set[str] = field(default_factory=set)
    """The names of staged files that may be in the table."""
    _lock: threading.RLock = field(default_factory=threading.RLock)

    def begin(self) -> DirectWrite | None:
        """Return a write that begins now; None if only Spark can write to the table.

        The first call may take a while.
        """
        with self._lock:
            head = self._refresh_head()
            return None if head is None else DirectWrite(self, head)

    def mark(self, properties: Mapping[str, str]) -> bool:
        """Set these properties, in a commit that changes nothing else.

        Return false if this is not a plain table, or if the commit failed.
        """
        with self._lock:
            if self._refresh_head() is None:
                return False
            try:
                self.doubt_newest()
                self.place.mark(properties)
            except (delta_errors.DeltaError, OSError, MetadataChanged):
                return False
            return True

    def commit(self, began: LogHead, files: Sequence[FileBody], tag: str, check: Callable[[], None]) -> Written:
        """Add these files of the table's place, as `DirectWrite.commit` does."""
        with self._lock:
            self.doubt_newest()
            self._is_newest_ours = False
            self._known = head = self.place.append(began, files, tag, check)
            self._is_newest_ours = True
            if head.version % int(began.configuration.get("delta.checkpointInterval") or _INTERVAL) == 0:
                write_checkpoint(self.place)
        rows, size = count_rows(files), sum(file["size"] for file in files)
        return Written(rows=rows, bytes=size, version=head.version, mark=head.file)

    def stage(self, rows: DataFrame, schema: str) -> Sequence[FileBody]:
        """Have Spark write the rows, which have these columns, as files below the table's place.

        Spark compares only the columns that a file's footer leaves out. Comparing all four columns of a table takes a
        sixth of the write.
        """
        columns: NestedBody = json.loads(schema)
        with self._lock:
            counted = frozenset(list_unnoted(columns) | self._unnoted)
            staging = self._stagings.get((schema, counted))
            if staging is None:
                staging = _Staging(f"spark-{uuid.uuid4()}")
                properties = {"delta.checkpointInterval": str(_NEVER), **make_counted_property(counted)}
                self.place.make_staging(staging.folder, schema, properties)
                self._stagings[schema, counted] = staging
        token, seen = str(uuid.uuid4()), staging.version
        writer = rows.write.format("delta").mode("append").option("userMetadata", token)
        writer.save(f"{self.place.name}/{staging.folder}")
        version, files = self.place.read_staged(staging.folder, token, seen)

        def measure(file: FileBody) -> FileStatistics:
            return measure_file(self.place.open_staged(file), columns, file["stats"] or "{}")

        with ThreadPoolExecutor(_AT_ONCE) as pool:
            measured = list(pool.map(measure, files))
        with self._lock:
            staging.version = max(staging.version, version)
            self._unnoted.update(*(each.read for each in measured))
        return [{**file, "stats": each.text} for file, each in zip(files, measured, strict=True)]

    def doubt_newest(self) -> None:
        """Make the next write look at the log, because Spark may be about to change the table's metadata."""
        with self._lock:
            if self._known is not None:
                self._known = replace(self._known, seen=-math.inf)

    def close(self) -> None:
        """Remove what the table does not need. Write a checkpoint if the log is long."""
        with self._lock:
            for staging in self._stagings.values():
                self.place.clear_staging(staging.folder, self._kept)
            self._stagings.clear()
            if self._is_newest_ours and self._known is not None:
                with contextlib.suppress(StoreError, ValueError):  # without it, the next opening reads more of the log
                    if self.place.is_long(self._known.version):
                        write_checkpoint(self.place)

    def keep(self, names: Collection[str]) -> None:
        """Remember that these files may be in the table."""
        if self._stagings:
            self._kept.update(names)

    def _refresh_head(self) -> LogHead | None:
        if self._closed or UNUSABLE.search(self.place.name):
            return None
        try:
            if not self._probed:
                self._closed = not self.place.is_kept_apart()
            self._known = self.place.versions.find_head(self._known)
            self._probed = True
        except StoreError as error:
            if self._probed or error.is_away:
                raise  # the store fails now; Spark would write there without the condition
            self._closed = True
        except (delta_errors.DeltaError, OSError):
            self._closed = True
        self._closed = self._closed or self._known is None or not _is_plain(self._known, self.id)
        return None if self._closed else self._known


@dataclass
class _Staging:
    """The folder in which Spark writes files for a table. It is a Delta table that no other run knows."""

    folder: str
    version: int = 0
    """The last version that was read. Later versions may have files that were not read yet."""


@dataclass(frozen=True)
class DirectWrite:
    """A write that began at a version. It fails if the table's metadata has changed since."""

    _way: DirectTable
    _began: LogHead

    def can_take(self, columns: NestedBody, *, spelled: bool = False) -> bool:
        """Whether rows with these columns, as Delta describes them, can be written this way.

        With `spelled`, the names must equal the table's names exactly.
        """
        mine, its = (_list_types(schema, spelled=spelled) for schema in (columns, json.loads(self._began.schema)))
        return mine is not None and mine == its

    def fit_rows(self, rows: pa.Table) -> pa.Table | None:
        """Return the rows with the table's columns. The given columns may have another order and another case.

        It is None if a row has a date or time that not every reader writes in the same way.
        """
        schema = pa.schema(deltalake.Schema.from_json(self._began.schema).to_arrow())
        mine = {name.lower(): name for name in rows.column_names}
        table = rows.select([mine[name.lower()] for name in schema.names]).rename_columns(schema.names).cast(schema)
        return table if all(map(_is_in_time, table.columns)) else None

    def commit(self, rows: pa.Table, tag: str, check: Callable[[], None] = lambda: None) -> Written:
        """Append the rows in one commit with the tag.

        If it raises, the commit may have succeeded nevertheless. If `check` raises, which is the last step before the
        commit, nothing was committed.
        """
        name = make_file_name()

        def make(folder: Path) -> None:
            write([rows], rows.schema, self._began.schema, folder / name)

        return self._commit_files([name], make, tag, check)

    def take(self, found: AdoptableFiles, tag: str, check: Callable[[], None] = lambda: None) -> Written:
        """Append the rows of files, as `commit` does. The table's folder then has the files under other names."""
        files = name_for_table(found)
        return self._commit_files(list(files), lambda folder: bring(files, folder), tag, check)

    def write_by_spark(self, rows: DataFrame) -> Sequence[FileBody]:
        """Have Spark write the rows as files below the table's place. The table does not have these files yet."""
        names = {name.lower(): name for name in rows.columns}
        columns = [field["name"] for field in json.loads(self._began.schema)["fields"]]
        fitted = rows.select(*[F.col(quote_name(names[name.lower()])).alias(name) for name in columns])
        return self._way.stage(fitted, self._began.schema)

    def commit_staged(self, files: Sequence[FileBody], tag: str, check: Callable[[], None] = lambda: None) -> Written:
        """Append these files, as `commit` does."""
        adopted = self._way.place.adopt_staged(files)
        with self._discard_unless_checked([unquote(file["path"]) for file in adopted], check) as checked:
            return self._way.commit(self._began, adopted, tag, checked)

    def _commit_files(
        self, names: Sequence[str], make: Callable[[Path], None], tag: str, check: Callable[[], None]
    ) -> Written:
        """Commit the files with these names. `make` creates them in a folder."""
        with self._discard_unless_checked(names, check) as checked:
            with self._way.place.stage(names) as folder:
                make(folder)
                described = describe_files({name: folder / name for name in names}, json.loads(self._began.schema))
            return self._way.commit(self._began, described, tag, checked)

    @contextlib.contextmanager
    def _discard_unless_checked(self, names: Sequence[str], check: Callable[[], None]) -> Iterator[Callable[[], None]]:
        """Remove these files at the end, unless the check that this gives has passed. Then the table may need them."""
        passed = False

        def check_and_note() -> None:
            nonlocal passed
            reach("in-write")
            check()
            passed = True
            self._way.keep(names)

        with clean_up_by(lambda: None if passed else self._way.place.discard(names)):
            yield check_and_note


def writes_plainly(spark: SparkSession) -> bool:
    """Whether no setting of the session changes how files are written in a way that Wherry does not follow."""
    settings = read_all(spark)
    return settings is not None and all(_is_plain_setting(key, value) for key, value in settings.items())


def are_stores_plain(settings: Iterable[str]) -> bool:
    """Whether this process may write to a store beside a Spark that has these settings.

    It may not if a setting makes Spark encrypt its files there, or use a log store that this process does not know. The
    settings of this process's Spark and of Hadoop's files count too.
    """
    return not any(_OF_STORES.search(key) for key in {*list_context_settings(), *settings})


_OF_STORES = re.compile(
    r"^spark\.delta\.logStore\.(class|s3|s3a|abfs|abfss|gs)\b"
    r"|fs\.s3a\.(bucket\..*\.)?(encryption|server-side-encryption|acl|create\.header|create\.storage)\b"
    r"|fs\.(azure|gs)\..*(encryption|client-provided)"
)


def _is_plain_setting(key: str, value: str) -> bool:
    key = key.removeprefix("spark.hadoop.")
    if key in _WRITTEN:
        return value.lower() in _WRITTEN[key]
    return not key.startswith(_WRITING) or key.startswith(_NOT_WRITING)


_WRITTEN = {
    "spark.sql.parquet.compression.codec": ("snappy",),
    "spark.sql.parquet.writeLegacyFormat": ("false",),
    "spark.sql.parquet.outputTimestampType": ("timestamp_micros",),
    "spark.sql.parquet.datetimeRebaseModeInWrite": ("exception", "corrected"),
    "spark.sql.files.maxRecordsPerFile": ("0",),
    "spark.databricks.delta.autoCompact.enabled": ("false",),
    "spark.databricks.delta.optimizeWrite.enabled": ("false",),
    "fs.permissions.umask-mode": ("022", "0022"),
}
"""The settings for how files are written, with the values that Wherry follows."""
_WRITING = ("spark.databricks.delta.", "parquet.")
"""The prefixes of other settings for how files are written. Encryption is one of them."""
_NOT_WRITING = (
    "spark.databricks.delta.snapshotPartitions",
    "spark.databricks.delta.lastCommitVersionInSession",
    "spark.databricks.delta.commitInfo.userMetadata",
    "spark.databricks.delta.commitLock.",
    "spark.databricks.delta.properties.defaults.",
    "spark.databricks.delta.schema.autoMerge.enabled",
    "spark.databricks.delta.retentionDurationCheck.enabled",
    "spark.databricks.delta.vacuum.",
    "spark.databricks.delta.merge.",
    "spark.databricks.delta.optimize.",
)
"""The settings with these prefixes that do not affect an append to an existing table."""


def _is_plain(head: LogHead, table_id: str) -> bool:
    """Whether it is the table with this id, and an append only has to add files."""
    known = all(
        name in _PROPERTIES or not name.startswith("delta.") or (name in _KEPT and _DAYS_OR_MORE.fullmatch(value))
        for name, value in head.configuration.items()
    )
    plain_columns = [set(column["metadata"]) <= {"comment"} for column in json.loads(head.schema)["fields"]]
    demands = [word for word in ("nullable", "containsNull", "valueContainsNull") if f'"{word}":false' in head.schema]
    reader, writer = head.protocol
    plain = known and not head.partitions and reader == 1 and writer <= 2 and all(plain_columns) and not demands
    deep = '"delta.' not in head.schema
    return plain and deep and head.id == table_id and head.file is not None


def write_checkpoint(place: TablePlace) -> None:
    """Write a checkpoint of the log, and delete expired files.

    If that fails, readers of the table read more of the log until it succeeds.
    """
    try:
        table = place.versions.open()
        table.create_checkpoint()
        if isinstance(place, FolderPlace):
            beside = place.folder / "_delta_log"
            for file in (beside / "_last_checkpoint", *beside.glob(f"{table.version():020}.checkpoint*")):
                open_to_readers(file)
        table.cleanup_metadata()
    except (delta_errors.DeltaError, OSError, StoreError) as error:
        log.warning("no checkpoint could be written for %s: %s", place.name, error)


def collect_arrow(rows: DataFrame) -> Any:
    """Compute the rows as an Arrow table.

    It is None if there are more rows than Spark may return. It is also None for rows that pyspark cannot return: a NULL
    struct whose columns are never NULL.
    """
    try:
        return rows.toArrow()
    except pa.ArrowInvalid:
        return None
    except list_spark_errors() as error:
        if is_too_large(error):
            return None
        raise


def _list_types(schema: NestedBody, *, spelled: bool) -> Mapping[str, Json] | None:
    """Return the columns' types by their names, which are in lower case unless `spelled`.

    It is None if a column has a type that only Spark can write, or two columns have the same name.
    """
    kinds = {field["name"]: _strip_type(field["type"], _SIMPLE | _DATED) for field in schema["fields"]}
    small = {name.lower(): kind for name, kind in kinds.items()}
    return None if None in kinds.values() or len(small) < len(schema["fields"]) else kinds if spelled else small


def _strip_type(kind: TypeBody, known: frozenset[str] = _SIMPLE) -> Json:
    """Return a type without nullability and metadata; None if only Spark can write it."""
    if isinstance(kind, str):
        return kind if kind in known or kind.startswith("decimal") else None
    if kind["type"] == "struct":
        inner: list[list[Json]] = [[each["name"], _strip_type(each["type"])] for each in kind["fields"]]
        return None if any(each is None for _, each in inner) else inner
    element = _strip_type(kind["elementType"]) if kind["type"] == "array" else None
    return None if element is None else {"array": element}


def _is_in_time(column: Any) -> bool:
    """Whether every reader writes all its dates and times in the same way."""
    if not pa.types.is_date(column.type) and not pa.types.is_timestamp(column.type):
        return True
    days = pa.types.is_date(column.type)
    first, last = _DAYS if days else _MICROSECONDS
    bounds = pc.min_max(column.cast(pa.int32() if days else pa.int64())).as_py()
    return all(bound is None or first <= bound <= last for bound in bounds.values())


_KNOWN = frozenset({("delta.checkpointInterval", "100"), ("delta.isolationLevel", "Serializable")})
"""The properties with which Delta still creates a table of the oldest protocol."""
_SETTINGS = "spark.databricks.delta."
_HARMLESS = frozenset({"spark.databricks.delta.snapshotPartitions"})
"""The settings of Delta that do not affect the tables that a session creates."""


def make_here(spark: SparkSession, place: Path | str, schema: T.StructType, properties: Mapping[str, str]) -> bool:
    """Create a table with only these columns and properties, in an empty folder or below an unused URL of a store.

    Return false if the table would not be plain, or if it could not be created. Spark then tries, and reports why.
    """
    columns = _find_plain_type(schema)
    if columns is None or not _KNOWN.issuperset(properties.items()) or UNUSABLE.search(str(place)):
        return False
    settings = read_all(spark)
    if settings is None or any(key.startswith(_SETTINGS) and key not in _HARMLESS for key in settings):
        return False
    with contextlib.suppress(delta_errors.DeltaError, OSError, StoreError):
        if isinstance(place, Path) and _is_empty(place):
            create_in_folder(place, json.dumps(columns), properties)
            return True
        if isinstance(place, str) and are_stores_plain(settings) and is_empty_store(place):
            open_store(place).check_put_if_new()
            create_in_store(place, json.dumps(columns), properties)
            return True
    return False


def _is_empty(folder: Path) -> bool:
    try:
        return not os.listdir(folder)
    except FileNotFoundError:
        return True
    except OSError:
        return False


def _find_plain_type(kind: T.DataType) -> Json:
    """Return the type as Delta stores it, in which everything may be NULL. None unless every table may have it."""
    if isinstance(kind, T.StructType):
        fields = [(field.name, _find_plain_type(field.dataType)) for field in kind]
        if not all(name.isidentifier() and known is not None for name, known in fields):
            return None
        return {
            "type": "struct",
            "fields": [{"name": name, "type": known, "nullable": True, "metadata": {}} for name, known in fields],
        }
    if isinstance(kind, T.ArrayType):
        element = _find_plain_type(kind.elementType)
        return element and {"type": "array", "elementType": element, "containsNull": True}
    return kind.jsonValue() if _strip_type(cast(TypeBody, kind.jsonValue()), _SIMPLE | _DATED) else None
