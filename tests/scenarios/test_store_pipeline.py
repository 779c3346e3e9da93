"""A pipeline whose tables and state are in an object store. Each run has a separate Spark."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from io import BytesIO
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from pyarrow import parquet

from origins.object_store import ObjectStore
from origins.store_access import StoreUrl
from runners.pipeline import Pipeline
from runners.spark import session
from runners.spark.start import SparkMissing
from tests.child import clean_environment
from tests.stores import jars
from tests.stores.fault_proxy import Effect, Fault
from tests.stores.s3 import S3, make_bucket, make_client

pytestmark = pytest.mark.spark

TEXT = """
stages:
  - cast: {id: long, amount: "decimal(10,2)"}
dlq: {window: 0}
run: {batch: {files: 1}, runners: 1, retry: {attempts: 0}}
"""
HIDDEN = "q7Zp2wJrT9xKsecretV4"
"""A secret that occurs in no other text. The test server accepts any secret."""


LANDED = {f"{number}.csv": f"id,amount\n{rows}\n" for number, rows in enumerate(["1,1.50\n2,2", "3,much\n4,4", "5,5"])}


def define(folder: Path, s3: S3) -> Path:
    """Write the definition, and the files that it reads."""
    (folder / "landing").mkdir()
    for name, text in LANDED.items():
        (folder / "landing" / name).write_text(text)
    return write_definition(folder, s3, s3.make_url("tables/orders", "s3"), state=s3.make_url("wherry/orders", "s3"))


def write_definition(folder: Path, s3: S3, table: str, name: str = "orders", **more: Any) -> Path:
    """Write a definition with this table. Its Spark has the JARs as files, and does not repeat a refused request."""
    jars.fetch()
    once = {f"spark.hadoop.fs.s3a.{key}": "1" for key in ("attempts.maximum", "retry.limit")}
    found = {"spark.jars": ",".join(map(str, jars.list_store_jars()))}
    conf = {**s3.spark_settings, "spark.hadoop.fs.s3a.secret.key": HIDDEN, **once, **found}
    ends = {"name": name, "destinations": [{"delta": {"path": table}}], "spark": {"conf": conf}}
    ends |= {"origin": {"files": {"path": "landing/*.csv", "format": "csv"}}, **more}
    file = folder / f"{name}.yaml"
    file.write_text(TEXT + "".join(f"{key}: {json.dumps(value)}\n" for key, value in ends.items()))
    return file


def call_python(*words: str) -> subprocess.CompletedProcess[str]:
    """Run a separate Python process."""
    return subprocess.run(
        [sys.executable, *words], capture_output=True, text=True, check=False, env=clean_environment(), timeout=600
    )


def call_wherry(*words: str) -> subprocess.CompletedProcess[str]:
    """Run a command of Wherry."""
    return call_python("-c", "from runners.command_line.cli import main; main()", *words)


def refuse_spark(*_: object, **__: object) -> None:
    """Refuse to start Spark in this process."""
    raise SparkMissing("Java is missing.")


def read_all_ids(s3: S3, url: str = "") -> list[int]:
    """Return the sorted ids of the table, with repeated ones."""
    table = DeltaTable(url or s3.make_url("tables/orders"), storage_options=s3.storage_options)
    return sorted(table.to_pyarrow_table()["id"].to_pylist())


@pytest.mark.long
def test_a_killed_run_is_finished_and_its_refused_rows_are_replayed(
    tmp_path: Path, s3: S3, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The table, the DLQ, the prepared rows and the ledger are in the store, and the audit balances without Spark. No
    stored file and no output contains the secret."""
    monkeypatch.setattr(session, "obtain_now", refuse_spark)
    file = define(tmp_path, s3)
    killed = call_python("-m", "tests.scenarios.killed", str(file), "Written", "2")
    prepared = ObjectStore(StoreUrl(s3.make_url("wherry/orders/prepared"), s3.spark_settings))
    assert (killed.returncode, len(prepared.list_folder()[0]), read_all_ids(s3)) == (-9, 1, [1, 2, 4])

    run = call_wherry("run", str(file))
    assert run.returncode == 0, run.stderr
    assert (read_all_ids(s3), [*prepared.list_pages()]) == ([1, 2, 4, 5], [])
    pipeline = Pipeline.load(file)
    (refused,) = pipeline.refused.list()
    assert (refused["code"], refused["replayed"]) == ("CAST", False)

    mended = """  - with_columns: {amount: "replace(amount, 'much', '3')"}\n  - cast:"""
    file.write_text(file.read_text().replace("  - cast:", mended))
    replay = call_wherry("dlq", "replay", str(file), "--yes", "--reason", "a test")
    assert replay.returncode == 0, replay.stderr
    assert (read_all_ids(s3), pipeline.status()["dlq"]) == (
        [1, 2, 3, 4, 5],
        {"rows": 1, "unreplayed": 0, "fallback": 0},
    )

    audit = pipeline.audit().json()
    assert (audit["problems"], audit["read"], audit["nacked"]) == ([], 5 + 1, 1)
    assert [row["status"] for row in pipeline.history.list()] == ["succeeded", "succeeded", "killed"]
    said = "".join(each.stdout + each.stderr for each in (killed, run, replay))
    everything = ObjectStore(StoreUrl(s3.make_url("wherry"), s3.spark_settings))
    kept = b"".join(everything.read(key) for page in everything.list_pages() for key in page if everything.exists(key))
    assert (HIDDEN in said, HIDDEN.encode() in kept) == (False, False)


