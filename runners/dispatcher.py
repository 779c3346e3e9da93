"""The one thread that owns progress: it plans batches, hands them to runners, collects outcomes and commits.

Each turn decides, then records, then acts. Nothing is done that is not recorded first, and nothing is recorded
by anybody else.
"""

from __future__ import annotations

import contextlib
import random
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from datetime import timedelta

from destinations.destination import Identity
from destinations.dlq import DLQ
from origins.batch import Batch, Span
from origins.crash_points import reached
from runners.clock import Clock
from runners.crew import Crew, Finished
from runners.events import (
    BatchCancelled,
    BatchDecided,
    BatchPlanned,
    BatchRests,
    BatchResumed,
    BatchSettled,
    Event,
    Listener,
    RunStopping,
)
from runners.flight import Flight, Rules, Step, after, begin, resume
from runners.following import Following
from runners.journal import Journal
from runners.ledgers.entry import Entry
from runners.ledgers.ledger import LedgerError
from runners.limits import changed
from runners.outcome import Ask, Carry, Failed, Outcome, Prepare, Task
from runners.owners.company import Company
from runners.pace import Pace
from runners.plan import Plan
from runners.resting import Resting
from runners.retry import NEVER, Retry
from runners.sharing import grouped, joined, may_share, parted
from runners.source import Feed, Source
from runners.state import Lane, State, is_replay
from runners.watch import Watch

STALE = timedelta(seconds=10)
"""How old a plan may be that was made in case: `:batch_time` is its moment, and to plan anew takes no time."""


