"""What the ledger holds: entries that say what was planned, decided and settled, in one sequence."""

from __future__ import annotations

import json
import re
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import field
from datetime import datetime, timezone
from typing import Any, TypedDict

from origins.batch import Json
from origins.quick_dataclass import dataclass
from runners.model.nack_window import DlqSettings
from runners.model.planned_batch import SettledCounts, SpanBody

FORMAT = 5
"""The format of entries and snapshots that this version writes, and the newest that it reads."""

KINDS = (
    "open",
    "acquire",
    "renew",
    "take",
    "give",
    "oust",
    "release",
    "plan",
    "prepared",
    "settle",
    "cancel",
    "rest",
    "waive",
    "set",
    "backfill",
    "config",
    "stop",
    "pause",
    "resume",
    "merge",
    "repair",
    "snapshot",
)


class OriginBody(TypedDict, total=False):
    """What an origin was when a run opened."""

    lanes: Sequence[str]
    place: str
    given: Sequence[str]
    schema: str | None


class IdentityBody(TypedDict, total=False):
    """By what a destination is asked whether it has a batch."""

    place: str
    id: str
    version: int


class DestinationBody(IdentityBody, total=False):
    """What a destination was when a run opened."""

    kind: str
    given: Sequence[str]
    copy: IdentityBody | None
    """The only copy of a DLQ, where an older version recorded it."""
    copies: Mapping[str, IdentityBody]


class OpenBody(TypedDict, total=False):
    """Of `open`: the definition, the layout, what each destination was."""

    pipeline: str
    run: str
    definition: str
    hash: str
    salts: Mapping[str, Sequence[str]]
    state: str | None
    origins: Mapping[str, OriginBody]
    destinations: Mapping[str, DestinationBody]


class ProcessBody(TypedDict, total=False):
    """A process of one host."""

    pid: int
    started: str


class HostBody(ProcessBody, total=False):
    """A process and where it is."""

    host: str
    boot: str


class OwnerBody(HostBody, total=False):
    """Of `acquire`: a run that has the pipeline. What follows `joins` is put in when the ledger is read."""

    pipeline: str
    run: str
    jvm: ProcessBody | None
    ownership: str
    lock: str | None
    lock_file: str | None
    take_over: str
    replay: Json
    ruling: Json
    finish: bool
    assignment: str
    hash: str
    follow: bool
    lease: float | None
    joins: bool
    owner: str
    at: str
    heard: int
    heard_at: str
    ready: bool


class _RenewBody(TypedDict):
    lease: float | None


class RenewBody(_RenewBody, total=False):
    """Of `renew`."""

    ready: bool


class TakeBody(TypedDict):
    """Of `take`."""

    lanes: Sequence[str]


class GiveBody(TypedDict):
    """Of `give`."""

    lanes: Sequence[str]
    done: bool


class OustBody(TypedDict):
    """Of `oust`."""

    owners: Sequence[str]


class ErrorBody(TypedDict, total=False):
    """Why a run failed."""

    lane: str | None


class EndedBody(TypedDict, total=False):
    """Of `release`: the report of the run that ended, of which this is read again."""

    run: str
    status: str
    reason: str
    error: ErrorBody | None
    at: str


class RestBody(TypedDict):
    """Of `rest`."""

    tried: int
    since: str


class WaiveBody(TypedDict, total=False):
    """Of `waive`."""

    forget: Sequence[str]
    reason: str


class OffsetBody(TypedDict):
    """Where a lane is put."""

    offset: Json


class _SetBody(TypedDict):
    lanes: Mapping[str, OffsetBody]


class SetBody(_SetBody, total=False):
    """Of `set`."""

    forgotten: Sequence[tuple[str, int, int]]
    who: str
    reason: str


class _BackfillBody(TypedDict):
    key: str
    name: str


class BackfillBody(_BackfillBody, total=False):
    """Of `backfill`."""

    again: bool


class _BegunBackfill(TypedDict):
    name: str
    at: str


class BegunBackfill(_BegunBackfill, total=False):
    """What the lanes of a backfill are called, when it began, and whether destinations get what they have already."""

    again: bool


class PinnedReplay(TypedDict):
    """A replay with a fix that did not come to its end."""

    at: str
    """When it began."""
    body: Mapping[str, Json]
    """Its rows and its fix, as `acquire` has them; none that was refused later than it began."""
    decided: bool
    """Whether some of its rows have the fix."""


class ConfigBody(TypedDict):
    """Of `config`."""

    dlq: DlqSettings


class StopBody(TypedDict, total=False):
    """Of `stop`."""

    reason: str
    force: bool
    within: float


class PauseBody(TypedDict, total=False):
    """Of `pause`: which batch exceeded which limit, and by how much. What follows `reason` is put in when the ledger is
    read."""

    number: int
    limit: str
    reason: str
    lane: str
    at: str


class MergeBody(TypedDict):
    """Of `merge`: the batches whose refused rows came from the fallback into the DLQ, and how many rows that were."""

    plans: Sequence[str]
    rows: int


class RepairBody(TypedDict):
    """Of `repair`."""

    accepted: Sequence[str]


@dataclass(frozen=True, kw_only=True)
class Entry:
    """One line of the ledger. Its `seq` is its only order; `at` is for people."""

    kind: str
    lane: str = ""
    plan: str = ""
    body: Mapping[str, Any] = field(default_factory=dict)
    """As it is stored. `check_shape` gives one that was read its type."""
    seq: int = 0
    """Given by `append`: one more than the entry before."""
    epoch: int = 0
    owner: str = ""
    id: str = field(default_factory=lambda: uuid.uuid4().hex)
    at: str = field(default_factory=lambda: datetime.now(timezone.utc).isoformat(timespec="milliseconds"))
    format: int = FORMAT

    def text(self) -> str:
        """The body as it is stored."""
        return as_text(self.body)


@dataclass(frozen=True, kw_only=True)
class Settled:
    """A batch that is settled, as it is kept when the entries about it are compacted away."""

    lane: str
    number: int
    plan: str
    run: str
    at: str
    span: SpanBody
    counts: SettledCounts


def as_text(value: object) -> str:
    """The value as JSON that any table can keep: half a surrogate pair, in a file's name say, is no UTF-8."""
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    return re.sub("[\ud800-\udfff]", lambda half: f"\\u{ord(half[0]):04x}", text)
