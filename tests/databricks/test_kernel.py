"""A notebook of the tests is what a notebook of Databricks is. No cell here asks Spark."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from runners.definitions.first_pipeline import begin
from tests.databricks.notebook import (
    COMPUTES,
    Notebook,
    build_wheel,
    list_cells,
    list_parameters,
    make_environment,
)

NOBODY = "sc://127.0.0.1:1"
"""An address that no server has."""


@pytest.fixture
def notebook(tmp_path: Path) -> Iterator[Notebook]:
    """Provide a notebook on serverless with one parameter."""
    with Notebook(
        COMPUTES["serverless 4"], NOBODY, make_environment(tmp_path), {"landing": "/Volumes/here"}
    ) as notebook:
        yield notebook


def test_a_notebook_knows_nothing_of_this_machine(notebook: Notebook) -> None:
    """Its variables are those of the compute, its folder is empty, and Wherry is not installed."""
    shown = notebook.run_cell("import os; sorted(name for name in os.environ if name.startswith(('DATA', 'SPARK_RE')))")
    assert shown.values == [{"text/plain": "['DATABRICKS_RUNTIME_VERSION']"}]
    assert notebook.run_cell("__import__('pathlib').Path('orders.yaml').exists()").values == [{"text/plain": "False"}]
    assert notebook.run_cell("import wherry").error == "ModuleNotFoundError: No module named 'wherry'"


@pytest.mark.long
def test_a_cell_installs_a_wheel_for_the_python_after_it(notebook: Notebook, tmp_path: Path) -> None:
    """A restart forgets names and keeps packages and parameters."""
    wheel = build_wheel(tmp_path / "build")
    installed = notebook.run_cell(f"name = 1\n%pip install --quiet {wheel}")
    assert (installed.error, "ERROR:" in installed.printed) == ("", False), installed.printed
    assert notebook.run_cell("dbutils.library.restartPython()\nraise ValueError").error == ""
    assert notebook.run_cell("name").error == "NameError: name 'name' is not defined"
    assert notebook.run_cell("import wherry; wherry.Pipeline.__name__").values == [{"text/plain": "'Pipeline'"}]
    assert notebook.run_cell("dbutils.widgets.get('landing')").values == [{"text/plain": "'/Volumes/here'"}]


@pytest.mark.skipif(os.geteuid() != 0, reason="root alone may mount")
def test_a_notebook_does_not_find_the_folders_of_managed_tables(tmp_path: Path) -> None:
    """They are reached by Spark only. Other processes find them."""
    (tmp_path / "warehouse" / "shop").mkdir(parents=True)
    python = make_environment(tmp_path)
    with Notebook(COMPUTES["serverless 4"], NOBODY, python, hidden=tmp_path / "warehouse") as notebook:
        shown = notebook.run_cell(f"import os; os.listdir({str(tmp_path / 'warehouse')!r})")
    assert shown.values == [{"text/plain": "[]"}]
    assert (tmp_path / "warehouse" / "shop").is_dir()


def test_dbutils_is_strict(notebook: Notebook) -> None:
    """What a notebook does not have raises an error."""
    assert notebook.run_cell("dbutils.jobs").error.startswith("AttributeError")
    assert "InputWidgetNotDefined" in notebook.run_cell("dbutils.widgets.get('other')").error
    assert "Secret does not exist" in notebook.run_cell("dbutils.secrets.get('scope', 'key')").error
    assert notebook.run_cell("dbutils.widgets.text('other', 'x'); dbutils.widgets.get('other')").values == [
        {"text/plain": "'x'"}
    ]


def test_a_notebook_ends_with_an_error_or_with_an_exit(notebook: Notebook) -> None:
    """The cells behind it are not run."""
    head = "# Databricks notebook source\n# COMMAND ----------\n"
    failed = list(notebook.run(f"{head}1 / 0\n# COMMAND ----------\n2"))
    assert [(each.error, each.exited) for each in failed] == [("ZeroDivisionError: division by zero", False)]
    ended = list(notebook.run(f"{head}dbutils.notebook.exit('done')\n# COMMAND ----------\n2"))
    assert [(each.error, each.exited) for each in ended] == [("", True)]


def test_cells_of_text_are_left_out() -> None:
    """A magic command in a comment is one in its cell."""
    notebook = "# Databricks notebook source\n# MAGIC %md\n# COMMAND ----------\n\n# MAGIC %pip install x\n"
    assert list_cells(f"{notebook}# COMMAND ----------\n# MAGIC %md\n# MAGIC # Title\n") == ["%pip install x"]


@pytest.mark.long
def test_the_example_installs_wherry_and_finds_its_definition(tmp_path: Path) -> None:
    """It needs neither an installed Wherry nor a working directory, but the parameters of the bundle's job."""
    place = tmp_path / "shop"
    begin(place, "shop", example="databricks")
    shutil.copytree(build_wheel(tmp_path / "build").parent, place / "dist")
    parameters = list_parameters(place / "databricks.yml", SCHEMA="main.w")
    before, found, _ = (place / "notebook.py").read_text().partition("pipeline.preview()")
    with Notebook(COMPUTES["serverless 4"], NOBODY, make_environment(tmp_path), parameters) as notebook:
        asked = "(pipeline.state, pipeline.origin.path, pipeline.job)" if found else ""
        shown = list(notebook.run(f"{before}{asked}\n"))
    assert [each.error for each in shown] == [""] * len(shown)
    told = shown[-1].values[0]["text/plain"]
    assert all(each in told for each in ("schema='main.w'", "/Volumes/main/shop/landing/*.csv", "'run': '42'"))


CLONES = {
    "serverless 4": "AttributeError: 'SparkSession' object has no attribute 'cloneSession'",
    "standard 18.0": "AttributeError: 'SparkConnectClient' object has no attribute 'thread_local'",
}


@pytest.mark.parametrize("compute", CLONES)
def test_a_client_clones_no_session(compute: str, tmp_path: Path) -> None:
    """Clients of Databricks lack the method, or it raises an error. None has `newSession`."""
    with Notebook(COMPUTES[compute], NOBODY, make_environment(tmp_path)) as notebook:
        assert notebook.run_cell("spark.cloneSession()").error == CLONES[compute]
        assert notebook.run_cell("hasattr(spark, 'newSession')").values == [{"text/plain": "False"}]
