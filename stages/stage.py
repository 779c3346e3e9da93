"""The contract of a stage: it changes, filters or refuses rows between origin and destination."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import ClassVar, Literal, TypeAlias, get_args

from origins.batch import JSON
from origins.lazy import F, SparkSession, pa
from origins.names import quote_name, quote_text
from origins.problems import refuse_unknown
from stages.expressions import SqlText, check_row_expression, is_repeatable_sql, suggest_name
from stages.rows import (
    ASIDE,
    KEPT,
    LIVE,
    POISON,
    STATE,
    VERDICT,
    Expression,
    Rows,
    compute_once,
    list_data_columns,
    list_hidden_columns,
    make_struct,
    require_truth,
)

OnError: TypeAlias = Literal["nack", "discard", "keep", "stop"]
_RESTING = 1_000_000
"""The state of a live row that skips the stage."""


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
    sound = _refuse_poison(rows)
    if stage.changes_rows and stage.on_error == "discard":
        return stage.apply(_rejoin(_set_aside(sound, None, "discard"), rows))
    if stage.changes_rows or (stage.when is None and stage.on_error in ("nack", "stop")):
        return stage.apply(sound)
    condition = None if stage.when is None else rows.sql(stage.when)
    left = stage.apply(_set_aside(sound, condition, stage.on_error))
    if condition is not None:
        _check_columns(rows, left)
    return _rejoin(left, rows)


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


def _refuse_poison(rows: Rows) -> Rows:
    """Refuse the rows for which the stage is known to raise."""
    if POISON not in rows.kept:
        return rows
    poison = F.col(POISON)
    why = F.struct(poison["code"].alias("code"), poison["message"].alias("message"))
    return rows.refuse(F.when(poison["step"] == rows.step, why))


def _set_aside(rows: Rows, when: Expression | None, on_error: str) -> Rows:
    """Set aside the rows for which the condition is not true.

    The stage neither evaluates nor judges them. `_rejoin` returns them.
    """
    concerns = SqlText("true") if when is None else require_truth(when)
    query = rows.query.select("*", compute_once(concerns, KEPT, LIVE))
    state = SqlText(f"if({LIVE} AND NOT coalesce({KEPT}, false), {_RESTING}, {STATE})")
    stood = compute_once(make_struct(rows.names), ASIDE)
    query = query.select(*list_hidden_columns(rows, state), stood, *list_data_columns(rows))
    return replace(rows, query=query, kept=(*rows.kept, ASIDE), on_error=on_error)


def _rejoin(left: Rows, before: Rows) -> Rows:
    """Return the rows that `_set_aside` set aside to the others, unchanged by the stage.

    `on_error` decides about rows that the stage refused. With `keep` a row is as before the stage, but columns whose
    type changed have their new value.
    """
    refused, rests = f"{STATE} = {-left.step}", f"{STATE} = {_RESTING}"
    becomes = {"keep": "0", "discard": str(left.step)}.get(left.on_error, STATE)
    state = SqlText(f"CASE WHEN {rests} THEN 0 WHEN {refused} THEN {becomes} ELSE {STATE} END")
    drops = left.on_error == "keep" or (left.on_error == "discard" and not left.keeps_filtered)
    verdict = SqlText(f"if({refused}, NULL, {VERDICT})" if drops else VERDICT) if left.explains else None
    rests = f"({rests} OR {refused})" if left.on_error == "keep" else rests
    rows = replace(left, kept=tuple(name for name in left.kept if name != ASIDE), on_error="nack")
    filters = (*left.filters, left.step) if left.on_error == "discard" else left.filters
    query = left.query.select(*list_hidden_columns(rows, state, verdict), *_restore_columns(left, rests, before))
    return replace(rows, query=query, filters=filters)


def _restore_columns(left: Rows, rests: str, before: Rows) -> list[SqlText]:
    """Return the columns, with the earlier values in rows that were set aside."""
    was = {field.name: field.dataType.simpleString() for field in before.schema}
    found = []
    for field in left.schema:
        old, column = before.spell_name(field.name), SqlText(quote_name(field.name))
        if was.get(old) == field.dataType.simpleString():
            column = compute_once(SqlText(f"if({rests}, {ASIDE}[{quote_text(old)}], {column})"), field.name)
        found.append(column)
    return found
