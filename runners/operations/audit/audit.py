"""The audit: compares the ledger with what every destination and the DLQ can show."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Literal

from destinations.capabilities import DeliveryAccount, find_account
from destinations.dead_letters import match_id, query_dlq, stream_fallback
from destinations.delta.delta import Delta
from destinations.destination import Destination, DestinationError
from destinations.dlq import DLQ, FALLBACK
from origins.batch import JSON
from origins.capabilities import KeepsParts
from origins.errors import WherryError, list_spark_errors
from origins.lazy import SparkSession
from runners.model.clock import Clock
from runners.model.entry import DestinationBody, Settled
from runners.model.pipeline_state import is_aside
from runners.model.spec import PipelineSpec
from runners.model.text import format_batches, summarise_error
from runners.operations.audit.delivery import PUT_BACK, DeliveryAudit
from runners.operations.audit.finding import ACCEPT, Audit, Finding, group_findings
from runners.operations.audit.ledger_claims import LedgerClaims, check_spans, count_rows_for
from runners.operations.pipeline_access import open_state
from runners.running.compatibility import resolve_names
from runners.running.merge_fallback import label_waiting
from runners.running.opening import list_carried_parts
from runners.state.journal import list_settled_ever
from runners.state.location import find_dlq
from runners.state.ownership import is_run
from runners.ways.stage_chain import name_destinations


def make_audit(
    claims: LedgerClaims, accounts: Mapping[str, DeliveryAccount | None], names: Mapping[str, str], queue: DlqContent
) -> Audit:
    """Return what adds up and what does not. `names` are today's names by all names that destinations have or had."""
    deliveries = {name: DeliveryAudit(claims, name, account, names) for name, account in accounts.items()}
    findings = [
        *_find_unbalanced(claims),
        *check_spans(claims),
        *_find_open(claims, deliveries.values()),
        *(finding for delivery in deliveries.values() for finding in delivery.list_findings()),
        *check_letters(claims, queue),
    ]
    known = {(plan, finding.destination) for finding in findings for plan in finding.plans}
    elsewhere = {finding.destination for finding in findings if finding.code in ("REPLACED", "TABLE_GONE")}
    findings += [
        finding
        for name, delivery in deliveries.items()
        if name not in elsewhere
        for finding in delivery.find_unproved()
        if not {(finding.plans[0], name), (finding.plans[0], None)} & known
    ]
    carried = {lane: [each for each in claims.lanes[lane] if claims.state.is_carried(each)] for lane in claims.lanes}
    accepted = claims.state.accepted
    return Audit(
        pipeline=claims.state.pipeline,
        lanes={lane: _summarise_lane(batches) for lane, batches in carried.items() if batches},
        read=_sum_counts(claims.counting, "read"),
        filtered=sum(
            branch.filtered for settled in claims.counting for branch in [*settled.counts.branches.values()][:1]
        ),
        nacked=_sum_counts(claims.counting, "nacked"),
        destinations={name: delivery.prove() for name, delivery in deliveries.items()},
        problems=group_findings(finding for finding in findings if finding.id not in accepted),
        accepted=group_findings(finding for finding in findings if finding.id in accepted),
        open=[
            {"lane": plan.batch.lane, "number": plan.batch.number, "label": plan.batch.span.label}
            for plan in claims.state.open_plans
        ],
        dlq=queue.json(claims),
        removed=_count_removed(claims, names),
    )


def _count_removed(claims: LedgerClaims, names: Mapping[str, str]) -> Mapping[str, Mapping[str, JSON]]:
    """Return the batches and rows that went to destinations with none of these names."""
    removed: dict[str, dict[str, JSON]] = {}
    for settled in claims.counting:
        for name in [each for each in settled.counts.delivered if each not in names]:
            known = removed.setdefault(name, {"batches": 0, "rows": 0})
            known["batches"] += 1
            known["rows"] += count_rows_for(settled, name) or 0
    return removed


def _find_unbalanced(claims: LedgerClaims) -> Iterator[Finding]:
    for settled in claims.settled:
        counts = settled.counts
        if counts.balanced is False:
            message = (
                f"the ledger settled it though its counts do not add up: read {counts.read}, "
                f"refused {counts.nacked}, delivered {counts.delivered}"
            )
            repair = (
                "Compare its rows at the origin with the rows in the destination; then accept it:  "
                'wherry repair FILE --accept ID --reason "…"'
            )
            yield Finding.about(settled, "UNBALANCED", message, repair)


