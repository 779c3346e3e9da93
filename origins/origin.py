"""The contract of an origin: where rows come from, and how far they have been read."""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal

from origins.batch import Batch, Json, Limits, Span
from origins.batch_rows import BatchRows
from origins.codec import decode
from origins.lazy import SparkSession
from origins.names import list_given_paths
from origins.problems import refuse_unknown

PLACE = "_wherry_place"
"""The column with the place of a row in what was read: `struct<part string, block bigint, row bigint>`.

`part` is one of `Origin.parts(batch)`. Inside a part, rows are in the order of (`block`, `row`). The rows of one block
have consecutive numbers.
"""
BATCH = "_wherry_batch"
"""The column with the number of the row's batch among several batches, from 0."""


@dataclass(frozen=True, kw_only=True)
class Progress:
    """What the pipeline has processed so far, as the ledger knows it."""

    offsets: Mapping[str, Json] = field(default_factory=dict)
    """The end of the last settled batch of each lane, inclusive."""
    parts: Sequence[Json] = ()
    """The parts of all settled spans of all lanes, in no order."""


@dataclass(frozen=True, kw_only=True)
class Lag:
    """What waits in a lane."""

    rows: int
    seconds: float | None = None
    """The age of the oldest waiting row, by the clock of its producer; None if unknown."""

    def __str__(self) -> str:
        """Return the lag in a few words; empty if nothing waits."""
        if not self.rows:
            return ""
        old = "" if self.seconds is None else f", up to {self.seconds:,.0f} s old"
        return f"{self.rows:,} row{'s' * (self.rows != 1)}{old}"


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


