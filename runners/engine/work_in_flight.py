"""The batches in flight: their states, the runners that have them, the writes that they share, and their rests.

Nothing here waits.
"""

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
from runners.model.spec import RetryOptions
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
    """The batches in flight and the runners that process them. Only the thread that owns progress uses it."""

    def __init__(self, worker_pool: TaskWorkers) -> None:
        self.worker_pool = worker_pool
        self.flights: dict[str, BatchInFlight] = {}
        """The batch in flight of each lane."""
        self.working: dict[str, Sequence[str]] = {}
        """The lanes of each task that a runner has, by the task's first lane."""
        self.watches: dict[str, BatchTiming] = {}
        """How the time of each batch in flight is spent, by its plan."""
        self.ticking: set[str] = set()
        """The lanes that process an empty batch now."""

    def has_idle_runner(self) -> bool:
        return len(self.working) < self.worker_pool.size

    def list_busy_lanes(self) -> set[str]:
        """Return the lanes of the tasks that runners have."""
        return {lane for lanes in self.working.values() for lane in lanes}

    def list_lanes(self) -> set[str]:
        """Return the lanes with a batch in flight, also an empty batch."""
        return {*self.flights, *self.list_busy_lanes()}

    def list_idle(self) -> Sequence[BatchInFlight]:
        busy = self.list_busy_lanes()
        return [flight for lane, flight in self.flights.items() if lane not in busy]

    def list_awake(self, now: float) -> Sequence[BatchInFlight]:
        """Return the flights that no runner has and that do not rest."""
        return [flight for flight in self.list_idle() if not flight.is_resting(now)]

    def add(self, flight: BatchInFlight, now: float) -> None:
        """Add a batch to the flights. Its time begins now."""
        self.flights[flight.plan.batch.lane] = flight
        self.watches[flight.plan.batch.plan] = BatchTiming(now)

    def remove(self, batch: Batch) -> None:
        """Remove a batch that was never begun."""
        del self.flights[batch.lane]
        del self.watches[batch.plan]

    def drop_resting(self, now: float) -> None:
        """Remove the batches that rest. The next run continues them."""
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
        self.worker_pool.start(lanes[0], join_tasks(tasks))

    def start_tick(self, lane: str, tick: ShowEmptyBatch) -> None:
        """Start the task that shows an empty batch, under this lane."""
        self.ticking.add(lane)
        self.working[lane] = [lane]
        self.worker_pool.start(lane, tick)

    def split(self, first: str, outcome: Outcome) -> Sequence[Finished]:
        """Return the outcome of the task for each of its lanes. Its runner is idle from now on."""
        return list(split_outcome(outcome, self.working.pop(first)))

    def end_tick(self, lane: str) -> bool:
        """Return whether the lane's outcome belongs to an empty batch, and end that batch."""
        ticked = lane in self.ticking
        self.ticking.discard(lane)
        return ticked


def may_share(flight: BatchInFlight, source: BatchPlanner | None) -> bool:
    """Whether one write may bring this batch together with others.

    It must be straight, its destination must take several batches, and no shared write of the batch was declined
    before.
    """
    if source is None or GROUPED in flight.declined or not isinstance(flight.task, WriteStraight):
        return False
    return source.may_group(flight.plan.batch.lane)


def group_flights(
    flights: Sequence[BatchInFlight], source: BatchPlanner | None, most: int
) -> Iterator[Sequence[BatchInFlight]]:
    """Yield the flights in their order. Flights that may share a write are together, up to `most` of them."""
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
    writes = [task for task in tasks if isinstance(task, WriteStraight)]
    return WriteGroup(writes=writes) if len(tasks) > 1 else tasks[0]


def split_outcome(outcome: Outcome, lanes: Sequence[str]) -> Iterator[Finished]:
    """Yield the outcome of a task for each of its lanes."""
    cannot_share = isinstance(outcome, Failed) or (isinstance(outcome, Declined) and outcome.way == GROUPED)
    for lane in lanes:
        if isinstance(outcome, GroupWritten):
            yield lane, outcome.outcomes[lane]
        elif len(lanes) == 1 or cannot_share:
            yield lane, outcome
        else:
            raise TypeError(f"no outcome of a shared task: {outcome}")


LISTEN = 5.0
"""How many seconds may pass until a run with a resting batch sees a stop in the ledger."""


class BackOff:
    """The batches of a run that wait before they are retried. All times are seconds of the run's clock."""

    def __init__(self, retry: RetryOptions, dice: random.Random, *, now: float) -> None:
        self.retry = retry
        self.dice = dice
        self.listened = now
        """When the run last looked at the ledger because of a batch that rests."""
        self.begun: dict[str, BatchRests] = {}
        """The events of batches that begin to rest, by their plans. They are emitted once the rest is recorded."""

    def rest_or_fail(self, step: Transition, clock: Clock, *, stopping: bool) -> Transition:
        """Return the transition, with a rest in place of its error if possible. A run that stops lets no batch rest."""
        now = clock.elapsed()
        rest = step if stopping else self.postpone(step, now)
        if step.error is not None and rest.error is None:
            flight, batch = rest.flight, rest.flight.plan.batch
            seconds = (flight.until or now) - now
            self.begun[batch.plan] = BatchRests(batch=batch, error=step.error, tried=flight.tried, seconds=seconds)
            # The next run needs these facts if this run dies meanwhile.
            since = clock.now() - timedelta(seconds=now - (flight.since or 0.0))
            body = {"tried": flight.tried, "since": since.isoformat(timespec="milliseconds")}
            entry = Entry(kind="rest", lane=batch.lane, plan=batch.plan, body=body)
            rest = replace(rest, entries=(*rest.entries, entry))
        return self.watch_ledger(rest, now)

    def postpone(self, step: Transition, now: float) -> Transition:
        """Return the transition with a rest in place of its error, if the error passes by itself.

        If several destinations failed, all errors must pass. Otherwise the result has the error that does not pass.
        """
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
        """Return the transition. If its task asks about a failed write, the run reads the ledger first."""
        flight = step.flight
        if isinstance(flight.task, AskDestinations) and flight.until is None:
            return replace(step, flight=replace(flight, until=now))
        return step

    @staticmethod
    def find_first_failure(lane: LaneState, clock: Clock) -> float | None:
        """Return when the lane's next batch first failed, by the clock of this run."""
        if not lane.since:
            return None
        return clock.elapsed() - max(0.0, (clock.now() - datetime.fromisoformat(lane.since)).total_seconds())

    def should_listen(self, idle: Sequence[BatchInFlight], now: float, *, asks_at: float | None = None) -> bool:
        """Whether it is time to look in the ledger for a stop or a takeover.

        The run looks now and then while a batch rests, or until it asks for its budget again at `asks_at`, because it
        records nothing then. It always looks before it tries a batch again, because it may have lost the right to
        write.
        """
        moments = [until for until in (*(flight.until for flight in idle), asks_at) if until is not None]
        due = bool(moments) and (now >= self.listened + LISTEN or min(moments) <= now)
        if due:
            self.listened = now
        return due

    def list_moments(self, idle: Sequence[BatchInFlight]) -> Iterator[float]:
        """Yield when there is something to do about batches that no runner has."""
        for flight in idle:
            if flight.task is not None:
                yield 0.0 if flight.until is None else self.limit_sleep(flight.until)

    def limit_sleep(self, until: float) -> float:
        """Return this moment, or an earlier one at which the run looks in the ledger."""
        return min(until, self.listened + LISTEN)
