"""Commands for a folder of pipelines. They are listed, validated and run in the order in which they feed each other."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from runners.command_line import cli
from runners.model.errors import Owned, Refusal
from runners.model.run_report import DestinationReport, Report, RunError
from runners.pipeline import Pipeline

BRONZE = """
name: bronze
origin: {files: {path: "landing/*.json", format: json, schema: "id long"}}
destinations: [{delta: {path: tables/bronze}}]
schedule: {every: 5m}
"""
NEXT = "name: NAME\norigin: {delta: {path: tables/FROM}}\ndestinations: [{delta: {path: tables/NAME}}]\n"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Bronze feeds silver, and silver feeds gold. The pipeline other is separate. Three files wait."""
    (tmp_path / "bronze.yaml").write_text(BRONZE)
    for name, origin in (("silver", "bronze"), ("gold", "silver"), ("other", "elsewhere")):
        (tmp_path / f"{name}.yaml").write_text(NEXT.replace("NAME", name).replace("FROM", origin))
    (tmp_path / "vars.yaml").write_text("X: 1\n")
    (tmp_path / "landing").mkdir()
    for number in range(3):
        (tmp_path / "landing" / f"{number}.json").write_text("{}\n")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def replace_runs(monkeypatch: pytest.MonkeyPatch, **outcomes: str | Exception | Report) -> list[str]:
    """Let each run end with this outcome, by default `succeeded`. Return the list of pipelines that ran."""
    ran: list[str] = []

    def run(pipeline: Pipeline, **_: Any) -> Report:
        ran.append(pipeline.name)
        status = outcomes.get(pipeline.name, "succeeded")
        if isinstance(status, Exception):
            raise status
        if isinstance(status, Report):
            return status
        error = RunError(cls="X", code="CARRY", message="no room") if status == "failed" else None
        return Report(pipeline=pipeline.name, run="r", status=status, error=error)

    monkeypatch.setattr(Pipeline, "run", run)
    monkeypatch.setattr("runners.state.location.open_shared_session", lambda _: None)
    return ran


