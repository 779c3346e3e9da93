"""A state in tables of a catalog's schema leaves no folder on this machine."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.scenarios.conftest import ORDERS, Place, make_order

ROOT = Path(__file__).resolve().parents[2]

pytestmark = [pytest.mark.spark]


@pytest.mark.connect
@pytest.mark.promise("CN-04", "CN-06", "CN-15")
def test_a_state_in_a_schema_consists_of_tables(place: Place) -> None:
    """Refused rows are in `orders_dlq`. A second run has nothing to do, and no prepared rows remain."""
    place.spark.sql("create schema if not exists wherry_state")
    place.land("a.json", [make_order(1), make_order(2, amount="x")])
    text = ORDERS + "state: {schema: wherry_state}\n"
    report = place.load(text).run()
    assert (report.read, report.nacked, report.balanced) == (2, 1, True)
    assert place.load().run().batches == 0
    tables = {row["tableName"] for row in place.spark.sql("show tables in wherry_state").collect()}
    assert {"orders_ledger", "orders_dlq", "orders_runs"} <= tables
    assert [(each["status"], each["read"]) for each in place.load().history.list()] == [
        ("succeeded", 0),
        ("succeeded", 2),
    ]
    assert [table for table in tables if "prepared" in table] == []
    assert place.spark.table("wherry_state.orders_dlq").count() == 1
    assert not (place.folder / ".wherry").exists()


SHOP = """
name: orders
origin: {files: {path: "landing/*.json", format: json, schema: "id long, email string, amount string"}}
destinations: [delta: {table: default.orders}]
state: {schema: default}
"""
GOLD = """
name: gold
origin: {delta: {table: default.orders}}
destinations: [delta: {table: default.gold}]
state: {schema: default}
"""


def run_command(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """Run a command in a process with a separate Spark."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("SPARK_", "PYSPARK_"))}
    program = [sys.executable, "-c", "from runners.command_line.cli import main; main()", *words]
    return subprocess.run(
        program,
        cwd=folder,
        env={**environment, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.long
def test_a_catalog_that_ends_with_its_process_is_refused(place: Place) -> None:
    """The command fails before it writes anything, because the next run would find neither the ledger nor the table."""
    place.land("a.json", [make_order(1)])
    place.define(SHOP)
    refused = run_command(place.folder, "run", "pipeline.yaml")
    assert refused.returncode == 2
    assert "the next run would not find default.orders_ledger and default.orders." in refused.stderr
    assert sorted(file.name for file in place.folder.iterdir()) == ["landing", "pipeline.yaml"]


@pytest.mark.long
def test_a_catalog_of_this_machine_lasts_with_the_documented_settings(place: Place) -> None:
    """A second process finds what the first one left. Another pipeline follows the table by its name."""
    said = (ROOT / "runners/docs/howto/catalog-state.md").read_text(encoding="utf-8")
    (settings,) = re.findall(r"```yaml\n(spark:\n  conf:\n.*?)```", said, re.DOTALL)
    place.land("a.json", [make_order(1), make_order(2)])
    place.define(SHOP + settings.replace("/srv/shop", str(place.folder)))
    first = run_command(place.folder, "run", "pipeline.yaml", "--json")
    assert first.returncode == 0, first.stderr
    place.land("b.json", [make_order(3)])
    again = run_command(place.folder, "run", "pipeline.yaml", "--json")
    assert [json.loads(run.stdout)["read"] for run in (first, again)] == [2, 1], again.stderr
    (place.folder / "gold.yaml").write_text(GOLD + settings.replace("/srv/shop", str(place.folder)))
    gold = run_command(place.folder, "run", "gold.yaml", "--json")
    place.land("c.json", [make_order(4)])
    third = run_command(place.folder, "run", "pipeline.yaml", "--json")
    more = run_command(place.folder, "run", "gold.yaml", "--json")
    assert [json.loads(run.stdout)["read"] for run in (gold, third, more)] == [3, 1, 1], more.stderr
    audit = run_command(place.folder, "audit", "gold.yaml")
    assert (audit.returncode, "balances" in audit.stdout) == (0, True), audit.stdout + audit.stderr
