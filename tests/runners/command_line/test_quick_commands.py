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

from origins.codec import encode
from runners.model.entry import Entry
from runners.state.delta_ledger import DeltaLedger
from runners.state.journal import Journal
from runners.state.process_locks import identify_host
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
        "kinds --json-schema",
        "init mine --from sales.csv",
        "validate orders.yaml",
        "stop orders.yaml",
        "schedule . --plan",
        "dlq config orders.yaml",
        "runs orders.yaml",
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


@pytest.mark.parametrize("words", ["--lane 0 --offset 500", "--to-beginning"])
def test_offsets_are_changed_at_once(words: str, folder: Path, tmp_path: Path) -> None:
    """The command counts what is processed again, and writes the ledger."""
    there = tmp_path / "orders"

    def begin_anew() -> None:
        shutil.rmtree(there, ignore_errors=True)
        shutil.copytree(folder, there)

    options = words.split()
    check_quick(["offsets", "orders.yaml", *options, "--reason", "again", "--yes"], there, prepare=begin_anew)
    lane = json.loads(check_quick(["offsets", "orders.yaml", "--json"], there))["lanes"]["0"]
    assert lane["offset"] == {"500": 500, "--to-beginning": None}[options[-1]]


def test_a_state_is_shown_at_once_without_a_jvm(folder: Path) -> None:
    """The commands show the status, the offset of each lane and the refused rows that a run left."""
    facts = json.loads(check_quick(["status", "orders.yaml", "--json"], folder))
    assert (facts["state"], facts["dlq"]["rows"], facts["lanes"]["0"]["number"]) == ("idle", 600, 600)
    assert facts["last_run"]["read"] == 1_800
    assert json.loads(check_quick(["offsets", "orders.yaml", "--json"], folder))["lanes"]["0"]["offset"] == 600
    rows = json.loads(check_quick(["dlq", "show", "orders.yaml", "--limit", "2", "--json"], folder))["rows"]
    assert [row["number"] for row in rows] == [599, 600]
    assert rows[0]["nacked_at"] == "2026-01-01T12:01:00.000+00:00"
