"""The pipeline as its ledger knows it: who has it, and how far each lane is."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import field, replace
from typing import TypedDict, cast

from destinations.destination import Identity
from destinations.dlq import ONLY_COPY
from origins.batch import Json
from origins.quick_dataclass import dataclass
from runners.model.entry import (
    BegunBackfill,
    DestinationBody,
    EndedBody,
    IdentityBody,
    OpenBody,
    OwnerBody,
    PauseBody,
    PinnedReplay,
    Settled,
)
from runners.model.nack_window import DlqSettings, NackWindow, WindowBody
from runners.model.planned_batch import PlanBody, PlannedBatch, pick_fields

BACKFILL = "backfill-"
"""How the names of lanes begin in which the past is carried again."""
REPLAY = "dlq/"
"""How the names of lanes begin in which rows of the DLQ are carried again; an origin's name follows."""
CLEAN = 10
"""How many clean batches in a row bring a lane back to the straight way."""


@dataclass(frozen=True, kw_only=True)
class LaneState:
    """How far one lane is."""

    offset: Json = None
    """The end of its last committed batch, inclusive; None at its beginning."""
    number: int = 0
    """The highest number that a batch of it ever had."""
    committed: int = 0
    """The number of the last batch whose offset was committed."""
    committed_at: str = ""
    window: NackWindow = NackWindow()
    clean: int = CLEAN
    """How many batches in a row had no nack, up to `CLEAN`."""
    open: PlannedBatch | None = None
    told: PlannedBatch | None = None
    """The last settled batch; the origin hears of it again on opening."""
    tried: int = 0
    """How often its next batch was tried again, by however many runs; a batch that is settled, and a run that gives
    up, begin the count anew."""
    since: str = ""
    """When that batch could not be carried for the first time."""

    @property
    def careful(self) -> bool:
        """Whether its batches are decided before they are written, since one had nacks not long ago."""
        return self.clean < CLEAN

    def json(self) -> LaneBody:
        """As a `snapshot` has it."""
        plans = {"open": self.open and self.open.json(), "told": self.told and self.told.json()}
        return cast(LaneBody, {**vars(self), "window": self.window.json(), **plans})

    @staticmethod
    def of(pipeline: str, value: LaneBody) -> LaneState:
        """From a `snapshot`."""
        plans = [value["open"], value["told"]]
        opened, told = (plan and PlannedBatch.of(pipeline, plan) for plan in plans)
        made = {"window": NackWindow.of(value["window"]), "open": opened, "told": told}
        return LaneState(**{**pick_fields(LaneState, value), **made})


@dataclass(frozen=True, kw_only=True)
class LaneHolder:
    """The owner of a lane, where several runs share a pipeline."""

    owner: str
    epoch: int
    """The number under which it was taken; a later owner has a higher one."""


class _Lane(TypedDict):
    offset: Json
    number: int
    committed: int
    committed_at: str
    window: WindowBody | None
    clean: int
    open: PlanBody | None
    told: PlanBody | None


class LaneBody(_Lane, total=False):
    """A lane, in a `snapshot`."""

    tried: int
    since: str


class _Snapshot(TypedDict):
    epoch: int
    pipeline: str
    opened: OpenBody
    owners: Sequence[OwnerBody]
    held: Mapping[str, tuple[str, int]]
    done: Sequence[str]
    ended: EndedBody | None
    stopping: str
    forgotten: Sequence[tuple[str, int, int]]
    midway: bool
    backfills: Mapping[str, BegunBackfill]
    lanes: Mapping[str, LaneBody]


class SnapshotBody(_Snapshot, total=False):
    """Of `snapshot`: the whole state."""

    config: DlqSettings
    jumps: Sequence[tuple[str, int]]
    accepted: Sequence[str]
    paused: PauseBody | None
    replay: PinnedReplay | None
    fallen: Mapping[str, int]


