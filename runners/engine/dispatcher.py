"""The one thread that owns progress: it plans batches, hands them to runners, collects outcomes and commits.

Each turn decides, then records, then acts. It does nothing before recording it, and no other code records anything.
"""

from __future__ import annotations

import contextlib
import random
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace

from destinations.destination import Identity
from destinations.dlq import DLQ, FALLBACK, FILTERED, ROWS
from origins.batch import Batch
from origins.crash_points import reach
from runners.engine.batch_machine import (
    BatchInFlight,
    DeliveryRules,
    Transition,
    plan_transition,
    resume_flight,
    turn_to_fallback,
)
from runners.engine.planning import BudgetWatch, Planning
from runners.engine.work_in_flight import BackOff, WorkInFlight, group_flights
from runners.engine.worker_pool import Finished, TaskWorkers
from runners.model.clock import Clock
from runners.model.entry import Entry
from runners.model.events import (
    BatchCancelled,
    BatchDecided,
    BatchPlanned,
    BatchResumed,
    BatchSettled,
    DlqFellBack,
    Event,
    LimitExceeded,
    Listener,
    RunStopping,
)
from runners.model.nack_window import TrippedLimit, apply_config, describe_limit
from runners.model.pipeline_state import PipelineState, is_replay
from runners.model.planned_batch import DecidedBatch, PlannedBatch, SettleBody
from runners.model.spec import NEVER, RetryOptions
from runners.model.tasks import AskDestinations, Failed, Outcome, Prepare, Task, WriteStraight
from runners.state.journal import Journal
from runners.state.ledger import LedgerError
from runners.state.progress import read_body


