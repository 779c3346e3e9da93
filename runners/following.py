"""A run that goes on when nothing is left: when it looks again, which batch waits for more, and when it is quiet."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from origins.batch import JSON, Span
from runners.clock import Clock
from runners.source import Source

SELDOM = 100
"""How many times longer than the last look took the next one waits at least: looking costs 1 % of a core at most."""

Again = Callable[["Source | None", Mapping[str, JSON]], "Source | None"]
"""What there is to plan from now, behind these offsets."""


class Following:
    """What a run that goes on knows of time, all in seconds of its own clock."""

    def __init__(self, *, every: float, again: Again, now: float) -> None:
        self.every = every
        """How long to wait between two looks."""
        self.again = again
        self.next = now + every
        """When it is time to look again."""
        self.gathering: dict[str, float] = {}
        """When the first row was seen of each lane whose next batch waits for more."""
        self.quiet = now
        """Since when there was no batch, and no empty one."""

    def is_due(self, now: float) -> bool:
        """Whether it is time to look."""
        return now >= self.next

    def look(self, source: Source | None, offsets: Mapping[str, JSON], clock: Clock) -> Source | None:
        """What there is to plan from now."""
        began = clock.elapsed()
        found = self.again(source, offsets)
        took = clock.elapsed() - began
        self.next = clock.elapsed() + max(self.every, SELDOM * took)
        return found

    def gathers(self, lane: str, span: Span, wait: float, now: float) -> bool:
        """Whether the lane's next batch waits for more rows: no limit has closed it, and its first row was seen less
        than `wait` ago."""
        return bool(wait) and not span.full and now - self.gathering.setdefault(lane, now) < wait

    def planned(self, lane: str) -> None:
        """The lane's batch waits no longer."""
        self.gathering.pop(lane, None)

    def is_quiet(self, idle: float, now: float, *, busy: bool) -> bool:
        """Whether there was nothing for as long as `idle`; then the time begins anew."""
        quiet = bool(idle) and not busy and now - self.quiet >= idle
        if busy or quiet:
            self.quiet = now
        return quiet

    def patience(self, source: Source | None, now: float, *, busy: bool, free: bool) -> float:
        """How long there is nothing to do but to wait for an outcome; `free` if another batch could be planned."""
        moments = [self.next]
        if source is not None:
            moments += [since + source.wait for since in self.gathering.values()] if free else []
            moments += [self.quiet + source.idle] if source.idle and not busy else []
        return max(0.0, min(moments) - now)
