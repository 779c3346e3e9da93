"""The ledger as a Delta table in a folder or an object store, through `deltalake` and without Spark.

A commit takes a few milliseconds on a disk, and some requests at a store.
"""

from __future__ import annotations

import contextlib
import errno
import io
import json
import math
import os
import re
import time
from abc import ABC, abstractmethod
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from arro3.core import Array, DataType, RecordBatchReader, Table
from deltalake import CommitProperties, DeltaTable, PostCommitHookProperties, QueryBuilder, Schema, write_deltalake
from deltalake.exceptions import DeltaError, TableNotFoundError

from destinations.delta.data_files import make_file_name
from destinations.delta.direct_append import UNUSABLE, write_checkpoint
from destinations.delta.direct_commit import FolderPlace, TablePlace, format_commit
from destinations.delta.store_commit import StorePlace
from destinations.delta.versions import format_key, read_clock
from origins.batch_rows import to_python_rows
from origins.delta_actions import FileBody
from origins.lazy import pa, pq
from origins.object_store import describe_store_error, is_store_away, open_store
from origins.store_access import StoreError, StoreUrl, get_options
from runners.model.entry import Entry, Settled
from runners.state.ledger import (
    BESIDE,
    BODIES,
    ENTRIES,
    KEPT_DAYS,
    MOST,
    SETTLED,
    Columns,
    LedgerError,
    LedgerTable,
    Row,
    TableLedger,
    join_bodies,
    split_bodies,
    to_entries,
    to_row,
)
from runners.state.salvage import LostFile, salvage_rows

if TYPE_CHECKING:
    from arro3.core.types import ArrowStreamExportable


class DeltaLedger(TableLedger["LocalTable"]):
    """A ledger with its entries in a Delta table at `path`.

    Beside it are two tables: `<path>_history` and `<path>_bodies`.

    Any number of processes and threads may read and append. It is meant for a disk of this host, or for an object
    store.
    """

    def __init__(self, path: str | Path) -> None:
        place = path if isinstance(path, StoreUrl) else Path(path).absolute()
        history, bodies = (name_beside(place, f"_{kind}") for kind in ("history", "bodies"))
        super().__init__(LocalTable(place, ENTRIES), LocalTable(history, SETTLED), LocalTable(bodies, BODIES))
        self._seen: tuple[int | None, int] = (None, 0)
        """A version of the entries' table, and the last number in it."""
        self._replaced: frozenset[str] = frozenset()
        """The files that the last snapshot replaced."""

    def _is_fresh(self, after: int) -> bool:
        return self._seen == (self._entries.version, after)

    def _read_behind(self, after: int) -> tuple[list[Entry], int]:
        later, last = super()._read_behind(after)
        self._seen = (self._entries.version, last)
        return later, last

    def _commit(self, rows: Sequence[Row], after: int, *, replaces: bool) -> None:
        self._replaced = self._entries.list_files() if replaces else self._replaced
        self._entries.commit(rows, "overwrite" if replaces else "append")
        self._seen = (self._entries.version, rows[-1]["seq"])

    def _commit_bodies(self, rows: Sequence[Row]) -> None:
        self._bodies.refresh()
        self._bodies.commit(rows)

    def _tidy(self, first: int) -> None:
        with contextlib.suppress(Exception):  # an error only costs space
            self._bodies.refresh()
            bodies = self._bodies.list_files()
            super()._tidy(first)
            self._entries.delete_dead(self._replaced)
            self._bodies.delete_dead(bodies)

    def salvage(self) -> tuple[list[Entry], list[LostFile]]:
        """Return the entries that can be read whole, in order, and the files that are missing or broken."""
        for table in (self._entries, self._bodies):
            table.refresh()
        (rows, lost), (bodies, lost_bodies) = self._entries.salvage(), self._bodies.salvage()
        there = {(row["seq"], row["id"]) for row in bodies}
        whole = [row for row in rows if row["body"] != BESIDE or (row["seq"], row["id"]) in there]
        return to_entries(self.place, join_bodies(self.place, whole, lambda *_: bodies)), [*lost, *lost_bodies]

    def rewrite(self, entries: Sequence[Entry]) -> None:
        """Replace all entries by these, if no other process has written since `salvage`."""
        rows, bodies = split_bodies([to_row(entry) for entry in entries])
        if bodies or self._bodies.version is not None:
            self._bodies.commit(bodies, "overwrite")
        self._entries.commit(rows, "overwrite")

    def _remember(self, settled: Sequence[Settled]) -> None:
        self._settled.refresh()
        numbers = [batch.number for batch in settled]
        near = self._settled.rows(min(numbers), max(numbers))
        known = {row["plan"] for row in near}
        new = {batch.plan: to_row(batch) for batch in settled if batch.plan not in known}
        if new:
            self._settled.commit(list(new.values()))


