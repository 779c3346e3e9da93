"""The ledger: an append-only sequence of entries, in which every append is conditional.

The entries are stored in three Delta tables, one row each, with nested values as JSON text. This module also keeps the
tables small.
"""

from __future__ import annotations

import contextlib
import json
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Generic, TypeVar

from origins.batch import Json
from origins.codec import INLINE, decode, encode
from origins.errors import WherryError
from runners.model.entry import FORMAT, Entry, OriginBody, OwnerBody, Settled, as_text
from runners.model.text import find_version


class Conflict(WherryError):
    """Another process appended an entry since the ledger was read. Nothing of this append was recorded."""

    code = "CONFLICT"


class LedgerError(WherryError):
    """The ledger cannot be read or written. The run stops, and nothing after its last entry counts."""

    code = "LEDGER"


RESTORE = "Restore the ledger from a backup. The run processed nothing."
"""What to do about a ledger whose entries cannot be understood."""


class Ledger(ABC):
    """The record of a pipeline's progress. Each ledger is always written by the same implementation."""

    @abstractmethod
    def read(self, after: int = 0) -> list[Entry]:
        """Return the entries with a number above `after`, in order.

        If older entries were compacted, the first entry is a `snapshot`, which replaces all entries before it. A ledger
        that does not exist yet is empty, and reading does not create it. Raise `LedgerError` if the ledger has a newer
        format.
        """

    @abstractmethod
    def append(self, entries: Sequence[Entry], *, after: int) -> list[Entry]:
        """Add all entries or none, with the numbers from `after + 1` on. Return them with their numbers.

        Raise `Conflict` if the last number is not `after`. An append that failed for another reason may have landed,
        and then counts as landed. The entries' ids show this. The first append creates the ledger.
        """

    @abstractmethod
    def compact(self, snapshot: Entry, settled: Sequence[Settled], *, after: int) -> Entry:
        """Replace all entries up to `after` by `snapshot`, once `settled` is in the history.

        It is conditional and numbered like `append`. Return the snapshot with its number. `settled` are the batches
        that these entries settled. A batch that is already in the history is not added again.
        """

    @abstractmethod
    def history(self, since: str = "") -> Iterator[Settled]:
        """Yield the batches that were settled before the last snapshot, in no particular order.

        With `since`, a time in UTC as entries have it, only those that were settled then or later.
        """

    @property
    @abstractmethod
    def place(self) -> str:
        """The ledger's place, for messages."""


TRIES = 5
"""How often a commit is tried if it fails without an entry of another process."""
FILES = 64
"""How many files the history may have. Every compaction with settled batches adds one."""
KEPT_DAYS = 7
"""How many days a vacuum leaves a file of a folder or a store, because another process may be reading it."""
Columns = Mapping[str, str]
"""The columns of a table, in order, with their types as Delta and Spark write them in JSON."""
Row = dict[str, Any]
MOST = 2**63 - 1
"""The highest possible number of an entry or a batch."""
ENTRIES: Columns = {
    "seq": "long",
    "kind": "string",
    "lane": "string",
    "plan": "string",
    "epoch": "long",
    "owner": "string",
    "id": "string",
    "at": "string",
    "format": "integer",
    "body": "string",
}
SETTLED: Columns = {
    "number": "long",
    "lane": "string",
    "plan": "string",
    "run": "string",
    "at": "string",
    "span": "string",
    "counts": "string",
}
BODIES: Columns = {"seq": "long", "id": "string", "body": "string"}


