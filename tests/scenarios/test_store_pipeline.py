"""A pipeline whose tables and state are in an object store, with a Spark of its own for each run."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from deltalake import DeltaTable

from origins.object_store import ObjectStore, StoreUrl
from runners.pipeline import Pipeline
from runners.spark import session
from runners.spark.start import SparkMissing
from tests.child import clean_environment
from tests.stores import jars
from tests.stores.s3 import S3

pytestmark = pytest.mark.spark

TEXT = """
name: orders
origin:
  files: {path: "landing/*.csv", format: csv}
stages:
  - cast: {id: long, amount: "decimal(10,2)"}
dlq: {window: 0}
run: {batch: {files: 1}, runners: 1}
"""
HIDDEN = "q7Zp2wJrT9xKsecretV4"
"""A secret as no other text has it; moto takes any."""


def define(folder: Path, s3: S3) -> Path:
    """The definition, whose Spark has the JARs as files."""
    jars.fetch()
    (folder / "landing").mkdir()
    for number, rows in enumerate(["1,1.50\n2,2.50", "3,much\n4,4.50", "5,5.50"]):
        (folder / "landing" / f"{number}.csv").write_text(f"id,amount\n{rows}\n")
    conf = {
        **s3.spark_settings,
        "spark.hadoop.fs.s3a.secret.key": HIDDEN,
        "spark.jars": ",".join(map(str, jars.list_store_jars())),
    }
    ends = {
        "state": s3.make_url("wherry/orders", "s3"),
        "destinations": [{"delta": {"path": s3.make_url("tables/orders", "s3")}}],
        "spark": {"conf": conf},
    }
    file = folder / "orders.yaml"
    file.write_text(TEXT + "".join(f"{name}: {json.dumps(value)}\n" for name, value in ends.items()))
    return file


def call(*words: str) -> subprocess.CompletedProcess[str]:
    """A Python of its own."""
    return subprocess.run(
        [sys.executable, *words], capture_output=True, text=True, check=False, env=clean_environment(), timeout=600
    )


def wherry(*words: str) -> subprocess.CompletedProcess[str]:
    """The command."""
    return call("-c", "from runners.command_line.cli import main; main()", *words)


def refuse(*_: object, **__: object) -> None:
    """This process gets no Spark."""
    raise SparkMissing("Java is missing.")


def ids(s3: S3) -> list[int]:
    """What is in the table, twice where it is there twice."""
    table = DeltaTable(s3.make_url("tables/orders"), storage_options=s3.storage_options)
    return sorted(table.to_pyarrow_table()["id"].to_pylist())


@pytest.mark.long
def test_a_killed_run_is_finished_and_its_refused_rows_are_replayed(
    tmp_path: Path, s3: S3, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The table, the DLQ, the prepared rows and the ledger are in the store, and the audit balances without Spark. No
    secret is in anything that was kept or said."""
    monkeypatch.setattr(session, "obtain_now", refuse)
    file = define(tmp_path, s3)
    killed = call("-m", "tests.scenarios.killed", str(file), "Written", "2")
    prepared = ObjectStore(StoreUrl(s3.make_url("wherry/orders/prepared"), s3.spark_settings))
    assert (killed.returncode, len(prepared.list_folders()), ids(s3)) == (-9, 1, [1, 2, 4])

    run = wherry("run", str(file))
    assert run.returncode == 0, run.stderr
    assert (ids(s3), [*prepared.list_pages()]) == ([1, 2, 4, 5], [])
    pipeline = Pipeline.load(file)
    (refused,) = pipeline.dead_letters()
    assert (refused["code"], refused["replayed"]) == ("CAST", False)

    mended = """  - with_columns: {amount: "replace(amount, 'much', '3')"}\n  - cast:"""
    file.write_text(file.read_text().replace("  - cast:", mended))
    replay = wherry("dlq", "replay", str(file), "--yes", "--reason", "a test")
    assert replay.returncode == 0, replay.stderr
    assert (ids(s3), pipeline.status()["dlq"]) == ([1, 2, 3, 4, 5], {"rows": 1, "unreplayed": 0})

    audit = pipeline.audit().json()
    assert (audit["problems"], audit["read"], audit["nacked"]) == ([], 5 + 1, 1)
    assert [row["status"] for row in pipeline.runs()] == ["succeeded", "succeeded", "killed"]
    said = "".join(each.stdout + each.stderr for each in (killed, run, replay))
    everything = ObjectStore(StoreUrl(s3.make_url("wherry"), s3.spark_settings))
    kept = b"".join(everything.read(key) for page in everything.list_pages() for key in page if everything.exists(key))
    assert (HIDDEN in said, HIDDEN.encode() in kept) == (False, False)
