"""The text of a preview on a terminal."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import pytest

from runners.model.planned_batch import StageCount
from runners.operations.preview import BatchPreview, Preview, SeenRow, StageFailure, StagePreview


def test_a_preview_shows_each_stage_and_the_destinations() -> None:
    """Each stage has its counts and a table of some rows. The reason is below a refused row."""
    kept, filtered = SeenRow(outcome="kept", row={"id": 1}), SeenRow(outcome="filtered", row={"id": 2, "email": None})
    refused = SeenRow(outcome="refused", row={"id": "x"}, code="CAST", message="column id: 'x' is not a bigint")
    stages = (
        StagePreview(counts=StageCount(stage="as read", entered=1_001, left=1_001), rows=(kept,)),
        StagePreview(counts=StageCount(stage="cast", entered=1_001, left=1_000, nacked=1), rows=(kept, refused)),
        StagePreview(counts=StageCount(stage="filter", entered=1_000, left=999, filtered=1), rows=(filtered,)),
        StagePreview(counts=StageCount(stage="sql", entered=999, left=1_998), rows=()),
    )
    label = str(Path.cwd() / "landing" / "a.csv")
    batch = BatchPreview(
        lane="0", number=3, label=label, read=1_001, stages=stages, destinations={"orders": 1_998, "one": 1}
    )
    assert str(Preview(pipeline="orders", batches=(batch,))).splitlines() == [
        "Batch 3 of lane 0 (landing/a.csv), preview of 1,001 rows. Nothing is written.",
        "",
        "as read: 1,001 rows",
        "        id",
        "  kept  1",
        "",
        "cast: 1,001 rows, 1 refused",
        "           id",
        "  kept     1",
        "  refused  x",
        "             column id: 'x' is not a bigint",
        "",
        "filter: 1,000 rows, 1 filtered",
        "            id  email",
        "  filtered  2   null",
        "",
        "sql: 999 rows in, 1,998 out",
        "",
        "orders would get 1,998 rows.",
        "one would get 1 row.",
    ]


def test_a_preview_without_rows_names_the_option_for_old_rows() -> None:
    """The option is `--from-beginning`."""
    said = str(Preview(pipeline="orders", batches=()))
    assert said == "No rows wait for orders. To preview old rows:  --from-beginning"


@pytest.mark.parametrize(
    ("then", "said"),
    [
        ("stop", "which stops the run:"),
        ("quarantine", "and the whole batch goes to the DLQ:"),
        ("report", "which is only reported:"),
    ],
)
def test_a_failing_batch_is_shown_with_the_reason_and_the_effect(
    then: Literal["stop", "quarantine", "report"], said: str
) -> None:
    """If the run would stop, no row is delivered. The output states this above the counts."""
    failure = StageFailure(why=("expect_table_row_count_to_equal, expected value 9, found 2",), then=then)
    stage = StagePreview(counts=StageCount(stage="expect", entered=2, left=2), rows=(), failure=failure)
    batch = BatchPreview(lane="0", number=1, label="", read=2, stages=(stage,), destinations={"orders": 2})
    lines = str(Preview(pipeline="orders", batches=(batch,))).splitlines()
    assert lines[2:5] == [
        "expect: 2 rows",
        f"  the batch fails, {said}",
        "    expect_table_row_count_to_equal, expected value 9, found 2",
    ]
    stops = ["No row of it would be delivered: the run would stop. If that batch were only reported,", ""]
    assert lines[6:] == [*(stops if then == "stop" else []), "orders would get 2 rows."]
    facts = batch.json()
    assert (facts["stops"], facts["stages"][0]["failure"]["then"]) == (then == "stop", then)
