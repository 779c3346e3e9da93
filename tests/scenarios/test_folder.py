"""A folder of pipelines that feed each other is run as a whole: bronze, silver, gold."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from runners.command_line import cli

pytestmark = pytest.mark.spark
BRONZE = """
name: bronze
origin: {files: {path: "landing/*.json", format: json, schema: "id long, amount string"}}
destinations: [{delta: {path: tables/bronze}}]
"""
SILVER = """
name: silver
origin: {delta: {path: tables/bronze}}
stages: [{cast: {amount: "decimal(10,2)"}}]
destinations: [{delta: {path: tables/silver}}]
"""
GOLD = """
name: gold
origin: {delta: {path: tables/silver}}
stages: [{filter: "amount > 1"}]
destinations: [{delta: {path: tables/gold}}]
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name, text in (("bronze", BRONZE), ("silver", SILVER), ("gold", GOLD)):
        (tmp_path / f"{name}.yaml").write_text(text)
    (tmp_path / "landing").mkdir()
    monkeypatch.chdir(tmp_path)
    return tmp_path


def write_file(folder: Path, name: str, *amounts: str) -> None:
    lines = [json.dumps({"id": number, "amount": amount}) for number, amount in enumerate(amounts)]
    (folder / "landing" / f"{name}.json").write_text("\n".join(lines) + "\n")


def list_waiting(capsys: pytest.CaptureFixture[str]) -> dict[str, object]:
    capsys.readouterr()
    assert cli.execute(["status", "--all", "--json"]) == 0
    return {each["pipeline"]: each["waiting"] for each in json.loads(capsys.readouterr().out)["pipelines"]}


def test_rows_reach_gold_in_one_call(folder: Path, spark: SparkSession, capsys: pytest.CaptureFixture[str]) -> None:
    """Each pipeline reads the rows that the previous one wrote. Afterwards nothing waits."""
    write_file(folder, "a", "5", "0.5", "7")
    assert list_waiting(capsys) == {"bronze": {"files": 1}, "silver": {"versions": 0}, "gold": {"versions": 0}}
    assert cli.execute(["run", "--all", "--quiet", "--json"]) == 0
    ran = json.loads(capsys.readouterr().out)["pipelines"]
    assert [(each["pipeline"], each["status"], each["read"]) for each in ran] == [
        ("bronze", "succeeded", 3),
        ("silver", "succeeded", 3),
        ("gold", "succeeded", 3),
    ]
    assert spark.read.format("delta").load(str(folder / "tables" / "gold")).count() == 2
    assert list_waiting(capsys) == {"bronze": {"files": 0}, "silver": {"versions": 0}, "gold": {"versions": 0}}
