"""Destinations that are not tables work in whole pipelines."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING

import pytest

from destinations.python import Python
from runners.model.run_report import PipelineFailed
from runners.pipeline import Pipeline
from tests.scenarios.conftest import ORDERS, Place, make_order

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from destinations.labels import Label

pytestmark = [pytest.mark.spark]

LOAD = """
import json
import helpers
from pyspark.sql import functions as F

def write(rows, label):
    twice = F.udf(helpers.twice)
    with open(f"{helpers.FOLDER}/{label.batch.number}.json", "w") as file:
        json.dump(sorted(row[0] for row in rows.select(twice("id")).collect()), file)
"""


@pytest.mark.promise("CD-22")
def test_a_function_beside_the_definition_gets_every_batch_with_its_label(place: Place) -> None:
    """It may import modules beside it, also on Spark's workers. Python's path does not change for other code."""
    (place.folder / "load.py").write_text(LOAD)
    helpers = f"FOLDER = {str(place.folder)!r}\ndef twice(number): return str(2 * number)\n"
    (place.folder / "helpers.py").write_text(helpers)
    place.land("a.json", [make_order(1), make_order(2, amount="x")])
    place.land("b.json", [make_order(3), make_order(4, email=None), make_order(5)])
    before = list(sys.path)
    pipeline = place.load(ORDERS.replace("delta: {path: tables/orders}", 'python: "load:write"'))
    report = pipeline.run()
    assert (report.delivered, report.nacked, report.filtered, report.balanced) == ({"load:write": 3}, 1, 1, True)
    assert (place.folder / "1.json").read_text() == '["2"]'
    assert (place.folder / "2.json").read_text() == '["10", "6"]'
    assert sys.path == before


@pytest.mark.promise("CD-27")
def test_a_function_that_failed_gets_the_same_batch_again(place: Place) -> None:
    """The batch has the same label and the same rows. The error names the function and the batch."""
    seen: list[tuple[str, list[int]]] = []

    def failing(rows: DataFrame, label: Label) -> None:
        seen.append((label.key, sorted(row["id"] for row in rows.collect())))
        if len(seen) == 1:
            raise SystemExit("no")

    place.land("a.json", [make_order(1), make_order(2)])
    loaded = place.load(ORDERS)
    pipeline = Pipeline(
        name="orders",
        origin=loaded.origin,
        destinations=[Python(failing, name="mine")],
        state=loaded.state,
    )
    with pytest.raises(PipelineFailed, match=r"failing, given batch 1 of lane 0, raised SystemExit: no"):
        pipeline.run()
    pipeline.run()
    assert seen == [seen[0], seen[0]]
    assert seen[0][1] == [1, 2]


@pytest.mark.promise("DQ-01")
def test_any_destination_can_be_the_dlq(place: Place) -> None:
    """Refused rows arrive there once, with all their columns. Good rows do not."""
    (place.folder / "load.py").write_text(
        f"def write(rows, label):\n    rows.write.json({str(place.folder / 'nacked')!r} + f'/{{label.batch.number}}')\n"
    )
    for number, dlq in enumerate(["files: {path: refused, format: json}", 'python: "load:write"', "log: {limit: 1}"]):
        place.land(f"{number}.json", [make_order(number), make_order(number, amount="sieben")])
        text = ORDERS.replace("dlq: {window: 1000,", f"dlq: {{{dlq}, window: 1000,")
        report = place.load(text).run()
        assert (report.read, report.nacked, report.balanced) == (2, 1, True)
    for kept, number in (("refused", 1), ("nacked/2", 2)):
        (row,) = place.spark.read.json(str(place.folder / kept)).collect()
        assert (row["number"], row["stage"], json.loads(row["original"])["amount"]) == (number, "cast", "sieben")
    assert place.ids("tables/orders") == [0, 1, 2]


@pytest.mark.connect
@pytest.mark.promise("CD-05")
def test_a_pipeline_writes_files(place: Place) -> None:
    """Two lanes are written straight. Each batch is a folder, and the report counts the rows."""
    for number in range(4):
        place.land(f"{number}.json", [make_order(number), make_order(9, email=None)])
    text = ORDERS.replace("delta: {path: tables/orders}", "files: {path: out, format: csv}").replace(
        "origin:\n", "origin:\n  lanes: 2\n"
    )
    report = place.load(text).run()
    assert (report.delivered, report.filtered, report.balanced) == ({"out": 4}, 4, True)
    rows = place.spark.read.csv(str(place.folder / "out"), header=True).collect()
    assert sorted(row["id"] for row in rows) == ["0", "1", "2", "3"]
    assert len(list((place.folder / "out").glob("_lane=*/_batch=*"))) == 4
    assert place.load(text).run().batches == 0
