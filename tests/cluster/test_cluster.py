"""Plain Spark on a cluster whose workers are isolated like other machines."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.child import clean_environment, run
from tests.cluster.cluster import Cluster
from tests.stores.azure import Azure
from tests.stores.jars import make_spark_settings
from tests.stores.s3 import S3

pytestmark = [pytest.mark.spark, pytest.mark.cluster]


def run_driver(cluster: Cluster, settings: dict[str, str], table: str, folder: Path) -> dict[str, Any]:
    """Return what `plain_driver` prints on the cluster."""
    settings = {**make_spark_settings(), **cluster.settings, **settings}
    command = [sys.executable, "-m", "tests.cluster.plain_driver", json.dumps(settings), table, str(folder)]
    done = run(command, clean_environment(PYSPARK_PYTHON=sys.executable))
    assert done.returncode == 0, done.stderr[-8_000:] + cluster.read_logs()[-8_000:]
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


@pytest.mark.long
def test_plain_spark_writes_to_s3_from_workers_without_the_folders_of_the_driver(
    cluster: Cluster, s3: S3, tmp_path: Path
) -> None:
    """The table is complete. The driver sees the test's folder, and the executors do not."""
    (tmp_path / "mine").touch()
    found = run_driver(cluster, s3.spark_settings, s3.make_url("table"), tmp_path)
    assert found == {
        "rows": 1_500,
        "sum": 1_500 * 1_499 // 2,
        "here": "mine",
        "there": ["missing"],
        "master": cluster.master,
    }
    counted = s3.proxy.count()
    assert counted["PUT"] >= 8  # six files and two commits
    assert counted["GET"] >= 6


@pytest.mark.long
def test_a_lost_worker_is_replaced(cluster: Cluster) -> None:
    """The master registers another worker."""
    cluster.kill_worker(0)
    assert cluster.count_workers() == 1
    cluster.start_missing_workers()
    assert cluster.count_workers() == 2


@pytest.mark.long
def test_plain_spark_writes_to_azure_from_workers(cluster: Cluster, azure: Azure, tmp_path: Path) -> None:
    """It writes through the Blob endpoint."""
    found = run_driver(cluster, azure.spark_settings, azure.make_url("table"), tmp_path)
    assert (found["rows"], found["sum"]) == (1_500, 1_500 * 1_499 // 2)
    assert azure.proxy.count()["PUT"] >= 8
