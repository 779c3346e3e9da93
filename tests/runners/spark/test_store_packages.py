"""A Spark that Wherry starts gets the JARs for the object stores of a definition."""

from __future__ import annotations

import importlib.util
from dataclasses import replace
from pathlib import Path

import pytest

from destinations.delta.delta import Delta
from destinations.dlq import Dlq
from origins.files.files import Files
from origins.spark_versions import find_kafka_package
from runners.model.spec import PipelineSpec, SparkOptions
from runners.spark.session import list_packages
from runners.spark.start import EXCLUDED, list_settings

HOST = "acc.dfs.core.windows.net"


def make_pipeline(
    *, path: str = "landing", table: str = "tables/orders", state: str = "", dlq: str = ""
) -> PipelineSpec:
    """Return a pipeline with these places."""
    return PipelineSpec(
        name="orders",
        origin=Files(path=path, format="csv"),
        destinations=[Delta(path=table)],
        state=state or None,
        dlq=Dlq(destination=Delta(path=dlq) if dlq else None),
    )


def list_names(**places: str) -> list[str]:
    """Return the names of the artifacts without versions."""
    return [package.split(":")[1] for package in list_packages(make_pipeline(**places))]


@pytest.mark.parametrize("place", ["path", "table", "state", "dlq"])
def test_a_place_on_s3_adds_its_jars(place: str) -> None:
    """This is true of every place. Amazon's bundle is excluded."""
    names = list_names(**{place: "s3://bucket/folder"})
    assert names == ["hadoop-aws", "s3", "sts", "s3-transfer-manager", "apache-client"]
    settings = list_settings({}, list_packages(make_pipeline(**{place: "s3a://bucket/folder"})))
    assert "software.amazon.awssdk:bundle" in settings["spark.jars.excludes"]


def test_a_place_on_azure_adds_its_jar() -> None:
    """It is a JAR of Hadoop."""
    assert list_names(state=f"abfss://c@{HOST}/orders") == ["hadoop-azure"]


def test_local_places_add_no_jars() -> None:
    """No JAR is excluded either."""
    assert list_names() == []
    assert "spark.jars.excludes" not in list_settings({})


@pytest.mark.parametrize(
    "spark",
    [
        SparkOptions(packages=["org.apache.hadoop:hadoop-aws:3.4.1"]),
        SparkOptions(conf={"spark.jars": "/opt/jars/hadoop-aws-3.4.1.jar"}),
        SparkOptions(conf={"spark.jars.packages": "org.apache.hadoop:hadoop-aws:3.4.1"}),
    ],
)
def test_a_definition_with_a_connector_gets_no_other(spark: SparkOptions) -> None:
    """The connector may be a package or a file."""
    packages = list_packages(replace(make_pipeline(state="s3://bucket/folder"), spark=spark))
    assert packages == list(spark.packages)
    assert "spark.jars.excludes" not in list_settings(spark.conf, packages)


@pytest.mark.parametrize("scheme", ["s3", "abfss"])
def test_packages_of_a_definition_keep_all_their_dependencies(scheme: str) -> None:
    """Spark's exclusions apply to all packages, so nothing is excluded."""
    options = SparkOptions(packages=["org.example:udfs:1.0"])
    packages = list_packages(replace(make_pipeline(state=f"{scheme}://c@{HOST}/orders"), spark=options))
    assert packages[0] == "org.example:udfs:1.0"
    assert len(packages) > 1
    assert "spark.jars.excludes" not in list_settings({}, packages)
    assert "spark.jars.excludes" not in list_settings({"spark.jars.packages": "org.example:udfs:1.0"}, packages[1:])


def test_sparks_own_package_for_kafka_changes_nothing() -> None:
    """The bundle of all Amazon services stays excluded. Without a store nothing is."""
    options = SparkOptions(packages=[find_kafka_package()])
    packages = list_packages(replace(make_pipeline(state="s3://bucket/folder"), spark=options))
    assert "software.amazon.awssdk:bundle" in list_settings({}, packages)["spark.jars.excludes"]
    assert "spark.jars.excludes" not in list_settings({}, list(options.packages))


def test_excluded_jars_are_part_of_spark() -> None:
    """The exceptions are the bundle of all Amazon services and the older library of Azure."""
    pyspark = Path(str(importlib.util.find_spec("pyspark").origin)).parent  # type: ignore[union-attr]
    names = {each.partition(":")[2] for each in EXCLUDED} - {"bundle", "azure-storage"}
    names = {"jcl-over-slf4j" if name == "commons-logging" else name for name in names}
    assert [name for name in names if not [*pyspark.glob(f"jars/{name}-[0-9]*.jar")]] == []
