"""A pipeline on a cluster whose executors cannot see the project, Wherry, or the driver's other folders."""

from __future__ import annotations

import json
import re
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import deltalake
import pyspark
import pytest

from tests.child import WHERRY, Child, clean_environment, run
from tests.cluster.cluster import OWN_JARS, Cluster
from tests.scenarios.shared_jvm import Server
from tests.stores.fault_proxy import Fault
from tests.stores.jars import join_store_jars, list_delta_jars, make_spark_settings
from tests.stores.s3 import KEY, REGION, S3, SECRET

pytestmark = [pytest.mark.spark, pytest.mark.cluster]

MODULE = """
from beside import SHARE
from stages import nack

def score(rows: list[dict]) -> list:
    return [nack("too large") if row["id"] == 7 else {"score": row["id"] * SHARE} for row in rows]
"""

DEFINITION = """
name: orders
origin:
  generate: {rows: 40, bad: 0.2}
stages:
  - cast: {amount: "decimal(10,2)"}
  - require: {positive_amount: "amount > 0"}
  - python: {function: "enrich:score", columns: {score: double}}
destinations:
  - delta: {path: "BUCKET/tables/orders"}
dlq:
  window: 0
  delta: {path: "BUCKET/dlq"}
run: {batch: {rows: 20}}
"""


OTHER = """
import collections, os, sys

if os.environ.get("SPARK_LOCAL_IP", "") in "{addresses}".split():
    Version = collections.namedtuple("Version", "major minor micro releaselevel serial")
    sys.version_info = Version(3, sys.version_info.minor - 1, 0, "final", 0)
"""
"""Makes the Python of workers with these addresses report an older version."""


@pytest.fixture
def shared_disk() -> Iterator[Path]:
    """A folder that the executors can see."""
    with tempfile.TemporaryDirectory(prefix="wherry-shared-", dir="/var/tmp") as folder:
        yield Path(folder)


@pytest.fixture
def project(tmp_path: Path, cluster: Cluster, s3: S3) -> Path:
    """A folder with a definition for this cluster. By default, the state is beside the definition."""
    (tmp_path / "enrich.py").write_text(MODULE)
    (tmp_path / "beside.py").write_text("SHARE = 0.5\n")
    conf = {key: value for key, value in cluster.settings.items() if key != "spark.master"}
    conf |= {**s3.spark_settings, "spark.jars": join_store_jars()}
    conf |= {"spark.task.maxFailures": "2", "spark.driver.memory": "1g", "spark.sql.shuffle.partitions": "2"}
    spark = json.dumps({"master": cluster.master, "conf": conf})
    text = DEFINITION.replace("BUCKET", s3.make_url().rstrip("/"))
    (tmp_path / "orders.yaml").write_text(f"{text}spark: {spark}\n")
    return tmp_path


def call_wherry(project: Path, *words: str) -> Any:
    """Run a command with the definition of the project."""
    words = tuple(str(project / word) if word == "orders.yaml" else word for word in words)
    return run([*WHERRY, *words], _make_environment())


def _make_environment() -> dict[str, str]:
    return clean_environment(PYTHONPATH=str(Path(__file__).parents[2]))


def read_rows(s3: S3, table: str) -> list[dict[str, Any]]:
    """Return the rows of a table in the bucket."""
    found = deltalake.DeltaTable(s3.make_url(table, "s3"), storage_options=s3.storage_options)
    rows: list[dict[str, Any]] = found.to_pyarrow_table().to_pylist()
    return rows


FILES = r"tables/orders/.*\.parquet"


def list_writers(s3: S3) -> list[str]:
    """Return the client that wrote each file of rows: Hadoop in an executor, or a library of this process."""
    asked = [each for each in s3.proxy.list_requests() if each.kind == "PUT" and re.search(FILES, each.key)]
    return [re.split(r"[ /,]", each.headers["user-agent"])[0] for each in asked]


@pytest.mark.long
def test_a_state_that_only_the_driver_can_see_is_refused(project: Path, s3: S3) -> None:
    """No row is read. The error has the line to write."""
    done = call_wherry(project, "run", "orders.yaml")
    assert done.returncode == 2
    assert f"do not see folders of this machine: the state is {project}/.wherry/orders" in done.stderr
    assert "state: s3://bucket/wherry/orders" in done.stderr
    assert not [each for each in s3.proxy.list_requests() if each.kind == "PUT"]


def test_executors_deliver_rows_and_refused_rows(project: Path, s3: S3) -> None:
    """Each order is in the table with its score, or in the DLQ, and the audit balances. The state is in a store."""
    state = f"state={s3.make_url('wherry/orders', 's3')}"
    done = call_wherry(project, "run", "orders.yaml", "--set", state)
    assert done.returncode == 0, done.stderr
    rows, refused = read_rows(s3, "tables/orders"), read_rows(s3, "dlq")
    assert {row["id"]: row["score"] for row in rows} == {row["id"]: row["id"] * 0.5 for row in rows}
    assert sorted([*(row["id"] for row in rows), *(json.loads(row["original"])["id"] for row in refused)]) == [
        *range(1, 41)
    ]
    assert "too large" in {row["message"] for row in refused}
    audit = call_wherry(project, "audit", "orders.yaml", "--set", state)
    assert "balances" in audit.stdout, audit.stdout + audit.stderr


