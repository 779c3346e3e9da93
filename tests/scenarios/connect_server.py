"""A Spark Connect server in a process of its own: `python -m tests.scenarios.connect_server PORT FOLDER`.

It says `ready` when it listens, and ends with its standard input.
"""

from __future__ import annotations

import sys

from runners.session import start


def main(port: str, folder: str) -> None:
    """Serve until nobody is there any more."""
    start(
        {
            "spark.plugins": "org.apache.spark.sql.connect.SparkConnectPlugin",
            "spark.connect.grpc.binding.port": port,
            "spark.sql.warehouse.dir": f"{folder}/warehouse",
            "spark.driver.extraJavaOptions": f"-Dderby.system.home={folder}",
        }
    )
    print("ready", flush=True)  # noqa: T201
    sys.stdin.read()


if __name__ == "__main__":
    main(*sys.argv[1:])
