"""The entries of the ledger. They record in one sequence what was planned, decided and settled."""

from __future__ import annotations

import json
import re
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timezone
from typing import Any, TypedDict

from origins.batch import Json, Span
from runners.model.nack_window import DlqSettings
from runners.model.planned_batch import SettledCounts

FORMAT = 5
"""The format of entries and snapshots that this version writes. It is also the newest format that it reads."""


class OriginBody(TypedDict, total=False):
    """An origin at the time when a run opened."""

    lanes: Sequence[str]
    place: str
    given: Sequence[str]
    schema: str | None
    left_out: Sequence[str]
    """The columns of its rows that the schema leaves out, unless the definition decides about them."""


class IdentityBody(TypedDict, total=False):
    """The facts by which a destination is asked whether it has a batch."""

    place: str
    id: str
    version: int


class DestinationBody(IdentityBody, total=False):
    """A destination at the time when a run opened."""

    kind: str
    given: Sequence[str]
    copy: IdentityBody | None
    """The only copy of a DLQ, if an older version recorded it."""
    copies: Mapping[str, IdentityBody]


class OpenBody(TypedDict, total=False):
    """The body of `open`: the definition, the layout, and the facts about each destination."""

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
    """A process and the host on which it runs."""

    host: str
    boot: str


class OwnerBody(HostBody, total=False):
    """The body of `acquire`: a run that owns the pipeline.

    The fields after `joins` are added when the ledger is read.
    """

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
    job: Mapping[str, str]
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
    """The body of `renew`."""

    ready: bool


class TakeBody(TypedDict):
    """The body of `take`."""

    lanes: Sequence[str]


class GiveBody(TypedDict):
    """The body of `give`."""

    lanes: Sequence[str]
    done: bool


class OustBody(TypedDict):
    """The body of `oust`."""

    owners: Sequence[str]


class ErrorBody(TypedDict, total=False):
    """Why a run failed."""

    lane: str | None


class EndedBody(TypedDict, total=False):
    """The body of `release`: the report of the run that ended. Only these fields are read again."""

    run: str
    status: str
    reason: str
    error: ErrorBody | None
    at: str


class RestBody(TypedDict):
    """The body of `rest`."""

    tried: int
    since: str


class WaiveBody(TypedDict, total=False):
    """The body of `waive`."""

    forget: Sequence[str]
    reason: str


class OffsetBody(TypedDict):
    """The offset that a lane is set to."""

    offset: Json


class _SetBody(TypedDict):
    lanes: Mapping[str, OffsetBody]


class SetBody(_SetBody, total=False):
    """The body of `set`."""

    forgotten: Sequence[tuple[str, int, int]]
    who: str
    reason: str


class _BackfillBody(TypedDict):
    key: str
    name: str


class BackfillBody(_BackfillBody, total=False):
    """The body of `backfill`."""

    again: bool


class _BegunBackfill(TypedDict):
    name: str
    at: str


class BegunBackfill(_BegunBackfill, total=False):
    """The name of a backfill's lanes, when it began, and whether destinations get rows that they already have."""

    again: bool


class PinnedReplay(TypedDict):
    """A replay with a fix that has not finished."""

    at: str
    """When it began."""
    body: Mapping[str, Json]
    """Its rows and its fix, as in `acquire`, without rows that were refused after it began."""
    decided: bool
    """Whether some of its rows have the fix."""


class ConfigBody(TypedDict):
    """The body of `config`."""

    dlq: DlqSettings


class StopBody(TypedDict, total=False):
    """The body of `stop`."""

    reason: str
    force: bool
    within: float


class PauseBody(TypedDict, total=False):
    """The body of `pause`: which batch exceeded which limit, and by how much.

    The fields after `reason` are added when the ledger is read.
    """

    number: int
    limit: str
    reason: str
    lane: str
    at: str


class MergeBody(TypedDict):
    """The body of `merge`.

    It lists the batches whose refused rows moved from the fallback to the DLQ, and counts the rows.
    """

    plans: Sequence[str]
    rows: int


class RepairBody(TypedDict):
    """The body of `repair`."""

    accepted: Sequence[str]


@dataclass(frozen=True, kw_only=True)
class Entry:
    """One line of the ledger. Only `seq` orders entries. `at` is for people."""

    kind: str
    lane: str = ""
    plan: str = ""
    body: Mapping[str, Any] = field(default_factory=dict)
    """The body as it is stored. For a body that was read, `decode` gives the type."""
    seq: int = 0
    """The entry's number, which `append` assigns: one more than that of the entry before."""
    epoch: int = 0
    owner: str = ""
    id: str = field(default_factory=lambda: uuid.uuid4().hex)
    at: str = field(default_factory=lambda: datetime.now(timezone.utc).isoformat(timespec="milliseconds"))
    format: int = FORMAT


@dataclass(frozen=True, kw_only=True)
class Settled:
    """A settled batch, in the form that remains after its entries are compacted."""

    lane: str
    number: int
    plan: str
    run: str
    at: str
    span: Span
    counts: SettledCounts


def as_text(value: object) -> str:
    """Return the value as JSON that any table can store.

    Half of a surrogate pair is escaped, since it is not valid UTF-8. A file's name may contain one.
    """
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    return re.sub("[\ud800-\udfff]", lambda half: f"\\u{ord(half[0]):04x}", text)
