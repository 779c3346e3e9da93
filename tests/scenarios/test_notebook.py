"""The notebook that `wherry init --databricks` writes runs as on Databricks: cell by cell, with widgets."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from runners.definitions.document import parse, to_plain
from runners.definitions.first_pipeline import begin
from runners.model.run_report import PipelineFailed
from tests.scenarios.cells import Widgets, list_cells, run_cells
from tests.scenarios.shared_jvm import Server

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROOT = Path(__file__).resolve().parents[2]


def test_the_job_sets_every_widget_of_the_notebook(tmp_path: Path) -> None:
    """The bundle's parameters are the notebook's widgets and the ids of the job, and the bundle names the notebook."""
    begin(tmp_path, "shop", example="databricks")
    bundle = to_plain(parse((tmp_path / "databricks.yml").read_text(), "databricks.yml"))
    task = bundle["resources"]["jobs"]["by_hand"]["tasks"][0]["notebook_task"]
    assert (tmp_path / task["notebook_path"]).exists()
    widgets = Widgets({})
    for cell in list_cells(tmp_path / "notebook.py"):
        if "dbutils.widgets.text" in cell:
            exec(cell, {"dbutils": widgets})  # noqa: S102  (the notebook is ours)
    assert {*widgets.given, "JOB_ID", "JOB_RUN_ID"} == set(task["base_parameters"])


@pytest.mark.spark
def test_the_notebook_delivers_rows_and_shows_the_results(
    tmp_path: Path, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The rows of the sample are in its table afterwards. If a run fails, the cell fails."""
    begin(tmp_path, "shop", example="databricks")
    monkeypatch.chdir("/")
    spark.sql("create schema if not exists wherry_notebook")
    given = {"FOLDER": str(tmp_path), "LANDING": str(tmp_path / "landing"), "SCHEMA": "wherry_notebook"}
    preview, report, lanes, refused = run_cells(tmp_path / "notebook.py", given)
    assert [hasattr(shown, "_repr_html_") for shown in (preview, report, lanes)] == [True] * 3
    assert ((getattr(report, "read"), getattr(report, "nacked")), len(refused)) == ((10, 3), 3)  # type: ignore[arg-type]  # noqa: B009
    cell = report._repr_html_()  # type: ignore[attr-defined]
    assert all(said in cell for said in ("Refused rows", "sample.csv", "wherry_notebook.shop"))
    assert spark.table("wherry_notebook.shop").count() == 6
    (tmp_path / "landing" / "late.csv").write_text("id,email,amount,at\n" + "1,a@b,x,\n" * 100)
    with pytest.raises(PipelineFailed):
        run_cells(tmp_path / "notebook.py", given)


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    """Provide a Spark Connect server in another process."""
    server = Server(tmp_path / "jvm")
    yield server
    server.close()


HANDLER = """
def shown(rows: list[dict]) -> list:
    return [{"shown": f"{row['id']}: {row['amount']}"} for row in rows]
"""


@pytest.mark.spark
@pytest.mark.long
def test_the_notebook_works_with_the_features_of_serverless(tmp_path: Path, server: Server) -> None:
    """Spark runs in another process, without `sparkContext`, persisted frames, JARs and relative paths. It calls a
    Python function beside the definition."""
    place = tmp_path / "notebook"
    begin(place, "shop", example="databricks")
    (place / "show.py").write_text(HANDLER)
    definition = place / "shop.yaml"
    stage = '  - python: {function: "show:shown", columns: {shown: string}}\n'
    definition.write_text(definition.read_text().replace("destinations:\n", f"{stage}destinations:\n"))
    given = {"FOLDER": str(place), "LANDING": str(place / "landing"), "SCHEMA": "serverless"}
    command = [sys.executable, "-m", "tests.scenarios.on_serverless", json.dumps(given)]
    elsewhere = {name: value for name, value in os.environ.items() if not name.startswith(("SPARK_", "PYSPARK_"))}
    environment = {**elsewhere, "SPARK_REMOTE": server.get().connect, "PYTHONPATH": str(ROOT)}
    ended = subprocess.run(
        command, cwd=place, capture_output=True, text=True, check=False, env=environment, timeout=300
    )
    assert ended.returncode == 0, ended.stderr
    facts = json.loads(ended.stdout)
    assert facts["refused"] == ["sparkContext", "persist", "a JAR", "a static setting", "a relative path"]
    assert facts["shown"] == [True] * 3
    assert (facts["report"]["read"], facts["report"]["nacked"], facts["report"]["balanced"]) == (10, 3, True)
    assert facts["rows"] == [
        [1, "1: 12.50"],
        [2, "2: 3.20"],
        [5, "5: 99.90"],
        [7, "7: 1.05"],
        [9, "9: 250.00"],
        [10, "10: 42.00"],
    ]
    assert (facts["dead"], facts["failed"]) == (3, "WINDOW")
    assert {"shop", "shop_dlq", "shop_ledger", "shop_runs"} <= set(facts["tables"])
    assert not (place / ".wherry").exists()
