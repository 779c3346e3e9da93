"""The state of a pipeline as recorded in its ledger: its owners, and the progress of each lane."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TypedDict, cast

from destinations.destination import Identity
from destinations.dlq import ONLY_COPY
from origins.batch import Json
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
"""The prefix of the names of lanes in which a backfill carries earlier batches again."""
REPLAY = "dlq/"
"""The prefix of the names of lanes in which rows of the DLQ are carried again. An origin's name follows."""
CLEAN = 10
"""After how many clean batches in a row a lane takes the straight way again."""


@dataclass(frozen=True, kw_only=True)
class LaneState:
    """The progress of one lane."""

    offset: Json = None
    """The end of the last committed batch, inclusive. None if the lane has no committed batch."""
    number: int = 0
    """The highest number that a batch of the lane ever had."""
    committed: int = 0
    """The number of the last batch whose offset was committed."""
    committed_at: str = ""
    window: NackWindow = NackWindow()
    clean: int = CLEAN
    """How many batches in a row had no nack. Counting ends at `CLEAN`."""
    open: PlannedBatch | None = None
    settled: PlannedBatch | None = None
    """The last settled batch. Wherry reports it to the origin again when the origin opens."""
    tried: int = 0
    """How often the next batch was retried, by all runs together.

    The count returns to zero when a batch is settled or a run gives up.
    """
    since: str = ""
    """When that batch failed for the first time."""

    @property
    def careful(self) -> bool:
        """Whether batches are decided before they are written, because a recent batch had nacks."""
        return self.clean < CLEAN

    def json(self) -> LaneBody:
        """Return the lane as a `snapshot` stores it."""
        body = {name: value for name, value in vars(self).items() if name != "settled"}
        plans = {"open": self.open and self.open.json(), "told": self.settled and self.settled.json()}
        return cast(LaneBody, {**body, "window": self.window.json(), **plans})

    @staticmethod
    def of(pipeline: str, value: LaneBody) -> LaneState:
        """Make a lane from what a `snapshot` stores."""
        plans = [value["open"], value["told"]]
        opened, settled = (plan and PlannedBatch.of(pipeline, plan) for plan in plans)
        made = {"window": NackWindow.of(value["window"]), "open": opened, "settled": settled}
        return LaneState(**{**pick_fields(LaneState, value), **made})


@dataclass(frozen=True, kw_only=True)
class LaneHolder:
    """The owner of a lane, if several runs share a pipeline."""

    owner: str
    epoch: int
    """The number under which the owner took the lane. A later owner has a higher number."""


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
    """A lane in a `snapshot`."""

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
    """The body of `snapshot`: the whole state."""

    config: DlqSettings
    jumps: Sequence[tuple[str, int]]
    accepted: Sequence[str]
    paused: PauseBody | None
    replay: PinnedReplay | None
    fallen: Mapping[str, int]
    forced: bool