def _find_open(claims: LedgerClaims, deliveries: Iterable[DeliveryAudit]) -> Iterator[Finding]:
    """Yield batches that were delivered and not settled, and batches that were settled and not delivered."""
    repair = 'The next run finishes it first. To do it now:  wherry repair FILE --reason "…"'
    for plan in () if claims.running else claims.state.open_plans:
        for name in plan.destinations:
            delivery = next((each for each in deliveries if name in each.names), None)
            is_delivered = delivery.has(f"{plan.batch.plan}/{name}") if delivery is not None else None
            if plan.published and not is_delivered:
                code, message = "OWED", "its offset is committed, but this destination does not have it"
            elif is_delivered and not plan.published:
                code, message = "NOT_SETTLED", "it was delivered here, but the run died before the ledger settled it"
            else:
                continue
            yield Finding.about(plan.batch, code, message, repair, destination=name, remedy="finish")


def _summarise_lane(batches: Sequence[Settled]) -> Mapping[str, JSON]:
    return {
        "batches": len(batches),
        "first": batches[0].number,
        "last": batches[-1].number,
        "read": _sum_counts(batches, "read"),
        "nacked": _sum_counts(batches, "nacked"),
    }


def _sum_counts(batches: Iterable[Settled], name: Literal["read", "nacked"]) -> int:
    return sum(getattr(settled.counts, name) for settled in batches)


_COUNTS = (
    "SELECT plan, lane, number, pipeline, count(*) AS n, count(DISTINCT id) AS ids FROM {table} GROUP BY 1, 2, 3, 4"
)


def audit(pipeline: PipelineSpec) -> Audit:
    """Compare the ledger with what every destination and the DLQ can show.

    It changes nothing, and may be called during a run. It needs Spark only for tables that are not in a folder of this
    machine.
    """
    dlq, spark = find_dlq(pipeline)
    destinations = name_destinations(pipeline.every_destination)
    claims = read_claims(pipeline)
    accounts = {name: find_account(each, spark, pipeline.name) for name, each in destinations.items()}
    queue = replace(_read_dlq(dlq, spark, claims), fallback=_read_fallback(pipeline, spark, claims))
    claims = _find_changed(pipeline, claims)
    afterwards = read_claims(pipeline)
    claims = replace(claims, later=afterwards.known, running=claims.running or afterwards.running)
    return make_audit(claims, accounts, resolve_names(destinations), queue)


def read_claims(pipeline: PipelineSpec) -> LedgerClaims:
    """Return what the ledger records about the batches."""
    place, journal = open_state(pipeline)
    state = journal.state
    settled = list_settled_ever(journal)
    lanes = {each.lane for each in settled if not is_aside(each.lane)}
    return LedgerClaims(
        state=replace(state, pipeline=pipeline.name),
        settled=settled,
        running=is_run(state, place, Clock()),
        doubles=tuple(
            name
            for name, each in name_destinations(pipeline.every_destination).items()
            if not (isinstance(each, Delta) and each.mode == "merge")
        ),
        whole=frozenset(lane for lane in lanes if isinstance(pipeline.find_origin_of(lane), KeepsParts)),
    )


def _find_changed(pipeline: PipelineSpec, claims: LedgerClaims) -> LedgerClaims:
    """Add what has changed at the origins since it was processed."""
    changes: dict[str, Mapping[str, str]] = {}
    for origin in pipeline.every_origin if claims.whole else ():
        if isinstance(origin, KeepsParts):
            lanes = [lane for lane in claims.whole if pipeline.owns(origin, lane)]
            parts = list_carried_parts(pipeline, origin, claims.counting) if lanes else ()
            changes.update(dict.fromkeys(lanes, origin.find_changed(parts) if parts else {}))
    return replace(claims, changed=changes)


def _read_dlq(dlq: Destination, spark: Callable[[], SparkSession], claims: LedgerClaims) -> DlqContent:
    """Count the rows of each batch in the DLQ. If a count differs from the refused rows, also read their ids."""
    try:
        counted = query_dlq(dlq, spark, _COUNTS)
    except DestinationError as error:
        if not isinstance(dlq, Delta):
            return DlqContent(place=dlq.place)
        return DlqContent(place=dlq.place, account=dlq.account(spark, claims.state.pipeline), unreadable=error.message)
    mine = [row for row in counted if row["pipeline"] == claims.state.pipeline]
    refused = {each.plan: each.counts.nacked for each in claims.settled}
    odd = {row["plan"] for row in mine if row["ids"] != refused.get(row["plan"], row["ids"])}
    which: dict[str, set[str]] = {}
    for row in query_dlq(dlq, spark, "SELECT id, plan FROM {table}") if odd else ():
        if row["plan"] in odd:
            which.setdefault(row["plan"], set()).add(row["id"])
    held = [
        HeldLetters(
            plan=row["plan"],
            lane=row["lane"],
            number=row["number"],
            rows=row["n"],
            distinct=row["ids"],
            ids=frozenset(which.get(row["plan"], ())),
        )
        for row in mine
    ]
    distinct = {letters.plan: letters.distinct for letters in held}
    lacks = not held or any(distinct.get(plan, 0) < rows for plan, rows in refused.items())
    account = find_account(dlq, spark, claims.state.pipeline) if lacks else None
    there = account is None or account.there
    return DlqContent(place=dlq.place, held=held, account=account, there=there)


