"""The search index: the words of runs, batches and refused rows. It can be deleted, and is made again."""

from __future__ import annotations

import json
import zlib
from abc import ABC, abstractmethod
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass, replace
from datetime import datetime
from typing import Any, Protocol

VERSION = 2
"""The version of the tables. An index of an older version is made again."""
LONGEST = 5.0
"""How many seconds a search may take."""
PATIENCE = 1.0
"""How many seconds to wait for another process that writes."""
_LONGEST_TEXT = 4_000
"""How much of a text is found by its words."""
_SHOWN = 300
"""How much of a text a caller gets."""
_BITS = 31
"""The bits of a place that distinguish what happened in the same second. The bits above them are the second."""
_NEWEST = (1 << 63) - 1
_LAST_SECOND = (1 << 32) - 1


class IndexUnusable(Exception):
    """The index cannot be used now, or a search took too long."""


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
    def facts(self) -> Sequence[str]:
        """The words that find it by its facts, and a run by its name."""
        named = [name_fact("n", self.name)] if self.kind == "run" else []
        return [name_fact("p", self.pipeline), name_fact("k", self.kind), name_fact("s", self.status), *named]

    @property
    def searched(self) -> str:
        """The text that is found by its words."""
        return self.text[:_LONGEST_TEXT]

    @property
    def body(self) -> str:
        """What a caller gets, as JSON."""
        return json.dumps({**asdict(self), "text": self.text[:_SHOWN]})


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

    @property
    def words(self) -> Sequence[str]:
        """The words of the text that have a letter or a digit."""
        words = [word.replace('"', "").replace("\0", "") for word in self.text.split()]
        return [word for word in words if any(map(str.isalnum, word))]

    @property
    def facts(self) -> Sequence[Sequence[str]]:
        """The words for facts. Of each group, an entry has one."""
        groups = [[name_fact("p", name) for name in sorted(self.pipelines)]]
        groups += [[name_fact("k", self.kind)]] if self.kind else []
        groups += [[name_fact("s", self.status)]] if self.status else []
        return groups


class Tables(Protocol):
    """An open transaction."""

    def execute(self, query: str, given: Sequence[Any] = ()) -> Any:
        """Carry out a query with `?` for what is given."""


