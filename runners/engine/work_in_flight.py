"""The batches on their way: what is known of each, which a runner has, which share one write, and which rest before
they are tried again. Nothing waits here."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import datetime, timedelta

from origins.batch import Batch
from runners.engine.batch_machine import GROUPED, BatchInFlight, Transition, rest_flight
from runners.engine.batch_planner import BatchPlanner
from runners.engine.worker_pool import Finished, TaskWorkers
from runners.model.batch_timing import BatchTiming
from runners.model.clock import Clock
from runners.model.entry import Entry
from runners.model.events import BatchRests
from runners.model.pipeline_state import LaneState
from runners.model.spec import RetryPolicy
from runners.model.tasks import (
    AskDestinations,
    Declined,
    Failed,
    GroupWritten,
    Outcome,
    ShowEmptyBatch,
    Task,
    WriteGroup,
    WriteStraight,
)


class WorkInFlight:
    """The flights and the runners that carry them. Used by the thread that owns progress alone."""

    def __init__(self, crew: TaskWorkers) -> None:
        self.crew = crew
        self.flights: dict[str, BatchInFlight] = {}
        """The batch of each lane that has one on its way."""
        self.working: dict[str, Sequence[str]] = {}
        """The lanes of which a runner carries batches: together, under the name of the first of them."""
        self.watches: dict[str, BatchTiming] = {}
        """Where the time goes of each batch on its way, by its plan."""
        self.ticking: set[str] = set()
        """The lanes in which an empty batch is being shown."""

    def has_idle_runner(self) -> bool:
        return len(self.working) < self.crew.size

    def list_busy_lanes(self) -> set[str]:
        """The lanes of which a runner has a task."""
        return {lane for lanes in self.working.values() for lane in lanes}

    def list_lanes(self) -> set[str]:
        """The lanes in which anything is on its way, an empty batch too."""
        return {*self.flights, *self.list_busy_lanes()}

    def list_idle(self) -> Sequence[BatchInFlight]:
        busy = self.list_busy_lanes()
        return [flight for lane, flight in self.flights.items() if lane not in busy]

    def list_awake(self, now: float) -> Sequence[BatchInFlight]:
        """The flights that no runner has and that do not rest."""
        return [flight for flight in self.list_idle() if not flight.is_resting(now)]

    def add(self, flight: BatchInFlight, now: float) -> None:
        """Count the batch among those on their way; its time begins now."""
        self.flights[flight.plan.batch.lane] = flight
        self.watches[flight.plan.batch.plan] = BatchTiming(now)

    def remove(self, batch: Batch) -> None:
        """Give up a batch that was never begun."""
        del self.flights[batch.lane]
        del self.watches[batch.plan]

    def drop_resting(self, now: float) -> None:
        """Give up the batches that rest; the next run takes them up."""
        for flight in self.list_idle():
            if flight.is_resting(now):
                del self.flights[flight.plan.batch.lane]

    def start(self, flights: Sequence[BatchInFlight], tasks: Sequence[Task], now: float) -> None:
        """Give the tasks of these flights to one runner, as one task."""
        lanes = [flight.plan.batch.lane for flight in flights]
        for flight in flights:
            self.watches[flight.plan.batch.plan].mark("plan" if flight.until is None else "rest", now)
            self.flights[flight.plan.batch.lane] = replace(flight, until=None)
        self.working[lanes[0]] = lanes
        self.crew.start(lanes[0], join_tasks(tasks))

    def start_tick(self, lane: str, tick: ShowEmptyBatch) -> None:
        """Have an empty batch shown in the name of this lane."""
        self.ticking.add(lane)
        self.working[lane] = [lane]
        self.crew.start(lane, tick)

    def split(self, first: str, outcome: Outcome) -> Sequence[Finished]:
        """The outcome of the task given in the name of this lane, for each of its lanes. Its runner is idle."""
        return list(split_outcome(outcome, self.working.pop(first)))

    def end_tick(self, lane: str) -> bool:
        """Whether the outcome of this lane is that of an empty batch."""
        ticked = lane in self.ticking
        self.ticking.discard(lane)
        return ticked


def may_share(flight: BatchInFlight, source: BatchPlanner | None) -> bool:
    """Whether this batch may be written together with others: it goes straight, its destination takes several, and no
    write of it with others was declined before."""
    if source is None or GROUPED in flight.declined or not isinstance(flight.task, WriteStraight):
        return False
    return source.may_group(flight.plan.batch.lane)


def group_flights(
    flights: Sequence[BatchInFlight], source: BatchPlanner | None, most: int
) -> Iterator[Sequence[BatchInFlight]]:
    """The flights in their order, those together that may share a write, at most so many of them."""
    sharing: dict[str, list[BatchInFlight]] = {}
    for flight in flights:
        if may_share(flight, source):
            sharing.setdefault(flight.plan.batch.origin, []).append(flight)
    for flight in flights:
        together = sharing.get(flight.plan.batch.origin, []) if may_share(flight, source) else [flight]
        if together and together[0] is flight:
            for first in range(0, len(together), most):
                yield together[first : first + most]


def join_tasks(tasks: Sequence[Task]) -> Task:
    carries = [task for task in tasks if isinstance(task, WriteStraight)]
    return WriteGroup(carries=carries) if len(tasks) > 1 else tasks[0]


def split_outcome(outcome: Outcome, lanes: Sequence[str]) -> Iterator[Finished]:
    """The outcome of a task, for each of its lanes."""
    cannot_share = isinstance(outcome, Failed) or (isinstance(outcome, Declined) and outcome.way == GROUPED)
    for lane in lanes:
        if isinstance(outcome, GroupWritten):
            yield lane, outcome.landed[lane]
        elif len(lanes) == 1 or cannot_share:
            yield lane, outcome
        else:
            raise TypeError(f"no outcome of a shared task: {outcome}")


LISTEN = 5.0
"""How many seconds a stop through the ledger may go unheard while a batch rests."""


class BackOff:
    """What a run knows of its batches that rest, all in seconds of its own clock."""

    def __init__(self, retry: RetryPolicy, dice: random.Random, *, now: float) -> None:
        self.retry = retry
        self.dice = dice
        self.listened = now
        """When the ledger was last looked at because of a batch that rests."""
        self.begun: dict[str, BatchRests] = {}
        """What is told of batches that begin to rest, once that is recorded; by their plans."""

    def rest_or_fail(self, step: Transition, clock: Clock, *, stopping: bool) -> Transition:
        """The step, or a rest in the place of its error. A run that stops lets nothing rest any more."""
        now = clock.elapsed()
        rest = step if stopping else self.postpone(step, now)
        if step.error is not None and rest.error is None:
            flight, batch = rest.flight, rest.flight.plan.batch
            seconds = (flight.until or now) - now
            self.begun[batch.plan] = BatchRests(batch=batch, error=step.error, tried=flight.tried, seconds=seconds)
            # what the next run has to know if this one dies meanwhile
            since = clock.now() - timedelta(seconds=now - (flight.since or 0.0))
            body = {"tried": flight.tried, "since": since.isoformat(timespec="milliseconds")}
            entry = Entry(kind="rest", lane=batch.lane, plan=batch.plan, body=body)
            rest = replace(rest, entries=(*rest.entries, entry))
        return self.watch_ledger(rest, now)

    def postpone(self, step: Transition, now: float) -> Transition:
        """The step without its error, where that passes by itself and the batch is to be tried again after a rest.
        Where several destinations have failed every error must pass; else the one that does not is told."""
        flight = step.flight
        if step.error is None or step.again is None:
            return step
        since = 0.0 if flight.since is None else now - flight.since
        pause = 0.0
        for error in flight.failed.values() or [step.error]:
            longer = self.retry.pause(error, tried=flight.tried, since=since, dice=self.dice)
            if longer is None:
                return replace(step, error=error)
            pause = max(pause, longer)
        return replace(step, flight=rest_flight(flight, step.again, now=now, until=now + pause), error=None)

    def watch_ledger(self, step: Transition, now: float) -> Transition:
        """The step; before a write that went wrong is asked for, the ledger is looked at."""
        flight = step.flight
        if isinstance(flight.task, AskDestinations) and flight.until is None:
            return replace(step, flight=replace(flight, until=now))
        return step

    @staticmethod
    def find_first_failure(lane: LaneState, clock: Clock) -> float | None:
        """When the lane's next batch could not be carried for the first time, by the clock of this run."""
        if not lane.since:
            return None
        return clock.elapsed() - max(0.0, (clock.now() - datetime.fromisoformat(lane.since)).total_seconds())

    def should_listen(self, idle: Sequence[BatchInFlight], now: float) -> bool:
        """Whether it is time to look for a stop or a takeover: now and then while a batch rests,
        for then nothing is recorded; and always before one goes again, for then nothing may be written any more."""
        moments = [flight.until for flight in idle if flight.until is not None]
        due = bool(moments) and (now >= self.listened + LISTEN or min(moments) <= now)
        if due:
            self.listened = now
        return due

    def list_moments(self, idle: Sequence[BatchInFlight]) -> Iterator[float]:
        """When there is something to do about batches that no runner has."""
        for flight in idle:
            if flight.task is not None:
                yield 0.0 if flight.until is None else min(flight.until, self.listened + LISTEN)
