"""The contract of a destination: where rows go, what it remembers of them, and until when a write may begin."""

from __future__ import annotations

import contextlib
import logging
import time
import uuid
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import field, replace
from typing import TYPE_CHECKING, ClassVar, TypedDict

from origins.batch import Batch, Json
from origins.batch_rows import BatchRows
from origins.errors import WherryError, get_raised_words, list_spark_errors
from origins.nack import show_value
from origins.names import list_given_paths
from origins.protection import Protection
from origins.quick_dataclass import dataclass
from stages.expressions import is_repeatable_sql
from stages.stage import Stage

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession
    from pyspark.sql.types import StructType

    from stages.rows import Rows

log = logging.getLogger("wherry")


@dataclass(frozen=True, kw_only=True)
class Label:
    """What a destination writes beside a batch's rows, in the same atomic write, so that it can be asked later."""

    batch: Batch
    destination: str
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
    copies: Mapping[str, Identity] = field(default_factory=dict, hash=False)
    """Of a DLQ: what the places of its copies were, by name."""


@dataclass(frozen=True, kw_only=True)
class Written:
    """What one write left at the destination, by the destination's own account."""

    rows: int | None
    """None if the number is unknown."""
    bytes: int | None = None
    version: int | None = None
    mark: tuple[int, int] | str | None = field(default=None, compare=False)
    """What tells that version's file from any other of its number, where the write itself has learned it."""


LANE = "{lane}"
"""In a destination's place and name: the name of the lane. Each lane has a destination of its own then."""


class DestinationError(WherryError):
    """The destination's place cannot be used."""

    code = "DESTINATION"


def make_other_place_error(place: str, *, gone: bool) -> DestinationError:
    """What is wrong with a place at which there is not what an earlier run wrote to."""
    return DestinationError(
        f"{place} {'is missing' if gone else 'was replaced'}, and this pipeline has delivered to it.",
        hint="Wherry wrote nothing. Put back what was there; or start empty:  wherry run FILE "
        '--fresh NAME --reason "…"  (then  wherry backfill FILE --only NAME --again  delivers old batches)',
    )


class Unsure(WherryError):
    """A destination can no longer say whether it has a batch."""

    code = "UNSURE"


class Misfit(WherryError):
    """The rows and the destination's schema do not fit."""

    code = "MISFIT"


class OpenDestination(ABC):
    """A destination while a run has it open. What the run learns of the place is kept in here, and never in the
    options: a destination that is opened twice is two of these, and neither sees what the other keeps.
    """

    def expects(self, known: Identity) -> None:
        """What it was when an earlier run opened it: `ensure_place` then takes nothing else for it, and makes no other
        in its place. By default it does not mind."""

    def share(self) -> None:
        """Other runs write to it at the same time. A write that could harm theirs raises from now on."""

    @abstractmethod
    def ensure_place(self, spark: SparkSession, schema: StructType | None) -> Identity:
        """Make the place if it is missing and check that rows of this schema fit. Twice is once.

        `schema` is None when nothing waits from which it could be told. Raises `Misfit` with every problem.
        """

    def newest(self, pipeline: str) -> BatchLabel | None:
        """What it notes of the newest batch that it has of this pipeline (`lane`, `number`, `destination`), where it
        can tell at once; else None. Asked after `ensure_place`."""
        return None

    def grow(self, spark: SparkSession, schema: StructType) -> None:
        """Rows may come with more than before, since their origin evolves: make room for them where that is possible,
        before `ensure_place`. Twice is once."""

    def demands(self, spark: SparkSession, schema: StructType) -> Sequence[Stage]:
        """What this place demands of rows that reach it with this schema, as stages behind all others: they refuse
        what it would refuse, and filter what it would leave out. Asked after `ensure_place`, and once more where
        rows that were decided may be refused; and by a preview, which makes nothing: a place that is not there yet
        demands what it will when it is made.
        """
        return ()

    @abstractmethod
    def write(self, spark: SparkSession, rows: BatchRows, labels: Sequence[Label]) -> Written:
        """Write all rows and the labels, or nothing. Called from runner threads, several at a time.

        `rows.frame()` always has the rows; a destination that can do with less asks for that first.
        """

    def tick(self, spark: SparkSession, rows: DataFrame, label: Label) -> None:
        """Nothing has come for a while: `rows` are none, with the columns that a batch's rows have.

        Comes only with `run.idle`. Nothing may be written.
        """

    def maintain(self, spark: SparkSession) -> None:
        """Housekeeping that changes no row. Called behind writes, in a thread beside the runners, one at a time; the
        run ends when it has. What goes wrong in here costs space and time only: it is logged, and tried again later.
        """

    def confirm(self) -> None:
        """Raise if a batch of this run is missing, as far as that is known at once. Asked when
        a run ends."""

    def find(self, spark: SparkSession, label: Label, identity: Identity) -> Written | None:
        """What was written under this label; None if surely nothing was. Raises `Unsure` when it cannot tell.

        Asked only when a write's end was not seen. One that does not remember answers None.
        """
        return None

    def fence(self, spark: SparkSession, token: str) -> None:
        """Make every write that began before this fail. Does nothing where nothing is remembered."""

    def close(self) -> None:
        """Let go of what it holds, such as a connection. Called once, behind all else; may come without any call
        before it. What others have open of the same destination stays open."""


