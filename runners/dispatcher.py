"""The one thread that owns progress: it plans batches, hands them to runners, collects outcomes and commits.

Each turn decides, then records, then acts. Nothing is done that is not recorded first, and nothing is recorded
by anybody else.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from destinations.destination import Identity
from origins.batch import Batch, Limits, Span
from origins.origin import Backlog
from runners.clock import Clock
from runners.crew import Crew, Finished
from runners.entry import Entry
from runners.events import (
    BatchCancelled,
    BatchDecided,
    BatchPlanned,
    BatchResumed,
    BatchSettled,
    Event,
    Listener,
    RunStopping,
)
from runners.flight import Flight, Rules, Step, after, begin, resume
from runners.journal import Journal
from runners.outcome import Outcome
from runners.progress import Lane, Plan


@dataclass(frozen=True, kw_only=True)
class Source:
    """What there is to plan from in this run, and under which terms."""

    pipeline: str
    run: str
    origin: str
    definition: str
    schema: str
    lanes: Sequence[str]
    backlog: Backlog
    limits: Limits
    destinations: Sequence[str]
    straight: bool
    """Whether a clean batch may go straight to its destination."""


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
        committed: Callable[[Batch], None],
        forget: Callable[[Plan], None],
        listeners: Sequence[Listener] = (),
    ) -> None:
        self.journal = journal
        self.crew = crew
        self.clock = clock
        self.rules = rules
        self.max_in_flight = max_in_flight
        self.committed = committed
        """Tells the origin that a batch's offset is durable."""
        self.forget = forget
        """Removes what was prepared for a batch that is finished."""
        self.listeners = listeners
        self.flights: dict[str, Flight] = {}
        self.working: set[str] = set()
        self.source: Source | None = None
        self.exhausted: set[str] = set()
        self.served: dict[str, int] = {}
        """For each lane the turn in which it was last planned: who waited longest comes first."""
        self.turns = 0
        self.stopping = ""
        self.asked_to_stop = ""
        self.forced = False
        self.errors: list[Exception] = []

    def run(self) -> None:
        """Turn until there is nothing left to do. The first error is `errors[0]`; it is not raised."""
        finished: Sequence[Finished] = ()
        while self.turn(finished):
            finished = self.crew.wait(None)

    def recover(self, identities: Mapping[str, Identity]) -> None:
        """Take up where an earlier run ended: its open batches are finished before any other is planned.

        The origin is told once more of each lane's last settled batch, for nobody knows whether it heard.
        """
        for name, lane in self.journal.state.lanes.items():
            if lane.told is not None:
                self.committed(lane.told.batch)
            if lane.open is not None:
                self.flights[name] = resume(lane.open, lane, identities)
                self._say(BatchResumed(batch=lane.open.batch))

    def request_stop(self, reason: str, *, force: bool = False) -> None:
        """Plan nothing more. What is in flight finishes, or with `force` is left as it is.

        May be called from any thread and from a signal handler; the next turn hears it.
        """
        self.forced = self.forced or force
        self.asked_to_stop = self.asked_to_stop or reason
        self.crew.wake()

    def _stop(self, reason: str) -> None:
        if not self.stopping:
            self.stopping = reason
            self._say(RunStopping(reason=reason))

    def turn(self, finished: Sequence[Finished] = ()) -> bool:
        """One turn; whether there is anything left to wait for."""
        self.turns += 1
        if self.asked_to_stop:
            self._stop(self.asked_to_stop)
        if self.forced:
            return False
        steps = [self._decide(lane, outcome) for lane, outcome in finished]
        self._record(steps)
        planned = self._plan()
        if planned:
            self._record(planned)
        self._hand_out()
        self.journal.compact()
        return bool(self.working)

    def _decide(self, lane: str, outcome: Outcome) -> Step:
        self.working.discard(lane)
        step = after(self.flights[lane], outcome, self.rules)
        self.flights[lane] = step.flight
        return step

    def _record(self, steps: Sequence[Step]) -> None:
        entries = [entry for step in steps for entry in step.entries]
        if entries:
            self.journal.record(*entries)
        for step in steps:
            self._act(step)
        if self.journal.state.stopping:
            self._stop(self.journal.state.stopping)

    def _act(self, step: Step) -> None:
        plan, lane = step.flight.plan, step.flight.plan.batch.lane
        for entry in step.entries:
            self._tell(plan, entry)
        if step.settled:
            self.committed(plan.batch)
        if step.done:
            del self.flights[lane]
            self.forget(replace(plan, decision=step.flight.decision))
        if step.error is not None:
            self.errors.append(step.error)
            self._stop("failed")

    def _tell(self, plan: Plan, entry: Entry) -> None:
        if entry.kind == "plan":
            self._say(BatchPlanned(batch=plan.batch))
        elif entry.kind == "prepared":
            self._say(BatchDecided(batch=plan.batch, nacked=entry.body["counts"]["nacked"]))
        elif entry.kind == "cancel":
            self._say(BatchCancelled(batch=plan.batch))
        else:
            counts, owed = entry.body["counts"], tuple(entry.body["owed"])
            self._say(BatchSettled(batch=plan.batch, counts=counts, owed=owed))

    def _plan(self) -> Sequence[Step]:
        steps: list[Step] = []
        source = self.source
        if source is None or self.stopping:
            return steps
        for lane in sorted(source.lanes, key=lambda lane: self.served.get(lane, 0)):
            if lane in self.flights or lane in self.exhausted:
                continue
            if len(self.flights) >= self.max_in_flight or len(self.flights) >= self.crew.size:
                break
            state = self.journal.state.lane(lane)
            span = source.backlog.take(lane, state.offset, source.limits)
            if span is None:
                self.exhausted.add(lane)
                continue
            flight = begin(self._planned(source, lane, state, span), state)
            self.flights[lane] = flight
            self.served[lane] = self.turns
            batch = flight.plan.batch
            entry = Entry(kind="plan", lane=lane, plan=batch.plan, body=flight.plan.json())
            steps.append(Step(flight=flight, entries=(entry,)))
        return steps

    def _planned(self, source: Source, lane: str, state: Lane, span: Span) -> Plan:
        batch = Batch(
            pipeline=source.pipeline,
            run=source.run,
            origin=source.origin,
            lane=lane,
            number=state.number + 1,
            plan=uuid.uuid4().hex,
            span=span,
            schema=source.schema,
            time=self.clock.now(),
            definition=source.definition,
        )
        return Plan(
            batch=batch,
            destinations=tuple(source.destinations),
            straight=source.straight and not state.careful,
        )

    def _hand_out(self) -> None:
        """Started batches first, then new ones; never more than there are runners."""
        for lane, flight in self.flights.items():
            if len(self.working) >= self.crew.size:
                return
            if lane not in self.working and flight.task is not None:
                self.working.add(lane)
                self.crew.start(lane, flight.task)

    def _say(self, event: Event) -> None:
        for listener in self.listeners:
            listener(event)
