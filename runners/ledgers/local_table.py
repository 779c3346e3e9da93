"""A Delta table in a folder of this host, through the `deltalake` library; every commit builds on what was read."""

from __future__ import annotations

import os
import re
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Literal

import pyarrow as pa
from arro3.core import Array, Table
from deltalake import CommitProperties, DeltaTable, PostCommitHookProperties, Schema, write_deltalake
from deltalake.exceptions import DeltaError

from destinations.delta_short import UNUSABLE
from runners.ledgers.ledger import LedgerError
from runners.ledgers.ledger_rows import ENTRIES, Columns, Row, check_format, columns_of, not_ours, schema_of
from runners.ledgers.tidying import KEPT_DAYS

CHECKPOINT_EVERY = 50
"""Commits between two checkpoints. A commit reads the log since the last one; writing one costs some ten commits."""
PROPERTIES = {
    "delta.checkpointInterval": str(CHECKPOINT_EVERY),
    "delta.dataSkippingNumIndexedCols": "1",
    "delta.deletedFileRetentionDuration": f"interval {KEPT_DAYS} days",
    "delta.logRetentionDuration": "interval 5 seconds",
}
"""The log is kept short, because every commit lists it; the seconds are for those who are reading it."""
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
        self._schema = Schema.from_json(schema_of(columns)).to_arrow()
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
                    self._table = self._opened()
                else:
                    self._table.update_incremental()
                return
            except _READING as error:
                self._table = None
                if not left:  # until then it may have been a log file that was cleaned up while it was read
                    raise self._unreadable(error) from error

    def rows(self, condition: str | None = None, columns: Sequence[str] | None = None) -> Iterator[Row]:
        """The rows of the version that was read for which the condition holds, in no order."""
        if self._table is None:
            return iter(())
        return self._read(self._table.scan(columns=None if columns is None else list(columns), predicate=condition))

    def highest(self, column: str) -> int:
        """The highest value of the table's first column, by the files' own account; 0 where there are no rows."""
        if self._table is None:
            return 0
        files = pa.table(self._table.get_add_actions(flatten=True))
        return max(files[f"max.{column}"].to_pylist()) if files.num_rows else 0

    def commit(self, rows: Sequence[Row], mode: Literal["append", "overwrite"]) -> None:
        """Add the rows, or put them in the place of all others, if the version that was read is still the newest.

        Makes the table if it is missing. Raises `LedgerError` unless it landed for sure: then look.
        """
        try:
            self._table = self._table or self._made()
            self._probe()
            version = self._table.version() + 1
            write_deltalake(
                self._table,
                self._made_of(rows),
                mode=mode,
                commit_properties=_ONCE,
                post_commithook_properties=PostCommitHookProperties(
                    create_checkpoint=True, cleanup_expired_logs=version % CHECKPOINT_EVERY == 0
                ),
            )
            landed = self._table.version() == version and not self._passed(version)
        except Exception as error:  # whatever it was, it may have landed
            raise LedgerError(
                f"The ledger at {self.path} cannot be written: {_reason(error)}.",
                hint="Its folder must be writable and have space; what it holds is whole, and a later run goes on.",
            ) from error
        if not landed:
            self._table = None
            raise LedgerError(f"The ledger at {self.path} went on while it was written.")

    def remove(self, condition: str) -> None:
        """Remove the rows of the newest version for which the condition holds."""
        self.refresh()
        if self._table is not None:
            self._table.delete(condition)

    def files(self) -> int:
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

    def _made_of(self, rows: Sequence[Row]) -> Table:
        """The rows, without pyarrow: making its arrays imports pandas, which takes longer than all the rest."""
        columns = [Array([row[name] for row in rows], self._schema.field(name).type) for name in self.columns]
        return Table.from_arrays(columns, schema=self._schema)

    def _read(self, found: object) -> Iterator[Row]:
        try:
            for batch in pa.RecordBatchReader.from_stream(found):
                yield from batch.to_pylist()
        except _READING as error:
            raise self._unreadable(error) from error

    def _unreadable(self, error: Exception) -> LedgerError:
        named = re.search(r"[^/\s]+\.(?:parquet|json)", str(error))
        file = f" ({named[0]})" if named else ""
        return LedgerError(
            f"The ledger at {self.path} cannot be read: {_reason(error)}{file}.",
            hint="Nothing was changed, and nothing is carried until it can be read. This user must have the right to; "
            "a file that is missing or broken is put back from a backup.",
        )

    def _opened(self) -> DeltaTable | None:
        if not self._is_there():
            return None
        table = DeltaTable(str(self.path))
        found = columns_of(table.schema().to_json())
        if found != self.columns:
            if found.get("format") == ENTRIES["format"]:
                formats = self._read(table.scan(["format"]))
                check_format(str(self.path), max((row["format"] or 0 for row in formats), default=0))
            raise not_ours(str(self.path), self.columns, found)
        return table

    def _is_there(self) -> bool:
        """Whether there is a table. Raises `OSError` where this user may not know: Delta takes that for none."""
        try:
            os.scandir(self.path / "_delta_log").close()
        except (FileNotFoundError, NotADirectoryError):
            return False
        return bool(DeltaTable.is_deltatable(str(self.path)))

    def _made(self) -> DeltaTable:
        """The table, made here and now; read as it was made, so that a commit by others is seen as one."""
        schema = Schema.from_json(schema_of(self.columns))
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
                raise OSError("its file system lets a new file take the name of another, so writers are not kept apart")

    def _passed(self, version: int) -> bool:
        """Whether there is a checkpoint above this version.

        Then the log below may have been cleaned up, and a process that slept for long may have found its version
        free again: what it wrote there is in no table.
        """
        checkpoints = [name for name in os.listdir(self.path / "_delta_log") if ".checkpoint." in name]
        return any(int(name.partition(".")[0]) > version for name in checkpoints)


_ONCE = CommitProperties(max_commit_retries=0)


def _reason(error: Exception) -> str:
    """The system's own word for it, where there is one."""
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    said = re.sub(r"\x1b\[\d*m|↳", "", str(error))
    found = re.search(r'message: "([^"]+)"', said) or re.search(r"([^:\n]+) \(os error \d+\)", said)
    return found[1].strip() if found else said.partition("\n")[0].rstrip(".")
