"""The search index in a file of SQLite, with its full-text search."""

from __future__ import annotations

import contextlib
import fcntl
import sqlite3
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from runners.service.search.index import PATIENCE, VERSION, Index, Indexed, IndexUnusable, Tables, explain_slow

_STEPS = 1_000
"""After how many steps of SQLite the time of a search is looked at."""
_BROKEN = ("malformed", "not a database")
"""What errors say about a file whose content is lost."""
_TABLES = (
    "CREATE VIRTUAL TABLE IF NOT EXISTS entries USING fts5(facts, text, body UNINDEXED, "
    "tokenize = 'unicode61 remove_diacritics 2')",
    "CREATE TABLE IF NOT EXISTS marks (pipeline TEXT, source TEXT, mark TEXT, PRIMARY KEY (pipeline, source)) STRICT",
)


class SqliteIndex(Index):
    """The index in a file. A file that is broken, or of an older version, is deleted when it is opened."""

    def __init__(self, file: Path) -> None:
        self._file = file

    @contextlib.contextmanager
    def claim(self) -> Iterator[bool]:
        with self._file.with_name("index.lock").open("a") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                mine = True
            except BlockingIOError:
                mine = False
            yield mine

    @contextlib.contextmanager
    def open(self, longest: float | None = None) -> Iterator[Tables]:
        with _translate(longest), self._open() as tables:
            if longest is not None:
                end = time.monotonic() + longest
                tables.set_progress_handler(lambda: time.monotonic() > end, _STEPS)
            yield tables

    @contextlib.contextmanager
    def _open(self) -> Iterator[sqlite3.Connection]:
        try:
            with contextlib.closing(sqlite3.connect(self._file, timeout=PATIENCE)) as tables, tables:
                version = tables.execute("PRAGMA user_version").fetchone()[0]
                if version > VERSION:
                    raise sqlite3.DatabaseError("a newer version of Wherry made it")
                if 0 < version < VERSION:
                    raise sqlite3.DatabaseError(f"an older version of Wherry made it, so it counts as {_BROKEN[0]}")
                if version == 0:
                    tables.execute("PRAGMA journal_mode = WAL")
                    for table in _TABLES:
                        tables.execute(table)
                    tables.execute(f"PRAGMA user_version = {VERSION}")  # last, so that the tables are there with it
                yield tables
        except sqlite3.DatabaseError as error:
            if any(sign in str(error) for sign in _BROKEN):
                for ending in ("", "-wal", "-shm"):
                    self._file.with_name(self._file.name + ending).unlink(missing_ok=True)
            raise

    def match(self, words: Sequence[str], facts: Sequence[Sequence[str]]) -> tuple[str, str]:
        terms = [f'text : "{word}" *' for word in words] + [f"facts : ({' OR '.join(each)})" for each in facts]
        return "entries MATCH ?", " AND ".join(terms)

    def insert(self, tables: Tables, place: int, entry: Indexed) -> None:
        values = (place, " ".join(entry.facts), entry.searched, entry.body)
        tables.execute("INSERT INTO entries (rowid, facts, text, body) VALUES (?, ?, ?, ?)", values)

    def forget(self, pipeline: str, kind: str = "") -> None:
        """Remove them also from free parts of the file."""
        with self.open() as tables:
            tables.execute("PRAGMA secure_delete = ON")
            self.remove(tables, pipeline, kind)
            tables.execute("INSERT INTO entries (entries) VALUES ('optimize')")
        with self.open() as tables:
            tables.execute("PRAGMA wal_checkpoint(TRUNCATE)")


@contextlib.contextmanager
def _translate(longest: float | None = None) -> Iterator[None]:
    """Raise `IndexUnusable` for an error of SQLite or of the file."""
    try:
        yield
    except (sqlite3.Error, OSError) as error:
        slow = longest is not None and "interrupted" in str(error)
        raise IndexUnusable(explain_slow(longest or 0) if slow else str(error)) from error
