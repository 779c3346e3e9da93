"""Another pipeline reads the refused rows of a pipeline, and each of them arrives once."""

from __future__ import annotations

import pytest

from runners.pipeline import Pipeline
from runners.running.choice import Choice
from runners.running.replay import Replay
from tests.scenarios.conftest import ORDERS, Place, make_order

pytestmark = [pytest.mark.spark, pytest.mark.connect]

READER = """
name: {table}
origin:
  dlq: {{path: .wherry/orders/dlq, {options}}}
stages: [{stages}]
destinations:
  - delta: {{path: tables/{table}}}
dlq: {{window: 0}}
"""
MEND = "{with_columns: {amount: \"replace(amount, ',', '.')\"}}, {cast: {amount: double}}"


def make_reader(place: Place, table: str, options: str, stages: str = "") -> Pipeline:
    """Return a pipeline that reads the refused orders into a table."""
    file = place.folder / f"{table}.yaml"
    file.write_text(READER.format(options=options, table=table, stages=stages))
    return Pipeline.load(file)


def test_refused_rows_reach_another_pipeline_once_also_after_a_replay(place: Place) -> None:
    """They arrive as entries or as rows. A replay makes no entry new, but a row that it refuses again is another
    entry."""
    place.land(
        "1.json", [make_order(1), make_order(2, amount="2,5"), make_order(3, amount="-3"), make_order(4, amount="four")]
    )
    place.load(ORDERS).run()
    entries = make_reader(place, "entries", "code: [CAST, positive_amount]")
    mended = make_reader(place, "mended", "rows: original, code: CAST, refused_again: false", MEND)
    report, again = entries.run(), mended.run()
    assert (report.read, report.delivered, report.balanced) == (3, {"entries": 3}, True)
    assert (again.read, again.delivered, again.nacked, again.balanced) == (2, {"mended": 1}, 1, True)
    assert [(row["id"], row["amount"]) for row in place.rows("tables/mended")] == [(2, 2.5)]
    place.load().refused.discard(Choice(code="positive_amount"), reason="test orders")
    place.load().replay(Replay(choice=Choice(code="CAST"), reason="try again"))
    place.land("2.json", [make_order(5, amount="5,5")])
    place.load().run()
    assert (entries.run().read, mended.run().read) == (3, 1)
    assert place.ids("tables/mended") == [2, 5]
    kept, refused = place.rows("tables/entries"), place.refused()
    assert sorted(row["id"] for row in kept) == sorted(row["id"] for row in refused)
    assert sum(row["replays"] is not None for row in kept) == 2
    assert (entries.run().batches, mended.run().batches) == (0, 0)
