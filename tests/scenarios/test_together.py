"""Lanes that are ready at the same time share one Spark job and one commit."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any
from zlib import crc32

import pytest

from destinations.delta import Delta
from destinations.delta.delta import OpenDelta
from origins.files import Files
from origins.files.formats import FileRows
from runners.model.events import BatchSettled, Event
from runners.model.planned_batch import SettledCounts
from runners.model.run_report import Report
from tests.scenarios.conftest import ORDERS, Place, make_order

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark

LANES = ORDERS.replace("origin:\n", "origin:\n  lanes: 3\n")
Land = Callable[..., None]
PLAIN = """
name: {name}
origin:
  lanes: 3
  files: {{path: "landing/*.json", format: json, schema: "id long, email string, amount string"}}
{stages}destinations:
  - delta: {{path: {name}/orders}}
run: {{batch: {{files: 1}}}}
"""
CAST = '  - cast: {amount: "decimal(10,2)"}\n'


@pytest.fixture
def land(place: Place) -> Land:
    """Provide a function that writes a file for a lane."""

    def land(lane: int, *rows: object) -> None:
        name = next(name for number in range(1_000) if crc32((name := f"{lane}-{number}.json").encode()) % 3 == lane)
        place.land(name, rows)  # type: ignore[arg-type]

    return land


def run_and_count(place: Place, definition: str) -> tuple[Report, Mapping[str, SettledCounts]]:
    """Return the report of a run of this definition, and its counts by lane."""
    told = {}

    def listen(event: Event) -> None:
        if isinstance(event, BatchSettled):
            told[event.batch.lane] = event.counts

    return place.load(definition).run(listeners=[listen]), told


def write_plain(name: str, stages: str) -> str:
    """Return a definition with these stages, and with a separate state and table."""
    return PLAIN.format(name=name, stages=f"stages:\n{stages}" if stages else "")


def list_content(place: Place, table: str) -> Sequence[str]:
    """Return the rows of a table without the values that differ between runs."""
    return sorted(str({**row, "run": "run" in row}) for row in place.rows(table))


@pytest.mark.connect
@pytest.mark.promise("SS-14", "CD-16")
def test_batches_that_are_ready_together_share_a_commit_and_are_counted_separately(place: Place, land: Land) -> None:
    """Three lanes make one version of the table with three batches."""
    land(0, make_order(1), make_order(2), make_order(3, email=None))
    land(1, make_order(4))
    land(2, make_order(5, email=None))
    report, told = run_and_count(place, LANES)
    assert (report.batches, report.read, report.filtered, report.balanced) == (3, 5, 2, True)
    assert (place.ids("tables/orders"), place.commits("tables/orders")) == ([1, 2, 4], 2)
    assert {lane: (counts.read, counts.delivered) for lane, counts in told.items()} == {
        "0": (3, {"orders": 2}),
        "1": (1, {"orders": 1}),
        "2": (1, {"orders": 0}),
    }


def test_a_refused_row_separates_the_lanes(place: Place, land: Land) -> None:
    """The common write lands nothing. Each lane is then written alone, and only the one with the refused row is decided
    first."""
    land(0, make_order(1))
    land(1, make_order(2), make_order(3, amount="sieben"))
    land(2, make_order(4))
    report = place.load(LANES).run()
    assert (report.read, report.nacked, report.balanced) == (4, 1, True)
    assert (place.ids("tables/orders"), place.commits("tables/orders")) == ([1, 2, 4], 4)
    assert [json.loads(row["row"])["id"] for row in place.refused()] == [3]


@pytest.mark.promise("SS-14")
@pytest.mark.parametrize(
    ("stages", "scans", "commits"),
    [
        ("", [], 2),
        (f"{CAST}  - require: {{high: amount > 2}}\n    when: id > 1\n    on_error: discard\n", [3], 2),
        (f"{CAST}  - with_columns: {{lane: ':lane'}}\n  - filter: id != 3\n", [3], 4),
        (f"{CAST}  - deduplicate: {{keys: [id], sequence_by: amount}}\n", [], 4),
    ],
    ids=["none", "rows", "a label", "keys"],
)
def test_lanes_have_the_same_counts_together_as_alone(
    place: Place, land: Land, monkeypatch: pytest.MonkeyPatch, stages: str, scans: list[int], commits: int
) -> None:
    """They share a scan and a commit. If a stage compares rows, or uses a value that differs between the batches, each
    lane is written alone."""
    land(0, make_order(1), make_order(1, amount="9.00"), make_order(3, email=None))
    land(1, make_order(1), make_order(3))
    land(2, make_order(5, email=None), make_order(6))
    scanned: list[int] = []
    read = FileRows.read

    def watched(self: FileRows, spark: SparkSession, names: Sequence[str], *words: Any, **more: Any) -> DataFrame:
        scanned.append(len(names))
        return read(self, spark, names, *words, **more)

    with monkeypatch.context() as patched:
        patched.setattr(FileRows, "read", watched)
        _, together = run_and_count(place, write_plain("together", stages))
    with monkeypatch.context() as patched:
        patched.setattr(Delta, "takes_several", False)
        _, alone = run_and_count(place, write_plain("alone", stages))
    assert (place.commits("together/orders"), place.commits("alone/orders")) == (commits, 4)
    assert together == alone
    assert list_content(place, "together/orders") == list_content(place, "alone/orders")
    assert scanned == scans


@pytest.mark.parametrize("changed", [False, True])
def test_the_next_run_finds_batches_that_a_failed_run_wrote_together(
    place: Place, land: Land, monkeypatch: pytest.MonkeyPatch, changed: bool
) -> None:
    """The run fails after the write and cannot look it up. The next run finds each batch and counts its rows, or, with
    other stages, the audit reports that it cannot."""
    for lane in range(3):
        land(lane, make_order(lane * 10 + 1), make_order(lane * 10 + 2), make_order(lane * 10 + 3, email=None))
    write = OpenDelta.write

    def lost(self: OpenDelta, *words: object) -> object:
        write(self, *words)  # type: ignore[arg-type]
        raise RuntimeError("nobody was told")

    def silent(*words: object) -> object:
        raise RuntimeError("nobody answers")

    with monkeypatch.context() as patched:
        patched.setattr(OpenDelta, "write", lost)
        patched.setattr(OpenDelta, "find", silent)
        failed = place.load(LANES).run(check=False)
    report = place.load(LANES.replace("email is not null", "id is not null") if changed else LANES).run()
    audit = place.load().audit()
    assert (failed.status, failed.batches) == ("failed", 0)
    assert (report.status, report.batches, report.read) == ("succeeded", 3, 9)
    assert place.ids("tables/orders") == [1, 2, 11, 12, 21, 22]
    assert (report.balanced, report.filtered, audit.balanced) == (("unknown", 0, False) if changed else (True, 3, True))
    assert [each.code for each in audit.problems] == (["NOT_PROVED"] * 3 if changed else [])
    assert audit.destinations["orders"].delivered == (0 if changed else 6)


def test_batches_that_must_be_distinguished_have_separate_commits(place: Place, land: Land) -> None:
    """A stamp names one batch."""
    for lane in range(3):
        land(lane, make_order(lane))
    report = place.load(LANES.replace("path: tables/orders", "path: tables/orders, stamp: _batch")).run()
    assert (report.batches, place.commits("tables/orders")) == (3, 4)


def test_a_missing_file_stops_only_its_lane(place: Place, land: Land, monkeypatch: pytest.MonkeyPatch) -> None:
    """The other lanes, which were planned with it, are delivered."""
    for lane in range(3):
        land(lane, make_order(lane))
    check = Files.check

    def gone(self: Files, spark: object, batch: object) -> None:
        for file in (place.folder / "landing").glob("1-*"):
            file.unlink()
        check(self, spark, batch)  # type: ignore[arg-type]

    monkeypatch.setattr(Files, "check", gone)
    report = place.load(LANES).run(check=False)
    assert (report.status, report.batches, place.ids("tables/orders")) == ("failed", 2, [0, 2])
    assert report.error is not None
    assert "is gone since its batch was planned" in report.error.message
