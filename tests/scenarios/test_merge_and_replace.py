"""Pipelines merge or replace the rows of tables, and their counts balance."""

from __future__ import annotations

from typing import Any

import pytest

from tests.scenarios.conftest import Place

pytestmark = pytest.mark.spark

MERGE = """
name: orders
origin:
  files: {path: "landing/*.json", format: json, schema: "id long, at long, op string, note string"}
destinations:
  - delta:
      path: tables/latest
      mode: merge
      keys: [id]
      sequence_by: at
      apply_as_deletes: "op = 'D'"
      except_column_list: [op]
      stamp: _batch
dlq: {window: 0}
run: {batch: {files: 1}}
"""
BY_ARRIVAL = MERGE.replace("      sequence_by: at\n", "")
REPLACE = """
name: orders
origin:
  files: {path: "landing/*.json", format: json, schema: "id long, at long, op string, note string"}
destinations:
  - delta: {path: tables/latest, mode: replace, where: "at = 1"}
dlq: {window: 0}
run: {batch: {files: 1}}
"""


def make_change(number: int, at: int, note: str = "", op: str = "U") -> dict[str, Any]:
    """Return a change to one order."""
    return {"id": number, "at": at, "op": op, "note": note}


def read_notes(place: Place) -> dict[int, str]:
    """Return the note of each order in the table. Each order must have one row."""
    rows = place.rows("tables/latest")
    found = {row["id"]: row["note"] for row in rows}
    assert len(found) == len(rows)
    return found


@pytest.mark.connect
@pytest.mark.promise("CD-16")
def test_the_highest_in_sequence_wins_and_every_row_is_accounted_for(place: Place) -> None:
    """This includes late rows, deletes, a key that occurs twice in a batch, and a NULL key. Merged rows count as
    delivered."""
    place.land(
        "a.json", [make_change(1, 5, "b"), make_change(1, 4, "a"), make_change(2, 5, "x"), {"at": 1, "note": "no key"}]
    )
    place.land("b.json", [make_change(1, 3, "late"), make_change(2, 6, op="D"), make_change(3, 1, "new")])
    place.land("c.json", [make_change(9, 1, op="D")])
    report = place.load(MERGE).run()
    assert (report.status, report.balanced) == ("succeeded", True)
    assert (report.read, report.filtered, report.nacked, report.delivered) == (8, 1, 1, {"latest": 6})
    assert read_notes(place) == {1: "b", 3: "new"}
    assert {row["_batch"] for row in place.rows("tables/latest")} == {"0/1", "0/2"}
    (refused,) = place.refused()
    assert (refused["code"], refused["destination"]) == ("KEY", "latest")


def test_without_a_sequence_the_last_row_wins(place: Place) -> None:
    """This holds in a batch and from batch to batch. A delete is a row like any other."""
    place.land(
        "a.json", [make_change(1, 5, "a"), make_change(1, 4, "b"), make_change(2, 1, "x"), make_change(2, 1, op="D")]
    )
    place.land("b.json", [make_change(1, 1, "c"), make_change(2, 0, "y")])
    report = place.load(BY_ARRIVAL).run()
    assert (report.balanced, report.filtered, report.delivered) == (True, 2, {"latest": 4})
    assert read_notes(place) == {1: "c", 2: "y"}


@pytest.mark.long
@pytest.mark.promise("CD-22")
def test_a_killed_merge_is_found_by_the_label_in_its_statement(place: Place) -> None:
    """Its commit has no other metadata. The next run does not merge those rows again."""
    place.land("a.json", [make_change(1, 5, "a")])
    place.land("b.json", [make_change(2, 7, "b")])
    place.kill(MERGE, "Written", 2)
    report = place.load().run()
    assert (report.status, report.balanced) == ("succeeded", True)
    assert read_notes(place) == {1: "a", 2: "b"}
    history = place.spark.sql(f"DESCRIBE HISTORY delta.`{place.folder / 'tables/latest'}`").collect()
    merges = [row for row in history if row["operation"] == "MERGE"]
    assert [row["userMetadata"] for row in merges] == [None, None]
    assert ["wherry" in str(row["operationParameters"]["notMatchedPredicates"]) for row in merges] == [True, True]


@pytest.mark.connect
def test_a_run_replaces_only_matching_rows(place: Place) -> None:
    """The first batch of a run replaces rows, and later batches append. Rows that do not match are in the DLQ."""
    place.load(REPLACE)
    place.land("a.json", [make_change(1, 1, "a"), make_change(2, 2, "other day")])
    place.land("b.json", [make_change(3, 1, "b")])
    report = place.load(REPLACE).run()
    assert (report.balanced, report.nacked, report.delivered) == (True, 1, {"latest": 2})
    assert read_notes(place) == {1: "a", 3: "b"}
    (refused,) = place.refused()
    assert (refused["code"], refused["message"]) == ("WHERE", "the row does not match where (at = 1); at = '2'")
    place.land("c.json", [make_change(4, 2, "none that matches")])
    assert place.load().run().balanced is True
    assert read_notes(place) == {}
