"""What some origins can do besides the contract of `Origin`. An origin that can do it inherits the class too."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal, TypeVar

from origins.batch import Backlog, Batch, Json, Span
from origins.lazy import SparkSession

T = TypeVar("T")


class Capability(ABC):  # noqa: B024 -- its subclasses have the methods
    """Members that Wherry uses only on an origin that inherits their class."""


def refuse_ignored(kind: type, capabilities: type[object]) -> None:
    """Raise TypeError for a member of a capability that the kind does not inherit, since Wherry ignores it."""
    for capability in capabilities.__subclasses__():
        members = {name for name in vars(capability) if not name.startswith("_")}
        if capability not in kind.__mro__ and (ignored := sorted(members.intersection(dir(kind)))):
            base = f"{capability.__module__}.{capability.__name__}"
            raise TypeError(f"{kind.__name__} has `{ignored[0]}`, so it must inherit {base} too.")


class AddsColumns(Capability):
    """An origin whose definition adds columns to those that are read. Wherry pins only the columns that are read."""

    @abstractmethod
    def complete_schema(self, schema: str) -> str:
        """Return the columns that `columns` gave, and the columns that the definition adds."""


def complete_schema(origin: object, schema: str) -> str:
    """Return the columns that are read, and those that the definition of the origin adds."""
    return origin.complete_schema(schema) if isinstance(origin, AddsColumns) else schema


class EvolvesSchema(Capability):
    """An origin whose later rows may have more columns or wider types, so that destinations must grow."""

    @property
    @abstractmethod
    def evolves(self) -> bool:
        """Whether its options allow that."""

    @abstractmethod
    def evolve_schema(self, spark: SparkSession, backlog: Backlog, schema: str, before: str | None) -> str:
        """Return the inferred or pinned schema with the changes that wait. This may read all that waits.

        `before` is the evolved schema of an earlier run.
        """


class FetchesAhead(Capability):
    """An origin whose batches may be fetched before their turn, or several at once."""

    @abstractmethod
    def check(self, spark: SparkSession, batch: Batch) -> None:
        """Raise `OriginError` if the source no longer matches the plan of a batch fetched before. It must be quick."""

    def joins(self, batches: Sequence[Batch]) -> bool:
        """Return whether one `fetch` of these batches of one schema is possible, and cheaper than one per batch."""
        return False


def check_source(origin: object, spark: SparkSession, batch: Batch) -> None:
    """Raise `OriginError` if the origin knows that the source of the batch no longer matches the plan."""
    if isinstance(origin, FetchesAhead):
        origin.check(spark, batch)


class SeesOtherColumns(Capability):
    """An origin that can see columns of waiting rows which its schema lacks."""

    decides_by: ClassVar[str] = ""
    """What a definition may write to decide about such columns; empty if there is nothing."""

    @abstractmethod
    def list_left_out(self, backlog: Backlog, schema: str) -> Sequence[str]:
        """Return such columns, unless the definition decides about them. It must be quick, without a Spark job."""


class KeepsParts(Capability):
    """An origin whose progress is the parts that it has read, such as files, and not only offsets.

    A part is a list that begins with its name. `Progress.parts` has the parts of all settled spans. `lanes` may change
    between runs, because lanes only group parts.
    """

    keeps_parts: ClassVar[Literal[True]] = True

    @abstractmethod
    def find_changed(self, parts: Sequence[Json]) -> Mapping[str, str]:
        """Return how parts among these have changed since they were read, by name. It needs no Spark.

        Parts that are missing now, or that only Spark can see, are left out.
        """

    @abstractmethod
    def make_span(self, spark: SparkSession, part: str) -> Span | None:
        """Return a span of the part as it is now; None if it is missing."""

    @abstractmethod
    def list_paths(self, part: str) -> Sequence[str]:
        """Return the full paths by which a person, or a column of the rows, may name this part."""


class KnowsPlace(Capability):
    """An origin that knows quickly what is at its place."""

    @abstractmethod
    def is_still(self, spark: SparkSession, offsets: Sequence[Json]) -> bool:
        """Return whether these offsets certainly belong to the data there, which may have been elsewhere before."""

    def stands(self, spark: SparkSession, offsets: Mapping[str, Json]) -> bool:
        """Return whether certainly nothing new waits after these offsets of its lanes."""
        return False


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


class MeasuresLag(Capability):
    """An origin that knows without Spark what waits, for `status` and metrics."""

    @abstractmethod
    def measure_lag(self, offsets: Mapping[str, Json]) -> Mapping[str, Lag]:
        """Return the lag of these lanes behind their offsets, as far as it is known in a few seconds."""


class NamesSources(Capability):
    """An origin that knows better than `PLACE.part` where all rows of a span came from."""

    @abstractmethod
    def name_source(self, span: Span) -> str:
        """Return where they came from, for a person."""


def name_source(origin: object, span: Span) -> str:
    """Return where all rows of a span came from, if the origin knows that better than `PLACE.part`; else nothing."""
    return origin.name_source(span) if isinstance(origin, NamesSources) else ""


class ReactsToCommits(Capability):
    """An origin that moves, deletes or acknowledges what every destination has."""

    @property
    def listens(self) -> bool:
        """Whether its options ask for that. A batch then costs a second append to the ledger."""
        return True

    @abstractmethod
    def committed(self, spark: SparkSession, batch: Batch) -> None:
        """React to the batch's offset being durable. This may be called twice for a batch."""


class StandsForSeveral(Capability):
    """An origin that Wherry reads as several origins, one for each lane, because each lane has columns of its own."""

    only_lane: str
    """The name of its only lane, if it is one of these origins; else empty."""

    @abstractmethod
    def each(self: T, prefix: str = "") -> Sequence[T]:
        """Return these origins, or itself if it has one. Their names are the prefix and the lane's name."""


def get_only_lane(origin: object) -> str:
    """Return the name of the origin's only lane, if it is one of several that another origin stands for; else empty."""
    return origin.only_lane if isinstance(origin, StandsForSeveral) else ""


class TakesOffsets(Capability):
    """An origin that knows to which offsets a person may set its lanes."""

    @abstractmethod
    def check_offset(self, lane: str, offset: Json) -> None:
        """Raise ValueError, `expected …, got …`, unless a person may set the lane to this offset."""

    def describe_skipped(self, before: Json, after: Json) -> str:
        """Return in a few words, without Spark, what the lane skips between these offsets; empty if it is unknown."""
        return ""


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
