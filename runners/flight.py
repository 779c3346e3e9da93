"""One batch on its way: what follows from each outcome. Pure: nothing is read, written or waited for here."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

from destinations.destination import Identity, Written
from destinations.dlq import DLQ, Dlq
from origins.batch import JSON
from runners.blame import of_a_value
from runners.causes import came_between, lost_a_file, unanswered
from runners.counts import Branch, Counts
from runners.errors import LimitTripped, RefusedLate, StageStopped, Unbalanced, WindowTripped
from runners.ledgers.entry import Entry
from runners.limits import judged
from runners.outcome import (
    Alone,
    Answers,
    Ask,
    Carry,
    Check,
    Checked,
    Count,
    Counted,
    Deliver,
    Explain,
    Explained,
    Failed,
    Landed,
    Outcome,
    Prepare,
    Prepared,
    Refused,
    Shared,
    Task,
    Ticked,
)
from runners.plan import Decision, Plan
from runners.state import CLEAN, Lane, is_replay


@dataclass(frozen=True, kw_only=True)
class Rules:
    """What the definition says about delivery."""

    dlq: Dlq = Dlq()
    delivery: Literal["after_all", "after_any"] = "after_all"
    discards: bool = False
    """Whether the DLQ throws rows away."""
    replacing: frozenset[str] = frozenset()
    """The destinations of which a run's first batch replaces the rows, and so is written though it has none."""


@dataclass(frozen=True, kw_only=True)
class Flight:
    """A batch on its way, and what is known of it so far."""

    plan: Plan
    lane: Lane
    """The lane as it was when the batch was planned."""
    task: Task | None = None
    """What is to be done next, or is being done; None when nothing is left to do."""
    decision: Decision | None = None
    landed: Mapping[str, Written] = field(default_factory=dict)
    failed: Mapping[str, Exception] = field(default_factory=dict)
    alone: bool = False
    """Whether it was parted from others with which it was to be written."""
    begun: bool = False
    """Whether this run planned it."""
    refusing: str = ""
    """The destination whose write refused rows that were decided for it, if there is one."""
    again: bool = False
    """Whether it is decided once more though the DLQ has rows of it."""
    stale: bool = False
    """Whether what it was planned with may be gone: if nobody has it, it is planned anew."""
    tried: int = 0
    """How often it was tried again, by earlier runs too."""
    since: float | None = None
    """When it first could not be carried, by the run's clock; maybe before the run began."""
    until: float | None = None
    """Until when it rests before it is tried again; None once it was."""


@dataclass(frozen=True, kw_only=True)
class Step:
    """What follows: entries to record first, then the flight as it goes on."""

    flight: Flight
    entries: Sequence[Entry] = ()
    settled: bool = False
    """Whether the offset is committed with these entries."""
    done: bool = False
    """Whether the batch is finished and its lane free."""
    error: Exception | None = None
    """Why the run must stop."""
    again: Task | None = None
    """What there would be to do first if the error turned out to be one that passes by itself."""


def begin(plan: Plan, lane: Lane, since: float | None = None) -> Flight:
    """A batch that was just planned; `since` is when its rows could not be carried for the first time, if ever."""
    task = Carry(plan=plan) if plan.straight else Prepare(plan=plan)
    return Flight(plan=plan, lane=lane, task=task, begun=True, tried=lane.tried, since=since)


def resume(plan: Plan, lane: Lane, identities: Mapping[str, Identity], since: float | None = None) -> Flight:
    """A batch that a process left open which is gone: nothing is known until everybody was asked."""
    names = list(plan.destinations)
    if plan.decision and plan.decision.counts.nacked:
        names.insert(0, DLQ)
    task = Ask(plan=plan, names=names, identities=identities)
    return Flight(plan=plan, lane=lane, task=task, decision=plan.decision, tried=lane.tried, since=since)


