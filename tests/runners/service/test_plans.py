"""Plans: an agent plans, a person approves exactly that, and it is done once, in both names."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from runners.service.operation import Right
from runners.service.operations import OPERATIONS
from runners.service.plans import LASTS, Plans, make_digest
from tests.manual_clock import ManualClock
from tests.runners.service.served import DEFINITION, Reply, Served, write_refused

DISCARD = {"pipeline": "orders", "reason": "they are old"}


@pytest.fixture
def planning(served: Served) -> Served:
    """A server with an agent and with two persons."""
    served.add_caller("agent", "read")
    served.add_caller("anna", "operate")
    served.add_caller("otto", "admin")
    return served


def plan(served: Served, operation: str, arguments: Mapping[str, Any], by: str = "agent") -> dict[str, Any]:
    """Plan a change, and return the plan."""
    reply = served.ask("POST", "/v1/plans", {"operation": operation, "arguments": arguments}, by=by)
    assert reply.status == 200, reply
    found: dict[str, Any] = reply.json()
    return found


def approve(served: Served, made: Mapping[str, Any], by: str = "anna") -> Reply:
    """Approve a plan as it was shown."""
    return served.ask("POST", f"/v1/plans/{made['plan']}/approve", {"digest": made["digest"]}, by=by)


def carry_out(served: Served, made: Mapping[str, Any], by: str = "agent") -> Reply:
    """Let a plan be carried out."""
    return served.ask("POST", f"/v1/plans/{made['plan']}/do", {}, by=by)


def count_waiting(served: Served) -> int:
    """Return how many refused rows of `orders` wait."""
    return int(served.get("/v1/pipelines/orders")["dlq"]["unreplayed"])


def test_an_approved_plan_is_carried_out_once_in_both_names(planning: Served) -> None:
    """The plan has a preview, the log has both names with the arguments, and so has the ledger."""
    made = plan(planning, "discard_rows", DISCARD)
    assert (made["preview"]["found"], made["state"], made["by"], made["right"]) == (
        2,
        "waiting",
        "agent",
        "operate",
    )
    assert count_waiting(planning) == 2
    assert approve(planning, made).json()["approved_by"] == "anna"
    assert carry_out(planning, made).json()["answer"]["discarded"] == 2
    assert count_waiting(planning) == 0
    (line,) = [each for each in planning.read_log() if each["did"] == "discard_rows" and "with" in each]
    assert (line["who"], line["with"]["reason"], line["key"]) == (
        "agent, approved by anna",
        "they are old",
        made["plan"],
    )
    again = carry_out(planning, made)
    assert (again.status, "done already" in again.json()["detail"]) == (403, True)
    assert approve(planning, made, by="otto").status == 422


def test_a_plan_without_an_approval_is_not_carried_out(planning: Served) -> None:
    """The answer says what a person has to type."""
    made = plan(planning, "discard_rows", DISCARD)
    reply = carry_out(planning, made)
    assert (reply.status, made["plan"] in reply.json()["hint"], count_waiting(planning)) == (403, True, 2)


def test_an_agent_cannot_approve(planning: Served) -> None:
    """Its right is to read, and a caller with more rights does not plan. A person needs the right of the change."""
    made = plan(planning, "move_offsets", {"pipeline": "orders", "reason": "again", "beginning": True})
    assert approve(planning, made, by="agent").json()["code"] == "FORBIDDEN"
    assert approve(planning, made, by="anna").json()["code"] == "FORBIDDEN"
    asked = {"operation": "discard_rows", "arguments": DISCARD}
    for by in ("anna", "otto", "owner"):
        assert planning.ask("POST", "/v1/plans", asked, by=by).json()["code"] == "FORBIDDEN"
    planning.add_caller("agent", "admin")
    assert "another caller" in approve(planning, made, by="agent").json()["detail"]
    planning.add_caller("agent", "read")
    assert carry_out(planning, made).status == 403


def test_an_approval_is_for_one_change_alone(planning: Served) -> None:
    """Other arguments are another plan, which needs its own approval, and a digest of another change is refused."""
    one = plan(planning, "discard_rows", {**DISCARD, "ids": ["plan/1"]})
    both = plan(planning, "discard_rows", DISCARD)
    assert one["digest"] != both["digest"]
    assert approve(planning, {**both, "digest": one["digest"]}).json()["code"] == "INVALID"
    assert approve(planning, one).status == 200
    assert carry_out(planning, both).status == 403
    widened = planning.ask("POST", f"/v1/plans/{one['plan']}/do", {"arguments": DISCARD}, by="agent")
    assert (widened.status, count_waiting(planning)) == (422, 2)
    assert carry_out(planning, one).json()["answer"]["discarded"] == 1


def test_the_digest_is_that_of_the_arguments(planning: Served) -> None:
    """A person's program computes it from what it shows."""
    made = plan(planning, "discard_rows", DISCARD)
    assert made["digest"] == make_digest("discard_rows", made["arguments"])
    assert made["digest"] != make_digest("discard_rows", {**made["arguments"], "ids": ["plan/1"]})


