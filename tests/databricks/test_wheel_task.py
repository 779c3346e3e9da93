"""The wheel task of the bundle that `wherry init --databricks` writes, called in a kernel as Databricks calls it."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from runners.definitions.first_pipeline import begin
from tests.databricks.notebook import COMPUTES, Notebook, list_computes, list_words, make_environment
from tests.databricks.workspace import open_compute

if TYPE_CHECKING:
    from tests.scenarios.shared_jvm import Server

pytestmark = [pytest.mark.spark, pytest.mark.long]

CALL = """
import sys
from importlib.metadata import entry_points
sys.argv = {words!r}
entry_points(group="console_scripts", name={words[0]!r})[{words[0]!r}].load()()
"""


@pytest.mark.parametrize("name", list_computes())
def test_the_job_of_a_deployed_bundle_runs(connect_server: Server, wheel: Path, tmp_path: Path, name: str) -> None:
    """The job prints what the command prints, and a person finds its run in the ledger and in the label. A run whose
    rows are all bad fails the task once, with the reason. Nothing is tried in order to see whether it is refused."""
    from pyspark.sql.connect.session import SparkSession as Remote

    compute, schema = COMPUTES[name], f"task_{name.replace(' ', '_').replace('.', '_')}"
    place, warehouse = tmp_path / "till", connect_server.folder / "warehouse"
    begin(place, "till", example="databricks")
    words = list_words(place / "databricks.yml", LANDING=str(place / "landing"), SCHEMA=schema)
    shutil.copytree(wheel.parent, place / "dist")
    spark = Remote(connect_server.get().connect)
    spark.sql(f"create schema {schema}")
    with open_compute(compute, connect_server) as (address, refusals):
        python = make_environment(tmp_path)
        with Notebook(compute, address, python, hidden=warehouse) as notebook:
            installed = notebook.run_cell(f"%pip install --quiet -r {place}/requirements.txt")
            assert (installed.error, "ERROR:" in installed.printed) == ("", False), installed.printed
            good = notebook.run_cell(CALL.format(words=words))
            assert good.error == "", good.printed
            assert re.search(r"till +10 +6 +1 +3\n", good.printed)
            (place / "landing" / "late.csv").write_text("id,email,amount,at\n" + "1,a@b,x,\n" * 100)
            bad = notebook.run_cell(CALL.format(words=words))
        history = spark.sql(f"describe history {schema}.till").filter("userMetadata is not null").collect()
        body = f"select body from {schema}.till_ledger where kind = 'acquire' order by seq limit 1"
        (entry,) = spark.sql(body).collect()
        assert refusals == []
    spark.client.close()
    assert bad.error == "SystemExit: 1"
    assert "WINDOW" in bad.printed
    assert "Traceback" not in bad.printed
    label = json.loads(history[-1]["userMetadata"])["wherry"][0]
    assert (label["job"], json.loads(entry["body"])["job"]) == ({"id": "41", "run": "42"},) * 2
