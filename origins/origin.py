"""The contract of an origin: where rows come from, and how far they have been read."""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import field
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from origins.batch import Batch, Json, Limits, Span
from origins.batch_rows import BatchRows
from origins.json_shape import check_shape
from origins.names import list_given_paths
from origins.quick_dataclass import dataclass

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PLACE = "_wherry_place"
"""The column that says where a row stood: `struct<part string, block bigint, row bigint>`.

`part` is one of `Origin.parts(batch)`; inside a part rows stand in the order of (`block`, `row`), and the
rows of one block have consecutive numbers.
"""
BATCH = "_wherry_batch"
"""The column that says of which of several batches a row is: its place among them, from 0."""


@dataclass(frozen=True, kw_only=True)
class Progress:
    """What has been carried so far, as the ledger knows it."""

    offsets: Mapping[str, Json] = field(default_factory=dict)
    """For each lane the end of its last settled batch, inclusive."""
    parts: Sequence[Json] = ()
    """The parts of every settled span, of all lanes, in no order."""


@dataclass(frozen=True, kw_only=True)
class Lag:
    """What waits in a lane."""

    rows: int
    seconds: float | None = None
    """How long ago the oldest waiting row was made, by the clock of its maker; None where that is not known."""

    def __str__(self) -> str:
        """In a few words; empty where nothing waits."""
        if not self.rows:
            return ""
        old = "" if self.seconds is None else f", up to {self.seconds:,.0f} s old"
        return f"{self.rows:,} row{'s' * (self.rows != 1)}{old}"


class Backlog(ABC):
    """What waited at an origin at one moment, handed out batch by batch."""

    @abstractmethod
    def take(self, lane: str, start: Json, limits: Limits) -> Span | None:
        """The lane's next batch after `start`, no larger than `limits`; None when the lane is exhausted.

        Called on the one thread that owns progress: must be quick, and must not start a Spark job. One unit
        that is larger than a limit (a file, a row) is a batch of its own.
        """

    def again(self, spark: SparkSession, offsets: Mapping[str, Json]) -> Backlog:
        """What waits now, some time later in the same run, behind `offsets`: for each lane the end of its last
        batch that was planned. Must be quick; starts no Spark job where there is another way.
        """
        return self

    def behind(self, lane: str, start: Json) -> str:
        """What waits in the lane after `start`, in a few words for `status`; empty when that is not known."""
        return ""

    @property
    def notices(self) -> Sequence[str]:
        """What a person should know of what was found and will not be read; a sentence each."""
        return ()


