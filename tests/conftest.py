"""Provide the Spark session that the tests share: classic, or Spark Connect with `--spark connect`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest
from hypothesis import settings

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

settings.register_profile("same", deadline=None, derandomize=True)
settings.register_profile("random", deadline=None)
settings.load_profile("same")

pytest_plugins = [
    "pytester",
    "tests.promises",
    "tests.sample",
    "tests.small_disk",
    "tests.cluster.cluster",
    "tests.kafka.broker",
    "tests.kafka.registry",
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
    from tests.serverless import lack_what_serverless_lacks

    place = tmp_path_factory.mktemp("spark")
    conf = {
        "spark.sql.warehouse.dir": str(place / "warehouse"),
        "spark.driver.extraJavaOptions": f"-Dderby.system.home={place}",
    }
    connect = request.config.getoption("--spark") == "connect"
    session = start(conf, connect=connect)
    if connect:
        lack_what_serverless_lacks()
    yield session
    if not connect:  # the server of a Connect session ends with this process
        session.stop()


@pytest.fixture
def spark(spark_server: SparkSession) -> SparkSession:
    """Provide a separate Spark session for the test."""
    from runners.spark.session import make_own_session

    return make_own_session(spark_server)
