"""The JARs of the broker. Maven fetches them once into the cache of the tests.

`python -m tests.kafka.jars` fetches them before the tests.
"""

from __future__ import annotations

import sys

from tests.maven import CACHE, copy_jars, fetch_once

KAFKA = "3.9.2"
FOLDER = CACHE / f"kafka-{KAFKA}"
_BROKER = (f"org.apache.kafka:kafka_2.13:{KAFKA}", "org.slf4j:slf4j-simple:1.7.36")


def fetch() -> None:
    """Fetch missing JARs. Raises `RuntimeError` if that fails."""
    with fetch_once(FOLDER) as missing:
        if missing:
            copy_jars(FOLDER, "broker", _BROKER, alone=False)


if __name__ == "__main__":
    fetch()
    sys.stdout.write(f"The JARs of Kafka {KAFKA} are in {FOLDER}.\n")
