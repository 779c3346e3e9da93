"""The search index: the words of runs, batches and refused rows, in a file that can be deleted and is made again."""

from __future__ import annotations

import contextlib
import json
import sqlite3
import zlib
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from datetime import datetime
from pathlib import Path

_VERSION = 1
_PATIENCE = 1.0
"""How many seconds to wait for another process that writes."""
_LONGEST = 4_000
"""How much of a text is found by its words."""
_SHOWN = 300
"""How much of a text a caller gets."""
_BITS = 31
"""The bits of a place that distinguish what happened in the same second. The bits above them are the second."""
_NEWEST = 1 << 62
_TABLES = (
    "CREATE VIRTUAL TABLE IF NOT EXISTS entries USING fts5(facts, text, body UNINDEXED, "
    "tokenize = 'unicode61 remove_diacritics 2')",
    "CREATE TABLE IF NOT EXISTS marks (pipeline TEXT, source TEXT, mark TEXT, PRIMARY KEY (pipeline, source)) STRICT",
)


@dataclass(frozen=True, kw_only=True)
class Indexed:
    """A run, a batch or a refused row. Its text has no secret and no protected value."""

    pipeline: str
    kind: str
    """`run`, `batch` or `row`."""
    name: str
    """The id of the run, of the batch or of the refused row."""
    run: str
    status: str
    at: str
    """When it began or happened, in ISO form."""
    text: str

    @property
    def facts(self) -> str:
        """The words that find it by its facts."""
        return f"{_name_fact('p', self.pipeline)} {_name_fact('k', self.kind)} {_name_fact('s', self.status)}"

    @property
    def body(self) -> str:
        """What a caller gets, as JSON."""
        return json.dumps({**asdict(self), "text": self.text[:_SHOWN]})


def _name_fact(kind: str, value: str) -> str:
    """Return a word without special characters for a fact."""
    return kind + value.encode().hex()


@dataclass(frozen=True, kw_only=True)
class Wanted:
    """What is searched for. Everything that is given has to fit."""

    text: str = ""
    """Words, or beginnings of words. Case and accents do not matter."""
    pipelines: Collection[str]
    """Only in these pipelines."""
    kind: str = ""
    status: str = ""
    since: datetime | None = None
    """At this second or later."""
    until: datetime | None = None
    """Before this second."""
    before: int = _NEWEST
    """Only what comes after this place in the list."""
    limit: int = 20

    def format_match(self) -> str:
        """Return the condition in the words of FTS5."""
        words = [word.replace('"', "").replace("\0", "") for word in self.text.split()]
        found = [f'text : "{word}" *' for word in words if any(map(str.isalnum, word))]
        found.append(f"facts : ({' OR '.join(_name_fact('p', name) for name in sorted(self.pipelines))})")
        found += [f"facts : {_name_fact('k', self.kind)}"] if self.kind else []
        found += [f"facts : {_name_fact('s', self.status)}"] if self.status else []
        return " AND ".join(found)


