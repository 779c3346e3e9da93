"""A run with a canary delivers its batches as usual, and writes another definition's rows to shadow tables."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from origins.crash_points import watch_points
from runners.command_line.commands import wherry
from runners.crashes.crash_trial import CrashInjector
from runners.model.comparison import CanaryReport
from runners.model.run_report import Report
from runners.pipeline import Pipeline
from runners.state.delta_ledger import DeltaLedger
from tests.scenarios.conftest import ORDERS, Place, make_order

pytestmark = pytest.mark.spark

NEW = ORDERS.replace("amount > 0", "amount > 3").replace(
    "  - delta: {path: tables/orders}\n",
    "  - delta: {path: tables/orders}\n  - {name: large, delta: {path: tables/large}, stages: [filter: amount > 5]}\n",
)
KEEPS_ALL = ORDERS.replace("  - filter:", "  - with_columns: {was: upper(email)}\n  - filter:").replace(
    'filter: "email is not null"', 'filter: "id > 0"'
)
FILES: Mapping[str, list[Any]] = {
    "1.json": [make_order(1), make_order(2), make_order(3, amount="x")],
    "2.json": [make_order(4), make_order(5, email=None), '{"id": "no"}'],
    "3.json": [make_order(6), make_order(7)],
}


def load_other(place: Place, text: str) -> Pipeline:
    """Load the new definition."""
    (place.folder / "new.yaml").write_text(text, encoding="utf-8")
    return Pipeline.load(place.folder / "new.yaml")


def land_files(place: Place) -> None:
    for name, rows in FILES.items():
        place.land(name, rows)


def run_canary(
    place: Place, old: str, new: str, *, share: str = "100%", crash: str = ""
) -> tuple[Report, CanaryReport]:
    """Run the old definition with the new one as its canary. With `crash`, the run dies at this point."""
    pipeline, other = place.load(old), load_other(place, new)
    with watch_points(CrashInjector(crash, end=None)):
        report = pipeline.run(canary=other, share=share, check=False)
    assert report.canary is not None
    assert report.status == ("failed" if crash else "succeeded"), report.error
    return report, report.canary


def find_shadow(place: Place, name: str) -> str:
    """Return the shadow table of this destination. The state must have exactly one new definition."""
    (folder,) = (place.folder / ".wherry/orders/canary").iterdir()
    return f".wherry/orders/canary/{folder.name}/{name}"


def read_shadow_ids(place: Place, name: str = "orders") -> list[int]:
    return place.ids(find_shadow(place, name))


def describe_changes(canary: CanaryReport, name: str = "orders") -> dict[str, int]:
    """Return how many rows of a destination changed in which way."""
    found = canary.destinations[name].differences
    return {f"{each.old} -> {each.new} {','.join(each.columns)}".strip(): each.rows for each in found}


def list_entries(folder: Path) -> list[Any]:
    """Return the facts of the ledger about batches, without the values that differ in each run."""
    entries = DeltaLedger(folder / ".wherry/orders/ledger").read()
    kept = ("number", "span", "offset", "counts", "way", "window", "clean", "owed", "destinations", "straight")
    return [
        (entry.kind, entry.lane, {name: entry.body[name] for name in kept if name in entry.body})
        for entry in entries
        if entry.kind in ("plan", "prepared", "settle", "cancel")
    ]


def test_every_batch_is_delivered_as_without_a_canary(tmp_path: Path, place: Place) -> None:
    """The tables, the DLQ, the ledger and the report are the same. The new definition's tables are not created."""
    reports, rows, entries = [], [], []
    for name in ("plain", "canary"):
        folder = tmp_path / name
        folder.mkdir()
        there = Place(folder, place.spark)
        land_files(there)
        report = there.load(ORDERS).run() if name == "plain" else run_canary(there, ORDERS, NEW)[0]
        reports.append({key: each for key, each in report.json().items() if key not in ("run", "seconds", "spent")})
        refused = [{key: row[key] for key in ("lane", "number", "position", "code")} for row in there.refused()]
        rows.append((sorted(there.rows("tables/orders"), key=lambda row: row["id"]), refused))
        entries.append(list_entries(folder))
    assert rows[0] == rows[1]
    assert len(entries[0]) >= 6
    assert [*map(strip_times, entries[0])] == [*map(strip_times, entries[1])]
    assert {**reports[0], "canary": None} == {**reports[1], "canary": None}
    assert not (tmp_path / "canary/tables/large").exists()


def strip_times(entry: Any) -> Any:
    """Return the entry with the same folder name for both runs."""
    return json.loads(json.dumps(entry, default=str).replace("/canary/", "/plain/"))


