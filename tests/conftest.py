"""Provide the Spark session that the tests share: classic, or Spark Connect with `--spark connect`."""

from __future__ import annotations

import os
import sys
import tempfile
import warnings
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

import pytest
from hypothesis import settings

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "0")  # as in `wherry serve`: tests fork beside servers of gRPC
settings.register_profile("same", deadline=None, derandomize=True)
settings.register_profile("random", deadline=None)
settings.load_profile("same")

pytest_plugins = [
    "pytester",
    "tests.promises",
    "tests.sample",
    "tests.small_disk",
    "tests.cluster.cluster",
    "tests.databricks.workspace",
    "tests.kafka.broker",
    "tests.kafka.registry",
    "tests.postgres",
    "tests.stores.azure",
    "tests.stores.hdfs",
    "tests.stores.s3",
    "tests.cluster.yarn",  # it imports the others
]


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--spark", choices=["classic", "connect"], default="classic", help="which Spark the tests use")


@pytest.fixture(scope="session", autouse=True)
def _width() -> Iterator[None]:
    """Set a terminal width of 100 columns, wherever the tests are run."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setenv("COLUMNS", "100")
        yield


@pytest.fixture(scope="session")
def spark_server(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """Provide one Spark for all tests, started as Wherry starts it."""
    from runners.spark.start import start
    from tests.scenarios.shared_jvm import SECOND_CATALOG
    from tests.serverless import lack_what_serverless_lacks

    place = tmp_path_factory.mktemp("spark")
    conf = {
        "spark.sql.warehouse.dir": str(place / "warehouse"),
        "spark.driver.extraJavaOptions": f"-Dderby.system.home={place}",
        **SECOND_CATALOG,
    }
    if request.config.getoption("--spark") == "connect":
        session = _start_server(conf)
        lack_what_serverless_lacks()
        yield session  # its server ends with this process
        return
    session = start(conf)
    yield session
    session.stop()


def _start_server(conf: Mapping[str, str]) -> SparkSession:
    """Start a Spark Connect server with the settings of Wherry's Spark. Its output goes to no test."""
    from pyspark.sql import SparkSession

    from runners.spark.jars import fetch_one_at_a_time
    from runners.spark.start import list_settings, silence_loggers, use_python

    settings = list_settings(conf)
    silence_loggers()
    builder = SparkSession.builder.remote(f"local[{os.cpu_count() or 2}]").appName("wherry")
    for key, value in settings.items():
        builder = builder.config(key, value)
    with (
        fetch_one_at_a_time(settings),
        use_python(settings),
        warnings.catch_warnings(),
        tempfile.TemporaryFile() as noise,
    ):
        # The client sends the server's start settings to it again, and the server refuses them.
        warnings.filterwarnings("ignore", "Failed to set .* due to \\[CANNOT_MODIFY", UserWarning)
        sys.stderr.flush()
        kept = os.dup(2)
        os.dup2(noise.fileno(), 2)  # the server inherits it
        try:
            return builder.getOrCreate()
        finally:
            os.dup2(kept, 2)
            os.close(kept)


@pytest.fixture
def spark(spark_server: SparkSession) -> SparkSession:
    """Provide a separate Spark session for the test."""
    from runners.spark.own_session import make_own_session

    return make_own_session(spark_server)
