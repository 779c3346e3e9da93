"""Files in a volume become rows of managed tables on a Spark that refuses what a kind of compute refuses."""

from __future__ import annotations

import json
import os
import re
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.databricks.limits import SERVERLESS, STANDARD
from tests.databricks.notebook import COMPUTES, Compute, list_cases, list_oldest_computes
from tests.databricks.proxy import DatabricksProxy
from tests.databricks.volume import make_volume_environment
from tests.databricks.workspace import begin_on, open_compute

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tests.scenarios.shared_jvm import Server

pytestmark = pytest.mark.spark

DEFINITION = """
name: orders
origin: {{files: {{path: "{folder}/volume/landing", format: json, schema: "id long, amount string"}}}}
run: {{batch: {{files: 1}}}}
dlq: {{window: 0}}
stages:
  - cast: {{amount: "decimal(10,2)"}}
destinations:
  - delta: {{table: {schema}.orders}}
  - delta: {{table: {schema}.newest, mode: merge, keys: [id], sequence_by: amount}}
state: {{schema: {schema}, volume: "{folder}/volume/rows"}}
"""
FILES = 4


@dataclass(frozen=True, kw_only=True)
class Shop:
    """A pipeline with files in a volume, and with its tables and its state in a schema of its own."""

    compute: Compute
    address: str
    refusals: list[str]
    warehouse: Path
    """The folder of managed tables. No run finds anything there."""
    spark: SparkSession
    """A session of the open server, which sees what is there."""
    schema: str
    folder: Path
    library: Path
    """Makes the folder `volume` a volume for the program."""

    @property
    def definition(self) -> Path:
        """The file of the definition."""
        return self.folder / "orders.yaml"

    def land(self, number: int, *, bad: bool) -> None:
        """Write a file of three rows, one of them perhaps bad."""
        rows: list[dict[str, Any]] = [{"id": 3 * number + each, "amount": "1.50"} for each in range(3)]
        rows[1]["amount"] = "x" if bad else "2.50"
        file = self.folder / "volume" / "landing" / f"{number}.json"
        file.write_text("".join(json.dumps(row) + "\n" for row in rows))
        os.utime(file, (1_700_000_000 + number,) * 2)

    def begin(self, *words: str, now: str = "") -> subprocess.Popen[str]:
        """Start a program on the compute. Its volume is as `make_volume_environment` says."""
        volume = make_volume_environment(self.library, self.folder / "volume", locks=False, now=now)
        return begin_on(self.compute, self.address, *words, folder=self.folder, hidden=self.warehouse, variables=volume)

    def call(self, *words: str, now: str = "", code: int = 0) -> str:
        """Run `wherry` with these words. Return what it prints."""
        process = self.begin("wherry", *words, now=now)
        printed, _ = process.communicate()
        assert process.returncode == code, printed
        return printed

    def list_ids(self, table: str) -> list[int]:
        """Return the ids in a table, in their order."""
        return sorted(row["id"] for row in self.spark.table(f"{self.schema}.{table}").collect())

    def list_refused(self) -> list[int]:
        """Return the ids of the refused rows, in their order."""
        rows = self.spark.table(f"{self.schema}.orders_dlq").collect()
        return sorted(json.loads(row["original"])["id"] for row in rows)


@pytest.fixture(params=list_cases(list_oldest_computes()))
def shop(
    connect_server: Server, volume_library: Path, tmp_path: Path, request: pytest.FixtureRequest
) -> Iterator[Shop]:
    """Provide a pipeline with four files, of which the last two have a bad row."""
    from pyspark.sql.connect.session import SparkSession as Remote

    spark: Any = Remote(connect_server.get().connect)
    schema = re.sub(r"\W", "_", f"databricks_{request.node.name}")
    spark.sql(f"create schema {schema}")
    compute, warehouse = COMPUTES[request.param], connect_server.folder / "warehouse"
    with open_compute(compute, connect_server) as (address, refusals):
        made = Shop(
            compute=compute,
            address=address,
            refusals=refusals,
            warehouse=warehouse,
            spark=spark,
            schema=schema,
            folder=tmp_path,
            library=volume_library,
        )
        (tmp_path / "volume" / "landing").mkdir(parents=True)
        made.definition.write_text(DEFINITION.format(folder=tmp_path, schema=schema))
        for number in range(FILES):
            made.land(number, bad=number >= 2)
        yield made
    spark.sql(f"drop schema {schema} cascade")
    spark.client.close()


