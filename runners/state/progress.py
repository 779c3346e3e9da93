"""The state that follows from the ledger: a pure fold over its entries, ordered by their numbers alone."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from datetime import datetime
from typing import Any, TypeVar

from origins.batch import Json
from origins.codec import Malformed, decode, encode
from runners.model.entry import (
    FORMAT,
    BackfillBody,
    BegunBackfill,
    ConfigBody,
    EndedBody,
    Entry,
    GiveBody,
    MergeBody,
    OpenBody,
    OustBody,
    OwnerBody,
    PauseBody,
    PinnedReplay,
    RenewBody,
    RepairBody,
    RestBody,
    SetBody,
    Settled,
    StopBody,
    TakeBody,
    WaiveBody,
)
from runners.model.nack_window import DlqSettings, NackWindow
from runners.model.pipeline_state import CLEAN, LaneHolder, LaneState, PipelineState, is_replay
from runners.model.planned_batch import DecidedBatch, PlannedBatch, SettleBody
from runners.state.ledger import RESTORE, LedgerError


def apply_entry(state: PipelineState, entry: Entry) -> PipelineState:
    if entry.format > FORMAT:
        raise LedgerError(
            f"The ledger has an entry of format {entry.format}; this version reads up to {FORMAT}.",
            hint="Upgrade Wherry; a newer version has written this state.",
        )
    if entry.seq != state.seq + 1 and entry.kind != "snapshot":
        raise LedgerError(f"The ledger has a gap: entry {entry.seq} follows {state.seq}.")
    state = _update_owner(_FOLD[entry.kind](state, entry), entry, heard=entry.seq, heard_at=entry.at)
    return replace(state, seq=entry.seq)


Shape = TypeVar("Shape")


def read_body(entry: Entry, shape: type[Shape]) -> Shape:
    """Return the entry's body, which has this shape. Raise `LedgerError` if it has another shape."""
    try:
        return decode(shape, entry.body)
    except Malformed as error:
        raise LedgerError(
            f"Entry {entry.seq} of the ledger ({entry.kind}) cannot be understood: {error}.", hint=RESTORE
        ) from error


def apply_entries(entries: Iterable[Entry], state: PipelineState | None = None) -> PipelineState:
    state = state or PipelineState()
    for entry in entries:
        state = apply_entry(state, entry)
    return state


def list_settled_among(entries: Iterable[Entry], state: PipelineState | None = None) -> Iterator[Settled]:
    """Yield the batches that these entries settle, with their spans."""
    state = state or PipelineState()
    for entry in entries:
        plan = state.get_lane(entry.lane).open if entry.kind == "settle" else None
        if plan is not None and not plan.published:
            body = read_body(entry, SettleBody)
            yield Settled(
                lane=entry.lane,
                number=plan.batch.number,
                plan=plan.batch.plan,
                run=plan.batch.run,
                at=entry.at,
                span=plan.batch.span,
                counts=replace(body.counts, owed=body.owed, way=body.way),
            )
        state = apply_entry(state, entry)


def _open(state: PipelineState, entry: Entry) -> PipelineState:
    body = read_body(entry, OpenBody)
    return replace(state, opened=body, pipeline=body.pipeline)


def _acquire(state: PipelineState, entry: Entry) -> PipelineState:
    """Add an owner. An owner that joins shares the pipeline, and all lanes count as not done.

    Any other owner has it alone.
    """
    body = read_body(entry, OwnerBody)
    owner = replace(body, owner=entry.owner, at=entry.at)
    if body.joins:
        return replace(state, epoch=entry.epoch, owners=(*state.owners, owner), done=frozenset())
    pipeline = state.pipeline or body.pipeline
    state = replace(state, owners=(owner,), held={}, done=frozenset())
    state = replace(state, epoch=entry.epoch, stopping="", forced=False, config=DlqSettings(), pipeline=pipeline)
    return replace(state, replay=_pin_replay(state.replay, body.replay, entry.at))


def _pin_replay(known: PinnedReplay | None, replay: Json, at: str) -> PinnedReplay | None:
    """Return the replay with a fix that is not finished, or None.

    A replay that has applied its fix stays until it succeeds, or until a replay with another fix begins. It is about
    rows that were refused before it began.
    """
    if not isinstance(replay, Mapping):
        return known
    going_on = known is not None and not replay.get("give_up") and _get_fix(known.body) == _get_fix(replay)
    if known is not None and going_on and (known.decided or _is_same_replay(known.body, replay)):
        return known
    if not replay.get("fix"):
        return None
    until = min(datetime.fromisoformat(str(each)) for each in (at, replay.get("until") or at)).isoformat()
    return PinnedReplay(at=at, body={**replay, "until": until}, decided=False)


