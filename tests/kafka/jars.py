"""The JARs of the broker and of Spark's Kafka source. Maven fetches them once into the cache of the tests.

`python -m tests.kafka.jars` fetches them before the tests.
"""

from __future__ import annotations

import sys

from tests.maven import CACHE, copy_jars, fetch_once

KAFKA = "3.9.2"
FOLDER = CACHE / f"kafka-{KAFKA}"
_BROKER = (f"org.apache.kafka:kafka_2.13:{KAFKA}", "org.slf4j:slf4j-simple:1.7.36")
_SPARK = (
    "org.apache.spark:spark-sql-kafka-0-10_2.13:4.2.0",
    "org.apache.spark:spark-token-provider-kafka-0-10_2.13:4.0.0",  # it has not changed since
    "org.apache.kafka:kafka-clients:3.9.1",
    "org.apache.commons:commons-pool2:2.12.1",
)
"""The JARs that Spark does not include."""


def fetch() -> None:
    """Fetch missing JARs. Raises `RuntimeError` if that fails."""
    with fetch_once(FOLDER) as missing:
        if missing:
            copy_jars(FOLDER, "broker", _BROKER, alone=False)
            copy_jars(FOLDER, "spark", _SPARK, alone=True)


def list_spark_jars() -> list[str]:
    """Return the files for `spark.jars`."""
    fetch()
    return sorted(map(str, (FOLDER / "spark").glob("*.jar")))


if __name__ == "__main__":
    fetch()
    sys.stdout.write(f"The JARs of Kafka {KAFKA} are in {FOLDER}.\n")
