"""The rows of one batch on their way through the stages, carried in one of two ways.

`StraightRows` rows raise at the first refused row, so that the write that follows is the whole decision. `MarkedRows`
rows keep a verdict beside every row, so that all of a batch can be decided before any of it is delivered.
"""

from __future__ import annotations

import functools
import json
import operator
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import TYPE_CHECKING, TypeVar

from origins.batch import JSON
from origins.lazy import F, T
from origins.nack import NACK, RAW, REFUSED, encode_payload
from origins.names import HIDDEN, quote_name
from origins.origin import PLACE
from origins.quick_dataclass import dataclass
from stages.bisection import LARGE, MARK
from stages.expressions import put_in
from stages.ordering import order_by_content

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

STATE = HIDDEN + "state"
"""0 for a live row; n if the n-th stage (from 1) filtered it; -n if that stage refused it; -1000 if the origin did."""
VERDICT = HIDDEN + "nack"
ORIGINAL = HIDDEN + "original"
REASON = HIDDEN + "reason"
KEPT = HIDDEN + "kept"
SEQUENCE = HIDDEN + "sequence"
APART = HIDDEN + "apart"
"""What only one row has: set for rows that are like no other."""
PART = HIDDEN + "part"
RANK = HIDDEN + "rank"
REFUSED_BY_ORIGIN = -1000
ASIDE = HIDDEN + "aside"
"""How a row stood at the door of the stage that is being applied."""
RESTS = HIDDEN + "rests"
"""Whether a straight row passes the stage by."""
RESTING = 1_000_000
"""The state of a live row that passes the stage by."""
POISON = HIDDEN + "poison"
"""`struct<step, code, message>` beside a row at which a stage's own expressions are known to raise, else NULL."""
NOTE = HIDDEN + "note"
"""How the names of columns begin in which a stage keeps a note beside every row."""

R = TypeVar("R", bound="Rows")


