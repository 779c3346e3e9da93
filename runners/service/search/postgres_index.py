"""The search index in a database of PostgreSQL, which servers on several machines share."""

from __future__ import annotations

import contextlib
import itertools
import unicodedata
from collections import defaultdict
from collections.abc import Iterator, Sequence
from importlib.util import find_spec
from typing import Any

from runners.model.errors import Refusal
from runners.service.search.index import PATIENCE, VERSION, Index, Indexed, IndexUnusable, Tables, explain_slow

if find_spec("psycopg") is None:
    raise Refusal(
        "WHERRY_INDEX needs psycopg, which is not installed.",
        hint='Type:  pip install "wherry[postgres]"',
    )

import psycopg
from psycopg import conninfo, errors

_PLACES = 16_383
"""The positions of words that PostgreSQL tells apart."""
_LONGEST_WORD = 400
"""How many letters of a word count. PostgreSQL takes 2,046 bytes."""
_MAKING, _FILLING = 7_230_561_001, 7_230_561_002
"""The numbers of the locks in the database: of making the tables, and of filling them."""
_TABLES = (
    "CREATE TABLE entries (rowid bigint PRIMARY KEY, words tsvector NOT NULL, body text NOT NULL)",
    "CREATE INDEX entries_words ON entries USING gin (words)",
    "CREATE TABLE marks (pipeline text, source text, mark text NOT NULL, PRIMARY KEY (pipeline, source))",
)
_WAIT_TO_CONNECT, _WAIT_FOR_TABLES = 3, 30.0
"""How many seconds to wait for a connection, and for another server that makes the tables."""


class _Transaction:
    """A transaction whose queries have `?` for what is given."""

    def __init__(self, connection: psycopg.Connection[tuple[Any, ...]]) -> None:
        self._connection = connection

    def execute(self, query: str, given: Sequence[Any] = ()) -> Any:
        return self._connection.execute(query.replace("?", "%s").encode(), given)


class PostgresIndex(Index):
    """The index in a schema of a database. The tables of an older version are dropped and made again.

    The first schema of the connection's search path has the tables. Servers of another folder need another schema.
    """

    def __init__(self, address: str) -> None:
        try:
            conninfo.conninfo_to_dict(address)
        except psycopg.Error:
            raise Refusal(
                "WHERRY_INDEX is no address of PostgreSQL.",
                hint="Set it to an address such as postgresql://user:password@host/database.",
            ) from None
        self._address = address

    @contextlib.contextmanager
    def claim(self) -> Iterator[bool]:
        with _translate():
            connection = self._connect()
        with connection:
            with _translate():
                found = connection.execute("SELECT pg_try_advisory_lock(%s)", (_FILLING,)).fetchone()
            yield found == (True,)

    @contextlib.contextmanager
    def open(self, longest: float | None = None) -> Iterator[Tables]:
        with _translate(longest), self._connect() as connection:
            if _read_version(connection) != VERSION:
                _make_tables(connection)
            _limit(connection, "lock_timeout", PATIENCE)
            if longest is not None:
                _limit(connection, "statement_timeout", longest)
            with connection.transaction():
                yield _Transaction(connection)

    def _connect(self) -> psycopg.Connection[tuple[Any, ...]]:
        return psycopg.connect(self._address, connect_timeout=_WAIT_TO_CONNECT, autocommit=True)

    def match(self, words: Sequence[str], facts: Sequence[Sequence[str]]) -> tuple[str, str]:
        phrases = [phrase for phrase in map(_split_words, words) if phrase]
        terms = [" <-> ".join([*map(_quote, phrase[:-1]), f"{_quote(phrase[-1])}:*"]) for phrase in phrases]
        terms += [" | ".join(_quote(_mark_fact(fact)) for fact in group) for group in facts]
        return "words @@ ?::tsquery", " & ".join(f"({term})" for term in terms)

    def insert(self, tables: Tables, place: int, entry: Indexed) -> None:
        places = defaultdict[str, list[str]](list)
        for number, word in enumerate(itertools.islice(_split_words(entry.searched), _PLACES), 1):
            places[word].append(str(number))
        words = [f"{_quote(word)}:{','.join(found)}" for word, found in places.items()]
        words += [_quote(_mark_fact(fact)) for fact in entry.facts]
        values = (place, " ".join(words), entry.body)
        tables.execute("INSERT INTO entries (rowid, words, body) VALUES (?, ?::tsvector, ?)", values)

    def forget(self, pipeline: str, kind: str = "") -> None:
        """Remove them also from the free parts of the table."""
        with self.open() as tables:
            self.remove(tables, pipeline, kind)
        with _translate(), self._connect() as connection:
            connection.execute("VACUUM entries")


def _make_tables(connection: psycopg.Connection[tuple[Any, ...]]) -> None:
    """Make the tables if they are missing or of an older version. Raise `IndexUnusable` if they are of a newer one."""
    _limit(connection, "lock_timeout", _WAIT_FOR_TABLES)
    connection.execute("SELECT pg_advisory_lock(%s)", (_MAKING,))
    try:
        version = _read_version(connection)  # another server may have made them
        if version is not None and version > VERSION:
            raise IndexUnusable("a newer version of Wherry made it")
        if version != VERSION:
            with connection.transaction():
                for change in ("DROP TABLE IF EXISTS entries, marks", *_TABLES):
                    connection.execute(change.encode())
                connection.execute("INSERT INTO marks VALUES ('', 'version', %s)", (str(VERSION),))
    finally:
        connection.execute("SELECT pg_advisory_unlock(%s)", (_MAKING,))


def _limit(connection: psycopg.Connection[tuple[Any, ...]], name: str, seconds: float) -> None:
    """Set a limit of the connection."""
    connection.execute("SELECT set_config(%s, %s, false)", (name, f"{max(1, round(seconds * 1_000))}ms"))


def _read_version(connection: psycopg.Connection[tuple[Any, ...]]) -> int | None:
    if connection.execute("SELECT to_regclass('marks')").fetchone() == (None,):
        return None
    found = connection.execute("SELECT mark FROM marks WHERE pipeline = '' AND source = 'version'").fetchone()
    return 0 if found is None else int(found[0])


@contextlib.contextmanager
def _translate(longest: float | None = None) -> Iterator[None]:
    """Raise `IndexUnusable` for an error of PostgreSQL."""
    try:
        yield
    except errors.QueryCanceled as error:
        raise IndexUnusable(explain_slow(longest or 0)) from error
    except (psycopg.Error, OSError) as error:
        raise IndexUnusable(" ".join(str(error).split())) from error


def _split_words(text: str) -> list[str]:
    """Return the words of letters and digits, without case and accents, as SQLite's search splits them."""
    plain = "".join(each for each in unicodedata.normalize("NFD", text.lower()) if not unicodedata.combining(each))
    groups = itertools.groupby(plain, str.isalnum)
    return ["".join(letters)[:_LONGEST_WORD] for is_word, letters in groups if is_word]


def _mark_fact(fact: str) -> str:
    """Return a word for a fact that no text has."""
    return f"={fact}"


def _quote(word: str) -> str:
    """Return a word as PostgreSQL reads it in a tsvector. It has letters and digits, and perhaps the sign of a fact."""
    return f"'{word}'"