def _get_fix(replay: Mapping[str, Json]) -> Json:
    """Return the facts that distinguish one fix from another. Its file is not one of them."""
    fix = replay.get("fix")
    return {name: each for name, each in fix.items() if name != "file"} if isinstance(fix, Mapping) else None


def _is_same_replay(pinned: Mapping[str, Json], replay: Mapping[str, Json]) -> bool:
    """Whether a replay selects the same rows as the pinned replay, with the same fix."""

    def describe(body: Mapping[str, Json]) -> Mapping[str, Json]:
        choice = {name: each for name, each in body.items() if each and name not in ("reason", "give_up", "fix")}
        return {**choice, "until": body.get("until") or pinned.get("until"), "fix": _get_fix(body)}

    return describe(pinned) == describe(replay)


def _renew(state: PipelineState, entry: Entry) -> PipelineState:
    body = read_body(entry, RenewBody)
    ready = {} if body.ready is None else {"ready": body.ready}
    return _update_owner(state, entry, lease=body.lease, **ready)


def _take(state: PipelineState, entry: Entry) -> PipelineState:
    taken = dict.fromkeys(read_body(entry, TakeBody).lanes, LaneHolder(owner=entry.owner, epoch=entry.epoch))
    return replace(state, epoch=entry.epoch, held={**state.held, **taken})


def _give(state: PipelineState, entry: Entry) -> PipelineState:
    body = read_body(entry, GiveBody)
    given = set(body.lanes)
    held = {lane: holder for lane, holder in state.held.items() if lane not in given}
    return replace(state, held=held, done=state.done | given if body.done else state.done)


def _oust(state: PipelineState, entry: Entry) -> PipelineState:
    return _without(state, set(read_body(entry, OustBody).owners))


def _without(state: PipelineState, gone: set[str]) -> PipelineState:
    """Return the state without these owners. Other runs may take their lanes."""
    return replace(
        state,
        owners=tuple(owner for owner in state.owners if owner.owner not in gone),
        held={lane: held for lane, held in state.held.items() if held.owner not in gone},
    )


def _release(state: PipelineState, entry: Entry) -> PipelineState:
    status, owner = read_body(entry, EndedBody).status, state.find_owner(entry.owner) or OwnerBody()
    aside = owner.replay is not None or owner.finish
    lanes = state.lanes
    if status == "failed":
        mine = state.lanes_of(entry.owner) if state.held else lanes
        lanes = {name: replace(lane, tried=0, since="") if name in mine else lane for name, lane in lanes.items()}
    left = _without(state, {entry.owner})
    replay, pinned = owner.replay, state.replay
    if pinned and status == "succeeded" and isinstance(replay, Mapping) and _is_same_replay(pinned.body, replay):
        pinned = None
    return replace(
        left,
        ended={**entry.body, "at": entry.at},
        stopping=state.stopping if left.owners else "",
        forced=state.forced and bool(left.owners),
        config=state.config if left.owners else DlqSettings(),
        midway=state.midway and (aside or status != "succeeded"),
        lanes=lanes,
        replay=pinned,
    )


def _update_owner(state: PipelineState, entry: Entry, **changes: Any) -> PipelineState:
    """Return the state with these changes to the entry's owner, if the owner still has the pipeline."""
    if state.find_owner(entry.owner) is None:
        return state
    changed = [replace(each, **changes) if each.owner == entry.owner else each for each in state.owners]
    return replace(state, owners=tuple(changed))


def _plan(state: PipelineState, entry: Entry) -> PipelineState:
    plan = read_body(entry, PlannedBatch).name_pipeline(state.pipeline)
    return _update_lane(state, entry, replace(state.get_lane(entry.lane), open=plan, number=plan.batch.number))


def _prepared(state: PipelineState, entry: Entry) -> PipelineState:
    plan = _require_plan(state, entry)
    decided = replace(plan, decision=read_body(entry, DecidedBatch))
    if is_replay(entry.lane) and state.replay is not None:
        state = replace(state, replay=replace(state.replay, decided=True))
    return _update_lane(state, entry, replace(state.get_lane(entry.lane), open=decided))


