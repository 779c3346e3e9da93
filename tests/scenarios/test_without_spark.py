"""Runs that need no Spark start none: nothing waits, or this process reads and writes every row."""

from __future__ import annotations

import json
import signal
import threading
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable

from origins.batch_rows import BatchRows
from origins.crash_points import watch_points
from origins.files.files import Files
from runners.command_line import cli
from runners.definitions.definition import definition_of
from runners.model.events import BatchSettled, Event, RunStarted
from runners.pipeline import Pipeline
from runners.running.run import PipelineRun
from runners.running.stop import LEAVE
from tests.crash_injector import CrashInjector
from tests.manual_clock import ManualClock

pytestmark = pytest.mark.usefixtures("no_spark")

PLAIN = """
name: orders
origin:
  files: {path: "landing/*.json", format: json, schema: "id long, email string, amount double, at timestamp"}
destinations:
  - delta: {path: tables/orders}
run: {batch: {files: 1}, runners: 1}
"""
STAGED = PLAIN + "stages:\n  - filter: email is not null\n"
LANES = (
    PLAIN.replace("schema:", "lanes: 3, schema:")
    .replace("format: json, lanes: 3,", "format: json,")
    .replace("origin:\n", "origin:\n  lanes: 3\n")
)


CLAIMED = """stages: [claim: {path: claims}]
destinations:
  - delta: {path: tables/orders}
    stages: [unclaim: {path: claims}]
"""
CLAIMS = PLAIN.replace("destinations:\n  - delta: {path: tables/orders}\n", CLAIMED)


def write_file(folder: Path, *numbers: int) -> None:
    """Write a file of one row for each number."""
    (folder / "landing").mkdir(exist_ok=True)
    for number in numbers:
        row = {"id": number, "email": f"a{number}@x.com", "amount": number / 2, "at": "2026-11-24T10:00:00Z"}
        (folder / "landing" / f"{number}.json").write_text(json.dumps(row) + "\n")


def load_pipeline(folder: Path, text: str = PLAIN) -> Pipeline:
    """Load the pipeline."""
    (folder / "pipeline.yaml").write_text(text)
    return Pipeline.load(folder / "pipeline.yaml")


def read_ids(folder: Path) -> list[int]:
    """Return the sorted ids of the table, with repeated ones."""
    rows: list[dict[str, Any]] = DeltaTable(str(folder / "tables/orders")).to_pyarrow_table().to_pylist()
    return sorted(row["id"] for row in rows)


@pytest.mark.parametrize("text", [PLAIN, LANES, CLAIMS])
def test_small_batches_without_stages_start_no_spark(tmp_path: Path, text: str) -> None:
    """The first batches create the table, and later ones append. Batches with a `claim` stage but without large values
    need no Spark either."""
    write_file(tmp_path, 1, 2, 3)
    first = load_pipeline(tmp_path, text).run()
    write_file(tmp_path, 4)
    second = load_pipeline(tmp_path, text).run()
    assert (first.status, first.read, second.read, first.balanced, second.balanced) == ("succeeded", 3, 1, True, True)
    assert read_ids(tmp_path) == [1, 2, 3, 4]
    assert load_pipeline(tmp_path, text).audit().json()["problems"] == []


def test_a_run_with_nothing_new_starts_no_spark(tmp_path: Path) -> None:
    """It reads the folder and the ledger."""
    write_file(tmp_path, 1)
    load_pipeline(tmp_path, LANES).run()
    report = load_pipeline(tmp_path, LANES).run()
    assert (report.status, report.reason, report.read) == ("succeeded", "nothing left to do", 0)


LOOKS = (
    *(
        ["status"],
        ["audit"],
        ["offsets"],
        ["runs"],
        ["dlq", "show"],
        ["dlq", "summary"],
        ["status", "--all"],
        ["preview"],
    ),
    ["repair", "--reason", "a test"],
)


@pytest.mark.parametrize("words", LOOKS, ids=" ".join)
def test_a_command_that_only_inspects_starts_no_spark(tmp_path: Path, words: list[str]) -> None:
    """The state, the tables and the folder are read in this process."""
    write_file(tmp_path, 1, 2)
    load_pipeline(tmp_path).run()
    assert cli.execute([*words, str(tmp_path if "--all" in words else tmp_path / "pipeline.yaml")]) == 0


