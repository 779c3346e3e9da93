"""The status of a pipeline: what waits in its lanes, which runs it has, and how the last run ended."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime, timedelta, timezone
from pathlib import Path

from click.testing import CliRunner

import destinations
import origins
from origins.batch import Json
from origins.capabilities import Lag, MeasuresLag
from origins.codec import encode
from runners.command_line.commands import wherry
from runners.definitions.definition import load
from runners.model.entry import Entry
from runners.model.pipeline_state import LaneState, PipelineState
from runners.operations.status import measure_lags
from runners.pipeline import Pipeline
from runners.state.journal import Journal
from runners.state.location import StateLocation
from runners.state.process_locks import StateLock, identify_host
from runners.state.run_history import RunHistory, RunRow
from tests.runners.command_line.test_quick_commands import DEFINITION
from tests.runners.state.ledger.test_progress import make_planned, make_settle_entry


class Counted(origins.Memory, MeasuresLag):
    """An origin that also answers for a lane of which it was not asked."""

    def measure_lag(self, offsets: Mapping[str, Json]) -> Mapping[str, Lag]:
        return {lane: Lag(rows=3) for lane in [*offsets, "9"]}


def test_the_lag_of_a_lane_that_was_not_asked_for_is_left_out() -> None:
    """Before the first batch no lane is asked for."""
    pipeline = Pipeline(name="orders", origin=Counted(schema="id long"), destinations=[destinations.Memory()])
    assert measure_lags(pipeline, PipelineState()) == {}
    assert measure_lags(pipeline, PipelineState(lanes={"0": LaneState()})) == {"0": Lag(rows=3)}


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