OF_REFUSED_ROWS = {
    "prepared rows": r"/prepared/.*\.parquet",
    "rows of the DLQ": "/dlq/part-",
    "version of the DLQ": "/dlq/_delta_log/0+1.json",
    "filtered rows": "/filtered/part-",
    "table of filtered rows": "/filtered/_delta_log/0+0.json",
    "version of filtered rows": "/filtered/_delta_log/0+1.json",
}
"""The kinds of objects that this process writes for rows with a stage, each with a pattern of its keys."""


@pytest.mark.long
@pytest.mark.parametrize("effect", ["refuse", "refuse_late"])
def test_a_refused_request_loses_and_doubles_no_refused_row(tmp_path: Path, s3: S3, effect: Effect) -> None:
    """The store refuses one request for each kind of object, one after the other. A table that cannot be made ends the
    run before a row is read. The next run goes on, and the audit finds nothing."""
    file = define(tmp_path, s3)
    text = file.read_text().replace("  - cast:", """  - filter: "id <> '4'"\n  - cast:""")
    file.write_text(f"{text.replace('attempts: 0', 'wait: 100ms')}keep_filtered: 30d\n")
    faults = {kind: s3.proxy.add(Fault(effect, "PUT", key)) for kind, key in OF_REFUSED_ROWS.items()}
    ended = [call_wherry("run", str(file)).returncode for _ in range(2)]
    assert ended == [int(effect == "refuse"), 0]
    assert {kind: fault.hits for kind, fault in faults.items()} == dict.fromkeys(faults, 1)
    assert read_all_ids(s3) == [1, 2, 5]
    filtered = DeltaTable(s3.make_url("wherry/orders/filtered"), storage_options=s3.storage_options)
    assert filtered.to_pyarrow_table().num_rows == 1
    pipeline = Pipeline.load(file)
    assert [row["code"] for row in pipeline.refused.list()] == ["CAST"]
    assert pipeline.audit().json()["problems"] == []


CARRY_ALL = """
import json, sys
from origins.errors import WherryError
from runners.pipeline import Pipeline

said = {}
for file in sys.argv[1:]:
    pipeline = Pipeline.load(file)
    try:
        said[pipeline.name] = f"read {pipeline.run().read}"
    except WherryError as error:
        said[pipeline.name] = f"{error} {error.hint}"
sys.stdout.write(json.dumps(said))
"""


def carry_all(files: Sequence[Path]) -> dict[str, str]:
    """Run these pipelines in one Spark, and return the result of each."""
    done = call_python("-c", CARRY_ALL, *map(str, files))
    assert done.returncode == 0, done.stderr
    said: dict[str, str] = json.loads(done.stdout)
    return said