def test_a_change_that_would_do_more_than_its_preview_is_refused(planning: Served) -> None:
    """Rows that were refused after the preview are not discarded."""
    made = plan(planning, "discard_rows", DISCARD)
    approve(planning, made)
    write_refused(planning.folder, "orders", 3)
    assert [carry_out(planning, made).json()["code"] for _ in range(2)] == ["REFUSED", "REFUSED"]
    assert count_waiting(planning) > 0


def discard_and_refuse_another(served: Served) -> None:
    """Let one of the two waiting rows be discarded, and another one be refused."""
    assert served.ask("POST", "/v1/pipelines/orders/dlq/discard", {"ids": ["plan/1"], "reason": "known"}).status == 200
    write_refused(served.folder, "orders", 1, first=3)


def test_as_many_other_rows_are_not_discarded(planning: Served) -> None:
    """A person approved the two rows that waited, and no others. A new plan has the rows of now."""
    made = plan(planning, "discard_rows", DISCARD)
    approve(planning, made)
    discard_and_refuse_another(planning)
    assert count_waiting(planning) == 2
    refused = carry_out(planning, made)
    assert (refused.status, "other rows wait now" in refused.json()["detail"]) == (422, True)
    assert count_waiting(planning) == 2
    new = plan(planning, "discard_rows", DISCARD)
    assert new["preview"]["digest"] != made["preview"]["digest"]
    assert approve(planning, new).status == 200
    assert carry_out(planning, new).json()["answer"]["discarded"] == 2


def test_other_rows_than_those_of_a_plan_may_change(planning: Served) -> None:
    """A plan for rows with one code does not mind what happens to rows with another."""
    write_refused(planning.folder, "orders", 1, codes=["CAST"], first=7)
    made = plan(planning, "discard_rows", {**DISCARD, "code": "CAST"})
    approve(planning, made)
    discard_and_refuse_another(planning)
    assert carry_out(planning, made).json()["answer"]["discarded"] == 1


def test_a_plan_expires(planning: Served) -> None:
    """After a quarter of an hour it is neither approved nor carried out."""
    clock = ManualClock()
    planning.service.plans = Plans(clock, OPERATIONS)
    approved, waiting = (plan(planning, "discard_rows", DISCARD) for _ in range(2))
    assert approve(planning, approved).status == 200
    clock.move(LASTS.total_seconds() - 1)
    assert planning.get(f"/v1/plans/{approved['plan']}", by="agent")["state"] == "approved"
    clock.move(1)
    assert (approve(planning, waiting).status, carry_out(planning, approved).status) == (404, 404)
    assert count_waiting(planning) == 2


def test_a_plan_is_carried_out_only_by_its_own_caller(planning: Served) -> None:
    """Another agent sees it, and can do nothing with it."""
    other = planning.add_caller("other", "read")
    made = plan(planning, "discard_rows", DISCARD)
    approve(planning, made)
    assert planning.get("/v1/plans", by=other)["plans"][0]["plan"] == made["plan"]
    assert (carry_out(planning, made, by=other).status, carry_out(planning, made, by="anna").status) == (403, 403)
    assert carry_out(planning, made).status == 200


def test_an_approval_reaches_only_what_both_may_see(planning: Served) -> None:
    """An agent of one pipeline plans nothing for another. An unseen pipeline has no plans to approve."""
    planning.add_caller("small", "read", "orders")
    planning.add_caller("items-only", "operate", "items")
    asked = {"operation": "hold_schedule", "arguments": {"pipeline": "items", "reason": "why", "held": True}}
    assert planning.ask("POST", "/v1/plans", asked, by="small").status == 403
    made = plan(planning, "discard_rows", DISCARD, by="small")
    assert approve(planning, made, by="items-only").status == 404
    assert planning.ask("GET", f"/v1/plans/{made['plan']}", by="items-only").status == 404


