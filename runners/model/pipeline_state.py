"""The state of a pipeline as recorded in its ledger: its owners, and the progress of each lane."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

from destinations.destination import Identity
from destinations.dlq import ONLY_COPY
from origins.batch import Json
from origins.codec import NEEDED, UNSTORED, named
from runners.model.entry import (
    BegunBackfill,
    DestinationBody,
    IdentityBody,
    OpenBody,
    OwnerBody,
    PauseBody,
    PinnedReplay,
    Settled,
)
from runners.model.nack_window import DlqSettings, NackWindow
from runners.model.planned_batch import PlannedBatch

BACKFILL = "backfill-"
"""The prefix of the names of lanes in which a backfill carries earlier batches again."""
REPLAY = "dlq/"
"""The prefix of the names of lanes in which rows of the DLQ are carried again. An origin's name follows."""
CLEAN = 10
"""After how many clean batches in a row a lane takes the straight way again."""


@dataclass(frozen=True, kw_only=True)
class LaneState:
    """The progress of one lane."""

    offset: Json = field(default=None, metadata=NEEDED)
    """The end of the last committed batch, inclusive. None if the lane has no committed batch."""
    number: int = field(default=0, metadata=NEEDED)
    """The highest number that a batch of the lane ever had."""
    committed: int = field(default=0, metadata=NEEDED)
    """The number of the last batch whose offset was committed."""
    committed_at: str = field(default="", metadata=NEEDED)
    window: NackWindow = field(default=NackWindow(), metadata=NEEDED)
    clean: int = field(default=CLEAN, metadata=NEEDED)
    """How many batches in a row had no nack. Counting ends at `CLEAN`."""
    open: PlannedBatch | None = field(default=None, metadata=NEEDED)
    settled: PlannedBatch | None = field(default=None, metadata={**NEEDED, **named("told")})
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


class LaneHolder(NamedTuple):
    """The owner of a lane, if several runs share a pipeline."""

    owner: str
    epoch: int
    """The number under which the owner took the lane. A later owner has a higher number."""


@dataclass(frozen=True, kw_only=True)
class PipelineState:
    """The state of a pipeline as recorded in its ledger."""

    seq: int = field(default=0, metadata=UNSTORED)
    epoch: int = field(default=0, metadata=NEEDED)
    pipeline: str = field(default="", metadata=NEEDED)
    opened: OpenBody = field(default_factory=OpenBody, metadata=NEEDED)
    """The body of the last `open`: the definition, the layout, and the facts about each destination."""
    owners: tuple[OwnerBody, ...] = field(default=(), metadata=NEEDED)
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
    ended: Mapping[str, Any] | None = field(default=None, metadata=NEEDED)
    """The body of the last `release`: the report of the run that ended, and `at`."""
    stopping: str = field(default="", metadata=NEEDED)
    """Why the owner was asked to stop."""
    forced: bool = False
    """Whether it was asked to leave its open batches as they are."""
    lanes: Mapping[str, LaneState] = field(default_factory=dict, metadata=NEEDED)
    forgotten: tuple[tuple[str, int, int], ...] = field(default=(), metadata=NEEDED)
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
        return next((owner for owner in self.owners if owner.owner == name), None)

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
            for name, each in self.opened.destinations.items()
        }

    @property
    def open_plans(self) -> tuple[PlannedBatch, ...]:
        """The batches that are planned but not settled, in the order of the lanes."""
        return tuple(lane.open for lane in self.lanes.values() if lane.open)

    def is_carried(self, settled: Settled) -> bool:
        """Whether a settled batch still counts as carried."""
        return not any(lane == settled.lane and first <= settled.number <= last for lane, first, last in self.forgotten)

    def name_pipeline(self) -> PipelineState:
        """Return the state with the pipeline's name in its plans."""
        lanes = {
            name: replace(
                lane,
                open=lane.open and lane.open.name_pipeline(self.pipeline),
                settled=lane.settled and lane.settled.name_pipeline(self.pipeline),
            )
            for name, lane in self.lanes.items()
        }
        return replace(self, lanes=lanes)


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
    return json.dumps([lane, span.start, span.end, span.parts], sort_keys=True)


def list_meant(settled: Settled) -> list[str]:
    """Return the destinations that the batch was meant for, by the names that they had then."""
    return [*settled.counts.delivered, *(settled.counts.owed or ())]


def _list_copies(body: DestinationBody) -> Mapping[str, IdentityBody]:
    return body.copies or ({ONLY_COPY: body.copy} if body.copy else {})


def _read_identity(body: IdentityBody) -> Identity:
    return Identity(place=body.place, id=body.id, version=body.version)
