"""Batches that rest before they are tried again: which do, for how long, and what is looked at meanwhile. It reads no
clock and waits for nothing."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import datetime, timedelta

from runners.clock import Clock
from runners.flight import Flight, Step, rested
from runners.ledgers.entry import Entry
from runners.outcome import Ask
from runners.retry import Retry
from runners.state import Lane

LISTEN = 5.0
"""How many seconds a stop through the ledger may go unheard while a batch rests."""


class Resting:
    """What a run knows of its batches that rest, all in seconds of its own clock."""

    def __init__(self, retry: Retry, dice: random.Random, *, now: float) -> None:
        self.retry = retry
        self.dice = dice
        self.listened = now
        """When the ledger was last looked at because of a batch that rests."""

    def after(self, step: Step, now: float) -> Step:
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
        return replace(step, flight=rested(flight, step.again, now=now, until=now + pause), error=None)

    def noted(self, step: Step, clock: Clock) -> Step:
        """The step of a batch that begins to rest, with what the next run has to know if this one dies meanwhile: how
        often it was tried, and since when."""
        flight = step.flight
        since = clock.now() - timedelta(seconds=clock.elapsed() - (flight.since or 0.0))
        body = {"tried": flight.tried, "since": since.isoformat(timespec="milliseconds")}
        entry = Entry(kind="rest", lane=flight.plan.batch.lane, plan=flight.plan.batch.plan, body=body)
        return replace(step, entries=(*step.entries, entry))

    def watched(self, step: Step, now: float) -> Step:
        """The step; before a write that went wrong is asked for, the ledger is looked at."""
        flight = step.flight
        if isinstance(flight.task, Ask) and flight.until is None:
            return replace(step, flight=replace(flight, until=now))
        return step

    @staticmethod
    def since(lane: Lane, clock: Clock) -> float | None:
        """When the lane's next batch could not be carried for the first time, by the clock of this run."""
        if not lane.since:
            return None
        return clock.elapsed() - max(0.0, (clock.now() - datetime.fromisoformat(lane.since)).total_seconds())

    def is_resting(self, flight: Flight, now: float) -> bool:
        """Whether it is not yet time to try the batch again."""
        return flight.until is not None and flight.until > now

    def listens(self, idle: Sequence[Flight], now: float) -> bool:
        """Whether it is time to look whether somebody asked for a stop, or took over: now and then while a batch rests,
        for then nothing is recorded; and always before one goes again, for then nothing may be written any more."""
        moments = [flight.until for flight in idle if flight.until is not None]
        due = bool(moments) and (now >= self.listened + LISTEN or min(moments) <= now)
        if due:
            self.listened = now
        return due

    def moments(self, idle: Sequence[Flight]) -> Iterator[float]:
        """When there is something to do about batches that no runner has."""
        for flight in idle:
            if flight.task is not None:
                yield 0.0 if flight.until is None else min(flight.until, self.listened + LISTEN)