def after(flight: Flight, outcome: Outcome, rules: Rules) -> Step:
    """What follows from the outcome of the flight's task."""
    if isinstance(outcome, Failed):
        return _failed(flight, outcome.error, rules)
    if isinstance(outcome, Alone):
        apart = replace(flight, alone=True)
        return Step(flight=apart if outcome.error is None else replace(apart, task=_asking(flight, [outcome.error])))
    if isinstance(outcome, Refused):
        return Step(flight=replace(flight, task=Prepare(plan=flight.plan)))
    if isinstance(outcome, Prepared):
        return _judge(flight, outcome, rules)
    if isinstance(outcome, Explained):
        return _tripped(flight, outcome.nacks, rules)
    if isinstance(outcome, Answers):
        return _answered(flight, outcome, rules)
    if isinstance(outcome, Counted):
        return _counted(flight, outcome)
    if isinstance(outcome, Checked):
        return _checked(flight, outcome, rules)
    assert not isinstance(outcome, Ticked | Shared), "what a flight hears is of one batch"
    if outcome.counts is not None:
        return _straight(flight, outcome.written, outcome.counts)
    return _delivered(flight, outcome, rules)


def _straight(flight: Flight, written: Mapping[str, Written], counts: Counts) -> Step:
    flight = replace(flight, landed=written)
    window, _ = flight.lane.window.after(counts.read, (), Dlq())
    return _settle(flight, counts, window.json(), owed=())


def _judge(flight: Flight, prepared: Prepared, rules: Rules) -> Step:
    dlq = Dlq(window=0) if is_replay(flight.plan.batch.lane) else rules.dlq
    window, tripped = judged(flight.lane.window, dlq, prepared.counts.read, prepared.nacks, prepared.codes)
    decision = Decision(
        path=prepared.path,
        sections=prepared.sections,
        counts=prepared.counts,
        window=window,
        bases=prepared.bases,
        again=flight.again,
    )
    if flight.again:  # it has delivered something, so it is settled whole
        tripped = None
    elif prepared.stops:
        task = Explain(plan=flight.plan, decision=decision, place=0, stages=prepared.stops)
        return Step(flight=replace(flight, task=task, decision=decision))
    if tripped is not None:
        place, code, rows = tripped.place, tripped.code, tripped.rows
        task = Explain(plan=flight.plan, decision=decision, place=place, code=code, rows=rows)
        return Step(flight=replace(flight, task=task, decision=decision))
    entry = Entry(kind="prepared", lane=flight.plan.batch.lane, plan=flight.plan.batch.plan, body=decision.json())
    step = _next(replace(flight, decision=decision), rules)
    return replace(step, entries=(entry, *step.entries))


def _tripped(flight: Flight, nacks: Sequence[Mapping[str, JSON]], rules: Rules) -> Step:
    task = flight.task
    assert isinstance(task, Explain)
    dlq, batch = rules.dlq, flight.plan.batch
    nacked = task.decision.counts.nacked
    error: Exception = WindowTripped(
        batch, place=task.place, window=dlq.window, threshold=dlq.threshold, nacks=nacks, nacked=nacked
    )
    if task.stages:
        error = StageStopped(batch, stages=task.stages, nacks=nacks)
    elif task.code:
        read, limit = task.decision.counts.read, dlq.limits.get(task.code, "")
        error = LimitTripped(batch, of=task.code, limit=limit, rows=task.rows, read=read, nacks=nacks)
    return replace(_cancel(flight), error=error)


def _answered(flight: Flight, answers: Answers, rules: Rules) -> Step:
    if flight.decision is not None:
        return _answered_of(flight, flight.decision, answers, rules)
    if not answers.found:
        anew = flight.stale or not flight.begun
        return _cancel(flight) if anew else Step(flight=replace(flight, task=Carry(plan=flight.plan)))
    (written,) = answers.found.values()
    return Step(flight=replace(flight, landed=answers.found, task=Count(plan=flight.plan, written=written)))


def _answered_of(flight: Flight, decision: Decision, answers: Answers, rules: Rules) -> Step:
    """A decided batch goes on to those that do not have it. Where nobody has it, and a destination has refused rows of
    it or may demand something else than when it was decided, that is looked at first."""
    found = {name: each for name, each in answers.found.items() if name != DLQ or not decision.again}
    flight = replace(flight, landed={**flight.landed, **found})
    having = _having(flight)
    if flight.refusing in having:
        flight = replace(flight, refusing="", failed={})
    if flight.refusing and having:
        return _too_late(flight, flight.refusing, having)
    if flight.refusing or not (flight.begun or having):
        return Step(flight=replace(flight, task=Check(plan=flight.plan, decision=decision)))
    return _next(flight, rules)


