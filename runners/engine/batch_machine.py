"""One batch in flight, and what follows from each outcome. It is pure: it reads, writes and waits for nothing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

from destinations.destination import Identity, Written
from destinations.dlq import DLQ, FALLBACK, FILTERED, ROWS, Dlq
from origins.codec import encode
from runners.model.entry import Entry, PauseBody
from runners.model.error_kinds import blames_dlq, classify
from runners.model.errors import FallbackFailed, LimitTripped, RefusedLate, StageStopped, Unbalanced, WindowTripped
from runners.model.nack_window import Judgement, NackWindow, TrippedLimit, describe_limit, get_action, judge_limits
from runners.model.pipeline_state import CLEAN, LaneState, is_replay
from runners.model.planned_batch import BranchCounts, Counts, DecidedBatch, PlannedBatch, SettleBody, SettledCounts
from runners.model.tasks import (
    Answers,
    AskDestinations,
    Checked,
    CheckRefusals,
    Counted,
    CountSpan,
    Declined,
    Deliver,
    EmptyBatchShown,
    Explain,
    Explained,
    Failed,
    GroupWritten,
    Landed,
    Outcome,
    Prepare,
    Prepared,
    Task,
    WriteStraight,
)

GROUPED = "grouped"
"""The name of the way that writes batches of several lanes together."""


@dataclass(frozen=True, kw_only=True)
class DeliveryRules:
    """The rules of delivery, by the definition."""

    dlq: Dlq = Dlq()
    delivery: Literal["after_all", "after_any"] = "after_all"
    discards: bool = False
    replacing: frozenset[str] = frozenset()
    """The destinations that a run's first batch replaces. That batch is written even if it has no rows."""
    keeps_filtered: bool = False
    """Whether Wherry stores filtered rows."""

    @property
    def falls_back(self) -> bool:
        """Whether refused rows go to a fallback while the DLQ cannot take them."""
        return self.dlq.on_failure == "fallback"


@dataclass(frozen=True, kw_only=True)
class BatchInFlight:
    """A batch in flight, and what is known about it."""

    plan: PlannedBatch
    lane: LaneState
    """The lane when the batch was planned."""
    task: Task | None = None
    """The next or the current task. None if nothing is left to do."""
    decision: DecidedBatch | None = None
    written: Mapping[str, Written] = field(default_factory=dict)
    failed: Mapping[str, Exception] = field(default_factory=dict)
    declined: frozenset[str] = frozenset()
    begun: bool = False
    """Whether this run planned it."""
    refusing: str = ""
    """The destination whose write refused rows that were decided for it, if there is one."""
    again: bool = False
    """Whether the batch is decided again, though the DLQ has some of its rows."""
    fallen: Exception | None = None
    """Why the DLQ cannot take its refused rows, which then go to the fallback."""
    way: str = ""
    """The way that it took. Empty if that is open, or if an earlier run chose it."""
    stale: bool = False
    """Whether rows that it was planned with may be removed.

    If no destination has the batch, its rows are planned again.
    """
    tried: int = 0
    """How often it was tried again, also by earlier runs."""
    since: float | None = None
    """When it first failed, by the run's clock. This may be before the run began."""
    until: float | None = None
    """Until when it rests before it is tried again. None after that."""

    def is_resting(self, now: float) -> bool:
        return self.until is not None and self.until > now


@dataclass(frozen=True, kw_only=True)
class Transition:
    """The next step: entries to record first, then the flight as it continues."""

    flight: BatchInFlight
    entries: Sequence[Entry] = ()
    settled: bool = False
    """Whether these entries commit the offset."""
    done: bool = False
    """Whether the batch is finished and its lane is free."""
    error: Exception | None = None
    """Why the run must stop."""
    exceeded: TrippedLimit | None = None
    """The limit that the batch exceeds, though it is delivered."""
    again: Task | None = None
    """The next task if the error passes by itself."""


