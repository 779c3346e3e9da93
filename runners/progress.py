"""What the ledger says: a pure fold over its entries, by sequence number and nothing else."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace

from origins.batch import JSON
from runners.ledgers.entry import FORMAT, Entry, Settled
from runners.ledgers.ledger import LedgerError
from runners.nack_window import NackWindow
from runners.plan import Decision, Plan
from runners.state import CLEAN, Held, State, is_replay


def fold(state: State, entry: Entry) -> State:
    """The state after one more entry."""
    if entry.format > FORMAT:
        raise LedgerError(
            f"The ledger has an entry of format {entry.format}; this version reads up to {FORMAT}.",
            hint="Upgrade wherry; a newer one has been used on this state.",
        )
    if entry.seq != state.seq + 1 and entry.kind != "snapshot":
        raise LedgerError(f"The ledger has a gap: entry {entry.seq} follows {state.seq}.")
    state = _owner(_FOLD[entry.kind](state, entry), entry, heard=entry.seq, heard_at=entry.at)
    return replace(state, seq=entry.seq)


def fold_all(entries: Iterable[Entry], state: State | None = None) -> State:
    """The state after all these entries."""
    state = state or State()
    for entry in entries:
        state = fold(state, entry)
    return state


def settled_among(entries: Iterable[Entry], state: State | None = None) -> Iterator[Settled]:
    """The batches that these entries settle, with their spans."""
    state = state or State()
    for entry in entries:
        plan = state.lane(entry.lane).open if entry.kind == "settle" else None
        if plan is not None and not plan.published:
            yield Settled(
                lane=entry.lane,
                number=plan.batch.number,
                plan=plan.batch.plan,
                run=plan.batch.run,
                at=entry.at,
                span=plan.json()["span"],
                counts={**entry.body["counts"], "owed": entry.body["owed"]},
            )
        state = fold(state, entry)


def _snapshot(_: State, entry: Entry) -> State:
    return State.of(entry.body)


def _open(state: State, entry: Entry) -> State:
    return replace(state, opened=entry.body, pipeline=entry.body["pipeline"])


def _acquire(state: State, entry: Entry) -> State:
    """Who joins others shares with them, and looks anew at all lanes; anybody else has it alone."""
    owner = {**entry.body, "owner": entry.owner, "at": entry.at}
    if entry.body.get("joins"):
        return replace(state, epoch=entry.epoch, owners=(*state.owners, owner), done=frozenset())
    pipeline = state.pipeline or entry.body.get("pipeline", "")
    state = replace(state, owners=(owner,), held={}, done=frozenset())
    return replace(state, epoch=entry.epoch, stopping="", config={}, pipeline=pipeline)


def _renew(state: State, entry: Entry) -> State:
    ready = {"ready": entry.body["ready"]} if "ready" in entry.body else {}
    return _owner(state, entry, lease=entry.body["lease"], **ready)


def _take(state: State, entry: Entry) -> State:
    taken = dict.fromkeys(entry.body["lanes"], Held(owner=entry.owner, epoch=entry.epoch))
    return replace(state, epoch=entry.epoch, held={**state.held, **taken})


def _give(state: State, entry: Entry) -> State:
    given = set(entry.body["lanes"])
    held = {lane: each for lane, each in state.held.items() if lane not in given}
    return replace(state, held=held, done=state.done | given if entry.body["done"] else state.done)


def _oust(state: State, entry: Entry) -> State:
    return _without(state, set(entry.body["owners"]))


def _without(state: State, gone: set[str]) -> State:
    """Without these owners; their lanes may be taken."""
    return replace(
        state,
        owners=tuple(owner for owner in state.owners if owner["owner"] not in gone),
        held={lane: held for lane, held in state.held.items() if held.owner not in gone},
    )


def _release(state: State, entry: Entry) -> State:
    status, owner = entry.body.get("status"), state.owned_by(entry.owner) or {}
    aside = owner.get("replay") is not None or owner.get("finish", False)
    lanes = state.lanes
    if status == "failed":
        mine = state.lanes_of(entry.owner) if state.held else lanes
        lanes = {name: replace(lane, tried=0, since="") if name in mine else lane for name, lane in lanes.items()}
    left = _without(state, {entry.owner})
    return replace(
        left,
        ended={**entry.body, "at": entry.at},
        stopping=state.stopping if left.owners else "",
        config=state.config if left.owners else {},
        midway=state.midway and (aside or status != "succeeded"),
        lanes=lanes,
    )


def _owner(state: State, entry: Entry, **changes: JSON) -> State:
    """With what is new of the owner whose entry it is, if it has the pipeline still."""
    if state.owned_by(entry.owner) is None:
        return state
    changed = ({**each, **changes} if each["owner"] == entry.owner else each for each in state.owners)
    return replace(state, owners=tuple(changed))


def _plan(state: State, entry: Entry) -> State:
    plan = Plan.of(state.pipeline, entry.body)
    return _lane(state, entry, open=plan, number=plan.batch.number)


def _prepared(state: State, entry: Entry) -> State:
    plan = _its_plan(state, entry)
    return _lane(state, entry, open=replace(plan, decision=Decision.of(entry.body)))


def _settle(state: State, entry: Entry) -> State:
    plan = _its_plan(state, entry)
    body = entry.body
    owed = bool(body["owed"])
    return _lane(
        replace(state, midway=state.midway or not is_replay(entry.lane)),
        entry,
        offset=body["offset"],
        committed=plan.batch.number,
        committed_at=state.lane(entry.lane).committed_at if plan.published else entry.at,
        window=NackWindow.of(body["window"]),
        clean=body["clean"],
        open=replace(plan, published=True) if owed else None,
        told=None if is_replay(entry.lane) else plan,
        tried=0,
        since="",
    )


def _cancel(state: State, entry: Entry) -> State:
    _its_plan(state, entry)
    return _lane(state, entry, open=None)


def _rest(state: State, entry: Entry) -> State:
    _its_plan(state, entry)
    return _lane(state, entry, tried=entry.body["tried"], since=entry.body["since"])


def _waive(state: State, entry: Entry) -> State:
    plan = _its_plan(state, entry)
    left = tuple(name for name in plan.destinations if name not in entry.body.get("forget", ()))
    return _lane(state, entry, open=replace(plan, destinations=left))


def _set(state: State, entry: Entry) -> State:
    lanes = dict(state.lanes)
    for name, target in entry.body["lanes"].items():
        lanes[name] = replace(
            state.lane(name),
            offset=target["offset"],
            window=NackWindow(),
            told=None,
            clean=CLEAN,
            tried=0,
            since="",
        )
    forgotten = tuple((lane, first, last) for lane, first, last in entry.body.get("forgotten", ()))
    jumps = tuple((name, state.lane(name).number) for name in entry.body["lanes"])
    return replace(state, lanes=lanes, forgotten=state.forgotten + forgotten, jumps=state.jumps + jumps, midway=False)


def _backfill(state: State, entry: Entry) -> State:
    begun = {entry.body["key"]: {"name": entry.body["name"], "at": entry.at}}
    return replace(state, backfills={**state.backfills, **begun})


def _config(state: State, entry: Entry) -> State:
    return replace(state, config={**state.config, **entry.body["dlq"]})


def _repair(state: State, entry: Entry) -> State:
    return replace(state, accepted=state.accepted | set(entry.body["accepted"]))


def _stop(state: State, entry: Entry) -> State:
    return replace(state, stopping=entry.body.get("reason", "asked to stop"))


def _its_plan(state: State, entry: Entry) -> Plan:
    plan = state.lane(entry.lane).open
    if plan is None or plan.batch.plan != entry.plan:
        raise LedgerError(f"Entry {entry.seq} ({entry.kind}) names plan {entry.plan}, which is not open.")
    return plan


def _lane(state: State, entry: Entry, **changes: JSON) -> State:
    lane = replace(state.lane(entry.lane), **changes)
    return replace(state, lanes={**state.lanes, entry.lane: lane})


_FOLD = {
    "snapshot": _snapshot,
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
    "repair": _repair,
}
