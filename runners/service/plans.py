"""Plans: changes that an agent asks for, and that are done only once a person has approved exactly them."""

from __future__ import annotations

import hashlib
import json
import threading
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any

import msgspec

from runners.model.clock import Clock
from runners.service.messages import Plan
from runners.service.operation import APPROVED, Ask, Caller, Forbidden, Invalid, NotFound, Operation, Right, TooMuch

LASTS = timedelta(minutes=15)
"""How long a plan may be approved, and carried out."""
_MOST, _MOST_OF_ONE = 200, 20
"""How many plans wait at a time, and how many of them one caller may have."""


def make_digest(operation: str, arguments: Any) -> str:
    """Return the hash of a change. A person approves it, so that nothing else is approved."""
    return hashlib.sha256(json.dumps([operation, arguments], sort_keys=True).encode()).hexdigest()


def list_plannable(operations: Sequence[Operation]) -> Sequence[Operation]:
    """Return the operations that can be planned: all that change something and need more than the right to read."""
    return [each for each in operations if each.changes and each.right > Right.READ and each.name != "approve_plan"]


@dataclass(frozen=True, kw_only=True)
class Planned:
    """A plan, with what is done and in whose name."""

    plan: Plan
    operation: Operation
    ask: Ask
    caller: Caller
    """The caller that planned it."""
    expires: datetime
    approver: Caller | None = None
    is_carried_out: bool = False

    @property
    def right(self) -> Right:
        """The right that the approver needs. A run with its own definition needs more than another run."""
        return Right.ADMIN if getattr(self.ask, "definition", "") else self.operation.right

    def make_caller(self, caller: Caller, approver: Caller) -> Caller:
        """Return the caller that does it, with both names, and only for what both may see.

        It may see no more than both could when it was planned and approved.
        """
        every = (self.caller, caller, self.approver or approver, approver)
        seen = [each.pipelines for each in every if each.pipelines is not None]
        name = f"{caller.name}{APPROVED}{approver.name}"
        return Caller(name=name, right=approver.right, pipelines=frozenset.intersection(*seen) if seen else None)


