"""A table of a catalog whose server was restarted. Doubles stand in for Spark."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING, cast

import pytest

from runners.state.ledger import ENTRIES, LedgerError
from runners.state.spark_ledger import CatalogTable
from tests.spark_errors import make_spark_error

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture
def reconnected(monkeypatch: pytest.MonkeyPatch) -> list[object]:
    """Return the list of sessions that were replaced."""
    sessions: list[object] = []
    monkeypatch.setattr("runners.state.spark_ledger.reconnect", sessions.append)
    return sessions


def make_table() -> CatalogTable:
    """Return a table of a server that has lost the session at the first request. The table does not exist."""
    lost = make_spark_error("NO_ACTIVE_SESSION", "No active Spark session found.")
    answers = iter([lost, make_spark_error("TABLE_OR_VIEW_NOT_FOUND", "The table or view cannot be found.")])

    def answer(_: str) -> bool:
        raise next(answers)

    spark = SimpleNamespace(catalog=SimpleNamespace(tableExists=answer), read=SimpleNamespace(table=answer))
    return CatalogTable(cast("SparkSession", spark), "main.ledger", ENTRIES)


def test_a_read_is_repeated_in_a_new_session(reconnected: list[object]) -> None:
    """A second read has no effect on the table."""
    assert make_table().rows() == []
    assert len(reconnected) == 1


def test_a_write_is_not_repeated_in_a_new_session(reconnected: list[object]) -> None:
    """It may have landed, so it raises an error and the ledger checks."""
    with pytest.raises(LedgerError, match="cannot be written"):
        make_table().commit([], "true")
    assert len(reconnected) == 1