@dataclass(eq=False, kw_only=True)
class Dispatcher:
    """Processes batches until nothing is left, a stop is requested, or something fails.

    Its thread calls all callbacks.
    """

    journal: Journal
    worker_pool: TaskWorkers
    clock: Clock
    rules: DeliveryRules
    max_in_flight: int
    """How many batches are processed at the same time at most."""
    grouped_lanes: int = 16
    """How many lanes' batches one write may bring at most."""
    retry: RetryOptions = NEVER
    committed: Mapping[str, Callable[[Batch], None]]
    """The origins that get a call when a batch's offset is durable, by name."""
    forget: Callable[[PlannedBatch], None]
    """Removes the prepared rows of a finished batch."""
    pulse: Callable[[], None] = lambda: None
    """Returns when the workers answer. Until then this owner does not renew its lease."""
    over_budget: Callable[[Sequence[Entry]], Exception | None] | None = None
    """Returns why no batch may follow those that these entries settle with refused rows, or None if a batch may follow.

    Raises if that cannot be found out. It is None without a budget.
    """
    listeners: Sequence[Listener] = ()
    dice: random.Random = field(default_factory=random.Random)

    def __post_init__(self) -> None:
        self.work = WorkInFlight(self.worker_pool)
        self.planning = Planning(self.work, self.max_in_flight)
        self.resting = BackOff(self.retry, self.dice, now=self.clock.elapsed())
        self.budget = BudgetWatch(self.over_budget, self.resting)
        self.stopping = ""
        """Why it plans no new batch. Empty while it plans."""
        self.asked_to_stop = ""
        """The reason of a requested stop. The next turn sees it."""
        self.stop_asked: float | None = None
        """When a stop was first requested, by the clock."""
        self.forced = False
        """Whether batches in flight are left as they are."""
        self.force_asked: float | None = None
        """When that was first requested, by the clock."""
        self.fell_back = False
        """Whether the DLQ failed to take refused rows in this run. Then it is not tried again for each batch."""
        self.errors: list[Exception] = []
        if self.journal.tenure is not None:
            self.journal.tenure.wake = self.worker_pool.wake

    def run(self) -> None:
        """Take turns until nothing is left to do. The first error is `errors[0]`. It is not raised."""
        finished: Sequence[Finished] = ()
        while self.take_turn(finished):
            finished = self.worker_pool.wait(self.patience())

    def recover(self) -> None:
        """Continue where an earlier run ended: finish its open batches before any other batch is planned.

        The origin gets `committed` once more for each lane's last settled batch, because the earlier call may be lost.
        """
        for name in self.journal.state.lanes:
            self._resume(name)

    def request_stop(self, reason: str, *, force: bool = False) -> None:
        """Plan no new batch. Batches in flight finish, or with `force` are left as they are.

        Any thread and a signal handler may call this. The next turn sees it.
        """
        now = self.clock.elapsed()
        if force and self.force_asked is None:
            self.force_asked = now
        self.forced = self.forced or force
        if self.stop_asked is None:
            self.stop_asked = now
        self.asked_to_stop = self.asked_to_stop or reason
        self.worker_pool.wake()

    def take_turn(self, finished: Sequence[Finished] = ()) -> bool:
        """Take one turn. Return whether there is anything left to wait for."""
        self.planning.turns += 1
        if self.asked_to_stop:
            self._stop(self.asked_to_stop)
        if self.forced:
            return False
        self._poll()
        self.planning.let_go(stopping=bool(self.stopping))
        steps = self._decide_all(finished)
        self._heed_budget(steps)
        alone = any(step.error or (step.settled and step.flight.plan.batch.origin in self.committed) for step in steps)
        if alone:
            self._record(steps)
            steps = []
        self._record(steps, self._plan(self._free_lanes(steps)))
        if self._share_lanes():
            self._record((), self._plan(self.journal.state))
        self._listen()
        self._renew()
        self._hand_out()
        self._tick()
        self.journal.compact()
        return (
            bool(self.work.working)
            or self.planning.may_plan_more(stopping=bool(self.stopping))
            or any(flight.task for flight in self.work.list_idle())
            or self.planning.must_wait(stopping=bool(self.stopping))
            or self.budget.until is not None
        )

    def patience(self) -> float | None:
        """Return how many seconds to wait for an outcome before something else is due. None is without limit."""
        now = self.clock.elapsed()
        moments = []
        if self.work.has_idle_runner():
            moments = [moment - now for moment in self.resting.list_moments(self.work.list_idle())]
        word = [] if self.journal.tenure is None else [self.journal.tenure.due - now]
        if self.planning.coordination is not None and not self.stopping:
            word.append(self.planning.coordination.next - now)
        if self.budget.until is not None:
            moments.append(self.resting.limit_sleep(self.budget.until) - now)
        elif self.planning.may_plan_more(stopping=bool(self.stopping)):
            if self.stopping:
                return _time_until_first(word) if self.work.working else 0.0
            moments.extend(self.planning.list_moments(now))
        return _time_until_first([*moments, *word])

    def _resume(self, name: str) -> None:
        lane = self.journal.state.get_lane(name)
        if lane.settled is not None:
            self._commit(lane.settled.batch)
        if lane.open is not None:
            since = self.resting.find_first_failure(lane, self.clock)
            knows_fallback = self.rules.falls_back and FALLBACK in self.journal.state.identities
            flight = resume_flight(lane.open, lane, self._list_identities(), since, falls_back=knows_fallback)
            self.work.add(flight, self.clock.elapsed())
            self._emit(BatchResumed(batch=lane.open.batch))

    def _list_identities(self) -> Mapping[str, Identity]:
        return {DLQ: Identity(place=""), FILTERED: Identity(place=""), **self.journal.state.identities}

    def _stop(self, reason: str, *, asked: bool = True) -> None:
        now = self.clock.elapsed()
        if not self.stopping:
            self.stopping = reason
            if asked and self.stop_asked is None:
                self.stop_asked = now
            self.work.drop_resting(now)
            self._forgo_answer()
            self._emit(RunStopping(reason=reason))

    def _heed_ledger(self) -> None:
        if self.journal.state.stopping:
            self._stop(self.journal.state.stopping)

    def _fail(self, error: Exception) -> None:
        """Keep the error, and begin nothing new, not even in lanes that waited for more rows.

        If the run lost its pipeline, its errors do not count: this raises `Fenced`.
        """
        with contextlib.suppress(LedgerError):
            self.journal.refresh()
        if error not in self.errors:
            self.errors.append(error)
        self.planning.following = None
        self._stop("failed", asked=False)

    def _poll(self) -> None:
        """Look for more rows, when it is time to."""
        following = self.planning.following
        if self.stopping or following is None or self.clock.elapsed() < following.next:
            return
        self.journal.refresh()
        self._heed_ledger()
        if not self.stopping:
            self.planning.poll(self.journal.state, self.clock)

    def _share_lanes(self) -> bool:
        """Give lanes to the runs that should have them, and take the lanes that this run should have.

        A lane is taken with its open batch. Return whether any lane was taken or looked at.
        """
        coordination = self.planning.coordination
        if coordination is None or self.stopping:
            return False
        if coordination.next <= self.clock.elapsed():
            coordination.read_others()
            self._heed_ledger()
            if self.stopping:
                return False
        taken = coordination.change_lanes(self.work.list_lanes(), self.planning.list_ended(self._list_own_lanes()))
        for lane in taken:
            self._resume(lane)
        return self.planning.survey_taken(coordination, taken, self._list_own_lanes()) or bool(taken)

    def _list_own_lanes(self) -> Collection[str]:
        return self.journal.state.lanes_of(self.journal.owner)

    def _decide_all(self, finished: Sequence[Finished]) -> list[Transition]:
        """Return what follows from these outcomes. Nothing follows from an empty batch."""
        steps = []
        for first, outcome in finished:
            for lane, part in self.work.split(first, outcome):
                if not self.work.end_tick(lane):
                    steps.append(self._decide(lane, part))
                elif isinstance(part, Failed):
                    self._fail(part.error)
        return steps

    def _heed_budget(self, steps: Sequence[Transition]) -> None:
        """Plan no new batch if too many refused rows wait, or while their number is not known.

        The batches of a replay are not checked, because a replay takes rows that wait.
        """
        if self.budget.ask is None or self.rules.discards:
            return
        settled = [
            entry
            for step in steps
            if step.settled and not is_replay(step.flight.plan.batch.lane)
            for entry in step.entries
            if entry.kind == "settle" and read_body(entry, SettleBody).counts.nacked
        ]
        error = self.budget.check(settled, self.clock.elapsed())
        if error is not None:
            self._fail(error)
        elif self.stopping:
            self._forgo_answer()

    def _forgo_answer(self) -> None:
        """Stop waiting for an answer about the budget, because the run stops.

        Without an answer, it plans no batch, not even from rows that were gathered.
        """
        if self.budget.until is not None:
            self.budget.give_up()
            self.planning.following = None

    def _decide(self, lane: str, outcome: Outcome) -> Transition:
        flight = self.work.flights[lane]
        assert flight.task is not None, "an outcome follows from a task"
        self.work.watches[flight.plan.batch.plan].note_task(flight.task, outcome, self.clock.elapsed())
        step = self._handle_error(plan_transition(flight, outcome, self._get_current_rules()))
        self.work.flights[lane] = step.flight
        if flight.begun and any(entry.kind == "cancel" for entry in step.entries):
            self.planning.note_cancelled(flight.plan.batch)
        return step

    def _handle_error(self, step: Transition) -> Transition:
        """Return the transition, with a rest or a write to the fallback in place of its error where possible.

        Before the fallback is written, the run reads the ledger, because another owner may write there.
        """
        rules, before = self._get_current_rules(), step.flight.fallen
        step = turn_to_fallback(step, rules, at_once=True) if self.fell_back else step
        step = self.resting.rest_or_fail(step, self.clock, stopping=bool(self.stopping))
        turned = turn_to_fallback(step, rules)
        if turned is not step:
            step = self.resting.rest_or_fail(turned, self.clock, stopping=bool(self.stopping))
        flight, decision = step.flight, step.flight.decision
        if flight.fallen is None or before is not None or decision is None:
            return step
        self.fell_back = True
        self._emit(DlqFellBack(batch=flight.plan.batch, rows=decision.counts.nacked, error=flight.fallen))
        now = self.clock.elapsed()
        return replace(step, flight=replace(flight, until=now if flight.until is None else flight.until))

    def _get_current_rules(self) -> DeliveryRules:
        """Return the rules of the definition, with the changes that a person made since the run began."""
        return replace(self.rules, dlq=apply_config(self.rules.dlq, self.journal.state.config))

    def _free_lanes(self, steps: Sequence[Transition]) -> PipelineState:
        """Free the lanes whose batches end with these transitions. Return the state after they are recorded."""
        for step in steps:
            if step.done:
                del self.work.flights[step.flight.plan.batch.lane]
        return self.journal.preview_state([entry for step in steps for entry in step.entries])

    def _plan(self, state: PipelineState) -> Sequence[Transition]:
        if self.budget.until is not None:
            return ()
        midway = self.journal.state.midway
        return self.planning.plan(state, self.clock, midway=midway, stopping=bool(self.stopping))

    def _record(self, steps: Sequence[Transition], planned: Sequence[Transition] = ()) -> None:
        """Record what was decided and what is planned, all at once, then act on it.

        If a stop was requested meanwhile, the planned batches are given up.
        """
        plans = [entry for step in planned for entry in step.entries]
        began = self.clock.elapsed()
        recorded = self.journal.record(*(entry for step in steps for entry in step.entries), plans=plans)
        for watch in [self.work.watches[step.flight.plan.batch.plan] for step in [*steps, *planned] if step.entries]:
            watch.mark("plan", began)
            watch.mark("ledger", self.clock.elapsed())
        for step in planned:
            batch = step.flight.plan.batch
            self.planning.confirm(batch) if recorded else self.planning.give_up(batch)
        for step in [*steps, *(planned if recorded else ())]:
            self._act(step)
        self._heed_ledger()

    def _act(self, step: Transition) -> None:
        plan, lane = step.flight.plan, step.flight.plan.batch.lane
        for entry in step.entries:
            watch = self.work.watches[plan.batch.plan]
            if entry.kind == "pause":  # the transition's error reports it
                continue
            rests = self.resting.begun.pop(plan.batch.plan) if entry.kind == "rest" else None
            self._emit(rests or make_event(step.flight, entry, watch.spent))
        if step.exceeded is not None:
            self._emit(make_exceeded_event(step.flight, step.exceeded))
        if step.settled:
            self._commit(plan.batch)
        if step.done:
            if self.work.flights.get(lane) is step.flight:
                del self.work.flights[lane]
            del self.work.watches[plan.batch.plan]
            self.forget(replace(plan, decision=step.flight.decision))
        if step.error is not None:
            self._fail(step.error)

    def _commit(self, batch: Batch) -> None:
        if batch.origin in self.committed:
            self.committed[batch.origin](batch)
            reach("after-committed")

    def _listen(self) -> None:
        """Look for a stop or a new owner while a batch rests, or while the budget is not known."""
        now, asks_at = self.clock.elapsed(), self.budget.until
        if self.resting.should_listen(self.work.list_idle(), now, asks_at=asks_at):
            self.journal.refresh()
            self._heed_ledger()

    def _renew(self) -> None:
        """Renew the lease while nothing else is recorded: during a long batch, and when no rows come."""
        tenure = self.journal.tenure
        if tenure is None or self.clock.elapsed() < tenure.due:
            return
        self.pulse()
        self.journal.renew(busy=bool(self.work.flights) or self.planning.coordination is not None)
        self._heed_ledger()

    def _hand_out(self) -> None:
        """Hand out started batches first, then new batches, but never more than the idle runners can take."""
        waiting = [flight for flight in self.work.list_awake(self.clock.elapsed()) if flight.task is not None]
        for flights in group_flights(waiting, self.planning.source, self.grouped_lanes):
            if not self.work.has_idle_runner():
                return
            self.work.start(flights, [self._complete_task(flight) for flight in flights], self.clock.elapsed())

    def _complete_task(self, flight: BatchInFlight) -> Task:
        """Return the task, with what is known only now."""
        task = flight.task
        assert task is not None
        if isinstance(task, AskDestinations) and task.ours:
            return replace(task, identities=self._list_identities())
        if isinstance(task, Prepare) and task.plan.straight:  # a row was refused: the next batch goes another way
            return task
        if isinstance(task, Prepare | WriteStraight) and not self.stopping:
            return replace(task, following=self.planning.predict(task.plan, self.journal.state, self.clock))
        return task

    def _tick(self) -> None:
        if not self.stopping:
            for lane, tick in self.planning.make_ticks(self.journal.state, self.clock):
                self.work.start_tick(lane, tick)

    def _emit(self, event: Event) -> None:
        for listener in self.listeners:
            listener(event)


