"""`wherry doctor --databricks` on a server that refuses what serverless refuses."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from destinations.delta.delta import Delta
from origins.memory import Memory
from origins.spark_versions import find_version
from runners.command_line.databricks_doctor import examine_databricks
from runners.model.spec import PipelineSpec, SchemaState

if TYPE_CHECKING:
    from tests.databricks.proxy import DatabricksProxy

pytestmark = pytest.mark.spark


def lack_clone() -> None:
    raise AttributeError("cloneSession")


def test_it_names_the_compute_and_what_its_client_lacks(
    serverless: DatabricksProxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It tries nothing that is refused, and leaves no table behind."""
    from pyspark.sql.connect.session import SparkSession as Remote

    monkeypatch.setenv("DATABRICKS_RUNTIME_VERSION", "client.4.12")
    spark: Any = Remote(serverless.address)
    spark.cloneSession = lack_clone
    spark.sql("CREATE SCHEMA IF NOT EXISTS doctor")
    pipeline = PipelineSpec(
        name="orders",
        origin=Memory(schema="id long"),
        destinations=[Delta(table="doctor.orders")],
        state=SchemaState(schema="doctor"),
    )
    found = [(check.name, check.state, check.found) for check in examine_databricks(pipeline, spark)]
    assert found == [
        ("Platform", "ok", "serverless compute of Databricks, version client.4.12"),
        ("Spark", "ok", f"Spark {spark.version}; pyspark {find_version()} is a client of Spark Connect"),
        ("Client", "ok", "it makes no other session; runs share this one, and put its settings back"),
        ("State", "ok", "tables can be made in doctor"),
        ("Table", "ok", "doctor.orders does not exist; the first run creates it"),
    ]
    assert serverless.refusals == []
    assert spark.sql("SHOW TABLES IN doctor").collect() == []
    spark.client.close()
