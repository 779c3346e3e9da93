"""If a DLQ fails, refused rows go to its fallback, and a merge brings each of them back once."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable

import pytest

from origins.crash_points import watch_points
from runners.model.events import BatchSettled, Event
from runners.model.run_report import PipelineFailed
from runners.running import merge_fallback
from tests.child import clean_environment
from tests.crash_injector import CrashInjector
from tests.scenarios.conftest import ORDERS, Place, make_order

pytestmark = pytest.mark.spark

WITH_FALLBACK = ORDERS.replace(
    "dlq: {window: 1000, threshold: 500}",
    "dlq: {window: 0, on_failure: fallback, fallback: {delta: {path: refused}}}",
)
BATCHES = [
    [make_order(1), make_order(2, amount="x")],
    [make_order(3), make_order(4, amount="y"), make_order(5, amount="-1")],
    [make_order(6)],
]


def land_batches(place: Place) -> None:
    for number, rows in enumerate(BATCHES):
        place.land(f"{number}.json", rows)


def hide_table(place: Place, folder: str = ".wherry/orders/dlq") -> None:
    """Put a file in the place of the table, so that it can be neither written nor read."""
    path = place.folder / folder
    if path.exists():
        path.rename(path.with_name("away"))
    path.parent.mkdir(parents=True, exist_ok=True)
    path.touch()


def bring_back(place: Place, folder: str = ".wherry/orders/dlq") -> None:
    path = place.folder / folder
    path.unlink()
    if path.with_name("away").exists():
        path.with_name("away").rename(path)


def act_after_batch(number: int, do: Callable[[], None]) -> Callable[[Event], None]:
    def listen(event: Event) -> None:
        if isinstance(event, BatchSettled) and event.batch.number == number:
            do()

    return listen


def test_a_dlq_that_breaks_during_a_run_does_not_stop_it(place: Place, caplog: pytest.LogCaptureFixture) -> None:
    """The refused rows of the second batch wait in the fallback, as the log, the report, the status and the audit show.
    A merge then brings them into the DLQ."""
    land_batches(place)
    pipeline = place.load(WITH_FALLBACK)
    report = pipeline.run(listeners=[act_after_batch(1, lambda: hide_table(place))])
    assert (report.status, report.nacked, report.fallback, report.balanced) == ("succeeded", 3, 2, True)
    assert any("go to the fallback" in notice for notice in report.notices)
    assert "go to the fallback" in caplog.text
    assert place.ids("tables/orders") == [1, 3, 6]
    assert len(place.rows("refused")) == 2
    status = pipeline.status()
    assert (status["dlq"]["fallback"], status["next"]) == (2, "wherry dlq merge FILE")
    bring_back(place)
    audit = pipeline.audit()
    assert (audit.balanced, audit.dlq and audit.dlq["fallback"]) == (True, 2), audit.problems
    merged = pipeline.refused.merge_fallback()
    assert merged.json() == {"merged": 2, "batches": 1, "waiting": 0}
    assert [row["position"] for row in place.refused()] == [2, 2, 3]
    assert pipeline.refused.merge_fallback().json() == {"merged": 0, "batches": 0, "waiting": 0}
    audit = pipeline.audit()
    assert (audit.balanced, audit.dlq and audit.dlq["fallback"]) == (True, 0), audit.problems
    assert pipeline.status()["dlq"] == {"rows": 3, "unreplayed": 3, "fallback": 0}
    assert pipeline.run().batches == 0


def start(place: Place, what: str, point: str = "", number: int = 0) -> subprocess.Popen[bytes]:
    """Start a run or a merge in a separate process. It dies when it reaches the point for the given time."""
    file = str(place.define(WITH_FALLBACK))
    command = [sys.executable, "-m", "tests.scenarios.killed_at", file, what, point, str(number)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=clean_environment())


def check_whole(place: Place) -> None:
    """Check that every row is in one place, and that no row waits in the fallback."""
    assert place.ids("tables/orders") == [1, 3, 6]
    assert [(row["number"], row["position"]) for row in place.refused()] == [(1, 2), (2, 2), (2, 3)]
    audit = place.load().audit()
    assert (audit.balanced, audit.dlq and audit.dlq["fallback"]) == (True, 0), audit.problems


def test_a_run_begins_although_its_dlq_cannot_be_opened(place: Place, caplog: pytest.LogCaptureFixture) -> None:
    """The log reports it, and all refused rows go to the fallback. The audit finds problems only in the DLQ."""
    land_batches(place)
    pipeline = place.load(WITH_FALLBACK)
    assert pipeline.run().status == "succeeded"
    place.land("7.json", [make_order(7), make_order(8, amount="z")])
    hide_table(place)
    report = pipeline.run()
    assert (report.status, report.fallback, report.batches) == ("succeeded", 1, 1)
    assert "The DLQ cannot be opened" in caplog.text
    assert pipeline.status()["dlq"]["fallback"] == 1
    audit = pipeline.audit()
    assert {finding.destination for finding in audit.problems} == {"dlq"}
    bring_back(place)
    assert pipeline.audit().balanced
    assert pipeline.refused.merge_fallback().rows == 1
    assert (pipeline.audit().balanced, len(place.refused())) == (True, 4)


def test_a_fallback_that_also_fails_stops_the_run(place: Place) -> None:
    """The batch stays open, and the next run delivers it."""
    land_batches(place)

    def break_both() -> None:
        hide_table(place)
        (place.folder / "refused").rename(place.folder / "fallback-away")
        (place.folder / "refused").touch()

    report = place.load(WITH_FALLBACK).run(listeners=[act_after_batch(1, break_both)], check=False)
    assert report.error is not None
    assert (report.status, report.error.code, report.batches) == ("failed", "FALLBACK", 1)
    (place.folder / "refused").unlink()
    (place.folder / "fallback-away").rename(place.folder / "refused")
    report = place.load().run()
    assert (report.status, report.fallback, report.read) == ("succeeded", 2, 4)
    bring_back(place)
    assert place.load().refused.merge_fallback().rows == 2
    check_whole(place)


@pytest.mark.parametrize(
    ("kind", "few"),
    [("files: {path: kept}", 10_000), ("files: {path: kept, format: json}", 1)],
)
def test_a_fallback_of_any_kind_gives_each_row_back_once(
    place: Place, monkeypatch: pytest.MonkeyPatch, kind: str, few: int
) -> None:
    """The first run dies after the fallback's write, and the first merge after the DLQ's. Spark reads batches with many
    rows."""
    monkeypatch.setattr(merge_fallback, "_FEW", few)
    land_batches(place)
    hide_table(place)
    pipeline = place.load(WITH_FALLBACK.replace("delta: {path: refused}", kind))
    with watch_points(CrashInjector("before-settle", end=None)):
        assert pipeline.run(check=False).status == "failed"
    assert pipeline.run().fallback == 3
    bring_back(place)
    audit = pipeline.audit()
    assert (audit.balanced, audit.dlq and audit.dlq["fallback"]) == (True, 3), audit.problems
    with watch_points(CrashInjector("after-dlq", end=None, plan=0)), pytest.raises(PipelineFailed):
        pipeline.refused.merge_fallback()
    assert pipeline.refused.merge_fallback().rows == 3
    check_whole(place)
    assert [row["code"] for row in place.refused()] == ["CAST", "CAST", "positive_amount"]


def let_wait(place: Place) -> None:
    """Let the refused rows of all batches wait in the fallback, and make the DLQ work again."""
    land_batches(place)
    hide_table(place)
    assert place.load(WITH_FALLBACK).run().fallback == 3
    bring_back(place)


@pytest.mark.long
def test_two_merges_at_the_same_time_merge_each_row_once(place: Place) -> None:
    """The second merge does not wait. It stops, or finds nothing left."""
    let_wait(place)
    processes = [start(place, "merge"), start(place, "merge")]
    ended = [(process.communicate(), process.returncode) for process in processes]
    assert 0 in [code for _, code in ended], ended
    assert all(code == 0 or b"Owned" in error for (_, error), code in ended), ended
    check_whole(place)


def test_foreign_rows_in_the_fallback_are_not_merged(place: Place) -> None:
    """They belong to unknown batches or other pipelines, have other ids, or repeat a row."""
    let_wait(place)
    table = str(place.folder / "refused")
    one = place.spark.read.format("delta").load(table).limit(1)
    first = one.collect()[0].asDict()
    for changed in (
        {"id": "p9/1", "plan": "p9"},
        {"pipeline": "others"},
        {"id": f"{first['plan']}/x"},
        {"id": None},
        {"message": "the same row, written again"},
    ):
        rubbish = place.spark.createDataFrame([{**first, **changed}], one.schema)
        rubbish.write.format("delta").mode("append").save(table)
    assert place.load().refused.merge_fallback().rows == 3
    check_whole(place)


def test_a_batch_missing_from_the_fallback_is_named_and_the_others_are_merged(place: Place) -> None:
    """The audit reports its rows as missing, and the merge ends with an error."""
    let_wait(place)
    place.spark.sql(f"DELETE FROM delta.`{place.folder / 'refused'}` WHERE number = 1")
    (problem,) = place.load().audit().problems
    assert (problem.code, problem.destination, problem.number) == ("DLQ_MISSING", "dlq fallback", 1)
    with pytest.raises(PipelineFailed, match="batch 1 of lane 0"):
        place.load().refused.merge_fallback()
    assert [row["number"] for row in place.refused()] == [2, 2]
    assert place.load().status()["dlq"]["fallback"] == 1


def test_each_refused_row_is_copied_once_even_if_the_dlq_fails(place: Place) -> None:
    """The copy is written together with the DLQ or with the fallback. A merge writes no copy."""
    land_batches(place)
    copied = WITH_FALLBACK.replace("dlq: {", "dlq: {copy: {delta: {path: copies}}, ")
    report = place.load(copied).run(listeners=[act_after_batch(1, lambda: hide_table(place))])
    assert (report.status, report.fallback) == ("succeeded", 2)
    bring_back(place)
    place.load().refused.merge_fallback()
    assert sorted(row["id"] for row in place.rows("copies")) == sorted(row["id"] for row in place.refused())
    check_whole(place)