def begin_flight(plan: PlannedBatch, lane: LaneState, since: float | None = None) -> BatchInFlight:
    """Begin a planned batch. `since` is when its rows first failed, if they did."""
    task = WriteStraight(plan=plan) if plan.straight else Prepare(plan=plan)
    return BatchInFlight(plan=plan, lane=lane, task=task, begun=True, tried=lane.tried, since=since)


def resume_flight(
    plan: PlannedBatch,
    lane: LaneState,
    identities: Mapping[str, Identity],
    since: float | None = None,
    *,
    falls_back: bool = False,
) -> BatchInFlight:
    """Resume a batch that a dead process left open. Nothing is known until all destinations answered."""
    names = list(plan.destinations)
    if plan.decision and plan.decision.counts.nacked:
        names = [DLQ, *([FALLBACK] if falls_back else []), *names]
    if plan.decision and plan.decision.filtered:
        names.append(FILTERED)
    task = AskDestinations(plan=plan, names=names, identities=identities)
    return BatchInFlight(plan=plan, lane=lane, task=task, decision=plan.decision, tried=lane.tried, since=since)


def plan_transition(flight: BatchInFlight, outcome: Outcome, rules: DeliveryRules) -> Transition:
    """Return what follows from the outcome of the flight's task."""
    if isinstance(outcome, Failed):
        return _on_failed(flight, outcome.error, rules)
    if isinstance(outcome, Declined):
        return _on_declined(flight, outcome)
    if isinstance(outcome, Prepared):
        return _on_prepared(replace(flight, way=outcome.way), outcome, rules)
    if isinstance(outcome, Explained):
        return _on_tripped(flight, outcome, rules)
    if isinstance(outcome, Answers):
        return _on_answers(flight, outcome, rules)
    if isinstance(outcome, Counted):
        return _on_counted(flight, outcome)
    if isinstance(outcome, Checked):
        return _on_checked(flight, outcome, rules)
    assert not isinstance(outcome, EmptyBatchShown | GroupWritten), "what a flight hears is of one batch"
    if outcome.counts is not None:
        return _settle_straight(replace(flight, way=outcome.way), outcome.written, outcome.counts)
    return _on_delivered(flight, outcome, rules)


def _on_declined(flight: BatchInFlight, declined: Declined) -> Transition:
    """Return the next task of a batch that a way declined.

    A batch that cannot share a write gets a separate one, and a batch that cannot go straight is decided first. If a
    write may have landed, Wherry asks for it before that.
    """
    flight = replace(flight, declined=flight.declined | {declined.way})
    if declined.error is not None:
        return Transition(flight=replace(flight, task=_make_ask(flight, [declined.error])))
    task = flight.task if declined.way == GROUPED else Prepare(plan=flight.plan)
    return Transition(flight=replace(flight, task=task))


def _settle_straight(flight: BatchInFlight, written: Mapping[str, Written], counts: Counts) -> Transition:
    flight = replace(flight, written=written)
    window, _ = flight.lane.window.advance(counts.read, (), Dlq())
    return _settle(flight, counts, window, owed=())


def _on_prepared(flight: BatchInFlight, prepared: Prepared, rules: DeliveryRules) -> Transition:
    dlq = Dlq(window=0) if is_replay(flight.plan.batch.lane) else rules.dlq
    read, nacks = prepared.counts.read, prepared.nacks
    judged = judge_limits(flight.lane.window, dlq, read, nacks)
    decision = DecidedBatch(
        path=prepared.path,
        sections=prepared.sections,
        counts=prepared.counts,
        window=judged.window,
        bases=prepared.bases,
        again=flight.again,
        way=prepared.way,
        keeps_filtered=rules.keeps_filtered,
    )
    if flight.again:  # the DLQ has rows of the batch already, so no limit may cancel it
        judged = Judgement(window=judged.window)
    elif prepared.stops:
        task = Explain(plan=flight.plan, decision=decision, place=0, stages=prepared.stops)
        return Transition(flight=replace(flight, task=task, decision=decision))
    if judged.tripped is not None:
        task = Explain(plan=flight.plan, decision=decision, place=judged.tripped.place, tripped=judged.tripped)
        return Transition(flight=replace(flight, task=task, decision=decision))
    entry = Entry(kind="prepared", lane=flight.plan.batch.lane, plan=flight.plan.batch.plan, body=encode(decision))
    step = _plan_next_deliveries(replace(flight, decision=decision), rules)
    return replace(step, entries=(entry, *step.entries), exceeded=judged.exceeded)


