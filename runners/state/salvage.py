"""What can still be read of a table of a ledger, some of whose files are missing or broken."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from arro3.core import RecordBatchReader

from destinations.delta.versions import TableVersions, format_key
from origins.lazy import pa, pq
from runners.state.ledger import Row

if TYPE_CHECKING:
    from deltalake import DeltaTable


@dataclass(frozen=True, kw_only=True)
class LostFile:
    """A file of a table that is missing or broken."""

    name: str
    is_missing: bool
    version: int | None
    """The version that added the file; None if the log of that version was cleaned up."""
    first: int
    last: int
    """The lowest and the highest value of the table's first column in the file."""

    def describe(self, rows: str) -> str:
        """Return what is lost, as a sentence without its end. `rows` names the rows, for example `entries`."""
        version = "" if self.version is None else f" of version {self.version}"
        lost = f"{rows} {self.first} to {self.last}"
        return f"the file {self.name}{version} is {'missing' if self.is_missing else 'broken'}, and had {lost}"


def salvage_rows(table: DeltaTable, versions: TableVersions, column: str) -> tuple[list[Row], list[LostFile]]:
    """Return the rows of all files that can be read, and the other files in the order of their rows."""
    rows: list[Row] = []
    lost: list[LostFile] = []
    for name, first, last in _list_files(table, column):
        content = versions.read(name)
        try:
            rows += [] if content is None else pq.ParquetFile(pa.BufferReader(content)).read().to_pylist()
        except (pa.ArrowException, OSError):
            content = None
            missing = False
        else:
            missing = content is None
        if content is None:
            version = _find_version(versions, name)
            lost.append(LostFile(name=name, is_missing=missing, version=version, first=first, last=last))
    return rows, sorted(lost, key=lambda file: file.first)


def _list_files(table: DeltaTable, column: str) -> Iterator[tuple[str, int, int]]:
    """Yield the files of the newest version, each with the lowest and the highest value of a column."""
    for batch in RecordBatchReader.from_stream(table.get_add_actions(flatten=True)):
        columns: list[list[Any]] = [
            list(batch.column(each).to_pylist()) for each in ("path", f"min.{column}", f"max.{column}")
        ]
        for path, first, last in zip(*columns, strict=True):
            yield path, first or 0, last or 0


def _find_version(versions: TableVersions, name: str) -> int | None:
    numbers = sorted(versions.list_versions())
    return next((each for each in numbers if name.encode() in (versions.read(format_key(each)) or b"")), None)
