"""What a run plans from: the backlogs of its origins, and the terms on which batches are made of them."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime

from origins.batch import JSON, Batch, Limits, Span
from origins.origin import Backlog
from runners.clock import Clock
from runners.outcome import Tick
from runners.pace import Pace
from runners.plan import Plan
from runners.state import Lane

NO_LIMITS = Limits()
BLINK = 0.02
"""So many seconds may be spent on counting what waits, which nothing but an estimate needs."""


@dataclass(frozen=True, kw_only=True)
class Feed:
    """One origin as a run finds it."""

    origin: str
    lanes: Mapping[str, str]
    """The origin's own names of its lanes, by the names that they have in the pipeline."""
    schema: str
    backlog: Backlog
    news: Sequence[str] = ()
    """What a person should know of the schema."""
    straight: bool = False
    """Whether a clean batch may go straight to its destination."""
    foresees: bool = False
    """Whether a batch may be planned in case, and described, while the one before it is carried: the origin allows it,
    no stage pins anything, and none changes rows, which takes more than a description."""
    shares: bool = False
    """Whether a straight batch may be written together with those of other lanes."""
    whole: bool = False
    """Whether all that waits in a lane is one batch, whatever the limits."""
    destinations: Callable[[Span], Sequence[str]] | None = None
    """To which destinations a batch goes; by default to all."""
    pins: Callable[[], Mapping[str, JSON]] = dict
    """What the stages must find the same whenever a batch that is planned now is computed."""


@dataclass(frozen=True, kw_only=True)
class Source:
    """What there is to plan from in this run, and under which terms."""

    pipeline: str
    run: str
    definition: str
    destinations: Sequence[str]
    feeds: Sequence[Feed]
    limits: Limits = NO_LIMITS
    wait: float = 0.0
    """How many seconds a batch that is not full waits for more, in a run that goes on."""
    idle: float = 0.0
    """After how many seconds without a batch stages and destinations see an empty one; 0 is never."""
    first_alone: bool = False
    """Whether the run's first batch is settled before another is planned."""
    _feeds: Mapping[str, Feed] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_feeds", {lane: feed for feed in self.feeds for lane in feed.lanes})

    @property
    def lanes(self) -> Sequence[str]:
        """All lanes, in the order in which they are served."""
        return tuple(self._feeds)

    def take(self, lane: str, start: JSON, pace: Pace) -> Span | None:
        """The lane's next batch after `start`, as large as the limits and the pace allow."""
        feed = self._feeds[lane]
        limits = NO_LIMITS if feed.whole else pace.limits(lane, self.limits)
        return feed.backlog.take(feed.lanes[lane], start, limits)

    def is_load(self, lane: str) -> bool:
        """Whether each batch of the lane is a load of its own, so that the one before it has nothing to do with it."""
        return self._feeds[lane].whole and len(self._feeds) == 1

    def shares(self, lane: str) -> bool:
        """Whether the lane's straight batches may be written together with those of others of its origin."""
        feed = self._feeds.get(lane)
        return feed is not None and feed.shares

    def plan(self, lane: str, state: Lane, span: Span, now: datetime, *, first: bool) -> Plan:
        """The lane's next batch, with all that must stay the same about it."""
        feed = self._feeds[lane]
        return Plan(
            batch=self._batch(lane, state.number + 1, span, now, first=first),
            destinations=tuple(feed.destinations(span) if feed.destinations else self.destinations),
            straight=feed.straight and not state.careful,
            pins=feed.pins(),
        )

    def foresee(self, before: Plan, state: Lane, now: datetime, pace: Pace) -> Plan | None:
        """What comes behind this batch if all goes well; None where it may grow, or nothing is planned in case."""
        lane = before.batch.lane
        feed = self._feeds.get(lane)
        span = self.take(lane, before.batch.span.end, pace) if feed is not None and feed.foresees else None
        if span is None or not span.full:
            return None
        return self.plan(lane, replace(state, number=before.batch.number), span, now, first=False)

    def waiting(self, offsets: Mapping[str, JSON], pace: Pace, clock: Clock) -> Mapping[str, int]:
        """How many batches wait behind these offsets, of the lanes that can be counted within a blink."""
        until, found = clock.elapsed() + BLINK, {}
        for lane in self.lanes:
            count, start = 0, offsets.get(lane)
            while clock.elapsed() < until and (span := self.take(lane, start, pace)) is not None:
                count, start = count + 1, span.end
            if clock.elapsed() >= until:
                break
            found[lane] = count
        return found

    def ticks(self, lanes: Callable[[str], Lane], now: datetime) -> Mapping[str, Tick]:
        """An empty batch of each origin, by the lane that shows it."""
        found = {}
        for feed in self.feeds:
            lane = next(iter(feed.lanes))
            state = lanes(lane)
            span = Span(start=state.offset, end=state.offset, label="nothing")
            found[lane] = Tick(batch=self._batch(lane, state.number, span, now))
        return found

    def _batch(self, lane: str, number: int, span: Span, now: datetime, *, first: bool = False) -> Batch:
        feed = self._feeds[lane]
        return Batch(
            pipeline=self.pipeline,
            run=self.run,
            origin=feed.origin,
            lane=lane,
            number=number,
            plan=uuid.uuid4().hex,
            span=span,
            schema=feed.schema,
            time=now,
            first=first,
            definition=self.definition,
        )


def notices_of(source: Source | None) -> Iterator[tuple[str, str]]:
    """What a person should know of what was found, each with its origin."""
    for feed in source.feeds if source else ():
        for notice in [*feed.news, *feed.backlog.notices]:
            yield feed.origin, notice