CHECKPOINT_EVERY = 50
"""How many commits come between two checkpoints. A commit reads the log since the last checkpoint.

Writing a checkpoint costs as much as about ten commits.
"""
PROPERTIES = {
    "delta.checkpointInterval": str(CHECKPOINT_EVERY),
    "delta.dataSkippingNumIndexedCols": "1",
    "delta.deletedFileRetentionDuration": f"interval {KEPT_DAYS} days",
    "delta.logRetentionDuration": "interval 5 seconds",
}
"""The properties of a state's tables on a disk.

The log is kept short, because every commit lists it. It is kept for some seconds, because other processes may be
reading it.
"""
_KEPT_LOG = "interval 7 days"
"""How long the log is kept in an object store. A commit there lists only the part after the last checkpoint."""
KEPT_SECONDS = 3_600.0
"""How old a file of entries must be before it is deleted. It has then not been part of the table since the snapshot
before the last one.
"""
STORE_CHECKPOINT_EVERY = 20
"""How many commits come between two checkpoints in an object store.

Each commit since the last checkpoint costs two requests when the table is opened.
"""
_NEEDED_SPACE = 64 << 10
"""How many bytes must be free on a disk before a commit."""
_READERS = 8
"""How many files of a store are read at the same time."""
_READING = (DeltaError, OSError, StoreError)
_ROWS = {"seq": "entries", "number": "the batches"}
"""The rows of a ledger's table in words, by its first column."""
BACKUP = "Put it back from a backup. The run processed nothing, since the history lists delivered batches."
REPAIR = (
    "Put it back from a backup. Without a backup, keep what is certain:  "
    'wherry repair FILE --reason "…"\nWherry changed nothing, and processes nothing without the ledger.'
)
"""What to do about lost entries."""


def name_beside(place: Path | StoreUrl, ending: str) -> Path | StoreUrl:
    """Return the place beside this one whose name has this ending."""
    return place.with_ending(ending) if isinstance(place, StoreUrl) else place.with_name(place.name + ending)


class TableHome(ABC):
    """The place of a table, with the operations that `deltalake` does not offer."""

    place: TablePlace
    """Its files."""
    properties: Mapping[str, str] = PROPERTIES
    """The properties of a table that is created in this place."""
    kept_an_hour: Sequence[str] = ("delta.deletedFileRetentionDuration",)
    """The properties that are an hour for the tables of a ledger, because these get many files."""
    sure: float = 0.0
    """How many seconds after reading the newest version a commit needs no check for a log that was cleaned up."""

    @abstractmethod
    def may_be_there(self) -> bool:
        """Whether a table may exist. Raise `OSError` if this user may not find out."""

    @abstractmethod
    def check(self) -> None:
        """Check that a name that is taken cannot be taken again. Only this keeps two writers apart."""

    def check_space(self) -> None:
        """Raise `OSError` if the place is full. `deltalake` would print lines of its own about that."""

    @abstractmethod
    def read_rows(self, table: DeltaTable, column: str, first: int, last: int) -> Iterator[Row]:
        """Yield the rows of the table whose value of the column is from `first` to `last`."""

    @abstractmethod
    def list_data(self) -> Iterable[tuple[str, float]]:
        """Return the files with rows, each with the time in seconds at which it was written, by the place's clock."""

    @abstractmethod
    def delete(self, names: Sequence[str]) -> None:
        """Delete files of the table. A missing file is no error."""

    def append(self, rows: Table, column: str, version: int) -> bool | None:
        """Add the rows as this version of the table. Return whether no other writer has taken the version.

        The lowest and the highest value of `column` become statistics. None means that `deltalake` must write the rows.
        """
        return None

    def sum_up(self, version: int) -> None:
        """Write a checkpoint after a version that was appended, if one is due."""

    @abstractmethod
    def explain(self, error: Exception, *, reading: bool) -> tuple[str, str]:
        """Return why the place failed, and what to do about it."""

    def is_away(self, error: Exception) -> bool:
        """Whether the place did not answer. Such an error passes by itself."""
        return False


