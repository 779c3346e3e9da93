"""Each version of Spark gets the JARs that belong to it, and an unknown version is refused before a row is read."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import pyarrow as pa
import pyspark
import pytest
from pyspark.errors import PySparkException

from destinations.delta import Delta
from origins.memory import Memory, Script
from origins.origin import Progress
from origins.spark_versions import (
    UnsupportedSpark,
    add_answers,
    check_client,
    check_given,
    describe_misfit,
    find_kafka_package,
    find_version,
    make_arrow_schema,
    read_arrow_schema,
)
from runners.definitions.definition import definition_of
from runners.model.spec import PipelineSpec
from runners.running.run import PipelineRun
from runners.spark.start import list_settings, list_store_packages
from tests.child import WHERRY

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

DEFINITION = """
name: orders
origin:
  files: {path: "landing/*.json", format: json, schema: "id long"}
destinations:
  - delta: {path: orders}
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A pipeline with one row that waits."""
    (tmp_path / "landing").mkdir()
    (tmp_path / "landing" / "a.json").write_text('{"id": 1}\n')
    (tmp_path / "orders.yaml").write_text(DEFINITION)
    return tmp_path


def pretend(version: str, place: Path) -> Path:
    """Make the installed pyspark importable under another version. Return the folder for Python's path."""
    real, ours = Path(pyspark.__file__).parent, place / "pyspark"
    ours.mkdir(parents=True)
    for each in real.iterdir():
        if each.name not in ("version.py", "__pycache__"):
            (ours / each.name).symlink_to(each)
    (ours / "version.py").write_text(f'__version__: str = "{version}"\n')
    return place