def _counted(flight: Flight, counted: Counted) -> Step:
    """The equation of a straight batch that was found. Where its commit brought others as well, what stands behind all
    stages is what this batch has of it."""
    ((name, written),) = flight.landed.items()
    delivered = counted.left if written.rows is None else written.rows
    if written.version is not None:
        flight = replace(flight, landed={name: replace(written, rows=delivered)})
    read = (delivered or 0) if counted.read is None else counted.read
    expected = read if delivered is None else delivered
    branch = Branch(expected=expected, filtered=max(0, read - expected), changed=max(0, expected - read))
    counts = Counts(read=read, branches={name: branch})
    window, _ = flight.lane.window.after(read, (), Dlq())
    return _settle(flight, counts, window.json(), owed=(), known=counted.read is not None)


def _checked(flight: Flight, checked: Checked, rules: Rules) -> Step:
    """A batch that nobody has, though it was decided, is decided again where a destination would refuse rows of it.
    One that an earlier run has left is planned anew, for its stages may be others now."""
    assert flight.decision is not None
    again = flight.again or flight.decision.again or DLQ in flight.landed
    if not checked.refusing and flight.refusing not in flight.failed:
        return _next(replace(flight, refusing=""), rules)
    if not checked.refusing and (flight.begun or again):
        return Step(flight=replace(flight, task=None), error=flight.failed[flight.refusing])
    if again and not (flight.begun and checked.same):
        return _too_late(flight, checked.refusing, [DLQ])
    if not flight.begun:
        return _cancel(flight)
    task = Prepare(plan=flight.plan)
    return Step(flight=replace(flight, task=task, decision=None, landed={}, failed={}, refusing="", again=again))


def _delivered(flight: Flight, landed: Landed, rules: Rules) -> Step:
    flight = replace(flight, landed={**flight.landed, **landed.written}, failed={**flight.failed, **landed.failed})
    refusing = next((name for name, error in landed.failed.items() if of_a_value(error)), "")
    if refusing and DLQ not in landed.failed:
        if _having(flight):
            return _too_late(flight, refusing, _having(flight))
        task = _asking(flight, list(flight.failed.values()), list(flight.failed))
        return Step(flight=replace(flight, task=task, refusing=refusing))
    if landed.failed and (DLQ in landed.failed or rules.delivery == "after_all"):
        final = DLQ in landed.failed and not came_between(landed.failed[DLQ])
        again = None if final else _asking(flight, list(landed.failed.values()), list(landed.failed))
        return Step(flight=replace(flight, task=None), error=next(iter(landed.failed.values())), again=again)
    return _next(flight, rules)


def _next(flight: Flight, rules: Rules) -> Step:
    """The next deliveries of a decided batch, or its end.

    All destinations get it side by side, and the DLQ what was refused; after any, one after the other, so that the
    first one moves the offset, and the DLQ beside the first.
    """
    decision = flight.decision
    assert decision is not None
    counts = decision.counts
    opens = rules.replacing if flight.plan.batch.first else ()
    nothing = {
        name: Written(rows=0)
        for name in flight.plan.destinations
        if not counts.branches[name].expected and name not in opens
    }
    flight = replace(flight, landed={**nothing, **flight.landed})
    nacks_wait = counts.nacked > 0 and not rules.discards and DLQ not in flight.landed
    waiting = [name for name in flight.plan.destinations if name not in flight.landed and name not in flight.failed]
    together = waiting if rules.delivery == "after_all" else waiting[:1]
    names = [DLQ, *together] if nacks_wait else together
    owed = tuple(name for name in flight.plan.destinations if name not in flight.landed)
    confirmed = not nacks_wait and len(owed) < len(flight.plan.destinations)
    publish = rules.delivery == "after_any" and confirmed and bool(owed) and not flight.plan.published
    if names:
        flight = replace(flight, task=Deliver(plan=flight.plan, decision=decision, names=names))
        return _publish(flight, counts, decision, owed) if publish else Step(flight=flight)
    if not owed:
        return _settle(flight, counts, decision.window.json(), owed=(), discards=rules.discards)
    errors = list(flight.failed.values())
    error, again = errors[0], _asking(flight, errors, list(flight.failed))
    flight = replace(flight, task=None)
    step = _publish(flight, counts, decision, owed) if publish else Step(flight=flight)
    return replace(step, error=error, again=again)


