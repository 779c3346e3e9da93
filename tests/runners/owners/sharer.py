"""A process that shares six lanes of numbers, without Spark: `python -m tests.runners.owners.sharer FOLDER`.

The ledger, the locks, the dispatcher and the company are the real ones. A batch is delivered by a file that is called
by its plan; each event is told in a line.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

from destinations.destination import Written
from origins.batch import JSON, Limits, Span
from origins.origin import Backlog
from runners.clock import Clock
from runners.counts import Branch, Counts
from runners.crew import Threads
from runners.dispatcher import Dispatcher
from runners.events import Event
from runners.flight import Rules
from runners.journal import Journal
from runners.ledgers.entry import Entry
from runners.outcome import Answers, Ask, Carry, Count, Counted, Landed, Outcome, Task
from runners.owners.company import Company
from runners.owners.ownership import StateLock, host_identity
from runners.owners.taking import Taking
from runners.owners.tenure import Tenure
from runners.place import Place
from runners.source import Feed, Source

LANES = ("0", "1", "2", "3", "4", "5")
ROWS = 300
"""In each lane."""
MOST = 5
"""Rows in a batch."""
HASH = "definition"


class Numbers(Backlog):
    """Each lane has the numbers up to `ROWS`; its offset is the last one."""

    def take(self, lane: str, start: JSON, limits: Limits) -> Span | None:
        first = int(start or 0)
        if first >= ROWS:
            return None
        return Span(start=start, end=min(ROWS, first + MOST), parts=(), label=f"behind {first}")


def place_in(folder: Path) -> Place:
    """Where the state lies."""
    return Place(directory=folder / "state", schema="", name="numbers")


def main(folder: Path) -> None:
    """Carry with the others until all is carried."""
    place, landed = place_in(folder), folder / "landed"
    place.make()
    landed.mkdir(exist_ok=True)
    lock = StateLock(place.lock.with_name(f"lock-{os.getpid()}"))
    assert lock.acquire()
    tenure = Tenure(Clock(), 20)
    journal = Journal(place.ledger(None), tenure)
    terms: dict[str, JSON] = {"assignment": "round_robin", "hash": HASH}
    taking = Taking(pipeline="numbers", place=place, lock=lock, clock=tenure.clock, **terms)
    who = {**host_identity(), "pipeline": "numbers", "jvm": None, "lock": lock.path.name}
    journal.acquire({**who, **terms}, may=taking.may)

    def process(task: Task) -> Outcome:
        assert isinstance(task, Carry | Ask | Count), "one destination, and nothing is refused"
        batch = task.plan.batch
        rows = batch.span.end - int(batch.span.start or 0)
        if isinstance(task, Ask):
            return Answers(found={name: Written(rows=rows) for name in task.names if (landed / batch.plan).exists()})
        if isinstance(task, Count):
            return Counted(read=rows, left=rows)
        new = folder / f"{batch.plan}-{os.getpid()}"
        new.write_text(json.dumps([batch.lane, int(batch.span.start or 0), batch.span.end]), encoding="utf-8")
        os.rename(new, landed / batch.plan)
        counts = Counts(read=rows, branches={"numbers": Branch(expected=rows)})
        return Landed(written={"numbers": Written(rows=rows)}, counts=counts)

    company = Company(journal=journal, tenure=tenure, place=place, lanes=LANES, definition=HASH)
    crew = Threads(2, process)
    dispatcher = Dispatcher(
        journal=journal,
        crew=crew,
        clock=tenure.clock,
        rules=Rules(),
        max_in_flight=len(LANES),
        committed={},
        forget=lambda plan: None,
        listeners=[_tell],
    )
    company.await_opening(lambda: False)
    journal.record(Entry(kind="open", body={"pipeline": "numbers", "run": "", "hash": HASH}))
    dispatcher.source = Source(
        pipeline="numbers",
        run="",
        definition=HASH,
        destinations=("numbers",),
        feeds=[Feed(origin="n", lanes={lane: lane for lane in LANES}, schema="{}", backlog=Numbers(), straight=True)],
    )
    company.begin()
    dispatcher.company = company
    dispatcher.run()
    crew.close()
    assert not dispatcher.errors, dispatcher.errors
    journal.record(Entry(kind="release", body={"status": "succeeded"}))


def _tell(event: Event) -> None:
    print(type(event).__name__, flush=True)  # noqa: T201


if __name__ == "__main__":
    main(Path(sys.argv[1]))
