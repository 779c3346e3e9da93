"""A store refuses one request to write an object: without doing it, or after doing it."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Literal, get_args

import pytest
from deltalake import DeltaTable

from origins.object_store import open_bucket
from origins.store_access import StoreUrl
from runners.operations.pipeline_access import open_state
from runners.pipeline import Pipeline
from runners.state.journal import list_settled_ever
from tests.stores.fault_proxy import Fault
from tests.stores.s3 import S3

pytestmark = pytest.mark.usefixtures("no_spark")

TEXT = """
name: orders
origin:
  files: {path: "landing/*.json", format: json, schema: "id long"}
destinations:
  - delta: {path: "TABLE"}
run: {batch: {files: 280}, runners: 1, retry: {wait: 100ms, most: 1s}}
"""
Refused = Literal["refuse", "collide", "refuse_late", "collide_late"]
KINDS = {
    "probe": "/_taken$",
    "entries": "/ledger/part-",
    "version of entries": "/ledger/_delta_log/",
    "bodies": "/ledger_bodies/part-",
    "version of bodies": "/ledger_bodies/_delta_log/0+[12].json",
    "table of bodies": "/ledger_bodies/_delta_log/0+0.json",
    "history": "/ledger_history/part-",
    "version of the history": "/ledger_history/_delta_log/0+1.json",
    "table of the history": "/ledger_history/_delta_log/0+0.json",
    "runs": "/runs/part-",
    "version of runs": "/runs/_delta_log/",
    "rows": "/tables/orders/part-",
    "version of rows": "/tables/orders/_delta_log/",
}
"""The kinds of objects that a run without Spark writes, each with a pattern of its keys.