@pytest.mark.connect
def test_shadow_tables_have_exactly_the_rows_of_the_new_definition(place: Place) -> None:
    """Each shadow row has its batch. Differences and refused rows are counted over all batches."""
    land_files(place)
    report, canary = run_canary(place, ORDERS, NEW)
    assert (report.batches, canary.batches, canary.rows, canary.failed) == (3, 3, 8, 0)
    assert place.ids("tables/orders") == [1, 2, 4, 6, 7]
    assert read_shadow_ids(place) == [4, 6, 7]
    assert read_shadow_ids(place, "large") == [6, 7]
    row = next(row for row in place.rows(find_shadow(place, "orders")) if row["id"] == 4)
    stored = next(row for row in place.rows("tables/orders") if row["id"] == 4)
    assert row == {**stored, "canary_batch": "0/2"}
    assert describe_changes(canary) == {"delivered -> refused by require (positive_amount)": 2}
    assert (canary.destinations["orders"].same, canary.only_new) == (6, ["large"])
    assert canary.refused == {"require (positive_amount)": 2, "cast (CAST)": 1, "origin (PARSE)": 1}
    assert {name: table.rows for name, table in canary.tables.items()} == {"orders": 3, "large": 2}
    assert canary.tables["orders"].place == str(place.folder / find_shadow(place, "orders"))


def test_a_small_share_takes_the_first_batch(place: Place) -> None:
    """Later runs add to the same shadow tables. Another definition gets separate ones."""
    land_files(place)
    _, canary = run_canary(place, ORDERS, NEW, share="0.000001%")
    assert (canary.batches, canary.rows, read_shadow_ids(place)) == (1, 3, [])
    place.land("4.json", [make_order(8)])
    assert run_canary(place, ORDERS, NEW, share="0.000001%")[1].batches == 1
    assert read_shadow_ids(place) == [8]
    place.land("5.json", [make_order(9)])
    run_canary(place, ORDERS, KEEPS_ALL)
    assert len(list((place.folder / ".wherry/orders/canary").iterdir())) == 2


@pytest.mark.parametrize(
    "stage", ["lookup: {path: tables/none, on: [id], columns: [x]}", 'with_columns: {x: "nothing + 1"}']
)
def test_a_new_definition_that_fails_on_a_batch_fails_nothing_else(place: Place, stage: str) -> None:
    """The report names each batch, and the run succeeds."""
    land_files(place)
    report, canary = run_canary(place, ORDERS, ORDERS.replace("  - filter:", f"  - {stage}\n  - filter:"))
    assert (report.batches, place.ids("tables/orders")) == (3, [1, 2, 4, 6, 7])
    assert (canary.batches, canary.failed, canary.is_same) == (0, 3, False)
    assert canary.notices[0].startswith("batch 1 of lane 0 (1.json) was not tried with the new definition: stage '")


def test_a_row_at_which_the_new_definition_raises_is_refused_by_it(place: Place) -> None:
    """The other rows are in the shadow table, and the row counts as refused."""
    land_files(place)
    raising = ORDERS.replace("  - filter:", "  - filter: \"assert_true(id <> 6, 'no 6') is null\"\n  - filter:")
    _, canary = run_canary(place, ORDERS, raising)
    assert read_shadow_ids(place) == [1, 2, 4, 7]
    assert [(each, rows) for each, rows in describe_changes(canary).items() if "delivered ->" in each] == [
        ("delivered -> refused by filter (USER_RAISED_EXCEPTION)", 1)
    ]


def test_rows_of_a_stage_that_makes_other_rows_are_compared_by_value(place: Place) -> None:
    """Rows that are refused before that stage are counted too."""
    land_files(place)
    summing = ORDERS.replace(
        "  - filter:", '  - sql: "select max(id) as id, max(email) as email from rows"\n  - filter:'
    )
    _, canary = run_canary(place, ORDERS, summing)
    assert (canary.by_row, canary.rows) == (False, 8)
    assert read_shadow_ids(place) == [2, 5, 7]
    assert canary.refused == {"cast (CAST)": 1, "origin (PARSE)": 1}


def test_the_new_definition_reads_its_tables_as_they_were_before_the_delivery(place: Place) -> None:
    """It compares rows with the table that the run has just written, and does not find the run's rows there."""
    place.land("1.json", [make_order(1)])
    place.load(ORDERS).run()
    place.land("2.json", [make_order(1), make_order(2)])
    against = ORDERS.replace(
        "  - filter:", "  - deduplicate: {keys: [id], against: {path: tables/orders}}\n  - filter:"
    )
    _, canary = run_canary(place, ORDERS, against)
    assert read_shadow_ids(place) == [2]
    assert describe_changes(canary) == {"delivered -> filtered by deduplicate": 1}


