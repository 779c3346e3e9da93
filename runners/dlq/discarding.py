"""Throwing rows of the DLQ away on purpose: they stay where they are, and nobody waits for them any more."""

from __future__ import annotations

import getpass
import socket
import uuid
from collections.abc import Iterator, Sequence
from datetime import datetime, timezone
from typing import TYPE_CHECKING

from origins.batch import Batch, Span
from runners.clock import Clock
from runners.dlq.letters import DISCARDS, decided
from runners.dlq.replay import MOST, Choice, Letter
from runners.errors import Owned, Refusal
from runners.journal import Journal
from runners.ledgers.entry import Entry
from runners.ledgers.ledger import Conflict
from runners.numbered import counted
from runners.owners.taking import lives
from runners.pipeline import Pipeline
from runners.place import Place, check_pipeline
from runners.plan import Plan
from runners.session import obtain
from runners.state import REPLAY, State, is_replay

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def discard(pipeline: Pipeline, choice: Choice, *, reason: str, expected: int | None = None) -> int:
    """Settle the rows as thrown away, with who did it and why; how many there were.

    May be called while the pipeline is run, but not while its DLQ is carried again. With `expected`, the number of
    rows that somebody was told of, nothing is done where there are more now.
    """
    if not reason.strip():
        raise Refusal("Throwing rows away needs a reason; it is kept in the ledger.", hint='--reason "…"')
    while True:
        journal, letters = chosen(pipeline, choice)
        if expected is not None and len(letters) > expected:
            raise Refusal(
                f"There are {counted(len(letters))} now, and there were {counted(expected)}: nothing was discarded.",
                hint="Look at them again:  wherry dlq show FILE",
            )
        if not letters:
            return 0
        entries = list(_entries(pipeline, journal.state, letters, reason))
        try:
            journal.ledger.append(entries, after=journal.state.seq)
        except Conflict:
            continue
        return len(letters)


def chosen(pipeline: Pipeline, choice: Choice) -> tuple[Journal, list[Letter]]:
    """The ledger, and the rows that are meant and wait. Raises `Owned` while the DLQ is carried again."""
    place = Place.of(pipeline)

    def spark() -> SparkSession:
        return obtain(pipeline.spark.conf, pipeline.spark.packages)

    journal = Journal(place.ledger(spark() if place.needs_spark else None))
    state = journal.state
    check_pipeline(pipeline, place, state)
    if _is_replaying(place, state) or any(is_replay(plan.batch.lane) for plan in state.open_plans):
        raise Owned(
            f"Rows of the dead letter queue of {pipeline.name} are being carried again; nothing was discarded.",
            hint="Wait for that run to end. If it died, run the pipeline once, so that what it left open is finished.",
        )
    dlq = pipeline.dlq.destination or place.dlq()
    return journal, choice.of(dlq, spark, decided(journal))


def _is_replaying(place: Place, state: State) -> bool:
    return bool((state.owner or {}).get("replay")) and lives(state, place, Clock())


def _entries(pipeline: Pipeline, state: State, letters: Sequence[Letter], reason: str) -> Iterator[Entry]:
    """For each origin batches that go to no destination, planned and settled at once."""
    said = {"who": f"{getpass.getuser()}@{socket.gethostname()}", "reason": reason}
    for origin in dict.fromkeys(letter.origin for letter in letters):
        ids = [letter.id for letter in letters if letter.origin == origin]
        lane = f"{REPLAY}{origin}"
        for number, first in enumerate(range(0, len(ids), MOST), state.lane(lane).number + 1):
            own = tuple(ids[first : first + MOST])
            plan = Plan(batch=_batch(pipeline, origin, number, own), destinations=(), straight=True)
            counts = {"read": len(own), "nacked": 0, "branches": {}, "stages": [], "delivered": {}, "balanced": True}
            body = {
                "offset": own[-1],
                "counts": {**counts, "discarded": len(own), DISCARDS: said},
                "window": state.lane(lane).window.json(),
                "clean": state.lane(lane).clean,
                "owed": [],
            }
            name = plan.batch.plan
            yield Entry(kind="plan", lane=lane, plan=name, epoch=state.epoch, body=plan.json())
            yield Entry(kind="settle", lane=lane, plan=name, epoch=state.epoch, body=body)


def _batch(pipeline: Pipeline, origin: str, number: int, ids: tuple[str, ...]) -> Batch:
    return Batch(
        pipeline=pipeline.name,
        run="",
        origin=origin,
        lane=f"{REPLAY}{origin}",
        number=number,
        plan=uuid.uuid4().hex,
        span=Span(start=None, end=ids[-1], parts=ids, label=f"{counted(len(ids))} that were discarded"),
        schema="",
        time=datetime.now(timezone.utc),
    )
