"""The runs of a pipeline as a table that SQL can read, and what happens when the table cannot be written."""

from __future__ import annotations

import json
import logging
import threading
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable

from runners.command_line import cli
from runners.model.entry import OwnerBody
from runners.model.pipeline_state import PipelineState
from runners.model.run_report import DestinationReport, Report, RunError
from runners.operations.status import find_fates
from runners.state import run_history
from runners.state.background_writer import BackgroundWriter
from runners.state.ledger import LedgerError
from runners.state.location import StateLocation
from runners.state.run_history import RunHistory, RunRow, WantedRuns, await_writer

NOON = datetime(2026, 6, 1, 12, tzinfo=timezone.utc)
ORDERS = "name: orders\norigin: {generate: {rows: 1}}\ndestinations: [{delta: {path: tables/orders}}]\n"


def begin_row(run: str, *, minutes: int = 0) -> RunRow:
    return RunRow(run=run, pipeline="orders", status="running", started_at=NOON + timedelta(minutes=minutes), host="h")


def end_row(row: RunRow, status: str = "succeeded") -> RunRow:
    error = RunError(cls="E", code="E", message="it's <b>full</b>") if status == "failed" else None
    report = Report(
        pipeline="orders",
        run=row.run,
        status=status,
        batches=2,
        read=1_000,
        nacked=3,
        seconds=4.5,
        destinations={"orders": DestinationReport(read=1_000, delivered=997, nacked=3)},
        error=error,
    )
    return row.end(report, report.json(), row.started_at + timedelta(seconds=4.5))


@pytest.fixture
def history(tmp_path: Path) -> RunHistory:
    """Return a history of four runs: two succeeded, one failed, and one is still running or was killed."""
    made = RunHistory(tmp_path / ".wherry" / "orders" / "runs", timedelta(days=90))
    first, second, third, fourth = (begin_row(f"{name}-run", minutes=at) for at, name in enumerate("abcd"))
    made.write([first])
    made.write([end_row(first), second])
    made.write([end_row(second, "failed"), third, fourth, end_row(fourth)])
    return made


def join_names(found: list[dict[str, Any]]) -> str:
    return "".join(each["run"][0] for each in found)


def test_runs_are_listed_once_with_the_newest_first(history: RunHistory) -> None:
    """A run is shown with its end, or with its beginning if no end is recorded."""
    found = history.list_runs()
    assert join_names(found) == "dcba"
    assert [each["status"] for each in found] == ["succeeded", "running", "failed", "succeeded"]
    assert (found[0]["read"], found[0]["ended_at"]) == (1_000, "2026-06-01T12:03:04.500+00:00")
    assert "report" not in found[0]


@pytest.mark.parametrize(
    ("filters", "found"),
    [
        ({"status": "failed"}, "b"),
        ({"status": "running"}, "c"),
        ({"since": NOON + timedelta(minutes=2)}, "dc"),
        ({"limit": 1}, "d"),
        ({"run": "b"}, "b"),
        ({"run": "' OR 'a' = 'a"}, ""),
        ({"status": "succeeded", "since": NOON + timedelta(minutes=1)}, "d"),
    ],
)
def test_filters_select_runs(history: RunHistory, filters: dict[str, Any], found: str) -> None:
    """All filters apply, and a quote in a value does not change the query."""
    assert join_names(history.list_runs(WantedRuns(**filters))) == found


OWNER = OwnerBody(
    run="c-run",
    host="h",
    pid=7,
    at="2026-06-01T12:02:00+00:00",
    heard_at="2026-06-01T12:30:00+00:00",
)


def test_a_run_that_was_taken_over_was_killed(history: RunHistory) -> None:
    """Its times are its first and its last entry. A report of the run itself counts more."""
    history.write([RunRow.make_killed(OWNER, "orders", "e-run")])
    (found,) = history.list_runs(WantedRuns(status="killed"))
    assert (found["run"], found["reason"]) == ("c-run", "its process ended without a report; run e-run took over")
    assert (found["started_at"][11:16], found["ended_at"][11:16]) == ("12:02", "12:30")
    assert join_names(history.list_runs()) == "dcba"
    history.write([end_row(begin_row("c-run", minutes=2), "stopped")])
    assert [each["status"] for each in history.list_runs()] == ["succeeded", "stopped", "failed", "succeeded"]


