"""Failing rows of expectations go to the DLQ, batches can fail as a whole, and the report shows both."""

from __future__ import annotations

import json
import re
import socket
from pathlib import Path
from typing import Any

import pytest

from tests.scenarios.conftest import Place, make_order

pytestmark = [pytest.mark.spark]

BETWEEN = "expect_column_values_to_be_between"
PIPELINE = """
name: orders
origin:
  files: {path: "landing/*.json", format: json, schema: "id long, email string, amount double"}
stages:
  - expect:
      suite: suite.json
      on_batch_failure: HOW
destinations:
  - delta: {path: tables/orders}
dlq: {window: 0}
run: {batch: {files: 1}}
"""


def write_suite(place: Place, *expectations: tuple[str, dict[str, Any]]) -> None:
    """Write a suite as Great Expectations writes it."""
    items = [{"type": name, "kwargs": kwargs, "meta": {}} for name, kwargs in expectations]
    (place.folder / "suite.json").write_text(json.dumps({"name": "orders", "expectations": items}))


def make_rows(*amounts: float | None, first: int = 1) -> list[dict[str, Any]]:
    return [make_order(first + at, amount=amount) for at, amount in enumerate(amounts)]


@pytest.mark.connect
@pytest.mark.promise("DQ-11")
def test_failing_rows_go_to_the_dlq_and_the_report_covers_every_batch(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A clean batch and one with bad rows are validated. No address outside this machine is contacted, and no folder is
    left."""
    asked: list[object] = []
    connect = socket.socket.connect

    def listening(own: socket.socket, to: Any) -> None:
        asked.append(to)
        connect(own, to)

    monkeypatch.setattr(socket.socket, "connect", listening)
    monkeypatch.chdir(place.folder)
    write_suite(
        place,
        ("expect_column_values_to_not_be_null", {"column": "email"}),
        (BETWEEN, {"column": "amount", "min_value": 0}),
    )
    place.land("1.json", make_rows(1.0, 2.0))
    place.land("2.json", [*make_rows(-1.0, 3.0, None, first=3), make_order(6, email=None, amount=-2.0)])
    report = place.load(PIPELINE.replace("HOW", "stop")).run()
    assert (report.status, report.balanced, place.ids("tables/orders")) == ("succeeded", True, [1, 2, 4, 5])
    first, second = place.refused()
    assert (first["code"], first["message"]) == (
        BETWEEN,
        f"{BETWEEN}: column amount: '-1.0', expected min_value 0",
    )
    assert second["message"] == (
        "expect_column_values_to_not_be_null: column email: NULL; "
        f"{BETWEEN}: column amount: '-2.0', expected min_value 0"
    )
    missing, between = report.quality
    assert [(each["rows"], each["unexpected"], each["failed"]) for each in (missing, between)] == [(6, 1, 1), (5, 2, 1)]
    clean, other = report.validations
    assert (clean["success"], clean["results"][1]["result"]["element_count"]) == (True, 2)
    assert other["results"][1]["result"] == {
        "element_count": 4,
        "unexpected_count": 2,
        "unexpected_percent": pytest.approx(200 / 3),
        "missing_count": 1,
        "missing_percent": 25.0,
        "unexpected_percent_total": 50.0,
        "unexpected_percent_nonmissing": pytest.approx(200 / 3),
    }
    assert not (place.folder / "gx").exists()
    assert not (Path.cwd() / "great_expectations").exists()
    assert [to for to in asked if not is_here(to)] == []


def is_here(to: object) -> bool:
    """Whether the address belongs to this machine."""
    return isinstance(to, str) or (isinstance(to, tuple) and to[0] in ("localhost", "127.0.0.1", "::1"))


def test_a_batch_below_mostly_stops_the_run_and_delivers_nothing(place: Place) -> None:
    """The offset stays, and the error shows the expected and the found share. Once the rows are mended, the run
    continues."""
    write_suite(place, (BETWEEN, {"column": "amount", "min_value": 0, "mostly": 0.7}))
    place.land("1.json", make_rows(1.0, 2.0, 3.0, -1.0))
    place.land("2.json", make_rows(-1.0, 2.0, first=5))
    report = place.load(PIPELINE.replace("HOW", "stop")).run(check=False)
    assert report.error is not None
    assert (report.status, report.error.code, report.error.stage, report.batches) == (
        "failed",
        "EXPECTATION",
        "expect",
        1,
    )
    assert "in 0.7 of the rows or more, found 0.5 of 2" in report.error.message
    assert (place.ids("tables/orders"), [row["code"] for row in place.refused()]) == ([1, 2, 3], [BETWEEN])
    place.land("2.json", make_rows(1.0, 2.0, first=5))
    assert place.load().run().batches == 1
    assert place.ids("tables/orders") == [1, 2, 3, 5, 6]


@pytest.mark.connect
def test_a_quarantined_batch_goes_to_the_dlq_as_a_whole(place: Place) -> None:
    """Its rows have one cause. The next batch is delivered, and the report has the results of all batches."""
    write_suite(
        place,
        ("expect_table_row_count_to_be_between", {"min_value": 2}),
        ("expect_column_mean_to_be_between", {"column": "amount", "max_value": 10}),
        (BETWEEN, {"column": "amount", "min_value": 0}),
    )
    place.land("1.json", make_rows(50.0, -1.0))
    place.land("2.json", make_rows(1.0, -1.0, 3.0, first=3))
    place.land("3.json", make_rows(1.0, first=6))
    report = place.load(PIPELINE.replace("HOW", "quarantine")).run()
    assert (report.status, report.balanced, report.read, report.nacked) == ("succeeded", True, 6, 4)
    assert place.ids("tables/orders") == [3, 5]
    assert [row["code"] for row in place.refused()] == ["QUARANTINE", "QUARANTINE", BETWEEN, "QUARANTINE"]
    messages = [row["message"] for row in place.refused()]
    assert (
        messages[0]
        == messages[1]
        == ("the batch failed: expect_column_mean_to_be_between of amount, expected max_value 10, found 24.5")
    )
    assert messages[3].endswith("expect_table_row_count_to_be_between, expected min_value 2, found 1")
    assert [each["failed"] for each in report.quality] == [1, 1, 2]
    assert [each["statistics"]["successful_expectations"] for each in report.validations] == [1, 2, 2]


def test_a_suite_of_fifty_rules_costs_few_jobs(place: Place) -> None:
    """With failing rows, the suite needs at most three Spark jobs more than another stage. Without failing rows, it
    needs none."""
    write_suite(place, *[(BETWEEN, {"column": "amount", "min_value": -number}) for number in range(50)])
    with_rules = PIPELINE.replace("HOW", "stop").replace("s/orders", "s/judged")
    without = re.sub(
        r"stages:.*?(?=destinations)",
        "stages: [filter: id is not null]\n",
        PIPELINE.replace("name: orders", "name: plain"),
        flags=re.DOTALL,
    )
    place.land("1.json", make_rows(1.0))
    for text in (with_rules, without):
        place.load(text).run()  # create the tables
    place.land("2.json", make_rows(1.0, 2.0))
    clean = [count_jobs(place, text) for text in (with_rules, without)]
    place.land("3.json", make_rows(1.0, -1.0, -20.0))
    failing = [count_jobs(place, text) for text in (with_rules, without)]
    assert clean[0] == clean[1]
    assert 0 < failing[0] - failing[1] <= 3
    assert len(place.refused()) == 2


def count_jobs(place: Place, text: str) -> int:
    """Return how many jobs Spark runs for the next batch. Only classic Spark can count them."""
    scheduler: Any = getattr(place.spark, "_jsc").sc().dagScheduler()  # noqa: B009
    before: int = scheduler.numTotalJobs()
    assert place.load(text).run().batches == 1
    return int(scheduler.numTotalJobs()) - before


JUDGED = (
    ("expect_table_row_count_to_be_between", {"min_value": 5}),
    (BETWEEN, {"column": "amount", "min_value": 0, "mostly": 0.9}),
    ("expect_column_max_to_be_between", {"column": "amount", "max_value": 1000}),
)


@pytest.mark.connect
def test_a_preview_judges_the_batch_as_the_run_does(place: Place) -> None:
    """It reports that the run would stop, and why, in the words of the run's error. Nothing is written."""
    write_suite(place, *JUDGED)
    place.land("1.json", make_rows(1.0, -1.0, 3.0, None))
    pipeline = place.load(PIPELINE.replace("HOW", "stop"))
    before = sorted(place.folder.rglob("*"))
    (batch,) = pipeline.preview().batches
    assert sorted(place.folder.rglob("*")) == before
    (judged,) = [stage for stage in batch.stages if stage.counts.stage == "expect"]
    assert judged.failure is not None
    assert (judged.failure.then, len(judged.failure.why), batch.stops) == ("stop", 2, True)
    assert (judged.counts.left, judged.counts.nacked, batch.destinations) == (3, 1, {"orders": 3})
    error = pipeline.run(check=False).error
    assert error is not None
    assert [line.strip() for line in error.message.splitlines()[1:3]] == list(judged.failure.why)
