"""What the ledger says: a pure fold over its entries, by sequence number and nothing else."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime

from destinations.destination import Identity
from origins.batch import JSON, Batch, Span
from runners.counts import Counts
from runners.ledgers.entry import FORMAT, Entry, Settled
from runners.ledgers.ledger import LedgerError
from runners.nack_window import NackWindow

BACKFILL = "backfill-"
"""How the names of lanes begin in which the past is carried again."""
REPLAY = "dlq/"
"""How the names of lanes begin in which rows of the DLQ are carried again; an origin's name follows."""
CLEAN = 10
"""How many clean batches in a row bring a lane back to the straight way."""


@dataclass(frozen=True, kw_only=True)
class Decision:
    """A prepared batch: where its rows lie, and what was decided about them."""

    path: str
    counts: Counts
    window: NackWindow
    sections: int = 1
    """How many frames of it lie there: one, and one more behind each stage that changes rows."""
    bases: Mapping[str, int] = field(default_factory=dict)
    """For each group of rows in which one was refused, what to add to a row's number to get its place."""
    again: bool = False
    """Whether it was decided before, so that the DLQ may have some of its refused rows already."""

    def json(self) -> dict[str, JSON]:
        """As the ledger keeps it."""
        return {
            "path": self.path,
            "counts": self.counts.json(),
            "window": self.window.json(),
            "sections": self.sections,
            "bases": dict(self.bases),
            **({"again": True} if self.again else {}),
        }

    @staticmethod
    def of(value: JSON) -> Decision:
        """From the ledger."""
        return Decision(
            path=value["path"],
            counts=Counts.of(value["counts"]),
            window=NackWindow.of(value["window"]),
            sections=value["sections"],
            bases=value["bases"],
            again=value.get("again", False),
        )


@dataclass(frozen=True, kw_only=True)
class Plan:
    """A batch that was planned, and what is known of it."""

    batch: Batch
    destinations: tuple[str, ...]
    straight: bool
    pins: Mapping[str, JSON] = field(default_factory=dict)
    """What its stages must find the same whenever it is computed."""
    decision: Decision | None = None
    published: bool = False
    """Whether its offset is committed already while some destinations still owe it."""

    def is_for(self, other: Plan) -> bool:
        """Whether this is a plan for the same batch; its id, and the moment at which it was made, are its own."""
        return replace(self, batch=replace(self.batch, plan=other.batch.plan, time=other.batch.time)) == other

    def json(self) -> dict[str, JSON]:
        """As the ledger keeps it."""
        batch, span = self.batch, self.batch.span
        return {
            "origin": batch.origin,
            "lane": batch.lane,
            "number": batch.number,
            "plan": batch.plan,
            "run": batch.run,
            "span": {"start": span.start, "end": span.end, "parts": list(span.parts), "label": span.label},
            "schema": batch.schema,
            "time": batch.time.isoformat(),
            "definition": batch.definition,
            "first": batch.first,
            "pins": dict(self.pins),
            "destinations": list(self.destinations),
            "straight": self.straight,
            "decision": self.decision.json() if self.decision else None,
            "published": self.published,
        }

    @staticmethod
    def of(pipeline: str, value: JSON) -> Plan:
        """From the ledger."""
        span = value["span"]
        batch = Batch(
            pipeline=pipeline,
            run=value["run"],
            origin=value["origin"],
            lane=value["lane"],
            number=value["number"],
            plan=value["plan"],
            span=Span(start=span["start"], end=span["end"], parts=tuple(span["parts"]), label=span["label"]),
            schema=value["schema"],
            time=datetime.fromisoformat(value["time"]),
            first=value["first"],
            definition=value["definition"],
        )
        return Plan(
            batch=batch,
            destinations=tuple(value["destinations"]),
            straight=value["straight"],
            pins=value["pins"],
            decision=Decision.of(value["decision"]) if value.get("decision") else None,
            published=value.get("published", False),
        )


@dataclass(frozen=True, kw_only=True)
class Lane:
    """How far one lane is."""

    offset: JSON = None
    """The end of its last committed batch, inclusive; None at its beginning."""
    number: int = 0
    """The highest number that a batch of it ever had."""
    committed: int = 0
    """The number of the last batch whose offset was committed."""
    committed_at: str = ""
    window: NackWindow = NackWindow()
    clean: int = CLEAN
    """How many batches in a row had no nack, up to `CLEAN`."""
    open: Plan | None = None
    told: Plan | None = None
    """The last settled batch, of which the origin is told again on opening."""
    tried: int = 0
    """How often its next batch was tried again, by however many runs; a batch that is settled, and a run that gives
    up, begin the count anew."""
    since: str = ""
    """When that batch could not be carried for the first time."""

    @property
    def careful(self) -> bool:
        """Whether its batches are decided before they are written, since one had nacks not long ago."""
        return self.clean < CLEAN


@dataclass(frozen=True, kw_only=True)
class Held:
    """Who has a lane, where several runs share a pipeline."""

    owner: str
    epoch: int
    """Under which it was taken; whoever takes it later has a higher one."""


