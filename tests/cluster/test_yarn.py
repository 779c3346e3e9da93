"""A pipeline on YARN, with its files and tables in HDFS and its state in S3. The containers cannot see Wherry."""

from __future__ import annotations

import json
import os
import sys
import tarfile
from pathlib import Path

import deltalake
import pyspark
import pytest

import destinations
import origins
import runners
import stages
from tests.child import WHERRY, clean_environment, run
from tests.cluster.yarn import Yarn
from tests.stores.hdfs import Hdfs
from tests.stores.jars import make_spark_settings
from tests.stores.s3 import S3

pytestmark = [pytest.mark.spark, pytest.mark.cluster, pytest.mark.long]

DEFINITION = """
name: orders
origin:
  files: {path: "FOLDER/landing/*.json", format: json, schema: "id long, amount string"}
stages:
  - cast: {amount: "decimal(10,2)"}
destinations:
  - delta: {path: "FOLDER/tables/orders"}
dlq: {window: 0}
state: STATE
"""
ROWS = [{"id": number, "amount": "n/a" if number % 10 == 0 else "1.50"} for number in range(1, 41)]
SPARK_HOME = Path(pyspark.__file__).parent


@pytest.fixture
def file(hdfs: Hdfs, s3: S3, tmp_path: Path) -> Path:
    """A definition with waiting rows."""
    landing = tmp_path / "landing"
    landing.mkdir()
    for number in range(4):
        lines = [json.dumps(row) for row in ROWS[number * 10 : number * 10 + 10]]
        (landing / f"{number}.json").write_text("\n".join(lines))
    hdfs.put(landing)
    file = tmp_path / "orders.yaml"
    text = DEFINITION.replace("FOLDER", hdfs.make_url().rstrip("/"))
    file.write_text(text.replace("STATE", s3.make_url("wherry/orders")))
    return file


def make_settings(s3: S3) -> dict[str, str]:
    """Return the settings for small containers with the Spark and the Python of this machine."""
    return {
        **make_spark_settings(),
        **s3.spark_settings,
        "spark.yarn.jars": f"local:{SPARK_HOME}/jars/*",
        "spark.executor.instances": "1",
        "spark.executor.memory": "512m",
        "spark.driver.memory": "700m",
        "spark.yarn.am.memory": "512m",
        "spark.pyspark.python": sys.executable,
        "spark.log.level": "WARN",
    }


def make_environment(yarn: Yarn) -> dict[str, str]:
    """Return the environment of a user with YARN's settings."""
    here = {"SPARK_HOME": str(SPARK_HOME), "SPARK_LOCAL_IP": "127.0.0.1", "HADOOP_CONF_DIR": str(yarn.conf)}
    return clean_environment(**here, PYTHONPATH=os.pathsep.join(filter(None, sys.path)))


def check_rows(hdfs: Hdfs, s3: S3, file: Path, environment: dict[str, str]) -> None:
    """Check that every row is in the table or in the DLQ, and that the audit balances."""
    rows = deltalake.DeltaTable(hdfs.make_url("tables/orders")).to_pyarrow_table().to_pylist()
    dlq = deltalake.DeltaTable(s3.make_url("wherry/orders/dlq"), storage_options=s3.storage_options)
    refused = dlq.to_pyarrow_table().to_pylist()
    assert sorted(row["id"] for row in rows) == [row["id"] for row in ROWS if row["amount"] != "n/a"]
    assert sorted(json.loads(row["original"])["id"] for row in refused) == [10, 20, 30, 40]
    audit = run([*WHERRY, "audit", str(file)], environment)
    assert audit.returncode == 0, audit.stdout + audit.stderr


def test_a_driver_in_a_yarn_container_runs_a_pipeline(
    file: Path, hdfs: Hdfs, s3: S3, yarn: Yarn, tmp_path: Path
) -> None:
    """`spark-submit --deploy-mode cluster` sends the script, the definition and an archive with Wherry."""
    script, archive = tmp_path / "wherry_main.py", tmp_path / "wherry.tar.gz"
    script.write_text("from runners.command_line.cli import main\n\nmain()\n")
    with tarfile.open(archive, "w:gz") as packed:
        for package in (origins, stages, destinations, runners):
            folder = Path(package.__path__[0])
            packed.add(folder, folder.name, filter=lambda each: None if "__pycache__" in each.name else each)
    settings = {
        **make_settings(s3),
        "spark.yarn.appMasterEnv.PYTHONPATH": "wherry",
        "spark.executorEnv.PYTHONPATH": "wherry",
        "spark.yarn.maxAppAttempts": "1",
    }
    words = [word for name, text in settings.items() for word in ("--conf", f"{name}={text}")]
    words += ["--master", "yarn", "--deploy-mode", "cluster", "--files", str(file), "--archives", f"{archive}#wherry"]
    environment = make_environment(yarn)
    done = run([f"{SPARK_HOME}/bin/spark-submit", *words, str(script), "run", file.name], environment)
    assert done.returncode == 0, done.stderr[-5_000:] + yarn.read_logs()
    check_rows(hdfs, s3, file, environment)


def test_a_definition_may_have_yarn_as_its_master(file: Path, hdfs: Hdfs, s3: S3, yarn: Yarn) -> None:
    """The command is the driver, and executors are containers."""
    settings = {name: text for name, text in make_settings(s3).items() if not name.startswith("spark.sql.")}
    spark = {"master": "yarn", "conf": settings}
    file.write_text(f"{file.read_text()}spark: {json.dumps(spark)}\n")
    environment = make_environment(yarn)
    done = run([*WHERRY, "run", str(file)], environment)
    assert done.returncode == 0, done.stdout + done.stderr + yarn.read_logs()
    check_rows(hdfs, s3, file, environment)