class Index(ABC):
    """The index. Any number of threads and processes may use it.

    Each method raises `IndexUnusable` if the index cannot be used.
    """

    @abstractmethod
    def claim(self) -> AbstractContextManager[bool]:
        """Let only one process fill the index inside the block. Yield whether it is the caller."""

    @abstractmethod
    def open(self, longest: float | None = None) -> AbstractContextManager[Tables]:
        """Open the tables `entries` and `marks`, as one transaction. Its queries take at most so many seconds."""

    @abstractmethod
    def match(self, words: Sequence[str], facts: Sequence[Sequence[str]]) -> tuple[str, str]:
        """Return the condition that an entry has all words and a fact of each group, and what fills its one `?`."""

    @abstractmethod
    def insert(self, tables: Tables, place: int, entry: Indexed) -> None:
        """Add an entry at a place that is free."""

    @abstractmethod
    def forget(self, pipeline: str, kind: str = "") -> None:
        """Remove all entries of a pipeline, or those of a kind. Without a kind, its marks go too."""

    def put(self, entries: Iterable[Indexed]) -> None:
        """Add these, all or none. What is there already is replaced."""
        with self.open() as tables:
            for entry in entries:
                self._put_one(tables, replace(entry, text=entry.text.encode(errors="replace").decode()))

    def _put_one(self, tables: Tables, entry: Indexed) -> None:
        place, body = _find_place(entry), entry.body
        if entry.kind == "run":  # a run that took over may tell another beginning of it
            condition, given = self.match((), [[name_fact("p", entry.pipeline)], [name_fact("n", entry.name)]])
            tables.execute(f"DELETE FROM entries WHERE {condition} AND body <> ?", (given, body))
        while (found := tables.execute("SELECT body FROM entries WHERE rowid = ?", (place,)).fetchone()) is not None:
            there = json.loads(found[0])
            if (there["pipeline"], there["kind"], there["name"]) == (entry.pipeline, entry.kind, entry.name):
                break
            place += 1
        if found is not None and found[0] != body:
            tables.execute("DELETE FROM entries WHERE rowid = ?", (place,))
        if found is None or found[0] != body:
            self.insert(tables, place, entry)

    def read_marks(self, pipeline: str) -> Mapping[str, str]:
        """Return how far each source of a pipeline was read."""
        with self.open() as tables:
            return dict(tables.execute("SELECT source, mark FROM marks WHERE pipeline = ?", (pipeline,)).fetchall())

    def read_source(self, source: str) -> Mapping[str, str]:
        """Return the marks of a source, by pipeline."""
        with self.open() as tables:
            return dict(tables.execute("SELECT pipeline, mark FROM marks WHERE source = ?", (source,)).fetchall())

    def mark(self, pipeline: str, marks: Mapping[str, str]) -> None:
        """Note how far the sources of a pipeline were read."""
        noted = "INSERT INTO marks VALUES (?, ?, ?) ON CONFLICT (pipeline, source) DO UPDATE SET mark = excluded.mark"
        with self.open() as tables:
            for source, mark in marks.items():
                tables.execute(noted, (pipeline, source, mark))

    def count(self, pipeline: str, kind: str) -> int:
        """Return how many entries of this kind a pipeline has."""
        condition, given = self.match((), [[name_fact("p", pipeline)], [name_fact("k", kind)]])
        with self.open() as tables:
            return int(tables.execute(f"SELECT count(*) FROM entries WHERE {condition}", (given,)).fetchone()[0])

    def search(self, wanted: Wanted, longest: float = LONGEST) -> list[tuple[int, Mapping[str, str]]]:
        """Return what fits, the newest first, each with its place."""
        if not wanted.pipelines:
            return []
        first = 0 if wanted.since is None else _find_first(wanted.since)
        last = min(wanted.before, _NEWEST if wanted.until is None else _find_first(wanted.until))
        condition, given = self.match(wanted.words, wanted.facts)
        query = (
            f"SELECT rowid, body FROM entries WHERE {condition} AND rowid >= ? AND rowid < ? "
            "ORDER BY rowid DESC LIMIT ?"
        )
        with self.open(longest) as tables:
            rows = tables.execute(query, (given, first, last, wanted.limit)).fetchall()
        return [(place, json.loads(body)) for place, body in rows]

    def remove(self, tables: Tables, pipeline: str, kind: str) -> None:
        """Remove the entries of a pipeline, or those of a kind. Without a kind, its marks go too."""
        facts = [[name_fact("p", pipeline)], *([[name_fact("k", kind)]] if kind else [])]
        condition, given = self.match((), facts)
        tables.execute(f"DELETE FROM entries WHERE {condition}", (given,))
        if not kind:
            tables.execute("DELETE FROM marks WHERE pipeline = ?", (pipeline,))


def name_fact(kind: str, value: str) -> str:
    """Return a word of letters and digits for a fact."""
    return kind + value.encode().hex()


def explain_slow(longest: float) -> str:
    """Return what to do about a search that takes too long."""
    return f"the search took longer than {longest:.0f} seconds, so narrow it"


def _find_first(moment: datetime) -> int:
    """Return the first place of a second."""
    return min(max(0, int(moment.timestamp())), _LAST_SECOND) << _BITS


def _find_place(entry: Indexed) -> int:
    """Return the place of an entry in the list: its second, and below that a number made of its name."""
    first = _find_first(datetime.fromisoformat(entry.at)) if entry.at else 0
    number = zlib.crc32(f"{entry.kind} {entry.pipeline} {entry.name}".encode()) & ((1 << _BITS) - 1)
    return first | number
