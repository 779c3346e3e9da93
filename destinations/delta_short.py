"""The short way into a plain table on this machine, of few rows that Spark computes, and of those that were decided
and are read in this process: one file of rows, and one in the table's log.

A commit of Spark's costs a fifth of a second whatever its rows are, this one some milliseconds however many files the
table has. What lands is the same: a version of the table with the batch's tag, that fails when the table's metadata
changed since the write began, which is what a fence does.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import logging
import re
import threading
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from destinations.delta_adopted import Adoptable, bring, renamed, told_of, write
from destinations.delta_append import Head, append, is_kept_apart, open_to_readers
from destinations.table_lock import NoCommits, SparkCommits
from origins.batch import JSON
from origins.crash_points import reached

if TYPE_CHECKING:
    import pyarrow
    from pyspark.sql import DataFrame, SparkSession

log = logging.getLogger("wherry")

UNUSABLE = re.compile(r"[\x00-\x1f\x7f\[\]\\^|]|%[0-9A-Fa-f]{2}")
"""What may not stand in the name of a folder that `deltalake` works in."""

_PROPERTIES = frozenset({
    "delta.appendOnly", "delta.checkpointInterval", "delta.isolationLevel",
})  # fmt: skip
"""The properties of Delta's that change nothing of how rows are appended."""
_KEPT = frozenset({"delta.deletedFileRetentionDuration", "delta.logRetentionDuration"})
_DAYS_OR_MORE = re.compile(r"interval [1-9]\d* (day|week)s?")
"""How long a table may keep what is gone: at least a day, in words that `deltalake` understands as Delta does."""
_SIMPLE = frozenset({"boolean", "byte", "short", "integer", "long", "float", "double", "string", "binary"})
_DATED = frozenset({"date", "timestamp"})
_DAYS = (-719_162, 2_932_896)
"""From the year 1 to 9999, in days from 1970; beyond these, readers differ in how they write a year."""
_MICROSECONDS = (_DAYS[0] * 86_400_000_000, (_DAYS[1] + 1) * 86_400_000_000 - 1)
_INTERVAL = 10
"""How many versions there are from one checkpoint to the next where a table does not say."""
_TOO_LARGE = "spark.driver.maxResultSize"


@dataclass
class ShortWay:
    """One table, as its log was read last. Threads may share it."""

    folder: Path
    id: str
    commits: SparkCommits = field(default_factory=NoCommits)
    """What is kept out while a version is taken."""
    _known: Head | None = None
    _closed: bool = False
    """Whether it was found to be no plain table, or not worth it."""
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def begin(self, rows: DataFrame | pyarrow.RecordBatchReader) -> ShortWrite | None:
        """A write of such rows that begins now; None if they cannot go this way."""
        return self._begun(_described(rows), _kinds)

    def taking(self, found: Adoptable) -> ShortWrite | None:
        """A write that takes such files over, and begins now; None if they cannot go this way."""
        return self._begun(found.columns, _spelled)

    def _begun(
        self, rows: Mapping[str, JSON], known: Callable[[Mapping[str, JSON]], Mapping[str, JSON] | None]
    ) -> ShortWrite | None:
        """A write of rows with these columns, if they are those of the table as far as this says what is known of
        them."""
        columns = known(rows)
        with self._lock:
            head = self._refreshed()
            if head is None or columns is None or columns != known(json.loads(head.schema)):
                return None
            return ShortWrite(self, head)

    def is_open(self) -> bool:
        """Whether the table can go this way, as far as it is known now. The first look may take a while."""
        with self._lock:
            return self._refreshed() is not None

    def mark(self, properties: Mapping[str, str]) -> bool:
        """Set these properties, in a commit that leaves all else as it is; false if this is no plain table, or it could
        not be done."""
        from deltalake import DeltaTable, PostCommitHookProperties
        from deltalake.exceptions import DeltaError

        nothing_more = PostCommitHookProperties(create_checkpoint=False, cleanup_expired_logs=False)
        with self._lock:
            if self._refreshed() is None:
                return False
            try:
                with self.commits.held(self.folder):
                    table = DeltaTable(str(self.folder))
                    table.alter.set_table_properties(
                        dict(properties), raise_if_not_exists=False, post_commithook_properties=nothing_more
                    )
                open_to_readers(self.folder / "_delta_log" / f"{table.version():020}.json")
            except (DeltaError, OSError):
                return False
            return True

    def commit(self, began: Head, files: Sequence[Mapping[str, JSON]], tag: str, check: Callable[[], None]) -> None:
        """Add these files, which lie there, as `ShortWrite.commit` does."""

        def last() -> None:
            reached("in-write")
            check()

        with self._lock:
            self._known = append(self.folder, began, files, tag, last, lambda: self.commits.held(self.folder))
            if self._known.version % int(began.configuration.get("delta.checkpointInterval") or _INTERVAL) == 0:
                _checkpoint(self.folder)

    def _refreshed(self) -> Head | None:
        """The table as it is now, if it is plain still."""
        from deltalake.exceptions import DeltaError

        if self._closed or UNUSABLE.search(str(self.folder)):
            return None
        try:
            if self._known is None:
                self._closed = not is_kept_apart(self.folder)
                self._known = Head.of(self.folder)
            else:
                self._known = self._known.refreshed(self.folder)
        except (DeltaError, OSError):
            self._closed = True
        self._closed = self._closed or self._known is None or not _is_plain(self._known, self.id)
        return None if self._closed else self._known


