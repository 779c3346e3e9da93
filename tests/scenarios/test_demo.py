"""`wherry demo` works as a new user sees it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from click.testing import CliRunner

from runners.command_line.commands import wherry

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark


def test_the_demo_delivers_its_orders_and_prints_where_they_are(
    tmp_path: Path, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its counts match the table, the DLQ and the files. A second demo delivers nothing twice."""
    monkeypatch.chdir(tmp_path)
    result = CliRunner().invoke(wherry, ["demo", "here"], standalone_mode=False)
    assert (result.exception, result.return_value) == (None, 0)
    orders = spark.read.format("delta").load(str(tmp_path / "here" / "tables" / "orders")).count()
    shown = CliRunner().invoke(wherry, ["dlq", "show", "here/orders.yaml", "--json"], standalone_mode=False)
    refused = len(json.loads(shown.stdout)["rows"])
    lines = [
        line for file in (tmp_path / "here" / "landing" / "orders").iterdir() for line in file.read_text().splitlines()
    ]
    without_email = sum('"email": null' in line and line.endswith("}") for line in lines)
    counted = ["orders", *(f"{count:,}" for count in (len(lines), orders, without_email, refused))]
    assert counted in [line.split() for line in result.stdout.splitlines()]
    for told in ("here/tables/orders", "wherry dlq show here/orders.yaml", "wherry status here/orders.yaml"):
        assert told in result.stdout
    again = CliRunner().invoke(wherry, ["demo", "here"], standalone_mode=False)
    assert (again.return_value, "no new rows" in again.stdout) == (0, True)
