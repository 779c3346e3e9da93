"""JARs with another sum than the list's are refused: before Spark starts, and after it fetched them."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from unittest import mock

import pytest
from pyspark.sql import SparkSession

from origins.spark_private import get_jvm
from runners.spark.jars import KEPT, WrongJar, check_jars, fetch_one_at_a_time, list_local_jars, read_sums
from runners.spark.start import start
from tests.jars import compute_sums, fetch, list_choices, list_coordinates
from tests.versions import PAIRS

STARTS = """
import sys
from runners.spark.jars import WrongJar
from runners.spark.start import start
try:
    start({"spark.jars.ivy": sys.argv[1], "spark.jars.ivySettings": sys.argv[2]})
except WrongJar as error:
    print(error, error.hint)
"""
RESOLVERS = """<ivysettings>
  <settings defaultResolver="both"/>
  <caches defaultCacheDir="{folder}/cache"/>
  <resolvers>
    <chain name="both" returnFirst="true">
      <filesystem name="stranger" m2compatible="true">
        <ivy pattern="{folder}/stranger/[organisation]/[module]/[revision]/[module]-[revision].pom"/>
        <artifact pattern="{folder}/stranger/[organisation]/[module]/[revision]/[module]-[revision].[ext]"/>
      </filesystem>
      <ibiblio name="central" m2compatible="true"/>
    </chain>
  </resolvers>
</ivysettings>
"""
POM = """<project><modelVersion>4.0.0</modelVersion>
<groupId>io.delta</groupId><artifactId>delta-storage</artifactId><version>{version}</version></project>
"""


def list_named() -> Iterator[object]:
    """Yield each coordinate that Wherry names for a Spark of `.ci/versions`."""
    for spark in (package.partition("==")[2] for pair in PAIRS for package in pair.packages[:1]):
        with mock.patch("origins.spark_versions.find_version", return_value=spark):
            for each in sorted(list_coordinates()):
                yield pytest.param(each, id=f"{spark}-{each}")


@pytest.mark.parametrize("coordinate", [*list_named()])
def test_each_coordinate_that_wherry_names_has_a_sum(coordinate: str) -> None:
    """Delta, the stores and Kafka have JARs of their own for each Spark."""
    group, artifact, version = coordinate.split(":")
    assert f"{group}_{artifact}-{version}.jar" in read_sums()


@pytest.mark.long
def test_each_jar_that_the_installed_spark_fetches_has_its_sum(tmp_path: Path) -> None:
    """Its own resolver fetches them into an empty folder, with all that they need."""
    for settings in list_choices():
        fetch(settings, tmp_path)
    found = compute_sums(tmp_path)
    assert len(found) > 50
    assert found.items() <= read_sums().items()


@pytest.mark.spark
@pytest.mark.skipif("config.getoption('--spark') == 'connect'")
def test_every_jar_that_wherry_fetches_has_a_sum(spark: SparkSession) -> None:
    """The list has the JARs of Delta, with all that they need. A quick start has them in its class path."""
    class_path = str(get_jvm(spark).java.lang.System.getProperty("java.class.path")).split(":")
    kept = Path(KEPT).expanduser() / "jars"
    named = list_local_jars(str(spark.conf.get("spark.jars", "")))
    fetched = [file for file in map(Path, [*named, *class_path]) if file.parent == kept]
    assert any(file.name.startswith("io.delta_delta-spark") for file in fetched)
    assert {file.name for file in fetched} <= {*read_sums()}
    check_jars(fetched)


def test_a_replaced_jar_is_found_before_the_start(tmp_path: Path) -> None:
    """The error names the file and both sums, and no JVM has read the JAR."""
    name = next(each for each in read_sums() if each.startswith("io.delta_delta-spark"))
    (tmp_path / "jars").mkdir()
    (tmp_path / "jars" / name).write_bytes(b"of a stranger")
    with pytest.raises(WrongJar) as caught:
        start({"spark.jars.ivy": str(tmp_path)})
    said = f"{caught.value} {caught.value.hint}"
    assert str(tmp_path / "jars" / name) in said
    assert read_sums()[name] in said
    assert [file.name for file in tmp_path.iterdir()] == ["jars"]


def test_a_jar_that_only_a_definition_names_is_not_compared(tmp_path: Path) -> None:
    """Wherry knows no sum for it."""
    (tmp_path / "org.example_own-1.0.jar").write_bytes(b"anything")
    check_jars([tmp_path / "org.example_own-1.0.jar", tmp_path / "missing.jar"])


def test_a_process_with_its_jars_does_not_wait_for_another_fetch(tmp_path: Path) -> None:
    """Another process fetches other JARs meanwhile."""
    (tmp_path / "jars").mkdir()
    (tmp_path / "jars" / "org.example_some_2.13-1.0.jar").touch()
    fetches = {"spark.jars.ivy": str(tmp_path), "spark.jars.packages": "org.example:other:1.0"}
    has = {"spark.jars.ivy": str(tmp_path), "spark.jars.packages": "org.example:some_2.13:1.0"}
    with fetch_one_at_a_time(fetches), fetch_one_at_a_time(has):
        assert True


def test_a_folder_that_cannot_be_made_is_left_to_spark(tmp_path: Path) -> None:
    """Spark reports the error."""
    (tmp_path / "file").touch()
    with fetch_one_at_a_time(
        {"spark.jars.ivy": str(tmp_path / "file" / "ivy"), "spark.jars.packages": "org.example:a:1"}
    ):
        assert not (tmp_path / "file" / "ivy").exists()


@pytest.mark.long
@pytest.mark.spark
def test_a_repository_that_serves_another_jar_is_noticed(tmp_path: Path) -> None:
    """Ivy itself finds nothing wrong, since that repository serves what belongs to the JAR too."""
    name = next(each for each in read_sums() if each.startswith("io.delta_delta-storage"))
    version = name.removeprefix("io.delta_delta-storage-").removesuffix(".jar")
    place = tmp_path / "stranger" / "io" / "delta" / "delta-storage" / version
    place.mkdir(parents=True)
    (place / f"delta-storage-{version}.pom").write_text(POM.format(version=version))
    jar = place / f"delta-storage-{version}.jar"
    shutil.copy(Path(KEPT).expanduser() / "jars" / name, jar)
    jar.write_bytes(b"a few bytes more" + jar.read_bytes())
    (tmp_path / "ivysettings.xml").write_text(RESOLVERS.format(folder=tmp_path))
    words = [sys.executable, "-c", STARTS, str(tmp_path / "ivy"), str(tmp_path / "ivysettings.xml")]
    given = {**os.environ, "PYTHONPATH": os.getcwd()}
    done = subprocess.run(words, env=given, capture_output=True, text=True, check=False, timeout=400)
    assert name in done.stdout, done.stdout + done.stderr
    assert read_sums()[name] in done.stdout
