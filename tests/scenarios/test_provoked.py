"""After interference during a batch, Wherry tries again or stops, and no row is lost or doubled."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from origins.spark_versions import is_connect
from runners.model.events import BatchRests, Event
from runners.pipeline import Pipeline
from tests.scenarios.conftest import ORDERS, Place, make_order
from tests.scenarios.gate import ENOUGH, Gate

pytestmark = pytest.mark.spark

QUICKLY = ORDERS.replace("run: {", "run: {retry: {wait: 10ms}, ")


def load_gated(place: Place) -> tuple[Pipeline, Gate]:
    """Return a pipeline of three batches, and the gate that holds the second one in the middle of its write."""
    for number in range(1, 4):
        place.land(f"{number}.json", [make_order(number)])
    folder = place.folder / "gate"
    folder.mkdir()
    gate = Gate(folder=str(folder), row=2)
    pipeline = place.load(QUICKLY)
    return replace(pipeline, stages=[*pipeline.stages, gate]), gate


def change_the_table(place: Place) -> None:
    """Change the table, as an ALTER TABLE from another program does."""
    place.spark.sql(f"alter table delta.`{place.folder / 'tables/orders'}` set tblproperties ('a' = 'b')")


def cancel_the_job(place: Place) -> None:
    """Cancel the jobs, as an administrator can do in Spark's UI, or as happens when a cluster is drained."""
    if is_connect(place.spark):
        place.spark.interruptAll()  # type: ignore[attr-defined,unused-ignore]
    else:
        place.spark.sparkContext.cancelAllJobs()


@pytest.mark.promise("SS-23", "CD-22")
@pytest.mark.parametrize(
    ("act", "said"),
    [(change_the_table, "metadata changed"), (cancel_the_job, "cancel")],
)
def test_a_batch_survives_interference_by_others(place: Place, act: Callable[[Place], None], said: str) -> None:
    """The write fails for exactly this reason. The batch is tried again, and each row is delivered once."""
    heard: list[BatchRests] = []

    def listen(event: Event) -> None:
        heard.extend([event] if isinstance(event, BatchRests) else [])

    pipeline, gate = load_gated(place)
    with gate.reached(lambda: act(place)) as done:
        report = pipeline.run(listeners=[listen], check=False)
    assert done, report
    assert (report.status, place.ids("tables/orders")) == ("succeeded", [1, 2, 3])
    (rest,) = heard
    assert rest.batch.number == 2
    assert said in f"{rest.error} {rest.error.__cause__}".lower()


@pytest.mark.connect
@pytest.mark.promise("CD-34")
def test_a_forced_stop_returns_within_five_seconds_during_a_spark_job(place: Place) -> None:
    """The stop comes from another thread or cell. No row of the batch counts, and the next run delivers it."""
    pipeline, gate = load_gated(place)
    over = threading.Event()
    asked: list[float] = []

    def stop() -> None:
        asked.append(time.monotonic())
        assert place.load().stop("the house is on fire", force=True)
        over.wait(ENOUGH)  # the gate stays closed, so only the cancellation ends the job

    with gate.reached(stop):
        stopped = pipeline.run(check=False)
        ended = time.monotonic()
        over.set()
    assert asked, stopped
    assert (stopped.status, stopped.reason, stopped.batches) == ("stopped", "the house is on fire", 1)
    assert ended - asked[0] < 5
    assert place.load().run().status == "succeeded"
    assert place.ids("tables/orders") == [1, 2, 3]


@pytest.mark.long
@pytest.mark.promise("SS-23", "CD-22")
def test_a_batch_survives_the_loss_of_an_executor(tmp_path: Path) -> None:
    """The executor is killed during a task, in a Spark with separate executors. The batch is tried again."""
    command = [sys.executable, "-m", "tests.scenarios.executor_lost", str(tmp_path)]
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stderr
    said = json.loads(ended.stdout)
    assert (said["status"], said["ids"]) == ("succeeded", [1, 2, 3]), said
    (rest,) = said["rests"]
    assert rest.startswith("2: ")
    assert "ExecutorLostFailure" in rest
