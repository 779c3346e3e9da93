"""The run history of a state in a catalog."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from typing import TYPE_CHECKING

import pytest

from runners.state import run_history
from runners.state.run_history import RunHistory, WantedRuns
from tests.runners.state.test_run_history import NOON, begin_row, end_row, join_names

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark


@pytest.fixture
def history(spark: SparkSession) -> Iterator[RunHistory]:
    """Return a history in a separate schema, which keeps ten minutes."""
    spark.sql("CREATE SCHEMA IF NOT EXISTS run_histories")
    yield RunHistory("run_histories.orders_runs", timedelta(minutes=10), spark)
    spark.sql("DROP SCHEMA run_histories CASCADE")


@pytest.mark.connect
@pytest.mark.promise("CN-15", "CN-17")
def test_runs_are_kept_found_and_archived(
    history: RunHistory, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Runs are listed and filtered as in a folder. Old runs go into the archive."""
    assert history.list_runs() == []
    first, second, third, fourth = (begin_row(f"{name}-run", minutes=at) for at, name in enumerate("abcd"))
    history.write([first])
    history.write([end_row(first), second, end_row(second, "failed"), third, fourth, end_row(fourth)])
    found = history.list_runs()
    assert join_names(found) == "dcba"
    assert [each["status"] for each in found] == ["succeeded", "running", "failed", "succeeded"]
    assert (found[0]["read"], found[0]["ended_at"]) == (1_000, "2026-06-01T12:03:04.500+00:00")
    assert join_names(history.list_runs(WantedRuns(status="failed"))) == "b"
    assert join_names(history.list_runs(WantedRuns(status="killed", fates={"c-run": "killed"}))) == "c"
    assert join_names(history.list_runs(WantedRuns(since=NOON + timedelta(minutes=2), limit=1))) == "d"
    (one,) = history.list_runs(WantedRuns(run="b-run", report=True))
    assert one["error"] == "it's <b>full</b>"
    assert one["report"]["destinations"]["orders"]["delivered"] == 997
    took = spark.sql("SELECT max(ended_at) - min(started_at) AS took FROM run_histories.orders_runs").collect()[0]
    assert took["took"] == timedelta(minutes=3, seconds=4.5)
    monkeypatch.setattr(run_history, "FILES", 1)
    history.write([end_row(begin_row("e-run", minutes=12))])
    assert join_names(history.list_runs()) == "edc"
    history.write([end_row(begin_row("f-run", minutes=13))])
    assert join_names(history.list_runs(WantedRuns(archived=True))) == "fedcba"
    assert history.list_runs(WantedRuns(run="a-run", archived=True, report=True))[0]["report"] is None
