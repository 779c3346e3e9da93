"""A process that shares six lanes of numbers, without Spark: `python -m tests.runners.state.sharer FOLDER`.

The ledger, the locks, the dispatcher and the lane coordination are the real ones. A file with the name of its plan
stands for a delivered batch. Each event is printed as one line.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

from destinations.destination import Written
from origins.batch import JSON, Backlog, Limits, Span
from origins.origin import read_count
from runners.engine.batch_machine import DeliveryRules
from runners.engine.batch_planner import BatchPlanner, OriginFeed
from runners.engine.dispatcher import Dispatcher
from runners.engine.lane_coordination import LaneCoordination
from runners.engine.worker_pool import WorkerPool
from runners.model.clock import Clock
from runners.model.entry import Entry
from runners.model.events import Event
from runners.model.planned_batch import BranchCounts, Counts
from runners.model.tasks import Answers, AskDestinations, Counted, CountSpan, Landed, Outcome, Task, WriteStraight
from runners.state.journal import Journal, Lease
from runners.state.location import StateLocation
from runners.state.ownership import Takeover
from runners.state.process_locks import StateLock, identify_host

LANES = ("0", "1", "2", "3", "4", "5")
ROWS = 300
"""The number of rows in each lane."""
MOST = 5
"""The largest number of rows in a batch."""
HASH = "definition"


class Numbers(Backlog):
    """Each lane has the numbers up to `ROWS`. Its offset is the last number."""

    def take(self, lane: str, start: JSON, limits: Limits) -> Span | None:
        first = int(start or 0)
        if first >= ROWS:
            return None
        return Span(start=start, end=min(ROWS, first + MOST), parts=(), label=f"behind {first}")


def locate_state(folder: Path) -> StateLocation:
    """Return the location of the state."""
    return StateLocation(directory=folder / "state", schema="", name="numbers")


def main(folder: Path) -> None:
    """Process rows with the other runs until no rows are left."""
    place, landed = locate_state(folder), folder / "landed"
    place.make()
    landed.mkdir(exist_ok=True)
    lock = StateLock(place.lock.with_name(f"lock-{os.getpid()}"))
    assert lock.acquire()
    tenure = Lease(Clock(), 20)
    journal = Journal(place.open_ledger(None), tenure)
    terms: dict[str, JSON] = {"assignment": "round_robin", "hash": HASH}
    taking = Takeover(pipeline="numbers", place=place, lock=lock, clock=tenure.clock, **terms)
    who = {**vars(identify_host()), "pipeline": "numbers", "jvm": None, "lock": lock.path.name}
    journal.acquire({**who, **terms}, may=taking.may)

    def process(task: Task) -> Outcome:
        assert isinstance(task, WriteStraight | AskDestinations | CountSpan), "one destination, and nothing is refused"
        batch = task.plan.batch
        rows = read_count(batch.span.end) - read_count(batch.span.start)
        if isinstance(task, AskDestinations):
            return Answers(found={name: Written(rows=rows) for name in task.names if (landed / batch.plan).exists()})
        if isinstance(task, CountSpan):
            return Counted(read=rows, left=rows)
        new = folder / f"{batch.plan}-{os.getpid()}"
        new.write_text(json.dumps([batch.lane, read_count(batch.span.start), batch.span.end]), encoding="utf-8")
        os.rename(new, landed / batch.plan)
        counts = Counts(read=rows, branches={"numbers": BranchCounts(expected=rows)})
        return Landed(written={"numbers": Written(rows=rows)}, counts=counts)

    coordination = LaneCoordination(journal=journal, tenure=tenure, place=place, lanes=LANES, definition=HASH)
    worker_pool = WorkerPool(2, process)
    dispatcher = Dispatcher(
        journal=journal,
        worker_pool=worker_pool,
        clock=tenure.clock,
        rules=DeliveryRules(),
        max_in_flight=len(LANES),
        committed={},
        forget=lambda plan: None,
        listeners=[_print_event],
    )
    coordination.await_opening(lambda: False)
    journal.record(Entry(kind="open", body={"pipeline": "numbers", "run": "", "hash": HASH}))
    dispatcher.planning.source = BatchPlanner(
        pipeline="numbers",
        run="",
        definition=HASH,
        destinations=("numbers",),
        feeds=[
            OriginFeed(origin="n", lanes={lane: lane for lane in LANES}, schema="{}", backlog=Numbers(), straight=True)
        ],
    )
    coordination.begin()
    dispatcher.planning.coordination = coordination
    dispatcher.run()
    worker_pool.close()
    assert not dispatcher.errors, dispatcher.errors
    journal.record(Entry(kind="release", body={"status": "succeeded"}))


def _print_event(event: Event) -> None:
    print(type(event).__name__, flush=True)  # noqa: T201


if __name__ == "__main__":
    main(Path(sys.argv[1]))
