"""The wheel task of the bundle that `wherry init --databricks` writes, called in a kernel as Databricks calls it."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from runners.definitions.first_pipeline import begin
from tests.databricks.notebook import COMPUTES, Notebook, Shown, list_computes, list_words, make_environment
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


@dataclass(frozen=True, kw_only=True)
class Result:
    """What two runs of the task have done. The second one finds rows that are all bad."""

    good: Shown
    bad: Shown
    label: Any
    entry: Any
    refusals: list[str]


@pytest.fixture(scope="module", params=list_computes())
def result(
    request: pytest.FixtureRequest, connect_server: Server, wheel: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Result]:
    """Deploy the bundle, and run its job twice on a compute."""
    from pyspark.sql.connect.session import SparkSession as Remote

    compute, schema = COMPUTES[request.param], f"task_{request.param.replace(' ', '_').replace('.', '_')}"
    folder = tmp_path_factory.mktemp("task")
    place, warehouse = folder / "till", connect_server.folder / "warehouse"
    begin(place, "till", example="databricks")
    words = list_words(place / "databricks.yml", LANDING=str(place / "landing"), SCHEMA=schema)
    shutil.copytree(wheel.parent, place / "dist")
    spark = Remote(connect_server.get().connect)
    spark.sql(f"create schema {schema}")
    with open_compute(compute, connect_server) as (address, refusals):
        python = make_environment(folder)
        with Notebook(compute, address, python, hidden=warehouse) as notebook:
            installed = notebook.run_cell(f"%pip install --quiet -r {place}/requirements.txt")
            assert (installed.error, "ERROR:" in installed.printed) == ("", False), installed.printed
            good = notebook.run_cell(CALL.format(words=words))
            assert good.error == "", good.printed
            (place / "landing" / "late.csv").write_text("id,email,amount,at\n" + "1,a@b,x,\n" * 100)
            bad = notebook.run_cell(CALL.format(words=words))
        history = spark.sql(f"describe history {schema}.till").filter("userMetadata is not null").collect()
        body = f"select body from {schema}.till_ledger where kind = 'acquire' order by seq limit 1"
        (entry,) = spark.sql(body).collect()
        label = json.loads(history[-1]["userMetadata"])["wherry"][0]
        yield Result(good=good, bad=bad, label=label, entry=json.loads(entry["body"]), refusals=list(refusals))
    spark.client.close()


def test_a_run_that_succeeds_returns(result: Result) -> None:
    """The job shows what the command prints."""
    assert result.good.error == ""
    assert re.search(r"till +10 +6 +1 +3\n", result.good.printed)


def test_no_request_is_refused(result: Result) -> None:
    """Nothing is tried in order to see whether it is refused."""
    assert result.refusals == []


def test_a_run_that_fails_fails_the_task_once(result: Result) -> None:
    """The reason stands before the exit."""
    assert result.bad.error == "SystemExit: 1"
    assert result.bad.printed.count("WINDOW") >= 1
    assert "Traceback" not in result.bad.printed


def test_the_job_is_in_the_ledger_and_in_the_label(result: Result) -> None:
    """A person finds the run of the job that wrote a version of the table."""
    assert (result.label["job"], result.entry["job"]) == ({"id": "41", "run": "42"},) * 2
