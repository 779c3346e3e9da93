"""Spark weighs batches that exceed the limits of the DLQ, and a kill does not undo a pause."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from runners.model.errors import Paused, Refusal
from runners.model.events import Event, LimitExceeded
from tests.scenarios.conftest import Place

pytestmark = pytest.mark.spark

WEIGHED = """
name: orders
origin:
  files: {path: "landing/*.json", format: json, schema: "id long, `Net amount.EUR` string"}
stages:
  - filter: "id <> 6"
  - require: {SMALL_ID: "id < 10"}
destinations:
  - delta: {path: tables/orders}
dlq: {window: 0, original: false, weigh: "net amount.eur", limits: {weight: 0% notify}}
"""
ROWS: Sequence[Mapping[str, Any] | str] = [
    {"id": 1, "Net amount.EUR": "100"},
    {"id": 12, "Net amount.EUR": "-300"},
    {"id": 13, "Net amount.EUR": "NaN"},
    {"id": 4},
    {"id": 5, "Net amount.EUR": "200"},
    {"id": 6, "Net amount.EUR": "1000"},
    '{"id": ',
]
"""Four of the seven rows have a number: 1,600 in total, 400 on average. Rows without a number count with the average.
One row is filtered. Of the three refused rows, one has 300. So 1,100 of 2,800 are refused."""


@pytest.mark.parametrize("thresholds", [{}, {"small_bytes": 0}])
def test_refused_rows_are_weighed_by_the_column_as_it_was_read(place: Place, thresholds: dict[str, int]) -> None:
    """The column's name, its type and the way of the batch do not matter. A filtered row counts in the batch's weight,
    and the DLQ need not keep originals."""
    place.land("a.json", ROWS)
    report = place.carry(WEIGHED, **thresholds)
    (notice,) = report.notices
    assert "exceeds dlq.limits.weight: its 3 refused rows have 39.3% of its net amount.eur (limit 0% of" in notice
    assert (report.status, report.read, report.nacked, place.ids("tables/orders")) == ("succeeded", 7, 3, [1, 4, 5])


def test_rows_refused_after_a_stage_that_makes_other_rows_have_a_share(place: Place) -> None:
    """One of two orders becomes four rows, which are all refused. Their share is 100 %, although more rows are refused
    than were read."""
    stages = "stages:\n  - sql: SELECT id, explode(sequence(1, 4)) AS part, `Net amount.EUR` FROM rows\n"
    place.land("a.json", [{"id": 1, "Net amount.EUR": "1"}, {"id": 12, "Net amount.EUR": "1"}])
    heard: list[Event] = []
    report = place.load(WEIGHED.replace("stages:\n", stages)).run(listeners=[heard.append])
    (told,) = [each for each in heard if isinstance(each, LimitExceeded)]
    assert (report.status, told.rows, told.share) == ("succeeded", 4, 1.0)


@pytest.mark.parametrize(
    ("column", "said"),
    [
        ("amout", "no column 'amout'; did you mean 'amount'"),
        ("paid", "numbers or text, but 'paid' of files is boolean"),
    ],
)
def test_an_unsuitable_weight_column_is_refused_before_a_row_is_read(place: Place, column: str, said: str) -> None:
    """The error names the most similar column, or the wrong type."""
    place.land("a.json", [{"id": 1}])
    text = WEIGHED.replace("`Net amount.EUR` string", "amount string, paid boolean")
    report = place.load(text.replace("net amount.eur", column)).run(check=False)
    assert report.error is not None
    assert (report.error.cls, report.batches) == (Refusal.__name__, 0)
    assert said in report.error.message


@pytest.mark.long
def test_a_kill_right_after_a_pause_leaves_the_pipeline_paused(place: Place) -> None:
    """One append ends the batch and pauses the pipeline. After a resume, each row is delivered once."""
    place.land("a.json", [{"id": 1}, {"id": 2}])
    place.land("b.json", [{"id": 3}, {"id": 14}])
    text = WEIGHED.replace(
        'original: false, weigh: "net amount.eur", limits: {weight: 0% notify}', "limits: {rows: 10% pause}"
    )
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