def _settle(state: PipelineState, entry: Entry) -> PipelineState:
    plan = _require_plan(state, entry)
    body = read_body(entry, SettleBody)
    owed = bool(body.owed)
    before = state.get_lane(entry.lane)
    settled = replace(
        before,
        offset=body.offset,
        committed=plan.batch.number,
        committed_at=before.committed_at if plan.published else entry.at,
        window=body.window or NackWindow(),
        clean=body.clean,
        open=replace(plan, published=True) if owed else None,
        settled=None if is_replay(entry.lane) else plan,
        tried=0,
        since="",
    )
    if rows := body.counts.fallback:
        state = replace(state, fallen={**state.fallen, entry.plan: rows})
    return _update_lane(replace(state, midway=state.midway or not is_replay(entry.lane)), entry, settled)


def _cancel(state: PipelineState, entry: Entry) -> PipelineState:
    _require_plan(state, entry)
    return _update_lane(state, entry, replace(state.get_lane(entry.lane), open=None))


def _rest(state: PipelineState, entry: Entry) -> PipelineState:
    _require_plan(state, entry)
    body = read_body(entry, RestBody)
    return _update_lane(state, entry, replace(state.get_lane(entry.lane), tried=body.tried, since=body.since))


def _waive(state: PipelineState, entry: Entry) -> PipelineState:
    plan = _require_plan(state, entry)
    gone = read_body(entry, WaiveBody).forget
    left = tuple(name for name in plan.destinations if name not in gone)
    return _update_lane(state, entry, replace(state.get_lane(entry.lane), open=replace(plan, destinations=left)))


def _set(state: PipelineState, entry: Entry) -> PipelineState:
    lanes, body = dict(state.lanes), read_body(entry, SetBody)
    for name, target in body.lanes.items():
        lanes[name] = replace(
            state.get_lane(name),
            offset=target.offset,
            window=NackWindow(),
            settled=None,
            clean=CLEAN,
            tried=0,
            since="",
        )
    jumps = tuple((name, state.get_lane(name).number) for name in body.lanes)
    return replace(
        state, lanes=lanes, forgotten=state.forgotten + body.forgotten, jumps=state.jumps + jumps, midway=False
    )


def _backfill(state: PipelineState, entry: Entry) -> PipelineState:
    body = read_body(entry, BackfillBody)
    begun = BegunBackfill(name=body.name, at=entry.at, again=body.again)
    return replace(state, backfills={**state.backfills, body.key: begun})


def _config(state: PipelineState, entry: Entry) -> PipelineState:
    return replace(state, config=replace(state.config, **encode(read_body(entry, ConfigBody).dlq)))


def _repair(state: PipelineState, entry: Entry) -> PipelineState:
    return replace(state, accepted=state.accepted | set(read_body(entry, RepairBody).accepted))


def _stop(state: PipelineState, entry: Entry) -> PipelineState:
    body = read_body(entry, StopBody)
    return replace(state, stopping=body.reason, forced=state.forced or body.force)


def _pause(state: PipelineState, entry: Entry) -> PipelineState:
    """Record a pause. No run may begin, and runs that share the lanes stop. The state keeps the first pause."""
    paused = replace(read_body(entry, PauseBody), lane=entry.lane, at=entry.at)
    return replace(state, paused=state.paused or paused, stopping=state.stopping or "the pipeline is paused")


def _merge(state: PipelineState, entry: Entry) -> PipelineState:
    merged = set(read_body(entry, MergeBody).plans)
    return replace(state, fallen={plan: rows for plan, rows in state.fallen.items() if plan not in merged})


def _require_plan(state: PipelineState, entry: Entry) -> PlannedBatch:
    plan = state.get_lane(entry.lane).open
    if plan is None or plan.batch.plan != entry.plan:
        raise LedgerError(f"Entry {entry.seq} ({entry.kind}) names plan {entry.plan}, which is not open.")
    return plan


def _update_lane(state: PipelineState, entry: Entry, lane: LaneState) -> PipelineState:
    return replace(state, lanes={**state.lanes, entry.lane: lane})


_FOLD = {
    "snapshot": lambda _, entry: read_body(entry, PipelineState).name_pipeline(),
    "open": _open,
    "acquire": _acquire,
    "renew": _renew,
    "take": _take,
    "give": _give,
    "oust": _oust,
    "release": _release,
    "plan": _plan,
    "prepared": _prepared,
    "settle": _settle,
    "cancel": _cancel,
    "rest": _rest,
    "waive": _waive,
    "set": _set,
    "backfill": _backfill,
    "config": _config,
    "stop": _stop,
    "pause": _pause,
    "resume": lambda state, _: replace(state, paused=None),
    "merge": _merge,
    "repair": _repair,
}
