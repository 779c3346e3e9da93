"""A pipeline's offsets, and moving them by hand: first a plan, then an entry with the user and the reason.

Batch numbers continue: a batch after a rewind is a new batch, and no destination skips it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import datetime, timezone
from typing import TYPE_CHECKING

from origins.batch import JSON
from origins.capabilities import KeepsParts, TakesOffsets
from origins.codec import LEFT_OUT, UNSTORED, JsonForm, named
from origins.origin import Origin
from runners.definitions.definition import definition_of
from runners.model.entry import Entry, Settled
from runners.model.errors import Owned, Refusal, check_reason
from runners.model.pipeline_state import LaneState, PipelineState, is_aside
from runners.model.spec import PipelineSpec
from runners.model.text import (
    escape_line,
    format_batches,
    format_count,
    format_repr,
    render_text,
    show_moment,
    show_offset,
    show_open_batch,
    table,
)
from runners.operations.pipeline_access import hold_pipeline, open_state, sign
from runners.state.journal import Journal
from runners.state.ledger import Conflict
from runners.ways.stage_chain import name_destinations

if TYPE_CHECKING:
    from runners.running.backfill import Backfill, PastBatch


@dataclass(frozen=True, kw_only=True)
class LaneMove:
    """What a move does to one lane."""

    before: JSON = field(metadata=named("from"))
    after: JSON = field(metadata=named("to"))
    batches: int | None = 0
    """How many settled batches will be processed again; None if only the origin knows."""
    rows: int | None = 0
    numbers: tuple[int, int] | None = field(default=None, metadata=UNSTORED)
    """The first and the last number of these batches."""
    skipped: str = field(default="", metadata=LEFT_OUT)
    """What will never be processed, in the origin's words. Empty if that is nothing, or if the origin does not know."""


@dataclass(frozen=True, kw_only=True)
class OffsetMove(JsonForm):
    """The plan for a move of offsets. Nothing has happened yet."""

    lanes: Mapping[str, LaneMove]
    destinations: Mapping[str, str] = field(default_factory=dict)
    """By destination, what happens to rows that it already has."""


@dataclass(frozen=True, kw_only=True)
class Lanes(JsonForm):
    """The result of `wherry offsets`, of a pipeline that is not moved."""

    pipeline: str = field(metadata=UNSTORED)
    lanes: Mapping[str, Mapping[str, JSON]]
    """`{"offset", "number", "epoch", "committed_at"}` of each lane."""
    open: Sequence[Mapping[str, JSON]]
    """The batches that are planned and not settled."""

    @staticmethod
    def of(pipeline: PipelineSpec) -> Lanes:
        state = open_state(pipeline)[1].state
        lanes = {
            name: {
                "offset": lane.offset,
                "number": lane.committed,
                "epoch": state.held[name].epoch if name in state.held else state.epoch,
                "committed_at": lane.committed_at or None,
            }
            for name, lane in state.lanes.items()
            if not is_aside(name)
        }
        return Lanes(pipeline=pipeline.name, lanes=lanes, open=list_open(state))

    def __repr__(self) -> str:
        lanes, batches = format_count(len(self.lanes), "lane", "lanes"), format_batches(len(self.open))
        return format_repr("Lanes", self.pipeline, lanes, f"{batches} open")

    def __str__(self) -> str:
        rows = [
            [name, str(lane["number"]), show_moment(lane["committed_at"]), show_offset(lane["offset"])]
            for name, lane in self.lanes.items()
        ]
        if not rows:
            return "No batch was processed yet."
        open_batches = [escape_line(show_open_batch(batch, self.lanes)) for batch in self.open]
        return "\n".join([table(["lane", "batch", "committed (UTC)", "offset"], rows), *open_batches])

    def _repr_html_(self) -> str:
        return render_text(str(self))


@dataclass(frozen=True)
class PipelineOffsets:
    """The offsets of a pipeline: see them, and move them by hand."""

    pipeline: PipelineSpec

    def read(self) -> Lanes:
        """Return the progress of every lane and its open batches. A notebook shows it as a table."""
        return Lanes.of(definition_of(self.pipeline).pipeline)

    def plan(
        self,
        *,
        lane: str | None = None,
        offset: JSON = None,
        batches: int | None = None,
        to: datetime | None = None,
        beginning: bool = False,
    ) -> OffsetMove:
        """Return what a move of offsets would do. Nothing moves until `move`.

        It moves one `lane` to an `offset`, or every lane: back by so many `batches`, back `to` a moment, or to the
        `beginning`. Raises `Owned` while the pipeline runs, and `Refusal` while a batch is open.
        """
        pipeline = definition_of(self.pipeline).pipeline
        if lane is not None:
            return plan_set(pipeline, lane, offset)
        return plan_reset(pipeline) if beginning else plan_rewind(pipeline, batches=batches, to=to)

    def move(self, plan: OffsetMove, *, reason: str) -> None:
        """Move the offsets as `plan` returned. Raises `Refusal` if a lane has moved meanwhile."""
        carry_out(definition_of(self.pipeline).pipeline, plan, reason=reason)


