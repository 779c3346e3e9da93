"""The notebook that `wherry init --databricks` writes runs cell by cell as on Databricks."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from runners.definitions.first_pipeline import begin
from tests.databricks.notebook import COMPUTES, Notebook, Shown, list_computes, list_parameters, make_environment
from tests.databricks.workspace import open_compute

if TYPE_CHECKING:
    from tests.scenarios.shared_jvm import Server

pytestmark = [pytest.mark.spark, pytest.mark.long]

BAD_ROWS = "id,email,amount,at\n" + "1,a@b,x,\n" * 100


@pytest.mark.parametrize("name", list_computes())
def test_the_notebook_of_a_deployed_bundle_runs(connect_server: Server, wheel: Path, tmp_path: Path, name: str) -> None:
    """Every cell succeeds, and shows its results as HTML. The rows and the state are in tables. A run whose rows are
    all bad fails the notebook. Nothing is tried in order to see whether it is refused."""
    from pyspark.sql.connect.session import SparkSession as Remote

    compute, place = COMPUTES[name], tmp_path / "shop"
    begin(place, "shop", example="databricks")
    schema = name.replace(" ", "_").replace(".", "_")
    shutil.copytree(wheel.parent, place / "dist")
    parameters = list_parameters(place / "databricks.yml", LANDING=str(place / "landing"), SCHEMA=schema)
    spark = Remote(connect_server.get().connect)
    spark.sql(f"create schema {schema}")
    warehouse = connect_server.folder / "warehouse"

    def run(address: str) -> list[Shown]:
        python = make_environment(Path(tempfile.mkdtemp(dir=tmp_path)))
        with Notebook(compute, address, python, parameters, hidden=warehouse) as notebook:
            return list(notebook.run((place / "notebook.py").read_text()))

    with open_compute(compute, connect_server) as (address, refusals):
        first = run(address)
        assert [each.error for each in first] == [""] * len(first)
        rows = sorted((row["id"], str(row["amount"])) for row in spark.table(f"{schema}.shop").collect())
        (place / "landing" / "late.csv").write_text(BAD_ROWS)
        second = run(address)
        tables = {row["tableName"] for row in spark.sql(f"show tables in {schema}").collect()}
        assert refusals == []
    spark.client.close()
    amounts = ["12.50", "3.20", "99.90", "1.05", "250.00", "42.00"]
    assert rows == list(zip((1, 2, 5, 7, 9, 10), amounts, strict=True))
    pages = [shown.html for shown in first if shown.html]
    assert (len(pages) >= 4, "sample.csv" in "".join(pages)) == (True, True)
    assert second[-1].error.startswith("PipelineFailed")
    assert "Traceback" not in "".join(each.printed for each in first)
    assert {"shop", "shop_dlq", "shop_ledger", "shop_runs"} <= tables
