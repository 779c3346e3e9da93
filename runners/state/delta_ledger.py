"""The ledger as a Delta table in a folder or an object store, through `deltalake`, without Spark: a commit takes a few
milliseconds on a disk, and some requests at a store."""

from __future__ import annotations

import io
import json
import math
import os
import re
import tempfile
import time
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from arro3.core import Array, RecordBatchReader, Table
from deltalake import CommitProperties, DeltaTable, PostCommitHookProperties, Schema, write_deltalake
from deltalake.exceptions import DeltaError, TableNotFoundError

from destinations.delta.data_files import make_file_name
from destinations.delta.direct_append import UNUSABLE, write_checkpoint
from destinations.delta.direct_commit import format_commit, read_clock
from destinations.delta.store_commit import StorePlace, format_key
from origins.delta_actions import FileBody
from origins.lazy import pa, pq
from origins.object_store import describe_store_error, is_store_away, open_store
from origins.store_access import StoreError, StoreUrl, get_options
from runners.model.entry import Entry, Settled
from runners.state.ledger import (
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
    to_row,
)

if TYPE_CHECKING:
    from arro3.core.types import ArrowStreamExportable


class DeltaLedger(TableLedger["LocalTable"]):
    """The entries in a Delta table at `path`; beside it the history, named `<path>_history`, and `<path>_bodies`.

    Any number of processes and threads may read and append. Meant for a disk of this host, or an object store.
    """

    def __init__(self, path: str | Path) -> None:
        place = path if isinstance(path, StoreUrl) else Path(path).absolute()
        history, bodies = (name_beside(place, f"_{kind}") for kind in ("history", "bodies"))
        super().__init__(LocalTable(place, ENTRIES), LocalTable(history, SETTLED), LocalTable(bodies, BODIES))
        self._seen: tuple[int | None, int] = (None, 0)
        """A version of the entries, and the last number in it."""

    def _is_fresh(self, after: int) -> bool:
        return self._seen == (self._entries.version, after)

    def _read_behind(self, after: int) -> tuple[list[Entry], int]:
        later, last = super()._read_behind(after)
        self._seen = (self._entries.version, last)
        return later, last

    def _commit(self, rows: Sequence[Row], after: int, *, instead: bool) -> None:
        self._entries.commit(rows, "overwrite" if instead else "append")
        self._seen = (self._entries.version, rows[-1]["seq"])

    def _commit_bodies(self, rows: Sequence[Row]) -> None:
        self._bodies.refresh()
        self._bodies.commit(rows)

    def _remember(self, settled: Sequence[Settled]) -> None:
        self._settled.refresh()
        numbers = [batch.number for batch in settled]
        near = self._settled.rows(min(numbers), max(numbers))
        known = {row["plan"] for row in near}
        new = {batch.plan: to_row(batch) for batch in settled if batch.plan not in known}
        if new:
            self._settled.commit(list(new.values()))


CHECKPOINT_EVERY = 50
"""Commits between two checkpoints. A commit reads the log since the last one; writing one costs some ten commits."""
PROPERTIES = {
    "delta.checkpointInterval": str(CHECKPOINT_EVERY),
    "delta.dataSkippingNumIndexedCols": "1",
    "delta.deletedFileRetentionDuration": f"interval {KEPT_DAYS} days",
    "delta.logRetentionDuration": "interval 5 seconds",
}
"""The log is kept short, because every commit lists it; the seconds are for its readers."""
_KEPT_LOG = "interval 7 days"
"""How long the log is kept in an object store. A commit there lists only what is newer than the last checkpoint."""
STORE_CHECKPOINT_EVERY = 20
"""The same in an object store, where each commit since the last one costs the opening two requests."""
_READERS = 8
"""So many files of a store are read at a time."""
_READING = (DeltaError, OSError, StoreError)


def name_beside(place: Path | StoreUrl, ending: str) -> Path | StoreUrl:
    """The place beside it whose name has this ending."""
    return place.with_ending(ending) if isinstance(place, StoreUrl) else place.with_name(place.name + ending)


