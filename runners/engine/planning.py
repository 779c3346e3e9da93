"""Which batches a run plans next, in which lanes, and when a run that follows looks again. It records nothing.

While it is not known whether `dlq.budget` allows another batch, a run plans no batch.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta

from origins.batch import Batch, Json, Span
from origins.codec import encode
from origins.errors import WherryError, list_spark_errors
from runners.engine.batch_machine import BatchInFlight, Transition, begin_flight
from runners.engine.batch_planner import BatchPlanner, OriginFeed
from runners.engine.lane_coordination import LaneCoordination
from runners.engine.work_in_flight import BackOff, WorkInFlight, may_share
from runners.model.clock import Clock
from runners.model.entry import Entry
from runners.model.errors import Fenced
from runners.model.pipeline_state import LaneState, PipelineState, is_replay
from runners.model.planned_batch import PlannedBatch
from runners.model.tasks import ShowEmptyBatch
from runners.model.text import summarise_error
from runners.state.ledger import LedgerError

log = logging.getLogger("wherry")
STALE = timedelta(seconds=10)
"""A prediction that is older than this is planned again, because expressions may use its time."""


@dataclass(eq=False)
class Planning:
    """The next batches of one run. Only the thread that owns progress uses it."""

    work: WorkInFlight
    max_in_flight: int
    source: BatchPlanner | None = None
    coordination: LaneCoordination | None = None
    """The other runs that share the lanes. None if this run has all lanes."""
    following: Follower | None = None
    """How the run continues when nothing is left. None if it ends then."""
    exhausted: set[str] = field(default_factory=set)
    unseen: set[str] = field(default_factory=set)
    """Lanes that another run had, or that are shared with a run that may have seen more rows."""
    served: dict[str, int] = field(default_factory=dict)
    """The turn in which each lane was last planned. The lane that waited longest comes first."""
    turns: int = 0
    begun: bool = False
    _predicted: dict[str, PlannedBatch] = field(default_factory=dict)

    def plan(self, state: PipelineState, clock: Clock, *, midway: bool, stopping: bool) -> Sequence[Transition]:
        """Return the next batches, as many as may be in flight and runners can take.

        `state` is the state after everything before them is recorded. `midway` is whether an earlier run began what
        this run continues.
        """
        steps: list[Transition] = []
        source = self.source
        if not self._has_room(clock.elapsed(), shared=True):
            return steps
        for lane in sorted(self._list_plannable(stopping=stopping), key=lambda lane: self.served.get(lane, 0)):
            assert source is not None
            if self._is_opening(source) or not self._has_room(clock.elapsed(), shared=True):
                break
            if not (source.may_group(lane) or self._has_room(clock.elapsed(), shared=False)):
                continue
            began = clock.elapsed()
            lane_state = state.get_lane(lane)
            span = source.take(lane, lane_state.offset)
            if span is None:
                self._note_exhausted(lane)
            elif (
                stopping
                or self.following is None
                or not self.following.is_gathering(lane, span, source.wait, clock.elapsed())
            ):
                flight = self._begin(source, lane_state, lane, span, clock, midway=midway)
                self.work.add(flight, began)
                batch = flight.plan.batch
                entry = Entry(kind="plan", lane=lane, plan=batch.plan, body=encode(flight.plan))
                steps.append(Transition(flight=flight, entries=(entry,)))
        return steps

    def predict(self, plan: PlannedBatch, state: PipelineState, clock: Clock) -> PlannedBatch | None:
        """Return what the lane of this batch processes next, if all goes well.

        It is planned and recorded in its turn.
        """
        lane = plan.batch.lane
        if self.source is None:
            return None
        predicted = self.source.predict_next(plan, state.get_lane(lane), clock.now())
        if predicted is not None:
            self._predicted[lane] = predicted
        return predicted

    def confirm(self, batch: Batch) -> None:
        """Note that the plan is recorded. The lane no longer waits for more rows."""
        if self.following is not None:
            self.following.note_planned(batch.lane)

    def give_up(self, batch: Batch) -> None:
        """Remove a batch whose plan could not be recorded. It was never begun."""
        self.work.remove(batch)
        self.begun = self.begun and not batch.first

    def note_cancelled(self, batch: Batch) -> None:
        """Plan the rows of this batch, which this run planned, once more."""
        self.exhausted.discard(batch.lane)
        self.begun = self.begun and not batch.first

    def may_plan_more(self, *, stopping: bool) -> bool:
        """Whether there may be more to plan, though nothing is in flight.

        That ends with a stop, or when the lanes that waited for more rows are planned.
        """
        return self.following is not None and (not stopping or bool(self.following.gathering))

    def must_wait(self, *, stopping: bool) -> bool:
        """Whether this run must wait for lanes of other runs, though it has nothing left."""
        if self.coordination is None or self.source is None or self.following is not None or stopping:
            return False
        return self.coordination.unfinished

    def list_moments(self, now: float) -> Iterator[float]:
        """Yield in how many seconds a run that follows has something to do besides waiting for an outcome."""
        if self.following is not None:
            free = self._has_room(now, shared=False) and not (self.source and self._is_opening(self.source))
            yield self.following.compute_patience(self.source, now, busy=bool(self.work.working), free=free)

    def poll(self, state: PipelineState, clock: Clock) -> None:
        assert self.following is not None
        offsets = {lane: state.get_lane(lane).offset for lane in self.source.lanes} if self.source else {}
        offsets.update({lane: flight.plan.batch.span.end for lane, flight in self.work.flights.items()})
        self.source = self.following.poll(self.source, offsets, clock)
        self.exhausted.clear()

    def let_go(self, *, stopping: bool) -> None:
        """Stop waiting for more rows in lanes of other runs.

        After a stop, also stop in lanes that must be looked at again.
        """
        if self.coordination is None or self.following is None:
            return
        mine, unseen = self.coordination.list_kept_lanes(), self._list_unseen() if stopping else ()
        for lane in [lane for lane in self.following.gathering if lane not in mine or lane in unseen]:
            self.following.note_planned(lane)

    def list_ended(self, mine: Collection[str]) -> Collection[str]:
        """Return the lanes of this run in which nothing is left, if the run ends at all."""
        if self.source is None or self.following is not None:
            return ()
        planned = set(self.source.lanes)
        return [lane for lane in mine if (lane in self.exhausted or lane not in planned) and lane not in self.unseen]

    def survey_taken(self, coordination: LaneCoordination, taken: Sequence[str], mine: Collection[str]) -> bool:
        """Look at what waits in lanes that this run took. Return whether it looked.

        If another run joined that may have seen more, and this run does not follow, it looks at all its lanes.
        """
        self.unseen.update(taken)
        if coordination.has_newcomers:
            coordination.note_survey()
            self.unseen.update(() if self.following else mine)
        return self._survey(coordination)

    def make_ticks(self, state: PipelineState, clock: Clock) -> Sequence[tuple[str, ShowEmptyBatch]]:
        """Return the empty batches, by lane, that stages and destinations get when no rows came for a while."""
        source, following = self.source, self.following
        busy = bool(self.work.flights or self.work.working)
        if source is None or following is None or not following.is_quiet(source.idle, clock.elapsed(), busy=busy):
            return []
        return list(source.make_ticks(state.get_lane, clock.now()).items())[: self.work.worker_pool.size]

    def _list_plannable(self, *, stopping: bool) -> Sequence[str]:
        """Return the lanes that may plan a batch. After a stop these are the lanes that waited for more rows."""
        lanes: Collection[str] = self.source.lanes if self.source else ()
        if stopping:
            lanes = tuple(self.following.gathering) if self.following else ()
        if self.coordination is not None:
            mine, unseen = self.coordination.list_kept_lanes(), self._list_unseen()
            lanes = [lane for lane in lanes if lane in mine and lane not in unseen]
        taken = self.work.list_lanes() | self.exhausted
        return [lane for lane in lanes if lane not in taken]

    def _has_room(self, now: float, *, shared: bool) -> bool:
        """Whether another batch may be planned.

        Not too many may be in flight. A runner must be free for it, or one write must be able to bring it together
        with others.
        """
        idle = self.work.list_awake(now)
        together = [flight for flight in idle if may_share(flight, self.source)]
        runners = len(self.work.working) + len(idle) - len(together) + bool(together)
        free = runners < self.work.worker_pool.size or (shared and bool(together))
        return len(self.work.flights) < self.max_in_flight and free

    def _begin(
        self, source: BatchPlanner, state: LaneState, lane: str, span: Span, clock: Clock, *, midway: bool
    ) -> BatchInFlight:
        first = source.is_load(lane) or not (self.begun or midway or is_replay(lane))
        plan = source.plan(lane, state, span, clock.now(), first=first)
        predicted = self._predicted.pop(lane, None)
        if predicted is not None and predicted.is_same_batch(plan) and plan.batch.time - predicted.batch.time < STALE:
            plan = predicted
        self.begun = True
        self.served[lane] = self.turns
        return begin_flight(plan, state, BackOff.find_first_failure(state, clock))

    def _is_opening(self, source: BatchPlanner) -> bool:
        """Whether the run's first batch must be settled before another is planned."""
        return source.first_alone and any(flight.plan.batch.first for flight in self.work.flights.values())

    def _note_exhausted(self, lane: str) -> None:
        self.exhausted.add(lane)
        if self.following is not None:
            self.following.note_planned(lane)

    def _survey(self, coordination: LaneCoordination) -> bool:
        """Look again at what waits at the origins that need it. Return whether it looked.

        It looks at an origin only while no batch of that origin is in flight here. The ledger has no offset of such a
        batch yet.
        """
        if self.source is None:
            return False
        flying = self.work.list_lanes()
        due = [feed for feed in self._list_unseen_feeds() if flying.isdisjoint(feed.lanes)]
        lanes = {lane for feed in due for lane in feed.lanes}
        self.unseen &= set(self.source.lanes) - lanes
        self.exhausted -= lanes
        if due:
            self.source = coordination.again(self.source, [feed.origin for feed in due])
        return bool(due)

    def _list_unseen(self) -> Collection[str]:
        """Return the lanes that may plan nothing before they are looked at again. These are all lanes of an origin."""
        return {lane for feed in self._list_unseen_feeds() for lane in feed.lanes}

    def _list_unseen_feeds(self) -> Sequence[OriginFeed]:
        feeds = self.source.feeds if self.source else ()
        return [feed for feed in feeds if not self.unseen.isdisjoint(feed.lanes)]