@refuse_unknown
@dataclass(frozen=True, kw_only=True)
class Origin(ABC):
    """Where rows come from. A frozen dataclass: its fields are its options, in YAML and in Python.

    An origin keeps no progress. `survey` gets the progress and finds what waits. `fetch` reads the rows of a planned
    span, now or in another process after a crash.
    """

    binds: ClassVar[frozenset[str]] = frozenset()
    """The fields of `Limits` that this origin obeys."""
    repeatable: ClassVar[bool] = True
    """Whether a second read of a span gives the same rows."""
    keeps_parts: ClassVar[bool] = False
    """Whether progress needs the parts of all settled spans, and not only offsets."""
    regroups: ClassVar[bool] = True
    """Whether `lanes` may change between runs, because progress is kept by part and lanes only group parts."""
    whole_by: ClassVar[str] = ""
    """The option, as people write it, that makes all waiting rows of a lane one batch; empty if there is none.

    For example `batch: whole`.
    """

    name: str | None = None
    """The origin's name in reports and in the names of lanes. The default is its kind."""
    lanes: int = 1
    """Into how many ordered parts the rows are split. Wherry works on several lanes at the same time."""
    read: Literal["new", "whole"] = "new"
    """`new`: each run reads what no run has read yet. `whole`: each run reads everything."""
    batch: Literal["limited", "whole"] = "limited"
    """`limited`: a batch ends at the limits of `run.batch`. `whole`: all waiting rows of a lane are one batch."""
    stages: Sequence[Any] = field(default=(), metadata={"holds": "stage"})
    """What is done to the rows of this origin only, before the pipeline's stages."""

    only_lane: str = field(default="", repr=False, metadata={"hidden": True})
    """The name of its only lane, if this origin stands for one lane of another origin; else empty."""

    def __post_init__(self) -> None:
        if self.read not in ("new", "whole"):
            raise ValueError(f"read: expected new or whole, got {self.read!r}")
        if self.batch not in ("limited", "whole"):
            raise ValueError(f"batch: expected limited or whole, got {self.batch!r}")
        if self.batch == "whole" and self.whole_by != "batch: whole":
            instead = f"; `{self.whole_by}` does" if self.whole_by else ""
            raise ValueError(
                f"batch: expected limited, since it cannot make one batch of all waiting rows here{instead}"
            )
        if self.lanes < 1:
            raise ValueError(f"lanes: expected at least 1, got {self.lanes}")

    @property
    def infers(self) -> bool:
        """Whether Wherry infers the schema from waiting rows, and then pins it."""
        return False

    @property
    def evolves(self) -> bool:
        """Whether later rows may have more columns or wider types, so that destinations must grow."""
        return False

    @property
    def listens(self) -> bool:
        """Whether `committed` does anything. A batch then costs a second append to the ledger."""
        return type(self).committed is not Origin.committed

    @property
    def checks(self) -> bool:
        """Whether `check` does anything. A batch may then be fetched before its turn."""
        return type(self).check is not Origin.check

    @property
    def place(self) -> str:
        """Return a description of the source for a person. If it changes between runs, a person must confirm it."""
        return type(self).__name__.lower()

    def may_give_several(self) -> bool:
        """Whether the rows that wait in a lane when a run begins may be more than one batch."""
        return self.batch != "whole"

    @property
    def given_paths(self) -> Sequence[str]:
        """Return the paths of its place as given, if all are relative to the definition; else nothing."""
        paths = getattr(self, "paths", ()) or (getattr(self, "path", None),)
        return list_given_paths(paths)

    def is_still(self, spark: SparkSession, offsets: Sequence[Json]) -> bool:
        """Return whether these offsets certainly belong to the data at its place now. Must be quick.

        The data may have been elsewhere before.
        """
        return False

    def lane_names(self) -> tuple[str, ...]:
        """Return the lanes, in the order in which they are served."""
        return (self.only_lane,) if self.only_lane else tuple(str(lane) for lane in range(self.lanes))

    def each(self, prefix: str = "") -> Sequence[Origin]:
        """Return the origins that Wherry reads instead of this one. By default that is the origin itself.

        If every lane has separate columns, each lane has an origin. Its name is the prefix and the lane's name.
        """
        return (self,)

    def check_offset(self, lane: str, offset: Json) -> None:
        """Raise ValueError, `expected …, got …`, unless a person may set the lane to this offset."""

    def stands(self, spark: SparkSession, offsets: Mapping[str, Json]) -> bool:
        """Return whether certainly nothing new waits after these offsets of its lanes."""
        return False

    def describe_skipped(self, before: Json, after: Json) -> str:
        """Return in a few words what the lane skips if a person moves it from one offset to the other.

        It is empty if the lane skips nothing, or if that is unknown. It starts no Spark.
        """
        return ""

    def measure_lag(self, offsets: Mapping[str, Json]) -> Mapping[str, Lag]:
        """Return the lag of each lane after these offsets, for `status` and metrics.

        It needs no Spark and takes a few seconds at most. It is empty if the lag is not known by then.
        """
        return {}

    @abstractmethod
    def survey(self, spark: SparkSession, progress: Progress) -> Backlog:
        """Find what waits now. Raise `OriginError` if the place does not exist."""

    @abstractmethod
    def columns(self, spark: SparkSession, backlog: Backlog) -> str | None:
        """Return the schema of the rows as Spark's JSON: the definition's, or inferred once from the backlog.

        None if it must be inferred and nothing waits.
        """

    def evolve_schema(self, spark: SparkSession, backlog: Backlog, schema: str, before: str | None) -> str:
        """Return the inferred or pinned schema with the changes that wait, by the origin's policies.

        `before` is the evolved schema of an earlier run. This may read all that waits.
        """
        return schema

    def complete_schema(self, schema: str) -> str:
        """Return the columns that `columns` gave, and the columns that the definition adds.

        Wherry pins only the first; the others follow the definition.
        """
        return schema

    def list_left_out(self, backlog: Backlog, schema: str) -> Sequence[str]:
        """Return the columns of waiting rows that the schema lacks, unless the definition decides about such columns.

        It must be quick, and starts no Spark job.
        """
        return ()

    @abstractmethod
    def fetch(self, spark: SparkSession, batches: Sequence[Batch], *, places: bool = False) -> BatchRows:
        """Return exactly the rows of these batches' spans, with the columns of their schema.

        `FrameRows(frame)` is enough. It gets one batch, or several batches for which `joins` is true. The frame has the
        column `PLACE` if `places` is true, and the column `BATCH` if there are several batches. Any runner thread may
        call this, more than once for a batch, and in a process that did not plan the batch.
        """

    def joins(self, batches: Sequence[Batch]) -> bool:
        """Return whether one `fetch` of these batches is possible, and cheaper than one per batch.

        The batches have the same schema.
        """
        return False

    def check(self, spark: SparkSession, batch: Batch) -> None:
        """Raise `OriginError` if the source of the batch no longer matches the plan.

        Wherry calls this right before it processes rows that were fetched some time ago. It must be quick.
        """

    def find_changed(self, parts: Sequence[Json]) -> Mapping[str, str]:
        """Return the parts, among these settled ones, that exist and have changed since they were read.

        The result maps each name to how the part changed. It has only what can be found without Spark.
        """
        return {}

    def make_span(self, spark: SparkSession, part: str) -> Span | None:
        """Return a span of the part as it is now; None if the part is missing, or if parts have no names."""
        return None

    def list_paths(self, part: str) -> Sequence[str]:
        """Return the full paths by which a person, or a column of the rows, may name this part."""
        return ()

    def parts(self, batch: Batch) -> Sequence[str]:
        """Return the values of `PLACE.part`, in the order in which their rows count as read."""
        return ("",)

    def name_source(self, span: Span) -> str:
        """Return where all rows of a span came from, if a person knows that better than `PLACE.part`; else nothing."""
        return ""

    def committed(self, spark: SparkSession, batch: Batch) -> None:
        """React to the batch's offset being durable. The origin may now move, delete or acknowledge what it read.

        This may be called twice for a batch.
        """


def read_count(offset: Json) -> int:
    """Return how many items come before an offset that counts them; None is the lane's beginning."""
    return 0 if offset is None else decode(int, offset)


def check_count(offset: Json, most: int, what: str) -> None:
    """Raise ValueError unless the offset is a number of items from 0 to `most`."""
    if not isinstance(offset, int) or isinstance(offset, bool) or not 0 <= offset <= most:
        raise ValueError(f"expected a number from 0 to {most}, of {what}, got {json.dumps(offset)}")


@dataclass(frozen=True, kw_only=True)
class Need:
    """One thing that was looked for."""

    state: Literal["ok", "problem", "not needed"]
    found: str
    advice: str = ""
    """What to do; empty if nothing needs to be done."""


class Examinable(ABC):
    """An origin or destination that can look, without Spark, whether what it needs is there."""

    @abstractmethod
    def examine(self, jars: Sequence[str]) -> Iterator[Need]:
        """Yield what was looked for. `jars` are the packages and files that the definition gives to Spark."""