class TableHome(ABC):
    """Where a table is: what is asked there that `deltalake` does not tell."""

    properties: Mapping[str, str] = PROPERTIES
    """Those of a table that is made there."""
    sure: float = 0.0
    """For so many seconds the newest version that was read is surely not below a log that was cleaned up since."""

    @abstractmethod
    def may_be_there(self) -> bool:
        """Whether there may be a table. Raises `OSError` where this user may not know."""

    @abstractmethod
    def check(self) -> None:
        """Make sure that a name that is taken stays taken: it is all that keeps two writers apart."""

    @abstractmethod
    def list_log(self, after: int) -> Iterable[str]:
        """The names in the table's log; those of versions up to `after` may be missing."""

    @abstractmethod
    def read_rows(self, table: DeltaTable, column: str, first: int, last: int) -> Iterator[Row]:
        """The rows of the table whose value of the column is from `first` to `last`."""

    def append(self, rows: Table, column: str, version: int) -> bool | None:
        """Add the rows, which have their least and their highest value in this column, as this version of the table;
        whether no other writer has it. None where `deltalake` does that."""
        return None

    def sum_up(self, version: int) -> None:
        """Write a checkpoint behind a version that was appended, if it is time."""

    @abstractmethod
    def explain(self, error: Exception, *, reading: bool) -> tuple[str, str]:
        """Why the place failed, and what to do."""

    def is_away(self, error: Exception) -> bool:
        """Whether the place did not answer, which passes by itself."""
        return False


