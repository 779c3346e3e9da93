"""How Spark starts, also in two processes at once, and what happens if its JVM ends early."""

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
def test_two_processes_that_start_at_the_same_time_both_start(tmp_path: Path) -> None:
    """Both fetch the JARs into the same empty folder, like two scheduled jobs on a new machine."""
    given = {**os.environ, "PYTHONPATH": os.getcwd()}
    starts = [sys.executable, "-c", STARTS, str(tmp_path / "ivy")]
    both = [subprocess.Popen(starts, env=given, stdout=-1, stderr=-1, text=True) for _ in range(2)]
    said = [each.communicate(timeout=300) for each in both]
    assert [(each.returncode, out) for each, (out, _) in zip(both, said, strict=True)] == [(0, "3\n")] * 2, said


LOCAL = {"spark.delta.logStore.file.impl", "spark.sql.streaming.checkpointFileManagerClass"}


def test_a_cluster_gets_no_settings_for_one_machine() -> None:
    """These are the classes for a local disk, a loopback address and the number of local cores."""
    settings = list_settings({"spark.master": "spark://10.0.0.5:7077"})
    assert not {*LOCAL, "spark.driver.host", "spark.driver.bindAddress", "spark.sql.shuffle.partitions"} & {*settings}
    assert list_settings({}).keys() > {*LOCAL, "spark.driver.host", "spark.sql.shuffle.partitions"}


@pytest.mark.parametrize("key", ["spark.kubernetes.namespace", "spark.yarn.queue", "spark.driver.host"])
def test_settings_of_a_definition_reach_spark_unchanged(key: str) -> None:
    """This is also true of a cluster."""
    assert list_settings({"spark.master": "yarn", key: "mine"})[key] == "mine"


def test_the_warehouse_of_a_catalog_in_memory_is_in_the_cache_of_the_user(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All folders of a user share it, so a warm Spark can be shared too."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "my cache"))
    assert list_settings({})[WAREHOUSE] == f"file:{tmp_path}/my cache/wherry/spark/warehouse"


WAREHOUSE = "spark.sql.warehouse.dir"


@pytest.mark.parametrize(
    "key",
    [
        "spark.sql.catalogImplementation",
        "spark.sql.catalog.lake",
        "spark.hadoop.hive.metastore.uris",
        "spark.hadoop.javax.jdo.option.ConnectionURL",
        "spark.sql.hive.metastore.version",
    ],
)
def test_a_configured_catalog_keeps_its_warehouse(key: str) -> None:
    """Its tables are there."""
    assert WAREHOUSE not in list_settings({key: "mine"})
    assert list_settings({key: "mine", WAREHOUSE: "/srv/tables"})[WAREHOUSE] == "/srv/tables"


def test_settings_beside_the_definition_decide_about_the_warehouse(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Spark reads them only when it starts, so they may configure a catalog."""
    (tmp_path / "spark-defaults.conf").touch()
    monkeypatch.setenv("SPARK_CONF_DIR", str(tmp_path))
    assert WAREHOUSE not in list_settings({})


@pytest.mark.spark
def test_spark_leaves_nothing_in_the_folder_where_a_person_works(tmp_path: Path) -> None:
    """A command that uses the catalog makes no folder there."""
    given = {**os.environ, "PYTHONPATH": os.getcwd()}
    (tmp_path / "work").mkdir()
    asks = [sys.executable, "-c", ASKS]
    asked = subprocess.run(asks, env=given, cwd=tmp_path / "work", capture_output=True, text=True, check=False)
    assert (asked.returncode, asked.stdout, [*(tmp_path / "work").iterdir()]) == (0, "default\n", []), asked.stderr


ASKS = """
from runners.spark.start import start
print(start({}).sql("show databases").first().namespace)
"""


def test_no_secret_of_yarn_is_in_the_command_of_the_jvm() -> None:
    """The command has the other settings of YARN, and no settings of stores."""
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
def test_executors_get_a_python_that_exists_on_their_machines(
    settings: dict[str, str], program: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The Python of this process is only on this machine."""
    monkeypatch.delenv("PYSPARK_PYTHON", raising=False)
    assert find_executor_python(settings) == program


@pytest.mark.parametrize(("script", "code"), [("kill -9 $$", -signal.SIGKILL), ("exit 3", 3)])
def test_the_exit_code_of_a_jvm_that_ends_early_is_known(
    script: str, code: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A signal that killed the JVM is known too."""
    monkeypatch.setattr("pyspark.SparkContext._gateway", None)
    with pytest.raises(JvmEnded) as ended:
        launch_jvm({}, contextlib.nullcontext(), subprocess.DEVNULL, ["sh", "-c", script])
    assert ended.value.code == code


@pytest.mark.parametrize(
    ("code", "said", "short"),
    [(-signal.SIGKILL, "was killed by SIGKILL", True), (-signal.SIGTERM, "was killed by SIGTERM", False),
     (3, "ended with exit code 3", False)],
)  # fmt: skip
def test_the_end_of_a_jvm_is_described(
    code: int, said: str, short: bool, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The error names the log of the JVM.

    Linux kills processes if memory is short, so that error has a hint about memory.
    """

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

def build_without_jvm(settings):
    os.kill(find_jvm().pid, signal.SIGKILL)
    return build(settings)

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
def test_a_jvm_starts_after_another_was_killed_during_its_start() -> None:
    """Both start in the same process, because the next run of a scheduler needs a JVM."""
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
    """The test tools of pyspark load when a program imports them."""
    given = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    ran = subprocess.run([sys.executable, "-c", LOADS], env=given, capture_output=True, text=True, check=False)
    assert ran.stdout.splitlines() == ["['two'] []", "[7, [1, 2]]"], ran.stderr
