"""A user can see from outside what a run is doing."""

from __future__ import annotations

import itertools
import json
import os
import re
import select
import signal
import subprocess
import sys
from datetime import datetime, timezone
from pathlib import Path

import pytest

from origins.batch import Json
from runners.model.events import BatchPlanned, Event
from runners.running.activity import write_activity
from tests.scenarios.conftest import ORDERS, Place, make_order

ROOT = Path(__file__).resolve().parents[2]
pytestmark = pytest.mark.spark

WAITS = """
import os

def wait(rows: list[dict]) -> list:
    try:
        os.mkdir("{folder}/once")
    except FileExistsError:
        return [{{}} for _ in rows]
    with open("{folder}/begun", "w") as begun:
        begun.write("begun")
    open("{folder}/go").close()
    return [{{}} for _ in rows]
"""


@pytest.mark.long
@pytest.mark.skipif(not hasattr(signal, "SIGUSR1"), reason="the system has no such signal")
def test_a_signal_prints_what_a_run_is_doing_and_changes_nothing(place: Place) -> None:
    """The run's batch waits meanwhile, and is delivered afterwards."""
    place.land("1.json", [make_order(1)])
    (place.folder / "calls.py").write_text(WAITS.format(folder=place.folder))
    begun, go = place.folder / "begun", place.folder / "go"
    os.mkfifo(begun)
    os.mkfifo(go)
    file = place.define(ORDERS.replace("destinations:", '  - python: "calls:wait"\ndestinations:'))
    command = [sys.executable, "-c", "from runners.command_line.cli import main; main()", "run", file.name, "--json"]
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("SPARK_", "PYSPARK_"))}
    with subprocess.Popen(
        command,
        cwd=place.folder,
        env={**environment, "PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as run:
        assert run.stderr is not None
        assert run.stdout is not None
        waiting = os.open(begun, os.O_RDONLY | os.O_NONBLOCK)
        assert select.select([waiting], [], [], 300)[0]
        run.send_signal(signal.SIGUSR1)
        said = "".join(itertools.takewhile(lambda line: "Spark has" not in line, iter(run.stderr.readline, "")))
        go.write_text("")
        report = json.loads(run.stdout.read())
    os.close(waiting)
    assert re.search(r"orders: passing a batch .* for [\d,]+ s: batch 1 of lane 0; at \w+/[\w/]+\.py:\d+ in \w+", said)
    assert (report["status"], report["batches"], place.ids("tables/orders")) == ("succeeded", 1, [1])


def test_status_shows_the_stored_activity_of_a_run(place: Place) -> None:
    """The activity has an age. After the run has ended, the status shows no activity."""
    place.land("1.json", [make_order(1)])
    seen = []

    def listen(event: Event) -> None:
        if isinstance(event, BatchPlanned):
            now = datetime.now(timezone.utc).isoformat()
            facts: dict[str, Json] = {"run": event.batch.run, "at": now, "threads": [], "spark": None}
            write_activity(place.folder / ".wherry/orders/activity", event.batch.run, facts)
            seen.append((event.batch.run, place.load().status()["activity"]))

    pipeline = place.load(ORDERS)
    pipeline.run(listeners=[listen])
    ((run, (activity,)),) = seen
    assert (activity["run"], activity["threads"]) == (run, [])
    assert 0 <= activity["age"] < 600
    assert "activity" not in pipeline.status()


def test_a_short_run_stores_no_activity(place: Place) -> None:
    """Wherry does not create the folder of activities."""
    place.land("1.json", [make_order(1)])
    place.load(ORDERS).run()
    assert not (place.folder / ".wherry/orders/activity").exists()
