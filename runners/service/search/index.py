"""The search index: the words of runs, batches and refused rows, in a file that can be deleted and is made again."""

from __future__ import annotations

import contextlib
import json
import sqlite3
import time
import zlib
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from datetime import datetime
from pathlib import Path

_VERSION = 2
_PATIENCE = 1.0
"""How many seconds to wait for another process that writes."""
_LONGEST = 4_000
"""How much of a text is found by its words."""
_SHOWN = 300
"""How much of a text a caller gets."""
_BITS = 31
"""The bits of a place that distinguish what happened in the same second. The bits above them are the second."""
_NEWEST = (1 << 63) - 1
_LAST_SECOND = (1 << 32) - 1
_STEPS = 1_000
"""After how many steps of SQLite the time of a search is looked at."""
_BROKEN = ("malformed", "not a database")
"""What errors say about a file whose content is lost."""
_CHOSEN = "SELECT rowid FROM entries WHERE entries MATCH ?"
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
        """The words that find it by its facts, and a run by its name."""
        facts = {"p": self.pipeline, "k": self.kind, "s": self.status}
        facts |= {"n": self.name} if self.kind == "run" else {}
        return " ".join(_name_fact(kind, value) for kind, value in facts.items())

    @property
    def body(self) -> str:
        """What a caller gets, as JSON."""
        return json.dumps({**asdict(self), "text": self.text[:_SHOWN]})


def _match(*facts: str) -> str:
    """Return the condition in the words of FTS5 that an entry has all of these facts."""
    return " AND ".join(f"facts : {fact}" for fact in facts)


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
        found += [_match(_name_fact("k", self.kind))] if self.kind else []
        found += [_match(_name_fact("s", self.status))] if self.status else []
        return " AND ".join(found)


class Index:
    """The index in a file. Any number of threads and processes may use it.

    Each method raises `sqlite3.Error` or `OSError` if the file cannot be used. A file that is broken, or of an older
    version, is deleted then.
    """

    def __init__(self, file: Path, longest: float = 5.0) -> None:
        self._file = file
        self._longest = longest
        """How many seconds a search may take."""

    def put(self, entries: Iterable[Indexed]) -> None:
        """Add these, all or none. What is there already is replaced."""
        with self._open() as tables:
            for entry in entries:
                self._put_one(tables, replace(entry, text=entry.text.encode(errors="replace").decode()))

    def _put_one(self, tables: sqlite3.Connection, entry: Indexed) -> None:
        place, body = _find_place(entry), entry.body
        if entry.kind == "run":  # a run that took over may tell another beginning of it
            match = _match(_name_fact("p", entry.pipeline), _name_fact("n", entry.name))
            tables.execute(f"DELETE FROM entries WHERE rowid IN ({_CHOSEN}) AND body <> ?", (match, body))
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
        match = _match(_name_fact("p", pipeline), _name_fact("k", kind))
        with self._open() as tables:
            return int(tables.execute("SELECT count(*) FROM entries WHERE entries MATCH ?", (match,)).fetchone()[0])

    def forget(self, pipeline: str, kind: str = "") -> None:
        """Remove all entries of a pipeline, or those of a kind, also from free parts of the file.

        Without a kind, its marks go too.
        """
        match = _match(_name_fact("p", pipeline), *([_name_fact("k", kind)] if kind else []))
        with self._open() as tables:
            tables.execute("PRAGMA secure_delete = ON")
            tables.execute(f"DELETE FROM entries WHERE rowid IN ({_CHOSEN})", (match,))
            tables.execute("INSERT INTO entries (entries) VALUES ('optimize')")
            if not kind:
                tables.execute("DELETE FROM marks WHERE pipeline = ?", (pipeline,))
        with self._open() as tables:
            tables.execute("PRAGMA wal_checkpoint(TRUNCATE)")

    def read_source(self, source: str) -> Mapping[str, str]:
        """Return the marks of a source, by pipeline."""
        with self._open() as tables:
            return dict(tables.execute("SELECT pipeline, mark FROM marks WHERE source = ?", (source,)).fetchall())

    def search(self, wanted: Wanted) -> list[tuple[int, Mapping[str, str]]]:
        """Return what fits, the newest first, each with its place. Raise `sqlite3.Error` if that takes too long."""
        if not wanted.pipelines:
            return []
        first = 0 if wanted.since is None else _find_first(wanted.since)
        last = min(wanted.before, _NEWEST if wanted.until is None else _find_first(wanted.until))
        query = (
            "SELECT rowid, body FROM entries WHERE entries MATCH ? AND rowid >= ? AND rowid < ? "
            "ORDER BY rowid DESC LIMIT ?"
        )
        with self._open() as tables:
            end = time.monotonic() + self._longest
            tables.set_progress_handler(lambda: time.monotonic() > end, _STEPS)
            try:
                rows = tables.execute(query, (wanted.format_match(), first, last, wanted.limit)).fetchall()
            except sqlite3.OperationalError as error:
                too_long = f"the search took longer than {self._longest:.0f} seconds, so narrow it"
                raise sqlite3.OperationalError(too_long if time.monotonic() > end else str(error)) from error
        return [(place, json.loads(body)) for place, body in rows]

    @contextlib.contextmanager
    def _open(self) -> Iterator[sqlite3.Connection]:
        """Open the file, as one transaction."""
        try:
            with contextlib.closing(sqlite3.connect(self._file, timeout=_PATIENCE)) as tables, tables:
                version = tables.execute("PRAGMA user_version").fetchone()[0]
                if version > _VERSION:
                    raise sqlite3.DatabaseError("a newer version of Wherry made it")
                if 0 < version < _VERSION:
                    raise sqlite3.DatabaseError(f"an older version of Wherry made it, so it counts as {_BROKEN[0]}")
                if version == 0:
                    tables.execute("PRAGMA journal_mode = WAL")
                    for table in _TABLES:
                        tables.execute(table)
                    tables.execute(f"PRAGMA user_version = {_VERSION}")  # last, so that the tables are there with it
                yield tables
        except sqlite3.DatabaseError as error:
            if any(sign in str(error) for sign in _BROKEN):
                for ending in ("", "-wal", "-shm"):
                    self._file.with_name(self._file.name + ending).unlink(missing_ok=True)
            raise


def _find_first(moment: datetime) -> int:
    """Return the first place of a second."""
    return min(max(0, int(moment.timestamp())), _LAST_SECOND) << _BITS


def _find_place(entry: Indexed) -> int:
    """Return the place of an entry in the list: its second, and below that a number made of its name."""
    first = _find_first(datetime.fromisoformat(entry.at)) if entry.at else 0
    number = zlib.crc32(f"{entry.kind} {entry.pipeline} {entry.name}".encode()) & ((1 << _BITS) - 1)
    return first | number