class DiskHome(TableHome):
    """A folder of this machine."""

    def __init__(self, path: Path) -> None:
        self.path = path
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
        with tempfile.TemporaryDirectory(prefix="_probe-", dir=self.path) as place:
            own, taken = Path(place, "own"), Path(place, "taken")
            own.touch()
            os.link(own, taken)
            try:
                os.link(own, taken)
            except FileExistsError:
                return
            raise OSError(
                "its file system lets a new file replace another one, so Wherry cannot keep two writers apart"
            )

    def list_log(self, after: int) -> Iterable[str]:
        return os.listdir(self.path / "_delta_log")

    def read_rows(self, table: DeltaTable, column: str, first: int, last: int) -> Iterator[Row]:
        return _scan_rows(table.scan(predicate=f"{column} >= {first} and {column} <= {last}"))

    def explain(self, error: Exception, *, reading: bool) -> tuple[str, str]:
        if reading:
            return _describe_reason(error), (
                "Wherry changed nothing, and processes nothing without the ledger. Give this user the right to read "
                "it, or put missing and broken files back from a backup."
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
    sure = 3.0  # a log that came from a folder is kept for five seconds

    def __init__(self, url: StoreUrl) -> None:
        self.url = url

    def may_be_there(self) -> bool:
        return True

    def check(self) -> None:
        open_store(self.url).check_put_if_new()

    def list_log(self, after: int) -> Iterable[str]:
        for page in open_store(self.url).list_pages("_delta_log", after=f"_delta_log/{after:020}.z"):
            yield from (key.rpartition("/")[2] for key in page)

    def read_rows(self, table: DeltaTable, column: str, first: int, last: int) -> Iterator[Row]:
        """By one request for each file that may have such rows, several at a time: they are small, and `deltalake`
        makes four requests for each."""
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

    def append(self, rows: Table, column: str, version: int) -> bool:
        """By two requests, of which the second is the condition; `deltalake` makes seven."""
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
            write_checkpoint(StorePlace(self.url))

    def explain(self, error: Exception, *, reading: bool) -> tuple[str, str]:
        if isinstance(error, StoreError):
            return error.message, error.hint
        reason, hint = describe_store_error(error, self.url)
        whole = "Wherry changed nothing" if reading else "The ledger is whole, and a later run continues"
        return reason, f"{hint} {whole}."

    def is_away(self, error: Exception) -> bool:
        return error.is_away if isinstance(error, StoreError) else is_store_away(error)


def _scan_rows(found: ArrowStreamExportable) -> Iterator[Row]:
    """The rows of a scan, without pyarrow, which takes 0.1 s to import."""
    for batch in RecordBatchReader.from_stream(found):
        columns = [column.to_pylist() for column in batch.columns]
        yield from (dict(zip(batch.column_names, row, strict=True)) for row in zip(*columns, strict=True))


def find_home(path: Path | StoreUrl) -> TableHome:
    """The home of a table at this place."""
    return StoreHome(path) if isinstance(path, StoreUrl) else DiskHome(path)


class LocalTable(LedgerTable):
    """The table, opened when it is needed and then kept open. After an error it is opened again, with the access to a
    store as it is then. For one thread at a time."""

    def __init__(self, path: Path | StoreUrl, columns: Columns) -> None:
        self.home = find_home(path)
        self.path = path
        self.place = str(path)
        self.columns = columns
        fields = [{"name": name, "type": kind, "nullable": True, "metadata": {}} for name, kind in columns.items()]
        self._schema = Schema.from_json(json.dumps({"type": "struct", "fields": fields}))
        self._table: DeltaTable | None = None
        self._appended = -1
        """The newest version that this process added without the opened table, which lags behind."""
        self._looked = -math.inf
        """When the newest version was known last."""
        self._probed = False

    @property
    def version(self) -> int | None:
        """The version that was read, or added since; None where there is no table."""
        return None if self._table is None else max(self._table.version(), self._appended)

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
                # until the last try it may have been a log file that was cleaned up while it was read
                if not left or self.home.is_away(error):
                    raise self._unreadable_error(error) from error

    def rows(self, first: int = 0, last: int = MOST) -> Iterable[Row]:
        if self._table is None:
            return ()
        return self._explain_errors(self.home.read_rows(self._table, next(iter(self.columns)), first, last))

    def find_highest(self, column: str) -> int:
        """The same for the table's first column, by the files' own account."""
        if self._table is None:
            return 0
        files = RecordBatchReader.from_stream(self._table.get_add_actions(flatten=True))
        return max((value for batch in files for value in batch.column(f"max.{column}").to_pylist()), default=0)

    def commit(self, rows: Sequence[Row], mode: Literal["append", "overwrite"] = "append") -> None:
        """Add the rows, or put them in the place of all others, if the version that was read is still the newest.

        Makes the table if it is missing. Raises `LedgerError` unless it landed for sure: then look.
        """
        try:
            self._table = self._table or self._create_table()
            if not self._probed:
                self.home.check()
                self._probed = True
            version = max(self._table.version(), self._appended) + 1
            landed = self._append(rows, version) if mode == "append" else None
            if landed is None:
                landed = self._write(self._table, rows, mode, version)
            if landed and (now := read_clock()) - self._looked >= self.home.sure:
                landed, self._looked = not self._has_checkpoint_above(version), now
            if landed:
                self.home.sum_up(version)
        except Exception as error:  # whatever it was, it may have landed
            reason, hint = self.home.explain(error, reading=False)
            message = f"The ledger at {self.path} cannot be written: {reason.rstrip('.')}."
            raise LedgerError(message, hint=hint, is_away=self.home.is_away(error)) from error
        if not landed:
            self._table, self._appended = None, -1
            raise LedgerError(f"Another process wrote the ledger at {self.path} at the same time.")

    def _append(self, rows: Sequence[Row], version: int) -> bool | None:
        landed = self.home.append(self._make_table(rows), next(iter(self.columns)), version)
        if landed:
            self._appended = version
        return landed

    def _write(
        self, table: DeltaTable, rows: Sequence[Row], mode: Literal["append", "overwrite"], version: int
    ) -> bool:
        write_deltalake(
            table,
            self._make_table(rows),
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

    def _make_table(self, rows: Sequence[Row]) -> Table:
        """The rows, without pyarrow: making its arrays imports pandas, which takes longer than all the rest."""
        schema = self._schema.to_arrow()
        return Table.from_arrays(
            [Array([row[name] for row in rows], schema.field(name).type) for name in self.columns], schema=schema
        )

    def _explain_errors(self, rows: Iterable[Row]) -> Iterator[Row]:
        try:
            yield from rows
        except Exception as error:  # arro3 has no type of its own for a file that it cannot read
            raise self._unreadable_error(error) from error

    def _unreadable_error(self, error: Exception) -> LedgerError:
        named = re.search(r"[^/\s]+\.(?:parquet|json)", str(error))
        reason, hint = self.home.explain(error, reading=True)
        file = f" ({named[0]})" if named and named[0] not in reason else ""
        message = f"The ledger at {self.path} cannot be read: {reason.rstrip('.')}{file}."
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

    def _create_table(self) -> DeltaTable:
        """The table, made here and now; read as it was made, so that a commit by others is seen as one."""
        options = get_options(self.path)
        DeltaTable.create(
            self.place,
            self._schema,
            configuration=dict(self.home.properties),
            commit_properties=_ONCE,
            storage_options=options,
        )
        return DeltaTable(self.place, version=0, storage_options=options)

    def _has_checkpoint_above(self, version: int) -> bool:
        """Whether there is a checkpoint above this version.

        Then the log below may have been cleaned up, and a process that slept for long may have found its version
        free again: what it wrote there is in no table.
        """
        checkpoints = [name for name in self.home.list_log(version) if ".checkpoint." in name]
        return any(int(name.partition(".")[0]) > version for name in checkpoints)


_ONCE = CommitProperties(max_commit_retries=0)


def _describe_reason(error: Exception) -> str:
    """The system's own word for it, where there is one."""
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    message = re.sub(r"\x1b\[\d*m|↳", "", str(error))
    match = re.search(r'message: "([^"]+)"', message) or re.search(r"([^:\n]+) \(os error \d+\)", message)
    return match[1].strip() if match else message.partition("\n")[0].rstrip(".")