SELDOM = 100
"""The next look waits at least this many times as long as the last look took.

So looking costs at most 1 % of a core.
"""

Again = Callable[["BatchPlanner | None", Mapping[str, Json]], "BatchPlanner | None"]
"""Returns the planner for the rows after these offsets, or None."""


class Follower:
    """Decides when a run that follows looks for rows again. All times are seconds of the run's clock."""

    def __init__(self, *, every: float, again: Again, now: float) -> None:
        self.every = every
        self.again = again
        self.next = now + every
        self.gathering: dict[str, float] = {}
        """The time of the first row of each lane whose next batch waits for more rows."""
        self.quiet = now
        """Since when there has been no batch, not even an empty one."""

    def poll(self, source: BatchPlanner | None, offsets: Mapping[str, Json], clock: Clock) -> BatchPlanner | None:
        began = clock.elapsed()
        planner = self.again(source, offsets)
        took = clock.elapsed() - began
        self.next = clock.elapsed() + max(self.every, SELDOM * took)
        return planner

    def is_gathering(self, lane: str, span: Span, wait: float, now: float) -> bool:
        """Whether the lane's next batch waits for more rows.

        It does if no limit has closed it, and its first row was seen less than `wait` seconds ago.
        """
        return bool(wait) and not span.full and now - self.gathering.setdefault(lane, now) < wait

    def note_planned(self, lane: str) -> None:
        """Note that the lane's batch no longer waits."""
        self.gathering.pop(lane, None)

    def is_quiet(self, idle: float, now: float, *, busy: bool) -> bool:
        """Whether no batch came for `idle` seconds. If so, the time starts again."""
        quiet = bool(idle) and not busy and now - self.quiet >= idle
        if busy or quiet:
            self.quiet = now
        return quiet

    def compute_patience(self, source: BatchPlanner | None, now: float, *, busy: bool, free: bool) -> float:
        """Return how long there is nothing to do except to wait for an outcome.

        `free` is whether another batch could be planned.
        """
        moments = [self.next]
        if source is not None:
            moments += [since + source.wait for since in self.gathering.values()] if free else []
            moments += [self.quiet + source.idle] if source.idle and not busy else []
        return max(0.0, min(moments) - now)


