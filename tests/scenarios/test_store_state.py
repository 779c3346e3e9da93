"""A pipeline whose state is in an object store needs no Spark where a state in a folder would need none."""

from __future__ import annotations

import json
import logging
from dataclasses import replace
from datetime import datetime, timezone
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from origins.errors import WherryError
from origins.nack import DLQ_COLUMNS as DLQ
from origins.object_store import ObjectStore
from origins.store_access import StoreUrl
from runners.definitions.definition import DefinitionError
from runners.model.run_report import Report
from runners.pipeline import Pipeline
from runners.running.renamed import find_twin, list_states_beside
from runners.state.location import StateLocation
from runners.ways.stage_chain import name_destinations
from tests.stores.fault_proxy import Fault
from tests.stores.s3 import S3, make_client

HIDDEN = "q7Zp2/wJ+rT9xKsecretV4"
"""A secret that occurs in no other text. The test server accepts any secret."""

pytestmark = pytest.mark.usefixtures("no_spark")

TEXT = """
name: orders
origin:
  files: {path: "landing/*.json", format: json, schema: "id long, email string, amount double"}
destinations:
  - delta: {path: tables/orders}
run: {batch: {files: 1}, runners: 1}
"""


def write_file(folder: Path, *numbers: int) -> None:
    """Write a file of one row for each number."""
    (folder / "landing").mkdir(exist_ok=True)
    for number in numbers:
        row = {"id": number, "email": f"a{number}@x.com", "amount": number / 2}
        (folder / "landing" / f"{number}.json").write_text(json.dumps(row) + "\n")


def load_pipeline(folder: Path, s3: S3 | None = None, scheme: str = "s3") -> Pipeline:
    """Load the pipeline. Its state is in the store, and its settings contain a secret in plain text. Without a store,
    the state is in a folder."""
    text = TEXT
    if s3 is not None:
        conf = {**s3.spark_settings, "spark.hadoop.fs.s3a.secret.key": HIDDEN}
        text += f"state: {s3.make_url('wherry/orders', scheme)}\nspark: {json.dumps({'conf': conf})}\n"
    (folder / "pipeline.yaml").write_text(text)
    return Pipeline.load(folder / "pipeline.yaml")


def run_and_move(folder: Path, s3: S3) -> Report:
    """Run the pipeline with its state in a folder, and copy the state to the store."""
    report = load_pipeline(folder).run()
    store = ObjectStore(StoreUrl(s3.make_url("wherry/orders"), s3.spark_settings))
    state = folder / ".wherry/orders"
    for file in (file for file in state.rglob("*") if file.is_file()):
        store.put_new(str(file.relative_to(state)), file.read_bytes())
    return report


def put_refused(s3: S3, *ids: str) -> None:
    """Put refused rows into the DLQ, and the key that Spark leaves for an empty folder."""
    columns = {"message": "too old", "row": "{}", "delivered_to": [], "lane": "0", "number": 1, "run": "r"}
    kinds = {"string": pa.string(), "bigint": pa.int64(), "timestamp": pa.timestamp("us", "UTC")}
    fields = [tuple(column.split(" ", 1)) for column in DLQ.split(", ")]
    schema = pa.schema([(name, kinds.get(kind, pa.list_(pa.string()))) for name, kind in fields])
    now = datetime(2026, 11, 24, tzinfo=timezone.utc)
    rows = [{**columns, "id": name, "code": "TOO_OLD", "nacked_at": now} for name in ids]
    url = s3.make_url("wherry/orders/dlq")
    table = pa.Table.from_pylist(rows, schema)
    write_deltalake(url, table, mode="append", storage_options=s3.storage_options)
    make_client(s3.endpoint).put_object(Bucket=s3.bucket, Key="wherry/orders/dlq/_delta_log/_staged_commits/", Body=b"")


def test_a_renamed_pipeline_finds_the_older_state_beside_its_own(tmp_path: Path, s3: S3) -> None:
    """So a run asks before it reads a row, also if its destinations know no pipeline. It needs the right to list."""
    write_file(tmp_path, 1)
    run_and_move(tmp_path, s3)
    old = load_pipeline(tmp_path, s3)
    renamed = replace(old, name="sales", state=StoreUrl(s3.make_url("wherry/sales"), s3.spark_settings))
    place, named = StateLocation.of(renamed), name_destinations(renamed.every_destination)
    twin = find_twin(renamed, named, list_states_beside(place))
    assert twin is not None
    assert (twin.name, twin.state) == ("orders", str(StateLocation.of(old)))
    assert list(list_states_beside(StateLocation.of(old))) == []
    s3.proxy.add(Fault("forbid", kind="LIST", times=None))
    assert list(list_states_beside(place)) == []


