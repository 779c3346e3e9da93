"""Mends a ledger that has lost files: with the entries that are left, and with what the destinations show."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

from destinations.capabilities import BroughtBatch, find_account
from origins.batch import JSON
from origins.codec import encode
from runners.model.clock import Clock
from runners.model.entry import Entry, PauseBody
from runners.model.errors import Owned
from runners.model.spec import PipelineSpec
from runners.model.text import format_count
from runners.operations.pipeline_access import sign
from runners.spark.session import obtain_for
from runners.state.bridge import Bridge, Shown, UnknownBatch, close_hole
from runners.state.delta_ledger import DeltaLedger
from runners.state.ledger import RESTORE, LedgerError
from runners.state.location import StateLocation, check_pipeline
from runners.state.ownership import has_live_lease, is_dead
from runners.state.process_locks import StateLock
from runners.state.progress import apply_entries, list_settled_among
from runners.state.salvage import LostFile
from runners.ways.stage_chain import name_destinations


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
        bridge = close_hole(damage.kept, damage.later, shown, partial(_keeps_parts, pipeline))
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


def _keeps_parts(pipeline: PipelineSpec, lane: str) -> bool:
    return any(origin.keeps_parts and pipeline.owns(origin, lane) for origin in pipeline.every_origin)


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
