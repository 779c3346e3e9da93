"""The contract of a destination: where rows go, and what it remembers of them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, ClassVar

from destinations.account import Account
from destinations.deadline import Deadline
from origins.batch import JSON, Batch
from origins.errors import WherryError
from origins.given_path import list_given_paths
from origins.protection import Protection
from stages.stage import Stage

if TYPE_CHECKING:
    from pathlib import Path

    import pyarrow
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType


@dataclass(frozen=True, kw_only=True)
class Label:
    """What a destination writes beside a batch's rows, in the same atomic write, so that it can be asked later."""

    batch: Batch
    destination: str
    few: bool = False
    """Whether its rows surely fit into this process."""
    deadline: Deadline | None = field(default=None, compare=False)
    """Until when the write may begin; it is not written. None: for ever."""

    @property
    def key(self) -> str:
        """What is compared: the plan's id and the destination's name. All else in a tag is for people."""
        return f"{self.batch.plan}/{self.destination}"


@dataclass(frozen=True, kw_only=True)
class Identity:
    """Which thing a destination's place was when the run opened, so that a later answer can be trusted."""

    place: str
    id: str = ""
    """The table's own id; another table at the same place has another one."""
    version: int = 0
    """Its version; history that begins after it proves nothing."""


@dataclass(frozen=True, kw_only=True)
class Written:
    """What one write left at the destination, by the destination's own account."""

    rows: int | None
    """None when the destination does not say."""
    bytes: int | None = None
    version: int | None = None


LANE = "{lane}"
"""In a destination's place and name: the name of the lane. Each lane has a destination of its own then."""


class DestinationError(WherryError):
    """The destination's place cannot be used."""

    code = "DESTINATION"


def other_than_known(place: str, *, gone: bool) -> DestinationError:
    """What is wrong with a place at which there is not what an earlier run wrote to."""
    return DestinationError(
        f"{place} {'is gone' if gone else 'is another one than before'}, and this pipeline has delivered to it.",
        hint="Nothing was made or written. Put back what was there; or, if it is to begin anew:  "
        '--fresh NAME --reason "…"  (what it had is carried again by  wherry backfill FILE --only NAME)',
    )


class Unsure(WherryError):
    """A destination can no longer say whether it has a batch."""

    code = "UNSURE"


class Misfit(WherryError):
    """The rows and the destination's schema do not fit."""

    code = "MISFIT"


