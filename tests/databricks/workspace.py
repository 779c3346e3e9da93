"""Fixtures that are Databricks as far as open parts allow."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.databricks.notebook import Compute, build_wheel, hide
from tests.databricks.volume import compile_library
from tests.scenarios.shared_jvm import Server

if TYPE_CHECKING:
    from tests.databricks.proxy import DatabricksProxy


@pytest.fixture(scope="session")
def connect_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """Provide an open Spark Connect server in another process."""
    from origins.spark_private import keep_client_threads

    keep_client_threads()
    server = Server(tmp_path_factory.mktemp("jvm"))
    yield server
    server.close()


@pytest.fixture(scope="session")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Provide the wheel of this checkout."""
    return build_wheel(tmp_path_factory.mktemp("wheel"))


@contextlib.contextmanager
def open_compute(compute: Compute, server: Server) -> Iterator[tuple[str, list[str]]]:
    """Yield the address of a Spark that refuses what this compute refuses, and the list of what it has refused.

    Its warehouse holds managed tables. A dedicated cluster has a classic session, which asks no proxy.
    """
    from tests.databricks.limits import SERVERLESS, STANDARD
    from tests.databricks.proxy import DatabricksProxy

    spark = server.get()
    if compute.dedicated:
        yield f"jvm://:{spark.secret}@localhost:{spark.port}", []
        return
    limits = replace(SERVERLESS if compute.serverless else STANDARD, managed=(str(server.folder / "warehouse"),))
    with DatabricksProxy(spark.connect, limits) as proxy:
        yield proxy.address, proxy.refusals


@pytest.fixture
def serverless(connect_server: Server, monkeypatch: pytest.MonkeyPatch) -> Iterator[DatabricksProxy]:
    """Provide a Spark that refuses what serverless refuses. Its warehouse holds managed tables.

    With `--spark connect`, clients would show it the token of the tests' own server, and encrypt the channel for that.
    """
    from tests.databricks.limits import SERVERLESS
    from tests.databricks.proxy import DatabricksProxy

    monkeypatch.delenv("SPARK_CONNECT_AUTHENTICATE_TOKEN", raising=False)
    limits = replace(SERVERLESS, managed=(str(connect_server.folder / "warehouse"),))
    with DatabricksProxy(connect_server.get().connect, limits) as proxy:
        yield proxy


@pytest.fixture(scope="session")
def volume_library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Provide the compiled library that makes a folder a volume."""
    return compile_library(tmp_path_factory.mktemp("library"))


def begin_on(
    compute: Compute,
    address: str,
    *words: str,
    folder: Path,
    hidden: Path | None = None,
    variables: Mapping[str, str] | None = None,
) -> subprocess.Popen[str]:
    """Start `wherry` or a module in a process that has a session, as on this compute.

    It works in the folder, has these variables too, and writes to one stream. It finds nothing in the `hidden` folder,
    if root starts it.
    """
    inherited = {name: value for name, value in os.environ.items() if not name.startswith(("SPARK_", "PYSPARK_"))}
    ours = {"DATABRICKS_RUNTIME_VERSION": compute.version, "PYTHONPATH": str(Path(__file__).parents[2])}
    program = [sys.executable, "-m", "tests.databricks.given_session", address, compute.clones, *words]
    return subprocess.Popen(
        [*hide(hidden), *program],
        env={**inherited, **ours, **(variables or {})},
        cwd=folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
