"""The rows of one batch on their way through the stages, in one of two kinds.

`StraightRows` raise at the first refused row, so that one write both decides and delivers the batch. `MarkedRows`
keep a verdict beside every row, so that Wherry can decide the whole batch before it delivers a row.
"""

from __future__ import annotations

import functools
import json
import operator
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import TypeAlias, TypeGuard, TypeVar, overload

from origins.batch import JSON
from origins.lazy import Column, DataFrame, F, T, pyspark
from origins.nack import NACK, RAW, REFUSED, encode_payload
from origins.names import HIDDEN, quote_name, quote_text
from origins.origin import PLACE
from origins.schema import walk_types
from stages.bisection import LARGE, MARK
from stages.expressions import SqlText, enclose, put_in

STATE = HIDDEN + "state"
"""0 for a live row; n if the n-th stage (from 1) filtered it; -n if that stage refused it; -1000 if the origin did."""
VERDICT = HIDDEN + "nack"
ORIGINAL = HIDDEN + "original"
REASON = HIDDEN + "reason"
KEPT = HIDDEN + "kept"
SEQUENCE = HIDDEN + "sequence"
APART = HIDDEN + "apart"
"""A value that only one row has, for rows that count as different from all others."""
PART = HIDDEN + "part"
RANK = HIDDEN + "rank"
REFUSED_BY_ORIGIN = -1000
ASIDE = HIDDEN + "aside"
"""The row before the current stage."""
RESTS = HIDDEN + "rests"
"""Whether a row in `StraightRows` skips the stage."""
RESTING = 1_000_000
"""The state of a live row that skips the stage."""
POISON = HIDDEN + "poison"
"""`struct<step, code, message>` beside a row for which a stage's expressions are known to raise, else NULL."""
NOTE = HIDDEN + "note"
"""The prefix of the columns in which stages keep a note beside every row."""

R = TypeVar("R", bound="Rows")
Expression: TypeAlias = "Column | SqlText"


@dataclass(frozen=True, kw_only=True)
class Reason:
    """Why a stage refuses rows, as SQL in parts. Each part is in a plan once, and only where it is needed.

    A stage with many columns so gets a plan of half the size.
    """

    refused: str
    """True for a row that is refused, and false for all others."""
    code: str
    """The code of a refused row."""
    message: str
    """The message; empty for a row that is not refused."""