def _on_tripped(flight: BatchInFlight, explained: Explained, rules: DeliveryRules) -> Transition:
    task, nacks, causes = flight.task, explained.nacks, explained.causes
    assert isinstance(task, Explain)
    dlq, batch = rules.dlq, flight.plan.batch
    error: Exception
    step, tripped = _cancel(flight), task.tripped
    if task.stages:
        error = StageStopped(batch, stages=task.stages, nacks=nacks)
    elif tripped is not None and tripped.limit is not None:
        message, pauses = describe_limit(tripped, task.decision.counts.read), get_action(tripped) == "pause"
        error = LimitTripped(batch, message=message, pauses=pauses, nacks=nacks, causes=causes)
        if pauses:
            pause = encode(PauseBody(number=batch.number, limit=ROWS, reason=message))
            step = replace(step, entries=(*step.entries, Entry(kind="pause", lane=batch.lane, body=pause)))
    else:
        error = WindowTripped(
            batch,
            place=task.place,
            window=dlq.window,
            threshold=dlq.threshold,
            nacks=nacks,
            nacked=task.decision.counts.nacked,
            causes=causes,
        )
    return replace(step, error=error)


def _on_answers(flight: BatchInFlight, answers: Answers, rules: DeliveryRules) -> Transition:
    if flight.decision is not None:
        return _on_answers_decided(flight, flight.decision, answers, rules)
    if not answers.found:
        anew = flight.stale or not flight.begun
        return _cancel(flight) if anew else Transition(flight=replace(flight, task=WriteStraight(plan=flight.plan)))
    (written,) = answers.found.values()
    return Transition(flight=replace(flight, written=answers.found, task=CountSpan(plan=flight.plan, written=written)))


def _on_answers_decided(
    flight: BatchInFlight, decision: DecidedBatch, answers: Answers, rules: DeliveryRules
) -> Transition:
    """Continue a decided batch with the destinations that do not have it.

    If none has it, and a destination refused rows or may have new demands, Wherry checks the rows first.
    """
    found = {
        name: written
        for name, written in answers.found.items()
        if not decision.again or not _may_lack(name, written, decision)
    }
    flight = replace(flight, written={**flight.written, **found})
    if answers.failed and not _has_refused(flight):
        assert isinstance(flight.task, AskDestinations)
        again = replace(flight.task, names=[name for name in flight.task.names if name not in found])
        flight = replace(flight, task=None, failed={**flight.failed, **answers.failed})
        return Transition(flight=flight, error=answers.failed[DLQ], again=again)
    return _go_on(flight, decision, rules)


def _go_on(flight: BatchInFlight, decision: DecidedBatch, rules: DeliveryRules) -> Transition:
    """Return what follows for a decided batch, once it is known which destinations have it."""
    having = _list_written(flight)
    if flight.refusing in having:
        flight = replace(flight, refusing="", failed={})
    if flight.refusing and having:
        return _refuse_late(flight, flight.refusing, having)
    if flight.refusing or not (flight.begun or having or FILTERED in flight.written):
        return Transition(flight=replace(flight, task=CheckRefusals(plan=flight.plan, decision=decision)))
    return _plan_next_deliveries(flight, rules)


