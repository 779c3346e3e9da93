"""`preview` shows the rows after every stage, and writes nothing."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from runners.command_line.commands import wherry
from runners.model.errors import StageError
from runners.operations.preview import BatchPreview
from tests.scenarios.conftest import ORDERS, Place, make_order

pytestmark = pytest.mark.spark


def read_files(folder: Path) -> dict[str, bytes]:
    """Return all files in the folder, hidden or not, with their contents."""
    return {str(file): file.read_bytes() for file in folder.rglob("*") if file.is_file()}


def describe_stages(batch: BatchPreview) -> dict[str, tuple[int, int, int, int]]:
    """Return the counts of each stage: rows in, out, filtered and refused."""
    counts = [stage.counts for stage in batch.stages]
    return {each.stage: (each.entered, each.left, each.filtered, each.nacked) for each in counts}


def list_seen(batch: BatchPreview, stage: str, outcome: str) -> list[dict[str, Any]]:
    """Return the rows with one outcome at a stage."""
    (found,) = [each for each in batch.stages if each.counts.stage == stage]
    return [each.row for each in found.rows if each.outcome == outcome]


@pytest.mark.promise("SS-25")
def test_every_row_is_shown_at_every_stage_and_nothing_is_written(place: Place) -> None:
    """Kept rows are shown after the stage. Filtered and refused rows are shown as they reached it, with the reason, and
    the run counts the same."""
    bad: list[Any] = [
        make_order(2, amount="sieben"),
        make_order(3, email=None),
        make_order(4, amount="-1.00"),
        '{"id": "x"}',
    ]
    place.land("a.json", [make_order(1), *bad, make_order(6)])
    pipeline = place.load(ORDERS)
    before = read_files(place.folder)
    (batch,) = pipeline.preview().batches
    assert read_files(place.folder) == before
    assert (batch.lane, batch.number, batch.read, batch.destinations) == ("0", 1, 6, {"orders": 2})
    assert describe_stages(batch) == {
        "as read": (6, 5, 0, 1),
        "cast": (5, 4, 0, 1),
        "require": (4, 3, 0, 1),
        "filter": (3, 2, 1, 0),
        "with_columns": (2, 2, 0, 0),
    }
    assert list_seen(batch, "as read", "refused") == [{"raw": '{"id": "x"}'}]
    assert list_seen(batch, "cast", "refused") == [{"id": 2, "email": "A2@X.COM", "amount": "sieben"}]
    assert list_seen(batch, "cast", "kept")[0] == {"id": 1, "email": "A1@X.COM", "amount": 1.50}
    assert list_seen(batch, "filter", "filtered") == [{"id": 3, "email": None, "amount": 3.50}]
    assert [row["email"] for row in list_seen(batch, "with_columns", "kept")] == ["a1@x.com", "a6@x.com"]
    (why,) = [row for row in batch.stages[1].rows if row.outcome == "refused"]
    assert (why.code, why.message) == ("CAST", "column amount: 'sieben' is not a decimal(10,2)")
    report = pipeline.run()
    assert [describe_stages(batch)[stage.stage] for stage in report.stages] == [
        (stage.entered, stage.left, stage.filtered, stage.nacked) for stage in report.stages
    ]


def test_a_preview_tries_the_next_batch_or_starts_from_the_beginning(place: Place) -> None:
    """Delivered rows are shown again only with `from_beginning`. No offset moves."""
    place.land("a.json", [make_order(1)])
    pipeline = place.load(ORDERS)
    pipeline.run()
    assert pipeline.preview().batches == ()
    place.land("b.json", [make_order(2), make_order(3)])
    before = pipeline.status()
    (batch,) = pipeline.preview(rows=1).batches
    assert (batch.number, batch.read, list_seen(batch, "as read", "kept")[0]["id"]) == (2, 1, 2)
    (batch,) = pipeline.preview(from_beginning=True).batches
    assert (batch.number, list_seen(batch, "as read", "kept")[0]["id"]) == (1, 1)
    assert pipeline.status() == before


def test_a_row_that_one_destination_refuses_reaches_none(place: Place) -> None:
    """The stages of each destination are shown. A row that one destination filters still reaches the others."""
    place.land("a.json", [make_order(number) for number in range(1, 7)])
    branches = (
        "destinations:\n"
        "  - {delta: {path: tables/all}}\n"
        "  - {delta: {path: tables/some}, stages: [{filter: 'id > 2'}, {require: {five: 'id <> 5'}}]}\n"
        "  - {delta: {path: tables/few}, stages: [{filter: 'id > 4'}]}\n"
    )
    pipeline = place.load(ORDERS.replace("destinations:\n  - delta: {path: tables/orders}\n", branches))
    (batch,) = pipeline.preview().batches
    assert batch.destinations == {"all": 5, "some": 3, "few": 1}
    assert describe_stages(batch)["some/filter"] == (6, 4, 2, 0)
    assert describe_stages(batch)["some/require"] == (4, 3, 0, 1)
    assert describe_stages(batch)["few/filter"] == (5, 1, 4, 0)
    assert [row["id"] for row in list_seen(batch, "few/filter", "kept")] == [6]
    assert dict(pipeline.run().delivered) == batch.destinations


def test_a_preview_checks_the_requirements_of_the_table(place: Place) -> None:
    """This holds for an existing table, and for a table that a run would create. The preview changes neither."""
    merge = "{path: tables/orders, mode: merge, keys: [id]}"
    place.land("a.json", [make_order(1), make_order(None), make_order(1)])  # type: ignore[arg-type]
    pipeline = place.load(ORDERS.replace("{path: tables/orders}", merge))
    (batch,) = pipeline.preview().batches
    assert batch.destinations == {"orders": 1}
    assert not (place.folder / "tables").exists()
    pipeline.run()
    path = place.folder / "tables" / "orders"
    place.spark.sql(f"ALTER TABLE delta.`{path}` ADD CONSTRAINT small CHECK (amount < 5)")
    place.land("b.json", [make_order(2), make_order(7)])
    (batch,) = pipeline.preview().batches
    assert batch.destinations == {"orders": 1}
    (why,) = [row for stage in batch.stages for row in stage.rows if row.outcome == "refused"]
    assert why.code == "CHECK"


def test_a_preview_shows_the_lane_that_failed_first(place: Place) -> None:
    """It shows the row that tripped the window."""
    text = ORDERS.replace('amount string"}', 'amount string"}\n  lanes: 4').replace(
        ", threshold: 500", ", threshold: 1"
    )
    for number in range(8):
        place.land(f"{number}.json", [make_order(number)])
    place.land("bad.json", [make_order(9, amount="x")])
    pipeline = place.load(text)
    report = pipeline.run(check=False)
    assert report.error is not None
    (batch,) = pipeline.preview().batches
    assert batch.lane == report.error.lane
    assert list_seen(batch, "cast", "refused")[0]["id"] == 9


@pytest.mark.connect
@pytest.mark.promise("SS-25")
def test_a_row_at_which_an_expression_raises_is_shown_as_refused(place: Place) -> None:
    """It is shown at its stage, with the message of the cause. The run refuses the same rows, and the preview writes
    nothing."""
    place.land("a.json", [make_order(number) for number in range(1, 8)])
    text = ORDERS.replace(
        "destinations:\n  - delta: {path: tables/orders}\n",
        "  - with_columns: {share: '1 / (id - 2)'}\n"
        "  - sql: 'select *, 10 / (id - 3) as more from rows'\n"
        "destinations:\n"
        "  - {delta: {path: tables/all}}\n"
        "  - {delta: {path: tables/some}, stages: [{filter: '1 / (id - 5) < 1'}]}\n",
    )
    pipeline = place.load(text)
    before = read_files(place.folder)
    (batch,) = pipeline.preview().batches
    assert read_files(place.folder) == before
    assert describe_stages(batch)["with_columns#2"] == (7, 6, 0, 1)
    assert describe_stages(batch)["sql"] == (6, 5, 0, 1)
    assert describe_stages(batch)["some/filter"] == (5, 3, 1, 1)
    assert [row["id"] for row in list_seen(batch, "sql", "refused")] == [3]
    (why,) = [row for stage in batch.stages for row in stage.rows if row.outcome == "refused" and row.row["id"] == 5]
    assert (why.code, str(why.message)[:17]) == ("DIVIDE_BY_ZERO", "Division by zero.")
    assert dict(pipeline.run().delivered) == batch.destinations == {"all": 4, "some": 3}
    assert [json.loads(row["row"])["id"] for row in place.refused()] == [2, 3, 5]


def test_a_stage_that_does_not_fit_is_named(place: Place) -> None:
    """The error comes before any row is read."""
    place.land("a.json", [make_order(1)])
    with pytest.raises(StageError, match="stage 'filter'"):
        place.load(ORDERS.replace("email is not null", "emial is not null")).preview()


def test_a_preview_is_printed_for_people_and_programs(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither output shows a secret that a stage puts into a row."""
    monkeypatch.setenv("WHERRY_KEY", "hunter2")
    place.land("a.json", [make_order(1), make_order(2, amount="x")])
    place.define(ORDERS.replace("lower(email)", "'${secret:WHERRY_KEY}'"))
    file = str(place.folder / "pipeline.yaml")
    said = CliRunner().invoke(wherry, ["preview", file], standalone_mode=False)
    assert (said.exception, "orders would get 1 row." in said.stdout) == (None, True)
    assert said.stderr.removeprefix("orders: trying the waiting rows\n") == ""
    facts = CliRunner().invoke(wherry, ["preview", file, "--json", "--shown", "1"], standalone_mode=False)
    (batch,) = json.loads(facts.stdout)["batches"]
    assert batch["stages"][-1]["rows"][0]["row"]["email"] == "${secret:WHERRY_KEY}"
    assert "hunter2" not in said.output + facts.output
