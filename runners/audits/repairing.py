"""Repair: what an audit finds and what can be mended without guessing is mended; all else needs a person.

Safe is what brings back exactly what was there, or finishes what was decided: open and owed batches are finished as the
next run would; rows that left an append-only table, or the DLQ, as a whole commit are put back from their own files.
Carrying again through the definition of today, taking rows out, and saying that something is right as it is, are
a person's. Each repair is recorded in the ledger before it is made.
"""

from __future__ import annotations

import getpass
import socket
from collections.abc import Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from destinations.account import Brought
from destinations.delta import Delta
from destinations.delta_table import Table
from destinations.destination import Destination, DestinationError
from destinations.dlq import DLQ
from origins.batch import JSON
from runners.audits.auditing import audit, decided_of
from runners.audits.finding import Audit, Finding
from runners.clock import Clock
from runners.errors import Owned, Refusal
from runners.journal import Journal
from runners.ledgers.entry import Entry
from runners.ledgers.ledger import Conflict
from runners.line import named
from runners.owners.ownership import StateLock
from runners.owners.taking import Taking
from runners.pipeline import Pipeline
from runners.place import Place
from runners.session import obtain, own

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import SparkSession


@dataclass(frozen=True, kw_only=True)
class Repaired:
    """What was done, what could not be done, and the audit afterwards."""

    done: Sequence[str]
    failed: Sequence[str] = ()
    audit: Audit
    accepted: Sequence[str] = field(default=())

    def json(self) -> dict[str, JSON]:
        """As `wherry repair --json` prints it."""
        return {
            "done": list(self.done),
            "failed": list(self.failed),
            "accepted": list(self.accepted),
            "audit": self.audit.json(),
        }


def repair(pipeline: Pipeline, *, reason: str, accept: Sequence[str] = ()) -> Repaired:
    """Mend what an audit finds and what is safe to mend; what is in `accept` counts as right as it is from now on.

    Raises `Owned` while the pipeline is run, and `Refusal` for an id that the audit does not find.
    """
    if not reason.strip():
        raise Refusal("A repair needs a reason; it is kept in the ledger.", hint='--reason "…"')
    found = audit(pipeline)
    members = _members(found, accept)
    done: list[str] = []
    failed: list[str] = []
    wanted = [finding for finding in found.problems if finding.id not in accept]
    if any(finding.remedy == "finish" for finding in wanted):
        done += _finished(pipeline, failed)
    back = [finding for finding in wanted if finding.remedy == "put_back"]
    if members or back:
        with _alone(pipeline) as journal:
            _record(journal, reason, members, back)
            for name in dict.fromkeys(finding.destination for finding in back):
                mine = [finding for finding in back if finding.destination == name]
                _put_back(pipeline, str(name), mine, done, failed)
    return Repaired(done=done, failed=failed, accepted=members, audit=audit(pipeline))


def _members(found: Audit, accept: Sequence[str]) -> list[str]:
    """What these ids stand for."""
    by_id = {finding.id: finding for finding in found.problems}
    unknown = [each for each in accept if each not in by_id]
    if unknown:
        known = ", ".join(by_id) or "nothing"
        raise Refusal(
            f"The audit does not find {', '.join(unknown)}; it finds {known}.", hint="wherry audit FILE --json"
        )
    return [member for each in accept for member in by_id[each].members or [each]]


def _finished(pipeline: Pipeline, failed: list[str]) -> list[str]:
    """Finish what the last run left open, as the next one would, and plan nothing."""
    from runners.definitions.definition import of
    from runners.run import Run

    definition = of(pipeline)
    run = Run(pipeline=definition.pipeline, text=definition.text, hash=definition.hash, finish=True)
    report = run.carry()
    if report.error is not None:
        failed.append(f"what was left open is not finished: {report.error}")
        return []
    return ["what the last run left open is finished"]


def _record(journal: Journal, reason: str, accepted: Sequence[str], back: Sequence[Finding]) -> None:
    who = f"{getpass.getuser()}@{socket.gethostname()}"
    body: Mapping[str, JSON] = {
        "who": who,
        "reason": reason,
        "accepted": list(accepted),
        "puts_back": [{"destination": each.destination, "plans": list(each.plans)} for each in back],
    }
    try:
        journal.ledger.append([Entry(kind="repair", epoch=journal.state.epoch, body=body)], after=journal.state.seq)
    except Conflict as error:
        raise Owned("The pipeline was started while it was to be repaired; nothing was done.") from error


def _put_back(pipeline: Pipeline, name: str, found: Sequence[Finding], done: list[str], failed: list[str]) -> None:
    from destinations.delta_back import put_back

    spark = own(obtain(pipeline.spark.conf, pipeline.spark.packages), pipeline.run_options.time_zone)
    destination = _destination(pipeline, name)
    if not isinstance(destination, Delta):
        failed.append(f"{name}: rows are put back into Delta tables only")
        return
    table = Table.find(spark, destination.sql_name, destination.folder)
    account = destination.account(lambda: spark, pipeline.name)
    but = decided_of(pipeline, lambda: spark) if name == DLQ else None
    if table is None:
        failed.append(f"{name}: the table is gone")
        return
    for commit in _commits(account.brought, {plan for each in found for plan in each.plans}):
        said = ", ".join(f"batch {each.label['number']} of lane {each.label['lane']}" for each in commit)
        try:
            rows = put_back(spark, table, commit, but=but)
        except DestinationError as error:
            failed.append(f"{said}, {name}: {error}")
        else:
            done.append(f"{said}, {name}: {rows:,} rows put back as version {commit[0].version} had them")


def _commits(brought: Sequence[Brought], plans: set[str]) -> list[list[Brought]]:
    """The newest commit of each of these plans, with all batches that came in it; each once."""
    newest = {each.label["plan"]: each.version for each in brought if each.label["plan"] in plans}
    versions = sorted({version for version in newest.values() if version is not None})
    return [[each for each in brought if each.version == version] for version in versions]


def _destination(pipeline: Pipeline, name: str) -> Destination:
    if name == DLQ:
        return pipeline.dlq.destination or Place.of(pipeline).dlq()
    return named(pipeline.every_destination)[name]


@contextmanager
def _alone(pipeline: Pipeline) -> Iterator[Journal]:
    """The ledger, while nobody runs the pipeline."""
    place = Place.of(pipeline)
    lock = StateLock(place.lock)
    if not lock.acquire():
        raise Owned(f"{pipeline.name} is running; it can be repaired when it has stopped.")
    try:
        spark: SparkSession | None = None
        if place.needs_spark:
            spark = obtain(pipeline.spark.conf, pipeline.spark.packages)
        journal = Journal(place.ledger(spark))
        Taking(pipeline=pipeline.name, place=place, lock=lock, clock=Clock()).may(journal)
        yield journal
    finally:
        lock.release()
