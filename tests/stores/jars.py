"""The JARs with which Spark reaches object stores.

Hadoop's own choice for S3 is a bundle of all of Amazon's services, 690 MB. These are the few that it needs, 18 MB.
"""

from __future__ import annotations

import subprocess
from pathlib import Path

from runners.spark.start import DELTA, DELTA_CATALOG, KEPT, fetch_one_at_a_time

SDK = "2.35.4"
"""The version of Amazon's libraries that Hadoop 3.5.0 was built with."""

S3 = (
    "org.apache.hadoop:hadoop-aws:3.5.0",
    *(f"software.amazon.awssdk:{part}:{SDK}" for part in ("s3", "sts", "s3-transfer-manager", "apache-client")),
)

AZURE = ("org.apache.hadoop:hadoop-azure:3.5.0",)

EXCLUDED = (
    *("software.amazon.awssdk:bundle", "com.microsoft.azure:*"),
    *("io.netty:*", "org.apache.httpcomponents:*", "commons-codec:*", "commons-logging:*"),
)
"""What the packages name and Spark does without. It has the second line's libraries itself."""


FOLDER = Path(KEPT).expanduser() / "jars"


def fetch() -> None:
    """Fetch what is missing into the folder where Spark looks for it."""
    from pyspark.find_spark_home import _find_spark_home

    settings = {"spark.jars.packages": ",".join([DELTA, *S3, *AZURE])}
    command = [f"{_find_spark_home()}/bin/spark-submit", "--packages", settings["spark.jars.packages"]]
    command += ["--exclude-packages", ",".join(EXCLUDED), "--class", "org.apache.hadoop.util.VersionInfo"]
    with fetch_one_at_a_time(settings):
        if not are_there():
            done = subprocess.run([*command, "spark-internal"], capture_output=True, text=True, check=False)
            if done.returncode:
                raise RuntimeError(f"The JARs for object stores could not be fetched:\n{done.stderr}")


def are_there() -> bool:
    """Whether nothing is missing: Spark puts the JARs there once it has them all."""
    named = (each.split(":") for each in (*S3, *AZURE))
    return all((FOLDER / f"{group}_{artifact}-{version}.jar").exists() for group, artifact, version in named)


def list_delta_jars() -> list[Path]:
    """Delta's own JARs."""
    return sorted(FOLDER.glob("io.delta_*.jar"))


def list_store_jars() -> list[Path]:
    """The JARs for S3 and Azure that no other part of Spark brings."""
    names = [
        *("org.apache.hadoop_hadoop-aws-3.5.0", "org.apache.hadoop_hadoop-azure-3.5.0"),
        *(f"software.amazon.awssdk_*-{SDK}", "software.amazon.eventstream_*", "software.amazon.s3.*"),
        *("org.reactivestreams_*", "org.wildfly.openssl_*", "org.apache.hadoop.thirdparty_*", "org.hdrhistogram_*"),
    ]
    return sorted(file for name in names for file in FOLDER.glob(f"{name}.jar"))


def make_spark_settings() -> dict[str, str]:
    """The settings of a plain Spark with Delta and with the JARs for object stores, whose executors may be elsewhere.

    Missing JARs are fetched. All of them are named as files: Spark looks up for seconds what `spark.jars.packages`
    names, and a driver in Python that sets both takes the packages away from its executors.
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
