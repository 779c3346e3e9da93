"""A table with a feature of Delta gets each row once, from Wherry itself or from Spark."""

from __future__ import annotations

import re

import pytest

from destinations.delta import Delta
from tests.destinations.delta.direct.test_append import name_engine
from tests.destinations.delta.features import FEATURES, make_table
from tests.scenarios.conftest import Place, make_order
from tests.test_habits import ROOT

PAGE = ROOT / "destinations/docs/appending.md"
ORDERS = """
name: orders
origin: {files: {path: "landing/*.json", format: json, schema: "id long, email string, amount string, at timestamp"}}
destinations:
  - delta: {path: tables/orders}
run: {batch: {files: 1}}
"""


ALWAYS = ("no feature", "partitions", "a generated column", "column mapping")
"""The features of tables that are always written. All others take long together."""


@pytest.mark.spark
@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=() if name in ALWAYS else pytest.mark.long) for name in FEATURES]
)
def test_a_table_with_a_feature_gets_each_row_once(place: Place, name: str) -> None:
    """The audit finds every batch in it, and the newest commit names its engine."""
    table, feature = place.folder / "tables/orders", FEATURES[name]
    make_table(place.spark, table, feature)
    for number in (1, 2):
        place.land(f"{number}.json", [make_order(number, at="2026-01-01T00:00:00Z")])
    report = place.load(ORDERS).run()
    assert (report.batches, report.delivered, report.balanced) == (2, {"orders": 2}, True)
    assert sorted(row["id"] for row in place.spark.read.format("delta").load(str(table)).collect()) == [1, 2]
    assert (name_engine(Delta(path=str(table)).open()) == "wherry") is feature.commits_here
    assert place.load(ORDERS).audit().problems == []


def test_the_page_says_for_each_feature_which_engine_commits_to_it() -> None:
    """It has the features of the tests, and no other."""
    rows = re.findall(r"^\| ([\w ,]+) \| (Wherry|Spark) \| \d", PAGE.read_text(encoding="utf-8"), re.MULTILINE)
    said = {name: engine for names, engine in rows for name in names.split(", ")}
    assert said == {name: "Wherry" if feature.commits_here else "Spark" for name, feature in FEATURES.items()}
