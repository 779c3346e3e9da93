"""Of duplicate rows, one is delivered, and the others count as filtered."""

from __future__ import annotations

import pytest

from tests.scenarios.conftest import Place

pytestmark = [pytest.mark.spark]

PIPELINE = """
name: orders
origin: {{files: {{path: "landing/*.json", format: json, schema: "id long, at long, v string"}}}}
stages:
  - filter: "v <> 'no'"
  - deduplicate: {{keys: [id]{more}}}
destinations: [{{delta: {{path: tables/{name}}}}}]
dlq: {{window: 0}}
state: .wherry/{name}
"""


@pytest.mark.promise("CD-10")
def test_the_latest_row_of_a_batch_stays(place: Place) -> None:
    """The latest row is the last to arrive, or the row with the highest `sequence_by`. File names do not matter."""
    place.land("z.json", [{"id": 1, "at": 9, "v": "z1"}, {"id": 2, "at": 1, "v": "z2"}, {"at": 1, "v": "no id"}])
    place.land("a.json", [{"id": 2, "at": 2, "v": "a1"}, {"id": 1, "at": 1, "v": "a2"}, {"at": 2, "v": "no id"}])
    place.land("m.json", [{"id": 1, "at": 99, "v": "no"}])
    for name, more, left in (("arrived", "", ["a1", "a2"]), ("sequenced", ", sequence_by: at", ["a1", "z1"])):
        report = place.load(PIPELINE.format(more=more, name=name)).run()
        assert sorted(row["v"] for row in place.rows(f"tables/{name}")) == sorted([*left, "no id", "no id"])
        assert (report.read, report.filtered, report.nacked, report.balanced) == (7, 3, 0, True)
        assert [(each.stage, each.entered, each.left, each.filtered) for each in report.stages] == [
            ("filter", 7, 6, 1),
            ("deduplicate", 6, 4, 2),
        ]


@pytest.mark.promise("CD-10", "SS-11")
def test_rows_with_a_delivered_key_are_not_delivered_again(place: Place) -> None:
    """This holds for later batches of a run and for later runs. Each batch sees the rows of earlier batches."""
    text = PIPELINE.format(name="orders", more=", sequence_by: at, against: {path: tables/orders}")
    text += "run: {batch: {files: 1}}\n"
    place.land("a.json", [{"id": 1, "at": 1, "v": "a"}, {"id": 1, "at": 2, "v": "b"}])
    place.land("b.json", [{"id": 1, "at": 3, "v": "c"}, {"id": 2, "at": 3, "v": "d"}])
    assert (place.load(text).run().filtered, sorted(row["v"] for row in place.rows("tables/orders"))) == (2, ["b", "d"])
    place.land("c.json", [{"id": 2, "at": 4, "v": "e"}, {"id": 3, "at": 4, "v": "f"}])
    report = place.load().run()
    assert (report.filtered, report.delivered, report.balanced) == (1, {"orders": 1}, True)
    assert sorted(row["v"] for row in place.rows("tables/orders")) == ["b", "d", "f"]
