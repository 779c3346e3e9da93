"""How a Spark is started, also by two at the same time, and where its JVM ends in the middle."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from origins.secret import SecretText
from origins.spark_private import JvmEnded, launch_jvm
from runners.spark import start
from runners.spark.start import (
    SparkMissing,
    fetch_one_at_a_time,
    find_executor_python,
    list_launch_settings,
    list_settings,
)

STARTS = """
import sys
from runners.spark.start import start
print(start({"spark.jars.ivy": sys.argv[1]}).range(3).count())
"""


@pytest.mark.long
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


@pytest.mark.parametrize(("script", "code"), [("kill -9 $$", -signal.SIGKILL), ("exit 3", 3)])
def test_how_a_jvm_ends_before_it_is_found_is_known(script: str, code: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where it was killed."""
    monkeypatch.setattr("pyspark.SparkContext._gateway", None)
    with pytest.raises(JvmEnded) as ended:
        launch_jvm({}, contextlib.nullcontext(), subprocess.DEVNULL, ["sh", "-c", script])
    assert ended.value.code == code


@pytest.mark.parametrize(
    ("code", "said", "short"),
    [(-signal.SIGKILL, "was killed by SIGKILL", True), (-signal.SIGTERM, "was killed by SIGTERM", False),
     (3, "ended with exit code 3", False)],
)  # fmt: skip
def test_a_jvm_that_ends_is_told_in_words(
    code: int, said: str, short: bool, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Its own words are kept. Linux kills where memory is short, so the error says what helps then."""

    def launch(*_: object) -> bool:
        raise JvmEnded(code)

    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", None)
    monkeypatch.setattr(start, "_launch", launch)
    monkeypatch.setattr(start, "check_java", lambda: "Java 17")
    with pytest.raises(SparkMissing) as missing:
        start.start({})
    (log,) = tmp_path.glob("wherry-spark-*.log")
    assert missing.value.message == f"Spark did not start: its JVM {said} before it was up."
    assert str(log) in missing.value.hint
    assert ("spark.driver.memory" in missing.value.hint) is short


KILLED = """
import os, signal
from origins.spark_private import find_jvm
from runners.spark import start

build = start.build_session

def build_without_jvm(settings, *, connect):
    os.kill(find_jvm().pid, signal.SIGKILL)
    return build(settings, connect=connect)

start.build_session = build_without_jvm
try:
    start.start({})
except start.SparkMissing as error:
    print(error.message)
start.build_session = build
print(start.start({}).range(3).count())
"""


@pytest.mark.spark
@pytest.mark.long
def test_after_a_jvm_that_was_killed_before_its_session_was_up_another_one_starts() -> None:
    """In the same process: the next run of a scheduler needs one."""
    given = {**os.environ, "PYTHONPATH": os.getcwd()}
    ran = subprocess.run([sys.executable, "-c", KILLED], env=given, capture_output=True, text=True, check=False)
    killed = "Spark did not start: its JVM was killed by SIGKILL before it was up."
    assert (ran.returncode, ran.stdout.splitlines()) == (0, [killed, "3"]), ran.stderr


LOADS = """
import sys
from runners.spark.start import start
from pyspark.sql import functions as F

session = start({}, [])
rows = session.range(3).where(F.col("id") > F.lit(1)).select(F.when(F.col("id") == 2, F.lit("two")).alias("word"))
print([row.word for row in rows.collect()], sorted({"pandas", "numpy", "pyarrow"} & {*sys.modules}))

from pyspark.testing import assertDataFrameEqual
import numpy

assertDataFrameEqual(rows, rows)
numbers = session.range(1).select(F.lit(numpy.int64(7)).alias("a"), F.lit(numpy.array([1, 2])).alias("b"))
print([*numbers.first()])
"""


def test_literals_load_no_pandas_and_numpy_still_works() -> None:
    """pyspark's tools for tests are there as soon as a program asks for them."""
    given = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    ran = subprocess.run([sys.executable, "-c", LOADS], env=given, capture_output=True, text=True, check=False)
    assert ran.stdout.splitlines() == ["['two'] []", "[7, [1, 2]]"], ran.stderr
