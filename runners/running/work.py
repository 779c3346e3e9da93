"""What a run does: the contract of each kind of work, and the lanes in which old rows are processed again."""

from __future__ import annotations

import functools
import json
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import ClassVar

from destinations.destination import Destination
from destinations.labels import Deadline
from origins.batch import JSON, Backlog, Json, Limits, Span
from origins.lazy import SparkSession
from runners.engine.batch_planner import BatchPlanner, OriginFeed
from runners.model.entry import BegunBackfill, Entry
from runners.model.pipeline_state import BACKFILL, is_replay
from runners.model.spec import PipelineSpec
from runners.running.aggregates import SplitReason
from runners.state.journal import Journal
from runners.state.prepared_store import PreparedStore
from runners.ways.batch_source import BatchReader


@dataclass(frozen=True, kw_only=True)
class OpenRun:
    """What work finds in a run that has finished the open batches."""

    pipeline: PipelineSpec
    dlq: Destination
    reading: BatchReader
    journal: Journal
    spark: SparkSession
    deadline: Callable[[], Deadline | None]
    """Returns the end of the time in which a write may begin; None if there is none."""
    is_stopped: Callable[[], bool]
    """Whether a person asked the run to stop."""


class Work:
    """What a run does. By default it processes old rows again, and leaves waiting rows alone.

    After a crash the same work begins again: each hook then continues, and does nothing twice.
    """

    takes_waiting: ClassVar[bool] = False
    """Whether it processes waiting rows. Other work has the pipeline alone, and may run while it is paused."""
    takes_letters: ClassVar[bool] = False
    """Whether its rows are rows of the DLQ, which `dlq.budget` does not limit."""
    plans: ClassVar[bool] = True
    """Whether it plans batches. If not, the run ends after `complete`."""
    split: ClassVar[SplitReason | None] = None
    """Why rows that belong together come in several batches. None if only the origins' rules decide that."""

    only: str | None = None
    """The only destination that gets the rows, or None for all destinations."""

    @property
    def refilled(self) -> str | None:
        """The destination that gets all old batches again, so that its place may be empty or new."""
        return None

    def json(self) -> Mapping[str, JSON] | None:
        """Return the form of a replay that the ledger keeps, or None for other work."""
        return None

    def check(self, journal: Journal, dlq: Destination, spark: Callable[[], SparkSession]) -> None:
        """Raises `Refusal` if the run must not become an owner for this work."""

    def select_rows(self, run: OpenRun) -> Sequence[PastLane]:
        """Return the old rows to process, by lane. It may record that they begin, and can be called again."""
        return ()

    def make_source(self, source: BatchPlanner, run: OpenRun) -> BatchPlanner:
        """Return the planner for this work, in place of the planner `source` for waiting rows."""
        feeds = {feed.origin: feed for feed in source.feeds}
        lanes = [lane for lane in self.select_rows(run) if lane.origin in feeds]
        return replace(source, feeds=[lane.make_feed(feeds[lane.origin]) for lane in lanes])

    def complete(self, run: OpenRun) -> None:
        """Do what needs no new batch, once the open batches are finished."""

    def clean_up(self, store: PreparedStore, spark: SparkSession) -> None:
        """Remove what the state kept for this work. No replay is left that an interruption cut short."""


class WaitingBatches(Work):
    """The waiting rows of all origins, perhaps beside other runs that have some of the lanes."""

    takes_waiting = True

    def make_source(self, source: BatchPlanner, run: OpenRun) -> BatchPlanner:
        return source


class OpenBatches(Work):
    """Only the batches that an earlier run left open."""

    plans = False


@dataclass(frozen=True, kw_only=True)
class PastLane(Backlog):
    """Old rows in a lane of their own. The limits of batches do not change them."""

    origin: str
    """The origin whose columns and stages the rows have."""
    name: str
    """The name of this lane in the ledger, which keeps its progress."""
    lane: str
    """The lane from which the rows were read."""
    start: JSON = None
    """The offset of this lane before the first of these batches."""
    batches: Sequence[tuple[Span, Sequence[str]]]
    """The batches in order, each with its destinations. A batch without a destination is passed over."""
    replaces: Mapping[str, str] = field(default_factory=dict)
    """By destination, the condition for the rows that the new rows replace."""
    pins: Mapping[str, Json] = field(default_factory=dict)
    """Further facts that a plan records, so that they are the same in every computation of its batch."""
    notices: Sequence[str] = ()

    def make_feed(self, feed: OriginFeed) -> OriginFeed:
        """Return the feed of its origin, with these rows in place of the waiting rows."""
        straight = feed.straight and not is_replay(self.name)
        return replace(
            feed,
            lanes={self.name: self.lane},
            backlog=self,
            straight=straight,
            shares=feed.shares and straight and not self.replaces,
            whole=False,
            destinations=lambda span: self.batches[self._find_next(span.end) - 1][1],
            replaces=self.replaces,
            pins=lambda: {**feed.pins(), **self.pins},
        )

    def take(self, lane: str, start: JSON, limits: Limits) -> Span | None:
        return next((span for span, names in self.batches[self._find_next(start) :] if names), None)

    def _find_next(self, offset: JSON) -> int:
        return self._places[make_offset_key(offset)]

    @functools.cached_property
    def _places(self) -> Mapping[str, int]:
        """By offset, the place of the batch after it."""
        ends = {make_offset_key(span.end): place for place, (span, _) in enumerate(self.batches, 1)}
        return {make_offset_key(self.start): 0, **ends}


def begin_backfill(journal: Journal, key: str, **facts: Json) -> BegunBackfill:
    """Record in the ledger that batches are processed again, in lanes with a new name."""
    body = {"key": key, "name": f"{BACKFILL}{uuid.uuid4().hex[:8]}", **facts}
    journal.record(Entry(kind="backfill", body=body))
    return journal.state.backfills[key]


def make_offset_key(offset: JSON) -> str:
    """Return a text that is equal for equal offsets."""
    return json.dumps(offset, sort_keys=True)