@dataclass(frozen=True, kw_only=True)
class Rows(ABC):
    """Rows as a stage sees them. A stage selects columns, filters rows and refuses rows."""

    frame: DataFrame
    names: tuple[str, ...]
    """The columns that a stage sees, in their order."""
    labels: Mapping[str, str | int | datetime]
    stage: str = ""
    """The name of the current stage."""
    step: int = 0
    """Its number in the batch, from 1."""
    destination: str | None = None
    """The destination that demands the stage, if the stage is not in the definition."""
    pin: JSON = None
    """What the stage pinned when the batch was planned."""
    on_error: str = "nack"
    """What happens to a row that the stage refuses."""
    kept: tuple[str, ...] = ()
    """Hidden columns that are kept with every row."""
    hold: Callable[[MarkedRows, str], tuple[MarkedRows, Mapping[str, int]]] | None = None
    """Stores the current rows.

    It returns the stored rows, and the number of live rows with each note in the column of this name. It is None if
    the rows are only described or tried out: no stage judges the batch then.
    """
    claims: bool | None = False
    """Whether stages put large values into their store and read them from it.

    If it is false, the first large value makes the query raise `LARGE`. If it is None, rows are only tried out: nothing
    is stored, and large values stay in the rows.
    """
    small: frozenset[str] = frozenset()
    """The columns that certainly have no large value and no reference, if `claims` is false."""
    protected: tuple[str, ...] = ()
    """The columns whose values are masked."""
    note_finding: Callable[[str, JSON], None] | None = None
    """A callback that gets the name of a stage, and what the stage found out about the batch."""
    one_by_one: bool = False
    """Whether Spark analyses every expression by itself, and so names the wrong one."""

    def enter(
        self: R, stage: str, step: int, *, destination: str | None = None, pin: JSON = None, one_by_one: bool = False
    ) -> R:
        """Return the same rows before this stage, which has this number in the batch."""
        return replace(self, stage=stage, step=step, destination=destination, pin=pin, one_by_one=one_by_one)

    def expression(self, sql: str) -> Column:
        """Return a SQL expression over the columns, with the values of the batch's labels."""
        return F.expr(put_in(sql, self.labels))

    def sql(self, sql: str) -> Expression:
        """Return the same expression as text if possible, with the values of the batch's labels."""
        text = put_in(sql, self.labels)
        enclosed = None if self.one_by_one else enclose(text)
        return enclosed or F.expr(text)

    def column(self, name: str) -> Column:
        """Return a column by its name, in upper or lower case. The name may have any characters."""
        return F.col(quote_name(self.spell_name(name)))

    def spell_name(self, name: str) -> str:
        """Return the name as the rows spell it, or the name itself if the rows have no such column."""
        return next((own for own in self.names if own.lower() == name.lower()), name)

    def with_columns(self: R, columns: Mapping[str, Expression]) -> R:
        """Add these columns, or replace the columns of the same names.

        All expressions see the rows before the change.
        """
        new = {self.spell_name(name): column for name, column in columns.items()}
        return self.select({**{name: name for name in self.names}, **new})

    def without_poison(self: R) -> R:
        """Refuse the rows for which the stage is known to raise."""
        if POISON not in self.kept:
            return self
        poison = F.col(POISON)
        why = F.struct(poison["code"].alias("code"), poison["message"].alias("message"))
        return self.refuse(F.when(poison["step"] == self.step, why))

    @property
    def notes(self) -> Sequence[str]:
        """Return the columns with the notes of stages."""
        return [name for name in self.kept if name.startswith(NOTE)]

    @property
    def note(self) -> str:
        """Return the column with the notes of the current stage."""
        return f"{NOTE}{self.step}"

    def add_note(self: R, note: Column) -> R:
        """Add a note beside each live row. Spark computes it once.

        `attempt` may use it as the column `note`. Marked rows store it with their verdicts.
        """
        own = compute_once(note, self.note, self._own)
        return replace(self, frame=select_columns(self.frame, *self._list_columns(), own))

    @abstractmethod
    def in_order(self: R) -> tuple[R, Column]:
        """Return the same rows, and a column that rises in the order in which they were read.

        `add_note` must follow. Only marked rows have that order; see `Stage.needs_places`.
        """

    def _list_columns(self) -> list[SqlText]:
        return [*self._list_hidden_columns(), *self._list_data_columns()]

    def _list_hidden_columns(self) -> list[SqlText]:
        return [*map(SqlText, self.kept)]

    def _list_data_columns(self) -> list[SqlText]:
        return [SqlText(quote_name(name)) for name in self.names]

    def _are_all_given(self, keys: Sequence[str]) -> Column:
        return functools.reduce(operator.and_, [self.column(key).isNotNull() for key in keys])

    def _number_rows(self, frame: DataFrame, keys: Sequence[str], order: Sequence[Column]) -> DataFrame:
        """Return the frame with `KEPT`: the number, from 1, of each row among the rows with the same keys."""
        window = pyspark.sql.Window.partitionBy(*[self.column(key) for key in keys], APART).orderBy(*order)
        return frame.select("*", F.row_number().over(window).alias(KEPT))

    @property
    def schema(self) -> T.StructType:
        """Return the columns that a stage sees, with their types."""
        columns = self.frame.schema
        return T.StructType([columns[name] for name in self.names])

    @property
    def live(self) -> Column:
        """Return a condition: whether the stage applies to the row."""
        return F.expr(self._live)

    @property
    @abstractmethod
    def _live(self) -> str:
        """Return the same condition, in SQL."""

    @property
    def _own(self) -> str:
        """Return the condition under which Spark evaluates an expression of the stage."""
        return self._live

    @abstractmethod
    def aside(self: R, when: Column | None, on_error: str) -> R:
        """Set aside the rows for which the condition is not true.

        The stage neither evaluates nor judges them. `rejoin` returns them.
        """

    @abstractmethod
    def rejoin(self: R, before: R) -> R:
        """Return the rows that `aside` set aside to the others, unchanged by the stage.

        `on_error` decides about rows that the stage refused. With `keep` a row is as before the stage, but columns
        whose type changed have their new value.
        """

    def _restore_columns(self, rests: str, before: Rows) -> list[SqlText]:
        """Return the columns, with the earlier values in rows that were set aside."""
        was = {field.name: field.dataType.simpleString() for field in before.schema}
        found = []
        for field in self.schema:
            old, column = before.spell_name(field.name), SqlText(quote_name(field.name))
            if was.get(old) == field.dataType.simpleString():
                column = compute_once(SqlText(f"if({rests}, {ASIDE}[{quote_text(old)}], {column})"), field.name)
            found.append(column)
        return found

    def select(self: R, columns: Mapping[str, Expression | str]) -> R:
        """Return the rows with exactly these columns, in this order.

        Text that is no `SqlText` names a column that stays as it is. All other values are expressions. Spark evaluates
        them on live rows only, and they may read only their own row.
        """
        frame = select_columns(self.frame, *self._list_hidden_columns(), *_choose(columns, self._own))
        return replace(self, frame=frame, names=tuple(columns), small=self._keep_small(columns))

    @abstractmethod
    def filter(self: R, condition: Expression) -> R:
        """Keep the rows for which the condition is true.

        All other rows, including those with NULL, count as filtered.
        """

    @abstractmethod
    def latest(self: R, keys: Sequence[str], sequence: Column | None) -> R:
        """Keep, of all rows with the same `keys`, the row with the highest `sequence`. The others count as filtered.

        NULL is the lowest `sequence`. If rows have the same `sequence`, their content decides. A row with a NULL among
        its keys equals no other row, and stays.

        Without `sequence` the row that was read last stays. Only marked rows know that; see `Stage.needs_places`.
        """

    def refuse(self: R, why: Expression) -> R:
        """Refuse the rows for which `why` (`origins.nack.make_reason`) is not NULL. They reach no later stage."""
        return self.attempt({}, why, {})

    @abstractmethod
    def attempt(self: R, tried: Mapping[str, Expression], why: Expression | Reason, put: Mapping[str, str]) -> R:
        """Compute `tried` once for each row, and refuse the rows for which `why` is not NULL, or has a message.

        The names of `tried` begin with `HIDDEN`. `why` may use them, and they are dropped afterwards. `put` maps a
        column, old or new, to the name in `tried` that becomes its value. A refused row does not change.
        """

    def beside(self: R, table: DataFrame, on: Mapping[str, str]) -> R:
        """Join each row with the row of `table` that has the same keys, or with NULLs if there is none.

        `on` maps a column of the rows to a column of the table. NULL equals nothing. The table has each key at most
        once, and has one row if `on` is empty. Its names begin with `HIDDEN`. Only `attempt`, which must follow, can
        use them.
        """
        meets = [self.column(own) == F.col(theirs) for own, theirs in on.items()]
        return replace(self, frame=self.frame.join(table, functools.reduce(operator.and_, meets, F.lit(True)), "left"))

    def ask_claims(self: R, needed: str, columns: Collection[str]) -> R:
        """Make the query raise `LARGE` if the condition, in SQL, is true for a live row.

        Wherry then processes the batch again with `claims`. If the query does not raise, `columns` are `small`.
        """
        small = () if ASIDE in self.kept else columns
        raises = f"if({self._live} AND ({needed}), CAST(raise_error('{LARGE}') AS BOOLEAN), {_ONCE})"
        return replace(self, frame=self.frame.filter(raises), small=self.small.union(small))

    def _keep_small(self, columns: Mapping[str, Expression | str]) -> frozenset[str]:
        """Return the columns among these that are `small`, because they are copies of a small column."""
        return frozenset(name for name, of in columns.items() if not _is_expression(of) and of in self.small)

    def keep_as_read(self: R) -> R:
        """Make the DLQ keep the rows as they are now as the rows that were read.

        The rows have the columns that were read, with the same types.
        """
        return self

    @abstractmethod
    def change(self: R, statement: Callable[[DataFrame], DataFrame]) -> R:
        """Replace the rows with the rows of the statement. Only stages with `changes_rows` may use this."""


