"""A user continues with the files that `wherry init` writes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from click.testing import CliRunner

from runners.command_line.commands import wherry

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark


def test_a_users_file_is_delivered_and_its_bad_rows_are_refused(
    tmp_path: Path, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A column gets the type of most of its values. The other rows are in the DLQ, with the reason."""
    monkeypatch.chdir(tmp_path)
    lines = ["id;amount;day\n", *(f"{n};{n}.25;2026-01-{n:02}\n" for n in range(1, 21)), "21;zwei;2026-02-01\n"]
    Path("sales.csv").write_text("".join(lines))
    assert CliRunner().invoke(wherry, ["init", "shop", "--from", "sales.csv"], standalone_mode=False).exception is None
    result = CliRunner().invoke(wherry, ["run", "shop/shop.yaml", "--json"], standalone_mode=False)
    report = json.loads(result.stdout)
    assert (report["read"], report["nacked"], report["delivered"]) == (21, 1, {"shop": 20})
    table = spark.read.format("delta").load(str(tmp_path / "shop" / "tables" / "shop"))
    assert dict(table.dtypes) == {"id": "bigint", "amount": "decimal(18,2)", "day": "date", "file_name": "string"}
    shown = CliRunner().invoke(wherry, ["dlq", "show", "shop/shop.yaml"], standalone_mode=False)
    assert "column amount: 'zwei' is not a decimal(18,2)" in shown.stdout


def test_an_edited_file_can_be_redone(tmp_path: Path, spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    """The definition keeps what a redo needs."""
    monkeypatch.chdir(tmp_path)
    Path("landing").mkdir()
    for day, amounts in {"monday": [1, 2], "tuesday": [3]}.items():
        lines = [json.dumps({"id": amount, "amount": amount}) + "\n" for amount in amounts]
        Path(f"landing/{day}.json").write_text("".join(lines))
    assert CliRunner().invoke(wherry, ["init", ".", "--name", "shop", "--from", "landing"]).exit_code == 0
    assert CliRunner().invoke(wherry, ["run", "shop.yaml"]).exit_code == 0
    Path("landing/monday.json").write_text('{"id": 1, "amount": 10}\n')
    redone = CliRunner().invoke(wherry, ["redo", "shop.yaml", "--file", "monday.json", "--yes"])
    assert redone.exit_code == 0, redone.output
    rows = spark.read.format("delta").load(str(tmp_path / "tables" / "shop")).collect()
    assert sorted((row["id"], row["amount"]) for row in rows) == [(1, 10), (3, 3)]
