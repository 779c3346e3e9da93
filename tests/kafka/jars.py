"""The JARs of the broker and of Spark's Kafka source, fetched once from Maven into the cache of the tests.

`python -m tests.kafka.jars` fetches them beforehand.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

KAFKA = "3.9.2"
FOLDER = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / f"wherry-tests/kafka-{KAFKA}"
_BROKER = (f"org.apache.kafka:kafka_2.13:{KAFKA}", "org.slf4j:slf4j-simple:1.7.36")
_SPARK = (
    "org.apache.spark:spark-sql-kafka-0-10_2.13:4.2.0",
    "org.apache.spark:spark-token-provider-kafka-0-10_2.13:4.0.0",  # it has not changed since
    "org.apache.kafka:kafka-clients:3.9.1",
    "org.apache.commons:commons-pool2:2.12.1",
)
"""What Spark does not bring itself."""


def fetch() -> None:
    """Fetch what is missing. Raises `RuntimeError` where that cannot be."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    handle = os.open(FOLDER, os.O_RDONLY)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        if not (FOLDER / "whole").exists():
            _copy("broker", _BROKER, alone=False)
            _copy("spark", _SPARK, alone=True)
            (FOLDER / "whole").touch()
    finally:
        os.close(handle)


def say_why_not() -> str | None:
    """Why there can be no broker here; None where there can."""
    missing = [each for each in ("java", "mvn") if shutil.which(each) is None]
    if not missing or (missing == ["mvn"] and (FOLDER / "whole").exists()):
        return None
    return f"Kafka needs {' and '.join(missing)}: install Java 17 or 21, and Maven, which fetches the broker"


def list_spark_jars() -> list[str]:
    """The files that `spark.jars` takes."""
    fetch()
    return sorted(map(str, (FOLDER / "spark").glob("*.jar")))


def _copy(name: str, packages: Sequence[str], *, alone: bool) -> None:
    """Put the JARs of these packages into a folder; those of their dependencies too, unless they come `alone`."""
    every = "<exclusions><exclusion><groupId>*</groupId><artifactId>*</artifactId></exclusion></exclusions>"
    parts = ""
    for group, artifact, version in (package.split(":") for package in packages):
        known = f"<groupId>{group}</groupId><artifactId>{artifact}</artifactId><version>{version}</version>"
        parts += f"<dependency>{known}{every if alone else ''}</dependency>"
    head = "<modelVersion>4.0.0</modelVersion><groupId>wherry</groupId><artifactId>tests</artifactId>"
    file = FOLDER / f"{name}.xml"
    file.write_text(f"<project>{head}<version>1</version><dependencies>{parts}</dependencies></project>")
    options = ["-q", "-B", "-f", str(file), "dependency:copy-dependencies", f"-DoutputDirectory={FOLDER / name}"]
    done = subprocess.run(["mvn", *options], check=False, capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(f"Maven could not fetch the JARs of Kafka:\n{done.stdout}{done.stderr}")


if __name__ == "__main__":
    fetch()
    sys.stdout.write(f"The JARs of Kafka {KAFKA} are in {FOLDER}.\n")