class LedgerTable(ABC):
    """One of the tables of a ledger or a run history. The first write creates it."""

    place: str
    name: str
    """The table's name in SQL."""
    columns: Columns
    what: str
    """What it is a table of, for messages."""

    @property
    def version(self) -> int | None:
        """The version that was read last. None if the table does not exist, or if every read sees the newest one."""
        return None

    @abstractmethod
    def refresh(self) -> None:
        """Read the newest version.

        Raise `LedgerError` if it is not a table of this kind, or if its format is too new.
        """

    @abstractmethod
    def rows(self, first: int = 0, last: int = MOST) -> Iterable[Row]:
        """Return the rows whose first column is from `first` to `last`, in no particular order."""

    @abstractmethod
    def find_highest(self, column: str) -> int:
        """Return the highest value of a column, or 0 without rows."""

    @abstractmethod
    def exists(self) -> bool:
        """Whether the table exists. Read its newest version."""

    @abstractmethod
    def select(self, query: str, *beside: LedgerTable) -> list[Row]:
        """Return the rows of a query over this table and the tables beside it, all of which exist.

        Times have their zone, UTC.
        """

    @abstractmethod
    def add(self, rows: Sequence[Row]) -> None:
        """Add the rows. Other processes may add rows at the same time. Create the table if it is missing.

        Raise an error unless the rows surely landed.
        """

    @abstractmethod
    def remove(self, condition: str) -> None:
        """Remove the rows for which the condition holds."""

    @abstractmethod
    def count_files(self) -> int:
        """Return how many files the table has."""

    @abstractmethod
    def optimize(self) -> None:
        """Combine small files."""

    @abstractmethod
    def vacuum(self) -> None:
        """Remove files that left the table longer ago than its properties demand."""

    def check_columns(self, schema: str, read_formats: Callable[[], Iterable[Row]]) -> None:
        """Raise `LedgerError` unless a table with this schema has these columns.

        Delta and Spark write the schema as JSON.
        """
        found: Columns = {field["name"]: field["type"] for field in json.loads(schema)["fields"]}
        if found == self.columns:
            return
        if found.get("format") == ENTRIES["format"]:
            _check_format(self.place, max((row["format"] or 0 for row in read_formats()), default=0))
        raise LedgerError(
            f"{self.place} is a Delta table, but not a {self.what} of Wherry {find_version()}: expected the columns "
            f"{_describe_columns(self.columns)}; found {_describe_columns(found)}.",
            hint="Set `state` to another place. Wherry wrote nothing here.",
        )


def _describe_columns(columns: Columns) -> str:
    return ", ".join(f"{name} {kind if isinstance(kind, str) else kind['type']}" for name, kind in columns.items())


Table = TypeVar("Table", bound=LedgerTable)


