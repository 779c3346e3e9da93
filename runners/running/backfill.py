"""A backfill: past batches are processed again, in separate lanes beside the pipeline's progress."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta, timezone
from typing import TypeAlias

from origins.batch import JSON
from origins.origin import Origin
from origins.problems import refuse_unknown
from runners.definitions.checks import copy_with
from runners.model.entry import BegunBackfill, Settled
from runners.model.errors import Refusal, check_reason
from runners.model.pipeline_state import is_aside, list_meant, make_rows_key
from runners.model.spec import PipelineSpec
from runners.running.aggregates import OF_A_BACKFILL
from runners.running.compatibility import resolve_names
from runners.running.work import OpenRun, PastLane, Work, begin_backfill, make_offset_key
from runners.state.journal import Journal
from runners.ways.stage_chain import name_destinations
from stages.conditions import Filter

Bound: TypeAlias = "int | datetime"
"""The number of a batch in its lane, or the time at which its offset was committed."""


@refuse_unknown
@dataclass(frozen=True, kw_only=True)
class Backfill(Work):
    """The past batches to process again, and their destinations."""

    split = OF_A_BACKFILL

    start: Bound | None = None
    """The first of these batches, inclusive; by default the first batch of the lane."""
    end: Bound | None = None
    """The last of these batches, inclusive; by default the last batch when the backfill began."""
    only: str | None = None
    """The only destination that gets them; by default all destinations."""
    lane: str | None = None
    """The only lane to process again; by default all lanes."""
    again: bool = False
    """Whether a destination gets a batch again that it already has according to the ledger."""
    where: str = ""
    """A SQL condition on the rows as they were read. Rows for which it is not true count as filtered."""
    reason: str

    def __post_init__(self) -> None:
        check_reason(self.reason, "A backfill")

    @property
    def refilled(self) -> str | None:
        everything = (self.start, self.end, self.lane, self.where) == (None, None, None, "")
        return self.only if self.again and everything else None

    @property
    def key(self) -> str:
        """A text that is equal for two calls of the same backfill."""
        lane = () if self.lane is None else (self.lane,)
        where = (f"where {self.where}",) if self.where else ()
        return "|".join("" if each is None else str(each) for each in (self.start, self.end, self.only, *lane, *where))

    def narrow(self, pipeline: PipelineSpec) -> PipelineSpec:
        """Return the pipeline, whose rows first pass the condition."""

        def filter_first(origin: Origin) -> Origin:
            return copy_with(origin, stages=(Filter(self.where, name="backfill_where"), *origin.stages))

        origin = pipeline.origin and filter_first(pipeline.origin)
        return replace(pipeline, origin=origin, origins=tuple(map(filter_first, pipeline.origins)))

    def select_rows(self, run: OpenRun) -> Sequence[PastLane]:
        """Return the batches that no earlier run of the same backfill has processed, by lane."""
        pipeline, journal = run.pipeline, run.journal
        begun = self._find_begun(pipeline, journal)
        begun = begun or begin_backfill(journal, self.key, again=self.again, reason=self.reason)
        return [
            PastLane(
                origin=next(name for name, each in pipeline.origins_by_name.items() if pipeline.owns(each, lane)),
                name=f"{begun.name}/{lane}",
                lane=lane,
                start=journal.state.get_lane(f"{begun.name}/{lane}").offset,
                batches=[(each.settled.span, each.lacking) for each in batches],
            )
            for lane, batches in self._list_behind(pipeline, journal, begun).items()
        ]

    def list_left(self, pipeline: PipelineSpec, journal: Journal) -> Mapping[str, Sequence[PastBatch]]:
        """Return the batches that it has not processed yet, by lane, each with the destinations that lack it."""
        now = datetime.now(timezone.utc).isoformat()
        begun = self._find_begun(pipeline, journal) or BegunBackfill(name="", at=now, again=self.again)
        return self._list_behind(pipeline, journal, begun)

    def _list_behind(
        self, pipeline: PipelineSpec, journal: Journal, begun: BegunBackfill
    ) -> Mapping[str, Sequence[PastBatch]]:
        """Return the batches in its range as they were when it began, without those that it has processed."""
        until, again = datetime.fromisoformat(begun.at), begun.again
        settled = [each for each in journal.list_settled() if _from(each, until) <= 0]
        destinations = name_destinations(pipeline.every_destination)
        today = resolve_names(destinations)
        having: dict[str, set[str]] = {}
        for each in settled:
            names = [today[name] for name in list_meant(each) if name in today]
            having.setdefault(make_rows_key(each), set()).update(names)
        found = {}
        for lane, batches in self.select_batches(settled, until).items():
            origin = pipeline.find_origin_of(lane)
            asked = [
                name
                for name, each in destinations.items()
                if origin is not None and self.only in (None, name) and each.takes(pipeline.lanes_of(origin))
            ]
            if asked:
                past = [PastBatch.of(each, asked, having.get(make_rows_key(each), ()), again=again) for each in batches]
                _check_ends(lane, past)
                found[lane] = _select_behind(past, journal.state.get_lane(f"{begun.name}/{lane}").offset)
        return {lane: batches for lane, batches in found.items() if batches}

    def select_batches(self, carried: Sequence[Settled], until: datetime) -> Mapping[str, Sequence[Settled]]:
        """Return the batches of this backfill in order, by lane, without batches that were committed after `until`."""
        lanes: dict[str, list[Settled]] = {}
        for batch in sorted(carried, key=lambda batch: batch.number):
            begun = self.start is None or _from(batch, self.start) >= 0
            ended = self.end is not None and _from(batch, self.end) > 0
            ours = self.lane in (None, batch.lane) and not is_aside(batch.lane)
            if begun and not ended and _from(batch, until) <= 0 and ours:
                lanes.setdefault(batch.lane, []).append(batch)
        return lanes

    def _check(self, pipeline: PipelineSpec, journal: Journal) -> None:
        destinations = name_destinations(pipeline.every_destination)
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
        """Return the same backfill if it has begun, and is not complete or cut off by a rewind.

        Raises `Refusal` for an unknown name.
        """
        self._check(pipeline, journal)
        known = journal.state.backfills.get(self.key)
        if known is None or (self.again and not known.again) or _is_cut_off(known, journal):
            return None
        left = self._list_behind(pipeline, journal, known)
        return known if any(each.lacking for batches in left.values() for each in batches) else None


@dataclass(frozen=True, kw_only=True)
class PastBatch:
    """A past batch, and the destinations to which a backfill brings it."""

    settled: Settled
    lacking: Sequence[str]
    """The destinations that get it."""
    having: Sequence[str]
    """The destinations that already have it according to the ledger."""

    @property
    def end(self) -> str:
        """The offset at its end, as a text that is equal for equal offsets."""
        return make_offset_key(self.settled.span.end)

    @staticmethod
    def of(settled: Settled, asked: Sequence[str], had: Collection[str], *, again: bool) -> PastBatch:
        having = [name for name in asked if name in had]
        lacking = asked if again else [name for name in asked if name not in had]
        return PastBatch(settled=settled, lacking=lacking, having=having)


def _check_ends(lane: str, batches: Sequence[PastBatch]) -> None:
    """Raises `Refusal` if two batches end at the same offset, because the lane was set back.

    An offset is the progress of a backfill, so it would skip the batches between the two.
    """
    seen: dict[str, PastBatch] = {}
    for batch in batches:
        before = seen.setdefault(batch.end, batch)
        if before is not batch and (before.lacking or batch.lacking):
            one, other = before.settled.number, batch.settled.number
            raise Refusal(
                f"Batches {one} and {other} of lane {lane} end at the same offset, because the lane was set back. One "
                "backfill cannot tell them apart.",
                hint=f"Backfill the others first:  --lane {lane} --from {batches[0].settled.number} --to {other - 1}\n"
                f"Then the rest:  --lane {lane} --from {other}",
            )


def parse_bound(text: str, *, last: bool = False) -> Bound:
    """Parse a bound: a number, or a time such as 2026-01-31T06:00 (UTC). Raises `ValueError`.

    A day without a time means its beginning; as the `last` bound it means its end.
    """
    if text.isdecimal():
        return int(text)
    moment = datetime.fromisoformat(text)
    if last and len(text) == len("2026-01-31"):
        moment += timedelta(days=1, microseconds=-1)
    return moment if moment.tzinfo else moment.replace(tzinfo=timezone.utc)


def _from(batch: Settled, bound: Bound) -> int:
    """Return a number below zero for a batch before the bound, and above zero for a batch after it."""
    if isinstance(bound, int):
        return batch.number - bound
    apart = datetime.fromisoformat(batch.at) - bound
    return (apart > timedelta()) - (apart < timedelta())


def _is_cut_off(begun: BegunBackfill, journal: Journal) -> bool:
    """Whether a batch that the backfill processed last is no longer there, because its lane was set back."""
    prefix = f"{begun.name}/"
    ends = {(each.lane, make_offset_key(each.span.end)) for each in journal.list_settled()}
    reached = [(lane, state.offset) for lane, state in journal.state.lanes.items() if lane.startswith(prefix)]
    return any(
        offset is not None and (lane.removeprefix(prefix), make_offset_key(offset)) not in ends
        for lane, offset in reached
    )


def _select_behind(batches: Sequence[PastBatch], offset: JSON) -> Sequence[PastBatch]:
    """Return the batches after the last batch that ended at the offset, or all batches if none was processed yet."""
    ends = [each.end for each in batches]
    return batches if offset is None else batches[len(ends) - ends[::-1].index(make_offset_key(offset)) :]
