"""Mends a ledger that has lost files: with the entries that are left, and with what the destinations show."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from functools import partial

from destinations.capabilities import BroughtBatch, find_account
from origins.batch import JSON, Batch, Json, Span
from origins.capabilities import KeepsParts
from origins.codec import encode
from runners.model.clock import Clock
from runners.model.entry import Entry, OffsetBody, PauseBody, SetBody
from runners.model.errors import Owned
from runners.model.pipeline_state import CLEAN, PipelineState, is_aside
from runners.model.planned_batch import BranchCounts, Counts, PlannedBatch, SettleBody, SettledCounts
from runners.model.spec import PipelineSpec
from runners.model.text import format_count
from runners.operations.pipeline_access import sign
from runners.spark.session import obtain_for
from runners.state.delta_ledger import DeltaLedger
from runners.state.ledger import RESTORE, LedgerError
from runners.state.location import StateLocation, check_pipeline
from runners.state.ownership import has_live_lease, is_dead
from runners.state.process_locks import StateLock
from runners.state.progress import apply_entries, apply_entry, list_settled_among, read_body
from runners.state.salvage import LostFile
from runners.ways.stage_chain import name_destinations

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


@dataclass(frozen=True, kw_only=True)
class Damage:
    """A ledger that has lost entries, and what can be kept of it."""

    ledger: DeltaLedger
    lost: Sequence[LostFile]
    kept: Sequence[Entry]
    """The entries before the first lost one."""
    later: Sequence[Entry]
    """The other entries that can be read."""

    def describe(self) -> str:
        """Return what is lost and what is kept."""
        lost = "; ".join(file.describe("entries") for file in self.lost)
        last = self.kept[-1].seq if self.kept else 0
        return (
            f"{self.ledger.place} has lost entries: {lost}. A repair keeps the entries up to {last:,}, and of the "
            f"{len(self.later):,} later ones what is certain. The destinations show which batches they have."
        )


def find_damage(pipeline: PipelineSpec) -> Damage | None:
    """Return what a ledger in a folder or a store has lost, or None if it is whole."""
    place = StateLocation.of(pipeline).folder
    if place is None:
        return None
    ledger = DeltaLedger(place / "ledger")
    entries, lost = ledger.salvage()
    if not lost:
        return None
    first = entries[0].seq if entries else 0
    whole = next((at for at, entry in enumerate(entries) if entry.seq != first + at), len(entries))
    return Damage(ledger=ledger, lost=lost, kept=entries[:whole], later=entries[whole:])


def mend_ledger(pipeline: PipelineSpec, *, reason: str) -> list[str]:
    """Mend a ledger that has lost entries. Return what was done; nothing if the ledger is whole.

    If a destination has a batch whose origin is lost with the entries, the pipeline is paused, because the next run
    delivers its rows again. Raises `Owned` during a run, and `LedgerError` if the beginning of the ledger is lost.
    """
    place = StateLocation.of(pipeline)
    lock = StateLock(place.lock)
    if not lock.acquire():
        raise Owned(f"{pipeline.name} is running. Wait for its end before you repair it.")
    try:
        damage = find_damage(pipeline)
        if damage is None:
            return []
        if not damage.kept or (damage.kept[0].seq != 1 and damage.kept[0].kind != "snapshot"):
            raise LedgerError(f"{damage.ledger.place} has lost its first entries.", hint=RESTORE)
        brought, shown = _list_brought(pipeline), dict[str, dict[str, int | None]]()
        for each in brought:
            rows = each.rows if len(each.together) < 2 else None
            shown.setdefault(each.label.plan, {})[each.label.destination] = rows
        bridge = close_hole(
            damage.kept, damage.later, shown, lambda lane: isinstance(pipeline.find_origin_of(lane), KeepsParts)
        )
        check_pipeline(pipeline, place, bridge.state)
        if any(not is_dead(owner, place, lock) and has_live_lease(owner, Clock()) for owner in bridge.state.owners):
            raise Owned(f"{pipeline.name} is running. Wait for its end before you repair it.")
        unknown = _list_unknown(damage, bridge, brought)
        body: Mapping[str, JSON] = {**sign(reason), "accepted": [], "lost": [vars(file) for file in damage.lost]}
        notes = [Entry(kind="repair", epoch=bridge.state.epoch, body=body), *_make_pause(unknown, shown)]
        numbered = [replace(note, seq=seq) for seq, note in enumerate(notes, bridge.state.seq + 1)]
        damage.ledger.rewrite([*bridge.entries, *numbered])
    finally:
        lock.release()
    kept = len(bridge.entries) - len(damage.kept)
    return [
        f"the ledger can be read again: {'; '.join(file.describe('entries') for file in damage.lost)}",
        f"{format_count(kept, 'entry', 'entries')} behind the lost ones kept or restored",
        *(f"batch {each.number} of lane {each.lane} is not restored: {_describe(each, shown)}" for each in unknown),
    ]


def _list_brought(pipeline: PipelineSpec) -> list[BroughtBatch]:
    """Return what the destinations show of this pipeline's batches, except batches that are gone again."""
    spark, destinations = partial(obtain_for, pipeline), name_destinations(pipeline.every_destination).values()
    accounts = [find_account(each, spark, pipeline.name) for each in destinations]
    brought = [batch for account in accounts if account is not None for batch in account.brought]
    there = [each for each in brought if each.loss is None or not each.loss.whole]
    return [each for each in there if each.label.pipeline == pipeline.name]


def _list_unknown(damage: Damage, bridge: Bridge, brought: Sequence[BroughtBatch]) -> list[UnknownBatch]:
    """Return the batches that were not restored, in their order: the next run delivers their rows again."""
    before = apply_entries(damage.kept)
    first = bridge.entries[:1] if bridge.entries[0].kind == "snapshot" else []
    settled = [*damage.ledger.history(), *list_settled_among(bridge.entries[len(first) :], apply_entries(first))]
    known = {each.plan for each in settled} | {plan.batch.plan for plan in bridge.state.open_plans}
    unknown = {each.plan: each for each in bridge.unknown}
    for each in brought:
        lane, number, plan = each.label.lane, each.label.number, each.label.plan
        if plan not in known and number > before.get_lane(lane).committed:
            unknown[plan] = UnknownBatch(lane=lane, number=number, plan=plan)
    return sorted(unknown.values(), key=lambda batch: (batch.lane, batch.number))


def _describe(batch: UnknownBatch, shown: Shown) -> str:
    rows = [
        f"{name} has {'rows' if count is None else format_count(count)}"
        for name, count in shown.get(batch.plan, {}).items()
    ]
    return f"{' and '.join(rows) or 'no destination shows it'}, and the next run delivers its rows again"


def _make_pause(unknown: Sequence[UnknownBatch], shown: Shown) -> list[Entry]:
    """Return the entry that keeps runs from delivering rows again that are there."""
    if not unknown:
        return []
    more = f" So it is with {len(unknown) - 1:,} more batches." if len(unknown) > 1 else ""
    reason = f"what it was read from is lost: {_describe(unknown[0], shown)}. Delete these rows first.{more}"
    body = PauseBody(number=unknown[0].number, reason=reason.removesuffix("."))
    return [Entry(kind="pause", lane=unknown[0].lane, body=encode(body))]


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
