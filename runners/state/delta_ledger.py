"""The ledger as a Delta table in a folder, through `deltalake`, without Spark: a commit takes a few milliseconds."""

from __future__ import annotations

import os
import re
import tempfile
import threading
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Literal

import pyarrow as pa
from arro3.core import Array, Table
from deltalake import CommitProperties, DeltaTable, PostCommitHookProperties, Schema, write_deltalake
from deltalake.exceptions import DeltaError

from destinations.delta.direct_append import UNUSABLE
from runners.model.entry import Entry, Settled
from runners.state.ledger import Ledger, LedgerError, land
from runners.state.ledger_rows import (
    BODIES,
    ENTRIES,
    KEPT_DAYS,
    SETTLED,
    Columns,
    Row,
    check_format,
    join_bodies,
    make_foreign_table_error,
    make_schema,
    parse_columns,
    split_bodies,
    tidy,
    to_entries,
    to_row,
    to_settled,
)


class DeltaLedger(Ledger):
    """The entries in a Delta table at `path`; beside it the history, named `<path>_history`, and `<path>_bodies`.

    Any number of processes and threads may read and append. Meant for a disk of this host.
    """

    def __init__(self, path: str | Path) -> None:
        path = Path(path).absolute()
        self._entries = LocalTable(path, ENTRIES)
        self._settled = LocalTable(path.with_name(f"{path.name}_history"), SETTLED)
        self._bodies = LocalTable(path.with_name(f"{path.name}_bodies"), BODIES)
        self._seen: tuple[int | None, int] = (None, 0)
        """A version of the entries, and the last number in it."""
        self._lock = threading.Lock()

    def read(self, after: int = 0) -> list[Entry]:
        with self._lock:
            return self._read_behind(after)[0]

    def append(self, entries: Sequence[Entry], *, after: int) -> list[Entry]:
        with self._lock:
            return self._land(entries, after, partial(self._commit, "append"))

    def compact(self, snapshot: Entry, settled: Sequence[Settled], *, after: int) -> Entry:
        with self._lock:
            (landed,) = self._land([snapshot], after, partial(self._replace, settled))
            tidy(self._entries, self._settled, self._bodies, first=landed.seq)
            return landed

    def history(self) -> Iterator[Settled]:
        with self._lock:
            self._settled.refresh()
            return (to_settled(self.place, row) for row in self._settled.rows())

    @property
    def place(self) -> str:
        return str(self._entries.path)

    def _land(self, entries: Sequence[Entry], after: int, commit: Callable[[Sequence[Entry]], None]) -> list[Entry]:
        fresh = self._seen == (self._entries.version, after)
        return land(entries, after=after, fresh=fresh, look=self._read_behind, commit=commit)

    def _read_behind(self, after: int) -> tuple[list[Entry], int]:
        self._entries.refresh()
        rows = list(self._entries.rows(f"seq > {int(after)}"))
        try:
            later = to_entries(self.place, join_bodies(self.place, rows, self._read_bodies))
        except LedgerError:
            before = self._entries.version
            self._entries.refresh()
            if self._entries.version == before:
                raise
            return self._read_behind(after)  # what was missing was compacted away while it was read
        last = later[-1].seq if later else self._entries.find_highest("seq")
        self._seen = (self._entries.version, last)
        return later, last

    def _read_bodies(self, condition: str) -> Iterator[Row]:
        self._bodies.refresh()
        return self._bodies.rows(condition)

    def _commit(self, mode: Literal["append", "overwrite"], entries: Sequence[Entry]) -> None:
        """The large bodies first, so that no entry is there without its own."""
        rows, bodies = split_bodies([to_row(entry) for entry in entries])
        if bodies:
            self._bodies.refresh()
            self._bodies.commit(bodies, "append")
        self._entries.commit(rows, mode)
        self._seen = (self._entries.version, entries[-1].seq)

    def _replace(self, settled: Sequence[Settled], entries: Sequence[Entry]) -> None:
        """The history first: there twice is once, so a process that dies in between has lost nothing."""
        self._remember(settled)
        self._commit("overwrite", entries)

    def _remember(self, settled: Sequence[Settled]) -> None:
        if settled:
            self._settled.refresh()
            numbers = [each.number for each in settled]
            near = self._settled.rows(f"number >= {min(numbers)} and number <= {max(numbers)}", ["plan"])
            known = {row["plan"] for row in near}
            new = {each.plan: to_row(each) for each in settled if each.plan not in known}
            if new:
                self._settled.commit(list(new.values()), "append")


