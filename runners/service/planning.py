"""The operations on plans: an agent plans a change, a person approves it, and the agent lets it be carried out."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from origins.errors import WherryError
from runners.service import messages
from runners.service.definitions import check_definition
from runners.service.operation import ENCODER, Ask, Caller, Forbidden, Operation, Unauthenticated
from runners.service.plans import Planned
from runners.service.service import Service


def plan_change(service: Service, caller: Caller, ask: messages.PlanChange) -> messages.Plan:
    """Plan a change, with its preview. Nothing is changed until a person has approved it and it is carried out."""
    operation, wanted = service.plans.read_change(caller, ask.operation, ask.arguments)
    service.plans.check_room(caller)
    preview = None
    if isinstance(wanted, messages.PutDefinition | messages.StartRun) and wanted.definition:
        check_definition(service, caller, wanted)
    if hasattr(wanted, "preview"):
        answer = operation.act(service, caller, msgspec.structs.replace(wanted, preview=True))
        preview = msgspec.json.decode(ENCODER.encode(answer))
        wanted = _bind(operation, wanted, preview)
    return service.plans.add(caller, operation, wanted, preview)


def _bind(operation: Operation, wanted: Ask, preview: Any) -> Ask:
    """Return the change that is refused if it would do something else than its preview says."""
    bound: Mapping[str, Mapping[str, str]] = {
        "move_offsets": {"expected": "lanes"},
        "discard_rows": {"expected": "found", "expected_digest": "digest"},
    }
    shown = {field: preview[each] for field, each in bound.get(operation.name, {}).items()}
    return msgspec.structs.replace(wanted, **shown) if shown else wanted


def list_plans(service: Service, caller: Caller, ask: messages.ListPlans) -> messages.PlanList:
    """List the plans that wait, were approved or were carried out in the last minutes, the newest first."""
    return messages.PlanList(plans=[*service.plans.list_all(caller)])


def get_plan(service: Service, caller: Caller, ask: messages.GetPlan) -> messages.Plan:
    """Show a plan: the change, its preview, its caller, and whether a person has approved it."""
    return service.plans.get(ask.plan, caller)


def approve_plan(service: Service, caller: Caller, ask: messages.ApprovePlan) -> messages.Plan:
    """Approve exactly the change that a person was shown. It is then carried out once, with that person's right."""
    return service.plans.approve(ask.plan, caller, ask.digest)


def _look_up(service: Service, planned: Planned) -> Caller:
    """Return the approver as they are now. Raise `Forbidden` if their token was removed or has expired."""
    assert planned.approver is not None
    try:
        return service.look_up(planned.approver)
    except Unauthenticated as error:
        raise Forbidden(f"The approval of {planned.approver.name} has ended with the token.") from error


def carry_out_plan(service: Service, caller: Caller, ask: messages.CarryOutPlan) -> messages.CarriedOut:
    """Do what an approved plan says, once. The log and the ledger have both names."""
    planned = service.plans.take(ask.plan, caller)
    try:
        doing = planned.make_caller(caller, _look_up(service, planned))
        answer = service.answer(planned.operation, doing, planned.ask, ask.plan)
    except WherryError:  # nothing was done
        service.plans.put_back(planned)
        raise
    shown = msgspec.json.decode(ENCODER.encode(answer))
    return messages.CarriedOut(plan=ask.plan, operation=planned.operation.name, answer=shown)
