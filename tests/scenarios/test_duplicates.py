"""Rows that come twice: one of them is delivered, the others are counted as filtered."""

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
    """The last to have come, not the last by name; or the highest by `sequence_by`, wherever it stands."""
    place.land("z.json", [{"id": 1, "at": 9, "v": "z1"}, {"id": 2, "at": 1, "v": "z2"}, {"at": 1, "v": "no id"}])
    place.land("a.json", [{"id": 2, "at": 2, "v": "a1"}, {"id": 1, "at": 1, "v": "a2"}, {"at": 2, "v": "no id"}])
    place.land("m.json", [{"id": 1, "at": 99, "v": "no"}])
    for name, more, left in (("arrived", "", ["a1", "a2"]), ("sequenced", ", sequence_by: at", ["a1", "z1"])):
        report = place.load(PIPELINE.format(more=more, name=name)).run()
        assert sorted(row["v"] for row in place.rows(f"tables/{name}")) == sorted([*left, "no id", "no id"])
        assert (report.read, report.filtered, report.nacked, report.balanced) == (7, 3, 0, True)
        assert [(each["stage"], each["in"], each["out"], each["filtered"]) for each in report.stages] == [
            ("filter", 7, 6, 1),
            ("deduplicate", 6, 4, 2),
        ]