def test_a_run_without_a_recorded_end_has_the_known_fate(history: RunHistory) -> None:
    """A filter by status uses the fate too. A run with a recorded end is not changed."""
    known = {"c-run": "killed", "d-run": "killed"}
    assert [each["status"] for each in history.list_runs(WantedRuns(fates=known))][:2] == ["succeeded", "killed"]
    assert join_names(history.list_runs(WantedRuns(status="killed", fates=known))) == "c"
    assert history.list_runs(WantedRuns(status="running", fates=known)) == []


@pytest.mark.parametrize(
    ("owners", "ended", "status"),
    [
        ((), None, "killed"),
        ((), {"run": "c-run", "status": "stopped"}, "stopped"),
        ((replace(OWNER, ownership="lease"),), None, None),
        ((replace(OWNER, ownership="lease", lease=60.0),), None, "killed"),
        ((replace(OWNER, run="d-run", ownership="lease"),), None, "killed"),
    ],
    ids=["gone", "ended", "alive", "lease over", "another"],
)
def test_the_ledger_knows_how_a_run_ended(
    tmp_path: Path, owners: tuple[OwnerBody, ...], ended: Mapping[str, str] | None, status: str | None
) -> None:
    """A run was killed if it is not the last that ended, and no longer owns the pipeline or was silent for a lease."""
    state = PipelineState(owners=owners, ended=ended)
    place = StateLocation(directory=tmp_path, schema="", name="orders")
    assert find_fates([{"run": "c-run"}], state, place).get("c-run") == status


def test_the_history_has_the_report_of_a_run(history: RunHistory) -> None:
    """The report is whole, as `wherry run --json` printed it."""
    (found,) = history.list_runs(WantedRuns(run="b-run", report=True))
    assert found["report"]["destinations"]["orders"]["delivered"] == 997
    assert found["error"] == "it's <b>full</b>"


@pytest.mark.promise("CN-17")
def test_old_runs_are_archived_when_files_are_merged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each run is archived once and without its report. The table keeps few files and a short log."""
    monkeypatch.setattr(run_history, "FILES", 4)
    history = RunHistory(tmp_path / "runs", timedelta(minutes=10))
    for at in range(20):
        history.write([end_row(begin_row(f"{at:02}", minutes=at))])
    table = DeltaTable(str(history.place))
    assert len(table.file_uris()) <= 5
    assert table.metadata().configuration["delta.logRetentionDuration"] == "interval 5 seconds"
    kept = {each["run"] for each in history.list_runs(WantedRuns(limit=100))}
    assert {f"{at:02}" for at in range(10, 20)} <= kept
    assert not kept & {"00", "01", "02", "03", "04"}
    everything = history.list_runs(WantedRuns(limit=100, archived=True))
    assert [each["run"] for each in everything] == [f"{at:02}" for at in range(19, -1, -1)]
    assert (everything[-1]["read"], everything[-1]["status"]) == (1_000, "succeeded")
    assert history.list_runs(WantedRuns(run="00", archived=True, report=True))[0]["report"] is None


def test_a_run_that_is_archived_already_is_not_archived_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A process may die after it wrote the archive."""
    monkeypatch.setattr(run_history, "FILES", 1)
    history = RunHistory(tmp_path / "runs", timedelta(minutes=10))
    old = end_row(begin_row("old"))
    history.write([old])
    history.archive.add([vars(old)])
    history.write([begin_row("new", minutes=20)])
    assert [each["run"] for each in history.list_runs()] == ["new"]
    assert [each["run"] for each in history.list_runs(WantedRuns(archived=True))] == ["new", "old"]


