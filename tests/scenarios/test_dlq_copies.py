"""Copies of refused rows have separate stages that choose rows by cause. Each copy gets each row once."""

from __future__ import annotations

from typing import Any

import pytest

from origins.crash_points import watch_points
from tests.scenarios.conftest import ORDERS, Place, make_order

pytestmark = pytest.mark.spark

COPIED = ORDERS.replace(
    "dlq: {window: 1000, threshold: 500}",
    """
dlq:
  window: 0
  copy:
    - delta: {path: casts}
      stages:
        - filter: "code = 'CAST'"
        - select: [id, message, original]
        - with_columns: {team: "'billing'", batch: ":number"}
    - delta: {path: others}
      stages:
        - filter: "code <> 'CAST'"
    - delta: {path: everything}
""",
)
ROWS = [make_order(1), make_order(2, amount="x"), make_order(3, amount="-1"), make_order(4, amount="y")]


def test_each_copy_gets_the_rows_that_its_stages_leave(place: Place) -> None:
    """The copies have the columns that their stages make. The DLQ keeps all rows, and the audit uses them as proof."""
    place.land("1.json", ROWS)
    report = place.load(COPIED).run()
    assert (report.status, report.nacked, report.balanced) == ("succeeded", 3, True)
    refused = {row["id"]: row for row in place.refused()}
    casts = {row["id"]: row for row in place.rows("casts")}
    assert set(casts) == {name for name, row in refused.items() if row["code"] == "CAST"}
    assert {(*row,) for row in casts.values()} == {("id", "message", "original", "team", "batch")}
    assert {(row["team"], row["batch"]) for row in casts.values()} == {("billing", 1)}
    assert all(row["original"] == refused[name]["original"] for name, row in casts.items())
    assert [row["code"] for row in place.rows("others")] == ["positive_amount"]
    assert {row["id"] for row in place.rows("everything")} == set(refused)
    assert place.load().audit().balanced


def test_after_a_crash_each_copy_has_each_row_once(place: Place) -> None:
    """The run dies when some copies have the rows and the DLQ does not."""
    place.land("1.json", ROWS)

    def crash(point: str, of: str, rows: Any) -> Any:
        if point == "between-writes":
            raise RuntimeError("the process dies here")
        return rows

    with watch_points(crash):
        assert place.load(COPIED).run(check=False).status == "failed"
    assert place.load().run().status == "succeeded"
    assert (len(place.rows("casts")), len(place.rows("others")), len(place.rows("everything"))) == (2, 1, 3)
    assert len(place.refused()) == 3


def test_a_stage_of_a_copy_that_refuses_a_row_stops_the_run(place: Place) -> None:
    """The error names the copy. Without the stage, the next run finishes the batch."""
    place.land("1.json", ROWS)
    strict = COPIED.replace("- filter: \"code <> 'CAST'\"", '- require: {short: "length(message) < 3"}')
    report = place.load(strict).run(check=False)
    assert report.error is not None
    assert "A stage of the DLQ's copy 'others' refused a row" in report.error.message
    assert place.ids("tables/orders") in ([], [1])
    assert place.load(COPIED).run().status == "succeeded"
    assert (place.ids("tables/orders"), len(place.rows("casts")), len(place.refused())) == ([1], 2, 3)


def test_a_stage_that_does_not_fit_the_columns_of_the_dlq_is_refused_before_a_row_is_read(place: Place) -> None:
    """The error names the stage and the missing column."""
    place.land("1.json", ROWS)
    report = place.load(COPIED.replace("[id, message, original]", "[id, email]")).run(check=False)
    assert report.error is not None
    assert (report.batches, "select" in report.error.message, "email" in report.error.message) == (0, True, True)