@pytest.mark.long
def test_a_batch_with_a_lost_worker_is_delivered_once(project: Path, cluster: Cluster, s3: S3, tmp_path: Path) -> None:
    """The only executor is killed with its worker while it writes, and another executor repeats the task.
    State and tables are in the store. The audit balances, and `repair` has nothing to do.
    """
    file = project / "orders.yaml"
    text = file.read_text().replace("bad: 0.2", "bad: 0")
    by_spark = '"spark.delta.logStore.s3a.impl": "io.delta.storage.S3SingleDriverLogStore"'  # the driver writes no rows
    file.write_text(text.replace('"spark.cores.max": "2"', f'"spark.cores.max": "1", {by_spark}'))
    state = f"state={s3.make_url('wherry/orders', 's3')}"
    child = Child([*WHERRY, "run", str(file), "--set", state], tmp_path / "run.log", _make_environment())
    held = s3.proxy.add(Fault("hold", "PUT", FILES))
    assert held.reached.wait(300), child.read_log() + cluster.read_logs()
    assert list_writers(s3) == ["Hadoop"]
    (busy,) = (number for number in range(2) if cluster.list_executors(number))
    cluster.kill_worker(busy)
    held.let_go()
    child.wait_for("orders +40 +39 +0 +1")
    child.end()
    assert {*list_writers(s3)} == {"Hadoop"}
    assert len(list_writers(s3)) >= 3, "the other executor writes the rows of the lost one again"
    assert sorted(row["id"] for row in read_rows(s3, "tables/orders")) == [each for each in range(1, 41) if each != 7]
    audit = call_wherry(project, "audit", "orders.yaml", "--set", state)
    assert "balances" in audit.stdout, audit.stdout + audit.stderr
    repair = call_wherry(project, "repair", "orders.yaml", "--yes", "--reason", "a test", "--set", state)
    assert repair.returncode == 0, repair.stdout + repair.stderr


@pytest.mark.long
def test_doctor_names_what_executors_lack(project: Path) -> None:
    """They lack a folder and a package that a Python stage imports."""
    (project / "beside.py").write_text("import not_there\nSHARE = 1\n")
    (project / "not_there.py").write_text("")
    done = call_wherry(project, "doctor", "--cluster", "orders.yaml", "--json")
    found = {each["name"]: each["state"] for each in json.loads(done.stdout)["checks"]}
    assert (done.returncode, found["Folders"], found["Delta"], found["Clock"], found["Store"]) == (
        1,
        "problem",
        "ok",
        "ok",
        "ok",
    )


def call_wherry_with_other_python(project: Path, folder: Path, s3: S3, addresses: str, *command: str) -> Any:
    """Run a command with the definition, while the workers with these addresses have another Python."""
    (folder / "sitecustomize.py").write_text(OTHER.replace("{addresses}", addresses))
    program = folder / "python"
    program.write_text(f'#!/bin/sh\nPYTHONPATH={folder}:$PYTHONPATH exec {sys.executable} "$@"\n')
    program.chmod(0o755)
    file = project / "other.yaml"
    text = (project / "orders.yaml").read_text()
    file.write_text(text.replace('"spark.cores.max"', f'"spark.pyspark.python": "{program}", "spark.cores.max"'))
    return call_wherry(project, *command, str(file), "--set", f"state={s3.make_url('wherry/orders', 's3')}")


@pytest.mark.long
def test_doctor_names_the_different_python_of_one_worker(project: Path, shared_disk: Path, s3: S3) -> None:
    """It checks every executor."""
    done = call_wherry_with_other_python(project, shared_disk, s3, "127.0.0.3", "doctor", "--cluster")
    assert done.returncode == 1, done.stdout + done.stderr
    assert "is not Python" in done.stdout


@pytest.mark.long
def test_a_run_with_another_python_delivers_nothing_and_reports_why(project: Path, shared_disk: Path, s3: S3) -> None:
    """A later run with the right Python delivers every row."""
    done = call_wherry_with_other_python(project, shared_disk, s3, "127.0.0.2 127.0.0.3", "run")
    assert done.returncode == 1, done.stdout + done.stderr
    assert "Python in worker has different version" in done.stderr
    assert "Its offset stays" in done.stderr
    assert "wherry doctor --cluster FILE" in done.stderr
    done = call_wherry(project, "run", "orders.yaml", "--set", f"state={s3.make_url('wherry/orders', 's3')}")
    assert done.returncode == 0, done.stdout + done.stderr
    rows, refused = read_rows(s3, "tables/orders"), read_rows(s3, "dlq")
    ids = [*(row["id"] for row in rows), *(json.loads(row["original"])["id"] for row in refused)]
    assert sorted(ids) == [*range(1, 41)]


