"""A signal lets batches in flight finish, a second one cancels them, and a second run of a pipeline is refused."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from runners.listeners.hook_runner import HookRunner
from runners.model.errors import Owned
from runners.model.events import BatchPlanned, BatchSettled, Event, RunEnded
from tests.scenarios.conftest import ORDERS, Place, make_order

ROOT = Path(__file__).resolve().parents[2]

pytestmark = [pytest.mark.spark]


def land_four_files(place: Place) -> None:
    for number in range(1, 5):
        place.land(f"{number}.json", [make_order(number)])


@pytest.mark.promise("CD-32", "CD-33", "SS-24")
def test_a_signal_lets_batches_in_flight_finish(place: Place) -> None:
    """Only the batch that was planned is committed. The next run delivers the rest."""
    land_four_files(place)

    def listen(event: Event) -> None:
        if isinstance(event, BatchPlanned) and event.batch.number == 2:
            signal.raise_signal(signal.SIGTERM)

    stopped = place.load(ORDERS).run(listeners=[listen])
    assert (stopped.status, stopped.reason, stopped.batches) == ("stopped", "signal SIGTERM", 2)
    assert place.load().run().batches == 2
    assert place.ids("tables/orders") == [1, 2, 3, 4]


@pytest.mark.promise("CD-32", "CD-33")
def test_a_signal_after_the_last_batch_stops_nothing(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """It may come while the run releases its pipeline or waits for its hooks. The run reports that everything was
    delivered."""

    def listen(event: Event) -> None:
        if isinstance(event, RunEnded):
            signal.raise_signal(signal.SIGTERM)

    def waits(*_: object) -> None:
        signal.raise_signal(signal.SIGINT)

    monkeypatch.setattr(HookRunner, "await_hooks", waits)
    land_four_files(place)
    report = place.load(ORDERS).run(listeners=[listen])
    assert (report.status, report.reason, report.batches) == ("succeeded", "nothing left to do", 4)
    assert place.load().status()["state"] == "idle"


@pytest.mark.promise("CD-34", "X6")
def test_a_second_signal_cancels_batches_in_flight(place: Place) -> None:
    """No offset is committed for the batch. The next run examines it first, and no row is lost or doubled."""
    land_four_files(place)

    def listen(event: Event) -> None:
        if isinstance(event, BatchPlanned) and event.batch.number == 2:
            signal.raise_signal(signal.SIGINT)
            signal.raise_signal(signal.SIGINT)

    stopped = place.load(ORDERS).run(listeners=[listen])
    assert (stopped.status, stopped.batches) == ("stopped", 1)
    place.load().run()
    assert place.ids("tables/orders") == [1, 2, 3, 4]


def test_a_file_that_changes_during_the_batch_before_it_stops_the_run(place: Place) -> None:
    """Its rows were described already. None of them is delivered, and the next run delivers its new content."""
    land_four_files(place)

    def listen(event: Event) -> None:
        if isinstance(event, BatchSettled) and event.batch.number == 2:
            place.land("3.json", [make_order(3), make_order(33)])

    report = place.load(ORDERS).run(check=False, listeners=[listen])
    assert (report.status, report.batches) == ("failed", 2)
    assert report.error is not None
    assert "3.json has changed" in report.error.message
    assert place.ids("tables/orders") == [1, 2]
    assert place.load().run().balanced is True
    assert place.ids("tables/orders") == [1, 2, 3, 4, 33]


@pytest.mark.promise("CN-20")
def test_a_second_run_is_refused_while_another_is_in_progress(place: Place) -> None:
    """The second run changes nothing, and its error names the owner."""
    land_four_files(place)
    refused: list[Owned] = []

    def listen(event: Event) -> None:
        if isinstance(event, BatchPlanned) and event.batch.number == 1:
            with pytest.raises(Owned) as error:
                place.load().run()
            refused.append(error.value)

    report = place.load(ORDERS).run(listeners=[listen])
    assert (len(refused), report.status, place.ids("tables/orders")) == (1, "succeeded", [1, 2, 3, 4])


@pytest.mark.promise("CD-32")
def test_a_run_is_stopped_through_its_ledger(place: Place) -> None:
    """The request comes from another process or notebook that sees the state. Batches in flight finish."""
    land_four_files(place)
    pipeline = place.load(ORDERS)
    assert pipeline.stop() is False

    def listen(event: Event) -> None:
        if isinstance(event, BatchPlanned) and event.batch.number == 2:
            assert place.load().stop("the night begins")

    stopped = pipeline.run(listeners=[listen])
    assert (stopped.status, stopped.reason, stopped.batches) == ("stopped", "the night begins", 2)
    assert place.load().run().batches == 2
    assert place.ids("tables/orders") == [1, 2, 3, 4]


TERMINATES = """
import os, signal

def terminate(rows: list[dict]) -> list:
    if any(row["id"] == 1 for row in rows):
        os.killpg(int(os.environ["GROUP"]), signal.SIGTERM)
    return [{} for _ in rows]
"""


@pytest.mark.long
@pytest.mark.promise("CD-32")
def test_a_terminated_process_group_finishes_batches_in_flight(place: Place) -> None:
    """`timeout` terminates a command in this way, together with all processes that it started. The JVM runs until the
    batch is committed."""
    land_four_files(place)
    (place.folder / "calls.py").write_text(TERMINATES)
    file = place.define(ORDERS.replace("destinations:", '  - python: "calls:terminate"\ndestinations:'))
    command = [sys.executable, "-c", "from runners.command_line.cli import main; main()", "run", file.name, "--json"]
    program = ["sh", "-c", 'export GROUP=$$; exec "$@"', "sh", *command]
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("SPARK_", "PYSPARK_"))}
    ended = subprocess.run(
        program,
        cwd=place.folder,
        env={**environment, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
        start_new_session=True,
    )
    assert ended.returncode == 3, ended.stderr
    report = json.loads(ended.stdout)
    assert (report["status"], report["reason"], report["batches"]) == ("stopped", "signal SIGTERM", 1)
    assert place.ids("tables/orders") == [1]