def test_the_status_of_a_folder_lists_pipelines_below_their_sources(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Each has its waiting files and its schedule. No state is created."""
    assert cli.execute(["status", "--all"]) == 0
    assert capsys.readouterr().out.splitlines() == [
        "pipeline  last run (UTC)  waiting  schedule",
        "bronze    never run       3 files  every 5m",
        "  bronze.yaml: landing/*.json → tables/bronze",
        "other     never run       -        by hand",
        "  other.yaml: tables/elsewhere → tables/other",
        "silver    never run       -        by hand",
        "  silver.yaml: tables/bronze → tables/silver",
        "gold      never run       -        by hand",
        "  gold.yaml: tables/silver → tables/gold",
    ]
    assert not (folder / ".wherry").exists()


def test_the_status_of_a_folder_is_printed_as_json(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """It lists the selected pipelines of a given folder."""
    (folder / "elsewhere").mkdir()
    assert cli.execute(["status", str(folder), "--select", "+silver", "--json"]) == 0
    facts = json.loads(capsys.readouterr().out)
    assert [(each["pipeline"], each["after"], each["waiting"]) for each in facts["pipelines"]] == [
        ("bronze", [], {"files": 3}),
        ("silver", ["bronze"], {"versions": 0}),
    ]
    assert facts["pipelines"][0]["schedule"] == "every 5m"
    assert cli.execute(["status", "elsewhere", "--json"]) == 2
    assert json.loads(capsys.readouterr().out)["error"]["message"] == "There is no definition in elsewhere."


def test_a_broken_definition_stops_the_folder_from_running(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """`status` lists it. The pipelines that it would feed are unknown."""
    ran = replace_runs(monkeypatch)
    (folder / "bad.yaml").write_text("name: bad\norigin: {files: {}}\n")
    (folder / "twice.yaml").write_text(BRONZE)
    assert cli.execute(["status", "."]) == 2
    out = capsys.readouterr().out
    assert "origin.files: 'path' is missing" in out
    assert "twice.yaml: the pipeline in bronze.yaml is called bronze already" in out
    assert cli.execute(["run", "--all"]) == 2
    assert "origin.files: 'path' is missing" in capsys.readouterr().err
    assert cli.execute(["validate", "--all"]) == 2
    assert ran == []


def test_a_folder_runs_in_the_order_of_its_tables(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """All pipelines run, or the selected ones. A table shows how each ended."""
    ran = replace_runs(monkeypatch)
    assert cli.execute(["run", "--all", "--quiet"]) == 0
    lines = [line.split()[:2] for line in capsys.readouterr().out.splitlines()]
    order = ["bronze", "other", "silver", "gold"]
    assert (ran, lines) == (order, [["pipeline", "ended"], *([name, "succeeded"] for name in order)])
    ran.clear()
    assert cli.execute(["run", str(folder), "--select", "silver+ other", "--quiet"]) == 0
    assert ran == ["other", "silver", "gold"]


def make_report(name: str, **destinations: DestinationReport) -> Report:
    return Report(pipeline=name, run="r", status="succeeded", batches=1, seconds=2, destinations=destinations)


def test_the_table_of_a_folder_shows_where_each_row_went(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """In each line read + changed = delivered + filtered + refused. A second destination has a line of its own."""
    replace_runs(
        monkeypatch,
        silver=make_report(
            "silver",
            silver=DestinationReport(read=90, delivered=80, filtered=8, nacked=2),
            copy=DestinationReport(read=90, delivered=60, filtered=28, nacked=2),
        ),
        gold=make_report("gold", gold=DestinationReport(read=80, changed=-1073, delivered=7)),
        other=Refusal("no room"),
    )
    assert cli.execute(["run", "--all", "--quiet"]) == 2
    assert capsys.readouterr().out.splitlines() == [
        "pipeline  ended      to      read  changed  delivered  filtered  refused  seconds",
        "bronze    succeeded          0     +0       0          0         0        0.0      nothing new",
        "other     failed                                                                   no room",
        "silver    succeeded  silver  90    +0       80         8         2        2.0",
        "                     copy    90    +0       60         28        2",
        "gold      succeeded  gold    80    -1,073   7          0         0        2.0",
    ]


def test_pipelines_after_a_failed_one_are_skipped(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """All others run. The exit code is that of the first failure."""
    ran = replace_runs(monkeypatch, bronze="failed")
    assert cli.execute(["run", "--all", "--quiet", "--json"]) == 1
    out, err = capsys.readouterr()
    facts = json.loads(out)
    assert ran == ["bronze", "other"]
    assert facts["status"] == "failed"
    assert [(each["pipeline"], each["status"]) for each in facts["pipelines"]] == [
        ("bronze", "failed"),
        ("other", "succeeded"),
        ("silver", "skipped"),
        ("gold", "skipped"),
    ]
    assert "silver is skipped: it reads what bronze should have written.\n" in err
    assert "gold is skipped: it reads what silver should have written.\n" in err


def test_a_stopped_run_ends_the_run_of_the_folder(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The exit code is 3. The skipped pipelines are named."""
    ran = replace_runs(monkeypatch, bronze="stopped")
    assert cli.execute(["run", "--all", "--quiet"]) == 3
    assert ran == ["bronze"]
    assert "other is skipped: bronze was stopped.\n" in capsys.readouterr().err


def test_a_running_pipeline_exits_with_4_or_is_skipped(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With `--if-running skip` the pipelines after it still run."""
    ran = replace_runs(monkeypatch, bronze=Owned("bronze is being run already."))
    assert cli.execute(["run", "--all", "--quiet"]) == 4
    assert ran == ["bronze", "other"]
    ran.clear()
    assert cli.execute(["run", "--all", "--quiet", "--if-running", "skip"]) == 0
    assert ran == ["bronze", "other", "silver", "gold"]


@pytest.mark.parametrize("words", [["--follow"], ["--from-beginning"], ["--moved", "x"], ["--take-over", "x"]])
def test_options_for_one_pipeline_are_refused_for_a_folder(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], words: list[str]
) -> None:
    """No pipeline runs."""
    ran = replace_runs(monkeypatch)
    assert cli.execute(["run", "--all", *words]) == 2
    assert f"{words[0]} is for one pipeline, and not for a folder." in capsys.readouterr().err
    assert ran == []


def test_a_cycle_is_refused_before_any_run(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The message names the cycle."""
    ran = replace_runs(monkeypatch)
    (folder / "bronze.yaml").write_text(NEXT.replace("NAME", "bronze").replace("FROM", "gold"))
    assert cli.execute(["run", "--all"]) == 2
    assert "These pipelines feed each other in a circle: " in capsys.readouterr().err
    assert ran == []


def test_a_folder_is_validated(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Each selected pipeline is shown with its sources."""
    assert cli.execute(["validate", "--select", "silver+"]) == 0
    assert capsys.readouterr().out.splitlines() == [
        "silver is valid. It reads what bronze writes.",
        "gold is valid. It reads what silver writes.",
    ]
    assert cli.execute(["validate", ".", "--all", "--json"]) == 0
    assert [each["pipeline"] for each in json.loads(capsys.readouterr().out)["pipelines"]] == [
        "bronze",
        "other",
        "silver",
        "gold",
    ]
