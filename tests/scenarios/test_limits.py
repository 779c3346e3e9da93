"""Batches exceed the limit of the DLQ, and a kill does not undo a pause."""

from __future__ import annotations

import pytest

from runners.model.errors import Paused
from runners.model.events import Event, LimitExceeded
from tests.scenarios.conftest import Place

pytestmark = pytest.mark.spark

LIMITED = """
name: orders
origin:
  files: {path: "landing/*.json", format: json, schema: "id long"}
stages:
  - filter: "id <> 6"
  - require: {SMALL_ID: "id < 10"}
destinations:
  - delta: {path: tables/orders}
dlq: {window: 0, limits: {rows: 10% notify}}
"""


def test_a_batch_that_exceeds_a_limit_with_notify_is_delivered(place: Place) -> None:
    """The report has a notice."""
    place.land("a.json", [{"id": 1}, {"id": 12}, {"id": 13}, {"id": 4}, {"id": 6}, '{"id": '])
    report = place.carry(LIMITED)
    (notice,) = report.notices
    assert "exceeds dlq.limits.rows: 3 of its 6 rows were refused (limit 10% of a batch)" in notice
    assert (report.status, report.read, report.nacked, place.ids("tables/orders")) == ("succeeded", 6, 3, [1, 4])


def test_rows_refused_after_a_stage_that_makes_other_rows_have_a_share(place: Place) -> None:
    """One of two orders becomes four rows, which are all refused. Their share is 100 %, although more rows are refused
    than were read."""
    stages = "stages:\n  - sql: SELECT id, explode(sequence(1, 4)) AS part FROM rows\n"
    place.land("a.json", [{"id": 1}, {"id": 12}])
    heard: list[Event] = []
    report = place.load(LIMITED.replace("stages:\n", stages)).run(listeners=[heard.append])
    (told,) = [each for each in heard if isinstance(each, LimitExceeded)]
    assert (report.status, told.rows, told.share) == ("succeeded", 4, 1.0)


@pytest.mark.long
def test_a_kill_right_after_a_pause_leaves_the_pipeline_paused(place: Place) -> None:
    """One append ends the batch and pauses the pipeline. After a resume, each row is delivered once."""
    place.land("a.json", [{"id": 1}, {"id": 2}])
    place.land("b.json", [{"id": 3}, {"id": 14}])
    text = LIMITED.replace("notify", "pause")
    text += "run: {batch: {files: 1}}\n"
    place.kill(text, "BatchCancelled", 2)
    with pytest.raises(Paused, match=r"In batch 2 of lane 0, 1 of its 2 rows was refused \(limit 10% of a batch\)"):
        place.load().run()
    assert place.ids("tables/orders") == [1, 2]
    assert place.load().resume(reason="a test order")
    assert place.load(dlq__limits__rows="off").run().status == "succeeded"
    assert place.ids("tables/orders") == [1, 2, 3]
    assert [row["position"] for row in place.refused()] == [2]
    assert place.load().audit().problems == []
