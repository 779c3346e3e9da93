"""The contract of a destination: it writes rows, and remembers batches."""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

from destinations.capabilities import DestinationCapability, OpenCapability
from destinations.labels import Label
from origins.batch_rows import BatchRows
from origins.capabilities import refuse_ignored
from origins.errors import WherryError
from origins.lazy import Column, F, SparkSession, T
from origins.nack import show_value
from origins.names import list_given_paths
from origins.problems import refuse_unknown
from origins.protection import Protection
from stages.expressions import is_repeatable_sql
from stages.rows import Rows
from stages.stage import Stage

log = logging.getLogger("wherry")


@dataclass(frozen=True, kw_only=True)
class Identity:
    """What was at the destination's place when the run opened it. Later answers about another thing do not count."""

    place: str
    id: str = ""
    """The table's id. Another table at the same place has another id."""
    version: int = 0
    """Its version. A history that begins later proves nothing."""
    copies: Mapping[str, Identity] = field(default_factory=dict, hash=False)
    """The identities of the copies of a DLQ, by name."""


@dataclass(frozen=True, kw_only=True)
class Written:
    """What one write added, as the destination reports it."""

    rows: int | None
    """None if the number is unknown."""
    bytes: int | None = None
    version: int | None = None
    mark: tuple[int, int] | str | None = field(default=None, compare=False)
    """The identity of the version's file, if the write learned it.

    Another file with this number has another identity.
    """


LANE = "{lane}"
"""Stands for the lane's name in a destination's place and name. Each lane then has its own destination."""


class DestinationError(WherryError):
    """The destination's place cannot be used."""

    code = "DESTINATION"
    is_other_place = False
    """Whether the place no longer has what an earlier run wrote to. The run then adds what a person can do."""


def make_other_place_error(place: str, *, gone: bool) -> DestinationError:
    """Return the error for a place that no longer has what an earlier run wrote to."""
    error = DestinationError(
        f"{place} {'is missing' if gone else 'was replaced'}, and this pipeline has delivered to it."
    )
    error.is_other_place = True
    return error


class Unsure(WherryError):
    """A destination can no longer say whether it has a batch."""

    code = "UNSURE"


def make_unsure_error(label: Label, why: str, look: str = "Look for its rows there.") -> Unsure:
    """Return the error for a batch that a destination may have. `look` says where a person finds out."""
    batch = label.batch
    return Unsure(
        f"{label.destination} cannot say whether it has batch {batch.number} of lane {batch.lane}: {why}.",
        hint=f'{look} Then run  wherry run FILE --assume delivered --reason "…"  or  wherry run FILE --assume missing '
        '--reason "…"',
    )


class Misfit(WherryError):
    """The rows and the destination's schema do not fit."""

    code = "MISFIT"


class OpenDestination(ABC):
    """A destination that a run has open.

    It keeps what the run learns about the place; the options never change. A destination that is opened twice is two
    objects that share nothing. `capabilities.py` has what only some of them can do.
    """

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        refuse_ignored(cls, OpenCapability)

    def expects(self, known: Identity) -> None:
        """Remember what an earlier run wrote to.

        `ensure_place` then accepts nothing else at the place, and creates nothing new there. By default this has no
        effect.
        """

    @abstractmethod
    def ensure_place(self, spark: SparkSession, schema: T.StructType | None) -> Identity:
        """Create the place if it is missing, and check that rows of this schema fit.

        A second call has no further effect. `schema` is None if it must be inferred and nothing waits. Raises `Misfit`,
        which names every problem.
        """

    @abstractmethod
    def write(self, spark: SparkSession, rows: BatchRows, labels: Sequence[Label]) -> Written:
        """Write all rows and the labels, or nothing. Several runner threads may call this at the same time.

        `rows.frame()` always has the rows. A destination that can use a cheaper form asks for that form first.
        """

    def find(self, spark: SparkSession, label: Label, identity: Identity) -> Written | None:
        """Return what was written with this label; None if surely nothing was. Raises `Unsure` if it does not know.

        Wherry asks only if it did not see the end of a write. A destination that does not remember answers None.
        """
        return None

    def close(self) -> None:
        """Release what it holds, for example a connection.

        It is the last call, and may be the only call. Other open objects of the same destination stay open.
        """


