"""`wherry init`, as somebody goes on from it."""

from __future__ import annotations

import json
import runpy
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from click.testing import CliRunner

from runners.commands import wherry

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark


def test_what_init_writes_runs_at_once(tmp_path: Path, spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its test passes and touches nothing, and then its definition carries the sample into its table."""
    monkeypatch.chdir(tmp_path)
    assert CliRunner().invoke(wherry, ["init", "shop"], standalone_mode=False).exception is None
    runpy.run_path("shop/test_pipeline.py", run_name="__main__")
    assert not (tmp_path / "shop" / "tables").exists()
    result = CliRunner().invoke(wherry, ["run", "shop/shop.yaml", "--json"], standalone_mode=False)
    report = json.loads(result.stdout)
    assert (report["read"], report["nacked"], report["filtered"], report["balanced"]) == (10, 3, 1, True)
    table = spark.read.format("delta").load(str(tmp_path / "shop" / "tables" / "shop"))
    assert sorted(row["id"] for row in table.collect()) == [1, 2, 5, 7, 9, 10]