class Dispatcher:
    """Carries batches until nothing is left, somebody asks it to stop, or something fails."""

    def __init__(
        self,
        *,
        journal: Journal,
        crew: Crew,
        clock: Clock,
        rules: Rules,
        max_in_flight: int,
        committed: Mapping[str, Callable[[Batch], None]],
        forget: Callable[[Plan], None],
        listeners: Sequence[Listener] = (),
        pace: Pace | None = None,
        retry: Retry = NEVER,
        dice: random.Random | None = None,
        pulse: Callable[[], None] = lambda: None,
    ) -> None:
        self.journal = journal
        self.crew = crew
        self.clock = clock
        self.rules = rules
        self.max_in_flight = max_in_flight
        self.committed = committed
        """The origins that want to hear when a batch's offset is durable, by name."""
        self.forget = forget
        """Removes what was prepared for a batch that is finished."""
        self.pulse = pulse
        """Returns when whatever does the work is there; until then nobody says that this owner is alive."""
        if journal.tenure is not None:
            journal.tenure.wake = crew.wake
        self.listeners = listeners
        self.pace = pace or Pace()
        self.resting = Resting(retry, dice or random.Random(), now=clock.elapsed())  # noqa: S311
        self.flights: dict[str, Flight] = {}
        self.foreseen: dict[str, Plan] = {}
        """The plans that nobody knows of yet but the runner that works on the batch before."""
        self.working: dict[str, Sequence[str]] = {}
        """The lanes of which a runner carries batches: together, under the name of the first of them."""
        self.source: Source | None = None
        self.company: Company | None = None
        """The other runs with which it shares the lanes; None where it has all of them."""
        self.following: Following | None = None
        """How to go on when nothing is left; None for a run that ends then."""
        self.watches: dict[str, Watch] = {}
        """Where the time goes of each batch on its way, by its plan."""
        self.rests: dict[str, BatchRests] = {}
        """What is told of batches that begin to rest, once that is recorded; by their plans."""
        self.exhausted: set[str] = set()
        self.unseen: set[str] = set()
        """Lanes that were another run's, or that somebody shares who may have seen more."""
        self.ticking: set[str] = set()
        """The lanes in which an empty batch is being shown."""
        self.served: dict[str, int] = {}
        """For each lane the turn in which it was last planned: who waited longest comes first."""
        self.turns = 0
        self.begun = False
        """Whether this run has planned a batch."""
        self.stopping = ""
        self.stop_asked: float | None = None
        """When somebody asked it to stop, by the clock."""
        self.asked_to_stop = ""
        self.forced = False
        self.errors: list[Exception] = []

    def run(self) -> None:
        """Turn until there is nothing left to do. The first error is `errors[0]`; it is not raised."""
        finished: Sequence[Finished] = ()
        while self.turn(finished):
            finished = self.crew.wait(self.patience())

    def recover(self) -> None:
        """Take up where an earlier run ended: its open batches are finished before any other is planned.

        The origin is told once more of each lane's last settled batch, for nobody knows whether it heard.
        """
        for name in self.journal.state.lanes:
            self._resume(name)

    def _resume(self, name: str) -> None:
        lane = self.journal.state.lane(name)
        if lane.told is not None:
            self._commit(lane.told.batch)
        if lane.open is not None:
            since = self.resting.since(lane, self.clock)
            self.flights[name] = resume(lane.open, lane, self._identities(), since)
            self.watches[lane.open.batch.plan] = Watch(self.clock.elapsed())
            self._say(BatchResumed(batch=lane.open.batch))

    def _identities(self) -> Mapping[str, Identity]:
        return {DLQ: Identity(place=""), **self.journal.state.identities}

    def request_stop(self, reason: str, *, force: bool = False) -> None:
        """Plan nothing more. What is in flight finishes, or with `force` is left as it is.

        May be called from any thread and from a signal handler; the next turn hears it.
        """
        self.forced = self.forced or force
        if self.stop_asked is None:
            self.stop_asked = self.clock.elapsed()
        self.asked_to_stop = self.asked_to_stop or reason
        self.crew.wake()

    def _stop(self, reason: str, *, asked: bool = True) -> None:
        if self.stopping:
            return
        self.stopping = reason
        if asked and self.stop_asked is None:
            self.stop_asked = self.clock.elapsed()
        for lane in [flight.plan.batch.lane for flight in self._idle() if self._rests(flight)]:
            del self.flights[lane]
        self._say(RunStopping(reason=reason))

    def _fail(self, error: Exception) -> None:
        """Keep the error, and carry nothing that is not in flight: not even what was waiting for more. What goes wrong
        in a run that has lost its pipeline is no error: it raises `Fenced`."""
        with contextlib.suppress(LedgerError):
            self.journal.refresh()
        if error not in self.errors:
            self.errors.append(error)
        self.following = None
        self._stop("failed", asked=False)

    def turn(self, finished: Sequence[Finished] = ()) -> bool:
        """One turn; whether there is anything left to wait for."""
        self.turns += 1
        if self.asked_to_stop:
            self._stop(self.asked_to_stop)
        if self.forced:
            return False
        self._look()
        self._let_go()
        steps = [
            self._decide(lane, each)
            for first, outcome in finished
            for lane, each in parted(outcome, self.working.pop(first))
            if not self._ticked(lane, each)
        ]
        alone = any(step.error or (step.settled and step.flight.plan.batch.origin in self.committed) for step in steps)
        if alone:
            self._record(steps)
            steps = []
        self._record(steps, self._plan(self._freed(steps)))
        if self._share():
            self._record((), self._plan(self.journal.state))
        self._listen()
        self._renew()
        self._hand_out()
        self._tick()
        self.journal.compact()
        return bool(self.working) or self._goes_on() or any(flight.task for flight in self._idle()) or self._waits()

    def patience(self) -> float | None:
        """How many seconds to wait for an outcome before there is something else to do; None for ever."""
        now = self.clock.elapsed()
        moments = []
        if len(self.working) < self.crew.size:
            moments = [moment - now for moment in self.resting.moments(self._idle())]
        word = [] if self.journal.tenure is None else [self.journal.tenure.due - now]
        if self.company is not None and not self.stopping:
            word.append(self.company.next - now)
        if self.following is not None and self._goes_on():
            if self.stopping:
                return _soonest(word) if self.working else 0.0
            free = self._has_room(shared=False) and not (self.source and self._opening(self.source))
            moments.append(self.following.patience(self.source, now, busy=bool(self.working), free=free))
        return _soonest([*moments, *word])

    def _goes_on(self) -> bool:
        """Whether there may be more to plan, though nothing is in flight: until a stop, or until what was waiting for
        more rows then is planned."""
        return self.following is not None and (not self.stopping or bool(self.following.gathering))

    def _look(self) -> None:
        """See whether more waits, when it is time to."""
        if self.following is None or self.stopping or not self.following.is_due(self.clock.elapsed()):
            return
        self.journal.refresh()
        if self.journal.state.stopping:
            self._stop(self.journal.state.stopping)
            return
        offsets = {lane: self.journal.state.lane(lane).offset for lane in self.source.lanes} if self.source else {}
        offsets.update({lane: flight.plan.batch.span.end for lane, flight in self.flights.items()})
        self.source = self.following.look(self.source, offsets, self.clock)
        self.exhausted.clear()

    def _let_go(self) -> None:
        """Wait for more no longer in lanes that are another's, or, behind a stop, that would have to be looked at."""
        if self.company is None or self.following is None:
            return
        mine, unseen = self.company.keeps(), self._unseen() if self.stopping else ()
        for lane in [lane for lane in self.following.gathering if lane not in mine or lane in unseen]:
            self.following.planned(lane)

    def _share(self) -> bool:
        """Give lanes to those whose they should be, and take ours, with the batches that are open in them; whether any
        were taken."""
        company = self.company
        if company is None or self.stopping:
            return False
        if company.next <= self.clock.elapsed():
            company.look()
            if self.journal.state.stopping:
                self._stop(self.journal.state.stopping)
                return False
        taken = company.change({*self.flights, *self._busy()}, self._ended())
        for lane in taken:
            self._resume(lane)
        self.unseen.update(taken)
        if company.strangers:
            company.surveys()
            self.unseen.update(() if self.following else self.journal.state.lanes_of(self.journal.owner))
        return self._survey(company) or bool(taken)

    def _survey(self, company: Company) -> bool:
        """Look at what waits where it has to be looked at again, as soon as nothing of that origin is in flight here:
        what is in flight stands in no ledger. Whether anything was looked at."""
        source = self.source
        if source is None:
            return False
        flying = self.flights.keys() | self._busy()
        due = [feed for feed in self._unseen_feeds() if flying.isdisjoint(feed.lanes)]
        lanes = {lane for feed in due for lane in feed.lanes}
        self.unseen &= set(source.lanes) - lanes
        self.exhausted -= lanes
        if due:
            self.source = company.again(source, [feed.origin for feed in due])
        return bool(due)

    def _unseen(self) -> Collection[str]:
        """The lanes of which nothing is planned before they were looked at again: all of an origin."""
        return {lane for feed in self._unseen_feeds() for lane in feed.lanes}

    def _unseen_feeds(self) -> Sequence[Feed]:
        feeds = self.source.feeds if self.source else ()
        return [feed for feed in feeds if not self.unseen.isdisjoint(feed.lanes)]

    def _ended(self) -> Collection[str]:
        """The lanes of this run in which it has nothing left to carry, if it is to end at all."""
        if self.source is None or self.following is not None:
            return ()
        mine, planned = self.journal.state.lanes_of(self.journal.owner), set(self.source.lanes)
        return [lane for lane in mine if (lane in self.exhausted or lane not in planned) and lane not in self.unseen]

    def _waits(self) -> bool:
        """Whether this run has to wait for lanes of others, though it has nothing left to carry."""
        if self.company is None or self.source is None or self.following is not None or self.stopping:
            return False
        return self.company.unfinished

    def _decide(self, lane: str, outcome: Outcome) -> Step:
        flight = self.flights[lane]
        assert flight.task is not None, "an outcome follows from a task"
        self.watches[flight.plan.batch.plan].carried(flight.task, outcome, self.clock.elapsed())
        step = self._rested(after(flight, outcome, self._rules()), self.clock.elapsed())
        self.flights[lane] = step.flight
        if flight.begun and any(entry.kind == "cancel" for entry in step.entries):
            self.exhausted.discard(lane)  # it is planned once more
            self.begun = self.begun and not flight.plan.batch.first
        return step

    def _rules(self) -> Rules:
        """The definition's, with what somebody changed since the run began."""
        return replace(self.rules, dlq=changed(self.rules.dlq, self.journal.state.config))

    def _rested(self, step: Step, now: float) -> Step:
        """The step, or a rest in the place of its error."""
        tried = step if self.stopping else self.resting.after(step, now)
        if step.error is not None and tried.error is None:
            flight = tried.flight
            seconds = (flight.until or now) - now
            rests = BatchRests(batch=flight.plan.batch, error=step.error, tried=flight.tried, seconds=seconds)
            self.rests[flight.plan.batch.plan] = rests
            tried = self.resting.noted(tried, self.clock)
        return self.resting.watched(tried, now)

    def _rests(self, flight: Flight) -> bool:
        return self.resting.is_resting(flight, self.clock.elapsed())

    def _freed(self, steps: Sequence[Step]) -> State:
        """Free the lanes of which these steps end the batch; the state as it will be once they are recorded."""
        for step in steps:
            if step.done:
                del self.flights[step.flight.plan.batch.lane]
        return self.journal.foreseen([entry for step in steps for entry in step.entries])

    def _record(self, steps: Sequence[Step], planned: Sequence[Step] = ()) -> None:
        """Record what was decided and what is planned at once, then act on it. What is planned is given up when
        somebody has asked to stop meanwhile."""
        plans = [entry for step in planned for entry in step.entries]
        began = self.clock.elapsed()
        recorded = self.journal.record(*(entry for step in steps for entry in step.entries), plans=plans)
        for watch in [self.watches[step.flight.plan.batch.plan] for step in [*steps, *planned] if step.entries]:
            watch.mark("plan", began)
            watch.mark("ledger", self.clock.elapsed())
        for step in planned:
            self._begin(step.flight.plan.batch) if recorded else self._give_up(step.flight.plan.batch)
        for step in [*steps, *(planned if recorded else ())]:
            self._act(step)
        if self.journal.state.stopping:
            self._stop(self.journal.state.stopping)

    def _begin(self, batch: Batch) -> None:
        if self.following is not None:
            self.following.planned(batch.lane)

    def _give_up(self, batch: Batch) -> None:
        del self.flights[batch.lane]
        del self.watches[batch.plan]
        self.begun = self.begun and not batch.first

    def _act(self, step: Step) -> None:
        plan, lane = step.flight.plan, step.flight.plan.batch.lane
        for entry in step.entries:
            self._tell(plan, entry)
        if step.settled:
            self._commit(plan.batch)
        if step.done:
            if self.flights.get(lane) is step.flight:
                del self.flights[lane]
            del self.watches[plan.batch.plan]
            self.forget(replace(plan, decision=step.flight.decision))
        if step.error is not None:
            self._fail(step.error)

    def _commit(self, batch: Batch) -> None:
        if batch.origin in self.committed:
            self.committed[batch.origin](batch)
            reached("after-committed")

    def _tell(self, plan: Plan, entry: Entry) -> None:
        if entry.kind == "plan":
            self._say(BatchPlanned(batch=plan.batch))
        elif entry.kind == "prepared":
            self._say(BatchDecided(batch=plan.batch, nacked=entry.body["counts"]["nacked"]))
        elif entry.kind == "rest":
            self._say(self.rests.pop(plan.batch.plan))
        elif entry.kind == "cancel":
            self._say(BatchCancelled(batch=plan.batch))
        else:
            counts, owed = entry.body["counts"], tuple(entry.body["owed"])
            watch = self.watches[plan.batch.plan]
            spent = dict(watch.spent)
            if not plan.published:
                self.pace.took(plan.batch.lane, watch.worked, full=plan.batch.span.full)
            self._say(BatchSettled(batch=plan.batch, counts=counts, owed=owed, seconds=spent))

    def _plan(self, state: State) -> Sequence[Step]:
        """The next batches, as many as may be in flight and can be carried at once."""
        steps: list[Step] = []
        source = self.source
        lanes = self._plannable()
        for lane in sorted(lanes, key=lambda lane: self.served.get(lane, 0)):
            assert source is not None
            if self._opening(source):
                break
            if not self._has_room(shared=source.shares(lane)):
                continue
            began = self.clock.elapsed()
            span = source.take(lane, state.lane(lane).offset, self.pace)
            if span is None:
                self._exhausted(lane)
            elif not self._gathers(lane, span, source.wait):
                steps.append(self._planned(source, lane, state.lane(lane), span))
                self.watches[steps[-1].flight.plan.batch.plan] = Watch(began)
        return steps

    def _has_room(self, *, shared: bool) -> bool:
        """Whether another batch may be planned: not too many are in flight, and a runner will be there for it, or one
        that carries others with which it can be written."""
        idle = [flight for flight in self._idle() if not self._rests(flight)]
        together = [flight for flight in idle if may_share(flight, self.source)]
        runners = len(self.working) + len(idle) - len(together) + bool(together)
        return len(self.flights) < self.max_in_flight and (runners < self.crew.size or (shared and bool(together)))

    def _idle(self) -> Sequence[Flight]:
        """The flights that no runner has."""
        busy = self._busy()
        return [flight for lane, flight in self.flights.items() if lane not in busy]

    def _busy(self) -> set[str]:
        return {lane for lanes in self.working.values() for lane in lanes}

    def _plannable(self) -> Sequence[str]:
        """The lanes of which a batch may be planned; after a stop those whose batch was waiting for more rows."""
        lanes: Collection[str] = self.source.lanes if self.source else ()
        if self.stopping:
            lanes = tuple(self.following.gathering) if self.following else ()
        if self.company is not None:
            mine, unseen = self.company.keeps(), self._unseen()
            lanes = [lane for lane in lanes if lane in mine and lane not in unseen]
        busy = self.flights.keys() | self._busy() | self.exhausted
        return [lane for lane in lanes if lane not in busy]

    def _planned(self, source: Source, lane: str, state: Lane, span: Span) -> Step:
        first = source.is_load(lane) or not (self.begun or self.journal.state.midway or is_replay(lane))
        plan = source.plan(lane, state, span, self.clock.now(), first=first)
        foreseen = self.foreseen.pop(lane, None)
        if foreseen is not None and foreseen.is_for(plan) and plan.batch.time - foreseen.batch.time < STALE:
            plan = foreseen
        self.begun = True
        self.served[lane] = self.turns
        flight = self.flights[lane] = begin(plan, state, self.resting.since(state, self.clock))
        entry = Entry(kind="plan", lane=lane, plan=plan.batch.plan, body=plan.json())
        return Step(flight=flight, entries=(entry,))

    def _opening(self, source: Source) -> bool:
        """Whether the run's first batch must be settled before another is planned."""
        return source.first_alone and any(flight.plan.batch.first for flight in self.flights.values())

    def _gathers(self, lane: str, span: Span, wait: float) -> bool:
        """Whether the lane's next batch waits for more rows. Who is asked to stop waits for no more."""
        if self.following is None:
            return False
        return not self.stopping and self.following.gathers(lane, span, wait, self.clock.elapsed())

    def _exhausted(self, lane: str) -> None:
        self.exhausted.add(lane)
        if self.following is not None:
            self.following.planned(lane)

    def _listen(self) -> None:
        """Hear of a stop or of a new owner, where a batch rests."""
        if self.resting.listens(self._idle(), self.clock.elapsed()):
            self.journal.refresh()
            if self.journal.state.stopping:
                self._stop(self.journal.state.stopping)

    def _renew(self) -> None:
        """Keep the pipeline while nothing else is recorded: in the middle of a long batch, and when nothing comes."""
        tenure = self.journal.tenure
        if tenure is None or self.clock.elapsed() < tenure.due:
            return
        self.pulse()
        self.journal.renew(busy=bool(self.flights) or self.company is not None)
        if self.journal.state.stopping:
            self._stop(self.journal.state.stopping)

    def _hand_out(self) -> None:
        """Started batches first, then new ones; never more than there are runners."""
        waiting = [flight for flight in self._idle() if flight.task is not None and not self._rests(flight)]
        for flights in grouped(waiting, self.source):
            if len(self.working) >= self.crew.size:
                return
            lanes = [flight.plan.batch.lane for flight in flights]
            tasks = [self._with_what_follows(flight) for flight in flights]
            for flight in flights:
                self.watches[flight.plan.batch.plan].mark(
                    "plan" if flight.until is None else "rest", self.clock.elapsed()
                )
                self.flights[flight.plan.batch.lane] = replace(flight, until=None)
            self.working[lanes[0]] = lanes
            self.crew.start(lanes[0], joined(tasks))

    def _with_what_follows(self, flight: Flight) -> Task:
        """What is to be done, with what the lane carries next if that can be foreseen."""
        lane, task = flight.plan.batch.lane, flight.task
        assert task is not None
        if isinstance(task, Ask) and task.ours:
            return replace(task, identities=self._identities())
        if isinstance(task, Prepare):
            task = replace(task, codes=bool(self._rules().dlq.limits))
        if not isinstance(task, Carry | Prepare) or self.source is None or self.stopping:
            return task
        if isinstance(task, Prepare) and task.plan.straight:  # a row was refused, so the next one goes another way
            return task
        ahead = self.source.foresee(task.plan, self.journal.state.lane(lane), self.clock.now(), self.pace)
        if ahead is None:
            return task
        self.foreseen[lane] = ahead
        return replace(task, ahead=ahead)

    def _tick(self) -> None:
        """Show everybody an empty batch when nothing has come for a while."""
        source, following = self.source, self.following
        if source is None or following is None or self.stopping:
            return
        if not following.is_quiet(source.idle, self.clock.elapsed(), busy=bool(self.flights or self.working)):
            return
        ticks = source.ticks(self.journal.state.lane, self.clock.now())
        for lane, tick in list(ticks.items())[: self.crew.size]:
            self.ticking.add(lane)
            self.working[lane] = [lane]
            self.crew.start(lane, tick)

    def _ticked(self, lane: str, outcome: Outcome) -> bool:
        """Whether this was an empty batch; nothing follows from one that was seen."""
        if lane not in self.ticking:
            return False
        self.ticking.discard(lane)
        if isinstance(outcome, Failed):
            self._fail(outcome.error)
        return True

    def _say(self, event: Event) -> None:
        for listener in self.listeners:
            listener(event)


def _soonest(moments: Sequence[float]) -> float | None:
    """How long it is until the first of them; None for ever."""
    return max(0.0, min(moments)) if moments else None
