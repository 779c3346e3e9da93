"""A table of a catalog whose server was started anew; nothing but words stands for Spark."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING, cast

import pytest

from runners.state.ledger import ENTRIES, LedgerError
from runners.state.spark_ledger import CatalogTable
from tests.spark_errors import spark_error

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture
def reconnected(monkeypatch: pytest.MonkeyPatch) -> list[object]:
    """The sessions that were given another one's place."""
    sessions: list[object] = []
    monkeypatch.setattr("runners.state.spark_ledger.reconnect", sessions.append)
    return sessions


def table() -> CatalogTable:
    """One of a server that has forgotten the session when it is first asked, and that has no such table."""
    answers = iter([spark_error("NO_ACTIVE_SESSION", "No active Spark session found."), None])

    def exists(_: str) -> bool:
        error = next(answers)
        if error is not None:
            raise error
        return False

    spark = cast("SparkSession", SimpleNamespace(catalog=SimpleNamespace(tableExists=exists)))
    return CatalogTable(spark, "main.ledger", ENTRIES)


def test_what_is_read_is_read_once_more_in_another_session(reconnected: list[object]) -> None:
    """Reading twice is reading once."""
    assert table().rows() == []
    assert len(reconnected) == 1


def test_what_was_written_is_asked_for_in_another_session(reconnected: list[object]) -> None:
    """Nobody knows whether it landed, so it is told as an error, behind which the ledger looks."""
    with pytest.raises(LedgerError, match="cannot be written"):
        table().commit([], "true")
    assert len(reconnected) == 1
