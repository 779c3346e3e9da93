"""A Spark Connect server on this machine, which stays for the commands of one user."""

from __future__ import annotations

import importlib.util
import secrets
import socket
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from origins.lazy import SparkSession
from origins.spark_private import find_jvm
from origins.spark_versions import is_on_databricks
from runners.spark.session import is_given
from runners.spark.start import SparkMissing, describe_end, start

_HOST = "127.0.0.1"


@dataclass(frozen=True, kw_only=True)
class ConnectServer:
    """A Spark that other processes can use."""

    spark: SparkSession
    remote: str = field(repr=False)
    """What `SPARK_REMOTE` must be for a command that uses it. It has a token, which every call needs."""

    def wait(self) -> None:
        """Raise `SparkMissing` once the JVM has ended."""
        jvm = find_jvm()
        assert jvm is not None
        raise SparkMissing(f"The JVM of this Spark {describe_end(jvm.wait())}.", hint="Start it again:  wherry warm")

    def stop(self) -> None:
        """End the Spark."""
        self.spark.stop()


def serve(conf: Mapping[str, str], packages: Sequence[str]) -> ConnectServer:
    """Start a Spark with these settings, which answers on the loopback of this machine.

    Raises `SparkMissing` if it cannot start, or if commands would not reach it.
    """
    if is_on_databricks():
        raise SparkMissing("On Databricks the session is warm already, so this command is not needed.")
    if is_given():
        raise SparkMissing(
            "Commands in this terminal have a Spark already, so none is started.",
            hint="To start one nevertheless:  unset SPARK_REMOTE",
        )
    if importlib.util.find_spec("grpc") is None:
        raise SparkMissing(
            "Commands reach a Spark that stays by Spark Connect. Its client is not installed.",
            hint='Install it with:  pip install "wherry[connect]"',
        )
    port, token = _find_port(), secrets.token_urlsafe(32)
    spark = start(
        {
            **conf,
            "spark.plugins": "org.apache.spark.sql.connect.SparkConnectPlugin",
            "spark.connect.grpc.binding.address": _HOST,
            "spark.connect.grpc.binding.port": str(port),
            "spark.connect.authenticate.token": token,
        },
        packages,
    )
    # pyspark sends a token without TLS to a host with this name only.
    return ConnectServer(spark=spark, remote=f"sc://localhost:{port}/;token={token}")


def _find_port() -> int:
    """Return a port of the loopback that is free now."""
    with socket.socket() as tried:
        tried.bind((_HOST, 0))
        return int(tried.getsockname()[1])
