"""The notebook that `wherry init --databricks` writes runs cell by cell as on Databricks."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from dataclasses import dataclass
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


@dataclass(frozen=True, kw_only=True)
class Result:
    """What two runs of the notebook have done. The second one finds rows that are all bad."""

    first: list[Shown]
    second: list[Shown]
    rows: list[tuple[object, ...]]
    tables: list[str]
    refusals: list[str]


@pytest.fixture(scope="module", params=list_computes())
def result(
    request: pytest.FixtureRequest, connect_server: Server, wheel: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Result]:
    """Deploy the bundle, and run its notebook twice on a compute."""
    from pyspark.sql.connect.session import SparkSession as Remote

    compute, folder = COMPUTES[request.param], tmp_path_factory.mktemp("example")
    place = folder / "shop"
    begin(place, "shop", example="databricks")
    schema = request.param.replace(" ", "_").replace(".", "_")
    shutil.copytree(wheel.parent, place / "dist")
    parameters = list_parameters(place / "databricks.yml", LANDING=str(place / "landing"), SCHEMA=schema)
    spark = Remote(connect_server.get().connect)
    spark.sql(f"create schema {schema}")
    warehouse = connect_server.folder / "warehouse"

    def run(address: str) -> list[Shown]:
        python = make_environment(_make_folder(folder))
        with Notebook(compute, address, python, parameters, hidden=warehouse) as notebook:
            return list(notebook.run((place / "notebook.py").read_text()))

    with open_compute(compute, connect_server) as (address, refusals):
        first = run(address)
        rows: list[tuple[object, ...]] = []
        if not first[-1].error:
            rows = sorted((row["id"], str(row["amount"])) for row in spark.table(f"{schema}.shop").collect())
        (place / "landing" / "late.csv").write_text(BAD_ROWS)
        second = run(address)
        tables = sorted(row["tableName"] for row in spark.sql(f"show tables in {schema}").collect())
        yield Result(first=first, second=second, rows=rows, tables=tables, refusals=list(refusals))
    spark.client.close()


def _make_folder(folder: Path) -> Path:
    made = folder / f"environment-{len(list(folder.iterdir()))}"
    made.mkdir()
    return made


def test_every_cell_succeeds(result: Result) -> None:
    """The rows of the sample are in the table, and the bad ones are refused."""
    assert [each.error for each in result.first] == [""] * len(result.first)
    amounts = ["12.50", "3.20", "99.90", "1.05", "250.00", "42.00"]
    assert result.rows == list(zip((1, 2, 5, 7, 9, 10), amounts, strict=True))


def test_a_run_that_fails_fails_the_notebook(result: Result) -> None:
    """The cell names the error, and the job fails with it."""
    assert result.second[-1].error.startswith("PipelineFailed")


def test_no_request_is_refused(result: Result) -> None:
    """Nothing is tried in order to see whether it is refused, so no trace of an error is printed."""
    assert (result.first[-1].error, result.refusals) == ("", [])
    assert "Traceback" not in "".join(each.printed for each in result.first)


def test_the_results_are_tables_to_look_at(result: Result) -> None:
    """The preview, the report, the lanes and the refused rows are shown as HTML."""
    pages = [shown.html for shown in result.first if shown.html]
    assert (len(pages) >= 4, "sample.csv" in "".join(pages)) == (True, True)


def test_the_state_is_in_tables(result: Result) -> None:
    """The ledger, the refused rows and the runs stand beside the table."""
    assert {"shop", "shop_dlq", "shop_ledger", "shop_runs"} <= set(result.tables)