def _having(flight: Flight) -> Sequence[str]:
    """The destinations that have got rows of a decided batch."""
    assert flight.decision is not None
    branches = flight.decision.counts.branches
    landed = {name: flight.landed[name] for name in flight.plan.destinations if name in flight.landed}
    return [name for name, each in landed.items() if branches[name].expected or each.version is not None]


def _too_late(flight: Flight, refusing: str, having: Sequence[str]) -> Step:
    error = flight.failed.get(refusing)
    said = getattr(error, "message", str(error)) if error else "it demands by now what they do not have"
    late = RefusedLate(flight.plan.batch, refusing=refusing, having=having, said=said)
    late.__cause__ = error
    return Step(flight=replace(flight, task=None), error=late)


def _publish(flight: Flight, counts: Counts, decision: Decision, owed: Sequence[str]) -> Step:
    """Commit the offset while some destinations still owe the batch."""
    step = _settle(flight, counts, decision.window.json(), owed=owed)
    plan = replace(flight.plan, published=True)
    return replace(step, flight=replace(flight, plan=plan), done=False)


def _settle(
    flight: Flight,
    counts: Counts,
    window: JSON,
    *,
    owed: Sequence[str],
    known: bool = True,
    discards: bool = False,
) -> Step:
    plan, batch = flight.plan, flight.plan.batch
    delivered = {name: flight.landed[name].rows for name in plan.destinations if name in flight.landed}
    told = {name: rows for name, rows in delivered.items() if rows is not None}
    balanced: bool | str = counts.balanced(told)
    if balanced and (not known or len(told) < len(delivered)):
        balanced = "unknown"
    clean = 0 if counts.nacked else min(CLEAN, flight.lane.clean + 1)
    body = {
        "offset": batch.span.end,
        "counts": {
            **counts.json(),
            "delivered": delivered,
            "discarded": counts.nacked if discards else 0,
            **({"dlq_bytes": flight.landed[DLQ].bytes} if DLQ in flight.landed else {}),
            "balanced": balanced,
        },
        "window": window,
        "clean": clean,
        "owed": list(owed),
    }
    entry = Entry(kind="settle", lane=batch.lane, plan=batch.plan, body=body)
    error = None
    if balanced is False:
        error = Unbalanced(
            f"the counts of batch {batch.number} of lane {batch.lane} do not add up: read {counts.read}, "
            f"nacked {counts.nacked}, filtered {counts.filtered}, delivered {delivered}.",
            hint="The batch is settled as it is. Compare the destination with the origin before you go on.",
        )
    return Step(
        flight=replace(flight, task=None) if not owed else flight,
        entries=(entry,),
        settled=not plan.published,
        done=not owed,
        error=error,
    )


def _cancel(flight: Flight) -> Step:
    batch = flight.plan.batch
    entry = Entry(kind="cancel", lane=batch.lane, plan=batch.plan)
    return Step(flight=replace(flight, task=None), entries=(entry,), done=True)


def _failed(flight: Flight, error: Exception, rules: Rules) -> Step:
    task = flight.task
    if isinstance(task, Explain):
        return _tripped(flight, (), rules)
    if isinstance(task, Deliver):
        return _delivered(flight, Landed(written={}, failed=dict.fromkeys(task.names, error)), rules)
    stale = bool(flight.begun and flight.plan.pins and not flight.again) and isinstance(task, Carry | Prepare)
    stale = stale and lost_a_file(error)
    again = _asking(flight, [error]) if stale or isinstance(task, Carry) else task
    return Step(flight=replace(flight, task=None, stale=stale), error=error, again=again)


def rested(flight: Flight, again: Task, *, now: float, until: float) -> Flight:
    """The flight once more, after a rest."""
    since = now if flight.since is None else flight.since
    return replace(flight, task=again, failed={}, tried=flight.tried + 1, since=since, until=until)


def _asking(flight: Flight, errors: Sequence[Exception], names: Sequence[str] = ()) -> Ask:
    """Whether writes of ours that ended with these errors have landed all the same. What each destination was when the
    run opened is put in when they are asked."""
    ended = not any(unanswered(error) for error in errors)
    return Ask(plan=flight.plan, names=names or flight.plan.destinations, identities={}, ours=True, ended=ended)
