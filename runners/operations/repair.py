"""Repairs the findings of an audit that need no guess. All others need a person.

A safe repair restores exactly the old rows, or finishes a decided batch. Open and owed batches are finished as the next
run would. If a whole commit of an append-only table or of the DLQ lost its rows, they are put back from their own
files.

A person must decide about processing rows again with today's definition, removing rows, and accepting a finding. The
ledger records each repair before Wherry makes it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from destinations.capabilities import BroughtBatch
from destinations.delta.delta import Delta
from destinations.delta.history import put_back
from destinations.delta.table import TargetTable
from destinations.destination import DestinationError
from destinations.dlq import DLQ
from origins.batch import JSON
from origins.codec import JsonForm
from runners.definitions.definition import definition_of
from runners.model.entry import Entry
from runners.model.errors import Owned, Refusal, check_reason
from runners.model.spec import PipelineSpec
from runners.model.text import format_repr
from runners.operations.audit.audit import audit, read_claims
from runners.operations.audit.finding import Audit, Finding
from runners.operations.mend_ledger import find_damage, mend_ledger
from runners.operations.pipeline_access import hold_pipeline, open_session, sign
from runners.running.run import PipelineRun
from runners.running.work import OpenBatches
from runners.spark.own_session import put_settings_back
from runners.state.journal import Journal
from runners.state.ledger import Conflict
from runners.state.location import find_dlq
from runners.ways.stage_chain import name_destinations


@dataclass(frozen=True, kw_only=True)
class RepairResult(JsonForm):
    """What was done, what could not be done, and the audit afterwards."""

    done: Sequence[str]
    failed: Sequence[str] = ()
    accepted: Sequence[str] = ()
    audit: Audit

    def __repr__(self) -> str:
        facts = [f"{len(self.done)} done", f"{len(self.failed)} not done", f"{len(self.accepted)} accepted"]
        return format_repr("RepairResult", self.audit.pipeline, *facts, repr(self.audit))


@dataclass(frozen=True, kw_only=True)
class RepairPlan(JsonForm):
    """What there is to repair. Nothing has happened yet."""

    damage: str = ""
    """What the ledger has lost, and what a repair keeps of it. Empty if it is whole."""
    audit: Audit | None = None
    """The findings. None if the ledger is damaged, because it can then not be audited."""


def plan_repair(pipeline: PipelineSpec) -> RepairPlan:
    """Return what there is to repair. It changes nothing."""
    damage = find_damage(pipeline)
    return RepairPlan(audit=audit(pipeline)) if damage is None else RepairPlan(damage=damage.describe())


def repair(pipeline: PipelineSpec, *, reason: str, accept: Sequence[str] = ()) -> RepairResult:
    """Repair the findings of an audit for which that is safe. From now on, the findings in `accept` count as right.

    A ledger that has lost entries is mended first. Raises `Owned` during a run, and `Refusal` for an id that the audit
    does not find.
    """
    check_reason(reason, "A repair")
    done = mend_ledger(pipeline, reason=reason)
    before = audit(pipeline)
    members = _expand_ids(before, accept)
    failed: list[str] = []
    wanted = [finding for finding in before.problems if finding.id not in accept]
    if any(finding.remedy == "finish" for finding in wanted):
        done += _finish_open(pipeline, failed)
    back = [finding for finding in wanted if finding.remedy == "put_back"]
    if members or back:
        with hold_pipeline(pipeline, "repair it") as journal:
            _record(journal, reason, members, back)
            for name in dict.fromkeys(finding.destination for finding in back):
                mine = [finding for finding in back if finding.destination == name]
                _put_back(pipeline, str(name), mine, done, failed)
    return RepairResult(done=done, failed=failed, accepted=members, audit=audit(pipeline))


def _expand_ids(audit: Audit, accept: Sequence[str]) -> list[str]:
    by_id = {finding.id: finding for finding in audit.problems}
    unknown = [name for name in accept if name not in by_id]
    if unknown:
        known = ", ".join(by_id) or "nothing"
        raise Refusal(
            f"The audit has no finding {', '.join(unknown)}; it has {known}.", hint="wherry audit FILE --json"
        )
    return [member for name in accept for member in by_id[name].members or [name]]


def _finish_open(pipeline: PipelineSpec, failed: list[str]) -> list[str]:
    """Finish the batches that the last run left open, as the next run would. Plan no new batch."""
    definition = definition_of(pipeline)
    run = PipelineRun(pipeline=definition.pipeline, text=definition.text, hash=definition.hash, work=OpenBatches())
    report = run.carry()
    if report.error is not None:
        failed.append(f"open batches were not finished: {report.error}")
        return []
    return ["open batches of the last run were finished"]


def _record(journal: Journal, reason: str, accepted: Sequence[str], back: Sequence[Finding]) -> None:
    body: Mapping[str, JSON] = {
        **sign(reason),
        "accepted": list(accepted),
        "puts_back": [{"destination": finding.destination, "plans": list(finding.plans)} for finding in back],
    }
    try:
        journal.ledger.append([Entry(kind="repair", epoch=journal.state.epoch, body=body)], after=journal.state.seq)
    except Conflict as error:
        raise Owned("A run of the pipeline began, so nothing was repaired.") from error


@put_settings_back()
def _put_back(
    pipeline: PipelineSpec, name: str, findings: Sequence[Finding], done: list[str], failed: list[str]
) -> None:
    spark = open_session(pipeline)
    destination = find_dlq(pipeline)[0] if name == DLQ else name_destinations(pipeline.every_destination)[name]
    if not isinstance(destination, Delta):
        failed.append(f"{name}: Wherry can put rows back into Delta tables only")
        return
    table = TargetTable.find(spark, destination.sql_name, destination.folder)
    account = destination.account(lambda: spark, pipeline.name)
    but = read_claims(pipeline).decided if name == DLQ else None
    if table is None:
        failed.append(f"{name}: the table is missing")
        return
    for commit in _list_commits(account.brought, {plan for finding in findings for plan in finding.plans}):
        batches = ", ".join(f"batch {write.label.number} of lane {write.label.lane}" for write in commit)
        try:
            rows = put_back(spark, table, commit, but=but)
        except DestinationError as error:
            failed.append(f"{batches}, {name}: {error}")
        else:
            done.append(f"{batches}, {name}: {rows:,} rows put back as version {commit[0].version} had them")


def _list_commits(brought: Sequence[BroughtBatch], plans: set[str]) -> list[list[BroughtBatch]]:
    """Return the newest commit of each of these plans once, with all its batches."""
    newest = {write.label.plan: write.version for write in brought if write.label.plan in plans}
    versions = sorted({version for version in newest.values() if version is not None})
    return [[write for write in brought if write.version == version] for version in versions]
