"""A batch's time is split into what it was spent on, and the parts are the whole."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import cast

import pytest

from destinations.dlq import DLQ
from runners.clock import ManualClock
from runners.counts import Counts
from runners.events import BatchPlanned, BatchSettled
from runners.ledgers.entry import Entry
from runners.ledgers.memory_ledger import MemoryLedger
from runners.outcome import Carry, Deliver, Landed, Outcome, Prepare, Prepared, Refused, Task
from runners.plan import Decision, Plan
from runners.report import Bookkeeper, DestinationReport
from runners.watch import PHASES, Watch
from tests.runners.test_dispatcher import Bench

PLAN = cast("Plan", None)
DECISION = cast("Decision", None)


@pytest.mark.parametrize(
    ("task", "outcome", "spent"),
    [
        (Carry(plan=PLAN), Landed(written={}, described=1), {"read": 1, "write": 4}),
        (Carry(plan=PLAN), Landed(written={}, described=9), {"read": 5}),
        (Carry(plan=PLAN), Refused(), {"write": 5}),
        (Prepare(plan=PLAN), Prepared(path="", counts=Counts(read=1)), {"read": 5}),
        (Deliver(plan=PLAN, decision=DECISION, names=[DLQ]), Landed(written={}), {"dlq": 5}),
        (Deliver(plan=PLAN, decision=DECISION, names=["a", "b"]), Landed(written={}), {"write": 5}),
        (Deliver(plan=PLAN, decision=DECISION, names=[DLQ, "a"]), Landed(written={}), {"write": 5}),
        (
            Deliver(plan=PLAN, decision=DECISION, names=[DLQ, "a"]),
            Landed(written={}, outlasted=2),
            {"write": 3, "dlq": 2},
        ),
    ],
)
def test_what_a_runner_did_says_where_its_time_went(task: Task, outcome: Outcome, spent: dict[str, float]) -> None:
    """A straight batch was read until its write began, as far as that can be told apart."""
    watch = Watch(10)
    watch.carried(task, outcome, 15)
    assert watch.spent == {**dict.fromkeys(PHASES, 0), **spent}


class SlowLedger(MemoryLedger):
    """A ledger of which each append takes a second."""

    def __init__(self, clock: ManualClock) -> None:
        super().__init__()
        self.clock = clock

    def append(self, entries: Sequence[Entry], *, after: int) -> list[Entry]:
        self.clock.move(1)
        return super().append(entries, after=after)


def test_all_of_a_batchs_time_is_accounted_for() -> None:
    """From its plan to its settling: two appends, a wait for the runner, and the runner's work."""
    bench = Bench(rows=1)
    clock = bench.dispatcher.clock = ManualClock()
    bench.journal.ledger = SlowLedger(clock)
    for entry in bench.ledger.read():
        bench.journal.ledger.append([entry], after=entry.seq - 1)
    began = clock.elapsed()
    bench.turn()
    clock.move(7)
    bench.turn("0")
    (settled,) = [event for event in bench.events if isinstance(event, BatchSettled)]
    assert settled.seconds == {"plan": 0, "read": 0, "write": 7, "dlq": 0, "ledger": 2, "rest": 0}
    assert sum(settled.seconds.values()) == clock.elapsed() - began
    assert bench.dispatcher.watches == {}


def test_a_batch_that_is_told_of_twice_counts_once() -> None:
    """First with what it owes, then whole."""
    bench = Bench(rows=1)
    bench.turn()
    (planned,) = [event for event in bench.events if isinstance(event, BatchPlanned)]
    counts = {
        "read": 1,
        "nacked": 0,
        "discarded": 0,
        "balanced": True,
        "stages": [],
        "delivered": {"a": 1},
        "branches": {name: {"filtered": 0, "changed": 0} for name in "ab"},
    }
    books = Bookkeeper(("a", "b"))
    early = dict.fromkeys(PHASES, 1.0)
    books(BatchSettled(batch=planned.batch, counts=counts, owed=("b",), seconds=early))
    later = {**early, "write": 3.0}
    books(BatchSettled(batch=planned.batch, counts={**counts, "delivered": {"a": 1, "b": 1}}, seconds=later))
    assert books.spent == later


def test_a_report_counts_for_each_destination_what_was_for_it() -> None:
    """Where batches part for their lanes: read is delivered, filtered and nacked, for each and in all."""
    bench = Bench(rows=1)
    bench.turn()
    (planned,) = [event for event in bench.events if isinstance(event, BatchPlanned)]
    books = Bookkeeper(("orders", "items"))
    figures = {"orders": (10, 0, 0), "items": (10, 5, 2)}
    for name, (read, filtered, nacked) in figures.items():
        counts = {
            "read": read,
            "nacked": nacked,
            "discarded": 0,
            "balanced": True,
            "stages": [],
            "delivered": {name: read - filtered - nacked},
            "branches": {name: {"filtered": filtered, "changed": 0}},
        }
        books(BatchSettled(batch=replace(planned.batch, plan=name), counts=counts))
    told = books.report(pipeline="p", run="r", status="succeeded", reason="", seconds=0.0, error=None)
    assert (told.read, told.filtered, told.nacked) == (20, 5, 2)
    assert told.destinations == {
        "orders": DestinationReport(read=10, delivered=10),
        "items": DestinationReport(read=10, delivered=3, filtered=5, nacked=2),
    }
