"""The contract of a stage: what is done to rows on their way, which rows it is about, and what becomes of those it
refuses."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, ClassVar, Literal, TypeAlias, TypeVar, cast, get_args

from origins.batch import JSON
from origins.quick_dataclass import dataclass
from stages.expressions import check_row_expression, is_repeatable_sql, suggest_name

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession

    from stages.rows import Rows


OnError: TypeAlias = Literal["nack", "discard", "keep", "stop"]


@dataclass(frozen=True, kw_only=True)
class Stage(ABC):
    """One step between origin and destination. A frozen dataclass: its fields are its options.

    A stage says what happens to a row and never how a batch is carried: the same `apply` serves the batch
    that raises at its first refused row and the one that keeps a verdict beside every row.
    """

    changes_rows: ClassVar[bool] = False
    """Whether the stage makes other rows of those it gets, so the counts start over after it."""
    gathers: ClassVar[bool] = False
    """Whether it looks at several rows at once, so that Spark brings rows of several tasks together."""

    asks_outside: ClassVar[bool] = False
    """Whether it asks what may notice, so that it is asked once while a batch is decided, however often the rows behind
    it are looked at."""

    enlarges: ClassVar[bool] = False
    """Whether rows may leave much larger than they came, where `Rows.claims` is true."""

    name: str | None = None
    """The stage's name in reports and messages. The default is its kind, with a number if the kind occurs again."""
    on_error: OnError = "nack"
    """What happens to a row that the stage refuses. It goes to the DLQ (`nack`), is thrown away, goes on unchanged, or
    stops the run."""
    when: str | None = None
    """A condition. The stage applies only to rows for which it is true, and all other rows skip the stage."""

    @abstractmethod
    def apply(self, rows: Rows) -> Rows:
        """The rows as they leave. Lazy: must not start a Spark job."""

    def pin(self, spark: SparkSession) -> JSON:
        """What must stay the same when a batch is computed again: the version of a table that this stage asks, say.

        Told once for each batch, before it is planned; recorded with the plan, and there as `rows.pin` whenever the
        batch is computed; where rows are only analysed, nothing is pinned. Must be quick. Raises when what it asks is
        not there.
        """
        return None

    def leaves(self, rows: pa.Table) -> bool:
        """Whether all of these rows, which were read in this process, surely pass as they are. Must be quick."""
        return False

    @property
    def keeps_columns(self) -> bool:
        """Whether rows with any columns pass, and keep them all with their types."""
        return False

    @property
    def may_mix(self) -> bool:
        """Whether what becomes of a row may depend on which others are in its batch, so that Spark's plan is asked. A
        stage whose documentation says that it looks at one batch answers no."""
        return self.changes_rows or self.gathers

    @property
    def takes_all(self) -> bool:
        """Whether all rows that come are surely taken, so that they can be counted while they pass. A stage with
        `changes_rows` may be content with some of them, as `exists` is; then they are counted by a query of its own.
        """
        return not self.changes_rows

    @property
    def repeatable(self) -> bool:
        """Whether the same rows always give the same answer, so that a batch may be computed again."""
        return True

    @property
    def prepares(self) -> str:
        """Why every batch must be decided before it is delivered, in words that follow its name; nothing where a clean
        batch need not be."""
        return ""

    def summarise_notes(self, notes: Mapping[str, int]) -> JSON:
        """What it has to say of a batch in which so many rows have these notes (`Rows.add_note`), an empty one where no
        more is known than that it took the row; None if it has nothing to say. As `json.dumps` takes it."""
        return None

    @property
    def usual_note(self) -> JSON:
        """The note of an ordinary row; None if the stage keeps no notes, or knows of none."""
        return None

    @property
    def needs_places(self) -> bool:
        """Whether it asks in which order rows were read, which is known of a batch that is prepared."""
        return False


def check_columns(names: Iterable[str], rows: Rows) -> None:
    """Raises ValueError that names a column which the rows have not, and the nearest that they have."""
    for name in names:
        if rows.spell_name(name) not in rows.names:
            raise ValueError(f"there is no column '{name}'; {suggest_name(name, rows.names)}")


if TYPE_CHECKING:
    R = TypeVar("R", bound=Rows)


def apply_stage(stage: Stage, rows: R) -> R:
    """The rows behind the stage. Those that `when` does not name pass it by and stay as they are."""
    sound = rows.without_poison()
    if stage.changes_rows and stage.on_error == "discard":
        return cast("R", stage.apply(sound.aside(None, "discard").rejoin(rows)))
    if stage.changes_rows or (stage.when is None and stage.on_error in ("nack", "stop")):
        return cast("R", stage.apply(sound))
    condition = None if stage.when is None else rows.expression(stage.when)
    left = cast("R", stage.apply(sound.aside(condition, stage.on_error)))
    if condition is not None:
        _check_columns(rows, left)
    return left.rejoin(rows)


def list_problems(stage: Stage) -> Iterator[tuple[str, str]]:
    """What is wrong with what stands beside a stage's kind, by option."""
    if stage.on_error not in get_args(OnError):
        yield "on_error", f"expected nack, discard, keep or stop, got {stage.on_error!r}"
    if stage.changes_rows and stage.on_error == "keep":
        yield "on_error", "keep: this stage makes other rows of those it gets, so no row can go on unchanged"
    if stage.when is None:
        return
    if stage.changes_rows:
        why = "this stage makes other rows of those it gets, so no row can skip it; put the condition inside the stage"
        yield "when", why
    try:
        check_row_expression("when", stage.when)
    except ValueError as error:
        yield "when", str(error).partition(": ")[2]


def is_repeatable(stage: Stage) -> bool:
    """Whether the stage gives the same for the same rows, and is about the same ones, whenever it is asked."""
    return stage.repeatable and (stage.when is None or is_repeatable_sql(stage.when))


def _check_columns(before: Rows, behind: Rows) -> None:
    """Raises ValueError unless rows that pass the stage by can have the columns of those that do not."""
    now = {field.name.lower(): field.dataType.simpleString() for field in behind.schema}
    for field in before.schema:
        was, becomes = field.dataType.simpleString(), now.get(field.name.lower())
        if becomes is None:
            raise ValueError(f"when: the stage removes column {field.name}, but rows that skip the stage have it")
        if becomes != was:
            raise ValueError(
                f"when: the stage makes column {field.name} {becomes}, but in rows that skip the stage it is {was}; "
                "give the new column another name"
            )
