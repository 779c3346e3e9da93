"""Files in an object store become rows of a table on this machine's disk."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable

from origins.crash_points import watch_points
from origins.object_store import open_bucket
from origins.store_access import StoreUrl
from runners.definitions.pipeline_graph import PipelineGraph
from runners.operations.status import describe_pipelines
from runners.pipeline import Pipeline
from tests.child import clean_environment
from tests.crash_injector import CrashInjector
from tests.pages import ROOT, list_blocks
from tests.stores import jars
from tests.stores.s3 import S3, make_client

TEXT = """
name: orders
origin:
  files: {path: "PATH", format: json, schema: "id long, email string, amount double", after: AFTER}
destinations:
  - delta: {path: tables/orders}
run: {batch: {files: 1}, runners: 1}
"""


def put_files(s3: S3, *numbers: int) -> None:
    """Put a file of one row for each number into the store."""
    for number in numbers:
        row = {"id": number, "email": f"a{number}@x.com", "amount": number / 2}
        body = f"{json.dumps(row)}\n".encode()
        make_client(s3.behind).put_object(Bucket=s3.bucket, Key=f"landing/{number}.json", Body=body)


def load_pipeline(
    folder: Path, s3: S3, after: str = "keep", path: str = "landing/*.json", text: str = TEXT
) -> Pipeline:
    """Load the pipeline. Its Spark settings give access to the store."""
    text = text.replace("PATH", s3.make_url(path, "s3")).replace("AFTER", after)
    (folder / "pipeline.yaml").write_text(f"{text}spark: {json.dumps({'conf': s3.spark_settings})}\n")
    return Pipeline.load(folder / "pipeline.yaml")


def read_ids(folder: Path) -> list[int]:
    """Return the sorted ids of the table, with repeated ones."""
    rows: list[dict[str, Any]] = DeltaTable(str(folder / "tables/orders")).to_pyarrow_table().to_pylist()
    return sorted(row["id"] for row in rows)


def list_keys(s3: S3) -> list[str]:
    """Return the keys of all objects in the bucket."""
    store = open_bucket(StoreUrl(f"s3://{s3.bucket}", s3.spark_settings))
    return [key for page in store.list_pages() for key in page]


@pytest.mark.usefixtures("no_spark")
def test_small_files_in_a_store_start_no_spark(tmp_path: Path, s3: S3) -> None:
    """A run requests one page of the store's list, and each new file once. The audit finds no problem."""
    put_files(s3, 1, 2, 3)
    first = load_pipeline(tmp_path, s3).run()
    assert (first.status, first.read, first.balanced, read_ids(tmp_path)) == ("succeeded", 3, True, [1, 2, 3])
    put_files(s3, 4)
    s3.proxy.reset_counts()
    found = describe_pipelines(
        {"orders": load_pipeline(tmp_path, s3)._definition()}, PipelineGraph({"orders": []}), ["orders"]
    )
    assert (found[0]["waiting"], s3.proxy.count()) == ({"files": 1}, {"LIST": 1})
    s3.proxy.reset_counts()
    second = load_pipeline(tmp_path, s3).run()
    assert (second.read, read_ids(tmp_path)) == (1, [1, 2, 3, 4])
    assert s3.proxy.count() == {"LIST": 1, "GET": 1}
    third = load_pipeline(tmp_path, s3).run()
    assert (third.status, third.reason, third.read) == ("succeeded", "nothing left to do", 0)
    assert load_pipeline(tmp_path, s3).audit().json()["problems"] == []


@pytest.mark.usefixtures("no_spark")
@pytest.mark.parametrize(
    ("point", "after", "left"),
    [
        ("after-settle", "move", ["landing/_carried/1.json"]),
        ("in-write", "delete", []),
        ("after-committed", "delete", []),
    ],
)
@pytest.mark.promise("CD-13", "CD-22")
def test_a_run_that_ends_at_any_point_loses_no_file_of_a_store_and_reads_none_twice(
    tmp_path: Path, s3: S3, point: str, after: str, left: list[str]
) -> None:
    """The next run delivers the rest, and every file is moved or deleted once."""
    put_files(s3, 1)
    crash = CrashInjector(point, end=None)
    with watch_points(crash):
        ended = load_pipeline(tmp_path, s3, after).run(check=False, listeners=[crash.note_event])
    assert (crash.happened, ended.status) == (True, "failed")
    report = load_pipeline(tmp_path, s3, after).run()
    assert (report.status, read_ids(tmp_path), list_keys(s3)) == ("succeeded", [1], left)


FORMATS: dict[str, tuple[dict[str, Any], dict[str, bytes]]] = {
    "csv": (
        {"schema": "id long, note string, day string", "metadata": ["file_name"]},
        {
            "day=1/a b.csv": b"id,note\n1,x\n",
            "day=2/50%.csv": b'note,id\n"y",2\n"z,3\n',
            "day=2/_half.csv": b"id,note\n9,9\n",
        },
    ),
    "json": (
        {"schema": "id long, note string, day string"},
        {"day=1/a.json": b'{"id": 1, "note": "x"}\n', "day=2/b.json": b'{"id": 2, "note": "y"}\n{"id": "many"}\n'},
    ),
    "parquet": ({}, {"day=1/a.parquet": b"1", "day=2/b.parquet": b"2"}),
}
"""The options of each format, and files with two good rows. Each Parquet file has one row, whose id is the given
content."""
RUN = """
import sys
from runners.pipeline import Pipeline
for file in sys.argv[1:]:
    report = Pipeline.load(file).run()
    print(report.read, report.nacked, report.status)
"""


