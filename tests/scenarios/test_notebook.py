"""The notebook that `wherry init --databricks` writes, run as Databricks runs it: cell by cell, with widgets."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from runners.definitions.document import parse, plain
from runners.definitions.init import begin
from runners.errors import PipelineFailed

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROOT = Path(__file__).resolve().parents[2]


class Widgets:
    """`dbutils.widgets`, with what the job gives."""

    def __init__(self, given: Mapping[str, str]) -> None:
        self.given = dict(given)
        self.widgets = self

    def text(self, name: str, default: str) -> None:
        self.given.setdefault(name, default)

    def get(self, name: str) -> str:
        return self.given[name]


def cells(notebook: Path) -> list[str]:
    """Its cells, in order; what is Databricks' own stands in comments."""
    head, *cells = notebook.read_text().split("# COMMAND ----------\n")
    assert head.startswith("# Databricks notebook source\n")
    return cells


def run(notebook: Path, given: Mapping[str, str]) -> list[object]:
    """What each cell shows: the value of the expression at its end."""
    names: dict[str, Any] = {"dbutils": Widgets(given)}
    shown = []
    for cell in cells(notebook):
        tree = ast.parse(cell)
        last = tree.body.pop() if tree.body and isinstance(tree.body[-1], ast.Expr) else None
        exec(compile(tree, "cell", "exec"), names)  # noqa: S102  (it is our own notebook)
        if isinstance(last, ast.Expr):
            shown.append(eval(compile(ast.Expression(last.value), "cell", "eval"), names))  # noqa: S307
    return shown


def test_the_job_gives_the_notebook_what_it_asks_for(tmp_path: Path) -> None:
    """The bundle's parameters are the notebook's widgets, and the notebook is the bundle's."""
    begin(tmp_path, "shop", example="databricks")
    bundle = plain(parse((tmp_path / "databricks.yml").read_text(), "databricks.yml"))
    (job,) = bundle["resources"]["jobs"].values()
    (task,) = job["tasks"]
    parameters = task["notebook_task"]["base_parameters"]
    assert (tmp_path / task["notebook_task"]["notebook_path"]).exists()
    assert parameters == {name: f"${{var.{name}}}" for name in bundle["variables"]}
    widgets = Widgets({})
    asking = next(cell for cell in cells(tmp_path / "notebook.py") if "dbutils.widgets.text" in cell)
    exec(asking, {"dbutils": widgets})  # noqa: S102  (it is our own notebook)
    assert set(parameters) == set(widgets.given)


def test_a_checkout_on_the_path_is_enough(tmp_path: Path) -> None:
    """Nothing of ours is installed: the root of a checkout is put on the path by the notebook itself."""
    begin(tmp_path, "shop", example="databricks")
    asking = next(cell for cell in cells(tmp_path / "notebook.py") if "sys.path" in cell)
    loading = next(cell for cell in cells(tmp_path / "notebook.py") if "Pipeline.load" in cell)
    program = (
        "import sys\n"
        "sys.meta_path = [each for each in sys.meta_path if 'editable' not in repr(each).lower()]\n"
        "class dbutils:\n"
        "    class widgets:\n"
        f"        text, get = (lambda *_: None), (lambda name: {str(ROOT)!r} if name == 'wherry' else '')\n"
        f"{asking}\n{loading}\nimport runners\nprint(runners.__file__, pipeline.name)\n"
    )
    command = [sys.executable, "-c", program]
    ended = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False, env={"PATH": ""})
    assert ended.stdout.split() == [str(ROOT / "runners" / "__init__.py"), "shop"], ended.stderr


@pytest.mark.spark
def test_the_notebook_carries_and_shows_what_it_did(
    tmp_path: Path, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The rows of the sample lie in its table afterwards; a run that fails fails the cell."""
    begin(tmp_path, "shop", example="databricks")
    monkeypatch.chdir(tmp_path)
    spark.sql("create schema if not exists wherry_notebook")
    given = {"landing": str(tmp_path / "landing"), "table": "wherry_notebook.shop", "state": "wherry_notebook"}
    preview, report, lanes, refused = run(tmp_path / "notebook.py", given)
    assert [hasattr(shown, "_repr_html_") for shown in (preview, report, lanes)] == [True] * 3
    assert ((getattr(report, "read"), getattr(report, "nacked")), len(refused)) == ((10, 3), 3)  # type: ignore[arg-type]  # noqa: B009
    cell = report._repr_html_()  # type: ignore[attr-defined]
    assert all(said in cell for said in ("Refused rows", "sample.csv", "wherry_notebook.shop"))
    assert spark.table("wherry_notebook.shop").count() == 6
    (tmp_path / "landing" / "late.csv").write_text("id,email,amount,at\n" + "1,a@b,x,\n" * 100)
    with pytest.raises(PipelineFailed):
        run(tmp_path / "notebook.py", given)
