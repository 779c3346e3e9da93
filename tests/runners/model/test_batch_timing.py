"""The time of a batch is split into phases, and their sum is the whole time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, cast

import pytest

from destinations.dlq import DLQ
from origins.codec import decode
from runners.model.batch_timing import PHASES, BatchTiming
from runners.model.entry import Entry
from runners.model.events import BatchPlanned, BatchSettled
from runners.model.planned_batch import Counts, DecidedBatch, PlannedBatch, SettledCounts
from runners.model.run_report import DestinationReport, Report, RunReportBuilder
from runners.model.tasks import Declined, Deliver, Landed, Outcome, Prepare, Prepared, Task, WriteStraight
from runners.operations.printing import format_report
from tests.manual_clock import ManualClock
from tests.runners.engine.test_dispatcher import Bench
from tests.runners.state.ledger.memory_ledger import MemoryLedger

PLAN = cast("PlannedBatch", None)
DECISION = cast("DecidedBatch", None)


@pytest.mark.parametrize(
    ("task", "outcome", "spent"),
    [
        (WriteStraight(plan=PLAN), Landed(written={}, described=1), {"read": 1, "write": 4}),
        (WriteStraight(plan=PLAN), Landed(written={}, described=9), {"read": 5}),
        (WriteStraight(plan=PLAN), Declined(reason="a row is refused", way="straight"), {"write": 5}),
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
def test_the_time_of_a_task_is_split_into_phases(task: Task, outcome: Outcome, spent: dict[str, float]) -> None:
    """Until its write began, a straight batch was read, as far as the two can be separated."""
    watch = BatchTiming(10)
    watch.note_task(task, outcome, 15)
    assert watch.spent == {**dict.fromkeys(PHASES, 0), **spent}


class SlowLedger(MemoryLedger):
    """A ledger whose appends take one second each."""

    def __init__(self, clock: ManualClock) -> None:
        super().__init__()
        self.clock = clock

    def append(self, entries: Sequence[Entry], *, after: int) -> list[Entry]:
        self.clock.move(1)
        return super().append(entries, after=after)


def test_the_phases_add_up_to_the_whole_time_of_a_batch() -> None:
    """The time from plan to settle has two appends, a wait for the runner, and the runner's work."""
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
    assert bench.dispatcher.work.watches == {}


def test_a_report_counts_the_ways_that_batches_took() -> None:
    """A batch that settles twice counts once. A batch that an earlier run decided counts as resumed."""
    bench = Bench(rows=1)
    bench.turn()
    (planned,) = [event for event in bench.events if isinstance(event, BatchPlanned)]
    counts: Any = {
        "read": 1,
        "nacked": 0,
        "discarded": 0,
        "balanced": True,
        "stages": [],
        "delivered": {"a": 1},
        "branches": {"a": {"expected": 0, "filtered": 0, "changed": 0}},
    }
    report_builder = RunReportBuilder(("a",))
    for name, way, owed in (("p1", "straight", ()), ("p2", "apart", ("a",)), ("p2", "apart", ()), ("p3", "", ())):
        report_builder(
            BatchSettled(
                batch=replace(planned.batch, plan=name), counts=decode(SettledCounts, counts), owed=owed, way=way
            )
        )
    told = report_builder.complete(Report(pipeline="p", run="r", status="succeeded"))
    assert told.ways == told.json()["ways"] == {"straight": 1, "apart": 1, "resumed": 1}
    assert "apart" not in format_report(told, "orders.yaml")


def test_a_report_has_counts_for_each_destination() -> None:
    """Each lane goes to one destination. For each and in total: read + changed = delivered + filtered + nacked."""
    bench = Bench(rows=1)
    bench.turn()
    (planned,) = [event for event in bench.events if isinstance(event, BatchPlanned)]
    report_builder = RunReportBuilder(("orders", "items"))
    figures = {"orders": (10, 0, 0, 3), "items": (10, 5, 2, 0)}
    for name, (read, filtered, nacked, changed) in figures.items():
        counts: Any = {
            "read": read,
            "nacked": nacked,
            "discarded": 0,
            "balanced": True,
            "stages": [],
            "delivered": {name: read + changed - filtered - nacked},
            "branches": {name: {"expected": 0, "filtered": filtered, "changed": changed}},
        }
        report_builder(BatchSettled(batch=replace(planned.batch, plan=name), counts=decode(SettledCounts, counts)))
    told = report_builder.complete(Report(pipeline="p", run="r", status="succeeded"))
    assert (told.read, told.filtered, told.nacked) == (20, 5, 2)
    assert told.destinations == {
        "orders": DestinationReport(read=10, changed=3, delivered=13),
        "items": DestinationReport(read=10, delivered=3, filtered=5, nacked=2),
    }


def test_a_destination_that_a_backfill_skips_has_no_counts() -> None:
    """The rows were decided for all destinations, but its equation would not hold."""
    bench = Bench(rows=1)
    bench.turn()
    (planned,) = [event for event in bench.events if isinstance(event, BatchPlanned)]
    counts: Any = {
        "read": 3,
        "nacked": 1,
        "discarded": 0,
        "balanced": True,
        "stages": [],
        "delivered": {"latest": 2},
        "branches": {name: {"expected": 0, "filtered": 0, "changed": 0} for name in ("orders", "latest")},
    }
    report_builder = RunReportBuilder(("orders", "latest"))
    report_builder(BatchSettled(batch=planned.batch, counts=decode(SettledCounts, counts)))
    told = report_builder.complete(Report(pipeline="p", run="r", status="succeeded"))
    assert told.destinations["orders"] == DestinationReport()
    assert told.destinations["latest"] == DestinationReport(read=3, delivered=2, nacked=1)