@dataclass(frozen=True, kw_only=True)
class Rows(ABC):
    """Rows as a stage sees them: columns that it may select, filter and refuse by."""

    frame: DataFrame
    names: tuple[str, ...]
    """The columns that a stage sees, in order."""
    labels: Mapping[str, str | int | datetime]
    stage: str = ""
    """The stage that is being applied."""
    step: int = 0
    """Its number in the batch, from 1."""
    destination: str | None = None
    """The destination that demands it, if it is not the definition that does."""
    pin: JSON = None
    """What the stage pinned when the batch was planned."""
    on_error: str = "nack"
    """What becomes of a row that the stage refuses."""
    kept: tuple[str, ...] = ()
    """Columns that no stage sees and that stay beside every row."""
    hold: Callable[[MarkedRows, str], tuple[MarkedRows, Mapping[str, int]]] | None = None
    """Writes the rows down as they stand; gives them as they are read again, and how many live ones have which note in
    the column of this name. None while rows are only described or tried out: nobody judges the batch then."""
    claims: bool | None = False
    """Whether large values go to their store, and come back from there. Where they do not, the first of them makes the
    query raise `LARGE`. None where rows are only tried out: nothing is stored then, and large values stay."""
    protected: tuple[str, ...] = ()
    """The columns whose values are masked."""
    tell: Callable[[str, JSON], None] | None = None
    """Takes what a stage, by its name, found out about the batch that it judged."""

    def enter(self: R, stage: str, step: int, *, destination: str | None = None, pin: JSON = None) -> R:
        """The same rows at the door of a stage, which has this number in the batch."""
        return replace(self, stage=stage, step=step, destination=destination, pin=pin)

    def expression(self, sql: str) -> Column:
        """A SQL expression over the rows' columns, with the batch's labels put in."""
        return F.expr(put_in(sql, self.labels))

    def column(self, name: str) -> Column:
        """A column by its name, with any characters; in the case of letters that the rows have."""
        return F.col(quote_name(self.spell_name(name)))

    def spell_name(self, name: str) -> str:
        """The name as the rows spell it; itself when they have no such column."""
        return next((own for own in self.names if own.lower() == name.lower()), name)

    def with_columns(self: R, columns: Mapping[str, Column]) -> R:
        """These columns added, or put in the place of those of the same name; all see the rows as they were."""
        new = {self.spell_name(name): column for name, column in columns.items()}
        return self.select({**{name: name for name in self.names}, **new})

    def without_poison(self: R) -> R:
        """The same rows, of which those are refused at which the stage is known to raise."""
        if POISON not in self.kept:
            return self
        poison = F.col(POISON)
        why = F.struct(poison["code"].alias("code"), poison["message"].alias("message"))
        return self.refuse(F.when(poison["step"] == self.step, why))

    @property
    def notes(self) -> Sequence[str]:
        """The columns in which stages keep notes."""
        return [name for name in self.kept if name.startswith(NOTE)]

    @property
    def note(self) -> str:
        """The column in which the stage that is being applied keeps its notes."""
        return f"{NOTE}{self.step}"

    @abstractmethod
    def add_note(self: R, note: Column) -> R:
        """The same rows, each live one beside a note, computed once. `attempt` may ask for it as `note`, and where rows
        have verdicts it is written down with them."""

    @abstractmethod
    def in_order(self: R) -> tuple[R, Column]:
        """The same rows, and what rises over them in the order in which they were read; `add_note` must come next. Only
        marked rows know that order; `Stage.needs_places`."""

    def _data_columns(self) -> list[Column]:
        return [F.col(quote_name(name)) for name in self.names]

    def _all_given(self, keys: Sequence[str]) -> Column:
        return functools.reduce(operator.and_, [self.column(key).isNotNull() for key in keys])

    def _number_rows(self, frame: DataFrame, keys: Sequence[str], order: Sequence[Column]) -> DataFrame:
        """The frame with `KEPT`: the number, from 1, of each row among those with the same keys."""
        from pyspark.sql import Window

        window = Window.partitionBy(*[self.column(key) for key in keys], APART).orderBy(*order)
        return frame.select("*", F.row_number().over(window).alias(KEPT))

    @property
    def schema(self) -> T.StructType:
        """The types of the columns that a stage sees."""
        columns = self.frame.schema
        return T.StructType([columns[name] for name in self.names])

    @property
    @abstractmethod
    def live(self) -> Column:
        """Whether the stage applies to a row."""

    @abstractmethod
    def aside(self: R, when: Column | None, on_error: str) -> R:
        """The same rows at the door of a stage that is about those for which the condition is true; the others rest,
        and are neither evaluated nor judged until `rejoin`."""

    @abstractmethod
    def rejoin(self: R, before: R) -> R:
        """These rows behind the stage, with those that rest as they stood before it. A row that it refused is dealt
        with as `on_error` says: one that is kept stands as before, but for columns that have another type now."""

    def _restore_columns(self, rests: Column, before: Rows) -> list[Column]:
        """The columns, with what stood there before in the rows that rest."""
        was = {field.name: field.dataType.simpleString() for field in before.schema}
        found = []
        for field in self.schema:
            old, column = before.spell_name(field.name), F.col(quote_name(field.name))
            if was.get(old) == field.dataType.simpleString():
                column = F.when(rests, F.col(ASIDE)[old]).otherwise(column)
            found.append(column.alias(field.name))
        return found

    @abstractmethod
    def select(self: R, columns: Mapping[str, Column | str]) -> R:
        """Exactly these columns, in this order. Text is the name of one that stays as it is; all others are
        evaluated on live rows only, and may look at nothing but their own row."""

    @abstractmethod
    def filter(self: R, condition: Column) -> R:
        """The rows for which the condition is true; the others, NULL included, count as filtered."""

    @abstractmethod
    def latest(self: R, keys: Sequence[str], sequence: Column | None) -> R:
        """Of the rows whose columns `keys` are the same the one with the highest `sequence`; the others count as
        filtered. NULL is the lowest; of rows with the same `sequence` their content decides. A row with a NULL among
        its keys is like no other, and stays.

        Without `sequence` it is the row that was read last. Only marked rows know that; `Stage.needs_places`.
        """

    def refuse(self: R, why: Column) -> R:
        """Refuse the rows for which `why` (origins.nack.make_reason) is not NULL. They reach no later stage."""
        return self.attempt({}, why, {})

    @abstractmethod
    def attempt(self: R, tried: Mapping[str, Column], why: Column, put: Mapping[str, str]) -> R:
        """Compute `tried` once, beside the rows, and refuse the rows for which `why` is not NULL.

        `why` may ask for the names of `tried`, which begin with `HIDDEN` and are gone afterwards; `put` says which
        of them take the place of which column, or become a new one. A refused row leaves as it stood before all this.
        """

    def beside(self: R, table: DataFrame, on: Mapping[str, str]) -> R:
        """The same rows, each beside the row of `table` with the same keys, or beside NULLs where there is none.

        `on` says which column meets which of the table's; NULL meets nothing. The table has all keys once at most; one
        that is met without keys has one row. Its names begin with `HIDDEN`, and can be asked for by `attempt` only,
        which must come next.
        """
        meets = [self.column(own) == F.col(theirs) for own, theirs in on.items()]
        return replace(self, frame=self.frame.join(table, functools.reduce(operator.and_, meets, F.lit(True)), "left"))

    @abstractmethod
    def ask_claims(self: R, needed: str) -> R:
        """The same rows. The query raises `LARGE` where the condition, as SQL, is true for a live one; the batch then
        begins again with `claims`."""

    def keep_as_read(self: R) -> R:
        """The same rows, of which the DLQ keeps how they stand now as the rows that were read. They have the columns
        that were read, with their types."""
        return self

    @abstractmethod
    def change(self: R, statement: Callable[[DataFrame], DataFrame]) -> R:
        """Other rows in the place of these; for stages with `changes_rows` only."""