def test_python_works_and_claim_leaves_large_values_in_the_shadow_table(place: Place) -> None:
    """No value is stored for a row that is only tried."""
    place.land("1.json", [make_order(1), make_order(2, email="x" * 5_000)])
    source = "def halve(rows):\n    return [{'half': float(row['amount']) / 2} for row in rows]\n"
    (place.folder / "half.py").write_text(source, encoding="utf-8")
    stages = (
        "  - claim: {path: claims, over: 1KiB}\n"
        '  - python: {function: "half:halve", columns: {half: double}}\n  - filter:'
    )
    _, canary = run_canary(place, ORDERS, ORDERS.replace("  - filter:", stages))
    assert canary.failed == 0, canary.notices
    rows = {row["id"]: row for row in place.rows(find_shadow(place, "orders"))}
    assert (len(rows[2]["email"]), rows[1]["half"]) == (5_000, 0.75)
    assert not (place.folder / "claims").exists()


@pytest.mark.parametrize("point", ["after-write", "before-settle"])
@pytest.mark.parametrize("refused", [False, True])
def test_a_crash_leaves_the_rows_of_a_batch_in_the_shadow_table_once(place: Place, point: str, refused: bool) -> None:
    """The run may die between the write of the shadow table and the settlement. A batch is tried once a destination or
    the DLQ has it."""
    place.land("1.json", [make_order(4), make_order(5), *([make_order(6, amount="x")] if refused else [])])
    place.land("2.json", [make_order(7)])
    _, first = run_canary(place, ORDERS, NEW, crash=point)
    assert first.batches == (point != "after-write" or refused)
    report, canary = run_canary(place, ORDERS, NEW)
    assert place.ids("tables/orders") == [4, 5, 7]
    assert read_shadow_ids(place) == [4, 5, 7]
    assert canary.batches == report.batches


def test_a_batch_that_is_planned_again_replaces_the_rows_of_the_cancelled_plan(place: Place) -> None:
    """The old definition delivers no row of the batch, so the next run cannot find it anywhere."""
    place.land("1.json", [make_order(1, email=None)])
    _, first = run_canary(place, ORDERS, KEEPS_ALL, crash="before-settle")
    assert (first.batches, read_shadow_ids(place)) == (1, [1])
    place.land("2.json", [make_order(2)])
    _, canary = run_canary(place, ORDERS, KEEPS_ALL)
    assert (canary.batches, read_shadow_ids(place)) == (2, [1, 2])
    assert sorted(row["canary_batch"] for row in place.rows(find_shadow(place, "orders"))) == ["0/2", "0/3"]


def test_files_are_deleted_after_the_canary_has_read_them(place: Place) -> None:
    """Only the run deletes them. The new definition deletes nothing."""
    land_files(place)
    deletes = ORDERS.replace("format: json,", "format: json, after: delete,")
    _, canary = run_canary(place, deletes, NEW.replace("format: json,", "format: json, after: move,"))
    assert (canary.batches, canary.failed, read_shadow_ids(place)) == (3, 0, [4, 6, 7])
    assert [*(place.folder / "landing").rglob("*.json")] == []


def test_the_command_prints_the_differences_and_exits_as_the_run_does(place: Place) -> None:
    """`--share` without `--canary` is an error."""
    land_files(place)
    file, new = place.define(ORDERS), place.folder / "new.yaml"
    new.write_text(NEW, encoding="utf-8")
    words = ["run", str(file), "--quiet", "--canary", str(new), "--share", "1"]
    ended = CliRunner().invoke(wherry, words, standalone_mode=False)
    assert ended.return_value == 0, ended.output
    assert "Canary with a share of 100%: Wherry tried the new definition on 3 batches with 8 rows." in ended.stdout
    assert "orders: 6 rows are the same, 2 rows differ." in ended.stdout
    assert "(3 rows from this run)" in ended.stdout
    place.land("4.json", [make_order(8, amount="x")])
    failing = [*words, "--json", "--set", "dlq.window=1", "--set", "dlq.threshold=1"]
    ended = CliRunner().invoke(wherry, failing, standalone_mode=False)
    shown = json.loads(ended.stdout)
    assert (ended.return_value, shown["status"], shown["canary"]["batches"]) == (1, "failed", 0)
    alone = CliRunner().invoke(wherry, ["run", str(file), "--share", "5%"])
    assert (alone.exit_code, "--share needs --canary." in alone.output) == (2, True)
