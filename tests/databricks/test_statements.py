"""How many statements a run sends to the server, where each takes half a second or more."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.databricks.notebook import COMPUTES
from tests.databricks.workspace import begin_on

if TYPE_CHECKING:
    from tests.databricks.proxy import DatabricksProxy
    from tests.scenarios.shared_jvm import Server

pytestmark = [pytest.mark.spark, pytest.mark.long]

DEFINITION = """
name: counted
origin: {{files: {{path: "{landing}", format: json, schema: "id long, amount string"}}}}
run: {{batch: {{files: 1}}}}
stages:
  - cast: {{amount: "decimal(10,2)"}}
  - require: {{id: "id is not null"}}
destinations: [{{delta: {{table: counted.orders}}}}]
state: {{schema: counted}}
"""


def test_a_clean_batch_sends_at_most_six_statements(
    serverless: DatabricksProxy, connect_server: Server, tmp_path: Path
) -> None:
    """A run sends at most thirty more. Statements that only ask for a plan are not counted."""
    from pyspark.sql.connect.session import SparkSession as Remote

    spark = Remote(connect_server.get().connect)
    spark.sql("create schema counted")
    landing, definition = tmp_path / "landing", tmp_path / "counted.yaml"
    landing.mkdir()
    definition.write_text(DEFINITION.format(landing=landing))
    (landing / "0.json").write_text(json.dumps({"id": 0, "amount": "0.50"}))
    run(definition, serverless)  # creates the tables
    few = count_statements(definition, serverless, landing, range(1, 2))
    many = count_statements(definition, serverless, landing, range(2, 8))
    assert spark.table("counted.orders").count() == 8
    spark.client.close()
    assert (many - few) / 5 <= 6
    assert few <= 36
    assert serverless.refusals == []


def count_statements(definition: Path, proxy: DatabricksProxy, landing: Path, files: range) -> int:
    """Run the pipeline with these new files, one batch each. Return how many statements it sent."""
    for number in files:
        (landing / f"{number}.json").write_text(json.dumps({"id": number, "amount": "1.50"}))
    proxy.statements.clear()
    run(definition, proxy)
    return sum(not each.startswith("analyze") for each in proxy.statements)


def run(definition: Path, proxy: DatabricksProxy) -> None:
    """Run the pipeline in another process, as on serverless."""
    words = "wherry", "run", str(definition)
    process = begin_on(COMPUTES["serverless 4"], proxy.address, *words, folder=definition.parent)
    printed, _ = process.communicate()
    assert process.returncode == 0, printed