GOOD = [0, 1, 2, 3, 4, 5, 6, 8, 9, 11]
BAD = [7, 10]


@pytest.mark.long
def test_rows_are_delivered_refused_audited_and_replayed(shop: Shop) -> None:
    """Nothing is asked that the platform refuses, and no table stays that only a batch needed."""
    shop.call("run", str(shop.definition))
    assert [shop.list_ids(table) for table in ("orders", "newest")] == [GOOD, GOOD]
    assert shop.list_refused() == BAD
    shop.call("audit", str(shop.definition))
    text = shop.definition.read_text()
    fixed = "stages:\n  - with_columns: {amount: \"replace(amount, 'x', '7')\"}\n"
    shop.definition.write_text(text.replace("stages:\n", fixed))
    shop.call("dlq", "replay", str(shop.definition), "--reason", "x means seven", "--yes")
    assert [shop.list_ids(table) for table in ("orders", "newest")] == [list(range(12)), list(range(12))]
    shop.call("audit", str(shop.definition))
    tables = {row["tableName"] for row in shop.spark.sql(f"show tables in {shop.schema}").collect()}
    assert not [name for name in tables if "prepared" in name]
    assert list((shop.folder / "volume" / "rows" / "orders" / "prepared").iterdir()) == []
    assert shop.refusals == []


@pytest.mark.long
def test_killed_runs_are_continued(shop: Shop) -> None:
    """Each row is there once, in both tables or in the DLQ."""
    for moment, batch in (("BatchPlanned", "2"), ("BatchDecided", "3"), ("Written", "4")):
        killed = shop.begin("tests.scenarios.killed", str(shop.definition), moment, batch)
        printed, _ = killed.communicate()
        assert killed.returncode == -9, printed
    shop.call("run", str(shop.definition))
    assert [shop.list_ids(table) for table in ("orders", "newest")] == [GOOD, GOOD]
    assert shop.list_refused() == BAD
    shop.call("audit", str(shop.definition))


def test_a_run_says_that_its_volume_takes_no_rows(shop: Shop) -> None:
    """The run fails once, and names the volume: it is full, or it is read-only. The next run, with room,
    delivers each row once."""
    for now, why in (("full", "No space left on device"), ("read-only", "Read-only file system")):
        printed = shop.call("run", str(shop.definition), now=now, code=1)
        assert why in printed
        assert str(shop.folder / "volume") in printed
        assert "Traceback" not in printed
    shop.call("run", str(shop.definition))
    assert [shop.list_ids(table) for table in ("orders", "newest")] == [GOOD, GOOD]
    assert shop.list_refused() == BAD
    shop.call("audit", str(shop.definition))


@pytest.mark.long
def test_a_run_names_the_right_that_it_lacks(shop: Shop, connect_server: Server) -> None:
    """The run fails once, with the words of the catalog. With the right, the next run delivers each row once."""
    if shop.compute.dedicated:
        pytest.skip("a classic session asks no proxy that can deny a right")
    limits = replace(SERVERLESS if shop.compute.serverless else STANDARD, kept=f"{shop.schema}.newest")
    with DatabricksProxy(connect_server.get().connect, limits) as proxy:
        printed = replace(shop, address=proxy.address).call("run", str(shop.definition), code=1)
    assert "does not have permission MODIFY on Table" in printed
    assert "Traceback" not in printed
    shop.call("run", str(shop.definition))
    assert [shop.list_ids(table) for table in ("orders", "newest")] == [GOOD, GOOD]
    assert shop.list_refused() == BAD
    shop.call("audit", str(shop.definition))


@pytest.mark.long
def test_two_runs_at_once_deliver_each_row_once(shop: Shop) -> None:
    """Wherry may tell one of them that the other one has the pipeline."""
    both = [shop.begin("wherry", "run", str(shop.definition)) for _ in range(2)]
    ends = [(process.communicate()[0], process.returncode) for process in both]
    assert 0 in [code for _, code in ends], ends
    assert all(code == 0 or "is running" in printed for printed, code in ends), ends
    assert [shop.list_ids(table) for table in ("orders", "newest")] == [GOOD, GOOD]
    assert shop.list_refused() == BAD
    shop.call("audit", str(shop.definition))
