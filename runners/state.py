"""The pipeline as its ledger knows it: who has it, and how far each lane is."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from destinations.destination import Identity
from origins.batch import JSON
from runners.ledgers.entry import Settled
from runners.nack_window import NackWindow
from runners.plan import Plan

BACKFILL = "backfill-"
"""How the names of lanes begin in which the past is carried again."""
REPLAY = "dlq/"
"""How the names of lanes begin in which rows of the DLQ are carried again; an origin's name follows."""
CLEAN = 10
"""How many clean batches in a row bring a lane back to the straight way."""


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

    def json(self) -> Mapping[str, JSON]:
        """As the body of a `snapshot` entry."""
        return {
            "epoch": self.epoch,
            "pipeline": self.pipeline,
            "opened": dict(self.opened),
            "owners": [dict(owner) for owner in self.owners],
            "held": {lane: [held.owner, held.epoch] for lane, held in self.held.items()},
            "done": sorted(self.done),
            "ended": dict(self.ended) if self.ended is not None else None,
            "stopping": self.stopping,
            "forgotten": [list(span) for span in self.forgotten],
            "midway": self.midway,
            "config": dict(self.config),
            "backfills": {key: dict(backfill) for key, backfill in self.backfills.items()},
            "jumps": [list(jump) for jump in self.jumps],
            "accepted": sorted(self.accepted),
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
                for name, lane in self.lanes.items()
            },
        }

    @classmethod
    def of(cls, body: Mapping[str, JSON]) -> State:
        """From such a body."""

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
        return cls(
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


def is_replay(lane: str) -> bool:
    """Whether rows of the DLQ are carried in this lane."""
    return lane.startswith(REPLAY)


def is_aside(lane: str) -> bool:
    """Whether this is no lane of an origin, but one in which something is carried again beside them."""
    return lane.startswith((BACKFILL, REPLAY))