class DiskHome(TableHome):
    """A folder of this machine."""

    def __init__(self, path: Path) -> None:
        self.path, self.place = path, FolderPlace(path)
        unusable = UNUSABLE.search(str(path))
        if unusable:
            raise LedgerError(
                f"{path} cannot hold a ledger: Delta tables do not work below a name with {unusable[0]!r} in it.",
                hint="Set `state` to another directory.",
            )

    def may_be_there(self) -> bool:
        try:
            os.scandir(self.path / "_delta_log").close()
        except (FileNotFoundError, NotADirectoryError):
            return False
        return bool(DeltaTable.is_deltatable(str(self.path)))

    def check(self) -> None:
        if not FolderPlace.keeps_names_apart(self.path):
            raise OSError(
                "its file system lets a new file replace another one, so Wherry cannot keep two writers apart"
            )

    def check_space(self) -> None:
        folder = next(each for each in (self.path, *self.path.parents) if each.exists())
        disk = os.statvfs(folder)
        free = disk.f_bfree if os.geteuid() == 0 else disk.f_bavail  # the rest is kept for root
        if disk.f_blocks and free * disk.f_frsize < _NEEDED_SPACE:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(folder))

    def read_rows(self, table: DeltaTable, column: str, first: int, last: int) -> Iterator[Row]:
        return _scan_rows(table.scan(predicate=f"{column} >= {first} and {column} <= {last}"))

    def list_data(self) -> Iterable[tuple[str, float]]:
        with os.scandir(self.path) as found:
            return [(each.name, each.stat().st_mtime) for each in found if each.name.endswith(".parquet")]

    def delete(self, names: Sequence[str]) -> None:
        for name in names:
            (self.path / name).unlink(missing_ok=True)

    def explain(self, error: Exception, *, reading: bool) -> tuple[str, str]:
        if reading:
            return _describe_reason(error), (
                "Wherry changed nothing. Give this user the right to read it, or put missing and broken files back "
                "from a backup."
            )
        return _describe_reason(error), (
            "Its folder needs to be writable, with free space. The ledger is whole, and a later run continues."
        )


class StoreHome(TableHome):
    """A folder of an object store."""

    properties: Mapping[str, str] = {
        **PROPERTIES,
        "delta.checkpointInterval": str(STORE_CHECKPOINT_EVERY),
        "delta.logRetentionDuration": _KEPT_LOG,
    }
    kept_an_hour = ("delta.deletedFileRetentionDuration", "delta.logRetentionDuration")
    sure = 3.0  # a log that was copied from a folder is kept only for five seconds

    def __init__(self, url: StoreUrl) -> None:
        self.url, self.place = url, StorePlace(url)

    def may_be_there(self) -> bool:
        return True

    def check(self) -> None:
        open_store(self.url).check_put_if_new()

    def read_rows(self, table: DeltaTable, column: str, first: int, last: int) -> Iterator[Row]:
        """Yield the rows with one request for each file that may have some, several at a time.

        The files are small, and `deltalake` makes four requests for each.
        """
        files = [
            path
            for batch in RecordBatchReader.from_stream(table.get_add_actions(flatten=True))
            for path, least, highest in zip(
                *(batch.column(name).to_pylist() for name in ("path", f"min.{column}", f"max.{column}")), strict=True
            )
            if (highest is None or highest >= first) and (least is None or least <= last)
        ]
        with ThreadPoolExecutor(_READERS) as pool:
            for content in pool.map(open_store(self.url).read, files):
                for batch in pq.ParquetFile(pa.BufferReader(content)).iter_batches():
                    yield from (row for row in batch.to_pylist() if first <= row[column] <= last)

    def list_data(self) -> Iterable[tuple[str, float]]:
        found = open_store(self.url).list_folder()[1]
        return [(each.key, each.modified / 1_000) for each in found if each.key.endswith(".parquet")]

    def delete(self, names: Sequence[str]) -> None:
        open_store(self.url).delete(names)

    def append(self, rows: Table, column: str, version: int) -> bool:
        """Add the rows with two requests, of which the second is conditional. `deltalake` makes seven."""
        store, name, content = open_store(self.url), make_file_name(), io.BytesIO()
        pq.write_table(pa.table(rows), content)
        store.put_new(name, content.getvalue())
        numbers = rows.column(column).to_pylist()
        stats = {"minValues": {column: min(numbers)}, "maxValues": {column: max(numbers)}, "nullCount": {column: 0}}
        added = FileBody(
            path=name,
            partitionValues={},
            size=content.tell(),
            modificationTime=int(time.time() * 1000),
            dataChange=True,
            stats=json.dumps({"numRecords": len(numbers), **stats}),
        )
        return store.take(format_key(version), format_commit([added], "", version - 1).encode()) is not None

    def sum_up(self, version: int) -> None:
        if version % STORE_CHECKPOINT_EVERY == 0:
            write_checkpoint(self.place)

    def explain(self, error: Exception, *, reading: bool) -> tuple[str, str]:
        if isinstance(error, StoreError):
            return error.message, error.hint
        reason, hint = describe_store_error(error, self.url)
        whole = "Wherry changed nothing" if reading else "The ledger is whole, and a later run continues"
        return reason, f"{hint} {whole}."

    def is_away(self, error: Exception) -> bool:
        return error.is_away if isinstance(error, StoreError) else is_store_away(error)