@dataclass(frozen=True, kw_only=True)
class Destination(ABC):
    """Where rows go. A frozen dataclass: its fields are its options, and it never changes.

    A destination that `remembers` gets every batch once, however often the process dies. One that does not
    may get the same batch again, with the same label. A kind that has nothing to keep while it is open is a
    `StatelessDestination`.
    """

    remembers: ClassVar[bool] = False
    guarantee: ClassVar[str] = "at least once: after a crash Wherry writes the open batch again"
    """What `validate` promises in its name, and why."""
    name: str | None = None
    """The destination's name in reports, in the ledger and in commands. The default is its kind."""
    stages: Sequence[Stage] = ()
    """Stages for the rows of this destination only. They run after the pipeline's stages."""
    was: str | None = None
    """The destination's earlier name, so that it keeps its history when you rename it."""

    only_lane: str = field(default="", repr=False, metadata={"hidden": True})
    """The lane whose rows it gets, if it stands for one lane of another; else rows of all lanes."""

    @property
    def by_lane(self) -> bool:
        """Whether it stands for a destination for each lane: its place has `{lane}` in it."""
        return LANE in self.place

    def of_lane(self, lane: str) -> Destination:
        """The one for this lane: with the lane's name, and `_` for a slash in it, in its place and its name."""
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
        """Whether a run's first batch takes the place of what is there; it is written though it has no rows, and no
        other is planned before it is settled."""
        return False

    @property
    def takes_several(self) -> bool:
        """Whether one write may bring the rows of several lanes' batches, with a label for each."""
        return False

    @property
    def needs_maintenance(self) -> bool:
        """Whether `maintain` has anything to do, now or later."""
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
        return "gets the rows again; rows that it has already will be there twice"

    @property
    def ordered(self) -> bool:
        """Whether what is there in the end depends on the order in which batches come, across lanes as well."""
        return False

    def discreet(self, protection: Protection) -> Destination:
        """The same destination, which masks the protected columns of rows that it shows to people."""
        return self

    def as_copy(self) -> Destination:
        """The same destination beside a DLQ that keeps rows whole: it may leave out what it cannot take of a row."""
        return self

    @abstractmethod
    def open(self) -> OpenDestination:
        """What one run works with. Must be quick, and starts no Spark: the place is looked at in `ensure_place`."""

    def account(self, spark: Callable[[], SparkSession], pipeline: str) -> DeliveryAccount | None:
        """What it can show, by its own history and rows, for the batches of this pipeline; None if it can show nothing.

        Changes nothing. `spark` is called only where there is no other way.
        """
        return None

    def describe(self) -> dict[str, Json]:
        """Kind and place, as the ledger keeps them."""
        return {"kind": type(self).__name__.lower(), "place": self.place, "given": list(self.given)}

    def is_still(self, spark: SparkSession, known: Identity, newest: str) -> bool:
        """Whether what is in its place now is surely what was known, wherever that was, and no older copy of it: it has
        the batch of which `newest` is the `Label.key`, if that is not empty."""
        return False


@dataclass(frozen=True, kw_only=True)
class StatelessDestination(Destination, OpenDestination):
    """A destination that keeps nothing while it is open, so that it is open by itself: one class, with `write`."""

    def open(self) -> OpenDestination:
        return self

    def ensure_place(self, spark: SparkSession, schema: StructType | None) -> Identity:
        return Identity(place=self.place)


@dataclass(frozen=True, kw_only=True)
class Rule:
    """One thing that a place demands of every row."""

    code: str
    holds: str
    """A condition, as SQL; a row for which it is false or NULL is refused."""
    says: str
    shows: Sequence[str] = ()
    """The columns whose values belong to the message."""


@dataclass(frozen=True, kw_only=True)
class Demands(Stage):
    """Refuses the rows that break a rule of the place they are on their way to. The first one gives the code."""

    rules: Sequence[Rule]

    @property
    def repeatable(self) -> bool:
        return all(is_repeatable_sql(rule.holds) for rule in self.rules)

    def apply(self, rows: Rows) -> Rows:
        from pyspark.sql import functions as F

        broken = [(~F.coalesce(rows.expression(rule.holds), F.lit(False)), rule) for rule in self.rules]
        code = F.coalesce(*[F.when(breaks, F.lit(rule.code)) for breaks, rule in broken])
        reasons = [F.when(breaks, make_message(rows, rule)) for breaks, rule in broken]
        why = F.struct(code.alias("code"), F.concat_ws("; ", *reasons).alias("message"))
        return rows.refuse(F.when(code.isNotNull(), why))


def find_or_assume(
    opened: OpenDestination, spark: SparkSession, label: Label, identity: Identity, assume: str, *, what: str = "it"
) -> Written | None:
    """What the destination has under a label. Where it cannot say, a person's word holds: `delivered` or `missing`.
    Without one it raises `Unsure`."""
    try:
        return opened.find(spark, label, identity)
    except Unsure as error:
        if not assume:
            raise
        log.warning("%s  With --assume, %s counts as %s.", error.message, what, assume)
        return Written(rows=None) if assume == "delivered" else None


