"""Carrying again what was carried before, in lanes of its own beside the pipeline's progress."""

from __future__ import annotations

import json
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta, timezone
from typing import TypeAlias

from origins.batch import JSON, Limits, Span
from origins.origin import Backlog, Origin
from runners.engine.batch_planner import BatchPlanner, OriginFeed
from runners.model.entry import Entry, Settled
from runners.model.errors import Refusal
from runners.model.pipeline_state import BACKFILL, is_aside
from runners.model.spec import PipelineSpec
from runners.state.journal import Journal

Bound: TypeAlias = "int | datetime"
"""A batch's number in its lane, or when its offset was committed."""


@dataclass(frozen=True, kw_only=True)
class Backfill:
    """Which of the batches that were carried are carried again, and where to."""

    start: Bound | None = None
    """The first of them, inclusive; by default the first that there was."""
    end: Bound | None = None
    """The last of them, inclusive; by default the last that there was when it began."""
    only: str | None = None
    """The one destination that gets them; by default all."""
    lane: str | None = None
    """The one lane of which it is; by default all."""
    again: bool = False
    """Whether to carry once more what the same backfill has carried."""
    reason: str

    def __post_init__(self) -> None:
        if not self.reason.strip():
            raise Refusal("A backfill needs a reason, which the ledger keeps.", hint='--reason "…"')

    @property
    def key(self) -> str:
        """What is the same for two calls that mean the same backfill."""
        lane = () if self.lane is None else (self.lane,)
        return "|".join("" if each is None else str(each) for each in (self.start, self.end, self.only, *lane))

    def make_source(self, source: BatchPlanner, pipeline: PipelineSpec, journal: Journal) -> BatchPlanner:
        """What a run of it plans from, where one of the pipeline would plan from `make_source`.

        It goes on where an earlier run of the same backfill ended.
        """
        self._check(source.destinations, journal)
        name, until = self._find_beginning(journal)
        found = self.select_batches(journal.list_settled(), until)

        def past(feed: OriginFeed) -> OriginFeed:
            origin = next(each for each in pipeline.every_origin if (each.name or "origin") == feed.origin)
            lanes = {lane: batches for lane, batches in found.items() if self._does_bring(pipeline, origin, lane)}
            return replace(
                feed,
                lanes={f"{name}/{lane}": lane for lane in lanes},
                backlog=PastBacklog(
                    {lane: [_make_span(batch) for batch in batches] for lane, batches in lanes.items()}
                ),
                destinations=None if self.only else feed.destinations,
                whole=False,
            )

        return replace(
            source,
            destinations=(self.only,) if self.only else source.destinations,
            feeds=[past(feed) for feed in source.feeds],
        )

    def list_left(self, pipeline: PipelineSpec, journal: Journal) -> Mapping[str, Sequence[Settled]]:
        """The batches that it would carry if it were called now, lane by lane: an earlier call's are not among them."""
        self._check([str(each.name) for each in pipeline.every_destination], journal)
        known = None if self.again else journal.state.backfills.get(self.key)
        until = datetime.fromisoformat(known["at"]) if known else datetime.now(timezone.utc)
        found = {
            lane: _select_behind(batches, journal.state.get_lane(f"{known['name']}/{lane}").offset if known else None)
            for lane, batches in self.select_batches(journal.list_settled(), until).items()
            if any(self._does_bring(pipeline, origin, lane) for origin in pipeline.every_origin)
        }
        return {lane: batches for lane, batches in found.items() if batches}

    def has_begun(self, journal: Journal) -> bool:
        """Whether the same backfill has begun before, so that this call goes on with it."""
        return not self.again and self.key in journal.state.backfills

    def select_batches(self, carried: Sequence[Settled], until: datetime) -> Mapping[str, Sequence[Settled]]:
        """The batches that it holds, lane by lane, in their order; none that was committed later than `until`."""
        lanes: dict[str, list[Settled]] = {}
        for batch in sorted(carried, key=lambda batch: batch.number):
            begun = self.start is None or _from(batch, self.start) >= 0
            ended = self.end is not None and _from(batch, self.end) > 0
            ours = self.lane in (None, batch.lane) and not is_aside(batch.lane)
            if begun and not ended and _from(batch, until) <= 0 and ours:
                lanes.setdefault(batch.lane, []).append(batch)
        return lanes

    def _check(self, destinations: Sequence[str], journal: Journal) -> None:
        if self.only is not None and self.only not in destinations:
            raise Refusal(
                f"There is no destination '{self.only}'; there are: {', '.join(destinations)}.",
                hint="Choose one of them with --only, or leave --only out.",
            )
        lanes = [lane for lane in journal.state.lanes if not is_aside(lane)]
        if self.lane is not None and self.lane not in lanes:
            raise Refusal(
                f"Lane '{self.lane}' has no settled batch; these lanes have: {', '.join(lanes) or 'none'}.",
                hint="Choose one of them with --lane, or leave --lane out.",
            )

    def _does_bring(self, pipeline: PipelineSpec, origin: Origin, lane: str) -> bool:
        """Whether the lane is one of the origin, and a destination that gets the backfill wants its rows."""
        asked = [each for each in pipeline.every_destination if self.only in (None, each.name)]
        return pipeline.owns(origin, lane) and any(each.takes(pipeline.lanes_of(origin)) for each in asked)

    def _find_beginning(self, journal: Journal) -> tuple[str, datetime]:
        """What its lanes are called, and when it began for the first time."""
        known = journal.state.backfills.get(self.key)
        if known is None or self.again:
            entry = Entry(
                kind="backfill",
                body={"key": self.key, "name": f"{BACKFILL}{uuid.uuid4().hex[:8]}", "reason": self.reason},
            )
            journal.record(entry)
            known = journal.state.backfills[self.key]
        return known["name"], datetime.fromisoformat(known["at"])


