"""Files and a table in HDFS, which only Spark reaches, beside a state in a folder."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from deltalake import DeltaTable

from origins.crash_points import watch_points
from runners.pipeline import Pipeline
from tests.crash_injector import CrashInjector
from tests.stores.hdfs import Hdfs

pytestmark = pytest.mark.spark

TEXT = """
name: orders
origin:
  files: {path: "FOLDER/landing/*.json", format: json, schema: "id long, amount string"}
stages:
  - cast: {amount: "decimal(10,2)"}
destinations:
  - delta: {path: "FOLDER/tables/orders"}
dlq: {window: 0}
run: {batch: {files: 1}, runners: 1, retry: {wait: 100ms, most: 1s}}
"""


def load_pipeline(folder: Path, hdfs: Hdfs) -> Pipeline:
    """Load the pipeline, with its files and its table in HDFS."""
    file = folder / "pipeline.yaml"
    file.write_text(TEXT.replace("FOLDER", hdfs.make_url().rstrip("/")))
    return Pipeline.load(file)


def put_files(folder: Path, hdfs: Hdfs, *numbers: int) -> None:
    """Put a file for each number into HDFS. It has a row, and a row with an amount that is no number."""
    landing = folder / "landing"
    landing.mkdir()
    for number in numbers:
        rows = [{"id": number, "amount": "1.50"}, {"id": -number, "amount": "n/a"}]
        (landing / f"{number}.json").write_text("\n".join(map(json.dumps, rows)))
    hdfs.put(landing)


@pytest.mark.long
def test_a_run_reads_and_writes_hdfs(tmp_path: Path, hdfs: Hdfs) -> None:
    """A crash after the write delivers no row twice, the refused rows are in the DLQ, and the audit balances."""
    put_files(tmp_path, hdfs, 1, 2, 3)
    crash = CrashInjector("after-write", end=None)
    with watch_points(crash):
        ended = load_pipeline(tmp_path, hdfs).run(check=False, listeners=[crash.note_event])
    assert (crash.happened, ended.status) == (True, "failed")
    report = load_pipeline(tmp_path, hdfs).run()
    assert (report.status, report.left_open) == ("succeeded", 0)
    rows = DeltaTable(hdfs.make_url("tables/orders")).to_pyarrow_table()["id"].to_pylist()
    refused = [each["row"]["id"] for each in load_pipeline(tmp_path, hdfs).refused.list()]
    assert (sorted(rows), sorted(refused)) == ([1, 2, 3], [-3, -2, -1])
    assert load_pipeline(tmp_path, hdfs).audit().json()["problems"] == []
