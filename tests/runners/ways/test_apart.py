"""A large batch is written apart by what becomes of its rows, with the same result as when it is written whole."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import pytest

from destinations.delta.writers import FileAppend
from runners.state.prepared_store import FolderStore
from tests.scenarios.conftest import Place, make_order, place

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

__all__ = ["place"]
pytestmark = [pytest.mark.spark]

NOT_NULL, BETWEEN = "expect_column_values_to_not_be_null", "expect_column_values_to_be_between"
PIPELINE = """
name: orders
origin:
  files: {path: "landing/*.json", format: json, schema: "id long, email string, amount string"}
stages:
  - cast: {amount: "decimal(10,2)"}
  - filter: "id <> 4"
  - expect: [{expect_column_values_to_be_between: {column: amount, min_value: 0}}]
  - filter: "id <> 7"
  - expect: [{expect_column_values_to_not_be_null: {column: email}}]
    when: id > 5
destinations:
  - delta: {path: tables/orders}
  - delta: {path: tables/stamped, stamp: _batch}
dlq: {window: 0}
run: {batch: {files: FILES}}
"""
WHOLE = ("written",)
"""The only way that a batch then takes."""
OF_A_RUN = ("id", "plan", "run", "nacked_at", "read_at", "path", "definition")


def note_writes(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return a list that notes whether the rows of each batch are written apart or whole."""
    names: list[str] = []
    write = FolderStore.write

    def noted(store: FolderStore, name: str, frame: DataFrame, by: str = "") -> int | None:
        names.append("apart" if by else "whole")
        return write(store, name, frame, by)

    monkeypatch.setattr(FolderStore, "write", noted)
    return names


def write_files(place: Place) -> None:
    """Write three files.

    Rows are delivered, filtered before and after a refusing stage, and refused in three ways. One file has only good
    rows.
    """
    place.land(
        "a.json", [make_order(1), make_order(2, amount="x"), make_order(3, amount=None), make_order(4), "rubbish"]
    )
    place.land(
        "b.json", [make_order(5, amount="-1"), make_order(6), make_order(7), make_order(8, amount="-3", email="é")]
    )
    place.land("c.json", [make_order(9)])


def find_outcome(
    place: Place, files: int = 2, pipeline: str = PIPELINE, *, ways: Sequence[str] = ()
) -> tuple[Any, ...]:
    """Run the pipeline with these ways. Return all results that do not differ from run to run."""
    report = place.carry(pipeline.replace("FILES", str(files)), small_bytes=0, ways=ways)
    refused = [{name: value for name, value in row.items() if name not in OF_A_RUN} for row in place.refused()]
    quality = [{name: value for name, value in each.items() if name != "run"} for each in report.quality]
    figures = (report.status, report.balanced, report.read, report.nacked, report.delivered, report.filtered, quality)
    rows = [sorted(map(str, place.rows(f"tables/{name}"))) for name in ("orders", "stamped")]
    shutil.rmtree(place.folder / "tables")
    shutil.rmtree(place.folder / ".wherry")
    return figures, rows, refused


def test_rows_apart_give_the_same_as_whole_rows(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows, counts, results of rules and the DLQ are the same, for blocks of two files and of one.

    One table takes files over, and the rows of the other table get a stamp.
    """
    write_files(place)
    with monkeypatch.context() as patched:
        whole = note_writes(patched)
        expected = find_outcome(place, ways=WHOLE)
    assert set(whole) == {"whole"}
    figures, rows, refused = expected
    assert (figures[:4], [len(each) for each in rows], [row["position"] for row in refused]) == (
        ("succeeded", True, 10, 4),
        [4, 4],
        [2, 5, 6, 9],
    )
    names = note_writes(monkeypatch)
    assert find_outcome(place) == expected
    assert set(names) == {"apart"}


def test_a_rule_about_the_batch_is_judged_beside_rules_about_rows(place: Place) -> None:
    """The report has the findings of both rules."""
    write_files(place)
    rules = (
        f"  - expect: [{{{NOT_NULL}: {{column: email}}}}, {{expect_table_row_count_to_be_between: {{min_value: 1}}}}]\n"
    )
    report = place.carry(
        PIPELINE.replace("FILES", "3").replace("destinations:", f"{rules}destinations:"), small_bytes=0
    )
    assert (report.status, report.balanced) == ("succeeded", True)
    assert place.ids("tables/orders") == place.ids("tables/stamped") == [1, 3, 6, 9]


def test_an_open_batch_is_finished_from_its_files(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """The next run reads them and keeps the decision."""

    def away(*_: object) -> None:
        raise RuntimeError("the disk is away")

    write_files(place)
    with monkeypatch.context() as patched:
        patched.setattr(FileAppend, "write", away)
        report = place.carry(PIPELINE.replace("FILES", "3"), small_bytes=0)
    assert report.status == "failed"
    names = note_writes(monkeypatch)
    report = place.carry(small_bytes=0)
    assert (report.status, report.balanced, names) == ("succeeded", True, [])
    assert place.ids("tables/orders") == place.ids("tables/stamped") == [1, 3, 6, 9]
    assert [row["position"] for row in place.refused()] == [2, 5, 6, 9]
