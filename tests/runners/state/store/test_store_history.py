"""The run history in an object store."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone

from deltalake import DeltaTable

from origins.store_access import StoreUrl
from runners.state.run_history import RunHistory, RunRow, get_writer
from tests.stores.s3 import S3

NOON = datetime(2026, 6, 1, 12, tzinfo=timezone.utc)


def test_the_log_of_the_history_is_kept_as_long_as_that_of_the_ledger(s3: S3) -> None:
    """A process that slept for less than a week cannot take a used version again."""
    url = StoreUrl(s3.make_url("state/runs"), s3.spark_settings)
    history = RunHistory(url, timedelta(days=90))
    history.write([RunRow(run="r", pipeline="orders", status="running", started_at=NOON)])
    table = DeltaTable(str(url), storage_options=s3.storage_options)
    assert table.metadata().configuration["delta.logRetentionDuration"] == "interval 7 days"
    assert [run["run"] for run in history.list_runs()] == ["r"]


def test_runs_with_other_credentials_have_another_writer() -> None:
    """Runs with the same credentials share a writer, even one after the other."""

    def find_writer(key: str) -> object:
        url = StoreUrl("s3://bucket/state/runs", {"spark.hadoop.fs.s3a.access.key": key})
        return get_writer(RunHistory(url, timedelta(days=90)))

    assert find_writer("a") is find_writer("a")
    assert find_writer("a") is not find_writer("b")
