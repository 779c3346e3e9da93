"""Provide a search index, once in each database."""

from __future__ import annotations

from pathlib import Path

import pytest

from runners.service.search.index import Index
from runners.service.search.postgres_index import PostgresIndex
from runners.service.search.sqlite_index import SqliteIndex


@pytest.fixture(params=["sqlite", "postgres"])
def index(request: pytest.FixtureRequest, tmp_path: Path) -> Index:
    """An empty index."""
    if request.param == "sqlite":
        return SqliteIndex(tmp_path / "index.sqlite")
    return PostgresIndex(request.getfixturevalue("postgres"))