@dataclass(frozen=True, kw_only=True)
class StraightRows(Rows):
    """Rows of which none may be refused: the first one that is makes the query raise `MARK`."""

    observe: Callable[[DataFrame, int], DataFrame]
    """Counts the rows that pass here, under the step's number."""

    @staticmethod
    def begin(
        frame: DataFrame,
        names: tuple[str, ...],
        labels: Mapping[str, str | int | datetime],
        observe: Callable[[DataFrame, int], DataFrame],
        kept: tuple[str, ...] = (),
    ) -> StraightRows:
        """The rows as an origin read them."""
        if REFUSED in frame.columns:
            frame = frame.filter(_raise_unless(F.col(REFUSED).isNull())).drop(REFUSED)
        return StraightRows(frame=observe(frame, 0), names=names, labels=labels, observe=observe, kept=kept)

    @property
    def live(self) -> Column:
        return ~F.col(RESTS) if self._is_aside else F.lit(True)

    def aside(self, when: Column | None, on_error: str) -> StraightRows:
        rests = F.lit(False)
        if when is not None:
            rests = ~F.when(self._require_row_by_row() & _compute_once(), _require_truth(when))
        stood = F.struct(*self._data_columns()).alias(ASIDE)
        frame = self.frame.select(*self._list_columns(), stood, F.coalesce(rests, F.lit(True)).alias(RESTS))
        return replace(self, frame=frame, kept=(*self.kept, ASIDE, RESTS), on_error=on_error)

    def rejoin(self, before: StraightRows) -> StraightRows:
        frame = self.frame.select(*before._list_kept_columns(), *self._restore_columns(F.col(RESTS), before))
        return replace(self, frame=frame, kept=before.kept, on_error="nack")

    def select(self, columns: Mapping[str, Column | str]) -> StraightRows:
        own = self._require_row_by_row() & self.live if self._is_aside else self._require_row_by_row()
        chosen = [
            F.col(quote_name(column)).alias(name) if isinstance(column, str) else F.when(own, column).alias(name)
            for name, column in columns.items()
        ]
        return replace(self, frame=self.frame.select(*self._list_kept_columns(), *chosen), names=tuple(columns))

    def filter(self, condition: Column) -> StraightRows:
        kept = F.when(self._require_row_by_row() & self.live & _compute_once(), _require_truth(condition))
        frame = self.frame.select("*", kept.otherwise(~self.live).alias(KEPT)).filter(F.col(KEPT))
        return replace(self, frame=self.observe(frame.select(*self._list_columns()), self.step))

    def latest(self, keys: Sequence[str], sequence: Column | None) -> StraightRows:
        by = F.raise_error(F.lit("these rows have no time at which they were read")) if sequence is None else sequence
        frame = self.frame.select(
            "*",
            F.when(self._require_row_by_row() & self.live & _compute_once(), by).alias(SEQUENCE),
            F.when(~(self.live & self._all_given(keys)), F.monotonically_increasing_id()).alias(APART),
        )
        order = [F.desc_nulls_last(SEQUENCE), *order_by_content(self.schema)]
        frame = self._number_rows(frame, keys, order).filter(F.col(KEPT) == 1)
        return replace(self, frame=self.observe(frame.select(*self._list_columns()), self.step))

    def add_note(self, note: Column) -> StraightRows:
        own = F.when(self._require_row_by_row() & self.live & _compute_once(), note)
        return replace(self, frame=self.frame.select(*self._list_columns(), own.alias(self.note)))

    def in_order(self) -> tuple[StraightRows, Column]:
        return self, F.lit(0)

    def attempt(self, tried: Mapping[str, Column], why: Column, put: Mapping[str, str]) -> StraightRows:
        frame, own = self.frame, self._require_row_by_row() & self.live
        if tried:
            frame = frame.select(
                "*", *[F.when(own & _compute_once(), column).alias(name) for name, column in tried.items()]
            )
        frame = self._judge(frame, F.when(self.live, why) if self._is_aside else why)
        names = (*self.names, *[name for name in put if name not in self.names])
        if tried:
            columns = [F.col(quote_name(put.get(name, name))).alias(name) for name in names]
            frame = frame.select(*self._list_kept_columns(), *columns)
        return replace(self, frame=frame, names=names)

    def _judge(self, frame: DataFrame, why: Column) -> DataFrame:
        """The frame without the rows that are refused; with them, at rest, if they are to be kept."""
        if self.on_error == "keep":
            columns = [F.col(quote_name(name)) for name in frame.columns if name != RESTS]
            return frame.select(*columns, (F.col(RESTS) | (_compute_once() & why.isNotNull())).alias(RESTS))
        if self.on_error == "discard":
            columns = [F.col(quote_name(name)) for name in frame.columns]
            judged = frame.select(*columns, (_compute_once() & why.isNull()).alias(KEPT))
            return self.observe(judged.filter(F.col(KEPT)).select(*columns), self.step)
        return frame.filter(_raise_unless(why.isNull()))

    def ask_claims(self, needed: str) -> StraightRows:
        live = f"NOT {RESTS}" if self._is_aside else "true"
        return replace(self, frame=self.frame.filter(_raise_where(live, needed)))

    def change(self, statement: Callable[[DataFrame], DataFrame]) -> StraightRows:
        frame = statement(self.frame)
        return replace(self, frame=self.observe(frame, self.step), names=tuple(frame.columns))

    @property
    def _is_aside(self) -> bool:
        return RESTS in self.kept

    def _list_kept_columns(self) -> list[Column]:
        return [F.col(name) for name in self.kept]

    def _list_columns(self) -> list[Column]:
        return [*self._list_kept_columns(), *self._data_columns()]

    def _require_row_by_row(self) -> Column:
        """True; and what stands behind it cannot be analysed if it makes one row of many, or many of one."""
        return F.col(quote_name(self.names[0])).isNull() | F.lit(True)


