"""Fixtures that are Databricks as far as open parts allow."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from tests.scenarios.shared_jvm import Server

if TYPE_CHECKING:
    from tests.databricks.proxy import DatabricksProxy


@pytest.fixture(scope="session")
def connect_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """Provide an open Spark Connect server in another process."""
    server = Server(tmp_path_factory.mktemp("jvm"))
    yield server
    server.close()


@pytest.fixture
def serverless(connect_server: Server) -> Iterator[DatabricksProxy]:
    """Provide a Spark that refuses what serverless refuses. Its warehouse holds managed tables."""
    from tests.databricks.limits import SERVERLESS
    from tests.databricks.proxy import DatabricksProxy

    limits = replace(SERVERLESS, managed=(str(connect_server.folder / "warehouse"),))
    with DatabricksProxy(connect_server.get().connect, limits) as proxy:
        yield proxy
