"""A replaced table of totals, from bronze through silver to gold, is correct, or the run is refused."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from runners.model.run_report import PipelineFailed
from runners.running.backfill import Backfill
from tests.scenarios.conftest import Place

pytestmark = [pytest.mark.spark, pytest.mark.connect]

BRONZE = """
name: bronze
origin:
  files: {path: "landing/*.json", format: json, schema: "id long, at long, borough string"}
destinations:
  - delta: {path: tables/bronze}
run: {batch: {files: 1}}
"""
SILVER = """
name: silver
origin:
  delta: {path: tables/bronze}
destinations:
  - delta: {path: tables/silver, mode: merge, keys: [id], sequence_by: at}
"""
GOLD = """
name: gold
origin:
  ORIGIN
stages:
  - sql: "select borough, count(*) as orders from rows group by all"
destinations:
  - delta: {path: tables/gold, mode: replace}
run: {batch: {files: 1}}
"""
FILES = 'files: {path: "PATH", format: FORMAT, schema: "id long, at long, borough string"}'
OF_SILVER = GOLD.replace("ORIGIN", FILES.replace("PATH", "tables/silver/*.parquet").replace("FORMAT", "parquet"))
OF_LANDING = GOLD.replace("ORIGIN", FILES.replace("PATH", "landing/*.json").replace("FORMAT", "json"))
OF_BRONZE = GOLD.replace("ORIGIN", "delta: {path: tables/bronze}\n  read: whole")


def set_whole(definition: str) -> str:
    """Return the definition with all waiting rows in one batch."""
    return definition.replace("stages:", "  batch: whole\nstages:", 1)


def make_trip(number: int, borough: str) -> dict[str, Any]:
    """Return a trip in a borough."""
    return {"id": number, "at": number, "borough": borough}


def read_totals(place: Place, table: str = "tables/gold") -> list[tuple[str, int]]:
    """Return what gold holds for each borough. A borough that gold holds twice is returned twice."""
    return sorted((row["borough"], row["orders"]) for row in place.rows(table))


def count_rows(place: Place, table: str) -> list[tuple[str, int]]:
    """Return what gold should hold."""
    return sorted(Counter(row["borough"] for row in place.rows(table)).items())


def land_trips(place: Place) -> None:
    """Write three files with repeated boroughs. One trip occurs twice."""
    place.land("a.json", [make_trip(1, "Queens"), make_trip(2, "Bronx"), make_trip(3, "Queens")])
    place.land("b.json", [make_trip(4, "Queens"), make_trip(5, "Bronx")])
    place.land("c.json", [make_trip(6, "Bronx"), {**make_trip(1, "Bronx"), "at": 9}])


def test_totals_over_all_layers_are_right_or_refused(place: Place) -> None:
    """If the files come in several batches, the run is refused. With `batch: whole`, each group is there once."""
    land_trips(place)
    assert place.load(BRONZE).run().batches == 3
    assert place.load(SILVER).run().balanced is True
    with pytest.raises(PipelineFailed, match="'gold' would get a wrong result, so no row was read") as failed:
        place.load(OF_SILVER).run()
    report = failed.value.report
    assert report.error is not None
    assert (report.error.code, report.read, (place.folder / "tables" / "gold").exists()) == ("AGGREGATE", 0, False)
    report = place.load(set_whole(OF_SILVER)).run()
    assert (report.batches, report.balanced, report.notices) == (1, True, ())
    assert read_totals(place) == count_rows(place, "tables/silver") == [("Bronx", 4), ("Queens", 2)]
    again = place.load().backfill(Backfill(again=True, reason="once more"), check=False)
    assert again.error is not None
    assert "a backfill processes each old batch alone" in again.error.message


def test_totals_over_a_table_that_is_read_whole_are_right(place: Place) -> None:
    """The rows came in three versions, and a batch would hold one file."""
    land_trips(place)
    assert place.load(BRONZE).run().batches == 3
    report = place.load(OF_BRONZE).run()
    assert (report.batches, report.balanced, report.notices) == (1, True, ())
    assert read_totals(place) == count_rows(place, "tables/bronze") == [("Bronx", 4), ("Queens", 3)]


def test_appended_totals_are_delivered_with_a_notice(place: Place) -> None:
    """The run reports once that the aggregate sees one batch at a time, however many batches there are."""
    land_trips(place)
    report = place.load(OF_LANDING.replace(", mode: replace", "")).run()
    assert (report.batches, len(read_totals(place))) == (3, 5)
    (notice,) = report.notices
    assert notice.startswith("files: stage 'sql' has an aggregate and sees one batch at a time")
    assert "`batch: whole`" in notice


@pytest.mark.long
def test_every_whole_batch_replaces_the_previous_one(place: Place) -> None:
    """This also holds if a run dies after its batch and the next run reads newer files."""
    land_trips(place)
    place.kill(set_whole(OF_LANDING), "BatchSettled", 1)
    assert read_totals(place) == [("Bronx", 4), ("Queens", 3)]
    place.land("d.json", [make_trip(7, "Queens"), make_trip(8, "Queens")])
    report = place.load().run()
    assert (report.batches, report.balanced, read_totals(place)) == (1, True, [("Queens", 2)])