@dataclass(frozen=True, kw_only=True)
class MarkedRows(Rows):
    """Rows with a verdict each: none leaves, and nothing is evaluated on one that is no longer live."""

    original_schema: str
    materialise: Callable[[MarkedRows], DataFrame]
    """Keeps these rows with their verdicts where they can be read again, and gives the live ones."""
    parts: Sequence[str] = ("",)
    """The values of `PLACE.part`, in the order in which their rows count as read."""
    untouched: bool = True
    """Whether all columns that were read still stand there as they were read, so that `ORIGINAL` need not be asked: to
    keep it costs as much as a stage where nobody does."""
    keeps_filtered: bool = False
    """Whether a row that a stage filters has `VERDICT` too: how it stood before the stage, mostly without a reason."""

    @staticmethod
    def begin(
        frame: DataFrame,
        names: tuple[str, ...],
        labels: Mapping[str, str | int | datetime],
        materialise: Callable[[MarkedRows], DataFrame],
        step: int = 0,
    ) -> MarkedRows:
        """The rows as an origin read them, with `PLACE`; or as a stage that changes rows gave them."""
        fields = {field.name: field for field in frame.schema}
        schema = T.StructType([fields[name] for name in names])
        columns = [F.col(quote_name(name)) for name in names]
        refused = F.col(REFUSED) if REFUSED in frame.columns else None
        nack, state = F.lit(None).cast(NACK), F.lit(0)
        if refused is not None:
            raw, raw_schema = encode_payload({"raw": refused["raw"]}, _parse_schema(RAW)), F.lit(RAW)
            why = refused["code"], refused["message"]
            whole = F.struct(F.lit("origin"), F.lit(None), *why, raw, raw_schema, raw, raw_schema)
            nack = F.when(refused.isNotNull(), whole.cast(NACK))
            state = F.when(refused.isNotNull(), REFUSED_BY_ORIGIN).otherwise(0)
        frame = frame.select(
            F.col(PLACE), state.alias(STATE), nack.alias(VERDICT), F.struct(*columns).alias(ORIGINAL), *columns
        )
        return MarkedRows(
            frame=frame, names=names, labels=labels, step=step, original_schema=schema.json(), materialise=materialise
        )

    @property
    def live(self) -> Column:
        return _is_live()

    @property
    def as_read(self) -> bool:
        """Whether they have the columns that were read and no others, each as it was read."""
        return self.untouched and self.names == tuple(self._read)

    def aside(self, when: Column | None, on_error: str) -> MarkedRows:
        state = F.col(STATE)
        if when is not None:
            concerns = F.when(_is_live() & _compute_once(), _require_truth(when))
            state = F.when(_is_live() & ~F.coalesce(concerns, F.lit(False)), RESTING).otherwise(state)
        stood = F.struct(*self._data_columns()).alias(ASIDE)
        frame = self.frame.select(*self._list_hidden_columns(state=state), stood, *self._data_columns())
        return replace(self, frame=frame, kept=(*self.kept, ASIDE), on_error=on_error)

    def rejoin(self, before: MarkedRows) -> MarkedRows:
        refused = F.col(STATE) == -self.step
        becomes = {"keep": F.lit(0), "discard": F.lit(self.step)}.get(self.on_error, F.col(STATE))
        state = F.when(F.col(STATE) == RESTING, 0).when(refused, becomes).otherwise(F.col(STATE))
        drops = self.on_error == "keep" or (self.on_error == "discard" and not self.keeps_filtered)
        verdict = F.when(~refused, F.col(VERDICT)) if drops else F.col(VERDICT)
        rests = F.col(STATE) == RESTING
        rests = rests | refused if self.on_error == "keep" else rests
        rows = replace(self, kept=tuple(name for name in self.kept if name != ASIDE), on_error="nack")
        hidden = rows._list_hidden_columns(state=state, verdict=verdict)  # noqa: SLF001 -- one of its own kind
        return replace(rows, frame=self.frame.select(*hidden, *self._restore_columns(rests, before)))

    def select(self, columns: Mapping[str, Column | str]) -> MarkedRows:
        chosen = [
            F.col(quote_name(column)).alias(name) if isinstance(column, str) else F.when(_is_live(), column).alias(name)
            for name, column in columns.items()
        ]
        stay = {name for name, column in columns.items() if isinstance(column, str) and column == name}
        untouched = self.untouched and stay.issuperset(self._read)
        frame = self.frame.select(*self._list_hidden_columns(), *chosen)
        return replace(self, frame=frame, names=tuple(columns), untouched=untouched)

    def filter(self, condition: Column) -> MarkedRows:
        fate = F.when(_require_truth(condition), 0).otherwise(self.step)
        state = F.when(_is_live() & _compute_once(), fate).otherwise(F.col(STATE))
        return self._keep_filtered(self.frame.select(*self._list_hidden_columns(state=state), *self._data_columns()))

    def latest(self, keys: Sequence[str], sequence: Column | None) -> MarkedRows:
        hidden, data = self._list_hidden_columns(), self._data_columns()
        competes = _is_live() & self._all_given(keys)
        apart = F.when(~competes, F.col(PLACE)).alias(APART)
        if sequence is None:
            frame, by, ties = *self._with_arrival(), []
        else:
            frame, by, ties = self.frame, F.when(_is_live() & _compute_once(), sequence), order_by_content(self.schema)
        frame = frame.select(*hidden, *data, apart, by.alias(SEQUENCE))
        frame = self._number_rows(frame, keys, [F.desc_nulls_last(SEQUENCE), *ties])
        state = F.when(_is_live() & (F.col(KEPT) > 1), self.step).otherwise(F.col(STATE))
        return self._keep_filtered(frame.select(*self._list_hidden_columns(state=state), *data))

    def _keep_filtered(self, frame: DataFrame) -> MarkedRows:
        """The rows of this frame, in which the stage has just filtered some."""
        if self.keeps_filtered:
            nothing = F.lit(None).cast("string")
            nack = self._make_nack(F.struct(nothing.alias("code"), nothing.alias("message")))
            verdict = F.when(F.col(STATE) == self.step, nack).otherwise(F.col(VERDICT))
            frame = frame.select(*self._list_hidden_columns(verdict=verdict), *self._data_columns())
        return replace(self, frame=frame)

    def _with_arrival(self) -> tuple[DataFrame, Column]:
        """The frame, and what rises over it from each row to the one that was read after it."""
        inside = F.col(PLACE)["block"], F.col(PLACE)["row"]
        if len(self.parts) == 1:
            return self.frame, F.struct(*inside)
        ranks = self.frame.sparkSession.createDataFrame(list(enumerate(self.parts)), f"{RANK} bigint, {PART} string")
        ranked = self.frame.join(F.broadcast(ranks), F.col(PLACE)["part"] == F.col(PART), "left")
        return ranked, F.struct(F.col(RANK), *inside)

    def add_note(self, note: Column) -> MarkedRows:
        own = F.when(_is_live() & _compute_once(), note).alias(self.note)
        frame = self.frame.select(*self._list_hidden_columns(), *self._data_columns(), own)
        return replace(self, frame=frame, kept=(*self.kept, self.note))

    def in_order(self) -> tuple[MarkedRows, Column]:
        frame, arrival = self._with_arrival()
        return replace(self, frame=frame), arrival

    def attempt(self, tried: Mapping[str, Column], why: Column, put: Mapping[str, str]) -> MarkedRows:
        kept = [*self._list_hidden_columns(), *self._data_columns()]
        frame = self.frame
        if tried:
            computed = [F.when(_is_live() & _compute_once(), column).alias(name) for name, column in tried.items()]
            frame = frame.select(*kept, *computed)
        frame = frame.select(*kept, *map(F.col, tried), F.when(_is_live() & _compute_once(), why).alias(REASON))
        reason = F.col(REASON)
        state = F.when(reason.isNotNull(), -self.step).otherwise(F.col(STATE))
        verdict = F.when(reason.isNotNull(), self._make_nack(reason)).otherwise(F.col(VERDICT))
        names = (*self.names, *[name for name in put if name not in self.names])
        data = [F.col(quote_name(put.get(name, name))).alias(name) for name in names]
        untouched = self.untouched and put.keys().isdisjoint(self._read)
        frame = frame.select(*self._list_hidden_columns(state=state, verdict=verdict), *data)
        return replace(self, frame=frame, names=names, untouched=untouched)

    def _make_nack(self, reason: Column) -> Column:
        schema = self.schema
        row = encode_payload({name: F.col(quote_name(name)) for name in self.names}, schema)
        original = encode_struct("" if self.untouched else ORIGINAL, self.original_schema)
        schemas = F.lit(schema.json()), F.lit(self.original_schema)
        who = F.lit(self.stage), F.lit(self.destination)
        return F.struct(*who, reason["code"], reason["message"], row, schemas[0], original, schemas[1]).cast(NACK)

    @property
    def _read(self) -> Sequence[str]:
        return _parse_schema(self.original_schema).names

    def ask_claims(self, needed: str) -> MarkedRows:
        return replace(self, frame=self.frame.filter(_raise_where(f"{STATE} = 0", needed)))

    def keep_as_read(self) -> MarkedRows:
        now = F.when(_is_live(), F.struct(*self._data_columns())).otherwise(F.col(ORIGINAL)).alias(ORIGINAL)
        columns = [now if name == ORIGINAL else F.col(quote_name(name)) for name in self.frame.columns]
        return replace(self, frame=self.frame.select(*columns))

    def change(self, statement: Callable[[DataFrame], DataFrame]) -> MarkedRows:
        changed = statement(self.materialise(self))
        begun = MarkedRows.begin(
            place_rows(changed), tuple(changed.columns), self.labels, self.materialise, step=self.step
        )
        return replace(
            begun,
            stage=self.stage,
            hold=self.hold,
            tell=self.tell,
            claims=self.claims,
            protected=self.protected,
            keeps_filtered=self.keeps_filtered,
        )

    def _list_hidden_columns(self, state: Column | None = None, verdict: Column | None = None) -> list[Column]:
        changed = {STATE: state, VERDICT: verdict}
        return [
            new.alias(name) if (new := changed.get(name)) is not None else F.col(name)
            for name in (PLACE, STATE, VERDICT, ORIGINAL, *self.kept)
        ]