class TableLedger(Ledger, Generic[Table]):
    """A ledger in three tables: entries, the batches settled before the last snapshot, and large bodies."""

    def __init__(self, entries: Table, settled: Table, bodies: Table) -> None:
        self._entries, self._settled, self._bodies = entries, settled, bodies
        self._lock = threading.Lock()

    @abstractmethod
    def _is_fresh(self, after: int) -> bool:
        """Whether `after` is the last number, as far as this process knows."""

    @abstractmethod
    def _commit(self, rows: Sequence[Row], after: int, *, replaces: bool) -> None:
        """Add the rows of entries if `after` is still the last number. With `replaces`, replace all other rows by them.

        Raise `LedgerError` unless the rows surely landed.
        """

    @abstractmethod
    def _commit_bodies(self, rows: Sequence[Row]) -> None:
        """Add large bodies to the table for bodies."""

    @abstractmethod
    def _remember(self, settled: Sequence[Settled]) -> None:
        """Add these batches to the history, except batches that it has. Such batches have numbers in the same range."""

    def read(self, after: int = 0) -> list[Entry]:
        with self._lock:
            return self._read_behind(after)[0]

    def append(self, entries: Sequence[Entry], *, after: int) -> list[Entry]:
        with self._lock:
            return self._land(entries, after) if entries else []

    def compact(self, snapshot: Entry, settled: Sequence[Settled], *, after: int) -> Entry:
        with self._lock:
            (landed,) = self._land([snapshot], after, settled)
            self._tidy(landed.seq)
            return landed

    def history(self, since: str = "") -> Iterator[Settled]:
        with self._lock:
            self._settled.refresh()
            return (to_settled(self.place, row) for row in self._settled.rows() if row["at"] >= since)

    @property
    def place(self) -> str:
        return self._entries.place

    def _land(self, entries: Sequence[Entry], after: int, settled: Sequence[Settled] | None = None) -> list[Entry]:
        """Append the entries, or replace all entries by them once `settled` is in the history."""
        numbered = [replace(entry, seq=seq) for seq, entry in enumerate(entries, after + 1)]
        failures: list[LedgerError] = []
        while True:
            if failures or settled is not None or not self._is_fresh(after):
                later, last = self._read_behind(after)
                if [entry.id for entry in later[: len(numbered)]] == [entry.id for entry in numbered]:
                    return numbered
                if last != after:
                    raise Conflict(f"The ledger's last entry is {last}; {after} was expected.")
            if len(failures) == TRIES:
                raise failures[-1]
            try:
                if settled:  # the history first, so that a process that dies in between loses nothing
                    self._remember(settled)
                rows, bodies = split_bodies([to_row(entry) for entry in numbered])
                if bodies:  # before the entries, so that no entry lacks its body
                    self._commit_bodies(bodies)
                self._commit(rows, after, replaces=settled is not None)
            except LedgerError as error:
                failures.append(error)
            else:
                return numbered

    def _read_behind(self, after: int) -> tuple[list[Entry], int]:
        """Read the entries above a number again. Return them and the last number."""
        later = self._read_later(after)
        return later, later[-1].seq if later else self._entries.find_highest("seq")

    def _read_later(self, after: int) -> list[Entry]:
        rows = self._read_rows(after)
        try:
            return to_entries(self.place, join_bodies(self.place, rows, self._read_bodies))
        except LedgerError:
            if self._read_rows(after) == rows:
                raise
            return self._read_later(after)  # the missing body was compacted away during the read

    def _read_rows(self, after: int) -> list[Row]:
        """Read the rows. A file of them may be deleted meanwhile, if another process replaced it by a snapshot."""
        while True:
            self._entries.refresh()
            version = self._entries.version
            try:
                return sorted(self._entries.rows(after + 1), key=lambda row: row["seq"])
            except LedgerError:
                self._entries.refresh()
                if self._entries.version == version:
                    raise

    def _read_bodies(self, first: int, last: int) -> Iterable[Row]:
        self._bodies.refresh()
        return self._bodies.rows(first, last)

    def _tidy(self, first: int) -> None:
        """Remove the bodies of entries before `first`.

        If the history has more than `FILES` files, combine and clean up files.

        An error here only costs space and time, and the next compaction does the work again.
        """
        with contextlib.suppress(Exception):  # deltalake has no error type for a missing file; no row depends on this
            self._bodies.remove(f"seq < {first}")
            if self._settled.count_files() > FILES:
                self._settled.optimize()
                for table in (self._settled, self._entries, self._bodies):
                    table.vacuum()


def _check_format(place: str, newest: int) -> None:
    """Raise `LedgerError` if this version does not know the newest format in a ledger."""
    if newest > FORMAT:
        raise LedgerError(
            (f"The ledger at {place} has entries of format {newest}; Wherry {find_version()} reads up to {FORMAT}."),
            hint=f"Upgrade Wherry to a version that reads format {newest}: a newer version has written this state.",
        )


def to_row(item: Entry | Settled) -> Row:
    return {name: as_text(encode(value)) if name in _NESTED else value for name, value in vars(item).items()}


def to_entries(place: str, rows: Iterable[Row]) -> list[Entry]:
    """Return the rows as entries of the present format, in order. Raise `LedgerError` if one has a newer format."""
    listed = list(rows)
    _check_format(place, max((row["format"] for row in listed), default=0))
    return [_to_entry(place, row) for row in sorted(listed, key=lambda row: row["seq"])]


def _to_entry(place: str, row: Row) -> Entry:
    try:
        return migrate_entry(decode(Entry, {**row, "body": json.loads(row["body"])}))
    except ValueError as error:
        raise LedgerError(
            f"Entry {row['seq']} of the ledger at {place} ({row['kind']}) cannot be understood: {error}.", hint=RESTORE
        ) from error