WORDS = {
    "missing": "the bucket nowhere-there does not exist",
    "forbidden": "these credentials have no right to do that",
    "elsewhere": "is in eu-west-1, not in us-east-1",
    "skewed": "the clock of this machine differs too much",
}
"""The message about a table for each way in which a store refuses it."""


@pytest.mark.long
def test_a_table_that_the_store_refuses_gets_each_row_once_the_store_accepts_it(tmp_path: Path, s3: S3) -> None:
    """The bucket is missing, writing is forbidden, the region or the clock is wrong, or the store hides a commit. A
    prefix with a space and a `%`, and a versioned bucket, need no special care."""
    define(tmp_path, s3)
    versioned, odd = f"{s3.bucket}-versioned", "a b%20c%"
    make_bucket(s3.behind, versioned, versioned=True)
    for name, text in LANDED.items():
        make_client(s3.behind).put_object(Bucket=s3.bucket, Key=f"{odd}/{name}", Body=text.encode())
    tables = {name: s3.make_url(f"tables/{name}") for name in ("forbidden", "elsewhere", "skewed", "hidden")}
    tables |= {"missing": "s3://nowhere-there/tables/missing", "versioned": f"s3://{versioned}/tables/orders"}
    files = [write_definition(tmp_path, s3, table, name) for name, table in tables.items()]
    origin = {"files": {"path": s3.make_url(f"{odd}/*.csv", "s3"), "format": "csv"}}
    files.append(write_definition(tmp_path, s3, s3.make_url(f"{odd}/table", "s3"), "odd", origin=origin))
    s3.proxy.add(Fault("forbid", "PUT", "/tables/forbidden", times=None))
    s3.proxy.add(Fault("distrust", "PUT", "/tables/skewed", times=None))
    s3.proxy.add(Fault("send_away", key="/tables/elsewhere", times=None))
    s3.proxy.add(Fault("hide", key=r"/tables/hidden/_delta_log/0+2\.json", times=4))

    said = carry_all(files)
    assert [said[name] for name, words in WORDS.items() if words not in said[name]] == []
    assert (said["versioned"], said["odd"]) == ("read 5", "read 5")
    s3.proxy.clear()
    make_bucket(s3.behind, "nowhere-there")
    assert all(words.startswith("read") for words in carry_all(files).values())
    assert {name: read_all_ids(s3, table) for name, table in tables.items()} == {name: [1, 2, 4, 5] for name in tables}
    assert read_ids(s3, f"{odd}/table/") == [1, 2, 4, 5]


def read_ids(s3: S3, folder: str) -> list[int]:
    """Return the ids in the files of a table without deletes. `deltalake` would look for this table elsewhere."""
    client = make_client(s3.behind)
    found = client.list_objects_v2(Bucket=s3.bucket, Prefix=folder)["Contents"]
    keys = [each["Key"] for each in found if each["Key"].endswith(".parquet") and "_delta_log" not in each["Key"]]
    files = [BytesIO(client.get_object(Bucket=s3.bucket, Key=key)["Body"].read()) for key in keys]
    return sorted(number for file in files for number in parquet.read_table(file)["id"].to_pylist())


FALLBACK = "dlq: {window: 0, on_failure: fallback, fallback: {files: {path: PLACE, format: FORMAT}}}"
MERGE = """
import sys
from runners.pipeline import Pipeline
from runners.running import merge_fallback

merge_fallback._FEW = int(sys.argv[2])
sys.stdout.write(str(Pipeline.load(sys.argv[1]).refused.merge_fallback().rows))
"""
"""A merge with a small limit. Spark reads a batch with more rows than the limit."""