@dataclass(frozen=True, kw_only=True)
class StraightRows(Rows):
    """Rows of a batch without refused rows: the first refused row makes the query raise `MARK`."""

    observe: Callable[[DataFrame, int], DataFrame]
    """Counts the rows at this point, under the number of the step."""

    @staticmethod
    def begin(
        frame: DataFrame,
        names: tuple[str, ...],
        labels: Mapping[str, str | int | datetime],
        observe: Callable[[DataFrame, int], DataFrame],
        kept: tuple[str, ...] = (),
    ) -> StraightRows:
        """Return the rows as an origin read them."""
        if REFUSED in frame.columns:
            frame = frame.filter(_raise_unless(f"{REFUSED} IS NULL")).drop(REFUSED)
        return StraightRows(frame=observe(frame, 0), names=names, labels=labels, observe=observe, kept=kept)

    @property
    def _live(self) -> str:
        return f"(NOT {RESTS})" if self._is_aside else "true"

    @property
    def _own(self) -> str:
        """Return a condition that is true for live rows.

        Spark cannot analyse an expression behind it that turns many rows into one, or one into many.
        """
        row_by_row = f"({quote_name(self.names[0])} IS NULL OR true)"
        return f"{row_by_row} AND {self._live}" if self._is_aside else row_by_row

    def aside(self, when: Column | None, on_error: str) -> StraightRows:
        rests = F.lit(False)
        if when is not None:
            rests = ~compute_once(F.call_function("if", when, F.lit(True), F.lit(False)), when=self._own)
        stood = compute_once(make_struct(self.names), ASIDE)
        frame = select_columns(self.frame, *self._list_columns(), stood, F.coalesce(rests, F.lit(True)).alias(RESTS))
        return replace(self, frame=frame, kept=(*self.kept, ASIDE, RESTS), on_error=on_error)

    def rejoin(self, before: StraightRows) -> StraightRows:
        frame = select_columns(self.frame, *before._list_hidden_columns(), *self._restore_columns(RESTS, before))
        return replace(self, frame=frame, kept=before.kept, on_error="nack")

    def filter(self, condition: Expression) -> StraightRows:
        passes = compute_once(_require_truth(condition), when=self._own)
        if self._is_aside:
            passes = SqlText(f"({RESTS} OR {passes})") if isinstance(passes, SqlText) else F.col(RESTS) | passes
        frame = self.frame.filter(passes)
        return replace(self, frame=self.observe(frame, self.step))

    def latest(self, keys: Sequence[str], sequence: Column | None) -> StraightRows:
        by = F.raise_error(F.lit("these rows have no time at which they were read")) if sequence is None else sequence
        frame = self.frame.select(
            "*",
            compute_once(by, SEQUENCE, self._own),
            F.when(~(self.live & self._are_all_given(keys)), F.monotonically_increasing_id()).alias(APART),
        )
        order = [F.desc_nulls_last(SEQUENCE), *order_by_content(self.schema)]
        frame = self._number_rows(frame, keys, order).filter(F.col(KEPT) == 1)
        return replace(self, frame=self.observe(select_columns(frame, *self._list_columns()), self.step))

    def in_order(self) -> tuple[StraightRows, Column]:
        return self, F.lit(0)

    def attempt(
        self, tried: Mapping[str, Expression], why: Expression | Reason, put: Mapping[str, str]
    ) -> StraightRows:
        frame = self.frame
        if tried:
            own = [compute_once(column, name, self._own) for name, column in tried.items()]
            frame = select_columns(frame, "*", *own)
        frame = self._judge(frame, why)
        names = (*self.names, *[name for name in put if name not in self.names])
        if tried:
            columns = [_rename(put.get(name, name), name) for name in names]
            frame = select_columns(frame, *self._list_hidden_columns(), *columns)
        return replace(self, frame=frame, names=names, small=self.small - put.keys())

    def _judge(self, frame: DataFrame, why: Expression | Reason) -> DataFrame:
        """Return the frame without the refused rows. With `keep`, they stay and skip the stage."""
        good = self._find_good(why)
        if self.on_error not in ("keep", "discard"):
            return frame.filter(_raise_unless(good))
        columns = [SqlText(quote_name(name)) for name in frame.columns if name != RESTS]
        kept = select_columns(frame, "*", compute_once(good, KEPT))
        if self.on_error == "keep":
            return select_columns(kept, *columns, compute_once(SqlText(f"{RESTS} OR NOT {KEPT}"), RESTS))
        columns = [SqlText(quote_name(name)) for name in frame.columns]
        return self.observe(select_columns(kept.filter(KEPT), *columns), self.step)

    def _find_good(self, why: Expression | Reason) -> Expression:
        """Return the condition under which a row is not refused."""
        if isinstance(why, Reason):
            return SqlText(f"NOT ({self._live} AND ({why.refused}))")
        if self._is_aside:
            why = compute_once(why, when=self._live)
        return SqlText(f"({why}) IS NULL") if isinstance(why, SqlText) else why.isNull()

    def change(self, statement: Callable[[DataFrame], DataFrame]) -> StraightRows:
        frame = statement(self.frame)
        return replace(self, frame=self.observe(frame, self.step), names=tuple(frame.columns), small=frozenset())

    @property
    def _is_aside(self) -> bool:
        return RESTS in self.kept


