"""What the ledger holds: entries that say what was planned, decided and settled, in one sequence."""

from __future__ import annotations

import json
import re
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timezone

from origins.batch import JSON

FORMAT = 3
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
    "repair",
    "snapshot",
)


@dataclass(frozen=True, kw_only=True)
class Entry:
    """One line of the ledger. Its `seq` is its only order; `at` is for people."""

    kind: str
    lane: str = ""
    plan: str = ""
    body: Mapping[str, JSON] = field(default_factory=dict)
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
    span: Mapping[str, JSON]
    """`{"start", "end", "parts", "label"}`"""
    counts: Mapping[str, JSON]


def as_text(value: JSON) -> str:
    """The value as JSON that any table can keep: half a surrogate pair, in a file's name say, is no UTF-8."""
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    return re.sub("[\ud800-\udfff]", lambda half: f"\\u{ord(half[0]):04x}", text)
