"""Which rows a run deletes."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone
from types import SimpleNamespace
from typing import cast
from unittest.mock import Mock

import pyarrow as pa
from deltalake import write_deltalake
from pyspark.sql import SparkSession

from destinations.dead_letters import make_filtered_schema
from destinations.delta.delta import Delta
from destinations.delta.lock import hold_table
from origins.spark_versions import make_arrow_schema
from origins.store_access import StoreUrl
from runners.running.cleanup import Cleanup
from tests.manual_clock import ManualClock
from tests.stores.s3 import S3

NOON = datetime(2026, 1, 1, 12, tzinfo=timezone.utc)


def test_filtered_rows_in_a_store_are_deleted_while_the_table_is_locked(s3: S3) -> None:
    """In S3, a commit of Spark may replace a commit of another thread."""
    rows = [{**dict.fromkeys(make_filtered_schema().names), "plan": "p", "filtered_at": NOON}]
    schema = make_arrow_schema(make_filtered_schema())
    write_deltalake(s3.make_url("filtered"), pa.Table.from_pylist(rows, schema), storage_options=s3.storage_options)
    filtered = Delta(path=StoreUrl(s3.make_url("filtered"), s3.spark_settings))
    held: list[bool] = []

    def delete(statement: str) -> Mock:
        assert statement.startswith("DELETE FROM")
        with hold_table(filtered.place, apart=True) as is_held:
            held.append(is_held)
        return Mock()

    cleanup = Cleanup(
        pipeline=Mock(keeps_filtered=True, keep_filtered="1d"),
        place=Mock(),
        destinations={},
        dlq=Mock(),
        filtered=filtered,
        clock=ManualClock(NOON + timedelta(days=2)),
    )
    cleanup.drop_filtered(cast("SparkSession", SimpleNamespace(sql=delete)))
    assert held == [False]
