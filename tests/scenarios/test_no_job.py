"""Small batches without a stage are read and written in this process, and Spark runs no job."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from destinations.delta.delta import OpenDelta
from destinations.delta.table import TargetTable
from destinations.destination import Written
from origins.files.formats import FileRows
from tests.scenarios.conftest import Place, make_order

pytestmark = [pytest.mark.spark]

PLAIN = """
name: orders
origin:
  files: {path: "landing/*.json", format: json, schema: "id long, email string, amount double"}
  lanes: LANES
destinations:
  - delta: {path: tables/orders}
dlq: {window: 0}
run: {batch: {files: 1}, runners: 1}
"""
ONE = PLAIN.replace("LANES", "1")


def refuse_spark(*_: object, **__: object) -> None:
    """Fail, because Spark must not be used for this."""
    raise AssertionError("Spark reads or writes rows")


def land_files(place: Place, files: int) -> list[int]:
    """Write this many files of two rows. Return all ids."""
    for number in range(files):
        place.land(f"{number}.json", [make_order(2 * number, amount=1.5), make_order(2 * number + 1, amount=None)])
    return list(range(2 * files))


def test_small_batches_are_delivered_once_without_a_job(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """The rows have the values of the files. Each batch is a commit, and is counted."""
    ids = land_files(place, 3)
    with monkeypatch.context() as patched:
        patched.setattr(TargetTable, "append", refuse_spark)
        patched.setattr(FileRows, "read", refuse_spark)
        report = place.load(ONE).run()
    assert (report.status, report.balanced, report.batches, report.read) == ("succeeded", True, 3, 6)
    assert report.delivered == {"orders": 6}
    assert place.ids("tables/orders") == ids
    assert place.commits("tables/orders") == 4
    first = min(place.rows("tables/orders"), key=lambda row: row["id"])
    assert first == {"id": 0, "email": "A0@X.COM", "amount": 1.5}


def test_lanes_that_are_ready_together_are_one_commit(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each batch is counted separately."""
    ids = land_files(place, 12)
    with monkeypatch.context() as patched:
        patched.setattr(TargetTable, "append", refuse_spark)
        patched.setattr(FileRows, "read", refuse_spark)
        report = place.load(PLAIN.replace("LANES", "4")).run()
    assert (report.balanced, report.batches, report.read) == (True, 12, 24)
    assert place.ids("tables/orders") == ids
    assert place.commits("tables/orders") < 12


@pytest.mark.parametrize("lanes", ["1", "3"])
def test_spark_processes_a_batch_with_an_unusual_line(place: Place, lanes: str) -> None:
    """A bad line is in the DLQ, and an unusual one is in the table. The other batches are not affected."""
    land_files(place, 6)
    place.land("x.json", [make_order(100, amount=None), '{"id": "no number"}', '{"id": 101, "amount": "NaN"}'])
    report = place.load(PLAIN.replace("LANES", lanes)).run()
    assert (report.balanced, report.read, report.nacked) == (True, 15, 1)
    assert place.ids("tables/orders") == [*range(12), 100, 101]
    assert [(row["code"], row["position"]) for row in place.refused()] == [("PARSE", 2)]


@pytest.mark.connect
@pytest.mark.parametrize("lanes", ["1", "3"])
@pytest.mark.parametrize("kept", ["PARTITIONED BY (id)", "TBLPROPERTIES ('delta.enableChangeDataFeed' = 'true')"])
def test_a_table_that_only_spark_can_write_gets_the_same_rows(place: Place, lanes: str, kept: str) -> None:
    """The rows are still read in this process."""
    place.spark.sql(
        f"CREATE TABLE delta.`{place.folder / 'tables/orders'}` (id bigint, email string, amount double) "
        f"USING delta {kept}"
    )
    ids = land_files(place, 4)
    report = place.load(PLAIN.replace("LANES", lanes)).run()
    assert (report.balanced, report.read, report.delivered) == (True, 8, {"orders": 8})
    assert place.ids("tables/orders") == ids


@pytest.mark.parametrize("more", [", mode: merge, keys: [id]", ", stamp: _batch"])
def test_small_batches_are_merged_and_stamped_like_others(place: Place, more: str) -> None:
    """The table's options apply to rows from this process too."""
    ids = land_files(place, 2)
    place.land("x.json", [make_order(0, amount=7.5)])
    report = place.load(ONE.replace("path: tables/orders", f"path: tables/orders{more}")).run()
    assert (report.balanced, report.read) == (True, 5)
    assert place.ids("tables/orders") == (ids if "merge" in more else [0, *ids])
    stamps = {row.get("_batch") for row in place.rows("tables/orders")}
    assert stamps == ({None} if "merge" in more else {"0/1", "0/2", "0/3"})


def test_a_wrong_count_of_the_table_stops_the_run(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """Wherry does not guess whether a row is missing."""
    land_files(place, 2)
    write = OpenDelta.write

    def less(self: OpenDelta, *given: Any) -> Written:
        return replace(write(self, *given), rows=1)

    monkeypatch.setattr(OpenDelta, "write", less)
    report = place.load(ONE).run(check=False)
    assert (report.status, report.balanced, report.batches) == ("failed", False, 1)