def test_commands_that_describe_a_pipeline_read_the_store(tmp_path: Path, s3: S3) -> None:
    """These are status, offsets, the run history, the audit and the DLQ. The URL may have the scheme of Hadoop."""
    write_file(tmp_path, 1, 2)
    run = run_and_move(tmp_path, s3)
    put_refused(s3, "p/1", "p/2")
    pipeline = load_pipeline(tmp_path, s3, "s3a")
    status = pipeline.status()
    assert (status["state"], status["last_run"]["read"], status["dlq"]["rows"]) == ("idle", 2, 2)
    assert [(kept["run"], kept["status"]) for kept in pipeline.history.list()] == [(run.run, "succeeded")]
    assert sorted(row["id"] for row in pipeline.refused.list()) == ["p/1", "p/2"]
    assert {name: lane["number"] for name, lane in pipeline.offsets.read().lanes.items()} == {"0": 2}
    assert pipeline.audit().json()["problems"] == []


def test_a_run_records_the_identity_of_its_lock_file(tmp_path: Path, s3: S3) -> None:
    """It records device and inode, so that a file with this name in another folder proves nothing about the run."""
    write_file(tmp_path, 1)
    run_and_move(tmp_path, s3)
    pipeline = load_pipeline(tmp_path, s3)
    pipeline.run()
    place = StateLocation.of(pipeline._definition().pipeline)
    *_, acquired = (entry for entry in place.open_ledger(None).read() if entry.kind == "acquire")
    found = place.lock.stat()
    assert acquired.body["lock_file"] == f"{found.st_dev}:{found.st_ino}"


def test_no_secret_of_the_store_is_stored_or_shown(tmp_path: Path, s3: S3, caplog: pytest.LogCaptureFixture) -> None:
    """This holds for a run that cannot write its ledger."""
    caplog.set_level(logging.DEBUG)
    write_file(tmp_path, 1)
    run_and_move(tmp_path, s3)
    s3.proxy.add(Fault("refuse", kind="PUT", key=r"/ledger/_delta_log/", times=None))
    with pytest.raises(WherryError, match="ledger") as raised:
        load_pipeline(tmp_path, s3).run()
    pipeline = load_pipeline(tmp_path, s3)
    definition = pipeline._definition()
    said = [str(raised.value), repr(raised.value), caplog.text, repr(pipeline), repr(definition), definition.text]
    assert not [text for text in said if HIDDEN in text]
    assert "${secret:spark.hadoop.fs.s3a.secret.key}" in definition.text


@pytest.mark.parametrize(
    ("state", "words"),
    [
        ("s3://bucket", "expected a folder below the bucket"),
        ("s3://key:word@bucket/orders", "expected a URL without a user or a secret"),
        ("s3://bucket/a%20b", "expected a URL without '%'"),
        ("s3://bucket/a b", "expected a URL without ' '"),
        ("abfss://account.dfs.core.windows.net/orders", "expected abfss://CONTAINER@ACCOUNT"),
        ("ftp://name/orders", "expected a directory of this machine, s3://, abfss://, gs:// or {schema"),
        ("hdfs://node:9820/orders", "Only Spark reaches HDFS: origins and destinations may be there, and the state"),
        ("hdfs:///orders", "Only Spark reaches HDFS"),
    ],
)
def test_a_url_that_cannot_be_a_state_is_refused(tmp_path: Path, state: str, words: str) -> None:
    """The error names the expected form."""
    (tmp_path / "pipeline.yaml").write_text(f"{TEXT}state: {state}\n")
    with pytest.raises(DefinitionError, match=words):
        Pipeline.load(tmp_path / "pipeline.yaml")


def test_a_run_from_a_store_to_a_store_starts_no_spark(tmp_path: Path, s3: S3) -> None:
    """The origin, the table, the DLQ and the state are in the store. The first run creates the tables."""
    client, url = make_client(s3.behind), s3.make_url("tables/orders")
    text = TEXT.replace("landing/*.json", s3.make_url("landing/*.json")).replace("tables/orders", url)
    settings = {"conf": s3.spark_settings}
    text += f"state: {s3.make_url('wherry/orders')}\nspark: {json.dumps(settings)}\n"
    (tmp_path / "pipeline.yaml").write_text(text)
    reports = []
    for number in (1, 2):
        row = {"id": number, "email": "a@x.com", "amount": 1.5}
        client.put_object(Bucket=s3.bucket, Key=f"landing/{number}.json", Body=json.dumps(row).encode())
        reports.append(Pipeline.load(tmp_path / "pipeline.yaml").run(check=False))
    assert [(report.status, report.error, report.read, report.balanced) for report in reports] == [
        ("succeeded", None, 1, True)
    ] * 2
    table = DeltaTable(url, storage_options={**s3.storage_options, "aws_endpoint": s3.behind})
    assert sorted(table.to_pyarrow_table()["id"].to_pylist()) == [1, 2]