@dataclass(frozen=True, kw_only=True)
class MarkedRows(Rows):
    """Rows with a verdict each. No row is removed, and nothing is evaluated on a row that is not live."""

    original_schema: str
    materialise: Callable[[MarkedRows], DataFrame]
    """Stores these rows with their verdicts for later reads, and returns the live ones."""
    parts: Sequence[str] = ("",)
    """The values of `PLACE.part`, in the order in which their rows count as read."""
    untouched: bool = True
    """Whether all columns that were read still have the values that were read. `ORIGINAL` is then not needed. To
    keep it would cost as much as a stage."""
    keeps_filtered: bool = False
    """Whether a row that a stage filters has `VERDICT` too: its columns before the stage, usually without a reason."""

    @staticmethod
    def begin(
        frame: DataFrame,
        names: tuple[str, ...],
        labels: Mapping[str, str | int | datetime],
        materialise: Callable[[MarkedRows], DataFrame],
    ) -> MarkedRows:
        """Return the rows as an origin read them, with `PLACE`, or as a stage with `changes_rows` returned them."""
        fields = {field.name: field for field in frame.schema}
        schema = T.StructType([fields[name] for name in names])
        nack, state = SqlText(f"CAST(NULL AS {NACK})"), SqlText("0")
        if REFUSED in frame.columns:
            raw, raw_schema = encode_payload({"raw": f"{REFUSED}.raw"}, _parse_schema(RAW)), quote_text(RAW)
            parts = ("'origin'", "NULL", f"{REFUSED}.code", f"{REFUSED}.message", raw, raw_schema, raw, raw_schema)
            nack = SqlText(f"if({REFUSED} IS NULL, NULL, {_make_nack_sql(parts)})")
            state = SqlText(f"if({REFUSED} IS NULL, 0, {REFUSED_BY_ORIGIN})")
        hidden = {STATE: state, VERDICT: nack, ORIGINAL: make_struct(names)}
        known = [compute_once(column, name) for name, column in hidden.items()]
        frame = select_columns(frame, SqlText(PLACE), *known, *[SqlText(quote_name(name)) for name in names])
        return MarkedRows(
            frame=frame, names=names, labels=labels, original_schema=schema.json(), materialise=materialise
        )

    @property
    def _live(self) -> str:
        return _LIVE

    def aside(self, when: Column | None, on_error: str) -> MarkedRows:
        concerns = SqlText("true") if when is None else _require_truth(when)
        frame = select_columns(self.frame, "*", compute_once(concerns, KEPT, _LIVE))
        state = SqlText(f"if({_LIVE} AND NOT coalesce({KEPT}, false), {RESTING}, {STATE})")
        stood = compute_once(make_struct(self.names), ASIDE)
        frame = select_columns(frame, *self._list_hidden_columns(state=state), stood, *self._list_data_columns())
        return replace(self, frame=frame, kept=(*self.kept, ASIDE), on_error=on_error)

    def rejoin(self, before: MarkedRows) -> MarkedRows:
        refused, rests = f"{STATE} = {-self.step}", f"{STATE} = {RESTING}"
        becomes = {"keep": "0", "discard": str(self.step)}.get(self.on_error, STATE)
        state = SqlText(f"CASE WHEN {rests} THEN 0 WHEN {refused} THEN {becomes} ELSE {STATE} END")
        drops = self.on_error == "keep" or (self.on_error == "discard" and not self.keeps_filtered)
        verdict = SqlText(f"if({refused}, NULL, {VERDICT})" if drops else VERDICT)
        rests = f"({rests} OR {refused})" if self.on_error == "keep" else rests
        rows = replace(self, kept=tuple(name for name in self.kept if name != ASIDE), on_error="nack")
        hidden = rows._list_hidden_columns(state=state, verdict=verdict)  # noqa: SLF001 -- of the same class
        return replace(rows, frame=select_columns(self.frame, *hidden, *self._restore_columns(rests, before)))

    def select(self, columns: Mapping[str, Expression | str]) -> MarkedRows:
        stay = {name for name, column in columns.items() if not _is_expression(column) and column == name}
        return replace(super().select(columns), untouched=self.untouched and stay.issuperset(self._read))

    def filter(self, condition: Expression) -> MarkedRows:
        frame = select_columns(self.frame, "*", compute_once(_require_truth(condition), KEPT, _LIVE))
        state = SqlText(f"if({_LIVE} AND NOT coalesce({KEPT}, false), {self.step}, {STATE})")
        return self._keep_filtered(select_columns(frame, *self._list_columns(state)))

    def latest(self, keys: Sequence[str], sequence: Column | None) -> MarkedRows:
        apart = F.when(~(self.live & self._are_all_given(keys)), F.col(PLACE)).alias(APART)
        if sequence is None:
            frame, by, ties = *self._with_arrival(), []
        else:
            ties = order_by_content(self.schema)
            frame, by = self.frame, compute_once(sequence, when=_LIVE)
        frame = select_columns(frame, *self._list_columns(), apart, by.alias(SEQUENCE))
        frame = self._number_rows(frame, keys, [F.desc_nulls_last(SEQUENCE), *ties])
        state = SqlText(f"if({_LIVE} AND {KEPT} > 1, {self.step}, {STATE})")
        return self._keep_filtered(select_columns(frame, *self._list_columns(state)))

    def _keep_filtered(self, frame: DataFrame) -> MarkedRows:
        """Return the rows of this frame, in which the stage has just filtered some."""
        if self.keeps_filtered:
            verdict = SqlText(f"if({STATE} = {self.step}, {self._make_nack('NULL', 'NULL')}, {VERDICT})")
            frame = select_columns(frame, *self._list_columns(verdict=verdict))
        return replace(self, frame=frame)

    def _with_arrival(self) -> tuple[DataFrame, Column]:
        """Return the frame, and a column that increases in the order in which rows were read."""
        inside = F.col(PLACE)["block"], F.col(PLACE)["row"]
        if len(self.parts) == 1:
            return self.frame, F.struct(*inside)
        ranks = self.frame.sparkSession.createDataFrame(list(enumerate(self.parts)), f"{RANK} bigint, {PART} string")
        ranked = self.frame.join(F.broadcast(ranks), F.col(PLACE)["part"] == F.col(PART), "left")
        return ranked, F.struct(F.col(RANK), *inside)

    def add_note(self, note: Column) -> MarkedRows:
        return replace(super().add_note(note), kept=(*self.kept, self.note))

    def in_order(self) -> tuple[MarkedRows, Column]:
        frame, arrival = self._with_arrival()
        return replace(self, frame=frame), arrival

    def attempt(self, tried: Mapping[str, Expression], why: Expression | Reason, put: Mapping[str, str]) -> MarkedRows:
        kept = self._list_columns()
        frame = self.frame
        if tried:
            own = [compute_once(column, name, _LIVE) for name, column in tried.items()]
            frame = select_columns(frame, *kept, *own)
        if isinstance(why, Reason):
            refused, code, message, why = f"{REASON} <> ''", why.code, REASON, SqlText(why.message)
        else:
            refused, code, message = f"{REASON} IS NOT NULL", f"{REASON}.code", f"{REASON}.message"
        frame = select_columns(frame, *kept, *map(SqlText, tried), compute_once(why, REASON, _LIVE))
        state = SqlText(f"if({refused}, {-self.step}, {STATE})")
        verdict = SqlText(f"if({refused}, {self._make_nack(code, message)}, {VERDICT})")
        names = (*self.names, *[name for name in put if name not in self.names])
        data = [_rename(put.get(name, name), name) for name in names]
        untouched = self.untouched and put.keys().isdisjoint(self._read)
        frame = select_columns(frame, *self._list_hidden_columns(state=state, verdict=verdict), *data)
        small = self.small - put.keys()
        return replace(self, frame=frame, names=names, small=small, untouched=untouched)

    def _make_nack(self, code: str, message: str) -> str:
        schema = self.schema
        row = encode_payload({name: quote_name(name) for name in self.names}, schema)
        original = encode_struct("" if self.untouched else ORIGINAL, self.original_schema)
        schemas = quote_text(schema.json()), quote_text(self.original_schema)
        who = [quote_text(name) if name is not None else "NULL" for name in (self.stage, self.destination)]
        return _make_nack_sql((*who, code, message, row, schemas[0], original, schemas[1]))

    @property
    def _read(self) -> Sequence[str]:
        return _parse_schema(self.original_schema).names

    def keep_as_read(self) -> MarkedRows:
        now = compute_once(SqlText(f"if({_LIVE}, {make_struct(self.names)}, {ORIGINAL})"), ORIGINAL)
        columns = [now if name == ORIGINAL else SqlText(quote_name(name)) for name in self.frame.columns]
        return replace(self, frame=select_columns(self.frame, *columns))

    def change(self, statement: Callable[[DataFrame], DataFrame]) -> MarkedRows:
        changed = statement(self.materialise(self))
        new = MarkedRows.begin(place_rows(changed), tuple(changed.columns), self.labels, self.materialise)
        begun = replace(self, frame=new.frame, names=new.names, original_schema=new.original_schema, untouched=True)
        return replace(begun, kept=(), small=frozenset(), parts=("",))

    def _list_hidden_columns(self, state: SqlText | None = None, verdict: SqlText | None = None) -> list[SqlText]:
        changed = {STATE: state, VERDICT: verdict}
        names = (PLACE, STATE, VERDICT, ORIGINAL, *self.kept)
        return [compute_once(new, name) if (new := changed.get(name)) is not None else SqlText(name) for name in names]

    def _list_columns(self, state: SqlText | None = None, verdict: SqlText | None = None) -> list[SqlText]:
        return [*self._list_hidden_columns(state, verdict), *self._list_data_columns()]