def _may_lack(name: str, written: Written, decision: DecidedBatch) -> bool:
    """Whether the place may lack refused rows of a batch that was decided again.

    The DLQ gets such rows in several writes. The fallback gets all of them in one write.
    """
    return name == DLQ or (name == FALLBACK and written.rows != decision.counts.nacked)


def _on_counted(flight: BatchInFlight, counted: Counted) -> Transition:
    """Settle a straight batch that was found.

    If its commit brought other batches too, the count after all stages is this batch's share.
    """
    ((name, written),) = flight.written.items()
    delivered = counted.left if written.rows is None else written.rows
    if written.version is not None:
        flight = replace(flight, written={name: replace(written, rows=delivered)})
    read = (delivered or 0) if counted.read is None else counted.read
    expected = read if delivered is None else delivered
    branch = BranchCounts(expected=expected, filtered=max(0, read - expected), changed=max(0, expected - read))
    counts = Counts(read=read, branches={name: branch})
    window, _ = flight.lane.window.advance(read, (), Dlq())
    return _settle(flight, counts, window, owed=(), known=counted.read is not None)


def _on_checked(flight: BatchInFlight, checked: Checked, rules: DeliveryRules) -> Transition:
    """Decide a batch again that no destination has, if a destination would refuse rows of it.

    A batch of an earlier run is planned again, because its stages may have changed. A DLQ that failed may have some of
    its rows.
    """
    assert flight.decision is not None
    again = flight.again or flight.decision.again or _has_refused(flight) or flight.fallen is not None
    if not checked.refusing and flight.refusing not in flight.failed:
        return _plan_next_deliveries(replace(flight, refusing=""), rules)
    if not checked.refusing and (flight.begun or again):
        return Transition(flight=replace(flight, task=None), error=flight.failed[flight.refusing])
    if again and not (flight.begun and checked.same):
        return _refuse_late(flight, checked.refusing, [DLQ])
    if not flight.begun:
        return _cancel(flight)
    task = Prepare(plan=flight.plan)
    stored = {name: each for name, each in flight.written.items() if name == FILTERED}
    flight = replace(flight, task=task, decision=None, written=stored, failed={}, refusing="", again=again)
    return Transition(flight=flight)


def _on_delivered(flight: BatchInFlight, outcome: Landed, rules: DeliveryRules) -> Transition:
    if FALLBACK in outcome.failed and flight.fallen is not None:
        both = FallbackFailed(flight.plan.batch, dlq=flight.fallen, fallback=outcome.failed[FALLBACK])
        outcome = replace(outcome, failed={**outcome.failed, FALLBACK: both})
    flight = replace(flight, written={**flight.written, **outcome.written}, failed={**flight.failed, **outcome.failed})
    refusing = next((name for name, error in outcome.failed.items() if classify(error).is_value), "")
    if refusing and {DLQ, FALLBACK}.isdisjoint(outcome.failed):
        if _list_written(flight):
            return _refuse_late(flight, refusing, _list_written(flight))
        task = _make_ask(flight, list(flight.failed.values()), list(flight.failed))
        return Transition(flight=replace(flight, task=task, refusing=refusing))
    if outcome.failed and (not {DLQ, FALLBACK, FILTERED}.isdisjoint(outcome.failed) or rules.delivery == "after_all"):
        final = DLQ in outcome.failed and not classify(outcome.failed[DLQ]).is_conflict and not rules.falls_back
        again = None if final else _make_ask(flight, list(outcome.failed.values()), list(outcome.failed))
        return Transition(flight=replace(flight, task=None), error=next(iter(outcome.failed.values())), again=again)
    return _plan_next_deliveries(flight, rules)


