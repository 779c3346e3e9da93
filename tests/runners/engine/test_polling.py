"""Commands that need no JVM. They answer within a second, and import neither pyspark nor pandas."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from datetime import datetime, timedelta, timezone
from pathlib import Path

import pytest
from click.testing import CliRunner

from origins.codec import encode
from runners.command_line.commands import wherry
from runners.definitions.definition import load
from runners.model.entry import Entry
from runners.pipeline import Pipeline
from runners.state.delta_ledger import DeltaLedger
from runners.state.journal import Journal
from runners.state.location import StateLocation
from runners.state.process_locks import StateLock, identify_host
from runners.state.run_history import RunHistory, RunRow
from tests.pace import measure_pace
from tests.runners.command_line.test_cli import ROOT, read_children_time
from tests.runners.running.letterbox import append_letters, make_letters
from tests.runners.state.ledger.test_progress import make_planned, make_settle_entry

DEFINITION = """
name: orders
origin: {generate: {rows: 600}}
destinations: [{delta: {path: tables/orders}}]
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with a definition. Its state has 600 batches and 600 refused rows, written without Spark."""
    folder = tmp_path_factory.mktemp("looking")
    (folder / "orders.yaml").write_text(DEFINITION)
    state = folder / ".wherry" / "orders"
    state.mkdir(parents=True)
    journal = Journal(DeltaLedger(state / "ledger"))
    journal.acquire({**vars(identify_host()), "pipeline": "orders", "run": "r"})
    journal.record(Entry(kind="open", body={"pipeline": "orders"}))
    batches = [(make_planned(number, start=number - 1, end=number), f"p{number}") for number in range(1, 601)]
    entries: list[Entry] = []
    for each, name in batches:
        entries.append(Entry(kind="plan", lane="0", plan=name, body=encode(each)))
        body = {**make_settle_entry().body, "offset": each.batch.span.end}
        entries.append(replace(make_settle_entry(), plan=name, body=body))
    journal.record(*entries)
    journal.compact()
    report = {"status": "succeeded", "reason": "", "batches": 600, "read": 1_800, "error": None}
    journal.record(Entry(kind="release", body=report))
    for number in range(1, 601, 200):
        append_letters(
            state / "dlq", [row for n in range(number, number + 200) for row in make_letters(1, number=n, plan=f"p{n}")]
        )
    row = RunRow(run="3f9a", pipeline="orders", status="running", started_at=datetime.now(timezone.utc))
    RunHistory(state / "runs", timedelta(days=90)).write([row])
    (folder / "sales.csv").write_text("id\n1\n")
    return folder


def time_command(words: list[str], folder: Path, code: int = 0) -> tuple[float, str]:
    """Run the command in a new process. Return the seconds that it takes and what it prints.

    The seconds are the smaller number of clock seconds and processor seconds. The command must import neither pyspark
    nor pandas, because each import takes half a second.
    """
    program = (
        "import atexit, sys; atexit.register(lambda: print({'pyspark', 'pandas'} & {*sys.modules}, file=sys.stderr)); "
        "from runners.command_line.cli import main; main()"
    )
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "PATH": "", "JAVA_HOME": "/nowhere"}
    before, began = read_children_time(), time.monotonic()
    ended = subprocess.run(
        [sys.executable, "-c", program, *words],
        env=environment,
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
    )
    seconds = min(read_children_time() - before, time.monotonic() - began)
    assert ended.returncode == code, ended.stderr
    assert ended.stderr.splitlines()[-1] == "set()"
    return seconds, ended.stdout


def check_quick(words: list[str], folder: Path, code: int = 0, *, prepare: Callable[[], object] = lambda: None) -> str:
    """Return what the command prints. In one of five tries it must take less than a second of a quiet machine.

    `prepare` is called before each try.
    """
    took = []
    for _ in range(5):
        prepare()
        seconds, said = time_command(words, folder, code)
        took.append(seconds / measure_pace())
        if took[-1] < 1:
            return said
    raise AssertionError(f"{' '.join(words)} took {took} seconds")


@pytest.mark.parametrize(
    "words",
    [
        "--help",
        "explain WINDOW",
        "kinds",
        "kinds files",
        "kinds --json-schema",
        "init shop",
        "init mine --from sales.csv",
        "validate orders.yaml",
        "stop orders.yaml",
        "schedule . --plan",
        "dlq config orders.yaml",
        "runs orders.yaml",
        "runs orders.yaml 3f9a",
        "report orders.yaml --to report.html",
        "quality orders.yaml",
    ],
)
def test_a_command_that_needs_no_jvm_answers_at_once(words: str, folder: Path) -> None:
    """It needs no Java on the machine."""
    check_quick(words.split(), folder)


@pytest.mark.parametrize("words", ["doctor", "audit orders.yaml"])
def test_a_command_that_finds_a_problem_answers_at_once(words: str, folder: Path) -> None:
    """`doctor` finds that Java is missing. `audit` finds that none of 600 batches is in its table."""
    check_quick(words.split(), folder, code=1)


@pytest.mark.parametrize("words", ["--lane 0 --offset 500", "--back 2", "--to-beginning"])
def test_offsets_are_changed_at_once(words: str, folder: Path, tmp_path: Path) -> None:
    """The command counts what is processed again, and writes the ledger."""
    there = tmp_path / "orders"

    def begin_anew() -> None:
        shutil.rmtree(there, ignore_errors=True)
        shutil.copytree(folder, there)

    options = words.split()
    check_quick(["offsets", "orders.yaml", *options, "--reason", "again", "--yes"], there, prepare=begin_anew)
    lane = json.loads(check_quick(["offsets", "orders.yaml", "--json"], there))["lanes"]["0"]
    assert lane["offset"] == {"500": 500, "2": 598, "--to-beginning": None}[options[-1]]


def test_a_state_is_shown_at_once_without_a_jvm(folder: Path) -> None:
    """The commands show the status, the offset of each lane and the refused rows that a run left."""
    facts = json.loads(check_quick(["status", "orders.yaml", "--json"], folder))
    assert (facts["state"], facts["dlq"]["rows"], facts["lanes"]["0"]["number"]) == ("idle", 600, 600)
    assert facts["last_run"]["read"] == 1_800
    assert json.loads(check_quick(["offsets", "orders.yaml", "--json"], folder))["lanes"]["0"]["offset"] == 600
    rows = json.loads(check_quick(["dlq", "show", "orders.yaml", "--limit", "2", "--json"], folder))["rows"]
    assert [row["number"] for row in rows] == [599, 600]
    assert rows[0]["nacked_at"] == "2026-01-01T12:01:00.000+00:00"


def test_status_and_offsets_show_the_runs_that_share_the_lanes(tmp_path: Path) -> None:
    """The status shows the lanes of each run and whether the run is alive. The offsets show the epoch of each lane."""
    (tmp_path / "orders.yaml").write_text(DEFINITION)
    place = StateLocation(directory=tmp_path / ".wherry" / "orders", schema="", name="orders")
    place.make()
    lock = StateLock(place.lock.with_name("lock-a"))
    assert lock.acquire()
    place.lock.with_name("lock-b").touch()
    first, second = Journal(place.open_ledger(None)), Journal(place.open_ledger(None))
    who = {**vars(identify_host()), "pipeline": "orders", "assignment": "round_robin"}
    first.acquire({**who, "run": "r1", "lock": "lock-a"})
    second.catch_up()
    second.acquire({**who, "run": "r2", "lock": "lock-b"}, may=lambda _: True)
    first.catch_up()
    for lane, journal in (("0", first), ("1", second)):
        journal.catch_up()
        assert journal.attempt(Entry(kind="take", body={"lanes": [lane]}))
    first.catch_up()
    named = replace(make_planned(1), batch=replace(make_planned(1).batch, lane="0"))
    first.record(Entry(kind="plan", lane="0", plan="p1", body=encode(named)))
    pipeline = Pipeline.load(tmp_path / "orders.yaml")
    facts = pipeline.status()
    assert (facts["state"], facts["owner"]["run"]) == ("running", "r1")
    told = [(owner["run"], owner["lanes"], owner["lives"]) for owner in facts["owners"]]
    assert told == [("r1", ["0"], True), ("r2", ["1"], False)]
    assert pipeline.offsets.read().lanes["0"]["epoch"] == 3
    assert first.state.epoch == 4
    lock.release()


def test_a_run_whose_process_is_gone_was_killed(tmp_path: Path) -> None:
    """No process holds its lock, so `runs` and `status` report it before another run takes over.

    A live run is running.
    """
    file = tmp_path / "orders.yaml"
    file.write_text(DEFINITION)
    place = StateLocation(directory=tmp_path / ".wherry" / "orders", schema="", name="orders")
    place.make()
    lock = StateLock(place.lock)
    assert lock.acquire()
    who = {**vars(identify_host()), "pipeline": "orders", "run": "3f9a", "lock": place.lock.name}
    Journal(place.open_ledger(None)).acquire(who)
    row = RunRow(run="3f9a", pipeline="orders", status="running", started_at=datetime.now(timezone.utc))
    RunHistory(tmp_path / ".wherry" / "orders" / "runs", timedelta(days=90)).write([row])
    pipeline = Pipeline.load(file)
    assert [each["status"] for each in pipeline.history.list()] == ["running"]
    assert pipeline.status()["last_run"] is None
    lock.release()
    assert [each["status"] for each in pipeline.history.list()] == ["killed"]
    assert pipeline.history.list(status="running") == []
    facts = pipeline.status()
    assert (facts["state"], facts["last_run"]["run"], facts["last_run"]["status"]) == ("failed", "3f9a", "killed")
    said = CliRunner().invoke(wherry, ["status", str(file)])
    assert "last run killed: process" in " ".join(said.stdout.split())
    listed = CliRunner().invoke(wherry, ["runs", str(file), "--status", "killed", "--json"])
    assert [each["run"] for each in json.loads(listed.stdout)["runs"]] == ["3f9a"]


def test_status_shows_the_whole_error_and_a_command_that_helps(tmp_path: Path) -> None:
    """The important line is deep in the message. Another run without a change would fail again."""
    file = tmp_path / "orders.yaml"
    file.write_text(DEFINITION)
    place = StateLocation(directory=tmp_path / ".wherry" / "orders", schema="", name="orders")
    place.make()
    journal = Journal(place.open_ledger(None))
    journal.acquire({**vars(identify_host()), "pipeline": "orders", "run": "r", "lock": place.lock.name})
    error = {
        "code": "WINDOW",
        "message": "tripped\n  1 nack\n  stage 'cast', column a: 'x'",
        "hint": "wherry run FILE --set a=0",
    }
    journal.record(Entry(kind="release", body={"status": "failed", "batches": 0, "read": 0, "error": error}))
    facts = Pipeline.load(file).status()
    assert (facts["state"], facts["first"], facts["next"]) == ("failed", "", "wherry preview FILE")
    said = CliRunner().invoke(wherry, ["status", str(file)]).stdout
    assert "stage 'cast', column a: 'x'" in said
    assert f"wherry run {file} --set a=0" in " ".join(said.split())
    assert f"next wherry preview {file}" in " ".join(said.split())
    error["code"] = "MISFIT"
    journal.acquire({**vars(identify_host()), "pipeline": "orders", "run": "r", "lock": place.lock.name})
    journal.record(Entry(kind="release", body={"status": "failed", "batches": 0, "read": 0, "error": error}))
    facts = Pipeline.load(file).status()
    assert facts["next"] == "wherry run FILE"
    assert facts["first"] == "Change the columns that the error lists, in the stages or in the table."


def test_status_shows_that_the_file_differs_from_the_running_definition(tmp_path: Path) -> None:
    """It does so only while a run is active. It shows which open batches are owed."""
    file = tmp_path / "orders.yaml"
    file.write_text(DEFINITION)
    place = StateLocation(directory=tmp_path / ".wherry" / "orders", schema="", name="orders")
    place.make()
    lock = StateLock(place.lock)
    assert lock.acquire()
    journal = Journal(place.open_ledger(None))
    who = {**vars(identify_host()), "pipeline": "orders", "run": "r", "lock": place.lock.name, "hash": load(file).hash}
    journal.acquire(who)
    journal.record(Entry(kind="plan", lane="0", plan="p1", body=encode(make_planned(1))))
    facts = Pipeline.load(file).status()
    assert (facts["state"], facts["differs"], facts["open"][0]["owed"]) == ("running", False, False)
    journal.record(make_settle_entry("orders"))
    file.write_text(DEFINITION.replace("600", "700"))
    said = CliRunner().invoke(wherry, ["status", str(file), "--json"])
    facts = json.loads(said.stdout)
    assert (facts["state"], facts["differs"], facts["open"][0]["owed"]) == ("running", True, True)
    journal.record(Entry(kind="release", body={"status": "stopped", "batches": 1, "read": 3, "error": None}))
    lock.release()
    assert Pipeline.load(file).status()["differs"] is False