def place_rows(frame: DataFrame) -> DataFrame:
    """Return the rows with a distinct `PLACE` each, in Spark's order."""
    place = "named_struct('part', '', 'block', 0L, 'row', monotonically_increasing_id())"
    return frame.withColumn(PLACE, F.expr(place))


def select_columns(frame: DataFrame, *columns: Column | str) -> DataFrame:
    """Return these columns of the frame. Text is SQL."""
    if all(isinstance(column, str) for column in columns):
        return frame.selectExpr(*columns)  # type: ignore[arg-type]
    return frame.select(*[F.expr(column) if isinstance(column, str) else column for column in columns])


@overload
def compute_once(value: SqlText, name: str = "", when: str = "") -> SqlText: ...
@overload
def compute_once(value: Column, name: str = "", when: str = "") -> Column: ...
@overload
def compute_once(value: Expression, name: str = "", when: str = "") -> Expression: ...
def compute_once(value: Expression, name: str = "", when: str = "") -> Expression:
    """Return the value where the condition is true, else NULL; under a name, if one is given.

    Spark computes it once, and where it stands. The optimizer knows nothing about it. It does not copy it to its uses,
    move a later filter before it, or skip rows of which a condition is always false. Nor does it note that the column
    equals the expression: such notes double with every column that gets a new name. So plans, and the time to make
    them, grow only with the stages, and every row is evaluated.
    """
    condition = f"{when} AND {_ONCE}" if when else _ONCE
    if isinstance(value, SqlText):
        own = SqlText(f"CASE WHEN {condition} THEN {value} END")
        return own.name(name) if name else own
    column = F.when(F.expr(condition), value)
    return column.alias(name) if name else column


