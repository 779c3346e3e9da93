"""A pipeline that another host runs is refused, waited for or taken over."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path

import pytest

from runners.command_line import cli
from runners.definitions.definition import load
from runners.model.clock import Clock
from runners.model.entry import Entry
from runners.model.errors import Fenced
from runners.model.run_report import Report
from runners.running.run import PipelineRun
from runners.state.journal import Journal, Lease
from runners.state.location import StateLocation as State
from runners.state.process_locks import StateLock
from tests.manual_clock import ManualClock
from tests.scenarios.conftest import ORDERS, Place, make_order

ELSEWHERE = {"host": "elsewhere", "boot": "b", "pid": 7, "started": "1", "jvm": None, "lock": "lock"}


@dataclass
class Later(Clock):
    """The clock of this machine with a time added to it. Waiting takes no time."""

    ahead: float = 3_600.0
    waited: float = 0.0

    def now(self) -> datetime:
        return super().now() + timedelta(seconds=self.ahead)

    def elapsed(self) -> float:
        return super().elapsed() + self.waited

    def wait(self, seconds: float) -> None:
        self.waited += seconds


def record_owner(file: Path) -> Journal:
    """Record an owner on another host that renewed its lease just now."""
    journal = Journal(State.of(load(file).pipeline).open_ledger(None), Lease(ManualClock(), 60))
    journal.acquire({"pipeline": "orders", **ELSEWHERE, "run": "r"})
    journal.renew(busy=True)
    return journal


def list_entries(file: Path) -> list[Entry]:
    """Return the entries of the ledger."""
    return State.of(load(file).pipeline).open_ledger(None).read()


@pytest.mark.promise("CN-20")
def test_a_second_run_exits_with_4_and_names_the_owner(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """It also shows since when, and starts no Spark. With `--if-running skip`, it exits with 0."""
    file = tmp_path / "orders.yaml"
    file.write_text(ORDERS)
    journal = record_owner(file)
    assert cli.execute(["run", str(file)]) == 4
    said = capsys.readouterr().err
    assert journal.state.owner is not None
    assert f"orders is running on another host: elsewhere, process 7, since {journal.state.owner.at}" in said
    assert "--take-over" in said
    assert cli.execute(["run", str(file), "--if-running", "skip"]) == 0
    assert len(list_entries(file)) == 2


def test_offsets_are_not_moved_while_another_host_runs_the_pipeline(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The command is refused as a run would be."""
    file = tmp_path / "orders.yaml"
    file.write_text(ORDERS)
    record_owner(file)
    assert cli.execute(["offsets", "--to-beginning", str(file), "--reason", "a test", "--yes"]) == 4
    assert "elsewhere, process 7" in capsys.readouterr().err


@pytest.mark.spark
@pytest.mark.promise("CN-20", "CN-23")
def test_a_run_takes_over_after_the_lease(place: Place) -> None:
    """The first owner can record nothing more."""
    place.land("1.json", [make_order(1)])
    file = place.define(ORDERS)
    first = record_owner(file)
    report, clock = run_later(file, ahead=3_600)
    assert (report.status, place.ids("tables/orders")) == ("succeeded", [1])
    assert 30 < clock.waited <= 60  # the lease, less the time that really passed
    with pytest.raises(Fenced, match="took this pipeline over, and released it"):
        first.renew(busy=True)


@pytest.mark.spark
@pytest.mark.promise("CN-22")
def test_with_ownership_off_there_is_no_lease(place: Place) -> None:
    """No run is refused, although others have the lock and the pipeline. The ledger accepts only the entries of the
    latest run."""
    place.land("1.json", [make_order(1)])
    file = place.define(ORDERS.replace("run: {", "run: {ownership: off, "))
    lock = StateLock(State.of(load(file).pipeline).lock)
    assert lock.acquire()
    record_owner(file)
    report, clock = run_later(file, ahead=0)
    lock.release()
    assert (report.status, clock.waited, place.ids("tables/orders")) == ("succeeded", 0, [1])
    (acquired,) = [
        entry for entry in list_entries(file) if entry.kind == "acquire" and entry.body["host"] != "elsewhere"
    ]
    assert (acquired.body["ownership"], acquired.body["lease"], acquired.body["lock"]) == ("off", None, None)
    assert [entry.kind for entry in list_entries(file) if entry.seq > acquired.seq and entry.kind == "renew"] == []


@pytest.mark.spark
def test_a_lease_costs_a_clean_run_no_further_append(place: Place) -> None:
    """The renewal that shortens the lease is part of the append of the first plan."""
    place.land("1.json", [make_order(1)])
    place.load(ORDERS).run()
    kinds = [entry.kind for entry in list_entries(place.folder / "pipeline.yaml")]
    assert kinds == ["acquire", "open", "renew", "plan", "settle", "release"]
    ledger = place.folder / ".wherry" / "orders" / "ledger" / "_delta_log"
    assert len(list(ledger.glob("*.json"))) == 1 + 5


def run_later(file: Path, *, ahead: float) -> tuple[Report, Later]:
    """Run the pipeline with a clock that is ahead by this many seconds."""
    definition, clock = load(file), Later(ahead=ahead)
    run = PipelineRun(
        pipeline=definition.pipeline,
        text=definition.text,
        hash=definition.hash,
        clock=clock,
    )
    return run.carry(), clock