def to_settled(place: str, row: Row) -> Settled:
    """Return the row as a settled batch. Raise `LedgerError` if it is not one."""
    try:
        return decode(Settled, {name: json.loads(each) if name in _NESTED else each for name, each in row.items()})
    except ValueError as error:
        raise LedgerError(
            f"Batch {row['number']} of lane {row['lane']} in the history of the ledger at {place} cannot be "
            f"understood: {error}.",
            hint=RESTORE,
        ) from error


_NESTED = {"body", "span", "counts"}


LARGEST = 15 * 1024
"""How many bytes of a body the ledger's table stores. With its other columns, an entry stays below 16 KiB."""
BESIDE = '"beside"'
"""The placeholder of a body that is in the table for bodies. A body is an object, so no body looks like this."""


def split_bodies(rows: Sequence[Row]) -> tuple[list[Row], list[Row]]:
    """Return the entries as the ledger stores them, and the bodies that are too large for it."""
    large = [row for row in rows if len(row["body"].encode()) > LARGEST]
    kept = [{**row, "body": BESIDE} if row in large else row for row in rows]
    return kept, [{name: row[name] for name in BODIES} for row in large]


def join_bodies(place: str, rows: Iterable[Row], look: Callable[[int, int], Iterable[Row]]) -> list[Row]:
    """Return the entries with their whole bodies. `look` returns the stored bodies from one number to another.

    Raise `LedgerError` if a body is missing.
    """
    listed = list(rows)
    beside = [row["seq"] for row in listed if row["body"] == BESIDE]
    if not beside:
        return listed
    bodies = {(row["seq"], row["id"]): row["body"] for row in look(min(beside), max(beside))}
    whole = []
    for row in listed:
        body = bodies.get((row["seq"], row["id"])) if row["body"] == BESIDE else row["body"]
        if body is None:
            raise LedgerError(
                f"The ledger at {place} has lost the body of entry {row['seq']}, which the table beside it should "
                "have.",
                hint=f"Put the table {place}_bodies back from a backup; without it Wherry reads nothing.",
            )
        whole.append({**row, "body": body})
    return whole


Body = Mapping[str, object]


def migrate_entry(entry: Entry) -> Entry:
    if entry.format == FORMAT:
        return entry
    change = _CHANGES.get(entry.kind)
    return replace(entry, format=FORMAT, body=change(entry.body) if change else entry.body)


def _migrate_opened(body: Body) -> Body:
    """Migrate a body with a single origin, whose schema was stored beside it."""
    if not body or "origins" in body:
        return body
    old = decode(_OldOpening, body)
    origin = old.origin or _OldOrigin()
    return {**body, "origins": {origin.name: encode(replace(origin.rest, schema=old.schema))}}


@dataclass(frozen=True, kw_only=True)
class _OldOrigin:
    name: str = "origin"
    rest: OriginBody = field(default=OriginBody(lanes=("0",)), metadata=INLINE)


@dataclass(frozen=True, kw_only=True)
class _OldOpening:
    origin: _OldOrigin | None = None
    schema: str | None = None


def _migrate_snapshot(body: Body) -> Body:
    """Migrate a body with at most one owner, whose last entry was stored beside it."""
    old = decode(_OldSnapshot, body)
    seq, at = old.heard
    owners = [encode(replace(old.owner, heard=seq, heard_at=at))] if old.owner else []
    return {"owners": owners, **body, "opened": _migrate_opened(old.opened)}


@dataclass(frozen=True, kw_only=True)
class _OldSnapshot:
    opened: Mapping[str, Json]
    owner: OwnerBody | None = None
    heard: tuple[int, str] = (0, "")


_CHANGES: Mapping[str, Callable[[Body], Body]] = {"open": _migrate_opened, "snapshot": _migrate_snapshot}