def _plan_next_deliveries(flight: BatchInFlight, rules: DeliveryRules) -> Transition:
    """Return the next deliveries of a decided batch, or its end.

    All destinations get it in parallel, and the DLQ gets the refused rows. With `after_any` they get it one after the
    other, so that the first one moves the offset. The DLQ is written in parallel with the first. Filtered rows are
    stored last before the offset moves, because the batch may be decided again until then.
    """
    decision = flight.decision
    assert decision is not None
    counts = decision.counts
    batch = flight.plan.batch
    opens = {*batch.replaces, *(rules.replacing if batch.first else ())}
    nothing = {
        name: Written(rows=0)
        for name in flight.plan.destinations
        if not counts.branches[name].expected and name not in opens
    }
    flight = replace(flight, written={**nothing, **flight.written})
    nacks_wait = counts.nacked > 0 and not rules.discards and not _has_refused(flight)
    waiting = [name for name in flight.plan.destinations if name not in flight.written and name not in flight.failed]
    together = waiting if rules.delivery == "after_all" else waiting[:1]
    names = [FALLBACK if flight.fallen else DLQ, *together] if nacks_wait else together
    owed = tuple(name for name in flight.plan.destinations if name not in flight.written)
    confirmed = not nacks_wait and len(owed) < len(flight.plan.destinations)
    publish = rules.delivery == "after_any" and confirmed and bool(owed) and not flight.plan.published
    filtered_wait = decision.filtered > 0 and FILTERED not in flight.written
    if filtered_wait and (publish or not (names or owed)):
        return Transition(flight=replace(flight, task=Deliver(plan=flight.plan, decision=decision, names=[FILTERED])))
    if names:
        flight = replace(flight, task=Deliver(plan=flight.plan, decision=decision, names=names))
        return _publish(flight, counts, decision, owed) if publish else Transition(flight=flight)
    if not owed:
        return _settle(flight, counts, decision.window, owed=(), discards=rules.discards)
    errors = list(flight.failed.values())
    error, again = errors[0], _make_ask(flight, errors, list(flight.failed))
    flight = replace(flight, task=None)
    step = _publish(flight, counts, decision, owed) if publish else Transition(flight=flight)
    return replace(step, error=error, again=again)


def turn_to_fallback(step: Transition, rules: DeliveryRules, *, at_once: bool = False) -> Transition:
    """Return a transition that brings refused rows to the fallback, if this transition fails because of the DLQ.

    Otherwise return this transition. With `at_once`, the DLQ is not tried again, unless another commit came in between.
    """
    flight, error = step.flight, step.flight.failed.get(DLQ)
    if step.error is None or error is None or not rules.falls_back or flight.fallen or not blames_dlq(error):
        return step
    if at_once and classify(error).is_conflict:
        return step
    others = {name: each for name, each in flight.failed.items() if name != DLQ}
    flight = replace(flight, failed={}, fallen=error)
    assert flight.decision is not None, "only a decided batch has refused rows"
    if others:
        return _on_delivered(flight, Landed(written={}, failed=others), rules)
    return _go_on(flight, flight.decision, rules)


def _has_refused(flight: BatchInFlight) -> bool:
    """Whether the DLQ or the fallback has the refused rows."""
    return DLQ in flight.written or FALLBACK in flight.written


def _list_written(flight: BatchInFlight) -> Sequence[str]:
    assert flight.decision is not None
    branches = flight.decision.counts.branches
    found = {name: flight.written[name] for name in flight.plan.destinations if name in flight.written}
    return [name for name, written in found.items() if branches[name].expected or written.version is not None]


def _refuse_late(flight: BatchInFlight, refusing: str, having: Sequence[str]) -> Transition:
    error = flight.failed.get(refusing)
    reason = getattr(error, "message", str(error)) if error else "it has a new constraint that these rows do not meet"
    late = RefusedLate(flight.plan.batch, refusing=refusing, having=having, reason=reason)
    late.__cause__ = error
    return Transition(flight=replace(flight, task=None), error=late)


def _publish(flight: BatchInFlight, counts: Counts, decision: DecidedBatch, owed: Sequence[str]) -> Transition:
    """Commit the offset while some destinations still miss the batch."""
    step = _settle(flight, counts, decision.window, owed=owed)
    plan = replace(flight.plan, published=True)
    return replace(step, flight=replace(flight, plan=plan), done=False)


