"""A batch that takes longer than the lease, with a state in a catalog's schema. One clock, moved by hand, serves both
runs."""

from __future__ import annotations

import queue
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import datetime, timedelta, timezone
from typing import Any

import pytest

from origins.crash_points import watch_points
from runners.definitions.definition import load
from runners.engine.dispatcher import Dispatcher
from runners.model.entry import Entry
from runners.model.errors import Owned
from runners.running.run import PipelineRun
from runners.state.journal import Lease
from runners.state.location import StateLocation
from tests.manual_clock import ManualClock
from tests.scenarios.conftest import Place, make_order

LEASE = 60.0
LOOK = 10.0
"""How many seconds pass between two looks of a run that waits for the owner."""
ENOUGH = 60.0
"""After how many seconds a renewal that does not come fails the test."""
DEFINITION = """
name: orders
origin: {files: {path: "landing/*.json", format: json, schema: "id long, email string, amount string"}}
destinations: [delta: {table: lease_state.orders}]
state: {schema: lease_state}
run: {lease: 60s}
"""

pytestmark = [pytest.mark.spark, pytest.mark.connect]


@dataclass
class Waiting(ManualClock):
    """The clock of both runs. Its time of day is an hour ahead, so that only silence keeps a run from the pipeline."""

    time: datetime = field(default_factory=lambda: datetime.now(timezone.utc) + timedelta(hours=1))
    passes: Callable[[], None] = lambda: None
    """Is called after each wait."""

    def wait(self, seconds: float) -> None:
        super().wait(seconds)
        self.passes()


class Runs:
    """Two runs of a pipeline. The second one wants it while the first one has a batch in flight."""

    def __init__(self, place: Place) -> None:
        self.place, self.file, self.clock = place, place.define(DEFINITION), Waiting()
        self.renewed: queue.Queue[float] = queue.Queue()
        """The end of each lease that was renewed."""
        self.first = self.make()

    def make(self) -> PipelineRun:
        """Return a run that has not begun."""
        given = load(self.file)
        return PipelineRun(pipeline=given.pipeline, text=given.text, hash=given.hash, clock=self.clock)

    def let_owner_work(self) -> None:
        """Let the dispatcher of the first run have the turn that is due, if any."""
        dispatcher = self.first.dispatcher
        assert dispatcher is not None
        assert dispatcher.journal.tenure is not None
        if dispatcher.journal.tenure.due <= self.clock.elapsed():
            while not self.renewed.empty():
                self.renewed.get()
            dispatcher.worker_pool.wake()
            self.renewed.get(timeout=ENOUGH)

    def list_entries(self) -> list[Entry]:
        """Return the entries of the ledger, as far as they are not compacted."""
        return StateLocation.of(load(self.file).pipeline).open_ledger(self.place.spark).read()

    def list_ids(self) -> list[int]:
        """Return the ids in the table."""
        return sorted(row["id"] for row in self.place.spark.table("lease_state.orders").collect())


@pytest.fixture
def runs(place: Place, monkeypatch: pytest.MonkeyPatch) -> Iterator[Runs]:
    """Provide the runs with one file of two rows. No dispatcher looks at a clock: it has turns when it is woken."""
    place.spark.sql("create schema lease_state")
    place.land("1.json", [make_order(1), make_order(2)])
    made = Runs(place)
    note = Lease.note_renewal

    def note_and_tell(lease: Lease, began: float, seconds: float) -> None:
        note(lease, began, seconds)
        made.renewed.put(lease.until)

    monkeypatch.setattr(Lease, "note_renewal", note_and_tell)
    monkeypatch.setattr(Dispatcher, "patience", lambda _: None)
    monkeypatch.setattr("runners.state.ownership.PAUSE", LOOK)
    yield made
    place.spark.sql("drop schema lease_state cascade")


def carry_while(runs: Runs, happens: Callable[[], None]) -> Any:
    """Carry the first run. Before its write begins, this happens, once. Return its report."""
    left = [happens]

    def watch(point: str, of: str, rows: Any) -> Any:
        if point == "before-write" and left:
            left.pop()()
        return rows

    with watch_points(watch):
        return runs.first.carry()


def test_a_batch_may_take_longer_than_the_lease(runs: Runs) -> None:
    """The owner renews the lease during the batch, so each of four later runs is refused after a third of a lease."""
    runs.clock.passes = runs.let_owner_work
    refused: list[str] = []

    def ask_again() -> None:
        for _ in range(4):
            with pytest.raises(Owned) as caught:
                runs.make().carry()
            refused.append(caught.value.message)

    report = carry_while(runs, ask_again)
    assert (report.status, report.read, runs.list_ids()) == ("succeeded", 2, [1, 2])
    assert (len(refused), runs.clock.seconds > LEASE) == (4, True)
    assert {"is running already" in each for each in refused} == {True}
    kinds = [entry.kind for entry in runs.list_entries()]
    assert kinds == ["acquire", "open", "renew", "plan", *["renew"] * 4, "settle", "release"]


def test_an_owner_that_is_frozen_longer_than_the_lease_is_fenced(runs: Runs) -> None:
    """Another run waits one lease, takes the pipeline and delivers the batch. The thawed owner writes nothing."""
    taken = []
    report = carry_while(runs, lambda: taken.append(runs.make().carry()))
    (taker,) = taken
    assert (taker.status, taker.read, runs.clock.seconds) == ("succeeded", 2, LEASE)
    assert (report.status, report.error.code) == ("failed", "FENCED")
    assert runs.list_ids() == [1, 2]
    entries = runs.list_entries()
    (first, second) = (entry for entry in entries if entry.kind == "acquire")
    assert [entry.kind for entry in entries if entry.seq > second.seq and entry.owner == first.owner] == []
    history = runs.place.spark.sql("describe history lease_state.orders").collect()
    assert sum(row["operation"] == "WRITE" for row in history) == 1