def run_wherry(folder: Path, path: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """Run a command of Wherry with another folder before the installed packages."""
    paths = os.pathsep.join([str(path), os.getcwd(), os.environ.get("PYTHONPATH", "")])
    env = {**os.environ, "PYTHONPATH": paths}
    return subprocess.run([*WHERRY, *words], cwd=folder, env=env, capture_output=True, text=True, check=False)


@pytest.mark.parametrize(
    ("version", "reason"),
    [
        ("4.3.0", "Delta does not support Spark 4.3 yet"),
        ("3.5.9", "Delta 4.4.0 needs Spark 4.0, 4.1 or 4.2"),
    ],
)
def test_an_unknown_spark_is_refused_before_a_row_is_read(folder: Path, version: str, reason: str) -> None:
    """The sentence has the version and the reason. The row waits, and no table is made."""
    ended = run_wherry(folder, pretend(version, folder / "path"), "run", "orders.yaml")
    said = " ".join((ended.stdout + ended.stderr).split())
    assert (ended.returncode != 0, reason in said, "Traceback" in said) == (True, True, False), said
    assert f"pyspark {version} is installed" in said
    assert not (folder / "orders").exists()


@pytest.mark.parametrize(
    ("version", "hadoop", "kafka"),
    [
        ("4.0.1", "3.4.1", "4.0.0"),
        ("4.0.3", "3.4.1", "4.0.0"),
        ("4.1.1", "3.4.2", "4.1.1"),
        ("4.2.0", "3.5.0", "4.2.0"),
        ("4.2.1", "3.5.0", "4.2.0"),
    ],
)
def test_spark_is_started_with_the_jars_that_belong_to_it(
    monkeypatch: pytest.MonkeyPatch, version: str, hadoop: str, kafka: str
) -> None:
    """They are those of Delta, of the stores and of Kafka. All fixes of a Spark take the same ones."""
    monkeypatch.setattr(pyspark, "__version__", version)
    short = version.rpartition(".")[0]
    assert list_settings({})["spark.jars.packages"] == f"io.delta:delta-spark_{short}_2.13:4.4.0"
    assert list_store_packages()["abfss"] == [f"org.apache.hadoop:hadoop-azure:{hadoop}"]
    assert find_kafka_package() == f"org.apache.spark:spark-sql-kafka-0-10_2.13:{kafka}"
    assert describe_misfit(version) == ""


def test_the_class_for_checkpoints_is_one_of_the_installed_spark() -> None:
    """It moved to another package in Spark 4.1."""
    name = list_settings({})["spark.sql.streaming.checkpointFileManagerClass"]
    assert (".checkpointing." in name) == (not pyspark.__version__.startswith("4.0."))


def test_the_version_is_found_without_an_import() -> None:
    """It is the version that an import would give."""
    asked = "import sys; from origins import spark_versions as s; print(s.find_version(), 'pyspark' in sys.modules)"
    said = subprocess.run([sys.executable, "-c", asked], capture_output=True, text=True, check=True).stdout
    assert said.split() == [pyspark.__version__, "False"]
    assert find_version() == pyspark.__version__


class GivenSpark:
    """A session of some version."""

    def __init__(self, version: str) -> None:
        self.version = version


@pytest.mark.parametrize("version", ["3.5.0", "3.5.2"])
def test_an_older_given_spark_is_refused(version: str) -> None:
    """The sentence has the version, and the hint names the oldest runtime of Databricks."""
    given: Any = GivenSpark(version)
    with pytest.raises(UnsupportedSpark, match=rf"Spark {version}, and Wherry needs Spark 4\.0") as raised:
        check_given(given)
    assert "17.3 LTS" in raised.value.hint


class Watched(Memory):
    """An origin that notes that a run looked for its rows."""

    looks: ClassVar[list[str]] = []

    def survey(self, spark: SparkSession, progress: Progress) -> Script:
        self.looks.append(self.name or "")
        return super().survey(spark, progress)


def test_a_run_on_an_older_given_spark_ends_before_it_looks(folder: Path) -> None:
    """No origin is asked for rows, and no table is made."""
    origin = Watched(items=[{"id": 1}], schema="id long")
    spec = PipelineSpec(
        name="orders", origin=origin, destinations=[Delta(path=str(folder / "orders"))], state=str(folder / "state")
    )
    definition = definition_of(spec)
    given: Any = GivenSpark("3.5.2")
    run = PipelineRun(pipeline=definition.pipeline, text=definition.text, hash=definition.hash, spark=given)
    with pytest.raises(UnsupportedSpark, match=r"Spark 3\.5\.2") as refused:
        run.carry()
    assert (refused.value.code, Watched.looks) == ("VERSION", [])
    assert not (folder / "orders").exists()


def test_an_older_client_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """Errors of pyspark 3.5 do not name their conditions, so Wherry could recognise none."""
    check_client()
    monkeypatch.delattr(PySparkException, "getCondition")
    monkeypatch.setattr(pyspark, "__version__", "3.5.2")
    with pytest.raises(UnsupportedSpark, match=r"This is Spark 3\.5\.2, and Wherry needs Spark 4\.0 or newer"):
        check_client()


def test_a_newer_given_spark_is_warned_about(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    """Databricks has a Delta of its own, so it gets no warning."""
    newer: Any = GivenSpark("4.3.0")
    known: Any = GivenSpark("4.0.0")
    monkeypatch.delenv("DATABRICKS_RUNTIME_VERSION", raising=False)
    check_given(known)
    assert caplog.messages == []
    check_given(newer)
    check_given(newer)
    (said,) = caplog.messages
    assert said == "This is Spark 4.3.0, and Wherry knows Spark 4.0, 4.1 or 4.2; Delta does not support Spark 4.3 yet."
    monkeypatch.setenv("DATABRICKS_RUNTIME_VERSION", "19.3")
    again: Any = GivenSpark("4.4.0.dev0")
    check_given(again)
    assert caplog.messages == [said]


def test_moments_have_the_same_types_in_every_version() -> None:
    """Before Spark 4.2, pyspark has other defaults."""
    schema = pa.schema([("a", pa.timestamp("us")), ("b", pa.timestamp("us", "UTC"))])
    read = read_arrow_schema(schema)
    assert [each.dataType.typeName() for each in read] == ["timestamp_ntz", "timestamp"]
    assert make_arrow_schema(read) == schema


@pytest.mark.parametrize("size", [1, 2, 3, 10])
def test_each_row_keeps_its_answer(size: int) -> None:
    """Batches come and answers leave in different pieces, and some batches are empty."""

    def double(values: Iterator[pa.Array]) -> Iterator[pa.Array]:
        whole = pa.concat_arrays([*values])
        yield from (pa.array([2 * each.as_py() for each in whole[at : at + size]]) for at in range(0, len(whole), size))

    batches = [
        pa.RecordBatch.from_pydict({"id": ids, "given": ids}, pa.schema([("id", pa.int64()), ("given", pa.int64())]))
        for ids in ([1, 2, 3], [], [4], [5, 6])
    ]
    schema = pa.schema([("id", pa.int64()), ("answer", pa.int64())])
    added = pa.Table.from_batches([*add_answers(double, ("given",), "answer", schema, iter(batches))], schema)
    assert added.to_pylist() == [{"id": each, "answer": 2 * each} for each in range(1, 7)]
