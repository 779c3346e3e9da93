"""The audit: what the ledger says, against what every destination and the DLQ can show. Pure: nothing is asked here."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from destinations.account import Account
from origins.batch import JSON
from runners.audits.audit_delivery import Delivery
from runners.audits.audit_letters import Queue, letters_of
from runners.audits.audit_spans import spans_of
from runners.audits.finding import Audit, Finding, Proved
from runners.audits.grouping import grouped
from runners.audits.said import Said, meant_for
from runners.ledgers.entry import Settled

NO_PROOF = "nothing: it does not remember its batches, so what the ledger says is all there is"


def audited(said: Said, accounts: Mapping[str, Account | None], names: Mapping[str, str], queue: Queue) -> Audit:
    """What adds up and what does not. `names` are the names of today by all names that destinations have or had."""
    deliveries = {name: Delivery(said, name, account, names) for name, account in accounts.items()}
    found = [
        *_unbalanced(said),
        *spans_of(said),
        *_open(said, deliveries),
        *(finding for each in deliveries.values() for finding in each.findings()),
        *letters_of(said, queue),
    ]
    known = {(plan, finding.destination) for finding in found for plan in finding.plans}
    elsewhere = {finding.destination for finding in found if finding.code in ("REPLACED", "TABLE_GONE")}
    found += [
        finding
        for name, each in deliveries.items()
        for finding in (_unproved(said, name, each, names) if name not in elsewhere else ())
        if not {(finding.plans[0], name), (finding.plans[0], None)} & known
    ]
    accepted = said.state.accepted
    return Audit(
        pipeline=said.state.pipeline,
        lanes={lane: _lane(said, lane) for lane in said.lanes if any(map(said.state.carried, said.lanes[lane]))},
        read=_sum(said, "read"),
        filtered=sum(_first_filtered(each.counts) for each in said.counting),
        nacked=_sum(said, "nacked"),
        destinations={name: _proved(said, name, each, names) for name, each in deliveries.items()},
        problems=grouped(finding for finding in found if finding.id not in accepted),
        accepted=grouped(finding for finding in found if finding.id in accepted),
        open=[
            {"lane": plan.batch.lane, "number": plan.batch.number, "label": plan.batch.span.label}
            for plan in said.state.open_plans
        ],
        dlq=queue.json(said),
    )


def _unbalanced(said: Said) -> Iterator[Finding]:
    for each in said.settled:
        if each.counts.get("balanced") is False:
            yield Finding(
                code="UNBALANCED",
                lane=each.lane,
                number=each.number,
                plans=[each.plan],
                message=f"the ledger settled it though its counts do not add up: read {each.counts['read']}, "
                f"nacked {each.counts['nacked']}, delivered {each.counts['delivered']}",
                repair="Compare its rows at the origin with those that are there; then say so:  "
                'wherry repair FILE --accept ID --reason "…"',
            )


def _open(said: Said, deliveries: Mapping[str, Delivery]) -> Iterator[Finding]:
    """Batches that have landed and are not settled, and those that are settled and owed."""
    if said.running:
        return
    for plan in said.state.open_plans:
        batch = plan.batch
        for name in plan.destinations:
            each = next((one for one in deliveries.values() if name in one.names), None)
            landed = each.has(f"{batch.plan}/{name}") if each is not None else None
            if plan.published and not landed:
                said_so = "its offset is committed, and this destination does not have it"
                code = "OWED"
            elif landed and not plan.published:
                said_so = "it has landed here, and the run that carried it died before it was settled"
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
                repair='The next run finishes it before all else; or now:  wherry repair FILE --reason "…"',
                remedy="finish",
            )


def _meant(said: Said, name: str, delivery: Delivery, names: Mapping[str, str]) -> Iterator[tuple[Settled, str]]:
    """The batches whose rows are to be at the destination, each with the name that it had then."""
    mine = ((each, own) for each in said.counting for own in meant_for(each) if names.get(own) == name)
    return (pair for pair in mine if delivery.counts(*pair))


def _unproved(said: Said, name: str, delivery: Delivery, names: Mapping[str, str]) -> Iterator[Finding]:
    """Batches of which it cannot be shown that read = delivered + filtered + nacked."""
    found = (delivery.unproved(*pair) for pair in _meant(said, name, delivery, names))
    yield from (finding for finding in found if finding is not None)


def _proved(said: Said, name: str, delivery: Delivery, names: Mapping[str, str]) -> Proved:
    mine = list(_meant(said, name, delivery, names))
    branches = [(each.counts.get("branches") or {}).get(own) or {} for each, own in mine]
    owed = sum(plan.published and not delivery.has(f"{plan.batch.plan}/{own}")
               for plan in said.state.open_plans for own in plan.destinations if names.get(own) == name)  # fmt: skip
    return Proved(
        delivered=sum(delivery.delivered(*pair) or 0 for pair in mine),
        read=sum(each.counts.get("read", 0) for each, _ in mine),
        filtered=sum(branch.get("filtered", 0) for branch in branches),
        nacked=sum(each.counts.get("nacked", 0) for each, _ in mine),
        changed=sum(branch.get("changed", 0) for branch in branches),
        owed=owed,
        proved_from=delivery.proved_from,
        proof=NO_PROOF if delivery.account is None else delivery.account.proof,
    )


def _lane(said: Said, lane: str) -> Mapping[str, JSON]:
    batches = [each for each in said.lanes[lane] if said.state.carried(each)]
    return {
        "batches": len(batches),
        "first": batches[0].number,
        "last": batches[-1].number,
        "read": sum(each.counts.get("read", 0) for each in batches),
        "nacked": sum(each.counts.get("nacked", 0) for each in batches),
    }


def _sum(said: Said, name: str) -> int:
    return sum(each.counts.get(name, 0) for each in said.counting)


def _first_filtered(counts: Mapping[str, JSON]) -> int:
    branches: Sequence[Mapping[str, int]] = list((counts.get("branches") or {}).values())
    return branches[0]["filtered"] if branches else 0
