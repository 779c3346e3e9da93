"""The contract of a stage: it changes, filters or refuses rows between origin and destination."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import ClassVar, Literal, TypeAlias, get_args

from origins.batch import JSON
from origins.lazy import SparkSession, pa
from origins.problems import refuse_unknown
from stages.expressions import check_row_expression, is_repeatable_sql, suggest_name
from stages.rows import Rows

OnError: TypeAlias = Literal["nack", "discard", "keep", "stop"]


@refuse_unknown
@dataclass(frozen=True, kw_only=True)
class Stage(ABC):
    """One step between origin and destination. A frozen dataclass: its fields are its options.

    A stage decides what happens to a row. It never knows how Wherry processes the batch. The same `apply` serves a
    query that raises at its first refused row, and a query that keeps a verdict beside every row.
    """

    changes_rows: ClassVar[bool] = False
    """Whether the stage gives other rows than it gets, so that the counts begin again after it."""
    gathers: ClassVar[bool] = False
    """Whether it looks at several rows at once, so that Spark must shuffle rows."""

    asks_outside: ClassVar[bool] = False
    """Whether it calls something outside that notices each call.

    While Wherry decides a batch, it then evaluates the stage once, however often it reads the rows after it.
    """

    enlarges: ClassVar[bool] = False
    """Whether rows may become much larger, if `Rows.claims` is true."""

    name: str | None = None
    """The stage's name in reports and messages. The default is its kind, with a number if the kind occurs again."""
    on_error: OnError = "nack"
    """What happens to a row that the stage refuses. It goes to the DLQ (`nack`), is thrown away, goes on unchanged, or
    stops the run."""
    when: str | None = None
    """A condition. The stage applies only to rows for which it is true, and all other rows skip the stage."""

    @abstractmethod
    def apply(self, rows: Rows) -> Rows:
        """Return the rows after the stage. It is lazy: it must not start a Spark job."""

    def pin(self, spark: SparkSession) -> JSON:
        """Return what must stay the same if Wherry computes a batch again, for example the version of a table.

        Wherry asks once for each batch, before it plans the batch, and records the answer with the plan. `rows.pin` has
        it whenever the batch is computed, and is None if rows are only analysed. It must be quick. It raises if what
        the stage needs is missing.
        """
        return None

    def leaves(self, rows: pa.Table) -> bool:
        """Return whether all these rows, which this process read, certainly pass unchanged. Must be quick."""
        return False

    @property
    def keeps_columns(self) -> bool:
        """Whether rows may have any columns, and keep all of them with their types."""
        return False

    @property
    def may_mix(self) -> bool:
        """Whether the result for a row may depend on other rows of its batch, so that Wherry checks Spark's plan.

        It is false for a stage that documents that it looks at one batch.
        """
        return self.changes_rows or self.gathers

    @property
    def takes_all(self) -> bool:
        """Whether the stage certainly reads all its rows, so that Wherry can count them on the way.

        A stage with `changes_rows` may read only some rows, as `exists` does. Another query then counts them.
        """
        return not self.changes_rows

    @property
    def repeatable(self) -> bool:
        """Whether the same rows always give the same result, so that Wherry may compute a batch again."""
        return True

    @property
    def prepares(self) -> str:
        """Why Wherry must decide every batch before it delivers it, in words that follow the stage's name.

        It is empty if Wherry may deliver a clean batch in one write.
        """
        return ""

    def summarise_notes(self, notes: Mapping[str, int]) -> JSON:
        """Return what the stage reports about a batch, as a value for `json.dumps`; None if it reports nothing.

        `notes` has the number of rows with each note (`Rows.add_note`). The note is empty for rows of which is only
        known that the stage took them.
        """
        return None

    @property
    def usual_note(self) -> JSON:
        """The note of an ordinary row; None if the stage keeps no notes, or has no such note."""
        return None

    @property
    def needs_places(self) -> bool:
        """Whether it needs the order in which rows were read. Only a prepared batch has that order."""
        return False


def check_columns(names: Iterable[str], rows: Rows) -> None:
    """Raise ValueError for a name that is no column of the rows. It suggests the most similar column."""
    for name in names:
        if rows.spell_name(name) not in rows.names:
            raise ValueError(f"there is no column '{name}'; {suggest_name(name, rows.names)}")


def apply_stage(stage: Stage, rows: Rows) -> Rows:
    """Return the rows after the stage. Rows for which `when` is not true skip it and stay as they are."""
    sound = rows.without_poison()
    if stage.changes_rows and stage.on_error == "discard":
        return stage.apply(sound.aside(None, "discard").rejoin(rows))
    if stage.changes_rows or (stage.when is None and stage.on_error in ("nack", "stop")):
        return stage.apply(sound)
    condition = None if stage.when is None else rows.expression(stage.when)
    left = stage.apply(sound.aside(condition, stage.on_error))
    if condition is not None:
        _check_columns(rows, left)
    return left.rejoin(rows)


def list_problems(stage: Stage) -> Iterator[tuple[str, str]]:
    """Yield what is wrong with the options `when` and `on_error`, by option."""
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
    """Whether the stage always applies to the same rows, and always gives the same result for them."""
    return stage.repeatable and (stage.when is None or is_repeatable_sql(stage.when))


def _check_columns(before: Rows, behind: Rows) -> None:
    """Raise ValueError unless rows that skip the stage can have the columns of rows that do not skip it."""
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