def test_a_run_that_follows_a_folder_starts_no_spark(tmp_path: Path) -> None:
    """The run waits for a file, reads it, and is stopped."""
    (tmp_path / "landing").mkdir()
    steps = [
        lambda: write_file(tmp_path, 1),
        lambda: write_file(tmp_path, 2),
        lambda: signal.raise_signal(signal.SIGINT),
    ]

    def listen(event: Event) -> None:
        if isinstance(event, RunStarted | BatchSettled):
            steps.pop(0)()

    following = load_pipeline(tmp_path, PLAIN.replace("run: {", "run: {poll: 50ms, "))
    report = following.run(follow=True, listeners=[listen])
    assert (report.status, report.batches, read_ids(tmp_path)) == ("stopped", 2, [1, 2])


def test_an_empty_folder_starts_no_spark(tmp_path: Path) -> None:
    """It has no row to read, and no row from which columns could be inferred."""
    (tmp_path / "landing").mkdir()
    text = STAGED.replace(', schema: "id long, email string, amount double, at timestamp"', "")
    assert load_pipeline(tmp_path, text).run().status == "succeeded"


@pytest.mark.parametrize(
    ("text", "point"), [(LANES, "after-plan"), (PLAIN, "in-write"), (LANES, "after-write"), (PLAIN, "after-settle")]
)
@pytest.mark.promise("CD-22")
def test_the_next_run_finishes_without_spark_after_a_crash(tmp_path: Path, text: str, point: str) -> None:
    """No row is missing or doubled, also if several batches share a commit. A run with several lanes looks up in the
    table what was written before the error."""
    write_file(tmp_path, *range(6))
    crash = CrashInjector(point, end=None, plan=2)
    with watch_points(crash):
        ended = load_pipeline(tmp_path, text).run(check=False, listeners=[crash.note_event])
    assert (crash.happened, ended.status) == (True, "failed")
    report = load_pipeline(tmp_path, text).run()
    assert (report.status, report.balanced) == ("succeeded", True)
    assert read_ids(tmp_path) == [*range(6)]


def test_a_run_that_needs_spark_and_has_none_fails_before_it_reads_a_row(tmp_path: Path) -> None:
    """No batch is planned."""
    write_file(tmp_path, 1)
    report = load_pipeline(tmp_path, STAGED).run(check=False)
    assert report.error is not None
    assert (report.status, report.error.code, report.read) == ("failed", "SPARK", 0)
    assert not (tmp_path / "tables").exists()


def test_a_missing_table_stops_a_run_without_new_rows(tmp_path: Path) -> None:
    """A run with new rows stops too."""
    write_file(tmp_path, 1)
    load_pipeline(tmp_path).run()
    (tmp_path / "tables").rename(tmp_path / "elsewhere")
    report = load_pipeline(tmp_path).run(check=False)
    assert report.error is not None
    assert (report.status, report.error.code) == ("failed", "DESTINATION")


def test_a_run_without_new_rows_reports_a_problem_of_its_folder(tmp_path: Path) -> None:
    """The folder has a link that leads to itself."""
    write_file(tmp_path, 1)
    load_pipeline(tmp_path).run()
    (tmp_path / "landing" / "loop.json").symlink_to("loop.json")
    report = load_pipeline(tmp_path).run()
    assert "loop.json" in json.dumps(report.json())


@pytest.mark.parametrize("ownership", ["on", "off"])
def test_a_thread_that_a_forced_run_left_behind_writes_nothing(tmp_path: Path, ownership: str) -> None:
    """The run ends as stopped while the thread works. The next run delivers the batch once."""
    write_file(tmp_path, 1)
    text = PLAIN.replace("runners: 1", f"runners: 1, ownership: {ownership}")
    pipeline, clock = load_pipeline(tmp_path, text), ManualClock()
    goes_on, left = threading.Event(), list[threading.Thread]()

    class HeldFiles(Files):
        """Files whose first reader holds until the run has left its thread."""

        def fetch(self, *words: Any, **given: Any) -> BatchRows:
            left.append(threading.current_thread())
            run.stop("fire", force=True)
            clock.move(LEAVE)
            goes_on.wait(60)
            return super().fetch(*words, **given)

    assert isinstance(pipeline.origin, Files)
    held = HeldFiles(**{each.name: getattr(pipeline.origin, each.name) for each in fields(Files)})
    definition = definition_of(pipeline)
    spec = replace(definition.pipeline, origin=held)
    run = PipelineRun(pipeline=spec, text=definition.text, hash=definition.hash, clock=clock)
    report = run.carry()
    goes_on.set()
    left[0].join(60)
    assert (report.status, report.reason, report.left_open) == ("stopped", "fire", 1)
    assert not left[0].is_alive()
    assert read_ids(tmp_path) == []
    assert load_pipeline(tmp_path).run().batches == 1
    assert DeltaTable(tmp_path / "tables/orders").to_pyarrow_table()["id"].to_pylist() == [1]