class Plans:
    """The plans of a server. It forgets them when it ends. No plan changes once it is made."""

    def __init__(self, clock: Clock, operations: Sequence[Operation]) -> None:
        self._clock = clock
        self._operations = {each.name: each for each in list_plannable(operations)}
        self.rights: Mapping[str, Right] = {each.name: each.right for each in operations if each.right > Right.READ}
        """The right that each operation needs. Those that every caller may ask are left out."""
        self._lock = threading.RLock()
        self._plans: dict[str, Planned] = {}

    @property
    def names(self) -> frozenset[str]:
        """The names of the operations that can be planned."""
        return frozenset(self._operations)

    def read_change(self, caller: Caller, operation: str, arguments: Any) -> tuple[Operation, Ask]:
        """Return what a caller wants to plan.

        Raise `Invalid` if it is no change or has a wrong value. Raise `Forbidden` for a caller with a higher right
        than to read, because the owner of a plan must not be able to approve one.
        """
        if caller.right > Right.READ:
            raise Forbidden(
                f"{caller.name} has the right to {caller.right.name.lower()}, so it does not plan.",
                hint="Give an agent a token with the right to read. A person approves with another token.",
            )
        found = self._operations.get(operation)
        if found is None:
            raise Invalid(f"operation: expected one of {', '.join(sorted(self.names))}.")
        try:
            ask = msgspec.convert(arguments, found.ask)
        except msgspec.ValidationError as error:
            raise Invalid(f"arguments: {error}.") from error
        if getattr(ask, "preview", False) or getattr(ask, "plan", False):
            raise Invalid("arguments: a plan has its preview by itself. Leave out preview and plan.")
        if any(getattr(ask, each, None) not in (None, "") for each in ("expected", "expected_digest")):
            raise Invalid("arguments: a plan takes what is expected from its preview. Leave out what is expected.")
        pipeline = getattr(ask, "pipeline", "")
        if pipeline and not caller.may_see(pipeline):
            raise Forbidden(f"{caller.name} may not see a pipeline of this name.")
        return found, ask

    def add(self, caller: Caller, operation: Operation, ask: Ask, preview: Any) -> Plan:
        """Keep a change until a person has approved it. Raise `TooMuch` if too many wait."""
        arguments, expires = msgspec.to_builtins(ask), self._clock.now() + LASTS
        plan = Plan(
            plan=uuid.uuid4().hex,
            operation=operation.name,
            pipeline=arguments.get("pipeline", ""),
            arguments=arguments,
            digest=make_digest(operation.name, arguments),
            right=operation.right.name.lower(),
            by=caller.name,
            expires_at=expires.isoformat(timespec="seconds"),
            state="waiting",
            preview=preview,
        )
        planned = Planned(plan=plan, operation=operation, ask=ask, caller=caller, expires=expires)
        plan = msgspec.structs.replace(plan, right=planned.right.name.lower())
        with self._lock:
            self.check_room(caller)
            self._plans[plan.plan] = replace(planned, plan=plan)
        return plan

    def check_room(self, caller: Caller) -> None:
        """Raise `TooMuch` if too many plans wait, of this caller or of all."""
        with self._lock:
            now = self._clock.now()
            self._plans = {name: each for name, each in self._plans.items() if each.expires > now}
            own = sum(each.caller.name == caller.name for each in self._plans.values())
            if len(self._plans) >= _MOST or own >= _MOST_OF_ONE:
                raise TooMuch(
                    f"This server has {len(self._plans)} plans, {own} of them of {caller.name}.",
                    hint=f"A plan ends after {LASTS.seconds // 60} minutes.",
                )

    def list_all(self, caller: Caller) -> Sequence[Plan]:
        """Return the plans that the caller may see, the newest first."""
        with self._lock:
            return [each.plan for each in reversed(self._plans.values()) if self._may_see(each, caller)]

    def get(self, name: str, caller: Caller) -> Plan:
        """Return a plan. Raise `NotFound` if there is none, if it has expired, or if the caller may not see it."""
        with self._lock:
            return self._find(name, caller).plan

    def approve(self, name: str, caller: Caller, digest: str) -> Plan:
        """Let a plan be carried out once, with the right of this caller.

        Raise `Forbidden` for the caller that planned it, and without the right to do it. Raise `Invalid` if the
        digest is that of another change.
        """
        with self._lock:
            found = self._find(name, caller)
            if caller.name == found.caller.name:
                raise Forbidden("A plan needs the approval of another caller.")
            if caller.right < found.right:
                raise Forbidden(
                    f"{caller.name} needs the right to {found.plan.right} to approve {found.plan.operation}."
                )
            if digest != found.plan.digest:
                raise Invalid("digest: this plan is another change.")
            if found.approver is not None:
                raise Invalid(f"The plan has been approved by {found.approver.name} already.")
            plan = msgspec.structs.replace(found.plan, state="approved", approved_by=caller.name)
            self._plans[name] = replace(found, plan=plan, approver=caller)
            return plan

    def take(self, name: str, caller: Caller) -> Planned:
        """Return an approved plan to carry it out, once. Raise `Forbidden` unless it is approved and the caller's."""
        with self._lock:
            found = self._find(name, caller)
            if caller.name != found.caller.name:
                raise Forbidden("This is the plan of another caller.")
            if found.is_carried_out:
                raise Forbidden("This plan is done already.", hint="Make a new plan.")
            if found.approver is None:
                raise Forbidden(
                    "No person has approved this plan.",
                    hint=f"Ask a person to approve it on the page, or to type:  wherry mcp --approve {name}",
                )
            plan = msgspec.structs.replace(found.plan, state="carried_out")
            self._plans[name] = replace(found, plan=plan, is_carried_out=True)
            return found

    def put_back(self, planned: Planned) -> None:
        """Let an approved plan be carried out again, because it was refused and nothing was done."""
        with self._lock:
            self._plans[planned.plan.plan] = planned

    def _find(self, name: str, caller: Caller) -> Planned:
        found = self._plans.get(name)
        if found is None or found.expires <= self._clock.now() or not self._may_see(found, caller):
            raise NotFound(
                "There is no such plan.", hint=f"A plan ends after {LASTS.seconds // 60} minutes, and with the server."
            )
        return found

    @staticmethod
    def _may_see(found: Planned, caller: Caller) -> bool:
        return caller.may_see(found.plan.pipeline) or caller.name == found.caller.name