def list_open(state: PipelineState) -> list[dict[str, JSON]]:
    """Describe the batches that are planned and not settled."""
    return [
        {
            "lane": plan.batch.lane,
            "number": plan.batch.number,
            "plan": plan.batch.plan,
            "label": plan.batch.span.label,
            "since": plan.batch.time.isoformat(),
            "decided": plan.decision is not None,
            "owed": plan.published,
            "destinations": list(plan.destinations),
        }
        for plan in state.open_plans
    ]


def plan_reset(pipeline: PipelineSpec) -> OffsetMove:
    with _hold_settled(pipeline) as journal:
        return _plan_rewind(pipeline, journal, lambda _: True, everything=True)


def plan_rewind(pipeline: PipelineSpec, *, batches: int | None = None, to: datetime | None = None) -> OffsetMove:
    """Plan to move every lane back by this many batches, or to its offset at that time."""
    with _hold_settled(pipeline) as journal:
        if to is not None:
            moment = to if to.tzinfo else to.replace(tzinfo=timezone.utc)
            return _plan_rewind(pipeline, journal, lambda settled: datetime.fromisoformat(settled.at) >= moment)
        lanes = _group_by_lane(journal.list_settled())
        first = {lane: carried[-batches:][0].number for lane, carried in lanes.items() if batches}
        return _plan_rewind(
            pipeline, journal, lambda settled: settled.lane in first and settled.number >= first[settled.lane]
        )


def plan_set(pipeline: PipelineSpec, lane: str, offset: JSON) -> OffsetMove:
    """Plan to move one lane to an offset in the form of its origin."""
    owner = pipeline.find_origin_of(lane)
    if isinstance(owner, KeepsParts):
        raise Refusal(
            "This origin tracks its files by name, so no offset can be set.",
            hint="Use  wherry offsets FILE --back N  or  --to-beginning",
        )
    with _hold_settled(pipeline) as journal:
        state = journal.state
        known = {*state.lanes, *(name for each in pipeline.every_origin for name in pipeline.lanes_of(each))}
        if lane not in known:
            raise Refusal(f"There is no lane '{lane}'; there are: {', '.join(sorted(known))}.")
        _check_offset(pipeline, owner, lane, offset)
        carried = [settled for settled in journal.list_settled() if settled.lane == lane]
        move = _move_to(state.get_lane(lane), offset, carried)
        if isinstance(owner, TakesOffsets):
            move = replace(move, skipped=owner.describe_skipped(state.get_lane(lane).offset, offset))
        return OffsetMove(lanes={lane: move}, destinations=_list_again(pipeline))


def _move_to(lane: LaneState, after: JSON, carried: Sequence[Settled]) -> LaneMove:
    """Plan the move of a lane.

    The batches to process again are known if one of them began at this offset, or if no batch came after it.
    """
    batches = sorted(carried, key=lambda settled: settled.number)
    starts = [settled.span.start for settled in batches]
    if after == lane.offset or not batches:
        return LaneMove(before=lane.offset, after=after)
    if after not in starts:
        return LaneMove(before=lane.offset, after=after, batches=None, rows=None)
    return _move_back(lane, after, batches[starts.index(after) :])


def _move_back(lane: LaneState, after: JSON, batches: Sequence[Settled]) -> LaneMove:
    return LaneMove(
        before=lane.offset,
        after=after,
        batches=len(batches),
        rows=sum(settled.counts.read for settled in batches),
        numbers=(batches[0].number, lane.number) if batches else None,
    )


def _check_offset(pipeline: PipelineSpec, owner: Origin | None, lane: str, offset: JSON) -> None:
    if offset is None:
        return
    try:
        if isinstance(owner, TakesOffsets) and lane in pipeline.lanes_of(owner):
            owner.check_offset(pipeline.lanes_of(owner)[lane], offset)
    except ValueError as error:
        raise Refusal(
            f"Lane {lane} cannot be set to this offset: {error}.",
            hint="`null` is its beginning; `wherry offsets FILE --json` shows its offset.",
        ) from error


