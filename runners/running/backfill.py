"""Carrying again what was carried before, in lanes of its own beside the pipeline's progress."""

from __future__ import annotations

import json
import uuid
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta, timezone
from typing import TypeAlias

from origins.batch import JSON, Limits, Span
from origins.origin import Backlog
from origins.quick_dataclass import dataclass
from runners.engine.batch_planner import BatchPlanner, OriginFeed
from runners.model.entry import BegunBackfill, Entry, Settled
from runners.model.errors import Refusal
from runners.model.pipeline_state import BACKFILL, is_aside, list_meant, make_rows_key
from runners.model.spec import PipelineSpec
from runners.running.compatibility import resolve_names
from runners.state.journal import Journal
from runners.ways.stage_chain import name_destinations

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
    """Whether destinations get batches once more that they have already, by the ledger."""
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
        begun = self._find_begun(pipeline, journal) or self._begin(journal)
        name, found = begun["name"], self._list_begun(pipeline, journal, begun)

        def make_feed(feed: OriginFeed, lane: str, batches: Sequence[PastBatch]) -> OriginFeed:
            goes_to = {_make_key(each.settled.span["end"]): each.lacking for each in batches}
            return replace(
                feed,
                lanes={f"{name}/{lane}": lane},
                backlog=PastBacklog(
                    {lane: [_make_span(each.settled) for each in batches]},
                    left_out={end for end, destinations in goes_to.items() if not destinations},
                ),
                destinations=lambda span: goes_to[_make_key(span.end)],
                whole=False,
            )

        feeds = []
        for feed in source.feeds:
            origin = pipeline.origins_by_name[feed.origin]
            own = {lane: batches for lane, batches in found.items() if pipeline.owns(origin, lane)}
            feeds += [make_feed(feed, lane, batches) for lane, batches in own.items()]
        return replace(source, destinations=(self.only,) if self.only else source.destinations, feeds=feeds)

    def list_left(self, pipeline: PipelineSpec, journal: Journal) -> Mapping[str, Sequence[PastBatch]]:
        """The batches that it has not carried yet, lane by lane, each with the destinations that lack it."""
        self._check(list(name_destinations(pipeline.every_destination)), journal)
        known = self._find_begun(pipeline, journal)
        if known is None:
            return self._list_past(pipeline, journal, datetime.now(timezone.utc), again=self.again)
        return self._list_behind(pipeline, journal, known)

    def _list_behind(
        self, pipeline: PipelineSpec, journal: Journal, begun: BegunBackfill
    ) -> Mapping[str, Sequence[PastBatch]]:
        found = {
            lane: _select_behind(batches, journal.state.get_lane(f"{begun['name']}/{lane}").offset)
            for lane, batches in self._list_begun(pipeline, journal, begun).items()
        }
        return {lane: batches for lane, batches in found.items() if batches}

    def _list_begun(
        self, pipeline: PipelineSpec, journal: Journal, begun: BegunBackfill
    ) -> Mapping[str, Sequence[PastBatch]]:
        until = datetime.fromisoformat(begun["at"])
        return self._list_past(pipeline, journal, until, again=begun.get("again", True))

    def _list_past(
        self, pipeline: PipelineSpec, journal: Journal, until: datetime, *, again: bool
    ) -> Mapping[str, Sequence[PastBatch]]:
        """The batches in its range, lane by lane, as they were at this time."""
        settled = [each for each in journal.list_settled() if _from(each, until) <= 0]
        destinations = name_destinations(pipeline.every_destination)
        today = resolve_names(destinations)
        having: dict[str, set[str]] = {}
        for each in settled:
            names = [today[name] for name in list_meant(each) if name in today]
            having.setdefault(make_rows_key(each), set()).update(names)
        found = {}
        for lane, batches in self.select_batches(settled, until).items():
            origin = next((each for each in pipeline.every_origin if pipeline.owns(each, lane)), None)
            asked = [
                name
                for name, each in destinations.items()
                if origin is not None and self.only in (None, name) and each.takes(pipeline.lanes_of(origin))
            ]
            if asked:
                found[lane] = [
                    PastBatch.of(batch, asked, having.get(make_rows_key(batch), ()), again=again) for batch in batches
                ]
                _check_ends(lane, found[lane])
        return found

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

    def _find_begun(self, pipeline: PipelineSpec, journal: Journal) -> BegunBackfill | None:
        """The same backfill that has begun and is not complete."""
        known = journal.state.backfills.get(self.key)
        if known is None or (self.again and not known.get("again", True)):
            return None
        left = self._list_behind(pipeline, journal, known)
        return known if any(each.lacking for batches in left.values() for each in batches) else None

    def _begin(self, journal: Journal) -> BegunBackfill:
        name = f"{BACKFILL}{uuid.uuid4().hex[:8]}"
        body = {"key": self.key, "name": name, "again": self.again, "reason": self.reason}
        journal.record(Entry(kind="backfill", body=body))
        return journal.state.backfills[self.key]


