"""Run a Spark that outlives the Python processes that use it: `python -m tests.scenarios.shared_jvm FOLDER PORT
[SETTINGS]`.

One JVM serves both classic sessions and Spark Connect. The process prints its addresses as a line of JSON, and ends
when its standard input ends.
"""

from __future__ import annotations

import contextlib
import functools
import json
import multiprocessing
import os
import select
import signal
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.child import find_free_ports

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PROCESSES = multiprocessing.get_context("forkserver")
"""The context for new processes. Each is forked from a process that has imported the needed modules and done nothing
else."""
PROCESSES.set_forkserver_preload(
    ["pyspark.sql", "pyspark.sql.connect.session", "runners.running.run", "runners.ways.deciding"]
)

SECOND_CATALOG = {
    "spark.sql.catalog.second": "org.apache.spark.sql.execution.datasources.v2.jdbc.JDBCTableCatalog",
    "spark.sql.catalog.second.url": "jdbc:derby:memory:second;create=true",
    "spark.sql.catalog.second.driver": "org.apache.derby.iapi.jdbc.AutoloadedDriver",
}
"""The settings of a catalog beside that of the session. It is a database in memory, and Spark opens it at first use."""

LONGEST = 60
"""How many seconds a killed JVM may take to end."""


@dataclass(frozen=True, kw_only=True)
class Spark:
    """The addresses of a running Spark."""

    pid: int
    """The process id of the JVM."""
    port: int
    secret: str
    connect: str

    @functools.cache  # noqa: B019  (there is one instance, and it exists as long as the process)
    def session(self, *, connect: bool) -> SparkSession:
        """Return this process's session in the JVM. `runners.spark.session.obtain` finds this session."""
        if connect:
            os.environ["SPARK_REMOTE"] = self.connect
            from pyspark.sql.connect.session import SparkSession as Remote

            return Remote.builder.remote(self.connect).getOrCreate()  # type: ignore[return-value,unused-ignore]
        os.environ.update(PYSPARK_GATEWAY_PORT=str(self.port), PYSPARK_GATEWAY_SECRET=self.secret)
        from pyspark import SparkConf, SparkContext
        from pyspark.java_gateway import launch_gateway
        from pyspark.sql import SparkSession

        gateway = launch_gateway()  # type: ignore[no-untyped-call]
        there = gateway.jvm.org.apache.spark.SparkContext.getOrCreate()
        context = gateway.jvm.org.apache.spark.api.java.JavaSparkContext.fromSparkContext(there)
        conf = SparkConf(_jvm=gateway.jvm, _jconf=context.getConf())
        return SparkSession(SparkContext(gateway=gateway, jsc=context, conf=conf))

    def kill(self) -> None:
        """Kill the JVM."""
        os.kill(self.pid, signal.SIGKILL)

    def wait_for_end(self) -> None:
        """Wait until the killed JVM has ended."""
        with contextlib.suppress(ProcessLookupError):
            jvm = os.pidfd_open(self.pid)
            try:
                ended, _, _ = select.select([jvm], [], [], LONGEST)
            finally:
                os.close(jvm)
            assert ended, f"the JVM {self.pid} lives {LONGEST} s after it was killed"


class Server:
    """A shared Spark. If it was killed, it is started again on the same port."""

    def __init__(self, folder: Path, settings: Mapping[str, str] | None = None) -> None:
        self.folder, self.settings = folder, dict(settings or {})
        (self.port,) = find_free_ports(1)
        self.process: subprocess.Popen[str] | None = None
        self.spark: Spark | None = None

    def get(self) -> Spark:
        """Return the running Spark, and start it if necessary."""
        if self.spark is not None and Path(f"/proc/{self.spark.pid}/exe").exists():
            return self.spark
        self.close()
        command = [sys.executable, "-m", "tests.scenarios.shared_jvm", str(self.folder), str(self.port)]
        command.append(json.dumps(self.settings))
        other = {name: value for name, value in os.environ.items() if not name.startswith(("SPARK_", "PYSPARK_"))}
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, env=other
        )
        assert self.process.stdout is not None
        self.spark = Spark(**json.loads(self.process.stdout.readline()))
        return self.spark

    def close(self) -> None:
        """End the Spark."""
        if self.process is not None:
            self.process.kill()
            self.process.communicate()
        self.process = self.spark = None


def main(folder: str, port: str, settings: str = "{}") -> None:
    """Serve until standard input ends."""
    from runners.spark.start import start

    # With only one compiler, the JVM reserves 48 MB for compiled code, which many runs would fill.
    quick = "-XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=240m -XX:+UseSerialGC"
    spark = start(
        {
            "spark.plugins": "org.apache.spark.sql.connect.SparkConnectPlugin",
            "spark.connect.grpc.binding.port": port,
            "spark.sql.warehouse.dir": f"{folder}/warehouse",
            "spark.driver.extraJavaOptions": f"-Dderby.system.home={folder} {quick}",
            "spark.driver.memory": "2g",
            **SECOND_CATALOG,
            **json.loads(settings),
        }
    )
    gateway: Any = spark.sparkContext._gateway
    given = gateway.gateway_parameters
    found = Spark(pid=gateway.proc.pid, port=given.port, secret=given.auth_token, connect=f"sc://localhost:{port}")
    print(json.dumps(asdict(found)), flush=True)  # noqa: T201
    sys.stdin.read()


if __name__ == "__main__":
    main(*sys.argv[1:])
