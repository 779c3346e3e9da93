"""The contract of an origin: where rows come from, and how far they have been read."""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from origins.batch import JSON, Batch, Limits, Span
from origins.given_path import list_given_paths

if TYPE_CHECKING:
    from pathlib import Path

    import pyarrow
    from pyspark.sql import DataFrame, SparkSession

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

    offsets: Mapping[str, JSON] = field(default_factory=dict)
    """For each lane the end of its last settled batch, inclusive."""
    parts: Sequence[JSON] = ()
    """The parts of every settled span, of all lanes, in no order."""


class Backlog(ABC):
    """What waited at an origin at one moment, handed out batch by batch."""

    @abstractmethod
    def take(self, lane: str, start: JSON, limits: Limits) -> Span | None:
        """The lane's next batch after `start`, no larger than `limits`; None when the lane is exhausted.

        Called on the one thread that owns progress: must be quick, and must not start a Spark job. One unit
        that is larger than a limit (a file, a row) is a batch of its own.
        """

    def again(self, spark: SparkSession, offsets: Mapping[str, JSON]) -> Backlog:
        """What waits now, some time later in the same run, behind `offsets`: for each lane the end of its last
        batch that was planned. Must be quick; starts no Spark job where there is another way.
        """
        return self

    def behind(self, lane: str, start: JSON) -> str:
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
    foresees: ClassVar[bool] = False
    """Whether `fetch` may be called for a batch while the one before it is still carried, in the same session; then
    `check` is asked in time whether the batch is as it was planned."""
    regroups: ClassVar[bool] = True
    """Whether `lanes` may change between runs: progress is kept by part, and lanes only group parts."""
    whole_by: ClassVar[str] = ""
    """The option that makes all that waits one batch of its lane, as it is written: `batch: whole`, for example. Empty
    where there is none."""

    name: str | None = None
    lanes: int = 1
    read: Literal["new", "whole"] = "new"
    """`new`: what was not carried yet; `whole`: all of it in every run."""
    batch: Literal["limited", "whole"] = "limited"
    """`limited`: a batch ends at the limits; `whole`: all that waits in a lane is one batch."""
    stages: Sequence[Any] = field(default=(), metadata={"holds": "stage"})
    """What is done to the rows of this origin only, before the pipeline's stages."""

    only_lane: str = field(default="", init=False, repr=False)
    """The name of its only lane, of an origin that stands for one lane of another; else empty."""

    def __post_init__(self) -> None:
        if self.read not in ("new", "whole"):
            raise ValueError(f"read: expected new or whole, got {self.read!r}")
        if self.batch not in ("limited", "whole"):
            raise ValueError(f"batch: expected limited or whole, got {self.batch!r}")
        if self.batch == "whole" and self.whole_by != "batch: whole":
            instead = f"; `{self.whole_by}` does" if self.whole_by else ""
            raise ValueError(f"batch: expected limited, since it cannot make all that waits one batch here{instead}")
        if self.lanes < 1:
            raise ValueError(f"lanes: expected at least 1, got {self.lanes}")

    @property
    def infers(self) -> bool:
        """Whether the schema is told from what waits, so that it is pinned once it was told."""
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

    def is_still(self, spark: SparkSession, offsets: Sequence[JSON]) -> bool:
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

    def check_offset(self, lane: str, offset: JSON) -> None:
        """Raises ValueError, `expected …, got …`, unless the lane can be set to this offset by hand."""

    def stands(self, spark: SparkSession, offsets: Mapping[str, JSON]) -> bool:
        """Whether there is surely nothing new since all of it was read, up to these offsets of its lanes."""
        return False

    def skipped(self, before: JSON, after: JSON) -> str:
        """What a lane never carries that a person sets from one offset to another, in a few words; empty where it is
        nothing, or that is not known. Starts no Spark."""
        return ""

    @abstractmethod
    def survey(self, spark: SparkSession, progress: Progress) -> Backlog:
        """Look at what waits now. Raises `OriginError` when the place does not exist."""

    @abstractmethod
    def columns(self, spark: SparkSession, backlog: Backlog) -> str | None:
        """The schema of the rows (Spark's JSON), given or inferred once from the backlog; None when nothing
        waits from which it could be told."""

    def evolved(self, spark: SparkSession, backlog: Backlog, schema: str, before: str | None) -> str:
        """The schema that `columns` told, or that was pinned, with what waits beyond it, by the origin's policies;
        `before` is how it had evolved in an earlier run. May read all that waits."""
        return schema

    def completed(self, schema: str) -> str:
        """The schema of the rows, where `columns` told what is read: with what the definition adds beside it. What
        is told is pinned; what is added goes with the definition."""
        return schema

    @abstractmethod
    def fetch(self, spark: SparkSession, batch: Batch, *, places: bool = False) -> DataFrame:
        """Exactly the rows of `batch.span`, lazily, with the columns of `batch.schema`; with `places` also
        the column `PLACE`.

        May be called from any runner thread, twice for one batch, and by a process that did not plan it.
        """

    def fetch_several(self, spark: SparkSession, batches: Sequence[Batch]) -> DataFrame | None:
        """What `fetch` gives for each of these batches, which have one schema, in a frame that costs less to plan than
        all of theirs, with `BATCH` beside every row; None where each must be fetched for itself."""
        return None

    def fetch_here(self, spark: SparkSession, batch: Batch) -> pyarrow.Table | None:
        """What `fetch` gives for the batch, read in this process, with the types that Spark's rows have in Arrow; None
        where Spark has to read them: they are many, or it might refuse one. Starts no Spark job."""
        return None

    def files_here(self, spark: SparkSession, batch: Batch) -> Mapping[str, Path]:
        """The parquet files of this machine in which just the rows lie that `fetch` gives, with just its columns, by
        their parts; the n-th row of a file, from 0, has `PLACE.block` 0 and `PLACE.row` n. None where they lie
        otherwise, or this process might read one of them as another. Starts no Spark job."""
        return {}

    def count(self, batch: Batch) -> int | None:
        """How many rows `fetch` gives for the batch, where that stands beside them; None where they would have to be
        read for it. Must be quick."""
        return None

    def check(self, spark: SparkSession, batch: Batch) -> None:
        """Raises `OriginError` when what the batch is read from is not what was planned. Asked right before rows are
        carried that were fetched some time ago; must be quick."""

    def changed(self, parts: Sequence[JSON]) -> Mapping[str, str]:
        """Of these parts of spans that were carried, those that are there and are not any more what was read, by name,
        and how; as far as that can be told without Spark."""
        return {}

    def parts(self, batch: Batch) -> Sequence[str]:
        """The values of `PLACE.part` in the order in which their rows count as read."""
        return ("",)

    def committed(self, spark: SparkSession, batch: Batch) -> None:
        """The batch's offset is durable: what it read may be moved, deleted or acknowledged. May come twice."""


def check_count(offset: JSON, most: int, what: str) -> None:
    """Raises ValueError unless the offset says how many of something are behind it."""
    if not isinstance(offset, int) or isinstance(offset, bool) or not 0 <= offset <= most:
        raise ValueError(f"expected a number from 0 to {most}, of {what}, got {json.dumps(offset)}")
