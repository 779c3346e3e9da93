"""The sessions of a run after it has read a large value."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import pytest

from runners.spark.session_pool import SessionPool

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.connect]
SETTINGS = {"parquet.page.size.row.check.min": "1", "spark.sql.parquet.columnarReaderBatchSize": "8"}


def test_all_sessions_of_a_run_read_few_rows_at_a_time_after_a_large_value(spark: SparkSession) -> None:
    """Existing and later sessions of the pool change. The session of the caller does not."""
    pool = SessionPool(spark, "group")

    def read_settings() -> dict[str, str | None]:
        with pool.use_session() as session:
            return {key: session.conf.get(key, None) for key in SETTINGS}

    assert read_settings() != SETTINGS
    pool.fit_large_rows()
    with ThreadPoolExecutor(1) as other:
        assert [read_settings(), other.submit(read_settings).result()] == [SETTINGS] * 2
    assert {key: spark.conf.get(key, None) for key in SETTINGS} != SETTINGS
