"""Files that are moved or deleted once they are carried."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from origins.crash_points import watch_points
from runners.crashes.crash_trial import CrashInjector
from runners.state import journal
from tests.scenarios.conftest import ORDERS, Place, order

pytestmark = pytest.mark.spark
MOVED = ORDERS.replace("format: json,", "format: json, after: move, metadata: [file_name],")
BAD_IN_SECOND = [[order(1), order(2)], [order(3), order(4, amount="x")], [order(5)]]


def names(folder: Path) -> list[str]:
    """The files that lie in a folder, in order."""
    return sorted(file.name for file in folder.iterdir() if file.is_file()) if folder.exists() else []


@pytest.mark.promise("CD-13")
def test_files_are_moved_when_their_rows_are_carried(place: Place) -> None:
    """Those with refused rows too, and none twice; what comes later is carried and moved by the next run."""
    for number, rows in enumerate(BAD_IN_SECOND):
        place.land(f"{number}.json", rows)
    landing = place.folder / "landing"
    assert place.load(MOVED).run().balanced is True
    assert (names(landing), names(landing / "_carried")) == ([], ["0.json", "1.json", "2.json"])
    place.land("3.json", [order(6)])
    assert place.load().run().read == 1
    assert (names(landing), names(landing / "_carried")) == ([], ["0.json", "1.json", "2.json", "3.json"])
    assert place.ids("tables/orders") == [1, 2, 3, 5, 6]
    assert {row["id"]: row["file_name"] for row in place.rows("tables/orders")}[6] == "3.json"


@pytest.mark.promise("CD-13")
def test_a_file_whose_batch_was_not_carried_is_left_where_it_is(place: Place) -> None:
    """The window trips, so nothing of it was delivered."""
    place.land("a.json", [order(1)])
    place.land("b.json", [order(2, amount="x")])
    text = MOVED.replace("after: move", "after: delete").replace("threshold: 500", "threshold: 1")
    assert place.load(text).run(check=False).status == "failed"
    assert names(place.folder / "landing") == ["b.json"]


@pytest.mark.long
@pytest.mark.promise("CD-13", "CD-22")
def test_a_run_that_is_killed_before_it_moves_a_file_leaves_that_to_the_next(place: Place) -> None:
    """Killed when the offset of the second batch was durable and its file not yet moved."""
    for number, rows in enumerate(BAD_IN_SECOND):
        place.land(f"{number}.json", rows)
    landing = place.folder / "landing"
    place.kill(MOVED, "BatchSettled", 2)
    assert (names(landing), names(landing / "_carried")) == (["1.json", "2.json"], ["0.json"])
    assert place.load().run().balanced is True
    assert (names(landing), names(landing / "_carried")) == ([], ["0.json", "1.json", "2.json"])
    assert place.ids("tables/orders") == [1, 2, 3, 5]


ON_THE_WAY = [
    *("before-plan", "after-plan", "after-prepare", "before-prepared", "after-prepared", "before-dlq", "after-dlq"),
    *("before-write", "in-write", "after-write", "after-writes", "before-settle", "after-settle", "after-committed"),
]
"""The points that a batch with a refused row passes."""


@pytest.mark.variant
@pytest.mark.parametrize("after", ["move", "delete"])
@pytest.mark.parametrize("point", ON_THE_WAY)
@pytest.mark.promise("CD-13", "CD-22")
def test_wherever_a_run_ends_no_file_is_lost_or_read_twice(place: Place, point: str, after: str) -> None:
    """It ends in its second batch; the next one carries what is left, and every file is dealt with once."""
    for number, rows in enumerate(BAD_IN_SECOND):
        place.land(f"{number}.json", rows)
    landing, crash = place.folder / "landing", CrashInjector(point, end=None, plan=2)
    with watch_points(crash):
        ended = place.load(MOVED.replace("after: move", f"after: {after}")).run(check=False, listeners=[crash.hear])
    assert (crash.happened, ended.status) == (True, "failed")
    gone = set() if after == "move" else {"0.json", "1.json"} if point == "after-committed" else {"0.json"}
    assert {*names(landing), *names(landing / "_carried")} == {"0.json", "1.json", "2.json"} - gone
    assert place.load().run().balanced is True
    assert (names(landing), place.ids("tables/orders")) == ([], [1, 2, 3, 5])
    assert names(landing / "_carried") == (["0.json", "1.json", "2.json"] if after == "move" else [])
    assert [row["position"] for row in place.refused()] == [2]


def test_what_was_carried_is_loaded_once_a_run(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """However many batches it carries; what lies beside the ledger is large."""
    for number in range(3):
        place.land(f"{number}.json", [order(number)])
    loads, load = list[object](), journal._load_history

    def loading(*of: Any) -> Any:
        loads.append(of)
        return load(*of)

    monkeypatch.setattr(journal, "_load_history", loading)
    report = place.load(ORDERS.replace("format: json,", "format: json, max_files: 1,")).run()
    assert (report.batches, len(loads)) == (3, 1)


def test_what_is_known_of_a_file_may_be_asked_for_later(place: Place) -> None:
    """The columns that were told from the files stay pinned; those of `metadata` go with the definition."""
    text = ORDERS.replace(', schema: "id long, email string, amount string"', "")
    place.land("a.json", [order(1)])
    place.load(text).run()
    place.land("b.json", [order(2)])
    later = text.replace("format: json", "format: json, metadata: [file_name]")
    place.load(later.replace("tables/orders", "tables/later")).run()
    assert [(row["id"], row["file_name"]) for row in place.rows("tables/later")] == [(2, "b.json")]