def _scan_rows(found: ArrowStreamExportable) -> Iterator[Row]:
    """Yield the rows of a scan, without pyarrow, whose import takes 0.1 s."""
    for batch in RecordBatchReader.from_stream(found):
        columns = [column.to_pylist() for column in batch.columns]
        yield from (dict(zip(batch.column_names, row, strict=True)) for row in zip(*columns, strict=True))


def find_home(path: Path | StoreUrl) -> TableHome:
    """Return the home of a table at this place."""
    return StoreHome(path) if isinstance(path, StoreUrl) else DiskHome(path)


class LocalTable(LedgerTable):
    """A Delta table that is opened when it is needed, and then kept open.

    After an error it is opened again, with the store's access settings of that time. Only one thread may use it at a
    time.
    """

    def __init__(self, path: Path | StoreUrl, columns: Columns, what: str = "ledger") -> None:
        self.home = find_home(path)
        self.path = path
        self.place = str(path)
        self.name = self.place.rpartition("/")[2]
        self.columns = columns
        self.what = what
        fields = [{"name": name, "type": kind, "nullable": True, "metadata": {}} for name, kind in columns.items()]
        self._schema = Schema.from_json(json.dumps({"type": "struct", "fields": fields}))
        self._table: DeltaTable | None = None
        self._appended = -1
        """The newest version that this process appended directly. The opened table may not have it yet."""
        self._looked = -math.inf
        """When the newest version was last known."""
        self._probed = False

    @property
    def version(self) -> int | None:
        """The version that was read or appended last, or None if the table does not exist."""
        return None if self._table is None else max(self._table.version(), self._appended)

    @property
    def opened(self) -> DeltaTable:
        """The table, which exists, as it was read last."""
        assert self._table is not None
        return self._table

    def refresh(self) -> None:
        for left in (2, 1, 0):
            now = read_clock()
            try:
                if self._table is None:
                    self._table = self._open_table()
                else:
                    self._table.update_incremental()
                self._looked = now
                return
            except _READING as error:
                self._table, self._appended = None, -1
                # Before the last try, the cause may be a log file that was removed while it was read.
                if not left or self.home.is_away(error):
                    raise self._make_unreadable_error(error) from error

    def rows(self, first: int = 0, last: int = MOST) -> Iterable[Row]:
        if self._table is None:
            return ()
        return self._explain_errors(self.home.read_rows(self._table, next(iter(self.columns)), first, last))

    def salvage(self) -> tuple[list[Row], list[LostFile]]:
        """Return the rows that can be read, and the files that are missing or broken."""
        if self._table is None:
            return [], []
        return salvage_rows(self._table, self.home.place.versions, next(iter(self.columns)))

    def find_highest(self, column: str) -> int:
        """Return the highest value of the table's first column, from the files' statistics, or 0 without files."""
        if self._table is None:
            return 0
        files = RecordBatchReader.from_stream(self._table.get_add_actions(flatten=True))
        return max((value for batch in files for value in batch.column(f"max.{column}").to_pylist()), default=0)

    def commit(self, rows: Sequence[Row], mode: Literal["append", "overwrite"] = "append") -> None:
        """Add the rows, or replace all rows by them, if the version that was read is still the newest.

        Create the table if it is missing. Raise `LedgerError` unless the commit surely landed. The caller must then
        look.
        """
        try:
            self.home.check_space()
            self._table = self._table or self._create_table("interval 1 hours")
            if not self._probed:
                self.home.check()
                self._probed = True
            version = max(self._table.version(), self._appended) + 1
            made = self._make_table(rows)
            landed = self.home.append(made, next(iter(self.columns)), version) if mode == "append" else None
            if landed:
                self._appended = version
            elif landed is None:
                landed = self._write(self._table, made, mode, version)
            if landed and (now := read_clock()) - self._looked >= self.home.sure:
                landed, self._looked = not self._has_checkpoint_above(version), now
            if landed:
                self.home.sum_up(version)
        except Exception as error:  # after any error, the commit may have landed
            raise self._make_unwritable_error(error) from error
        if not landed:
            self._table, self._appended = None, -1
            raise LedgerError(f"Another process wrote the {self.what} at {self.path} at the same time.")

    def add(self, rows: Sequence[Row]) -> None:
        try:
            self.home.check_space()
            self._table = self._open_or_create_table()
            write_deltalake(
                self._table,
                self._make_table(rows),
                mode="append",
                post_commithook_properties=PostCommitHookProperties(create_checkpoint=True, cleanup_expired_logs=True),
            )
        except Exception as error:  # the library has many types of errors
            raise self._make_unwritable_error(error) from error

    def exists(self) -> bool:
        self.refresh()
        return self._table is not None

    def select(self, query: str, *beside: LedgerTable) -> list[Row]:
        return list(self._explain_errors(self._run_query(query, (self, *beside))))

    def _run_query(self, query: str, tables: Sequence[LedgerTable]) -> Iterator[Row]:
        known = QueryBuilder()
        for table in tables:
            assert isinstance(table, LocalTable)
            known = known.register(table.name, table.opened)
        # pyarrow lets other threads run while it reads
        yield from to_python_rows(pa.RecordBatchReader.from_stream(known.execute(query)).read_all())

    def _write(self, table: DeltaTable, rows: Table, mode: Literal["append", "overwrite"], version: int) -> bool:
        write_deltalake(
            table,
            rows,
            mode=mode,
            commit_properties=_ONCE,
            post_commithook_properties=PostCommitHookProperties(
                create_checkpoint=True, cleanup_expired_logs=version % CHECKPOINT_EVERY == 0
            ),
        )
        return table.version() == version

    def remove(self, condition: str) -> None:
        self.refresh()
        if self._table is not None:
            self._table.delete(condition)

    def count_files(self) -> int:
        self.refresh()
        return 0 if self._table is None else len(self._table.file_uris())

    def optimize(self) -> None:
        if self._table is not None:
            self._table.optimize.compact()

    def vacuum(self) -> None:
        if self._table is not None:
            self._table.vacuum(retention_hours=24 * KEPT_DAYS, dry_run=False, full=True)

    def list_files(self) -> frozenset[str]:
        """Return the files of the version that was read last."""
        if self._table is None:
            return frozenset()
        files = RecordBatchReader.from_stream(self._table.get_add_actions(flatten=True))
        return frozenset(name for batch in files for name in batch.column("path").to_pylist())

    def delete_dead(self, lately: Collection[str]) -> None:
        """Delete old files that are not in the table, except files that left it lately.

        Files are compared by one clock, that of their place. A file that another process is about to add is young.
        """
        if self._table is None:
            return
        kept, found = self.list_files() | frozenset(lately), dict(self.home.list_data())
        newest = max(found.values(), default=0.0)
        self.home.delete([name for name, at in found.items() if name not in kept and newest - at > KEPT_SECONDS])

    def _make_table(self, rows: Sequence[Row]) -> Table:
        """Return the rows as a table, without pyarrow.

        Its arrays import pandas, which takes longer than everything else.
        """
        schema = self._schema.to_arrow()
        return Table.from_arrays(
            [_make_column([row[name] for row in rows], schema.field(name).type) for name in self.columns], schema=schema
        )

    def _explain_errors(self, rows: Iterable[Row]) -> Iterator[Row]:
        try:
            yield from rows
        except Exception as error:  # arro3 has no error type for a file that it cannot read
            raise self._make_unreadable_error(error) from error

    def _make_unreadable_error(self, error: Exception) -> LedgerError:
        named = re.search(r"[^/\s]+\.(?:parquet|json)", str(error))
        reason, hint = self.home.explain(error, reading=True)
        is_away, lost = self.home.is_away(error), list[LostFile]()
        if not is_away and next(iter(self.columns)) in _ROWS:
            with contextlib.suppress(Exception):  # the first error counts
                lost = self.salvage()[1]
        if lost:
            hint = BACKUP if self.columns is SETTLED else REPAIR
            reason = "; ".join(file.describe(_ROWS[next(iter(self.columns))]) for file in lost[:3])
        file = f" ({named[0]})" if named and named[0] not in reason else ""
        message = f"The {self.what} at {self.path} cannot be read: {reason.rstrip('.')}{file}."
        return LedgerError(message, hint=hint, is_away=is_away)

    def _make_unwritable_error(self, error: Exception) -> LedgerError:
        reason, hint = self.home.explain(error, reading=False)
        message = f"The {self.what} at {self.path} cannot be written: {reason.rstrip('.')}."
        return LedgerError(message, hint=hint, is_away=self.home.is_away(error))

    def _open_table(self) -> DeltaTable | None:
        if not self.home.may_be_there():
            return None
        options = get_options(self.path)
        try:
            table = DeltaTable(self.place, storage_options=options)
        except TableNotFoundError:
            if options is None:
                raise
            return None
        self.check_columns(table.schema().to_json(), lambda: self._explain_errors(_scan_rows(table.scan(["format"]))))
        return table

    def _open_or_create_table(self) -> DeltaTable:
        try:
            return self._open_table() or self._create_table()
        except DeltaError:  # another process may have created it meanwhile
            table = self._open_table()
            if table is None:
                raise
            return table

    def _create_table(self, kept: str = "") -> DeltaTable:
        """Create the table. Return it at version 0, so that a commit of another process is noticed.

        `kept` is the time for which the properties in `kept_an_hour` let files be kept.
        """
        options = get_options(self.path)
        DeltaTable.create(
            self.place,
            self._schema,
            configuration={**self.home.properties, **(dict.fromkeys(self.home.kept_an_hour, kept) if kept else {})},
            commit_properties=_ONCE,
            storage_options=options,
        )
        return DeltaTable(self.place, version=0, storage_options=options)

    def _has_checkpoint_above(self, version: int) -> bool:
        """Whether a checkpoint above this version exists.

        The log below it may then be cleaned up. A process that was suspended for long may find its version number free
        again, but what it commits there is part of no table.
        """
        return bool(self.home.place.versions.list_checkpoints(version))


_ONCE = CommitProperties(max_commit_retries=0)
_EPOCH, _MICROSECOND = datetime(1970, 1, 1, tzinfo=timezone.utc), timedelta(microseconds=1)


def _make_column(values: Sequence[Any], kind: DataType) -> Array:
    """Return the values as an array. The library makes no array of times."""
    if not DataType.is_timestamp(kind):
        return Array(values, kind)
    return Array([at and (at - _EPOCH) // _MICROSECOND for at in values], DataType.int64()).cast(kind)


def _describe_reason(error: Exception) -> str:
    """Return the system's message for the error, if it has one."""
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    message = re.sub(r"\x1b\[\d*m|↳", "", str(error))
    match = re.search(r'message: "([^"]+)"', message) or re.search(r"([^:\n]+) \(os error \d+\)", message)
    return match[1].strip() if match else message.partition("\n")[0].rstrip(".")