@dataclass(frozen=True, kw_only=True)
class Origin(ABC):
    """Where rows come from. A frozen dataclass: its fields are its options, in YAML and in Python.

    An origin keeps no progress. It is told what was carried (`Progress`), says what waits (`survey`), and
    fetches the rows of a span that was planned (`fetch`), now or in another process after a crash.
    """

    binds: ClassVar[frozenset[str]] = frozenset()
    """The fields of `Limits` that this origin keeps to."""
    repeatable: ClassVar[bool] = True
    """Whether a span that is read twice gives the same rows."""
    keeps_parts: ClassVar[bool] = False
    """Whether what was carried is known by the parts of all spans, and not by offsets alone."""
    regroups: ClassVar[bool] = True
    """Whether `lanes` may change between runs: progress is kept by part, and lanes only group parts."""
    whole_by: ClassVar[str] = ""
    """The option that makes all that waits one batch of its lane, as it is written: `batch: whole`, for example. Empty
    where there is none."""

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
    """The name of its only lane, of an origin that stands for one lane of another; else empty."""

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
        """Whether the schema is inferred from waiting rows, and then pinned."""
        return False

    @property
    def evolves(self) -> bool:
        """Whether rows may come with more than before, so that destinations grow with them."""
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
        """What this origin reads, as a person would name it; when it changes between runs, the run asks first."""
        return type(self).__name__.lower()

    def may_give_several(self) -> bool:
        """Whether what waits in a lane when a run begins may be more than one batch."""
        return self.batch != "whole"

    @property
    def given(self) -> Sequence[str]:
        """The paths of its place as they were given, where all are relative to the definition; else nothing."""
        paths = getattr(self, "paths", ()) or (getattr(self, "path", None),)
        return list_given_paths(paths)

    def is_still(self, spark: SparkSession, offsets: Sequence[Json]) -> bool:
        """Whether what is in its place now is surely what these offsets of its lanes are of, wherever that was; must be
        quick."""
        return False

    def lane_names(self) -> tuple[str, ...]:
        """The lanes, in the order in which they are served."""
        return (self.only_lane,) if self.only_lane else tuple(str(lane) for lane in range(self.lanes))

    def each(self, prefix: str = "") -> Sequence[Origin]:
        """The origins as which it is read: itself; or, where every lane has columns of its own, one for each, called
        as the lane is, behind the prefix."""
        return (self,)

    def check_offset(self, lane: str, offset: Json) -> None:
        """Raises ValueError, `expected …, got …`, unless the lane can be set to this offset by hand."""

    def stands(self, spark: SparkSession, offsets: Mapping[str, Json]) -> bool:
        """Whether there is surely nothing new since all of it was read, up to these offsets of its lanes."""
        return False

    def describe_skipped(self, before: Json, after: Json) -> str:
        """What a lane never carries that a person sets from one offset to another, in a few words; empty where it is
        nothing, or that is not known. Starts no Spark."""
        return ""

    def measure_lag(self, offsets: Mapping[str, Json]) -> Mapping[str, Lag]:
        """What waits in its lanes behind these offsets, for `status` and metrics. It needs no Spark, takes seconds at
        most, and is empty where that is not known so soon."""
        return {}

    @abstractmethod
    def survey(self, spark: SparkSession, progress: Progress) -> Backlog:
        """Look at what waits now. Raises `OriginError` when the place does not exist."""

    @abstractmethod
    def columns(self, spark: SparkSession, backlog: Backlog) -> str | None:
        """The schema of the rows (Spark's JSON), given or inferred once from the backlog; None when nothing
        waits from which it could be told."""

    def evolve_schema(self, spark: SparkSession, backlog: Backlog, schema: str, before: str | None) -> str:
        """The inferred or pinned schema, with waiting changes by the origin's policies;
        `before` is how it had evolved in an earlier run. May read all that waits."""
        return schema

    def complete_schema(self, schema: str) -> str:
        """The schema of the rows: the columns that `columns` gives, and those that the definition adds. The first are
        pinned; the others go with the definition."""
        return schema

    @abstractmethod
    def fetch(self, spark: SparkSession, batches: Sequence[Batch], *, places: bool = False) -> BatchRows:
        """Exactly the rows of these batches' spans, with the columns of their schema. `FrameRows(frame)` is enough.

        It gets one batch, or several for which `joins` is true. The frame has the column `PLACE` with `places`, and
        the column `BATCH` with several batches. The call may come from any runner thread, twice for one batch, and in
        a process that did not plan it.
        """

    def joins(self, batches: Sequence[Batch]) -> bool:
        """Whether `fetch` takes these batches together, which have one schema, and that costs less than one by one."""
        return False

    def check(self, spark: SparkSession, batch: Batch) -> None:
        """Raises `OriginError` when what the batch is read from is not what was planned. Asked right before rows are
        carried that were fetched some time ago; must be quick."""

    def find_changed(self, parts: Sequence[Json]) -> Mapping[str, str]:
        """Of these parts of spans that were carried, those that are there and are not any more what was read, by name,
        and how; as far as that can be told without Spark."""
        return {}

    def make_span(self, spark: SparkSession, part: str) -> Span | None:
        """The rows of one part as it is now, as a span of its own; None where it is missing, or parts have no names."""
        return None

    def list_paths(self, part: str) -> Sequence[str]:
        """The full paths by which a person, or a column of its rows, may name a part."""
        return ()

    def parts(self, batch: Batch) -> Sequence[str]:
        """The values of `PLACE.part` in the order in which their rows count as read."""
        return ("",)

    def committed(self, spark: SparkSession, batch: Batch) -> None:
        """The batch's offset is durable: what it read may be moved, deleted or acknowledged. May come twice."""


def read_count(offset: Json) -> int:
    """How many of something are behind an offset that counts them; None is a lane's beginning."""
    return 0 if offset is None else check_shape(int, offset)


def check_count(offset: Json, most: int, what: str) -> None:
    """Raises ValueError unless the offset says how many of something are behind it."""
    if not isinstance(offset, int) or isinstance(offset, bool) or not 0 <= offset <= most:
        raise ValueError(f"expected a number from 0 to {most}, of {what}, got {json.dumps(offset)}")