@dataclass(frozen=True)
class ShortWrite:
    """One write. It fails if the table's metadata is not what it was when this began."""

    _way: ShortWay
    _began: Head

    def fetched(self, rows: DataFrame | pyarrow.RecordBatchReader) -> Pieces | None:
        """The rows as they will lie there; None if they cannot go this way after all."""
        import pyarrow as pa
        from deltalake import Schema

        if not isinstance(rows, pa.RecordBatchReader):
            found = in_arrow(rows)
            if found is None:
                return None
            rows = found.to_reader()
        try:
            return Pieces.of(rows, pa.schema(Schema.from_json(self._began.schema).to_arrow()))
        except NotInTime:
            return None

    def commit(self, rows: Pieces, tag: str, check: Callable[[], None] = lambda: None) -> None:
        """Append them in one commit that carries the tag. If it raises, it may have landed all the same; but nothing
        has if `check` raises, the last thing that is done before, or with `NotInTime`."""
        name = f"part-00000-{uuid.uuid4()}-c000.snappy.parquet"
        with self._unless_begun([name], check) as check_then:
            write(rows.pieces, rows.schema, self._began.schema, self._way.folder / name)
            told = told_of({name: self._way.folder / name}, json.loads(self._began.schema))
            self._way.commit(self._began, told, tag, check_then)

    def take(self, found: Adoptable, tag: str, check: Callable[[], None] = lambda: None) -> None:
        """The same with files, which lie in the table's folder too behind it, under other names."""
        files = renamed(found)
        with self._unless_begun(list(files), check) as check_then:
            bring(files, self._way.folder)
            told = told_of({name: self._way.folder / name for name in files}, json.loads(self._began.schema))
            self._way.commit(self._began, told, tag, check_then)

    @contextlib.contextmanager
    def _unless_begun(self, names: Sequence[str], check: Callable[[], None]) -> Iterator[Callable[[], None]]:
        """Take the files with these names away again, unless this check was passed, behind which they are needed."""
        passed = False

        def checked() -> None:
            nonlocal passed
            check()
            passed = True

        try:
            yield checked
        finally:
            if not passed:
                for name in names:
                    (self._way.folder / name).unlink(missing_ok=True)


class NotInTime(Exception):
    """There is a date or time in the rows that not every reader writes alike."""


