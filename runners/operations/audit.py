"""The audit: what the ledger says, against what every destination and the DLQ can show."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Literal

from destinations.dead_letters import query_dlq
from destinations.delta.delta import Delta
from destinations.destination import DeliveryAccount, Destination, DestinationError
from origins.batch import JSON
from runners.model.clock import Clock
from runners.model.entry import Settled
from runners.model.pipeline_state import is_aside
from runners.model.planned_batch import SettledCounts
from runners.model.spec import PipelineSpec
from runners.operations.audit_delivery import DeliveryAudit, DlqContent, HeldLetters, check_letters
from runners.operations.audit_finding import Audit, DestinationProof, Finding, group_findings
from runners.operations.ledger_claims import LedgerClaims, check_spans, list_meant_destinations
from runners.running.compatibility import resolve_names
from runners.running.opening import list_carried_parts
from runners.state.journal import list_settled_ever
from runners.state.location import StateLocation, check_pipeline, find_dlq
from runners.state.takeover import is_run
from runners.ways.stage_chain import name_destinations

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


NO_PROOF = "nothing: it keeps no record of its batches, so only the ledger counts"


def make_audit(
    said: LedgerClaims, accounts: Mapping[str, DeliveryAccount | None], names: Mapping[str, str], queue: DlqContent
) -> Audit:
    """What adds up and what does not. `names` are the names of today by all names that destinations have or had."""
    deliveries = {name: DeliveryAudit(said, name, account, names) for name, account in accounts.items()}
    found = [
        *_find_unbalanced(said),
        *check_spans(said),
        *_open(said, deliveries),
        *(finding for each in deliveries.values() for finding in each.list_findings()),
        *check_letters(said, queue),
    ]
    known = {(plan, finding.destination) for finding in found for plan in finding.plans}
    elsewhere = {finding.destination for finding in found if finding.code in ("REPLACED", "TABLE_GONE")}
    found += [
        finding
        for name, each in deliveries.items()
        for finding in (_find_unproved(said, name, each, names) if name not in elsewhere else ())
        if not {(finding.plans[0], name), (finding.plans[0], None)} & known
    ]
    accepted = said.state.accepted
    return Audit(
        pipeline=said.state.pipeline,
        lanes={
            lane: _summarise_lane(said, lane)
            for lane in said.lanes
            if any(map(said.state.is_carried, said.lanes[lane]))
        },
        read=_sum_counts(said, "read"),
        filtered=sum(_get_first_filtered(each.counts) for each in said.counting),
        nacked=_sum_counts(said, "nacked"),
        destinations={name: _prove_destination(said, name, each, names) for name, each in deliveries.items()},
        problems=group_findings(finding for finding in found if finding.id not in accepted),
        accepted=group_findings(finding for finding in found if finding.id in accepted),
        open=[
            {"lane": plan.batch.lane, "number": plan.batch.number, "label": plan.batch.span.label}
            for plan in said.state.open_plans
        ],
        dlq=queue.json(said),
    )


def _find_unbalanced(said: LedgerClaims) -> Iterator[Finding]:
    for each in said.settled:
        if each.counts.get("balanced") is False:
            yield Finding(
                code="UNBALANCED",
                lane=each.lane,
                number=each.number,
                plans=[each.plan],
                message=f"the ledger settled it though its counts do not add up: read {each.counts['read']}, "
                f"refused {each.counts['nacked']}, delivered {each.counts['delivered']}",
                repair="Compare its rows at the origin with the rows in the destination; then accept it:  "
                'wherry repair FILE --accept ID --reason "…"',
            )


def _open(said: LedgerClaims, deliveries: Mapping[str, DeliveryAudit]) -> Iterator[Finding]:
    """Batches that have landed and are not settled, and those that are settled and owed."""
    if said.running:
        return
    for plan in said.state.open_plans:
        batch = plan.batch
        for name in plan.destinations:
            each = next((one for one in deliveries.values() if name in one.names), None)
            landed = each.has(f"{batch.plan}/{name}") if each is not None else None
            if plan.published and not landed:
                said_so = "its offset is committed, but this destination does not have it"
                code = "OWED"
            elif landed and not plan.published:
                said_so = "it was delivered here, but the run died before the ledger settled it"
                code = "NOT_SETTLED"
            else:
                continue
            yield Finding(
                code=code,
                lane=batch.lane,
                number=batch.number,
                destination=name,
                plans=[batch.plan],
                message=said_so,
                repair='The next run finishes it first. To do it now:  wherry repair FILE --reason "…"',
                remedy="finish",
            )


def _list_meant(
    said: LedgerClaims, name: str, delivery: DeliveryAudit, names: Mapping[str, str]
) -> Iterator[tuple[Settled, str]]:
    """The batches whose rows are to be at the destination, each with the name that it had then."""
    mine = ((each, own) for each in said.counting for own in list_meant_destinations(each) if names.get(own) == name)
    return (pair for pair in mine if delivery.is_expected(*pair))


def _find_unproved(
    said: LedgerClaims, name: str, delivery: DeliveryAudit, names: Mapping[str, str]
) -> Iterator[Finding]:
    """Batches of which it cannot be shown that read = delivered + filtered + nacked."""
    found = (delivery.find_unproved(*pair) for pair in _list_meant(said, name, delivery, names))
    yield from (finding for finding in found if finding is not None)


def _prove_destination(
    said: LedgerClaims, name: str, delivery: DeliveryAudit, names: Mapping[str, str]
) -> DestinationProof:
    mine = list(_list_meant(said, name, delivery, names))
    branches = [(each.counts.get("branches") or {}).get(own) for each, own in mine]
    owed = sum(plan.published and not delivery.has(f"{plan.batch.plan}/{own}")
               for plan in said.state.open_plans for own in plan.destinations if names.get(own) == name)  # fmt: skip
    return DestinationProof(
        delivered=sum(delivery.count_delivered(*pair) or 0 for pair in mine),
        read=sum(each.counts.get("read", 0) for each, _ in mine),
        filtered=sum(branch["filtered"] for branch in branches if branch),
        nacked=sum(each.counts.get("nacked", 0) for each, _ in mine),
        changed=sum(branch["changed"] for branch in branches if branch),
        owed=owed,
        proved_from=delivery.proved_from,
        proof=NO_PROOF if delivery.account is None else delivery.account.proof,
    )


def _summarise_lane(said: LedgerClaims, lane: str) -> Mapping[str, JSON]:
    batches = [each for each in said.lanes[lane] if said.state.is_carried(each)]
    return {
        "batches": len(batches),
        "first": batches[0].number,
        "last": batches[-1].number,
        "read": sum(each.counts.get("read", 0) for each in batches),
        "nacked": sum(each.counts.get("nacked", 0) for each in batches),
    }


def _sum_counts(said: LedgerClaims, name: Literal["read", "nacked", "discarded"]) -> int:
    return sum(each.counts.get(name, 0) for each in said.counting)


def _get_first_filtered(counts: SettledCounts) -> int:
    branches = list((counts.get("branches") or {}).values())
    return branches[0]["filtered"] if branches else 0


_COUNTS = (
    "SELECT plan, lane, number, pipeline, count(*) AS n, count(DISTINCT id) AS ids FROM {table} GROUP BY 1, 2, 3, 4"
)


def audit(pipeline: PipelineSpec) -> Audit:
    """Compare what the ledger says with what every destination and the DLQ can show.

    Changes nothing, and may be called while the pipeline is run. Needs Spark only for tables that do not lie in a
    folder of this machine.
    """
    place = StateLocation.of(pipeline)
    dlq, spark = find_dlq(pipeline)
    destinations = name_destinations(pipeline.every_destination)
    said = _read_claims(pipeline, place)
    accounts = {name: each.account(spark, pipeline.name) for name, each in destinations.items()}
    queue = _read_dlq(dlq, spark, said)
    said = _find_changed(pipeline, said)
    afterwards = _read_claims(pipeline, place)
    said = replace(said, later=afterwards.known, running=said.running or afterwards.running)
    return make_audit(said, accounts, resolve_names(destinations), queue)


def _read_claims(pipeline: PipelineSpec, place: StateLocation) -> LedgerClaims:
    journal = place.open_journal(pipeline)
    state = journal.state
    check_pipeline(pipeline, place, state)
    settled = list_settled_ever(journal)
    return LedgerClaims(
        state=replace(state, pipeline=pipeline.name),
        settled=settled,
        running=is_run(state, place, Clock()),
        doubles=tuple(
            name
            for name, each in name_destinations(pipeline.every_destination).items()
            if not (isinstance(each, Delta) and each.mode == "merge")
        ),
        whole=frozenset(
            each.lane
            for each in settled
            for origin in pipeline.every_origin
            if origin.keeps_parts and not is_aside(each.lane) and pipeline.owns(origin, each.lane)
        ),
    )


def _find_changed(pipeline: PipelineSpec, said: LedgerClaims) -> LedgerClaims:
    """With what has changed at the origins since it was carried."""
    found: dict[str, Mapping[str, str]] = {}
    for origin in pipeline.every_origin if said.whole else ():
        lanes = [lane for lane in said.whole if pipeline.owns(origin, lane)]
        parts = list_carried_parts(pipeline, origin, said.counting) if lanes else ()
        changed = origin.find_changed(parts) if parts else {}
        found.update(dict.fromkeys(lanes, changed))
    return replace(said, changed=found)


def list_decided_ids(pipeline: PipelineSpec) -> frozenset[str]:
    """The ids of refused rows that were replayed or discarded."""
    return _read_claims(pipeline, StateLocation.of(pipeline)).decided


def _read_dlq(dlq: Destination, spark: Callable[[], SparkSession], said: LedgerClaims) -> DlqContent:
    """What the DLQ has of each batch; where that is not what was refused, also which rows these are."""
    try:
        counted = query_dlq(dlq, spark, _COUNTS)
    except DestinationError as error:
        if not isinstance(dlq, Delta):
            return DlqContent(place=dlq.place)
        return DlqContent(place=dlq.place, account=dlq.account(spark, said.state.pipeline), unreadable=error.message)
    mine = [row for row in counted if row["pipeline"] == said.state.pipeline]
    refused = {each.plan: each.counts.get("nacked", 0) for each in said.settled}
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
    account = dlq.account(spark, said.state.pipeline) if _is_lacking(held, refused) or not held else None
    there = account is None or account.there
    return DlqContent(place=dlq.place, held=held, account=account, there=there)


def _is_lacking(held: Sequence[HeldLetters], refused: dict[str, int]) -> bool:
    there = {each.plan: each.distinct for each in held}
    return any(there.get(plan, 0) < rows for plan, rows in refused.items())