@pytest.mark.long
@pytest.mark.parametrize(("format_", "few"), [("parquet", 10_000), ("json", 1)])
def test_refused_rows_wait_as_files_in_a_store_and_come_back_once(
    tmp_path: Path, s3: S3, monkeypatch: pytest.MonkeyPatch, format_: str, few: int
) -> None:
    """The DLQ on this machine fails, and a run is killed after the write of the files. Spark writes them, and reads
    them if they have many rows."""
    monkeypatch.setattr(session, "obtain_now", refuse_spark)
    jars.fetch()
    (tmp_path / "landing").mkdir()
    for name, text in {**LANDED, "3.csv": "id,amount\n6,more\n7,most\n"}.items():
        (tmp_path / "landing" / name).write_text(text)
    file = write_definition(tmp_path, s3, str(tmp_path / "tables/orders"))
    place = s3.make_url("refused", "s3")
    fallback = FALLBACK.replace("PLACE", place).replace("FORMAT", format_)
    file.write_text(file.read_text().replace("dlq: {window: 0}", fallback))
    dlq = tmp_path / ".wherry/orders/dlq"
    dlq.parent.mkdir(parents=True)
    dlq.touch()

    killed = call_python("-m", "tests.scenarios.killed_at", str(file), "run", "after-dlq", "1")
    assert killed.returncode == -9, killed.stderr
    run = call_wherry("run", str(file))
    assert run.returncode == 0, run.stderr
    dlq.unlink()
    pipeline = Pipeline.load(file)
    audit = call_wherry("audit", str(file), "--json")
    assert (audit.returncode, pipeline.status()["dlq"]["fallback"]) == (0, 3), audit.stdout + audit.stderr
    merged = call_python("-c", MERGE, str(file), str(few))
    assert (merged.returncode, merged.stdout) == (0, "3"), merged.stderr
    refused = {row["original"]["id"]: row["code"] for row in pipeline.refused.list()}
    assert (refused, len(pipeline.refused.list())) == ({"3": "CAST", "6": "CAST", "7": "CAST"}, 3)
    assert (pipeline.audit().json()["problems"], pipeline.status()["dlq"]["fallback"]) == ([], 0)
    assert sorted(DeltaTable(tmp_path / "tables/orders").to_pyarrow_table()["id"].to_pylist()) == [1, 2, 4, 5]


CATALOG = {
    "spark.sql.catalogImplementation": "hive",
    "spark.sql.warehouse.dir": "BUCKET/warehouse",
    "spark.hadoop.javax.jdo.option.ConnectionURL": "jdbc:derby:;databaseName=FOLDER/metastore;create=true",
    "spark.driver.extraJavaOptions": "-Dderby.system.home=FOLDER",
}
"""A permanent catalog whose tables are in the store."""
RUN_ALL = """
import json, sys
from runners.pipeline import Pipeline

sys.stdout.write(json.dumps([Pipeline.load(file).run().read for file in sys.argv[1:]]))
"""


@pytest.mark.long
def test_a_table_in_a_store_is_followed_by_its_path_and_by_its_name(tmp_path: Path, s3: S3) -> None:
    """One pipeline reads it by its path into a table of a catalog, and another reads that table by its name. A second
    process delivers only new rows."""
    bucket = s3.make_url().rstrip("/")
    places = {
        "silver": ({"path": s3.make_url("raw")}, {"table": "default.silver"}),
        "gold": ({"table": "default.silver"}, {"path": s3.make_url("gold")}),
    }
    files = []
    for name, (start, end) in places.items():
        state = s3.make_url(f"wherry/{name}")
        file = write_definition(
            tmp_path, s3, "", name, origin={"delta": start}, destinations=[{"delta": end}], state=state
        )
        text = json.dumps(CATALOG)[1:-1].replace("BUCKET", bucket).replace("FOLDER", str(tmp_path))
        file.write_text(file.read_text().replace('{"conf": {', '{"conf": {' + text + ", "))
        files.append(str(file))
    for numbers in ([1, 2], [3]):
        rows = pa.table({"id": numbers, "amount": ["1.50" for _ in numbers]})
        write_deltalake(s3.make_url("raw"), rows, mode="append", storage_options=s3.storage_options)
        done = call_python("-c", RUN_ALL, *files)
        assert (done.returncode, done.stdout) == (0, json.dumps([len(numbers)] * 2)), done.stderr
    assert read_all_ids(s3, s3.make_url("gold")) == [1, 2, 3]
    assert read_all_ids(s3, s3.make_url("warehouse/silver")) == [1, 2, 3]
    assert [Pipeline.load(file).audit().json()["problems"] for file in files[1:]] == [[]]