@refuse_unknown
@dataclass(frozen=True, kw_only=True)
class Destination(ABC):
    """Where rows go. A frozen dataclass: its fields are its options, and it never changes.

    A destination that `remembers` gets every batch once, however often the process dies. Any other destination may
    get the same batch again, with the same label. A kind that keeps nothing while it is open is a
    `StatelessDestination`. `capabilities.py` has what only some destinations can do.
    """

    remembers: ClassVar[bool] = False
    guarantee: ClassVar[str] = "at least once: after a crash Wherry writes the open batch again"
    """The guarantee that `validate` prints, and its reason."""
    name: str | None = None
    """The destination's name in reports, in the ledger and in commands. The default is its kind."""
    stages: Sequence[Stage] = ()
    """Stages for the rows of this destination only. They run after the pipeline's stages."""
    was: str | None = None
    """The destination's earlier name, so that it keeps its history when you rename it."""

    only_lane: str = field(default="", repr=False, metadata={"hidden": True})
    """The only lane whose rows it gets, if it stands for one lane of another destination; else empty."""

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        refuse_ignored(cls, DestinationCapability)
        if OpenDestination not in cls.__mro__ and (OpenCapability in cls.__mro__ or "needs_maintenance" in dir(cls)):
            raise TypeError(f"{cls.__name__} has members that belong to what its `open` returns.")

    @property
    def by_lane(self) -> bool:
        """Whether each lane has its own destination, because the place contains `{lane}`."""
        return LANE in self.place

    def of_lane(self, lane: str) -> Destination:
        """Return the destination of this lane. Its place and its name have the lane's name, with `_` for a slash."""
        word = lane.replace("/", "_")
        changes = {
            name: value.replace(LANE, word)
            for name in ("path", "table", "topic", "name", "was")
            if isinstance(value := getattr(self, name, None), str)
        }
        for name in ("name", "was"):
            given = getattr(self, name)
            if given is not None and LANE not in given:
                changes[name] = f"{given}.{word}"
        return replace(self, **changes, only_lane=lane)  # type: ignore[arg-type]  # it has the options that it has

    def takes(self, lanes: Collection[str]) -> bool:
        """Whether it gets rows of any of these lanes."""
        return not self.only_lane or self.only_lane in lanes

    @property
    def replaces(self) -> bool:
        """Whether a run's first batch replaces what is there.

        That batch is written even if it has no rows. Wherry plans no other batch before it is settled.
        """
        return False

    @property
    def takes_several(self) -> bool:
        """Whether one write may add batches of several lanes, with a label for each batch."""
        return False

    @property
    @abstractmethod
    def place(self) -> str:
        """Where the rows go, as a person would name it. Its last part is the default name."""

    @property
    def given_paths(self) -> Sequence[str]:
        """The path of its place as the definition gives it, if it is relative to the definition; else nothing."""
        return list_given_paths([path]) if (path := getattr(self, "path", None)) else []

    @property
    def again(self) -> str:
        """What happens to rows that it already has, if a person moves offsets back."""
        return "gets the rows again; rows that it has already will be there twice"

    @property
    def ordered(self) -> bool:
        """Whether the result depends on the order of batches, also of batches of different lanes."""
        return False

    def discreet(self, protection: Protection) -> Destination:
        """Return the same destination, which masks protected columns in rows that it shows to people."""
        return self

    def as_copy(self) -> Destination:
        """Return the same destination as a copy of a DLQ. A copy may omit what it cannot store; the DLQ has it."""
        return self

    @abstractmethod
    def open(self) -> OpenDestination:
        """Open the destination for one run. It must be quick and start no Spark; `ensure_place` looks at the place."""

    def describe(self) -> dict[str, Any]:
        """Return the kind and the place, as the ledger stores them."""
        return {"kind": type(self).__name__.lower(), "place": self.place, "given": list(self.given_paths)}

    def is_still(self, spark: SparkSession, known: Identity, newest: str) -> bool:
        """Whether its place surely has what `known` identifies, even if it has moved, and not an older copy.

        An older copy lacks the batch whose `Label.key` is `newest`, if that is not empty.
        """
        return False


@dataclass(frozen=True, kw_only=True)
class StatelessDestination(Destination, OpenDestination):
    """A destination that keeps nothing while it is open. One class is both the destination and the open destination."""

    def open(self) -> OpenDestination:
        return self

    def ensure_place(self, spark: SparkSession, schema: T.StructType | None) -> Identity:
        return Identity(place=self.place)


@dataclass(frozen=True, kw_only=True)
class Rule:
    """One demand of a place that every row must meet."""

    code: str
    holds: str
    """A condition in SQL. The place refuses a row for which it is false or NULL."""
    reason: str
    """Why a row that breaks the rule is refused."""
    shows: Sequence[str] = ()
    """The columns whose values are part of the message."""


@dataclass(frozen=True, kw_only=True)
class Demands(Stage):
    """Refuses the rows that break a rule of the destination's place. The first broken rule gives the code."""

    rules: Sequence[Rule]

    @property
    def repeatable(self) -> bool:
        return all(is_repeatable_sql(rule.holds) for rule in self.rules)

    def apply(self, rows: Rows) -> Rows:
        broken = [(~F.coalesce(F.expr(rule.holds), F.lit(False)), rule) for rule in self.rules]
        code = F.coalesce(*[F.when(breaks, F.lit(rule.code)) for breaks, rule in broken])
        reasons = [F.when(breaks, make_message(rows, rule)) for breaks, rule in broken]
        why = F.struct(code.alias("code"), F.concat_ws("; ", *reasons).alias("message"))
        return rows.refuse(F.when(code.isNotNull(), why))


def find_or_assume(
    opened: OpenDestination, spark: SparkSession, label: Label, identity: Identity, assume: str, *, what: str = "it"
) -> Written | None:
    """Return what the destination has under a label.

    If the destination does not know, the answer of a person counts: `delivered` or `missing`. Without that answer it
    raises `Unsure`.
    """
    try:
        return opened.find(spark, label, identity)
    except Unsure as error:
        if not assume:
            raise
        log.warning("%s  With --assume, %s counts as %s.", error.message, what, assume)
        return Written(rows=None) if assume == "delivered" else None


def make_message(rows: Rows, rule: Rule) -> Column:
    """Return why a row breaks the rule, with the values of the rule's columns."""
    parts = [F.lit(rule.reason)]
    for index, name in enumerate(rule.shows):
        parts += [F.lit(f"{', ' if index else '; '}{name} = "), show_value(rows.column(name))]
    return F.concat(*parts)
