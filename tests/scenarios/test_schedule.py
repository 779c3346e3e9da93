"""The pipelines of a directory run when they are due, in one Spark."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timezone
from pathlib import Path

import pytest

from origins.spark_versions import is_connect
from runners.definitions.definition import DefinitionsFolder, load
from runners.model.schedule_events import Ended, ScheduleEvent
from runners.schedules.run_marks import RunMarks
from runners.schedules.scheduler import RunOutcome, RunThreads, Scheduler
from runners.schedules.scheduling import make_carrier
from runners.state.process_locks import StateLock
from tests.manual_clock import ManualClock
from tests.runners.pretend import make_moved
from tests.scenarios.conftest import ORDERS, Place, make_order

pytestmark = pytest.mark.spark


def define(folder: Path, name: str, schedule: str, **changed: str) -> None:
    """Write a definition with this name, table and schedule."""
    text = ORDERS.replace("name: orders", f"name: {name}").replace("tables/orders", f"tables/{name}")
    for old, new in changed.items():
        text = text.replace(old, new)
    (folder / f"{name}.yaml").write_text(f"{text}schedule: {schedule}\n")


def test_due_pipelines_run_and_a_failing_one_affects_no_other(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """In one Spark, two pipelines deliver rows, a third follows one of them, a fourth is run elsewhere, and one
    fails."""
    clock = ManualClock(time=datetime(2026, 6, 1, 12, tzinfo=timezone.utc))
    monkeypatch.setattr("apscheduler.schedulers.base.datetime", make_moved(clock))
    place.land("1.json", [make_order(1), make_order(2)])
    place.land("2.json", [make_order(3)])
    define(place.folder, "orders", "{every: 5m}")
    define(place.folder, "copies", "{every: 5m}")
    define(place.folder, "behind", "{after: orders}")
    define(place.folder, "fails", "{every: 5m}", **{"amount > 0": "amont > 0"})
    define(place.folder, "owned", "{every: 5m}")
    by_hand = StateLock(place.folder / ".wherry" / "owned" / "lock")
    assert by_hand.acquire()
    heard: list[ScheduleEvent] = []
    scheduler = Scheduler(
        folder=DefinitionsFolder(path=place.folder, load=load),
        marks=RunMarks(place.folder / ".wherry" / "schedule"),
        run_workers=RunThreads(make_carrier(place.spark)),
        at_once=5,
        clock=clock,
        listeners=[heard.append],
    )
    scheduler.open()
    clock.move(300)
    scheduler.take_turn()
    assert len(scheduler.due_queue.running) == 4
    while scheduler.due_queue.running:
        finished: Sequence[RunOutcome] = scheduler.run_workers.wait(120)
        assert finished
        clock.move(1)
        scheduler.take_turn(finished)
    by_hand.release()
    ended = {event.name: event for event in heard if isinstance(event, Ended)}
    assert {name: event.status for name, event in ended.items()} == {
        "orders": "succeeded", "copies": "succeeded", "behind": "succeeded", "fails": "failed", "owned": "owned",
    }  # fmt: skip
    assert ended["orders"].message == "2 batches, 3 rows read"
    assert "amont" in ended["fails"].message
    assert ended["owned"].message == "owned is running already on this host. The run is left out."
    assert [place.ids(f"tables/{name}") for name in ("orders", "copies", "behind")] == [[1, 2, 3]] * 3
    assert scheduler.error == ""
    if not is_connect(place.spark):
        context = place.spark.sparkContext._jsc.sc()
        assert context.getPoolForName("orders").isDefined()
        assert context.getPoolForName("behind").isDefined()
