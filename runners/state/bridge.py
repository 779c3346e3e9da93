"""Closes a hole in a ledger: what surely follows from the entries before and behind lost ones. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from origins.batch import Batch, Json, Span
from origins.codec import encode
from runners.model.entry import Entry, OffsetBody, SetBody
from runners.model.pipeline_state import CLEAN, PipelineState, is_aside
from runners.model.planned_batch import BranchCounts, Counts, PlannedBatch, SettleBody, SettledCounts
from runners.state.progress import apply_entries, apply_entry, read_body

Shown = Mapping[str, Mapping[str, int | None]]
"""The rows that each destination shows of a batch, by the plan of the batch."""


@dataclass(frozen=True, kw_only=True)
class UnknownBatch:
    """A settled batch of which the ledger lost what it was read from."""

    lane: str
    number: int
    plan: str


@dataclass(frozen=True, kw_only=True)
class Bridge:
    """The entries of a ledger without its hole, numbered without a gap, and the state that follows from them."""

    entries: Sequence[Entry]
    state: PipelineState
    unknown: Sequence[UnknownBatch]


def close_hole(
    kept: Sequence[Entry], later: Sequence[Entry], shown: Shown, keeps_parts: Callable[[str], bool]
) -> Bridge:
    """Return the entries before the hole, and what is certain of the entries in it and behind it.

    A batch whose end is lost was settled if a destination shows it, or if the next batch begins at its end. A batch
    whose plan is lost is restored from its offsets, unless the origin of its lane keeps the parts of each batch. The
    lane then only moves on.
    """
    state, entries = apply_entries(kept), list(kept)
    unknown: list[UnknownBatch] = []
    for place, entry in enumerate(later):
        for each in _restore(state, entry, later[place:], shown, keeps_parts):
            if isinstance(each, UnknownBatch):
                unknown.append(each)
                continue
            numbered = replace(each, seq=state.seq + 1)
            state = apply_entry(state, numbered)
            entries.append(numbered)
    return Bridge(entries=entries, state=state, unknown=unknown)


def _restore(
    state: PipelineState, entry: Entry, rest: Sequence[Entry], shown: Shown, keeps_parts: Callable[[str], bool]
) -> Iterator[Entry | UnknownBatch]:
    """Yield the entry with what must come before it, or what stands for it."""
    lane = state.get_lane(entry.lane)
    is_known = lane.open is not None and lane.open.batch.plan == entry.plan
    if not entry.plan or (is_known and entry.kind != "plan"):
        yield entry
        return
    if entry.kind not in ("plan", "settle"):
        return  # about a batch whose plan is lost
    offset = lane.offset
    if lane.open is not None:
        ended = _end_plan(lane.open, entry, _find_start(rest, entry.lane), shown)
        offset = lane.open.batch.span.end if ended.kind == "settle" else offset
        yield ended
    if entry.kind == "plan":
        yield entry
    elif keeps_parts(entry.lane) or is_aside(entry.lane):
        yield UnknownBatch(lane=entry.lane, number=lane.number + 1, plan=entry.plan)
        moved = SetBody(lanes={entry.lane: OffsetBody(offset=read_body(entry, SettleBody).offset)})
        yield replace(entry, kind="set", lane="", plan="", body=encode(moved))
    else:
        yield _make_plan(state, entry, lane.number + 1, offset)
        yield entry


def _find_start(entries: Sequence[Entry], lane: str) -> Json:
    """Return where the next batch of a lane begins, or None if its plan is lost."""
    first = next((entry for entry in entries if entry.lane == lane and entry.kind in ("plan", "settle")), None)
    return read_body(first, PlannedBatch).batch.span.start if first is not None and first.kind == "plan" else None


def _end_plan(plan: PlannedBatch, before: Entry, start: Json, shown: Shown) -> Entry:
    """Return the lost end of a batch: it was settled or cancelled. A decided batch is never cancelled."""
    batch, rows = plan.batch, shown.get(plan.batch.plan, {})
    about = replace(before, lane=batch.lane, plan=batch.plan, id=f"{before.id}-before", body={})
    if not (rows or plan.decision or start == batch.span.end):
        return replace(about, kind="cancel")
    shown_at = {name: BranchCounts(expected=each or 0) for name, each in rows.items()}
    counts = Counts(read=max((each.expected for each in shown_at.values()), default=0), branches=shown_at)
    counts = plan.decision.counts if plan.decision else counts
    body = SettleBody(
        offset=batch.span.end,
        counts=SettledCounts(
            **vars(counts), delivered={name: rows.get(name) for name in plan.destinations}, balanced="unknown"
        ),
        window=plan.decision.window if plan.decision else None,
        clean=CLEAN,
        owed=(),
    )
    return replace(about, kind="settle", body=encode(body))


def _make_plan(state: PipelineState, settle: Entry, number: int, start: Json) -> Entry:
    """Return the lost plan of a batch that was settled."""
    body = read_body(settle, SettleBody)
    batch = Batch(
        pipeline=state.pipeline,
        run="",
        origin=settle.lane.rpartition("/")[0],
        lane=settle.lane,
        number=number,
        plan=settle.plan,
        span=Span(start=start, end=body.offset),
        schema="",
        time=datetime.fromisoformat(settle.at),
    )
    plan = PlannedBatch(batch=batch, destinations=tuple(body.counts.delivered), straight=True)
    return replace(settle, kind="plan", id=f"{settle.id}-plan", body=encode(plan))