def make_message(rows: Rows, rule: Rule) -> Column:
    """Why a row breaks the rule, with the values that belong to it."""
    from pyspark.sql import functions as F

    parts = [F.lit(rule.says)]
    for index, name in enumerate(rule.shows):
        parts += [F.lit(f"{', ' if index else '; '}{name} = "), show_value(rows.column(name))]
    return F.concat(*parts)


class BatchLabel(TypedDict):
    """What a destination notes with the rows of a batch."""

    pipeline: str
    lane: str
    number: int
    plan: str
    destination: str
    key: str
    """The plan's id and the destination's name."""


@dataclass(frozen=True, kw_only=True)
class Loss:
    """What took rows away, or harmed them, that a batch had brought."""

    code: str
    """`ROWS_GONE`, `RESTORED`, `FILE_GONE`, `FILE_CHANGED` or `LOG_BROKEN`; of a doubt `NOT_PROVED`."""
    said: str
    """What happened, as the end of a sentence about the rows."""
    version: int | None = None
    whole: bool = False
    """Whether none of the batch's rows is there any more."""
    restore: str = ""
    """The statement in SQL that takes the table back to before; empty where it would take rows of others away."""
    takes_later: bool = False
    """Whether `restore` also takes later batches away, which can be put back."""
    insert: str = ""
    """The statement in SQL that adds the missing rows, without the batch's label; empty where none can."""


@dataclass(frozen=True, kw_only=True)
class BroughtBatch:
    """A write that says which batch it brought."""

    label: BatchLabel
    rows: int | None
    """How many rows it brought, by its own figure, those of the batches that came with it included."""
    together: Sequence[str] = ()
    """The keys of all batches that it brought, this one's included."""
    version: int | None = None
    listed: int | None = None
    """How many rows the files have that it added, as far as that can be compared."""
    files: Sequence[str] = ()
    """The names of the files that it added, where they are those of a table."""
    copied: int = 0
    """How many rows its files hold beside its own, which others had brought before."""
    loss: Loss | None = None
    """What became of the rows, if they are not there any more as they came."""
    doubt: Loss | None = None
    """A change to a file with these rows and others, where the changed rows are unknown."""

    @property
    def key(self) -> str:
        return self.label["key"]


@dataclass(frozen=True, kw_only=True)
class DeliveryAccount:
    """What a destination can show for the batches that it got."""

    place: str
    proof: str
    """What can be proved of it and what cannot, in a sentence."""
    there: bool = True
    id: str = ""
    """The id of the table or folder; empty if it has none."""
    silent: bool = False
    """Whether a batch may have left no trace though it had rows: a merge that changed nothing makes no commit."""
    mends: bool = False
    """Whether rows that are gone can be put back from their own files: they were only ever added."""
    since: int = 0
    """The first version of which it still tells."""
    brought: Sequence[BroughtBatch] = ()
    """In the order in which they came."""
    losses: Sequence[Loss] = ()
    """What removed rows whose batches are no longer known."""

    @property
    def whole(self) -> bool:
        """Whether its history goes back to its beginning."""
        return self.since == 0


class Late(WherryError):
    """A write began after the lease of its run was over. Nothing of it landed."""

    code = "LATE"

    def __init__(self) -> None:
        super().__init__(
            "The run's lease ended before a write began, so the destination wrote nothing.",
            hint="The machine slept, or was too busy to renew the lease. Wherry tries again if this run still owns "
            "the pipeline. If it happens often, set a longer `run.lease`.",
        )


@dataclass(frozen=True, kw_only=True)
class Deadline:
    """The end of the right to write, as it is at the moment at which it is asked for: it moves while the run lives."""

    left: Callable[[], float]
    """How many seconds are left, on a clock that counts sleep."""
    secure: Callable[[], None] = lambda: None
    """Returns while enough is left to begin a write, and raises `Late` once that is over."""
    ahead: float = 0.0
    """How many seconds Spark's clock is ahead of this machine's."""
    now: Callable[[], float] = field(default=time.time, repr=False)
    """The time of day on this machine, in seconds since 1970."""

    @contextlib.contextmanager
    def guard_rows(self, rows: DataFrame) -> Iterator[DataFrame]:
        """The rows, which raise where their write begins too late. In here that is raised as `Late`.

        Spark takes the time once for a query, when it plans how to run it; while there is time the condition is true
        then and leaves no trace in what is run.
        """
        began = self.now()  # before `left`: a sleep between the two brings the deadline nearer, and not farther
        until = int((began + self.left() + self.ahead) * 1_000_000)
        mark = f"wherry-late-{uuid.uuid4().hex}"
        try:
            yield rows.where(f"if(unix_micros(current_timestamp()) < {until}L, true, raise_error('{mark}'))")
        except list_spark_errors() as error:
            if get_raised_words(error) == mark:
                raise Late() from error
            raise

    def check(self) -> None:
        """Raises `Late` once it is over; for what is committed without Spark, right before that."""
        if self.left() <= 0:
            raise Late()