def make_struct(names: Sequence[str]) -> SqlText:
    """Return these columns as one struct."""
    fields = ", ".join(f"{quote_text(name)}, {quote_name(name)}" for name in names)
    return SqlText(f"named_struct({fields})")


def encode_struct(column: str, schema: str) -> str:
    """Return SQL for the struct column as the text that the DLQ keeps.

    Without a name, it is for the columns of its fields.
    """
    fields = _parse_schema(schema)
    values = {name: f"{column}[{quote_text(name)}]" if column else quote_name(name) for name in fields.names}
    return encode_payload(values, fields)


def order_by_content(schema: T.StructType) -> list[Column]:
    """Return the columns to order rows of this schema by. Only identical rows have an undefined order."""
    order = []
    for field in schema:
        value = F.col(quote_name(field.name))
        if not can_be_ordered(field.dataType):
            value = F.expr(encode_payload({field.name: quote_name(field.name)}, T.StructType([field])))
        order.append(value.desc_nulls_last())
    return order


def can_be_ordered(kind: T.DataType) -> bool:
    """Return whether Spark can compare two values of this type, and test them for equality."""
    unordered = (T.MapType, T.VariantType, T.CalendarIntervalType)
    return not any(isinstance(inner, unordered) for _, inner in walk_types(kind))


