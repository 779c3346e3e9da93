"""Files are moved or deleted once their rows are delivered."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from origins.crash_points import watch_points
from runners.state import journal
from tests.crash_injector import CrashInjector
from tests.scenarios.conftest import ORDERS, Place, make_order

pytestmark = pytest.mark.spark
MOVED = ORDERS.replace("format: json,", "format: json, after: move, metadata: [file_name],")
BAD_IN_SECOND = [[make_order(1), make_order(2)], [make_order(3), make_order(4, amount="x")], [make_order(5)]]


def list_names(folder: Path) -> list[str]:
    """Return the names of the files in a folder, in order."""
    return sorted(file.name for file in folder.iterdir() if file.is_file()) if folder.exists() else []


@pytest.mark.promise("CD-13")
def test_files_are_moved_when_their_rows_are_delivered(place: Place) -> None:
    """Files with refused rows are moved too, and no row is delivered twice. The next run delivers and moves a later
    file."""
    for number, rows in enumerate(BAD_IN_SECOND):
        place.land(f"{number}.json", rows)
    landing = place.folder / "landing"
    assert place.load(MOVED).run().balanced is True
    assert (list_names(landing), list_names(landing / "_carried")) == ([], ["0.json", "1.json", "2.json"])
    place.land("3.json", [make_order(6)])
    assert place.load().run().read == 1
    assert (list_names(landing), list_names(landing / "_carried")) == ([], ["0.json", "1.json", "2.json", "3.json"])
    assert place.ids("tables/orders") == [1, 2, 3, 5, 6]
    assert {row["id"]: row["file_name"] for row in place.rows("tables/orders")}[6] == "3.json"


@pytest.mark.promise("CD-13")
def test_a_file_of_an_undelivered_batch_stays(place: Place) -> None:
    """The window stops the run, so no row of the file is delivered."""
    place.land("a.json", [make_order(1)])
    place.land("b.json", [make_order(2, amount="x")])
    text = MOVED.replace("after: move", "after: delete").replace("threshold: 500", "threshold: 1")
    assert place.load(text).run(check=False).status == "failed"
    assert list_names(place.folder / "landing") == ["b.json"]


@pytest.mark.parametrize(
    ("point", "after"), [("after-write", "move"), ("after-settle", "move"), ("after-committed", "delete")]
)
@pytest.mark.promise("CD-13", "CD-22")
def test_a_run_that_ends_around_a_move_loses_no_file_and_reads_none_twice(place: Place, point: str, after: str) -> None:
    """The run ends in its second batch. The next run delivers the rest, and every file is moved or deleted once."""
    for number, rows in enumerate(BAD_IN_SECOND):
        place.land(f"{number}.json", rows)
    landing, crash = place.folder / "landing", CrashInjector(point, end=None, plan=2)
    with watch_points(crash):
        ended = place.load(MOVED.replace("after: move", f"after: {after}")).run(
            check=False, listeners=[crash.note_event]
        )
    assert (crash.happened, ended.status) == (True, "failed")
    gone = set() if after == "move" else {"0.json", "1.json"} if point == "after-committed" else {"0.json"}
    assert {*list_names(landing), *list_names(landing / "_carried")} == {"0.json", "1.json", "2.json"} - gone
    assert place.load().run().balanced is True
    assert (list_names(landing), place.ids("tables/orders")) == ([], [1, 2, 3, 5])
    assert list_names(landing / "_carried") == (["0.json", "1.json", "2.json"] if after == "move" else [])
    assert [row["position"] for row in place.refused()] == [2]


def test_a_run_loads_the_history_of_its_files_once(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """This holds for any number of batches, because the history beside the ledger is large."""
    for number in range(3):
        place.land(f"{number}.json", [make_order(number)])
    loads, load = list[object](), journal._load_history

    def loading(*of: Any) -> Any:
        loads.append(of)
        return load(*of)

    monkeypatch.setattr(journal, "_load_history", loading)
    report = place.load(ORDERS.replace("format: json,", "format: json, max_files: 1,")).run()
    assert (report.batches, len(loads)) == (3, 1)


def test_metadata_columns_can_be_added_later(place: Place) -> None:
    """The inferred columns stay pinned. The columns of `metadata` follow the definition."""
    text = ORDERS.replace(', schema: "id long, email string, amount string"', "")
    place.land("a.json", [make_order(1)])
    place.load(text).run()
    place.land("b.json", [make_order(2)])
    later = text.replace("format: json", "format: json, metadata: [file_name]")
    place.load(later.replace("tables/orders", "tables/later")).run()
    assert [(row["id"], row["file_name"]) for row in place.rows("tables/later")] == [(2, "b.json")]