Only Spark's own client writes the rows of a DLQ and of large batches. Tests of other kinds are beside their writers:
manifests, stored values, prepared rows and moved files.
"""
NEW = {
    "ledger": "/ledger/_delta_log/0+0.json",
    "table": "/tables/orders/_delta_log/0+0.json",
    "checksum of the table": "/tables/orders/_delta_log/0+0.crc",
    "DLQ": "/dlq/_delta_log/0+0.json",
    "checksum of the DLQ": "/dlq/_delta_log/0+0.crc",
    "runs": "/runs/_delta_log/0+0.json",
}
"""The kinds of objects that only the first run writes, each with a pattern of its keys."""
FENCE = "/tables/orders/_delta_log/"
"""The pattern of the version with which a run fences an earlier run."""
CHECKPOINTS = {
    "entries": "/ledger/_delta_log/.*checkpoint.parquet",
    "last of the entries": "/ledger/_delta_log/_last_checkpoint",
    "rows": "/tables/orders/_delta_log/.*checkpoint.parquet",
    "last of the rows": "/tables/orders/_delta_log/_last_checkpoint",
}
"""The checkpoints that a run of many batches writes, each with a pattern of its keys."""
ENDS: Mapping[Refused, int] = {"refuse": 2, "collide": 2, "refuse_late": 0, "collide_late": 0}
"""How many runs each refusal ends, since `deltalake` makes the table and the DLQ without trying again."""


def write_files(folder: Path, *numbers: int) -> None:
    """Write a file of one row for each number. The list of some hundred files is too large for one entry."""
    (folder / "landing").mkdir(exist_ok=True)
    for number in numbers:
        (folder / "landing" / f"{number:03}-{'x' * 60}.json").write_text(json.dumps({"id": number}) + "\n")


@pytest.fixture
def pipeline(tmp_path: Path, s3: S3) -> Pipeline:
    """Provide a pipeline with a first batch, whose state and table are in the store, and files for more batches."""
    file, spark = tmp_path / "pipeline.yaml", f"spark: {json.dumps({'conf': s3.spark_settings})}\n"
    file.write_text(TEXT.replace("TABLE", "tables/orders") + spark)
    write_files(tmp_path, 0)
    Pipeline.load(file).run()
    bucket = open_bucket(StoreUrl(s3.make_url(), s3.spark_settings))
    for folder, key in ((tmp_path / ".wherry/orders", "wherry/orders"), (tmp_path / "tables", "tables")):
        for each in (each for each in folder.rglob("*") if each.is_file()):
            bucket.put_new(f"{key}/{each.relative_to(folder)}", each.read_bytes())
    state, table = (s3.make_url(key, "s3") for key in ("wherry/orders", "tables/orders"))
    file.write_text(f"{TEXT.replace('TABLE', table)}{spark}state: {state}\n")
    write_files(tmp_path, *range(1, 300))
    return Pipeline.load(file)


@pytest.fixture
def new_pipeline(tmp_path: Path, s3: S3) -> Pipeline:
    """Provide a pipeline without a state and without a table, which will be in the store."""
    file, spark = tmp_path / "pipeline.yaml", f"spark: {json.dumps({'conf': s3.spark_settings})}\n"
    state, table = (s3.make_url(key, "s3") for key in ("wherry/orders", "tables/orders"))
    file.write_text(f"{TEXT.replace('TABLE', table)}{spark}state: {state}\n")
    write_files(tmp_path, *range(3))
    return Pipeline.load(file)


def carry_out(pipeline: Pipeline) -> str:
    """Run the pipeline, and compact its ledger. Return how the run ended."""
    status = pipeline.run(check=False).status
    open_state(pipeline._definition().pipeline)[1].compact(every=1)
    return status


def read_ids(s3: S3) -> list[int]:
    table = DeltaTable(s3.make_url("tables/orders"), storage_options=s3.storage_options)
    return sorted(table.to_pyarrow_table()["id"].to_pylist())


def refuse_each(s3: S3, effect: Refused, kinds: Mapping[str, str]) -> Mapping[str, Fault]:
    """Let the store refuse one request for each kind of object, one after the other."""
    return {kind: s3.proxy.add(Fault(effect, "PUT", pattern)) for kind, pattern in kinds.items()}


def list_unmet(faults: Mapping[str, Fault]) -> list[str]:
    """Return the kinds of objects of which no request was refused."""
    return [kind for kind, fault in faults.items() if fault.hits != 1]


@pytest.mark.parametrize("effect", get_args(Refused))
@pytest.mark.promise("CD-27")
def test_a_refused_request_loses_and_doubles_nothing(pipeline: Pipeline, s3: S3, effect: Refused) -> None:
    """One request of each kind is refused, and the run succeeds. Each row is there once, and the ledger, its history
    and the runs are complete."""
    faults = refuse_each(s3, effect, KINDS)
    assert (carry_out(pipeline), list_unmet(faults)) == ("succeeded", [])
    assert read_ids(s3) == [*range(300)]
    settled = list_settled_ever(open_state(pipeline._definition().pipeline)[1])
    assert sorted((each.number, each.counts.read) for each in settled) == [(1, 1), (2, 280), (3, 19)]
    assert pipeline.audit().json()["problems"] == []
    assert [(run["status"], run["read"]) for run in pipeline.history.list()] == [("succeeded", 299), ("succeeded", 1)]


@pytest.mark.parametrize("effect", get_args(Refused))
def test_a_refused_request_of_a_first_run_loses_and_doubles_nothing(
    new_pipeline: Pipeline, s3: S3, effect: Refused
) -> None:
    """Afterwards each row is there once, and an audit finds nothing. A table that cannot be made ends the run before a
    row is read, and a later run makes it."""
    faults = refuse_each(s3, effect, NEW)
    ended = [new_pipeline.run(check=False).status for _ in range(3)]
    assert (ended, list_unmet(faults)) == (["failed"] * ENDS[effect] + ["succeeded"] * (3 - ENDS[effect]), [])
    assert read_ids(s3) == [*range(3)]
    assert new_pipeline.audit().json()["problems"] == []
    assert new_pipeline.status()["dlq"]["rows"] == 0


@pytest.mark.parametrize(
    ("kinds", "effect"),
    [(("entries", "rows"), "refuse"), (("last of the entries", "last of the rows"), "refuse_late")],
    ids=["checkpoints", "pointers to them"],
)
def test_a_refused_checkpoint_loses_and_doubles_nothing(
    tmp_path: Path, pipeline: Pipeline, s3: S3, kinds: Sequence[str], effect: Refused
) -> None:
    """The run of 38 batches succeeds. The tables can be read, and the next run goes on."""
    file = tmp_path / "pipeline.yaml"
    file.write_text(file.read_text().replace("files: 280", "files: 8"))
    faults = refuse_each(s3, effect, {kind: CHECKPOINTS[kind] for kind in kinds})
    assert (carry_out(Pipeline.load(file)), list_unmet(faults)) == ("succeeded", [])
    write_files(tmp_path, 300)
    assert carry_out(Pipeline.load(file)) == "succeeded"
    assert read_ids(s3) == [*range(301)]
    ledger = open_state(Pipeline.load(file)._definition().pipeline)[1]
    assert sum(each.counts.read or 0 for each in list_settled_ever(ledger)) == 301
    assert Pipeline.load(file).audit().json()["problems"] == []


@pytest.mark.parametrize("effect", ["refuse", "refuse_late"])
def test_a_refused_fence_loses_and_doubles_nothing(pipeline: Pipeline, s3: S3, effect: Refused) -> None:
    """The first run could not commit its rows. The next one fences it, and each row is there once."""
    broken = s3.proxy.add(Fault("slow_down", "PUT", FENCE, times=None))
    assert pipeline.run(check=False).status == "failed"
    broken.times = 0
    fault = s3.proxy.add(Fault(effect, "PUT", FENCE))
    s3.proxy.reset_counts()
    assert (carry_out(pipeline), fault.hits) == ("succeeded", 1)
    versions = [key for key in list_written(s3) if re.search(FENCE, key)]
    assert len(versions) > len({*versions}) or "late" in effect
    assert read_ids(s3) == [*range(300)]
    assert pipeline.audit().json()["problems"] == []


def list_written(s3: S3) -> list[str]:
    return [request.key for request in s3.proxy.list_requests() if request.kind in ("PUT", "COPY", "POST")]


def test_every_kind_of_object_that_a_run_writes_is_refused_once(pipeline: Pipeline, s3: S3) -> None:
    """The pattern of some kind matches each key."""
    s3.proxy.reset_counts()
    carry_out(pipeline)
    matches = {key: [kind for kind, pattern in KINDS.items() if re.search(pattern, key)] for key in list_written(s3)}
    assert {key for key, kinds in matches.items() if not kinds} == set()
    assert {kind for kinds in matches.values() for kind in kinds} == set(KINDS)


def test_every_kind_of_object_that_a_first_run_writes_is_refused_once(new_pipeline: Pipeline, s3: S3) -> None:
    """The pattern of some kind matches each key."""
    new_pipeline.run()
    kinds = [*KINDS.values(), *NEW.values()]
    assert {key for key in list_written(s3) if not any(re.search(each, key) for each in kinds)} == set()