def use_jars_of_machines(project: Path) -> None:
    """Let each machine use local JARs of Delta, as if its image had them. Let executors commit what they write."""
    conf = {
        "spark.jars.packages": "",
        "spark.driver.extraClassPath": ":".join(map(str, list_delta_jars())),
        "spark.executor.extraClassPath": OWN_JARS,
        "spark.delta.logStore.s3a.impl": "io.delta.storage.S3SingleDriverLogStore",
    }
    file = project / "orders.yaml"
    file.write_text(file.read_text().replace('{"spark.', f'{json.dumps(conf)[:-1]}, "spark.', 1))


@pytest.mark.long
def test_doctor_names_the_worker_without_delta(project: Path, cluster: Cluster) -> None:
    """It names only this worker, and the version of the driver."""
    use_jars_of_machines(project)
    cluster.give_jars(0, list_delta_jars())
    cluster.give_jars(1, [])
    done = call_wherry(project, "doctor", "--cluster", "orders.yaml", "--json")
    assert done.returncode == 1, done.stdout + done.stderr
    found = [each for each in json.loads(done.stdout)["checks"] if each["name"] == "Delta"]
    assert [(each["state"], each["found"]) for each in found] == [
        ("problem", "127.0.0.3 has no Delta; the driver has 4.4.0")
    ]


@pytest.mark.long
def test_a_run_on_a_worker_without_delta_fails_and_loses_nothing(project: Path, cluster: Cluster, s3: S3) -> None:
    """It is the only worker. The error names `doctor`. A later run, with the driver's JARs on the worker, delivers
    every row.
    """
    use_jars_of_machines(project)
    state = f"state={s3.make_url('wherry/orders', 's3')}"
    cluster.kill_worker(0)
    cluster.give_jars(1, [])
    failed = call_wherry(project, "run", "orders.yaml", "--set", state)
    assert failed.returncode == 1, failed.stdout + failed.stderr
    assert "cannot assign instance of" in failed.stderr
    assert "Its offset stays" in failed.stderr
    assert "wherry doctor --cluster FILE" in failed.stderr
    cluster.give_jars(1, list_delta_jars())
    done = call_wherry(project, "run", "orders.yaml", "--set", state)
    assert done.returncode == 0, done.stdout + done.stderr
    rows, refused = read_rows(s3, "tables/orders"), read_rows(s3, "dlq")
    ids = [*(row["id"] for row in rows), *(json.loads(row["original"])["id"] for row in refused)]
    assert sorted(ids) == [*range(1, 41)]


@pytest.mark.long
def test_spark_submit_runs_a_pipeline_with_a_short_script(project: Path, cluster: Cluster, s3: S3) -> None:
    """It runs in client mode. The master of the definition is not used."""
    script = project / "wherry_main.py"
    script.write_text("from runners.command_line.cli import main\n\nmain()\n")
    file = project / "orders.yaml"
    file.write_text(re.sub(r"(?m)^spark: .*\n", "spark: {master: 'spark://nowhere:1'}\n", file.read_text()))
    conf = {**make_spark_settings(), **cluster.settings, **s3.spark_settings, "spark.log.level": "WARN"}
    words = [word for key, value in conf.items() for word in ("--conf", f"{key}={value}")]
    submit = str(Path(pyspark.__file__).parent / "bin/spark-submit")
    state = f"state={s3.make_url('wherry/orders', 's3')}"
    environment = {**_make_environment(), "PYSPARK_PYTHON": sys.executable}
    done = run([submit, *words, str(script), "run", str(file), "--set", state], environment)
    assert done.returncode == 0, done.stdout + done.stderr
    rows, refused = read_rows(s3, "tables/orders"), read_rows(s3, "dlq")
    ids = [*(row["id"] for row in rows), *(json.loads(row["original"])["id"] for row in refused)]
    assert sorted(ids) == [*range(1, 41)]


@pytest.mark.long
def test_a_client_of_spark_connect_runs_a_pipeline_on_the_servers_cluster(
    project: Path, cluster: Cluster, s3: S3, tmp_path: Path
) -> None:
    """The client has no Spark, and its credentials for the store are in the environment."""
    file = project / "orders.yaml"
    file.write_text(re.sub(r"(?m)^spark: .*\n", "", file.read_text()))
    settings = {**cluster.settings, **s3.spark_settings, "spark.jars": join_store_jars()}
    server = Server(tmp_path / "server", settings={**settings, "spark.driver.memory": "1g"})
    try:
        environment = {
            **_make_environment(),
            "SPARK_REMOTE": server.get().connect,
            "AWS_ENDPOINT_URL": s3.endpoint,
            "AWS_ACCESS_KEY_ID": KEY,
            "AWS_SECRET_ACCESS_KEY": SECRET,
            "AWS_REGION": REGION,
        }
        state = f"state={s3.make_url('wherry/orders', 's3')}"
        done = run([*WHERRY, "run", str(file), "--set", state], environment)
    finally:
        server.close()
    assert done.returncode == 0, done.stdout + done.stderr
    rows, refused = read_rows(s3, "tables/orders"), read_rows(s3, "dlq")
    ids = [*(row["id"] for row in rows), *(json.loads(row["original"])["id"] for row in refused)]
    assert sorted(ids) == [*range(1, 41)]
    assert {*list_writers(s3)} == {"Hadoop"}