@dataclass(frozen=True, kw_only=True)
class Destination(ABC):
    """Where rows go. A frozen dataclass: its fields are its options.

    A destination that `remembers` gets every batch once, however often the process dies. One that does not
    may get the same batch again, with the same label.
    """

    remembers: ClassVar[bool] = False
    guarantee: ClassVar[str] = "at least once: after a crash the batch that was open is written again"
    """What `validate` promises in its name, and why."""
    name: str | None = None
    stages: Sequence[Stage] = ()
    """What is done to the rows on their way to this destination only."""
    was: str | None = None
    """The name that it had before, so that its history carries over."""

    only_lane: str = field(default="", init=False, repr=False)
    """The lane whose rows it gets, of one that stands for a lane of another; else it gets those of all."""

    @property
    def by_lane(self) -> bool:
        """Whether it stands for a destination for each lane: its place has `{lane}` in it."""
        return LANE in self.place

    def of_lane(self, lane: str) -> Destination:
        """The one for this lane: with the lane's name, and `_` for a slash in it, in its place and its name."""
        word = lane.replace("/", "_")
        changes = {
            name: value.replace(LANE, word)
            for name in ("path", "table", "name", "was")
            if isinstance(value := getattr(self, name, None), str)
        }
        for name in ("name", "was"):
            given = getattr(self, name)
            if given is not None and LANE not in given:
                changes[name] = f"{given}.{word}"
        only = replace(self, **changes)  # type: ignore[arg-type]  # it has the options that it has
        object.__setattr__(only, "only_lane", lane)
        return only

    def takes(self, lanes: Collection[str]) -> bool:
        """Whether it gets rows of any of these lanes."""
        return not self.only_lane or self.only_lane in lanes

    @property
    def replaces(self) -> bool:
        """Whether a run's first batch takes the place of what is there; it is written though it has no rows, and no
        other is planned before it is settled."""
        return False

    @property
    def takes_several(self) -> bool:
        """Whether one write may bring the rows of several lanes' batches, with a label for each."""
        return False

    @property
    def keeps_house(self) -> bool:
        """Whether `tend` has anything to do, now or later."""
        return False

    @property
    @abstractmethod
    def place(self) -> str:
        """Where the rows go, as a person would name it; its last part is the default name."""

    @property
    def given(self) -> Sequence[str]:
        """The path of its place as it was given, where that is relative to the definition; else nothing."""
        return list_given_paths([path]) if (path := getattr(self, "path", None)) else []

    @property
    def again(self) -> str:
        """What becomes of rows that it has already, when offsets are moved back."""
        return "gets the rows again; those that it has will be there twice"

    @property
    def ordered(self) -> bool:
        """Whether what is there in the end depends on the order in which batches come, across lanes as well."""
        return False

    def discreet(self, protection: Protection) -> Destination:
        """The same destination, which masks the protected columns of rows that it shows to people."""
        return self

    def open(self, spark: SparkSession, schema: StructType | None) -> Identity:
        """Make the place if it is missing and check that rows of this schema fit. Twice is once.

        `schema` is None when nothing waits from which it could be told. Raises `Misfit` with every problem.
        """
        return Identity(place=self.place)

    def expects(self, known: Identity) -> None:
        """What it was when an earlier run opened it: `open` then takes nothing else for it, and makes no other in its
        place. By default it does not mind."""

    def newest(self, pipeline: str) -> Mapping[str, JSON] | None:
        """What it notes of the newest batch that it has of this pipeline (`lane`, `number`, `destination`), where it
        can tell at once; else None. Asked after `open`."""
        return None

    def grow(self, spark: SparkSession, schema: StructType) -> None:
        """Rows may come with more than before, since their origin evolves: make room for them where that is possible,
        before `open`. Twice is once."""

    def demands(self, spark: SparkSession, schema: StructType) -> Sequence[Stage]:
        """What this place demands of rows that reach it with this schema, as stages behind all others: they refuse
        what it would refuse, and filter what it would leave out. Asked after `open`, and once more where
        rows that were decided may be refused; and by a preview, which opens nothing: a place that is not there yet
        demands what it will when it is made.
        """
        return ()

    @abstractmethod
    def write(self, spark: SparkSession, rows: DataFrame, labels: Sequence[Label]) -> Written:
        """Write all rows and the labels, or nothing. Called from runner threads, several at a time."""

    def write_here(
        self, spark: SparkSession, rows: pyarrow.RecordBatchReader, labels: Sequence[Label]
    ) -> Written | None:
        """Write rows that are read in this process, as `write` would; None, with nothing written, if it cannot: then
        Spark reads them. A kind that overrides `write` alone is not asked."""
        return None

    def write_files(self, spark: SparkSession, files: Sequence[Path], label: Label) -> Written | None:
        """The same with rows that lie in parquet files which Spark wrote on this machine; the files stay as they are,
        and may go on under other names."""
        return None

    def takes_by(self, way: str) -> bool:
        """Whether this way, `write_here` or `write_files`, belongs to `write`."""
        owners = [next(each for each in type(self).__mro__ if name in vars(each)) for name in (way, "write")]
        return issubclass(*owners)

    def tick(self, spark: SparkSession, rows: DataFrame, label: Label) -> None:
        """Nothing has come for a while: `rows` are none, with the columns that a batch's rows have.

        Comes only with `run.idle`. Nothing may be written.
        """

    def tend(self, spark: SparkSession) -> None:
        """Housekeeping that changes no row. Called behind writes, in a thread beside the runners, one at a time; the
        run ends when it has. What goes wrong in here costs space and time only: it is logged, and tried again later.
        """

    def confirm(self) -> None:
        """Raise if a batch that this process brought is not there any more, as far as that can be told at once. Asked
        when a run ends."""

    def find(self, spark: SparkSession, label: Label, identity: Identity) -> Written | None:
        """What was written under this label; None if surely nothing was. Raises `Unsure` when it cannot tell.

        Asked only when a write's end was not seen. One that does not remember answers None.
        """
        return None

    def fence(self, spark: SparkSession, token: str) -> None:
        """Make every write that began before this fail. Does nothing where nothing is remembered."""

    def account(self, spark: Callable[[], SparkSession], pipeline: str) -> Account | None:
        """What it can show, by its own history and rows, for the batches of this pipeline; None if it can show nothing.

        Changes nothing. `spark` is called only where there is no other way.
        """
        return None

    def describe(self) -> dict[str, JSON]:
        """Kind and place, as the ledger keeps them."""
        return {"kind": type(self).__name__.lower(), "place": self.place, "given": list(self.given)}

    def is_still(self, spark: SparkSession, known: Identity, newest: str) -> bool:
        """Whether what is in its place now is surely what was known, wherever that was, and no older copy of it: it has
        the batch of which `newest` is the `Label.key`, if that is not empty."""
        return False