@dataclass(frozen=True, kw_only=True)
class State:
    """The pipeline as its ledger knows it."""

    seq: int = 0
    epoch: int = 0
    pipeline: str = ""
    opened: Mapping[str, JSON] = field(default_factory=dict)
    """The body of the last `open`: definition, layout, what each destination was."""
    owners: tuple[Mapping[str, JSON], ...] = ()
    """The runs that have it, in the order in which they came: one, or several that share its lanes. Each is the body of
    its `acquire`, with its name as `owner` and the lease that it took last; `heard` and `heard_at` are the number of
    its last entry, for each one renews its lease, and when that was by its own clock: for people, and never to take
    anything by. `ready` are those who share and want lanes."""
    held: Mapping[str, Held] = field(default_factory=dict)
    """Who has which lane, where they are shared; a lane that nobody has may be taken."""
    done: frozenset[str] = frozenset()
    """The shared lanes of which all is carried that was there when those who share them began."""
    ended: Mapping[str, JSON] | None = None
    """The body of the last `release`."""
    stopping: str = ""
    """Why somebody asked the owner to stop."""
    lanes: Mapping[str, Lane] = field(default_factory=dict)
    forgotten: tuple[tuple[str, int, int], ...] = ()
    """Lane, first and last number of batches that were rewound: they do not count as carried any more."""
    midway: bool = False
    """Whether batches were carried since a run last carried all that it found: what comes next goes on with these."""
    config: Mapping[str, JSON] = field(default_factory=dict)
    """What of the DLQ's settings somebody changed for the run that is under way."""
    backfills: Mapping[str, Mapping[str, JSON]] = field(default_factory=dict)
    """For each backfill, by what it holds, what its lanes are called and when it began."""
    jumps: tuple[tuple[str, int], ...] = ()
    """Lane and number: behind this batch somebody set the lane's offset, so that the next need not go on from it."""
    accepted: frozenset[str] = frozenset()
    """What an audit finds and somebody said is right as it is."""

    def lane(self, name: str) -> Lane:
        """The lane, or one at its beginning."""
        return self.lanes.get(name, Lane())

    @property
    def owner(self) -> Mapping[str, JSON] | None:
        """Who has had it longest."""
        return self.owners[0] if self.owners else None

    def owned_by(self, name: str) -> Mapping[str, JSON] | None:
        """The owner of this name; None if it has the pipeline no more."""
        return next((owner for owner in self.owners if owner["owner"] == name), None)

    def lanes_of(self, name: str) -> tuple[str, ...]:
        """The shared lanes that this owner has."""
        return tuple(lane for lane, held in self.held.items() if held.owner == name)

    @property
    def identities(self) -> Mapping[str, Identity]:
        """What each destination was when the last run opened, by which it is asked now."""
        opened: Mapping[str, JSON] = self.opened.get("destinations", {})
        return {
            name: Identity(place=each["place"], id=each["id"], version=each["version"]) for name, each in opened.items()
        }

    @property
    def open_plans(self) -> tuple[Plan, ...]:
        """The batches that are planned and not settled, in the order of the lanes."""
        return tuple(lane.open for lane in self.lanes.values() if lane.open)

    def carried(self, settled: Settled) -> bool:
        """Whether a settled batch still counts as carried."""
        return not any(lane == settled.lane and first <= settled.number <= last for lane, first, last in self.forgotten)


def is_replay(lane: str) -> bool:
    """Whether rows of the DLQ are carried in this lane."""
    return lane.startswith(REPLAY)


def is_aside(lane: str) -> bool:
    """Whether this is no lane of an origin, but one in which something is carried again beside them."""
    return lane.startswith((BACKFILL, REPLAY))


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


def snapshot(state: State) -> Mapping[str, JSON]:
    """The state as the body of a `snapshot` entry."""
    return {
        "epoch": state.epoch,
        "pipeline": state.pipeline,
        "opened": dict(state.opened),
        "owners": [dict(owner) for owner in state.owners],
        "held": {lane: [held.owner, held.epoch] for lane, held in state.held.items()},
        "done": sorted(state.done),
        "ended": dict(state.ended) if state.ended is not None else None,
        "stopping": state.stopping,
        "forgotten": [list(span) for span in state.forgotten],
        "midway": state.midway,
        "config": dict(state.config),
        "backfills": {key: dict(backfill) for key, backfill in state.backfills.items()},
        "jumps": [list(jump) for jump in state.jumps],
        "accepted": sorted(state.accepted),
        "lanes": {
            name: {
                "offset": lane.offset,
                "number": lane.number,
                "committed": lane.committed,
                "committed_at": lane.committed_at,
                "window": lane.window.json(),
                "clean": lane.clean,
                "open": lane.open.json() if lane.open else None,
                "told": lane.told.json() if lane.told else None,
                "tried": lane.tried,
                "since": lane.since,
            }
            for name, lane in state.lanes.items()
        },
    }


def _snapshot(state: State, entry: Entry) -> State:
    body = entry.body

    def plan(value: JSON) -> Plan | None:
        return Plan.of(body["pipeline"], value) if value else None

    lanes = {
        name: Lane(
            **{key: lane[key] for key in ("offset", "number", "committed", "committed_at", "clean")},
            window=NackWindow.of(lane["window"]),
            open=plan(lane["open"]),
            told=plan(lane["told"]),
            tried=lane.get("tried", 0),
            since=lane.get("since", ""),
        )
        for name, lane in body["lanes"].items()
    }
    return State(
        epoch=body["epoch"],
        pipeline=body["pipeline"],
        opened=body["opened"],
        owners=tuple(body["owners"]),
        held={lane: Held(owner=owner, epoch=epoch) for lane, (owner, epoch) in body["held"].items()},
        done=frozenset(body["done"]),
        ended=body["ended"],
        stopping=body["stopping"],
        lanes=lanes,
        forgotten=tuple((lane, first, last) for lane, first, last in body["forgotten"]),
        midway=body["midway"],
        config=body.get("config", {}),
        backfills=body["backfills"],
        jumps=tuple((lane, number) for lane, number in body.get("jumps", ())),
        accepted=frozenset(body.get("accepted", ())),
    )


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
