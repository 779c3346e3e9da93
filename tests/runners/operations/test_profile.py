"""A suggested suite passes for the rows that it was made from."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from runners.command_line import cli
from stages.expect.expectation import parse_suite
from tests.scenarios.conftest import ORDERS, Place, make_order, place
from tests.stages.python.nasty import ROWS, SCHEMA

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["place"]

pytestmark = [pytest.mark.spark]


def test_a_suggested_suite_passes_for_its_rows(spark: SparkSession) -> None:
    """The rows include unusual values. Columns that cannot be compared exactly get no limits."""
    from runners.operations.profile import profile_rows
    from stages.expect import gx

    spark.conf.set("spark.sql.codegen.wholeStage", "false")
    spark.conf.set("spark.sql.codegen.factoryMode", "NO_CODEGEN")  # compiling code takes longer than these few rows
    frame = spark.createDataFrame(ROWS * 2, SCHEMA)
    suite = profile_rows(frame, "nasty")
    rules = [rule for rule in parse_suite(suite, "it") if "odd" not in str(rule.options)]
    assert [each["exception"] or each["success"] for each in gx.validate_batch(rules, frame, {})] == [True] * len(rules)
    said = {(each["type"], each["kwargs"].get("column")): each for each in suite["expectations"]}
    assert said["expect_column_values_to_not_be_null", "pos"]["severity"] == "critical"
    assert said["expect_column_values_to_not_be_null", "rising"]["kwargs"]["mostly"] == 0.75
    assert said["expect_column_values_to_be_between", "j"]["kwargs"] == {
        "column": "j",
        "min_value": -3,
        "max_value": 11,
    }
    assert ("expect_column_values_to_be_between", "i") not in said
    assert ("expect_column_values_to_be_between", "d") not in said
    assert said["expect_column_values_to_be_in_set", "odd. name"]["kwargs"]["value_set"] == [
        "", " ", "a", "b. c", "ä", "日本"
    ]  # fmt: skip


def test_a_column_with_many_values_gets_no_set_of_values(spark: SparkSession) -> None:
    """An expectation for the lengths is suggested instead."""
    from runners.operations.profile import profile_rows

    frame = spark.range(100).selectExpr("concat('x', id % 21) AS s")
    said = [each["type"] for each in profile_rows(frame, "many")["expectations"]]
    assert said[1:] == ["expect_column_values_to_not_be_null", "expect_column_value_lengths_to_be_between"]
    with pytest.raises(ValueError, match="there are no rows"):
        profile_rows(frame.limit(0), "none")


def test_rows_are_profiled_in_one_pass(spark: SparkSession) -> None:
    """Profiling all columns takes as many Spark jobs as counting the rows."""
    from runners.operations.profile import profile_rows

    frame = spark.createDataFrame(ROWS, SCHEMA)
    scheduler: Any = getattr(spark, "_jsc").sc().dagScheduler()  # noqa: B009
    counts = [int(scheduler.numTotalJobs())]
    for look in (lambda: frame.groupBy().count().collect(), lambda: profile_rows(frame, "nasty")):
        look()
        counts.append(int(scheduler.numTotalJobs()))
    before, counted, suggested = counts
    assert 0 < suggested - counted <= counted - before


def test_the_suggest_command_profiles_the_next_batch(
    place: Place, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """It profiles the rows after the other stages, and processes no batch. A stage can use the suite."""
    monkeypatch.chdir(place.folder)
    place.land("1.json", [make_order(number, amount=str(number - 2)) for number in range(1, 9)])
    place.define(ORDERS)
    assert cli.execute(["expect", "suggest", "pipeline.yaml", "--to", "rules.json"]) == 0
    assert "expect: {suite: rules.json}" in capsys.readouterr().out
    suite: dict[str, Any] = json.loads(Path("rules.json").read_text())
    between = [each["kwargs"] for each in suite["expectations"] if each["type"].endswith("to_be_between")]
    assert {"column": "amount", "min_value": 1.0, "max_value": 6.0} in between
    assert not Path("tables").exists()
    report = place.load(ORDERS.replace("destinations:", "  - expect: {suite: rules.json}\ndestinations:")).run()
    assert (report.read, report.delivered, report.nacked) == (8, {"orders": 6}, 2)
    assert {each["failed"] for each in report.quality} == {0}
    assert cli.execute(["expect", "suggest", "pipeline.yaml"]) == 2
    assert "There are no new rows to suggest rules from" in capsys.readouterr().err
    assert cli.execute(["expect", "suggest", "pipeline.yaml", "--path", "tables/orders"]) == 0
    assert json.loads(capsys.readouterr().out)["name"] == "orders"