def _settle(
    flight: BatchInFlight,
    counts: Counts,
    window: NackWindow,
    *,
    owed: Sequence[str],
    known: bool = True,
    discards: bool = False,
) -> Transition:
    plan, batch = flight.plan, flight.plan.batch
    delivered = {name: flight.written[name].rows for name in plan.destinations if name in flight.written}
    counted = {name: rows for name, rows in delivered.items() if rows is not None}
    stored = flight.written[FILTERED].rows if FILTERED in flight.written else None
    is_stored = stored is None or flight.decision is None or stored == flight.decision.filtered
    balanced: bool | str = counts.is_balanced(counted) and is_stored
    if balanced and (not known or len(counted) < len(delivered)):
        balanced = "unknown"
    clean = 0 if counts.nacked else min(CLEAN, flight.lane.clean + 1)
    settled = SettledCounts(
        **vars(counts),
        delivered=delivered,
        discarded=counts.nacked if discards else 0,
        dlq_bytes=flight.written[DLQ].bytes if DLQ in flight.written else None,
        fallback=counts.nacked if FALLBACK in flight.written and DLQ not in flight.written else 0,
        balanced=balanced,
    )
    way = flight.way or (flight.decision.way if flight.decision else "")
    body = SettleBody(offset=batch.span.end, counts=settled, window=window, clean=clean, owed=owed, way=way)
    entry = Entry(kind="settle", lane=batch.lane, plan=batch.plan, body=encode(body))
    error = None
    if balanced is False:
        error = Unbalanced(
            f"the counts of batch {batch.number} of lane {batch.lane} do not add up: read {counts.read}, "
            f"refused {counts.nacked}, filtered {counts.filtered}"
            f"{'' if stored is None else f' (stored {stored})'}, delivered {delivered}.",
            hint="Wherry settled the batch as it is. Compare the destination with the origin before the next run.",
        )
    return Transition(
        flight=replace(flight, task=None) if not owed else flight,
        entries=(entry,),
        settled=not plan.published,
        done=not owed,
        error=error,
    )


def _cancel(flight: BatchInFlight) -> Transition:
    batch = flight.plan.batch
    entry = Entry(kind="cancel", lane=batch.lane, plan=batch.plan)
    return Transition(flight=replace(flight, task=None), entries=(entry,), done=True)


def _on_failed(flight: BatchInFlight, error: Exception, rules: DeliveryRules) -> Transition:
    task = flight.task
    if isinstance(task, Explain):
        return _on_tripped(flight, Explained(nacks=()), rules)
    if isinstance(task, Deliver):
        return _on_delivered(flight, Landed(written={}, failed=dict.fromkeys(task.names, error)), rules)
    stale = bool(flight.begun and flight.plan.pins and not flight.again) and isinstance(task, WriteStraight | Prepare)
    stale = stale and classify(error).is_file_gone
    again = _make_ask(flight, [error]) if stale or isinstance(task, WriteStraight) else task
    return Transition(flight=replace(flight, task=None, stale=stale), error=error, again=again)


def rest_flight(flight: BatchInFlight, again: Task, *, now: float, until: float) -> BatchInFlight:
    since = now if flight.since is None else flight.since
    return replace(flight, task=again, failed={}, tried=flight.tried + 1, since=since, until=until)


def _make_ask(flight: BatchInFlight, errors: Sequence[Exception], names: Sequence[str] = ()) -> AskDestinations:
    """Return the task that asks whether the writes that ended with these errors landed nevertheless.

    The identities of the destinations are added when the task is handed out.
    """
    ended = not any(classify(error).is_outcome_unknown for error in errors)
    return AskDestinations(
        plan=flight.plan, names=names or flight.plan.destinations, identities={}, ours=True, ended=ended
    )