def _parse_schema(text: str) -> T.StructType:
    return T.StructType.fromJson(json.loads(text))


_LIVE = f"{STATE} = 0"
_ONCE = "spark_partition_id() >= 0"
"""A condition that is always true, but that Spark treats as changing from run to run."""


def _choose(columns: Mapping[str, Expression | str], own: str) -> list[Expression]:
    """Return the columns under their names. Expressions are computed only if the condition `own` is true."""
    return [
        compute_once(column, name, own) if _is_expression(column) else _rename(str(column), name)
        for name, column in columns.items()
    ]


def _rename(column: str, name: str) -> SqlText:
    """Return a column under another name, or unchanged under its own."""
    own = SqlText(quote_name(column))
    return own if column == name else compute_once(own, name)


def _is_expression(column: Expression | str) -> TypeGuard[Expression]:
    return isinstance(column, SqlText) or not isinstance(column, str)


def _make_nack_sql(parts: Sequence[str]) -> str:
    """Return SQL for a nack of its fields, in order."""
    names = ("stage", "destination", "code", "message", "row", "row_schema", "original", "original_schema")
    fields = ", ".join(f"'{name}', {part}" for name, part in zip(names, parts, strict=True))
    return f"CAST(named_struct({fields}) AS {NACK})"


def _require_truth(condition: Expression) -> Expression:
    """Return the condition in a form that Spark cannot analyse if it is no boolean, for example text."""
    if isinstance(condition, SqlText):
        return SqlText(f"if({condition}, true, false)")
    return F.call_function("if", condition, F.lit(True), F.lit(False))


def _raise_unless(good: Expression | str) -> Column | str:
    raised = f"CAST(raise_error('{MARK}') AS BOOLEAN)"
    if isinstance(good, str):
        return f"CASE WHEN {good} THEN {_ONCE} ELSE {raised} END"
    return F.when(good, F.expr(_ONCE)).otherwise(F.expr(raised))