def place_rows(frame: DataFrame) -> DataFrame:
    """The rows, each with a `PLACE` of its own in the order in which Spark has them."""
    part, block = F.lit("").alias("part"), F.lit(0).cast("bigint").alias("block")
    return frame.withColumn(PLACE, F.struct(part, block, F.monotonically_increasing_id().alias("row")))


def encode_struct(column: str, schema: str) -> Column:
    """The struct column as the text that the DLQ keeps; without a name, the columns of these fields."""
    fields = _parse_schema(schema)
    values = {name: F.col(column)[name] if column else F.col(quote_name(name)) for name in fields.names}
    return encode_payload(values, fields)


def _parse_schema(text: str) -> T.StructType:
    return T.StructType.fromJson(json.loads(text))


def _is_live() -> Column:
    return F.col(STATE) == 0


def _compute_once() -> Column:
    """True, in a way that counts as changing from run to run.

    What is computed behind it is computed once: the optimizer neither copies it to where it is used, nor moves a
    later filter before it, nor leaves all rows unread because a condition is false for every one. Plans stay as
    long as there are stages, and no row leaves unseen.
    """
    return F.spark_partition_id() >= 0


def _require_truth(condition: Column) -> Column:
    """The condition; what is no truth value, text for example, cannot be analysed."""
    return F.call_function("if", condition, F.lit(True), F.lit(False))


def _raise_unless(good: Column) -> Column:
    return F.when(good, _compute_once()).otherwise(F.raise_error(F.lit(MARK)).cast("boolean"))


def _raise_where(live: str, needed: str) -> str:
    """The condition for all rows, of which a live one may raise. As SQL it is made in one call to the JVM."""
    return f"if({live} AND ({needed}), CAST(raise_error('{LARGE}') AS BOOLEAN), spark_partition_id() >= 0)"