@dataclass(frozen=True, kw_only=True)
class PipelineState:
    """The state of a pipeline as recorded in its ledger."""

    seq: int = 0
    epoch: int = 0
    pipeline: str = ""
    opened: OpenBody = field(default_factory=OpenBody)
    """The body of the last `open`: the definition, the layout, and the facts about each destination."""
    owners: tuple[OwnerBody, ...] = ()
    """The runs that own the pipeline, in the order in which they came: one, or several that share its lanes.

    Each is the body of the run's `acquire`, with the owner's name as `owner` and the lease that it took last. `heard`
    is the number of its last entry, since every entry renews the lease. `heard_at` is the time of that entry by the
    owner's clock. It is for people only, and never decides a takeover. `ready` marks an owner that shares the lanes and
    wants some.
    """
    held: Mapping[str, LaneHolder] = field(default_factory=dict)
    """The owners of shared lanes. Another run may take a lane without an owner."""
    done: frozenset[str] = frozenset()
    """The shared lanes that are delivered up to the end that they had when their processes started."""
    ended: EndedBody | None = None
    """The body of the last `release`."""
    stopping: str = ""
    """Why the owner was asked to stop."""
    forced: bool = False
    """Whether it was asked to leave its open batches as they are."""
    lanes: Mapping[str, LaneState] = field(default_factory=dict)
    forgotten: tuple[tuple[str, int, int], ...] = ()
    """The lane, first and last number of batches that were rewound. These batches no longer count as carried."""
    midway: bool = False
    """Whether batches were carried since a run last carried all rows that it found.

    The next batch then continues these.
    """
    config: DlqSettings = field(default_factory=DlqSettings)
    """The settings of the DLQ that were changed for the current run."""
    backfills: Mapping[str, BegunBackfill] = field(default_factory=dict)
    """The name and the start of each backfill, by its key."""
    jumps: tuple[tuple[str, int], ...] = ()
    """A lane and a number: after this batch a person set the lane's offset.

    The next batch need not start where that batch ended.
    """
    accepted: frozenset[str] = frozenset()
    """The findings of an audit that a person accepted."""
    paused: PauseBody | None = None
    """Why no run may begin until a person resumes the pipeline. None if a run may begin."""
    replay: PinnedReplay | None = None
    """The last replay with a fix, until it succeeds."""
    fallen: Mapping[str, int] = field(default_factory=dict)
    """The batches whose refused rows wait in the fallback: the plan, and the number of these rows."""

    def get_lane(self, name: str) -> LaneState:
        """Return the lane, or a lane at its beginning if the name is unknown."""
        return self.lanes.get(name, LaneState())

    @property
    def owner(self) -> OwnerBody | None:
        """The oldest owner."""
        return self.owners[0] if self.owners else None

    def find_owner(self, name: str) -> OwnerBody | None:
        """Return the owner with this name, or None if it no longer owns the pipeline."""
        return next((owner for owner in self.owners if owner["owner"] == name), None)

    def lanes_of(self, name: str) -> tuple[str, ...]:
        """Return the shared lanes that this owner holds."""
        return tuple(lane for lane, held in self.held.items() if held.owner == name)

    @property
    def identities(self) -> Mapping[str, Identity]:
        """The identity of each destination when the last run opened. A destination is now asked by this identity."""
        return {
            name: replace(
                _read_identity(each), copies={copy: _read_identity(own) for copy, own in _list_copies(each).items()}
            )
            for name, each in self.opened.get("destinations", {}).items()
        }

    @property
    def open_plans(self) -> tuple[PlannedBatch, ...]:
        """The batches that are planned but not settled, in the order of the lanes."""
        return tuple(lane.open for lane in self.lanes.values() if lane.open)

    def is_carried(self, settled: Settled) -> bool:
        """Whether a settled batch still counts as carried."""
        return not any(lane == settled.lane and first <= settled.number <= last for lane, first, last in self.forgotten)

    def json(self) -> SnapshotBody:
        """Return the state as the body of a `snapshot` entry."""
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
        """Make the state from the body of a `snapshot` entry."""

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
    """Whether the lane carries rows of the DLQ again."""
    return lane.startswith(REPLAY)


def is_aside(lane: str) -> bool:
    """Whether the lane is a backfill or a replay, and not a lane of an origin."""
    return lane.startswith((BACKFILL, REPLAY))


def make_rows_key(settled: Settled) -> str:
    """Return a key for the source of the batch's rows. A backfill of the batch has the same key."""
    lane = settled.lane.partition("/")[2] if settled.lane.startswith(BACKFILL) else settled.lane
    span = settled.span
    return json.dumps([lane, span["start"], span["end"], span["parts"]], sort_keys=True)


def list_meant(settled: Settled) -> list[str]:
    """Return the destinations that the batch was meant for, by the names that they had then."""
    return [*(settled.counts.get("delivered") or ()), *settled.counts.get("owed", ())]


def _list_copies(body: DestinationBody) -> Mapping[str, IdentityBody]:
    only = body.get("copy")
    return body.get("copies") or ({ONLY_COPY: only} if only else {})


def _read_identity(body: IdentityBody) -> Identity:
    return Identity(place=body["place"], id=body["id"], version=body["version"])