@dataclass(frozen=True, kw_only=True)
class PipelineState:
    """The pipeline as its ledger knows it."""

    seq: int = 0
    epoch: int = 0
    pipeline: str = ""
    opened: OpenBody = field(default_factory=OpenBody)
    """The body of the last `open`: definition, layout, what each destination was."""
    owners: tuple[OwnerBody, ...] = ()
    """The runs that have it, in the order in which they came: one, or several that share its lanes. Each is the body of
    its `acquire`, with its name as `owner` and the lease that it took last; `heard` and `heard_at` are the number of
    its last entry, for each one renews its lease, and when that was by its own clock: for people, and never to take
    anything by. `ready` are those who share and want lanes."""
    held: Mapping[str, LaneHolder] = field(default_factory=dict)
    """The owners of shared lanes; a lane without an owner may be taken."""
    done: frozenset[str] = frozenset()
    """The shared lanes that are delivered up to where they ended when their processes started."""
    ended: EndedBody | None = None
    """The body of the last `release`."""
    stopping: str = ""
    """Why the owner was asked to stop."""
    lanes: Mapping[str, LaneState] = field(default_factory=dict)
    forgotten: tuple[tuple[str, int, int], ...] = ()
    """Lane, first and last number of batches that were rewound: they do not count as carried any more."""
    midway: bool = False
    """Whether batches were carried since a run last carried all that it found: what comes next goes on with these."""
    config: DlqSettings = field(default_factory=DlqSettings)
    """The DLQ's settings that were changed for the run that is under way."""
    backfills: Mapping[str, BegunBackfill] = field(default_factory=dict)
    """For each backfill, by what it holds, what its lanes are called and when it began."""
    jumps: tuple[tuple[str, int], ...] = ()
    """Lane and number: behind this batch somebody set the lane's offset, so that the next need not go on from it."""
    accepted: frozenset[str] = frozenset()
    """The findings of an audit that were accepted."""
    paused: PauseBody | None = None
    """Why no run may begin until a person resumes the pipeline; None if one may."""
    replay: PinnedReplay | None = None
    """The last replay with a fix, until it succeeds."""
    fallen: Mapping[str, int] = field(default_factory=dict)
    """The batches whose refused rows wait in the fallback, by plan, with the number of these rows."""

    def get_lane(self, name: str) -> LaneState:
        """The lane, or one at its beginning."""
        return self.lanes.get(name, LaneState())

    @property
    def owner(self) -> OwnerBody | None:
        """The oldest owner."""
        return self.owners[0] if self.owners else None

    def find_owner(self, name: str) -> OwnerBody | None:
        """The owner of this name; None if it has the pipeline no more."""
        return next((owner for owner in self.owners if owner["owner"] == name), None)

    def lanes_of(self, name: str) -> tuple[str, ...]:
        """The shared lanes that this owner has."""
        return tuple(lane for lane, held in self.held.items() if held.owner == name)

    @property
    def identities(self) -> Mapping[str, Identity]:
        """What each destination was when the last run opened, by which it is asked now."""
        return {
            name: replace(
                _read_identity(each), copies={copy: _read_identity(own) for copy, own in _list_copies(each).items()}
            )
            for name, each in self.opened.get("destinations", {}).items()
        }

    @property
    def open_plans(self) -> tuple[PlannedBatch, ...]:
        """The batches that are planned and not settled, in the order of the lanes."""
        return tuple(lane.open for lane in self.lanes.values() if lane.open)

    def is_carried(self, settled: Settled) -> bool:
        """Whether a settled batch still counts as carried."""
        return not any(lane == settled.lane and first <= settled.number <= last for lane, first, last in self.forgotten)

    def json(self) -> SnapshotBody:
        """As the body of a `snapshot` entry."""
        made = {
            "owners": list(self.owners),
            "held": {lane: (held.owner, held.epoch) for lane, held in self.held.items()},
            "done": sorted(self.done),
            "forgotten": list(self.forgotten),
            "backfills": dict(self.backfills),
            "fallen": dict(self.fallen),
            "jumps": list(self.jumps),
            "accepted": sorted(self.accepted),
            "lanes": {name: lane.json() for name, lane in self.lanes.items()},
        }
        return cast(SnapshotBody, {name: each for name, each in {**vars(self), **made}.items() if name != "seq"})

    @classmethod
    def of(cls, body: SnapshotBody) -> PipelineState:
        """From such a body."""

        pipeline = body["pipeline"]
        made = {
            "owners": tuple(body["owners"]),
            "held": {lane: LaneHolder(owner=owner, epoch=epoch) for lane, (owner, epoch) in body["held"].items()},
            "done": frozenset(body["done"]),
            "lanes": {name: LaneState.of(pipeline, lane) for name, lane in body["lanes"].items()},
            "forgotten": tuple((lane, first, last) for lane, first, last in body["forgotten"]),
            "jumps": tuple((lane, number) for lane, number in body.get("jumps", ())),
            "accepted": frozenset(body.get("accepted", ())),
        }
        return cls(**{**pick_fields(cls, body), **made})


def is_replay(lane: str) -> bool:
    """Whether rows of the DLQ are carried in this lane."""
    return lane.startswith(REPLAY)


def is_aside(lane: str) -> bool:
    """Whether this is no lane of an origin, but one in which something is carried again beside them."""
    return lane.startswith((BACKFILL, REPLAY))


def make_rows_key(settled: Settled) -> str:
    """What the batch is read from, so that a backfill of it has the same."""
    lane = settled.lane.partition("/")[2] if settled.lane.startswith(BACKFILL) else settled.lane
    span = settled.span
    return json.dumps([lane, span["start"], span["end"], span["parts"]], sort_keys=True)


def list_meant(settled: Settled) -> list[str]:
    """The destinations that the batch was for, by the names that they had then."""
    return [*(settled.counts.get("delivered") or ()), *settled.counts.get("owed", ())]


def _list_copies(body: DestinationBody) -> Mapping[str, IdentityBody]:
    only = body.get("copy")
    return body.get("copies") or ({ONLY_COPY: only} if only else {})


def _read_identity(body: IdentityBody) -> Identity:
    return Identity(place=body["place"], id=body["id"], version=body["version"])
