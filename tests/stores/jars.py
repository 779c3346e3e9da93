"""The JARs with which Spark accesses object stores."""

from __future__ import annotations

import subprocess
from pathlib import Path

from origins.spark_versions import find_parts
from runners.spark.jars import KEPT, fetch_one_at_a_time
from runners.spark.start import DELTA_CATALOG, EXCLUDED, list_store_packages

SPARK = find_parts()
PACKAGES = list(dict.fromkeys(package for packages in list_store_packages().values() for package in packages))

FOLDER = Path(KEPT).expanduser() / "jars"


def fetch() -> None:
    """Fetch missing JARs into the folder where Spark looks for them."""
    from pyspark.find_spark_home import _find_spark_home

    settings = {"spark.jars.packages": ",".join([SPARK.delta, *PACKAGES])}
    command = [f"{_find_spark_home()}/bin/spark-submit", "--packages", settings["spark.jars.packages"]]
    command += ["--exclude-packages", ",".join(EXCLUDED), "--class", "org.apache.hadoop.util.VersionInfo"]
    with fetch_one_at_a_time(settings):
        if not are_there():
            done = subprocess.run([*command, "spark-internal"], capture_output=True, text=True, check=False)
            if done.returncode:
                raise RuntimeError(f"The JARs for object stores could not be fetched:\n{done.stderr}")


def are_there() -> bool:
    """Whether no JAR is missing. Spark moves the JARs there once it has all."""
    named = (each.split(":") for each in PACKAGES)
    return all((FOLDER / f"{group}_{artifact}-{version}.jar").exists() for group, artifact, version in named)


def list_delta_jars() -> list[Path]:
    """Return Delta's JARs for the Spark of the tests."""
    ours = f"_{SPARK.delta.split(':')[1]}-"
    return sorted(jar for jar in FOLDER.glob("io.delta_*.jar") if "_delta-spark_" not in jar.name or ours in jar.name)


def list_store_jars() -> list[Path]:
    """Return the JARs for S3 and Azure that Spark does not include."""
    names = [
        *(f"org.apache.hadoop_hadoop-{store}-{SPARK.hadoop}" for store in ("aws", "azure")),
        *(f"software.amazon.awssdk_*-{SPARK.sdk}", "software.amazon.eventstream_*", "software.amazon.s3.*"),
        *("org.reactivestreams_*", "org.wildfly.openssl_*", "org.apache.hadoop.thirdparty_*", "org.hdrhistogram_*"),
    ]
    return sorted(file for name in names for file in FOLDER.glob(f"{name}.jar"))


def join_store_jars() -> str:
    """Return the JARs for S3 and Azure as a value for `spark.jars`. Fetch missing ones."""
    fetch()
    return ",".join(map(str, list_store_jars()))


def make_spark_settings() -> dict[str, str]:
    """Return the settings of a plain Spark with Delta and the JARs for object stores, whose executors may be remote.

    Missing JARs are fetched. All JARs are named as files, since Spark needs seconds to resolve `spark.jars.packages`.
    If a driver in Python sets both, its executors do not get the packages.
    """
    fetch()
    return {
        "spark.jars": ",".join(map(str, [*list_delta_jars(), *list_store_jars()])),
        "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
        "spark.sql.catalog.spark_catalog": DELTA_CATALOG,
        "spark.databricks.delta.snapshotPartitions": "1",
        "spark.sql.shuffle.partitions": "2",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
    }