@pytest.mark.parametrize(
    ("operation", "arguments"),
    [
        ("approve_plan", {"plan": "x", "digest": "y"}),
        ("carry_out_plan", {"plan": "x"}),
        ("plan_change", {"operation": "x", "arguments": {}}),
        ("list_runs", {"pipeline": "orders"}),
        ("nothing", {}),
        ("discard_rows", {**DISCARD, "everything": True}),
        ("discard_rows", {**DISCARD, "preview": True}),
        ("discard_rows", {**DISCARD, "expected": 1_000}),
        ("discard_rows", {**DISCARD, "expected_digest": "0"}),
        ("discard_rows", {"pipeline": "orders"}),
        ("discard_rows", [DISCARD]),
        ("discard_rows", None),
        ("discard_rows", {**DISCARD, "ids": "plan/1"}),
    ],
)
def test_only_a_sound_change_is_planned(planning: Served, operation: str, arguments: Any) -> None:
    """An approval, a plan and a question are none."""
    reply = planning.ask("POST", "/v1/plans", {"operation": operation, "arguments": arguments}, by="agent")
    assert (reply.status, reply.json()["code"]) == (422, "INVALID")
    assert planning.get("/v1/plans")["plans"] == []


def test_the_plans_of_one_agent_are_limited(planning: Served) -> None:
    """Others can still plan."""
    for _ in range(20):
        plan(planning, "stop_run", DISCARD)
    asked = {"operation": "stop_run", "arguments": DISCARD}
    assert planning.ask("POST", "/v1/plans", asked, by="agent").json()["code"] == "TOO_MUCH"
    audit = {"operation": "run_repair", "arguments": {"pipeline": "orders", "reason": "why"}}
    assert planning.ask("POST", "/v1/plans", audit, by="agent").json()["code"] == "TOO_MUCH"
    assert planning.get("/v1/tasks")["tasks"] == []
    planning.add_caller("other", "read")
    assert planning.ask("POST", "/v1/plans", asked, by="other").status == 200


def test_every_change_can_be_planned() -> None:
    """A change that needs no more than the right to read is done without a plan."""
    plans = Plans(ManualClock(), OPERATIONS)
    known = {each.name for each in OPERATIONS if each.changes and each.right > Right.READ}
    assert plans.names == known - {"approve_plan"}


def test_a_definition_in_a_plan_is_not_in_the_log(planning: Served) -> None:
    """The log has its hash, as it has for a definition that is put."""
    put = {"pipeline": "new", "reason": "why", "definition": "name: T0PS3CRET"}
    reply = planning.ask("POST", "/v1/plans", {"operation": "put_definition", "arguments": put}, by="agent")
    assert "--definition-root" in reply.json()["hint"]
    assert "T0PS3CRET" not in json.dumps(planning.read_log())


def test_an_approval_ends_with_the_rights_of_either_caller(planning: Served) -> None:
    """The token of the approver is removed, or is for fewer pipelines, or that of the agent is."""
    for change in (
        lambda: planning.guard.tokens.remove("anna"),
        lambda: planning.add_caller("anna", "read"),
        lambda: planning.add_caller("anna", "operate", "items"),
        lambda: planning.add_caller("agent", "read", "items"),
    ):
        planning.add_caller("agent", "read")
        planning.add_caller("anna", "operate")
        made = plan(planning, "discard_rows", DISCARD)
        assert approve(planning, made).status == 200
        change()
        assert (carry_out(planning, made).status, count_waiting(planning)) == (403, 2)


def test_a_run_with_its_own_definition_needs_an_approver_with_the_right_to_admin(planning: Served) -> None:
    """Its plan says so. A definition that breaks the rules is not planned."""
    planning.service.rules = replace(planning.service.rules, roots=["landing", "tables"])
    own = {"pipeline": "new", "reason": "why", "definition": DEFINITION.format(name="new")}
    made = plan(planning, "start_run", own)
    assert (made["right"], approve(planning, made).status, approve(planning, made, by="otto").status) == (
        "admin",
        403,
        200,
    )
    wrong = {"operation": "start_run", "arguments": {**own, "definition": own["definition"] + "hooks: []\n"}}
    assert planning.ask("POST", "/v1/plans", wrong, by="agent").json()["code"] == "DEFINITION"