@dataclass(frozen=True, kw_only=True)
class PastBatch:
    """A batch of the past, and which destinations a backfill brings it to."""

    settled: Settled
    lacking: Sequence[str]
    """The destinations that get it."""
    having: Sequence[str]
    """The destinations that have it already, by the ledger."""

    @staticmethod
    def of(settled: Settled, asked: Sequence[str], had: Collection[str], *, again: bool) -> PastBatch:
        having = [name for name in asked if name in had]
        lacking = asked if again else [name for name in asked if name not in had]
        return PastBatch(settled=settled, lacking=lacking, having=having)


def _check_ends(lane: str, batches: Sequence[PastBatch]) -> None:
    """Raises `Refusal` where two batches end alike, after the lane was set back: an offset says how far a backfill is,
    and the batches between them would be left out."""
    seen: dict[str, PastBatch] = {}
    for batch in batches:
        before = seen.setdefault(_make_key(batch.settled.span["end"]), batch)
        if before is not batch and (before.lacking or batch.lacking):
            one, other = before.settled.number, batch.settled.number
            raise Refusal(
                f"Batches {one} and {other} of lane {lane} end at the same offset, because the lane was set back. One "
                "backfill cannot tell them apart.",
                hint=f"Backfill the others first:  --lane {lane} --from {batches[0].settled.number} --to {other - 1}\n"
                f"Then the rest:  --lane {lane} --from {other}",
            )


class PastBacklog(Backlog):
    """Spans that were carried before, just as they were then."""

    def __init__(self, spans: Mapping[str, Sequence[Span]], left_out: Collection[str] = ()) -> None:
        self._spans = spans
        self._left_out = left_out
        """The ends of the spans that are not carried again."""
        self._next = {lane: {_make_key(span.end): at + 1 for at, span in enumerate(own)} for lane, own in spans.items()}

    def take(self, lane: str, start: JSON, limits: Limits) -> Span | None:
        spans = self._spans[lane]
        at = 0 if start is None else self._next[lane][_make_key(start)]
        return next((span for span in spans[at:] if _make_key(span.end) not in self._left_out), None)


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


def _select_behind(batches: Sequence[PastBatch], offset: JSON) -> Sequence[PastBatch]:
    """The batches behind the one that ended at the offset; all of them where none is carried yet."""
    done = [
        at
        for at, batch in enumerate(batches)
        if offset is not None and _make_key(batch.settled.span["end"]) == _make_key(offset)
    ]
    return batches[done[-1] + 1 :] if done else batches


def _make_span(batch: Settled) -> Span:
    span = batch.span
    return Span(start=span["start"], end=span["end"], parts=tuple(span["parts"]), label=span["label"])


def _make_key(offset: JSON) -> str:
    return json.dumps(offset, sort_keys=True)