@dataclass
class Pieces:
    """Rows as they will lie in a table, piece by piece; they are read once."""

    schema: pyarrow.Schema
    empty: bool
    """Whether there are none."""
    pieces: Iterator[pyarrow.Table]
    """To read them may raise `NotInTime`."""

    @staticmethod
    def of(rows: pyarrow.RecordBatchReader, schema: pyarrow.Schema) -> Pieces:
        """Rows with the columns of the schema in any order, however their names are written. Reads the first piece;
        raises `NotInTime` where that shows it."""
        import pyarrow as pa

        mine = {name.lower(): name for name in rows.schema.names}
        names = [mine[name.lower()] for name in schema.names]

        def fitted(piece: pyarrow.RecordBatch) -> pyarrow.Table:
            table = pa.Table.from_batches([piece]).select(names).rename_columns(schema.names).cast(schema)
            if not all(map(_is_in_time, table.columns)):
                raise NotInTime
            return table

        pieces = (fitted(piece) for piece in rows if piece.num_rows)
        first = next(pieces, None)
        return Pieces(schema, first is None, itertools.chain([] if first is None else [first], pieces))


def with_text(rows: pyarrow.RecordBatchReader, name: str, value: str) -> pyarrow.RecordBatchReader:
    """The rows with one more column, which has this text in each of them."""
    import pyarrow as pa

    schema = rows.schema.append(pa.field(name, pa.string()))

    def longer(piece: pyarrow.RecordBatch) -> pyarrow.RecordBatch:
        more = pa.array([value] * piece.num_rows, pa.string())
        return pa.RecordBatch.from_arrays([*piece.columns, more], schema=schema)

    return pa.RecordBatchReader.from_batches(schema, map(longer, rows))


def in_memory(rows: DataFrame) -> DataFrame:
    """The same rows, computed once and kept in this process, however often they are asked for; as they were given
    where their types want Spark's own way, or they are too many."""
    if _kinds(rows.schema.jsonValue()) is None:
        return rows
    found = in_arrow(rows)
    return rows if found is None else rows.sparkSession.createDataFrame(found, rows.schema)


def metadata_of(folder: Path) -> Mapping[str, JSON]:
    """A table's metadata as Delta keeps it; nothing where `deltalake` cannot read it."""
    from deltalake import DeltaTable
    from deltalake.exceptions import DeltaError

    if UNUSABLE.search(str(folder)):
        return {}
    try:
        table = DeltaTable(str(folder))
        found = table.metadata()
        return {"id": str(found.id), "configuration": found.configuration, "schemaString": table.schema().to_json()}
    except (DeltaError, OSError):
        return {}


def writes_plainly(spark: SparkSession) -> bool:
    """Whether the session says nothing of how files are written that this way does not do."""
    return all(_is_plain_setting(key, value) for key, value in spark.conf.getAll.items())


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
"""The settings of a session that say how files are written, with what is done here."""
_WRITING = ("spark.databricks.delta.", "parquet.")
"""How further ones begin; encryption is among them."""
_NOT_WRITING = (
    "spark.databricks.delta.snapshotPartitions",
    "spark.databricks.delta.lastCommitVersionInSession",
    "spark.databricks.delta.commitInfo.",
    "spark.databricks.delta.commitLock.",
    "spark.databricks.delta.properties.defaults.",
    "spark.databricks.delta.schema.autoMerge.enabled",
    "spark.databricks.delta.retentionDurationCheck.enabled",
    "spark.databricks.delta.vacuum.",
    "spark.databricks.delta.merge.",
    "spark.databricks.delta.optimize.",
)
"""Those that change nothing of an append into a table that is there."""