@dataclass
class BudgetWatch:
    """Asks after each batch with refused rows, and again after an error that passes by itself.

    All times are seconds of the run's clock.
    """

    ask: Callable[[Sequence[Entry]], Exception | None] | None
    """Returns why no batch may follow those that these entries settle. It is None without a budget."""
    resting: BackOff
    """How often it asks again."""
    until: float | None = None
    """When it asks next. None if the last question was answered."""
    _tried: int = 0
    _since: float = 0.0

    def ask_first(self, now: float) -> None:
        """Ask before the first batch is planned."""
        self.until = now if self.ask is not None else None

    def check(self, settled: Sequence[Entry], now: float) -> Exception | None:
        """Return why the run ends: too many rows wait, or their number cannot be found out. None if the run continues.

        If there is no answer yet, `until` is set. The next answer then covers these entries too.
        """
        if self.ask is None or (not settled if self.until is None else self.until > now):
            return None
        try:
            error = self.ask(settled)
        except (Fenced, LedgerError):
            raise
        except list_spark_errors(WherryError) as failed:
            return self._postpone(failed, now)
        self.give_up()
        return error

    def give_up(self) -> None:
        """Stop asking: there is an answer, or no answer is needed."""
        self.until, self._tried = None, 0

    def _postpone(self, error: Exception, now: float) -> Exception | None:
        self._since = self._since if self._tried else now
        retry, dice = self.resting.retry, self.resting.dice
        pause = retry.pause(error, tried=self._tried, since=now - self._since, dice=dice)
        if pause is None:
            self.give_up()
            return error
        self._tried += 1
        self.until = now + pause
        log.warning(
            "Wherry cannot count the refused rows that wait: %s. It plans no batch, and asks again in %.1f s.",
            summarise_error(error).rstrip("."),
            pause,
        )
        return None
