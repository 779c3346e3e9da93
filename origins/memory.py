"""`memory`: rows from a test's script, with the points at which something happens."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, TypeAlias

from origins.batch import Backlog, Batch, Json, Limits, Span
from origins.batch_rows import FrameRows
from origins.capabilities import TakesOffsets
from origins.errors import OriginError
from origins.lazy import F, SparkSession, T
from origins.names import HIDDEN
from origins.origin import PLACE, Origin, Progress, check_count, read_count
from origins.schema import check_schema, parse_schema


class Crashed(Exception):
    """The error that a `Crash` raises."""


@dataclass(eq=False)
class Crash:
    """A point at which the run crashes, once in a process. Everything before it was planned, and nothing after it."""

    happened: bool = field(default=False, init=False)


@dataclass(frozen=True)
class End:
    """A point at which the run ends, as if no more rows were waiting. The next run continues after it."""


@dataclass(eq=False)
class Pause:
    """A point at which the lane pauses. For `seconds` after the run reaches it, no more rows wait."""

    seconds: float
    until: float | None = field(default=None, init=False)


Item: TypeAlias = Mapping[str, Any] | Crash | End | Pause


@dataclass(frozen=True, kw_only=True)
class Memory(Origin, TakesOffsets):
    """Reads rows from a list, for tests. In Python the list may also hold `Crash()`, `End()` and `Pause(seconds)`.

    An offset is the number of items that were read in its lane. A key that a row lacks is NULL.

    Example:
        memory:
          items:
            - {id: 1, amount: "19.90"}
            - {id: 2, amount: "free"}
          schema: "id long, amount string"
    """

    binds: ClassVar[frozenset[str]] = frozenset({"rows"})
    whole_by: ClassVar[str] = "batch: whole"

    items: Sequence[Item] | Mapping[str, Sequence[Item]] = ()
    """The rows, or for each lane its rows by the lane's name."""
    schema: str | Mapping[str, str]
    """The columns and their types."""
    clock: Callable[[], float] = field(default=time.monotonic, metadata={"hidden": True})
    """The clock for pauses, in seconds since some moment."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.lanes != 1:
            raise ValueError("lanes: expected 1; for several lanes, give `items` as a mapping from lanes to rows")
        if any("/" in lane or not lane for lane in self.lane_names()):
            raise ValueError(f"items: expected names of lanes without /, got {', '.join(self.lane_names())}")

    def may_give_several(self) -> bool:
        paused = any(not isinstance(item, Mapping) for lane in self.lane_names() for item in self.script(lane))
        return paused or super().may_give_several()

    def lane_names(self) -> tuple[str, ...]:
        return tuple(self.items) if isinstance(self.items, Mapping) else ("0",)

    def check_offset(self, lane: str, offset: Json) -> None:
        check_count(offset, len(self.script(lane)), "items of the script that follow")

    def survey(self, spark: SparkSession, progress: Progress) -> Script:
        return Script(self, {lane: read_count(progress.offsets.get(lane)) for lane in self.lane_names()})

    def columns(self, spark: SparkSession, backlog: Backlog) -> str | None:
        schema = check_schema(parse_schema(spark, self.schema, "memory"), "memory")
        known = {name.lower() for name in schema.names}
        for lane in self.lane_names():
            for item in self.script(lane):
                if isinstance(item, Mapping) and (other := [key for key in item if key.lower() not in known]):
                    raise OriginError(
                        f"A row of memory has {other[0]!r}, which its schema does not have: {dict(item)}",
                        hint="Add the column to the schema, or take the key out of the row.",
                    )
        return str(schema.json())

    def fetch(self, spark: SparkSession, batches: Sequence[Batch], *, places: bool = False) -> FrameRows:
        (batch,) = batches
        columns = T.StructType.fromJson(json.loads(batch.schema)).fields
        row = HIDDEN + "row"
        start, end = read_count(batch.span.start), read_count(batch.span.end)
        rows = [
            (*(_get_value(item, column.name) for column in columns), index)
            for index, item in enumerate(self.script(batch.lane)[start:end], start)
            if isinstance(item, Mapping)
        ]
        frame = spark.createDataFrame(rows, T.StructType([*columns, T.StructField(row, T.LongType())]))
        if places:
            place = F.struct(F.lit("").alias("part"), F.lit(0).cast("bigint").alias("block"), F.col(row).alias("row"))
            frame = frame.withColumn(PLACE, place)
        return FrameRows(frame.drop(row))

    def script(self, lane: str) -> Sequence[Item]:
        """Return the items of one lane."""
        return self.items[lane] if isinstance(self.items, Mapping) else self.items


@dataclass(frozen=True)
class Script(Backlog):
    """The scripts at the start of one run."""

    memory: Memory
    begun: Mapping[str, int]

    def take(self, lane: str, start: Json, limits: Limits) -> Span | None:
        script = self.memory.script(lane)
        begin = at = read_count(start)
        while at < len(script) and not isinstance(script[at], Mapping):
            if not self._can_pass(lane, begin, at):
                return None
            at += 1
        first = at
        while at < len(script) and isinstance(script[at], Mapping) and at - first != limits.rows:
            at += 1
        return Span(start=start, end=at, label=f"items {begin + 1} to {at}") if at > first else None

    def _can_pass(self, lane: str, start: int, at: int) -> bool:
        """Return whether the lane continues after an item that is not a row.

        It continues after an `End` before its first row, since that `End` stopped an earlier run.
        """
        item = self.memory.script(lane)[at]
        if isinstance(item, Crash) and not item.happened:
            item.happened = True
            raise Crashed(f"item {at + 1} of lane {lane} is Crash()")
        if isinstance(item, Pause):
            if item.until is None:
                item.until = self.memory.clock() + item.seconds
            return self.memory.clock() >= item.until
        return not isinstance(item, End) or start == self.begun[lane]


def _get_value(row: Mapping[str, Any], name: str) -> Any:
    return next((value for key, value in row.items() if key.lower() == name.lower()), None)
