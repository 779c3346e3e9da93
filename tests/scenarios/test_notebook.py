"""The notebook that `wherry init --databricks` writes runs as on Databricks: cell by cell, with widgets."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from runners.definitions.document import parse, to_plain
from runners.definitions.first_pipeline import begin
from runners.model.run_report import PipelineFailed
from tests.scenarios.cells import Widgets, list_cells, run_cells

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


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
