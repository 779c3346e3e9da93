"""The operations on plans: an agent plans a change, a person approves it, and the agent lets it be carried out."""

from __future__ import annotations

from typing import Any

import msgspec

from runners.service import messages
from runners.service.operation import ENCODER, Ask, Caller, Operation
from runners.service.service import Service


def plan_change(service: Service, caller: Caller, ask: messages.PlanChange) -> messages.Plan:
    """Plan a change, with its preview. Nothing is changed until a person has approved it and it is carried out."""
    operation, wanted = service.plans.read_change(caller, ask.operation, ask.arguments)
    preview = None
    if hasattr(wanted, "preview"):
        answer = operation.act(service, caller, msgspec.structs.replace(wanted, preview=True))
        preview = msgspec.json.decode(ENCODER.encode(answer))
        wanted = _bind(operation, wanted, preview)
    return service.plans.add(caller, operation, wanted, preview)


def _bind(operation: Operation, wanted: Ask, preview: Any) -> Ask:
    """Return the change that is refused if it would do more than its preview says."""
    named = {"move_offsets": "lanes", "discard_rows": "found"}.get(operation.name)
    if named is None or getattr(wanted, "expected", None) is not None:
        return wanted
    return msgspec.structs.replace(wanted, expected=preview[named])


def list_plans(service: Service, caller: Caller, ask: messages.ListPlans) -> messages.PlanList:
    """List the plans that wait, were approved or were carried out in the last minutes, the newest first."""
    return messages.PlanList(plans=[*service.plans.list_all(caller)])


def get_plan(service: Service, caller: Caller, ask: messages.GetPlan) -> messages.Plan:
    """Show a plan: the change, its preview, its caller, and whether a person has approved it."""
    return service.plans.get(ask.plan, caller)


def approve_plan(service: Service, caller: Caller, ask: messages.ApprovePlan) -> messages.Plan:
    """Approve exactly the change that a person was shown. It is then carried out once, with that person's right."""
    return service.plans.approve(ask.plan, caller, ask.digest)


def carry_out_plan(service: Service, caller: Caller, ask: messages.CarryOutPlan) -> messages.CarriedOut:
    """Do what an approved plan says, once. The log and the ledger have both names."""
    planned = service.plans.take(ask.plan, caller)
    answer = service.answer(planned.operation, planned.make_caller(), planned.ask, ask.plan)
    shown = msgspec.json.decode(ENCODER.encode(answer))
    return messages.CarriedOut(plan=ask.plan, operation=planned.operation.name, answer=shown)
