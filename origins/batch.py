"""A batch: the rows of one lane after `start` up to and including `end`. A batch number always means the same span."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, TypeAlias

from origins.codec import LEFT_OUT, UNSTORED, named
from origins.lazy import SparkSession

Json: TypeAlias = "bool | int | float | str | Sequence[Json] | Mapping[str, Json] | None"
"""A value that `json.dumps` accepts. An offset is such a value, and only its origin can interpret it."""
JSON: TypeAlias = Any
"""A part of a document that a command prints. The command's documentation describes its shape."""


@dataclass(frozen=True, kw_only=True)
class Limits:
    """How much one batch may hold. None means no limit. `Origin.binds` names the limits that an origin applies."""

    rows: int | None = None
    bytes: int | None = None
    files: int | None = None


@dataclass(frozen=True, kw_only=True)
class Span:
    """The part of a lane that an origin planned as the next batch.

    It has all that is needed to read exactly these rows again.
    """

    start: Json
    """The offset before the first row, exclusive; None at the lane's beginning."""
    end: Json
    """The offset of the last row, inclusive."""
    parts: tuple[Json, ...] = ()
    """The sources of the rows, in the order of the rows (files with size and time). The ledger records them."""
    label: str = ""
    """The span in words for a person."""
    full: bool = field(default=True, compare=False, metadata=UNSTORED)
    """Whether the batch is complete. Without a limit it may grow while the run waits for more."""
    bytes: int | None = field(default=None, compare=False, metadata=UNSTORED)
    """The approximate size of the rows in bytes, uncompressed; None if unknown."""


class Backlog(ABC):
    """The rows that waited at an origin at one moment, divided into batches."""

    @abstractmethod
    def take(self, lane: str, start: Json, limits: Limits) -> Span | None:
        """Return the lane's next batch after `start`, no larger than `limits`; None when the lane is exhausted.

        The one thread that owns progress calls this. It must be quick, and must not start a Spark job. A unit (a file
        or a row) that is larger than a limit is a batch of its own.
        """

    def again(self, spark: SparkSession, offsets: Mapping[str, Json]) -> Backlog:
        """Return what waits now, later in the same run.

        `offsets` has the end of each lane's last planned batch. It must be quick, and starts a Spark job only if there
        is no other way.
        """
        return self

    @property
    def notices(self) -> Sequence[str]:
        """Return what the origin found and will not read: one sentence each, for people."""
        return ()


@dataclass(frozen=True, kw_only=True)
class Batch:
    """A planned batch. The origin reads it, and stages and destinations refer to it."""

    pipeline: str = field(default="", metadata=UNSTORED)
    origin: str
    lane: str
    number: int
    plan: str
    """The id of the plan: random and never reused. Destinations remember it."""
    run: str
    span: Span
    schema: str
    """The schema of the rows as read, pinned when the batch was planned (Spark's JSON)."""
    time: datetime
    """`:batch_time`, the clock for expressions: when the batch was planned, in UTC."""
    first: bool = False
    """Whether it is the first batch of a load. A run begins a load if all earlier rows were carried before it. A run
    that continues after a crash or a stop begins none."""
    definition: str = field(default="", repr=False)
    """The hash of the definition that planned it."""
    job: Mapping[str, str] = field(default_factory=dict, hash=False, metadata=LEFT_OUT)
    """The ids of the job in which it was planned, as `PipelineSpec.job`."""
    reads: str = field(default="", metadata=LEFT_OUT)
    """A digest of the place that its origin reads. Another pipeline that reads there has the same digest."""
    replaces: Mapping[str, str] = field(default_factory=dict, hash=False, metadata={**LEFT_OUT, **named("instead")})
    """The condition for the rows that the batch's rows replace in the same commit, by destination name."""