def test_runs_that_begin_at_the_same_time_are_all_recorded(tmp_path: Path) -> None:
    """One of them creates the table."""
    together = threading.Barrier(4)

    def begin(run: str) -> None:
        together.wait(60)
        RunHistory(tmp_path / "runs", timedelta(days=90)).write([begin_row(run)])

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(begin, "abcd"))
    assert sorted(each["run"] for each in RunHistory(tmp_path / "runs", timedelta(days=90)).list_runs()) == [*"abcd"]


def test_a_history_that_cannot_be_read_is_named(history: RunHistory, tmp_path: Path) -> None:
    """The error does not name the ledger, which is whole."""
    for file in Path(str(history.place)).glob("*.parquet"):
        file.unlink()
    with pytest.raises(LedgerError, match=r"^The run history at .* cannot be read: ") as told:
        history.list_runs()
    assert "ledger" not in str(told.value).lower()


def test_a_history_that_cannot_be_written_causes_only_a_warning(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The folder may be a file."""
    (tmp_path / "runs").write_text("")
    writer: BackgroundWriter[RunRow] = BackgroundWriter(RunHistory(tmp_path / "runs", timedelta(days=1)).write)
    writer.put(begin_row("a"))
    with caplog.at_level(logging.WARNING, "wherry"):
        await_writer(writer, "orders")
    assert writer.dropped == 1
    assert "The run history of orders is not whole, 1 entries were dropped" in caplog.text


def test_a_history_that_takes_too_long_is_abandoned(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Wherry warns about it."""
    monkeypatch.setattr(run_history, "PATIENCE", 0.0)
    go = threading.Event()

    def hang(rows: Sequence[RunRow]) -> None:
        go.wait(30)

    writer = BackgroundWriter(hang)
    writer.put(begin_row("a"))
    with caplog.at_level(logging.WARNING, "wherry"):
        await_writer(writer, "orders")
    go.set()
    assert "it takes too long to write" in caplog.text


def test_the_commands_list_and_show_runs(
    history: RunHistory, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """They print texts and JSON. A name that matches no run or several runs is refused."""
    file = tmp_path / "orders.yaml"
    file.write_text(ORDERS)
    assert cli.execute(["runs", str(file), "--status", "failed", "--json"]) == 0
    assert join_names(json.loads(capsys.readouterr().out)["runs"]) == "b"
    assert cli.execute(["runs", str(file), "--since", "2026-06-01T12:02"]) == 0
    heading, *lines = capsys.readouterr().out.splitlines()
    assert heading.split("  ")[0] == "run"
    assert [line.split()[:2] for line in lines] == [["d-run", "succeeded"], ["c-run", "killed"]]
    assert cli.execute(["runs", str(file), "--archived", "--json"]) == 0
    assert join_names(json.loads(capsys.readouterr().out)["runs"]) == "dcba"
    assert cli.execute(["runs", str(file), "b"]) == 0
    shown = capsys.readouterr().out
    assert "it's <b>full</b>" in shown
    assert "delivered 997, filtered 0, nacked 3, owed 0" in shown
    assert cli.execute(["runs", str(file), "last"]) == 0
    assert capsys.readouterr().out.splitlines()[0].split() == ["run", "d-run"]
    assert cli.execute(["runs", str(file), "x"]) == 2
    assert "There is no run 'x'" in capsys.readouterr().err
    assert cli.execute(["runs", str(file), "--since", "yesterday"]) == 2


def test_a_pipeline_that_never_ran_has_no_runs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The command makes no folder. A pipeline that keeps no history reports that."""
    file = tmp_path / "orders.yaml"
    file.write_text(ORDERS)
    assert cli.execute(["runs", str(file)]) == 0
    assert capsys.readouterr().out == "No run matches.\n"
    assert not (tmp_path / ".wherry").exists()
    assert cli.execute(["runs", str(file), "--set", "run.history=0s"]) == 2
    assert "keeps no run history" in capsys.readouterr().err