def _is_plain(head: Head, table_id: str) -> bool:
    """Whether it is the table with this id, and to append to it takes no more than to add files."""
    known = all(
        name in _PROPERTIES or not name.startswith("delta.") or (name in _KEPT and _DAYS_OR_MORE.fullmatch(value))
        for name, value in head.configuration.items()
    )
    said = [set(column["metadata"]) <= {"comment"} for column in json.loads(head.schema)["fields"]]
    demands = [word for word in ("nullable", "containsNull", "valueContainsNull") if f'"{word}":false' in head.schema]
    reader, writer = head.protocol
    plain = known and not head.partitions and reader == 1 and writer <= 2 and all(said) and not demands
    deep = '"delta.' not in head.schema
    return plain and deep and head.id == table_id and head.file is not None


def _checkpoint(folder: Path) -> None:
    """Sum up the log, and take away what is long past its time. Where that fails, whoever opens the table reads more of
    the log, until it is done again."""
    from deltalake import DeltaTable
    from deltalake.exceptions import DeltaError

    try:
        table = DeltaTable(str(folder))
        table.create_checkpoint()
        beside = folder / "_delta_log"
        for file in (beside / "_last_checkpoint", *beside.glob(f"{table.version():020}.checkpoint*")):
            open_to_readers(file)
        table.cleanup_metadata()
    except (DeltaError, OSError) as error:
        log.warning("no checkpoint could be written for %s: %s", folder, error)


def in_arrow(rows: DataFrame) -> Any:
    """The rows as a table of Arrow's; computes them. None where they are more than Spark was told may come back, or
    where pyspark cannot give them: a struct that is NULL, whose columns never are."""
    from pyarrow import ArrowInvalid

    try:
        return rows.toArrow()
    except ArrowInvalid:
        return None
    except Exception as error:
        if _TOO_LARGE in str(error):
            return None
        raise


def _described(rows: DataFrame | pyarrow.RecordBatchReader) -> Mapping[str, JSON]:
    """The columns of the rows as Delta describes them."""
    import pyarrow as pa
    from deltalake import Schema

    if isinstance(rows, pa.RecordBatchReader):
        found: Mapping[str, JSON] = json.loads(Schema.from_arrow(rows.schema).to_json())
        return found
    return rows.schema.jsonValue()


def _kinds(schema: Mapping[str, JSON]) -> Mapping[str, JSON] | None:
    """The types of the columns by their names in small letters; None if there is one that goes the long way."""
    fields: Sequence[Mapping[str, JSON]] = schema["fields"]
    kinds = {each["name"].lower(): _kind(each["type"], _SIMPLE | _DATED) for each in fields}
    return None if None in kinds.values() or len(kinds) < len(fields) else kinds


def _spelled(schema: Mapping[str, JSON]) -> Mapping[str, JSON] | None:
    """The same, by their names as they are written."""
    kinds = _kinds(schema)
    return None if kinds is None else {each["name"]: kinds[each["name"].lower()] for each in schema["fields"]}


def _kind(kind: JSON, known: frozenset[str] = _SIMPLE) -> JSON:
    """A type without what it says of NULL and beside it; None if it goes the long way."""
    if isinstance(kind, str):
        return kind if kind in known or kind.startswith("decimal") else None
    if kind["type"] == "struct":
        inner = [[each["name"], _kind(each["type"])] for each in kind["fields"]]
        return None if any(each is None for _, each in inner) else inner
    element = _kind(kind["elementType"]) if kind["type"] == "array" else None
    return None if element is None else {"array": element}


def _is_in_time(column: Any) -> bool:
    """Whether all its dates and times are ones that every reader writes alike."""
    import pyarrow as pa
    import pyarrow.compute as pc

    if not pa.types.is_date(column.type) and not pa.types.is_timestamp(column.type):
        return True
    days = pa.types.is_date(column.type)
    first, last = _DAYS if days else _MICROSECONDS
    found = pc.min_max(column.cast(pa.int32() if days else pa.int64())).as_py()
    return all(each is None or first <= each <= last for each in found.values())
