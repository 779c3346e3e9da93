"""Batches that rest before they are tried again: which do, for how long, and what is looked at meanwhile. It reads no
clock and waits for nothing."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import datetime, timedelta

from runners.engine.batch_machine import BatchInFlight, Transition, rest_flight
from runners.model.clock import Clock
from runners.model.entry import Entry
from runners.model.events import BatchRests
from runners.model.pipeline_state import LaneState
from runners.model.spec import RetryPolicy
from runners.model.tasks import AskDestinations

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
        tried = step if stopping else self.postpone(step, now)
        if step.error is not None and tried.error is None:
            flight = tried.flight
            seconds = (flight.until or now) - now
            rests = BatchRests(batch=flight.plan.batch, error=step.error, tried=flight.tried, seconds=seconds)
            self.begun[flight.plan.batch.plan] = rests
            tried = self.note_rest(tried, clock)
        return self.watch_ledger(tried, now)

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

    def note_rest(self, step: Transition, clock: Clock) -> Transition:
        """The step of a batch that begins to rest, with what the next run has to know if this one dies meanwhile: how
        often it was tried, and since when."""
        flight = step.flight
        since = clock.now() - timedelta(seconds=clock.elapsed() - (flight.since or 0.0))
        body = {"tried": flight.tried, "since": since.isoformat(timespec="milliseconds")}
        entry = Entry(kind="rest", lane=flight.plan.batch.lane, plan=flight.plan.batch.plan, body=body)
        return replace(step, entries=(*step.entries, entry))

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
