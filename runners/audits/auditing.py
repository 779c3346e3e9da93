"""An audit's evidence: the ledger is read, then every destination and the DLQ, then the ledger once more."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from destinations.dead_letters import asked
from destinations.delta import Delta
from destinations.destination import Destination, DestinationError
from runners.audits.audit import audited
from runners.audits.audit_letters import Held, Queue
from runners.audits.finding import Audit
from runners.audits.said import Said
from runners.clock import Clock
from runners.journal import Journal, settled_ever
from runners.layout import resolved
from runners.line import named
from runners.owners.taking import lives
from runners.pipeline import Pipeline
from runners.place import Place, check_pipeline
from runners.session import obtain
from runners.state import is_aside

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_COUNTS = (
    "SELECT plan, lane, number, pipeline, count(*) AS n, count(DISTINCT id) AS ids FROM {table} GROUP BY 1, 2, 3, 4"
)


def audit(pipeline: Pipeline) -> Audit:
    """Compare what the ledger says with what every destination and the DLQ can show.

    Changes nothing, and may be called while the pipeline is run. Needs Spark only for tables that do not lie in a
    folder of this machine.
    """
    place = Place.of(pipeline)

    def spark() -> SparkSession:
        return obtain(pipeline.spark.conf, pipeline.spark.packages)

    destinations = named(pipeline.every_destination)
    said = _said(pipeline, place, spark)
    accounts = {name: each.account(spark, pipeline.name) for name, each in destinations.items()}
    dlq = pipeline.dlq.destination or place.dlq()
    queue = _queue(dlq, spark, said)
    said = _changed(pipeline, said)
    afterwards = _said(pipeline, place, spark)
    said = replace(said, later=afterwards.known, running=said.running or afterwards.running)
    return audited(said, accounts, resolved(destinations), queue)


def _said(pipeline: Pipeline, place: Place, spark: Callable[[], SparkSession]) -> Said:
    journal = Journal(place.ledger(spark() if place.needs_spark else None))
    state = journal.state
    check_pipeline(pipeline, place, state)
    settled = settled_ever(journal)
    return Said(
        state=replace(state, pipeline=pipeline.name),
        settled=settled,
        running=lives(state, place, Clock()),
        doubles=tuple(name for name, each in named(pipeline.every_destination).items() if not _merges(each)),
        whole=frozenset(
            each.lane
            for each in settled
            for origin in pipeline.every_origin
            if origin.keeps_parts and not is_aside(each.lane) and pipeline.owns(origin, each.lane)
        ),
    )


def _merges(destination: Destination) -> bool:
    """Whether a row that comes again takes the place of the one that is there."""
    return isinstance(destination, Delta) and destination.mode == "merge"


def _changed(pipeline: Pipeline, said: Said) -> Said:
    """With what has changed at the origins since it was carried."""
    found: dict[str, Mapping[str, str]] = {}
    for origin in pipeline.every_origin if said.whole else ():
        lanes = [lane for lane in said.whole if pipeline.owns(origin, lane)]
        batches = [each for lane in lanes for each in said.lanes[lane] if said.state.carried(each)]
        changed = origin.changed([part for each in batches for part in each.span["parts"]]) if batches else {}
        found.update(dict.fromkeys(lanes, changed))
    return replace(said, changed=found)


def decided_of(pipeline: Pipeline, spark: Callable[[], SparkSession]) -> frozenset[str]:
    """The ids of refused rows on which somebody decided."""
    return _said(pipeline, Place.of(pipeline), spark).decided


def _queue(dlq: Destination, spark: Callable[[], SparkSession], said: Said) -> Queue:
    """What the DLQ has of each batch; where that is not what was refused, also which rows these are."""
    try:
        counted = asked(dlq, spark, _COUNTS)
    except DestinationError as error:
        if not isinstance(dlq, Delta):
            return Queue(place=dlq.place)
        return Queue(place=dlq.place, account=dlq.account(spark, said.state.pipeline), unreadable=error.message)
    mine = [row for row in counted if row["pipeline"] == said.state.pipeline]
    refused = {each.plan: each.counts.get("nacked", 0) for each in said.settled}
    odd = {row["plan"] for row in mine if row["ids"] != refused.get(row["plan"], row["ids"])}
    which: dict[str, set[str]] = {}
    for row in asked(dlq, spark, "SELECT id, plan FROM {table}") if odd else ():
        if row["plan"] in odd:
            which.setdefault(row["plan"], set()).add(row["id"])
    held = [
        Held(
            plan=row["plan"],
            lane=row["lane"],
            number=row["number"],
            rows=row["n"],
            distinct=row["ids"],
            ids=frozenset(which.get(row["plan"], ())),
        )
        for row in mine
    ]
    account = dlq.account(spark, said.state.pipeline) if _lacks(held, refused) or not held else None
    there = account is None or account.there
    return Queue(place=dlq.place, held=held, account=account, there=there)


def _lacks(held: Sequence[Held], refused: dict[str, int]) -> bool:
    there = {each.plan: each.distinct for each in held}
    return any(there.get(plan, 0) < rows for plan, rows in refused.items())
