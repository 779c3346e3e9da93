"""How a Spark is started, and two first starts on one machine at the same time."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from origins.secret import SecretText
from runners.spark.start import fetch_one_at_a_time, find_executor_python, list_launch_settings, list_settings

STARTS = """
import sys
from runners.spark.start import start
print(start({"spark.jars.ivy": sys.argv[1]}).range(3).count())
"""


@pytest.mark.spark
def test_two_that_start_first_at_the_same_time_both_start(tmp_path: Path) -> None:
    """Both fetch the JARs into the same empty folder, as two scheduled jobs on a new machine do."""
    given = {**os.environ, "PYTHONPATH": os.getcwd()}
    starts = [sys.executable, "-c", STARTS, str(tmp_path / "ivy")]
    both = [subprocess.Popen(starts, env=given, stdout=-1, stderr=-1, text=True) for _ in range(2)]
    said = [each.communicate(timeout=300) for each in both]
    assert [(each.returncode, out) for each, (out, _) in zip(both, said, strict=True)] == [(0, "3\n")] * 2, said


def test_nobody_waits_for_jars_that_are_there(tmp_path: Path) -> None:
    """While another process fetches others."""
    (tmp_path / "jars").mkdir()
    (tmp_path / "jars" / "org.example_some_2.13-1.0.jar").touch()
    fetches = {"spark.jars.ivy": str(tmp_path), "spark.jars.packages": "org.example:other:1.0"}
    has = {"spark.jars.ivy": str(tmp_path), "spark.jars.packages": "org.example:some_2.13:1.0"}
    with fetch_one_at_a_time(fetches), fetch_one_at_a_time(has):
        assert True


def test_a_folder_that_cannot_be_made_is_left_to_spark(tmp_path: Path) -> None:
    """Which says what is wrong with it."""
    (tmp_path / "file").touch()
    with fetch_one_at_a_time(
        {"spark.jars.ivy": str(tmp_path / "file" / "ivy"), "spark.jars.packages": "org.example:a:1"}
    ):
        assert not (tmp_path / "file" / "ivy").exists()


LOCAL = {"spark.delta.logStore.file.impl", "spark.sql.streaming.checkpointFileManagerClass"}


def test_a_cluster_gets_none_of_the_settings_for_one_machine() -> None:
    """Neither the classes for a local disk, nor an address that others cannot reach, nor this machine's cores."""
    settings = list_settings({"spark.master": "spark://10.0.0.5:7077"})
    assert not {*LOCAL, "spark.driver.host", "spark.driver.bindAddress", "spark.sql.shuffle.partitions"} & {*settings}
    assert list_settings({}).keys() > {*LOCAL, "spark.driver.host", "spark.sql.shuffle.partitions"}


@pytest.mark.parametrize("master", ["spark://127.0.0.1:7077", "spark://localhost:7077", "spark://[::1]:7077"])
def test_the_driver_stays_on_loopback_where_its_cluster_is(master: str) -> None:
    """Nobody else has to reach it there."""
    assert list_settings({"spark.master": master})["spark.driver.host"] == "127.0.0.1"


@pytest.mark.parametrize("key", ["spark.kubernetes.namespace", "spark.yarn.queue", "spark.driver.host"])
def test_settings_of_a_definition_reach_spark_as_they_are(key: str) -> None:
    """On a cluster too."""
    assert list_settings({"spark.master": "yarn", key: "mine"})[key] == "mine"


def test_no_secret_of_yarn_is_in_the_list_of_processes() -> None:
    """A JVM is started with the other settings of YARN, and with no store's."""
    settings = {
        "spark.yarn.queue": "night",
        "spark.yarn.appMasterEnv.TOKEN": "word",
        "spark.yarn.am.extraJavaOptions": SecretText("-Dword=word", "-Dword=${secret:WORD}"),
        "spark.hadoop.fs.s3a.secret.key": "word",
    }
    assert list_launch_settings(settings) == {"spark.yarn.queue": "night"}


@pytest.mark.parametrize(
    ("settings", "program"),
    [
        ({}, sys.executable),
        ({"spark.master": "spark://127.0.0.1:7077"}, sys.executable),
        ({"spark.master": "yarn"}, "python3"),
        ({"spark.master": "yarn", "spark.pyspark.python": "/opt/python"}, "/opt/python"),
    ],
)
def test_executors_get_a_python_that_their_machines_can_have(
    settings: dict[str, str], program: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The one that runs us is on this machine alone."""
    monkeypatch.delenv("PYSPARK_PYTHON", raising=False)
    assert find_executor_python(settings) == program
