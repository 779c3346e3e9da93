"""The search of runs, batches and refused rows. PostgreSQL's client is needed only if the index is there."""

from __future__ import annotations

from pathlib import Path

from runners.service.search.index import Index
from runners.service.search.sqlite_index import SqliteIndex


def open_index(address: str, file: Path) -> Index:
    """Return the search index at an address of PostgreSQL, or in a file if there is no address."""
    if not address:
        return SqliteIndex(file)
    from runners.service.search.postgres_index import PostgresIndex

    return PostgresIndex(address)