def _time_until_first(moments: Sequence[float]) -> float | None:
    return max(0.0, min(moments)) if moments else None


def make_exceeded_event(flight: BatchInFlight, exceeded: TrippedLimit) -> LimitExceeded:
    """Return the event of a limit that the decided batch of this flight exceeds."""
    limit, decision = exceeded.limit, flight.decision
    assert limit is not None
    assert decision is not None
    return LimitExceeded(
        batch=flight.plan.batch,
        limit=ROWS,
        allowed=limit.text,
        share=exceeded.share,
        rows=exceeded.rows,
        message=describe_limit(exceeded, decision.counts.read),
    )


def make_event(flight: BatchInFlight, entry: Entry, spent: Mapping[str, float]) -> Event:
    """Return the event of an entry of this flight, except for a rest. `spent` is the batch's time by phase."""
    batch = flight.plan.batch
    if entry.kind == "plan":
        return BatchPlanned(batch=batch)
    if entry.kind == "prepared":
        return BatchDecided(batch=batch, nacked=read_body(entry, DecidedBatch).counts.nacked)
    if entry.kind == "cancel":
        return BatchCancelled(batch=batch)
    body = read_body(entry, SettleBody)
    return BatchSettled(batch=batch, counts=body.counts, owed=tuple(body.owed), seconds=dict(spent), way=flight.way)