@pytest.mark.long
@pytest.mark.spark
def test_spark_reads_files_of_every_format_in_a_store(tmp_path: Path, s3: S3) -> None:
    """The folders give a column, the names are arbitrary, and bad lines are refused. Then the files are moved."""
    conf = {**s3.spark_settings, "spark.jars": jars.join_store_jars()}
    for kind, (options, files) in FORMATS.items():
        for name, content in files.items():
            body = make_parquet(id=int(content)) if kind == "parquet" else content
            make_client(s3.behind).put_object(Bucket=s3.bucket, Key=f"{kind}/{name}", Body=body)
        path = s3.make_url(f"{kind}/day=*/*", "s3")
        ends = {
            "name": kind,
            "origin": {"files": {"path": path, "format": kind, "after": "move", **options}},
            "stages": [{"with_columns": {"seen": "true"}}],
            "destinations": [{"delta": {"path": f"tables/{kind}"}}],
            "dlq": {"window": 0},
            "spark": {"conf": conf},
        }
        (tmp_path / f"{kind}.yaml").write_text(json.dumps(ends))
    run = subprocess.run(
        [sys.executable, "-c", RUN, *(str(tmp_path / f"{kind}.yaml") for kind in FORMATS)],
        capture_output=True,
        text=True,
        check=False,
        env=clean_environment(),
        timeout=600,
    )
    assert run.returncode == 0, run.stderr
    said = [line for line in run.stdout.splitlines() if line.endswith("succeeded")]
    assert said == ["3 1 succeeded", "3 1 succeeded", "2 0 succeeded"]
    rows = {kind: DeltaTable(str(tmp_path / "tables" / kind)).to_pyarrow_table().to_pylist() for kind in FORMATS}
    assert {(row["id"], row["day"], row["file_name"]) for row in rows["csv"]} == {
        (1, "1", "a b.csv"),
        (2, "2", "50%.csv"),
    }
    found = {kind: {f"{row['id']}{row['day']}" for row in rows[kind]} for kind in rows}
    assert found == {kind: {"11", "22"} for kind in FORMATS}
    moved = sorted(
        f"{kind}/_carried/{name}" for kind, (_, files) in FORMATS.items() for name in files if "_half" not in name
    )
    assert sorted(list_keys(s3)) == sorted([*moved, "csv/day=2/_half.csv"])


def make_parquet(**row: Any) -> bytes:
    """Return a Parquet file with one row."""
    sink = pa.BufferOutputStream()
    pq.write_table(pa.Table.from_pylist([row]), sink)
    return bytes(sink.getvalue())


EXPORT = """
import json, os, sys
from destinations.batch_manifests import BatchManifests
from runners.pipeline import Pipeline
from runners.spark.start import start

file, step, recipe = sys.argv[1:]
publish, published = BatchManifests.publish, []

def die(*args):
    if len(published) == 1 and step == "before":
        os._exit(9)
    publish(*args)
    published.append(args)
    if len(published) == 2 and step == "after":
        os._exit(9)

BatchManifests.publish = die
pipeline = Pipeline.load(file)
spark = start(pipeline.spark.conf)
report = pipeline.run()
exec(recipe)
ids = sorted(map(tuple, orders.select("id", "day").collect()))
audit = pipeline.audit().json()
print(json.dumps([report.status, ids, audit["problems"], audit["destinations"]["orders"]["delivered"]]))
"""


@pytest.mark.long
@pytest.mark.spark
@pytest.mark.promise("CD-22")
@pytest.mark.parametrize("step", ["before", "after"])
def test_a_reader_of_manifests_sees_each_batch_once_after_a_kill(tmp_path: Path, s3: S3, step: str) -> None:
    """The kill comes directly before or after a manifest is published. The reader follows the documentation."""
    conf = {**s3.spark_settings, "spark.jars": jars.join_store_jars()}
    (tmp_path / "landing").mkdir()
    for number in (1, 2, 3):
        (tmp_path / f"landing/{number}.json").write_text(json.dumps({"id": number, "day": "mo"}) + "\n")
    ends = {
        "name": "orders",
        "origin": {"files": {"path": "landing/*.json", "format": "json", "schema": "id long, day string"}},
        "destinations": [{"files": {"path": s3.make_url("exports", "s3"), "partition_by": ["day"]}, "name": "orders"}],
        "run": {"batch": {"files": 1}, "runners": 1},
        "spark": {"conf": conf},
    }
    (tmp_path / "orders.yaml").write_text(json.dumps(ends))
    blocks = [block.text for block in list_blocks(ROOT / "destinations/docs/files.md") if block.language == "python"]
    recipe = blocks[0].replace("s3a://bucket/exports", s3.make_url("exports"))

    def run(step: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-c", EXPORT, str(tmp_path / "orders.yaml"), step, recipe]
        return subprocess.run(
            command, capture_output=True, text=True, check=False, env=clean_environment(), timeout=250
        )

    killed = run(step)
    assert killed.returncode == 9, killed.stderr
    ended = run("never")
    assert ended.returncode == 0, ended.stderr
    ids = [[number, "mo"] for number in (1, 2, 3)]
    assert json.loads(ended.stdout.splitlines()[-1]) == ["succeeded", ids, [], 3]
    assert [key for key in list_keys(s3) if "_writing" in key] == []