class Index:
    """The index in a file. Any number of threads and processes may use it.

    Each method raises `sqlite3.Error` or `OSError` if the file cannot be used. A broken file is deleted then.
    """

    def __init__(self, file: Path) -> None:
        self._file = file

    def put(self, entries: Iterable[Indexed]) -> None:
        """Add these, all or none. What is there already is replaced."""
        with self._open() as tables:
            for entry in entries:
                self._put_one(tables, entry)

    def _put_one(self, tables: sqlite3.Connection, entry: Indexed) -> None:
        place, body = _find_place(entry), entry.body
        while (found := tables.execute("SELECT body FROM entries WHERE rowid = ?", (place,)).fetchone()) is not None:
            there = json.loads(found[0])
            if (there["pipeline"], there["kind"], there["name"]) == (entry.pipeline, entry.kind, entry.name):
                break
            place += 1
        if found is None:
            text = entry.text[:_LONGEST]
            tables.execute(
                "INSERT INTO entries (rowid, facts, text, body) VALUES (?, ?, ?, ?)", (place, entry.facts, text, body)
            )
        elif found[0] != body:
            changes = (entry.facts, entry.text[:_LONGEST], body, place)
            tables.execute("UPDATE entries SET facts = ?, text = ?, body = ? WHERE rowid = ?", changes)

    def read_marks(self, pipeline: str) -> Mapping[str, str]:
        """Return how far each source of a pipeline was read."""
        with self._open() as tables:
            return dict(tables.execute("SELECT source, mark FROM marks WHERE pipeline = ?", (pipeline,)).fetchall())

    def mark(self, pipeline: str, marks: Mapping[str, str]) -> None:
        """Note how far the sources of a pipeline were read."""
        with self._open() as tables:
            rows = [(pipeline, source, mark) for source, mark in marks.items()]
            tables.executemany("INSERT OR REPLACE INTO marks VALUES (?, ?, ?)", rows)

    def count(self, pipeline: str, kind: str) -> int:
        """Return how many entries of this kind a pipeline has."""
        match = f"facts : {_name_fact('p', pipeline)} AND facts : {_name_fact('k', kind)}"
        with self._open() as tables:
            return int(tables.execute("SELECT count(*) FROM entries WHERE entries MATCH ?", (match,)).fetchone()[0])

    def forget(self, pipeline: str, kind: str = "") -> None:
        """Remove all entries of a pipeline, or those of a kind. Without a kind, its marks go too."""
        match = f"facts : {_name_fact('p', pipeline)}" + (f" AND facts : {_name_fact('k', kind)}" if kind else "")
        chosen = "SELECT rowid FROM entries WHERE entries MATCH ?"
        with self._open() as tables:
            tables.execute(f"DELETE FROM entries WHERE rowid IN ({chosen})", (match,))
            if not kind:
                tables.execute("DELETE FROM marks WHERE pipeline = ?", (pipeline,))

    def list_pipelines(self) -> Collection[str]:
        """Return the pipelines that were read."""
        with self._open() as tables:
            return {row[0] for row in tables.execute("SELECT DISTINCT pipeline FROM marks WHERE pipeline <> ''")}

    def search(self, wanted: Wanted) -> list[tuple[int, Mapping[str, str]]]:
        """Return what fits, the newest first, each with its place in the list."""
        if not wanted.pipelines:
            return []
        first = 0 if wanted.since is None else int(wanted.since.timestamp()) << _BITS
        last = wanted.before if wanted.until is None else min(wanted.before, int(wanted.until.timestamp()) << _BITS)
        query = (
            "SELECT rowid, body FROM entries WHERE entries MATCH ? AND rowid >= ? AND rowid < ? "
            "ORDER BY rowid DESC LIMIT ?"
        )
        with self._open() as tables:
            rows = tables.execute(query, (wanted.format_match(), first, last, wanted.limit)).fetchall()
        return [(place, json.loads(body)) for place, body in rows]

    @contextlib.contextmanager
    def _open(self) -> Iterator[sqlite3.Connection]:
        """Open the file, as one transaction. A file of another version is replaced by an empty one."""
        try:
            with contextlib.closing(sqlite3.connect(self._file, timeout=_PATIENCE)) as tables, tables:
                version = tables.execute("PRAGMA user_version").fetchone()[0]
                if version not in (0, _VERSION):
                    raise sqlite3.DatabaseError(f"the index has version {version}")
                if version == 0:
                    tables.execute("PRAGMA journal_mode = WAL")
                    tables.execute(f"PRAGMA user_version = {_VERSION}")
                for table in _TABLES:
                    tables.execute(table)
                yield tables
        except sqlite3.OperationalError:  # locked, full or not readable: the file is whole
            raise
        except sqlite3.DatabaseError:
            for ending in ("", "-wal", "-shm"):
                self._file.with_name(self._file.name + ending).unlink(missing_ok=True)
            raise


def _find_place(entry: Indexed) -> int:
    """Return the place of an entry in the list: its second, and below that a number made of its name."""
    second = max(0, int(datetime.fromisoformat(entry.at).timestamp())) if entry.at else 0
    number = zlib.crc32(f"{entry.kind} {entry.pipeline} {entry.name}".encode()) & ((1 << _BITS) - 1)
    return (second << _BITS) | number
