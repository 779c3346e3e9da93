"""Run a notebook in source format as Databricks does: cell by cell, with widgets."""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest


class Widgets:
    """The double of `dbutils`, with the values that the job gives. This Python is not restarted."""

    def __init__(self, given: Mapping[str, str]) -> None:
        self.given = dict(given)
        self.widgets = self.library = self

    def restartPython(self) -> None:  # noqa: N802  (as it is there)
        pass

    def text(self, name: str, default: str) -> None:
        self.given.setdefault(name, default)

    def get(self, name: str) -> str:
        return self.given[name]

    def getAll(self) -> Mapping[str, str]:  # noqa: N802  (as it is there)
        return self.given


def list_cells(notebook: Path) -> list[str]:
    """Return the cells of a notebook in order. Code that only Databricks understands is in comments."""
    head, *cells = notebook.read_text().split("# COMMAND ----------\n")
    assert head.startswith("# Databricks notebook source\n")
    return cells


def run_cells(notebook: Path, given: Mapping[str, str]) -> list[object]:
    """Run the cells and return what each one shows: the value of the expression at its end."""
    names: dict[str, Any] = {"dbutils": Widgets(given)}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys.modules["__main__"], "dbutils", names["dbutils"], raising=False)
        return list(_run(notebook, names))


def _run(notebook: Path, names: dict[str, Any]) -> Iterator[object]:
    for cell in list_cells(notebook):
        tree = ast.parse(cell)
        last = tree.body.pop() if tree.body and isinstance(tree.body[-1], ast.Expr) else None
        exec(compile(tree, "cell", "exec"), names)  # noqa: S102  (the notebook is ours)
        if isinstance(last, ast.Expr):
            value = eval(compile(ast.Expression(last.value), "cell", "eval"), names)  # noqa: S307
            if value is not None:
                yield value
