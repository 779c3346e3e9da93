"""What a run plans with: the backlogs of its origins, and the rules for making batches."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime

from origins.batch import Backlog, Batch, Json, Limits, Span
from runners.model.clock import Clock
from runners.model.pipeline_state import LaneState
from runners.model.planned_batch import PlannedBatch
from runners.model.tasks import ShowEmptyBatch

NO_LIMITS = Limits()
BLINK = 0.02
"""How many seconds Wherry spends on counting waiting batches. The counts are used only for an estimate."""


@dataclass(frozen=True, kw_only=True)
class OriginFeed:
    """One origin, as a run opened it."""

    origin: str
    lanes: Mapping[str, str]
    """The names that the origin gives its lanes, by their names in the pipeline."""
    schema: str
    backlog: Backlog
    reads: str = ""
    news: Sequence[str] = ()
    """Notices for people about the schema."""
    straight: bool = False
    """Whether a clean batch may go straight to its destination."""
    shares: bool = False
    """Whether one write may bring straight batches of several lanes."""
    whole: bool = False
    """Whether all waiting rows of a lane are one batch, regardless of the limits."""
    destinations: Callable[[Span], Sequence[str]] | None = None
    """The destinations of a batch. The default is all."""
    replaces: Mapping[str, str] = field(default_factory=dict)
    """By destination, the condition for old rows that the rows of a batch replace."""
    predictable: bool = False
    """Whether Wherry may predict a batch before its turn."""
    pins: Callable[[], Mapping[str, Json]] = dict
    """Returns facts that stages must find the same in every computation of a batch that is planned now."""


@dataclass(frozen=True, kw_only=True)
class BatchPlanner:
    """What a run can plan from, and the rules for its batches."""

    pipeline: str
    run: str
    definition: str
    destinations: Sequence[str]
    feeds: Sequence[OriginFeed]
    limits: Limits = NO_LIMITS
    wait: float = 0.0
    """How many seconds an incomplete batch waits for more rows, in a run that follows."""
    idle: float = 0.0
    """After how many seconds without a batch stages and destinations get an empty batch. 0 is never."""
    first_alone: bool = False
    """Whether the run's first batch is settled before another is planned."""
    job: Mapping[str, str] = field(default_factory=dict)
    """The ids of the job in which the run works."""
    _feeds: Mapping[str, OriginFeed] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_feeds", {lane: feed for feed in self.feeds for lane in feed.lanes})

    @property
    def lanes(self) -> Sequence[str]:
        """All lanes, in the order in which they are served."""
        return tuple(self._feeds)

    def take(self, lane: str, start: Json) -> Span | None:
        """Return the lane's next batch after `start`, as large as the limits allow."""
        feed = self._feeds[lane]
        return feed.backlog.take(feed.lanes[lane], start, NO_LIMITS if feed.whole else self.limits)

    def is_load(self, lane: str) -> bool:
        """Whether each batch of the lane is a separate load, independent of the batch before it."""
        return self._feeds[lane].whole and len(self._feeds) == 1

    def may_group(self, lane: str) -> bool:
        """Whether one write may bring straight batches of this lane and of other lanes of its origin."""
        feed = self._feeds.get(lane)
        return feed is not None and feed.shares

    def plan(self, lane: str, state: LaneState, span: Span, now: datetime, *, first: bool) -> PlannedBatch:
        """Return the plan of the lane's next batch, with everything that must not change later."""
        feed = self._feeds[lane]
        return PlannedBatch(
            batch=self._make_batch(lane, state.number + 1, span, now, first=first),
            destinations=tuple(feed.destinations(span) if feed.destinations else self.destinations),
            straight=feed.straight and not state.careful,
            pins=feed.pins(),
        )

    def predict_next(self, before: PlannedBatch, state: LaneState, now: datetime) -> PlannedBatch | None:
        """Return the batch after this one, if all goes well. None if it may still grow."""
        lane = before.batch.lane
        feed = self._feeds.get(lane)
        span = self.take(lane, before.batch.span.end) if feed is not None and feed.predictable else None
        if span is None or not span.full:
            return None
        return self.plan(lane, replace(state, number=before.batch.number), span, now, first=False)

    def count_waiting(self, offsets: Mapping[str, Json], clock: Clock) -> Mapping[str, int]:
        """Count the batches that wait after these offsets, in the lanes that can be counted within a blink."""
        until, waiting = clock.elapsed() + BLINK, {}
        for lane in self.lanes:
            count, start = 0, offsets.get(lane)
            while clock.elapsed() < until and (span := self.take(lane, start)) is not None:
                count, start = count + 1, span.end
            if clock.elapsed() >= until:
                break
            waiting[lane] = count
        return waiting

    def make_ticks(self, lanes: Callable[[str], LaneState], now: datetime) -> Mapping[str, ShowEmptyBatch]:
        """Return an empty batch for each origin, by the lane that it belongs to."""
        ticks = {}
        for feed in self.feeds:
            lane = next(iter(feed.lanes))
            state = lanes(lane)
            span = Span(start=state.offset, end=state.offset, label="nothing")
            ticks[lane] = ShowEmptyBatch(batch=self._make_batch(lane, state.number, span, now))
        return ticks

    def _make_batch(self, lane: str, number: int, span: Span, now: datetime, *, first: bool = False) -> Batch:
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
            job=self.job,
            reads=feed.reads,
            replaces=feed.replaces,
        )
