"""The contract of an origin: where rows come from, and how far they have been read."""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal

from origins.batch import Backlog, Batch, Json
from origins.batch_rows import BatchRows
from origins.capabilities import Capability, refuse_ignored
from origins.codec import decode
from origins.lazy import SparkSession
from origins.names import list_given_paths
from origins.problems import refuse_unknown

PLACE = "_wherry_place"
"""The column with the place of a row in what was read: `struct<part string, block bigint, row bigint>`.

`part` is one of `RowSource.parts(batch)`. Inside a part, rows are in the order of (`block`, `row`). The rows of one
block have consecutive numbers.
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


class RowSource(ABC):
    """Gives the rows of planned batches, now or in another process after a crash."""

    name: str | None
    """Its name in reports."""
    repeatable: ClassVar[bool] = True
    """Whether a second read of a span gives the same rows."""

    @abstractmethod
    def fetch(self, spark: SparkSession, batches: Sequence[Batch], *, places: bool = False) -> BatchRows:
        """Return exactly the rows of these batches' spans, with the columns of their schema.

        `FrameRows(frame)` is enough. It gets one batch, or several batches that `FetchesAhead.joins`. The frame has the
        column `PLACE` if `places` is true, and the column `BATCH` if there are several batches. Any runner thread may
        call this, more than once for a batch, and in a process that did not plan the batch.
        """

    def parts(self, batch: Batch) -> Sequence[str]:
        """Return the values of `PLACE.part`, in the order in which their rows count as read."""
        return ("",)


@refuse_unknown
@dataclass(frozen=True, kw_only=True)
class Origin(RowSource):
    """Where rows come from. A frozen dataclass: its fields are its options, in YAML and in Python.

    An origin keeps no progress. `survey` gets the progress and finds what waits. `fetch` reads the rows of a planned
    span, now or in another process after a crash. `capabilities.py` has what only some origins can do.
    """

    binds: ClassVar[frozenset[str]] = frozenset()
    """The fields of `Limits` that this origin obeys."""
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

    def __init_subclass__(cls) -> None:
        """Raise TypeError for a member of a capability that the class does not inherit, since Wherry ignores it."""
        super().__init_subclass__()
        refuse_ignored(cls, Capability)

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
    def place(self) -> str:
        """Return a description of the source for a person. If it changes between runs, a person must confirm it."""
        return type(self).__name__.lower()

    def may_give_several(self) -> bool:
        """Whether the rows that wait in a lane when a run begins may be more than one batch."""
        return self.whole_by not in (f"batch: {self.batch}", f"read: {self.read}")

    @property
    def given_paths(self) -> Sequence[str]:
        """Return the paths of its place as given, if all are relative to the definition; else nothing."""
        paths = getattr(self, "paths", ()) or (getattr(self, "path", None),)
        return list_given_paths(paths)

    def lane_names(self) -> tuple[str, ...]:
        """Return the lanes, in the order in which they are served."""
        return tuple(str(lane) for lane in range(self.lanes))

    @abstractmethod
    def survey(self, spark: SparkSession, progress: Progress) -> Backlog:
        """Find what waits now. Raise `OriginError` if the place does not exist."""

    @abstractmethod
    def columns(self, spark: SparkSession, backlog: Backlog) -> str | None:
        """Return the schema of the rows as Spark's JSON: the definition's, or inferred once from the backlog.

        None if it must be inferred and nothing waits.
        """


def read_count(offset: Json) -> int:
    """Return how many items come before an offset that counts them; None is the lane's beginning."""
    return 0 if offset is None else decode(int, offset)


def check_count(offset: Json, most: int, what: str) -> None:
    """Raise ValueError unless the offset is a number of items from 0 to `most`."""
    if not isinstance(offset, int) or isinstance(offset, bool) or not 0 <= offset <= most:
        raise ValueError(f"expected a number from 0 to {most}, of {what}, got {json.dumps(offset)}")
