"""The run history in an object store."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone

from deltalake import DeltaTable

from origins.object_store import StoreUrl
from runners.state.run_history import RunHistory, RunRow
from tests.stores.s3 import S3

NOON = datetime(2026, 6, 1, 12, tzinfo=timezone.utc)


def test_its_log_is_kept_as_long_as_the_ledgers(s3: S3) -> None:
    """A process that slept for less than a week finds no version free that was taken."""
    url = StoreUrl(s3.make_url("state/runs"), s3.spark_settings)
    history = RunHistory(url, timedelta(days=90))
    history.write([RunRow(run="r", pipeline="orders", status="running", started_at=NOON)])
    table = DeltaTable(str(url), storage_options=s3.storage_options)
    assert table.metadata().configuration["delta.logRetentionDuration"] == "interval 7 days"
    assert [run["run"] for run in history.list_runs()] == ["r"]