def _read_fallback(pipeline: PipelineSpec, spark: Callable[[], SparkSession], claims: LedgerClaims) -> FallbackContent:
    """Read the ids of the batches whose refused rows wait in the fallback."""
    fallen, fallback = claims.state.fallen, pipeline.dlq.fallback
    known = claims.state.opened.destinations.get(FALLBACK, DestinationBody(place="the fallback"))
    if not fallen or fallback is None:
        why = "the definition has no fallback" if fallen else ""
        return FallbackContent(place=known.place, unreadable=why)
    ids: dict[str, set[str]] = {}
    labels = [label_waiting(pipeline.name, settled) for settled in claims.settled if settled.plan in fallen]
    try:
        for table in stream_fallback(fallback, spark, labels, ("id", "plan")):
            for row in table.to_pylist():
                if row["plan"] in fallen and re.fullmatch(match_id(row["plan"]), row["id"] or ""):
                    ids.setdefault(row["plan"], set()).add(row["id"])
    except list_spark_errors(WherryError) as error:
        own = error.message if isinstance(error, WherryError) else ""
        reason = own or pipeline.protection.mask_error(error, summarise_error(error))
        return FallbackContent(place=fallback.place, unreadable=reason)
    return FallbackContent(place=fallback.place, ids={plan: frozenset(each) for plan, each in ids.items()})


@dataclass(frozen=True, kw_only=True)
class FallbackContent:
    """The content of the fallback."""

    place: str = ""
    ids: Mapping[str, frozenset[str]] = field(default_factory=dict)
    """The ids of its refused rows, by the plan of their batch."""
    unreadable: str = ""
    """Why its rows cannot be read."""


@dataclass(frozen=True, kw_only=True)
class HeldLetters:
    """The rows that the DLQ has of one batch."""

    plan: str
    lane: str
    number: int
    rows: int
    ids: frozenset[str] = frozenset()
    """The ids of the rows. Only for a batch whose count differs from the number of its refused rows."""
    distinct: int = 0


@dataclass(frozen=True, kw_only=True)
class DlqContent:
    """The content of the DLQ."""

    place: str = ""
    held: Sequence[HeldLetters] | None = None
    """The rows of each batch, or None if the rows of the DLQ cannot be read again."""
    account: DeliveryAccount | None = None
    there: bool = True
    unreadable: str = ""
    """Why its rows cannot be read, although it keeps them."""
    fallback: FallbackContent = FallbackContent()

    @cached_property
    def by_plan(self) -> Mapping[str, HeldLetters]:
        """The rows of each batch, by its plan."""
        return {held.plan: held for held in self.held or ()}

    def json(self, claims: LedgerClaims) -> Mapping[str, JSON] | None:
        """Return how many rows the DLQ should have, and how many it has."""
        if self.held is None:
            return None
        refused = sum(map(_count_refused, claims.settled))
        counted = {"rows": sum(held.rows for held in self.held), "fallback": sum(claims.state.fallen.values())}
        return {"refused": refused, "decided": len(claims.decided), **counted}