def plan_backfill(pipeline: PipelineSpec, backfill: Backfill) -> OffsetMove:
    """Plan what a backfill processes again, by lane, and what happens to the rows. The lanes do not move.

    Raises `Refusal` with the reason if the backfill would process nothing.
    """
    journal = open_state(pipeline)[1]
    left = backfill.list_left(pipeline, journal)
    every = [each for batches in left.values() for each in batches]
    if not every:
        raise Refusal("No settled batch is in this range.", hint=_describe_carried(journal.list_settled()))
    carried = {lane: [each.settled for each in batches if each.lacking] for lane, batches in left.items()}
    if not any(carried.values()):
        names = list(dict.fromkeys(name for each in every for name in each.having))
        raise Refusal(
            f"{' and '.join(names)} got all of this range already: {_count_batches([each.settled for each in every])}.",
            hint="Add --again to deliver them once more.",
        )
    lanes = {
        lane: LaneMove(
            before=batches[0].span.start,
            after=batches[-1].span.end,
            batches=len(batches),
            rows=sum(batch.counts.read for batch in batches),
        )
        for lane, batches in carried.items()
        if batches
    }
    asked = {name for each in every for name in (*each.lacking, *each.having)}
    again = {name: what for name, what in _list_again(pipeline).items() if name in asked}
    return OffsetMove(
        lanes=lanes, destinations={name: _describe_past(name, every, what) for name, what in again.items()}
    )


def _describe_past(name: str, batches: Sequence[PastBatch], again: str) -> str:
    """Describe which batches of a backfill a destination gets, and which it already has."""
    gets = [each.settled for each in batches if name in each.lacking]
    has = [each.settled for each in batches if name in each.having]
    text = f"gets {_count_batches(gets) if gets else 'nothing'}"
    if not has:
        return text
    if gets and any(name in each.lacking for each in batches if name in each.having):
        return f"{text}; it got {_count_batches(has)} of these before: it {again}"
    return f"{text}; {_count_batches(has)} that it got before are left out"


def _count_batches(batches: Sequence[Settled]) -> str:
    return f"{format_batches(len(batches))}, {format_count(sum(batch.counts.read for batch in batches))}"


def _describe_carried(settled: Sequence[Settled]) -> str:
    """Return the first and the last batch of each lane in words."""
    sentences = [
        f"Lane {lane} has batches {batches[0].number} to {batches[-1].number}, "
        f"committed from {batches[0].at[:19]} to {batches[-1].at[:19]} UTC."
        for lane, batches in _group_by_lane(settled).items()
    ]
    return "\n".join(sentences[:20]) or "No batch was processed yet."


def _group_by_lane(settled: Sequence[Settled]) -> Mapping[str, Sequence[Settled]]:
    """Return the batches of each lane in the order of their numbers, without backfills, redos and replays."""
    lanes: dict[str, list[Settled]] = {}
    for batch in sorted(settled, key=lambda batch: batch.number):
        if not is_aside(batch.lane):
            lanes.setdefault(batch.lane, []).append(batch)
    return lanes


def carry_out(pipeline: PipelineSpec, move: OffsetMove, *, reason: str) -> None:
    """Record the move, with the user and the reason. Raises `Owned` if a run has begun meanwhile."""
    check_reason(reason, "A move of offsets")
    with _hold_settled(pipeline) as journal:
        state = journal.state
        for name, lane in move.lanes.items():
            if state.get_lane(name).offset != lane.before:
                raise Refusal(
                    f"Lane {name} has moved in the meantime.",
                    hint="See the offsets again, then decide:  wherry offsets FILE",
                )
        entry = Entry(
            kind="set",
            epoch=state.epoch,
            body={
                "lanes": {name: {"offset": lane.after} for name, lane in move.lanes.items()},
                "forgotten": [[name, *lane.numbers] for name, lane in move.lanes.items() if lane.numbers],
                **sign(reason),
            },
        )
        try:
            journal.ledger.append([entry], after=state.seq)
        except Conflict as error:
            raise Owned(f"{pipeline.name} started a run, so no offset was moved.") from error


def _plan_rewind(
    pipeline: PipelineSpec, journal: Journal, again: Callable[[Settled], bool], *, everything: bool = False
) -> OffsetMove:
    state, lanes = journal.state, {}
    by_lane = _group_by_lane([settled for settled in journal.list_settled() if again(settled)])
    for name in [lane for lane in state.lanes if not is_aside(lane)] if everything else by_lane:
        batches = by_lane.get(name, [])
        after = None if everything else batches[0].span.start
        lanes[name] = _move_back(state.get_lane(name), after, batches)
    return OffsetMove(lanes=lanes, destinations=_list_again(pipeline))


def _list_again(pipeline: PipelineSpec) -> Mapping[str, str]:
    return {name: destination.again for name, destination in name_destinations(pipeline.every_destination).items()}


@contextmanager
def _hold_settled(pipeline: PipelineSpec) -> Iterator[Journal]:
    """Yield the ledger, while no run has the pipeline and no batch is open."""
    with hold_pipeline(pipeline, "move its offsets") as journal:
        if journal.state.open_plans:
            batch = journal.state.open_plans[0].batch
            raise Refusal(
                f"Batch {batch.number} of lane {batch.lane} is open: Wherry does not know yet whether it was "
                "delivered.",
                hint="Run the pipeline once to finish it, then move the offsets:  wherry run FILE",
            )
        yield journal