CHECKPOINT_EVERY = 50
"""Commits between two checkpoints. A commit reads the log since the last one; writing one costs some ten commits."""
PROPERTIES = {
    "delta.checkpointInterval": str(CHECKPOINT_EVERY),
    "delta.dataSkippingNumIndexedCols": "1",
    "delta.deletedFileRetentionDuration": f"interval {KEPT_DAYS} days",
    "delta.logRetentionDuration": "interval 5 seconds",
}
"""The log is kept short, because every commit lists it; the seconds are for its readers."""
_READING = (DeltaError, OSError, pa.ArrowException)


class LocalTable:
    """The table, opened when it is needed and then kept open. For one thread at a time."""

    def __init__(self, path: Path, columns: Columns) -> None:
        unusable = UNUSABLE.search(str(path))
        if unusable:
            raise LedgerError(
                f"{path} cannot hold a ledger: Delta tables do not work below a name with {unusable[0]!r} in it.",
                hint="Set `state` to another directory.",
            )
        self.path = path
        self.columns = columns
        self._schema = Schema.from_json(make_schema(columns)).to_arrow()
        self._table: DeltaTable | None = None
        self._probed = False

    @property
    def version(self) -> int | None:
        """The version that was read; None where there is no table."""
        return None if self._table is None else self._table.version()

    def refresh(self) -> None:
        """Read the newest version. Raises `LedgerError` if it is not one of our tables, or newer than we are."""
        for left in (2, 1, 0):
            try:
                if self._table is None:
                    self._table = self._open_table()
                else:
                    self._table.update_incremental()
                return
            except _READING as error:
                self._table = None
                if not left:  # until then it may have been a log file that was cleaned up while it was read
                    raise self._unreadable_error(error) from error

    def rows(self, condition: str | None = None, columns: Sequence[str] | None = None) -> Iterator[Row]:
        """The rows of the version that was read for which the condition holds, in no order."""
        if self._table is None:
            return iter(())
        return self._read_rows(
            self._table.scan(columns=None if columns is None else list(columns), predicate=condition)
        )

    def find_highest(self, column: str) -> int:
        """The highest value of the table's first column, by the files' own account; 0 where there are no rows."""
        if self._table is None:
            return 0
        files = pa.RecordBatchReader.from_stream(self._table.get_add_actions(flatten=True))
        return max((value for batch in files for value in batch.column(f"max.{column}").to_pylist()), default=0)

    def commit(self, rows: Sequence[Row], mode: Literal["append", "overwrite"]) -> None:
        """Add the rows, or put them in the place of all others, if the version that was read is still the newest.

        Makes the table if it is missing. Raises `LedgerError` unless it landed for sure: then look.
        """
        try:
            self._table = self._table or self._create_table()
            self._probe()
            version = self._table.version() + 1
            write_deltalake(
                self._table,
                self._make_table(rows),
                mode=mode,
                commit_properties=_ONCE,
                post_commithook_properties=PostCommitHookProperties(
                    create_checkpoint=True, cleanup_expired_logs=version % CHECKPOINT_EVERY == 0
                ),
            )
            landed = self._table.version() == version and not self._has_checkpoint_above(version)
        except Exception as error:  # whatever it was, it may have landed
            raise LedgerError(
                f"The ledger at {self.path} cannot be written: {_describe_reason(error)}.",
                hint="Its folder needs to be writable, with free space. The ledger is whole, and a later run "
                "continues.",
            ) from error
        if not landed:
            self._table = None
            raise LedgerError(f"Another process wrote the ledger at {self.path} at the same time.")

    def remove(self, condition: str) -> None:
        """Remove the rows of the newest version for which the condition holds."""
        self.refresh()
        if self._table is not None:
            self._table.delete(condition)

    def count_files(self) -> int:
        """How many files the table has, in the version that was read."""
        return 0 if self._table is None else len(self._table.file_uris())

    def optimize(self) -> None:
        """Put small files together."""
        if self._table is not None:
            self._table.optimize.compact()

    def vacuum(self) -> None:
        """Remove files that have not been part of the table for seven days, those of writes that died included."""
        if self._table is not None:
            self._table.vacuum(retention_hours=24 * KEPT_DAYS, dry_run=False, full=True)

    def _make_table(self, rows: Sequence[Row]) -> Table:
        """The rows, without pyarrow: making its arrays imports pandas, which takes longer than all the rest."""
        columns = [Array([row[name] for row in rows], self._schema.field(name).type) for name in self.columns]
        return Table.from_arrays(columns, schema=self._schema)

    def _read_rows(self, found: object) -> Iterator[Row]:
        try:
            for batch in pa.RecordBatchReader.from_stream(found):
                yield from batch.to_pylist()
        except _READING as error:
            raise self._unreadable_error(error) from error

    def _unreadable_error(self, error: Exception) -> LedgerError:
        named = re.search(r"[^/\s]+\.(?:parquet|json)", str(error))
        file = f" ({named[0]})" if named else ""
        return LedgerError(
            f"The ledger at {self.path} cannot be read: {_describe_reason(error)}{file}.",
            hint="Wherry changed nothing, and processes nothing without the ledger. Give this user the right to read "
            "it, or put missing and broken files back from a backup.",
        )

    def _open_table(self) -> DeltaTable | None:
        if not self._is_there():
            return None
        table = DeltaTable(str(self.path))
        found = parse_columns(table.schema().to_json())
        if found != self.columns:
            if found.get("format") == ENTRIES["format"]:
                formats = self._read_rows(table.scan(["format"]))
                check_format(str(self.path), max((row["format"] or 0 for row in formats), default=0))
            raise make_foreign_table_error(str(self.path), self.columns, found)
        return table

    def _is_there(self) -> bool:
        """Whether there is a table. Raises `OSError` where this user may not know: Delta takes that for none."""
        try:
            os.scandir(self.path / "_delta_log").close()
        except (FileNotFoundError, NotADirectoryError):
            return False
        return bool(DeltaTable.is_deltatable(str(self.path)))

    def _create_table(self) -> DeltaTable:
        """The table, made here and now; read as it was made, so that a commit by others is seen as one."""
        schema = Schema.from_json(make_schema(self.columns))
        DeltaTable.create(str(self.path), schema, configuration=PROPERTIES, commit_properties=_ONCE)
        return DeltaTable(str(self.path), version=0)

    def _probe(self) -> None:
        """Make sure, once, that a name that is taken stays taken: it is all that keeps two writers apart."""
        if self._probed:
            return
        with tempfile.TemporaryDirectory(prefix="_probe-", dir=self.path) as place:
            own, taken = Path(place, "own"), Path(place, "taken")
            own.touch()
            os.link(own, taken)
            try:
                os.link(own, taken)
            except FileExistsError:
                self._probed = True
            else:
                raise OSError(
                    "its file system lets a new file replace another one, so Wherry cannot keep two writers apart"
                )

    def _has_checkpoint_above(self, version: int) -> bool:
        """Whether there is a checkpoint above this version.

        Then the log below may have been cleaned up, and a process that slept for long may have found its version
        free again: what it wrote there is in no table.
        """
        checkpoints = [name for name in os.listdir(self.path / "_delta_log") if ".checkpoint." in name]
        return any(int(name.partition(".")[0]) > version for name in checkpoints)


_ONCE = CommitProperties(max_commit_retries=0)


def _describe_reason(error: Exception) -> str:
    """The system's own word for it, where there is one."""
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    said = re.sub(r"\x1b\[\d*m|↳", "", str(error))
    found = re.search(r'message: "([^"]+)"', said) or re.search(r"([^:\n]+) \(os error \d+\)", said)
    return found[1].strip() if found else said.partition("\n")[0].rstrip(".")