def check_letters(claims: LedgerClaims, queue: DlqContent) -> Iterator[Finding]:
    """Yield findings about refused rows that are missing, that are stored twice, or that no batch refused."""
    if queue.unreadable:
        yield from _find_harmed(queue)
    yield from _check_fallback(claims, queue)
    if queue.held is None:
        return
    fallen = claims.state.fallen
    lacking = [
        settled
        for settled in claims.counting
        if settled.plan not in fallen and _count_missing(claims, queue, settled) > 0
    ]
    if not queue.there and lacking:
        yield Finding(
            code="DLQ_GONE",
            destination=DLQ,
            message=f"{queue.place} is missing; it held the refused rows of {len(lacking):,} batches",
            repair=f"Restore a backup there; without a backup, process these batches again. {ACCEPT}",
        )
        return
    for settled in lacking:
        yield _report_missing(claims, queue, settled)
    for held in queue.by_plan.values():
        if held.distinct < held.rows:
            message = f"{held.rows - held.distinct} of its refused rows are there twice"
            yield Finding.about(held, "DLQ_TWICE", message, f"Delete one of each id by hand. {ACCEPT}", destination=DLQ)
        if held.plan not in claims.known:
            message = f"{held.rows} rows belong to a batch that the ledger does not know"
            repair = f"If the ledger is an old copy, put the newest back. Otherwise delete these rows. {ACCEPT}"
            yield Finding.about(held, "DLQ_STRAY", message, repair, destination=DLQ)
    for settled in claims.settled:
        there, refused = queue.by_plan.get(settled.plan), _count_refused(settled)
        if there is not None and there.distinct > refused:
            message = f"the ledger counts {refused} refused rows, but the DLQ has {there.distinct}"
            repair = f"Another program wrote to the DLQ. Delete its rows. {ACCEPT}"
            yield Finding.about(settled, "DLQ_STRAY", message, repair, destination=DLQ)


def _check_fallback(claims: LedgerClaims, queue: DlqContent) -> Iterator[Finding]:
    """Yield findings about refused rows that should wait in the fallback, and are neither in it nor in the DLQ."""
    fallen, fallback = claims.state.fallen, queue.fallback
    if fallback.unreadable:
        batches = format_batches(len(fallen))
        yield Finding(
            code="DLQ_GONE",
            destination=FALLBACK,
            message=f"{fallback.place} cannot be read, and it holds the refused rows of {batches}: "
            f"{fallback.unreadable}",
            repair=f"Put the fallback back, from a backup or in the definition. {ACCEPT}",
        )
        return
    for settled in claims.settled if fallen else ():
        expected, held = fallen.get(settled.plan, 0), queue.by_plan.get(settled.plan)
        there = len(fallback.ids.get(settled.plan, frozenset()) | (held.ids if held else frozenset()))
        if there < expected and (held is None or held.distinct < expected):
            message = f"{expected - there:,} of {expected:,} refused rows are missing from the fallback"
            repair = f"Put the fallback back from a backup. {ACCEPT}"
            yield Finding.about(settled, "DLQ_MISSING", message, repair, destination=FALLBACK)


def _find_harmed(queue: DlqContent) -> Iterator[Finding]:
    """Yield findings about batches whose refused rows are in files that cannot be read."""
    repair = f"Put the file back from a backup. {ACCEPT}"
    brought = queue.account.brought if queue.account else ()
    harmed = [(write.label, write.loss) for write in brought if write.loss is not None and write.loss.version is None]
    for label, loss in harmed:
        yield Finding(
            code=loss.code,
            lane=label.lane,
            number=label.number,
            destination=DLQ,
            plans=[label.plan],
            message=f"its refused rows cannot be read: {loss.reason}",
            repair=repair,
        )
    if not harmed:
        yield Finding(code="LOG_BROKEN", destination=DLQ, message=queue.unreadable, repair=repair)


def _count_refused(settled: Settled) -> int:
    """Return how many rows of the batch went to the DLQ."""
    return 0 if settled.counts.discarded else settled.counts.nacked


def _count_missing(claims: LedgerClaims, queue: DlqContent, settled: Settled) -> int:
    """Return how many refused rows of the batch are missing, without those that were replayed or discarded."""
    refused, held = _count_refused(settled), queue.by_plan.get(settled.plan)
    there, ids = (held.distinct, held.ids) if held else (0, frozenset())
    if there >= refused:
        return 0
    return refused - there - sum(letter not in ids for letter in claims.letters.get(settled.plan, ()))


def _report_missing(claims: LedgerClaims, queue: DlqContent, settled: Settled) -> Finding:
    missing, account = _count_missing(claims, queue, settled), queue.account
    losses = [write.loss for write in (account.brought if account else ()) if write.label.plan == settled.plan]
    loss = next((loss for loss in reversed(losses) if loss is not None), None)
    back = loss is not None and loss.version is not None and account is not None and account.mends
    message = (
        f"{missing:,} of {_count_refused(settled):,} refused rows are "
        f"missing, and they were neither replayed nor discarded{f': {loss.reason}' if loss else ''}"
    )
    repair = f"{PUT_BACK if back else ''}Put the DLQ back from a backup. {ACCEPT}"
    version, remedy = loss.version if loss else None, "put_back" if back else ""
    return Finding.about(settled, "DLQ_MISSING", message, repair, destination=DLQ, version=version, remedy=remedy)