class PastBacklog(Backlog):
    """Spans that were carried before, just as they were then."""

    def __init__(self, spans: Mapping[str, Sequence[Span]]) -> None:
        self._spans = spans
        self._next = {lane: {_make_key(span.end): at + 1 for at, span in enumerate(own)} for lane, own in spans.items()}

    def take(self, lane: str, start: JSON, limits: Limits) -> Span | None:
        spans = self._spans[lane]
        at = 0 if start is None else self._next[lane][_make_key(start)]
        return spans[at] if at < len(spans) else None


def parse_bound(text: str, *, last: bool = False) -> Bound:
    """A bound as it is typed: a number, or a time such as 2026-01-31T06:00 (UTC). Raises ValueError.

    A day without a time is its beginning, and as the `last` bound its end.
    """
    if text.isdecimal():
        return int(text)
    moment = datetime.fromisoformat(text)
    if last and len(text) == len("2026-01-31"):
        moment += timedelta(days=1, microseconds=-1)
    return moment if moment.tzinfo else moment.replace(tzinfo=timezone.utc)


def _from(batch: Settled, bound: Bound) -> int:
    """Below zero for a batch before the bound, above it for one behind it."""
    if isinstance(bound, int):
        return batch.number - bound
    apart = datetime.fromisoformat(batch.at) - bound
    return (apart > timedelta()) - (apart < timedelta())


def _select_behind(batches: Sequence[Settled], offset: JSON) -> Sequence[Settled]:
    """The batches behind the one that ended at the offset; all of them where none is carried yet."""
    done = [
        at
        for at, batch in enumerate(batches)
        if offset is not None and _make_key(batch.span["end"]) == _make_key(offset)
    ]
    return batches[done[-1] + 1 :] if done else batches


def _make_span(batch: Settled) -> Span:
    span = batch.span
    return Span(start=span["start"], end=span["end"], parts=tuple(span["parts"]), label=span["label"])


def _make_key(offset: JSON) -> str:
    return json.dumps(offset, sort_keys=True)
