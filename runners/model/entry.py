"""The entries of the ledger. They record in one sequence what was planned, decided and settled."""

from __future__ import annotations

import json
import re
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timezone
from typing import Any

from origins.batch import Json, Span
from origins.codec import LEFT_OUT
from runners.model.nack_window import DlqSettings
from runners.model.planned_batch import SettledCounts

FORMAT = 5
"""The format of entries and snapshots that this version writes. It is also the newest format that it reads."""


@dataclass(frozen=True, kw_only=True)
class OriginBody:
    """An origin at the time when a run opened."""

    lanes: Sequence[str] = ()
    place: str = ""
    given: Sequence[str] | None = field(default=None, metadata=LEFT_OUT)
    """None if an older version recorded the origin."""
    schema: str | None = None
    left_out: Sequence[str] = field(default=(), metadata=LEFT_OUT)
    """The columns of its rows that the schema leaves out, unless the definition decides about them."""


@dataclass(frozen=True, kw_only=True)
class IdentityBody:
    """The facts by which a destination is asked whether it has a batch."""

    place: str = ""
    id: str = ""
    version: int = 0


@dataclass(frozen=True, kw_only=True)
class DestinationBody(IdentityBody):
    """A destination at the time when a run opened."""

    kind: str = ""
    given: Sequence[str] | None = field(default=None, metadata=LEFT_OUT)
    """None if an older version recorded the destination."""
    copy: IdentityBody | None = field(default=None, metadata=LEFT_OUT)
    """The only copy of a DLQ, if an older version recorded it."""
    copies: Mapping[str, IdentityBody] = field(default_factory=dict, metadata=LEFT_OUT)


@dataclass(frozen=True, kw_only=True)
class OpenBody:
    """The body of `open`: the definition, the layout, and the facts about each destination."""

    pipeline: str = ""
    run: str = ""
    definition: str = ""
    hash: str | None = field(default=None, metadata=LEFT_OUT)
    salts: Mapping[str, Sequence[str]] = field(default_factory=dict)
    state: str | None = field(default="", metadata=LEFT_OUT)
    """Empty if an older version recorded the opening."""
    origins: Mapping[str, OriginBody] = field(default_factory=dict)
    destinations: Mapping[str, DestinationBody] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class ProcessBody:
    """A process of one host."""

    pid: int = 0
    started: str = ""


@dataclass(frozen=True, kw_only=True)
class HostBody(ProcessBody):
    """A process and the host on which it runs."""

    host: str = ""
    boot: str = ""


@dataclass(frozen=True, kw_only=True)
class OwnerBody(HostBody):
    """The body of `acquire`: a run that owns the pipeline.

    The fields after `joins` are added when the ledger is read.
    """

    pipeline: str = ""
    run: str = ""
    jvm: ProcessBody | None = None
    ownership: str = ""
    lock: str | None = None
    lock_file: str | None = None
    take_over: str = ""
    replay: Json = None
    ruling: Json = None
    finish: bool = False
    assignment: str = "single"
    hash: str | None = field(default=None, metadata=LEFT_OUT)
    """None if an older version recorded the owner."""
    follow: bool = False
    job: Mapping[str, str] = field(default_factory=dict, metadata=LEFT_OUT)
    lease: float | None = None
    joins: bool = False
    owner: str = field(default="", metadata=LEFT_OUT)
    at: str = field(default="", metadata=LEFT_OUT)
    heard: int = field(default=0, metadata=LEFT_OUT)
    heard_at: str = field(default="", metadata=LEFT_OUT)
    ready: bool = field(default=False, metadata=LEFT_OUT)


@dataclass(frozen=True, kw_only=True)
class RenewBody:
    """The body of `renew`."""

    lease: float | None
    ready: bool | None = field(default=None, metadata=LEFT_OUT)


@dataclass(frozen=True, kw_only=True)
class TakeBody:
    """The body of `take`."""

    lanes: Sequence[str]


@dataclass(frozen=True, kw_only=True)
class GiveBody:
    """The body of `give`."""

    lanes: Sequence[str]
    done: bool


@dataclass(frozen=True, kw_only=True)
class OustBody:
    """The body of `oust`."""

    owners: Sequence[str]


@dataclass(frozen=True, kw_only=True)
class EndedBody:
    """What is read of the body of `release`, which is the report of the run that ended."""

    status: str = ""


@dataclass(frozen=True, kw_only=True)
class RestBody:
    """The body of `rest`."""

    tried: int
    since: str


@dataclass(frozen=True, kw_only=True)
class WaiveBody:
    """The body of `waive`."""

    forget: Sequence[str] = ()
    reason: str = ""


@dataclass(frozen=True, kw_only=True)
class OffsetBody:
    """The offset that a lane is set to."""

    offset: Json


@dataclass(frozen=True, kw_only=True)
class SetBody:
    """The body of `set`."""

    lanes: Mapping[str, OffsetBody]
    forgotten: tuple[tuple[str, int, int], ...] = field(default=(), metadata=LEFT_OUT)
    who: str = field(default="", metadata=LEFT_OUT)
    reason: str = field(default="", metadata=LEFT_OUT)


@dataclass(frozen=True, kw_only=True)
class BackfillBody:
    """The body of `backfill`."""

    key: str
    name: str
    again: bool = True
    """An older version left no rows out, and recorded no `again`."""


@dataclass(frozen=True, kw_only=True)
class BegunBackfill:
    """The name of a backfill's lanes, when it began, and whether destinations get rows that they already have."""

    name: str
    at: str
    again: bool = True


@dataclass(frozen=True, kw_only=True)
class PinnedReplay:
    """A replay with a fix that has not finished."""

    at: str
    """When it began."""
    body: Mapping[str, Json]
    """Its rows and its fix, as in `acquire`, without rows that were refused after it began."""
    decided: bool
    """Whether some of its rows have the fix."""


@dataclass(frozen=True, kw_only=True)
class ConfigBody:
    """The body of `config`."""

    dlq: DlqSettings


@dataclass(frozen=True, kw_only=True)
class StopBody:
    """The body of `stop`."""

    reason: str = "asked to stop"
    force: bool = field(default=False, metadata=LEFT_OUT)
    within: float | None = field(default=None, metadata=LEFT_OUT)


@dataclass(frozen=True, kw_only=True)
class PauseBody:
    """The body of `pause`: which batch exceeded which limit, and by how much.

    The fields after `reason` are added when the ledger is read.
    """

    number: int = 0
    limit: str = ""
    reason: str = ""
    lane: str = field(default="", metadata=LEFT_OUT)
    at: str = field(default="", metadata=LEFT_OUT)


@dataclass(frozen=True, kw_only=True)
class MergeBody:
    """The body of `merge`.

    It lists the batches whose refused rows moved from the fallback to the DLQ, and counts the rows.
    """

    plans: Sequence[str]
    rows: int


@dataclass(frozen=True, kw_only=True)
class RepairBody:
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
