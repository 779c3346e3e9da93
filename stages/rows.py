"""The rows of one batch on their way through the stages. Each row has a state, and keeps it.

Rows that explain keep a verdict beside every row, so that Wherry can decide the whole batch before it delivers a row.
Others have only the state. If no row was refused, one write both decides and delivers the batch.
"""

from __future__ import annotations

import functools
import json
import operator
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import TypeAlias, TypeGuard, overload

from origins.batch import JSON
from origins.lazy import Column, DataFrame, F, T, pyspark
from origins.nack import NACK, RAW, REFUSED, encode_payload
from origins.names import HIDDEN, quote_name, quote_text
from origins.origin import PLACE
from origins.schema import walk_types
from stages.bisection import LARGE, MARK
from stages.expressions import SqlText, enclose, put_in
from stages.query import Query, Schemas

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
RESTING = 1_000_000
"""The state of a live row that skips the stage."""
POISON = HIDDEN + "poison"
"""`struct<step, code, message>` beside a row for which a stage's expressions are known to raise, else NULL."""
NOTE = HIDDEN + "note"
"""The prefix of the columns in which stages keep a note beside every row."""

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
class Rows:
    """Rows as a stage sees them. A stage selects columns, filters rows and refuses rows.

    Every row has a state. No row is removed, and nothing is evaluated on a row that is not live.
    """

    query: Query
    names: tuple[str, ...]
    """The columns that a stage sees, in their order."""
    labels: Mapping[str, str | int | datetime]
    materialise: Callable[[Rows], DataFrame]
    """Returns the live rows for a stage that changes rows. It may first store all rows."""
    explains: bool = True
    """Whether rows have `PLACE`, `VERDICT` and `ORIGINAL`. A clean batch needs none of them."""
    original_schema: str = ""
    """The columns that were read, if rows explain."""
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
    filters: tuple[int, ...] = ()
    """The steps that may have filtered rows."""
    judged: bool = False
    """Whether a row may have been refused."""
    hold: Callable[[Rows, str], tuple[Rows, Mapping[str, int]]] | None = None
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
    parts: Sequence[str] = ("",)
    """The values of `PLACE.part`, if there are places, in the order in which their rows count as read."""
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
        materialise: Callable[[Rows], DataFrame],
        *,
        explains: bool = True,
        kept: tuple[str, ...] = (),
        schemas: Schemas | None = None,
    ) -> Rows:
        """Return the rows as an origin read them, or as a stage with `changes_rows` returned them.

        Rows that explain have `PLACE`. `schemas` has what earlier batches found out.
        """
        query = Query.of(frame, schemas)
        known = {each.name: each for each in query.schema}
        state, nack, schema = SqlText("0"), SqlText(f"CAST(NULL AS {NACK})"), ""
        if REFUSED in known:
            raw, raw_schema = encode_payload({"raw": f"{REFUSED}.raw"}, _parse_schema(RAW)), quote_text(RAW)
            parts = ("'origin'", "NULL", f"{REFUSED}.code", f"{REFUSED}.message", raw, raw_schema, raw, raw_schema)
            nack = SqlText(f"if({REFUSED} IS NULL, NULL, {_make_nack_sql(parts)})")
            state = SqlText(f"if({REFUSED} IS NULL, 0, {REFUSED_BY_ORIGIN})")
        beside = [compute_once(state, STATE)]
        if explains:
            schema = T.StructType([known[name] for name in names]).json()
            hidden = {VERDICT: nack, ORIGINAL: make_struct(names)}
            beside = [SqlText(PLACE), *beside, *[compute_once(column, name) for name, column in hidden.items()]]
        query = query.select(*beside, *map(SqlText, kept), *[SqlText(quote_name(name)) for name in names])
        return Rows(
            query=query,
            names=names,
            labels=labels,
            materialise=materialise,
            explains=explains,
            original_schema=schema,
            kept=kept,
            judged=REFUSED in known,
        )

    def enter(
        self, stage: str, step: int, *, destination: str | None = None, pin: JSON = None, one_by_one: bool = False
    ) -> Rows:
        """Return the same rows before this stage, which has this number in the batch."""
        return replace(self, stage=stage, step=step, destination=destination, pin=pin, one_by_one=one_by_one)

    @property
    def frame(self) -> DataFrame:
        """Return all rows, with Wherry's hidden columns, as a lazy frame of Spark."""
        return self.query.frame

    def with_frame(self, frame: DataFrame) -> Rows:
        """Return these rows with the same columns, and perhaps more, from another frame."""
        return replace(self, query=Query.of(frame))

    def take_live(self) -> DataFrame:
        """Return the live rows, with the columns that stages see."""
        live = self.query.where(_LIVE) if self.judged or self.filters else self.query
        return live.select(*self._list_data_columns()).frame

    def take_clean(self) -> DataFrame:
        """Return the rows of a clean batch, as `take_live` does. The first refused row makes the query raise `MARK`."""
        return self.stop_at_refused().take_live()

    def stop_at_refused(self) -> Rows:
        """Return the same rows. The first refused row makes the query raise `MARK`."""
        if not self.judged:
            return self
        raises = f"if({STATE} < 0, CAST(raise_error('{MARK}') AS BOOLEAN), {_ONCE})"
        return replace(self, query=self.query.where(raises))

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

    @property
    def schema(self) -> T.StructType:
        """Return the columns that a stage sees, with their types."""
        columns = {each.name: each for each in self.query.schema}
        return T.StructType([columns[name] for name in self.names])

    @property
    def live(self) -> Column:
        """Return a condition: whether the stage applies to the row."""
        return F.expr(_LIVE)

    def with_columns(self, columns: Mapping[str, Expression]) -> Rows:
        """Add these columns, or replace the columns of the same names.

        All expressions see the rows before the change.
        """
        new = {self.spell_name(name): column for name, column in columns.items()}
        return self.select({**{name: name for name in self.names}, **new})

    def select(self, columns: Mapping[str, Expression | str]) -> Rows:
        """Return the rows with exactly these columns, in this order.

        Text that is no `SqlText` names a column that stays as it is. All other values are expressions. Spark evaluates
        them on live rows only, and they may read only their own row.
        """
        stay = {name for name, column in columns.items() if not _is_expression(column) and column == name}
        small = frozenset(name for name, of in columns.items() if not _is_expression(of) and of in self.small)
        chosen = [
            compute_once(of, name, _LIVE) if _is_expression(of) else _rename(str(of), name)
            for name, of in columns.items()
        ]
        query = self.query.select(*self._list_hidden_columns(), *chosen)
        untouched = self.untouched and stay.issuperset(self._read)
        return replace(self, query=query, names=tuple(columns), small=small, untouched=untouched)

    def filter(self, condition: Expression) -> Rows:
        """Keep the rows for which the condition is true.

        All other rows, including those with NULL, count as filtered.
        """
        query = self.query.select("*", compute_once(_require_truth(condition), KEPT, _LIVE))
        return self._filter_by(query, f"NOT coalesce({KEPT}, false)")

    def latest(self, keys: Sequence[str], sequence: Column | None) -> Rows:
        """Keep, of all rows with the same `keys`, the row with the highest `sequence`. The others count as filtered.

        NULL is the lowest `sequence`. If rows have the same `sequence`, their content decides. A row with a NULL among
        its keys equals no other row, and stays.

        Without `sequence` the row that was read last stays. Only rows that explain know that; see `Stage.needs_places`.
        """
        own = F.col(PLACE) if self.explains else F.monotonically_increasing_id()
        all_given = functools.reduce(operator.and_, [self.column(key).isNotNull() for key in keys])
        if sequence is None:
            (query, by), ties = self._with_arrival(), []
        else:
            query, by, ties = self.query, compute_once(sequence, when=_LIVE), order_by_content(self.schema)
        apart = F.when(~(self.live & all_given), own).alias(APART)
        query = query.select(*self._list_columns(), apart, by.alias(SEQUENCE))
        window = pyspark.sql.Window.partitionBy(*[self.column(key) for key in keys], APART)
        rank = F.row_number().over(window.orderBy(F.desc_nulls_last(SEQUENCE), *ties))
        return self._filter_by(query.select("*", rank.alias(KEPT)), f"{KEPT} > 1")

    def _filter_by(self, query: Query, drops: str) -> Rows:
        """Return the rows of this query. The current stage filters the live rows for which the condition is true."""
        state = SqlText(f"if({_LIVE} AND {drops}, {self.step}, {STATE})")
        query = query.select(*self._list_columns(state))
        if self.keeps_filtered and self.explains:
            verdict = SqlText(f"if({STATE} = {self.step}, {self._make_nack('NULL', 'NULL')}, {VERDICT})")
            query = query.select(*self._list_columns(verdict=verdict))
        return replace(self, query=query, filters=(*self.filters, self.step))

    def refuse(self, why: Expression) -> Rows:
        """Refuse the rows for which `why` (`origins.nack.make_reason`) is not NULL. They reach no later stage."""
        return self.attempt({}, why, {})

    def attempt(self, tried: Mapping[str, Expression], why: Expression | Reason, put: Mapping[str, str]) -> Rows:
        """Compute `tried` once for each row, and refuse the rows for which `why` is not NULL, or has a message.

        The names of `tried` begin with `HIDDEN`. `why` may use them, and they are dropped afterwards. `put` maps a
        column, old or new, to the name in `tried` that becomes its value. A refused row does not change.
        """
        kept = self._list_columns()
        query = self.query
        if tried:
            query = query.select(*kept, *[compute_once(column, name, _LIVE) for name, column in tried.items()])
        if isinstance(why, Reason):
            code, message, refused = why.code, REASON, f"{REASON} <> ''"
        else:
            code, message, refused = f"{REASON}.code", f"{REASON}.message", f"{REASON} IS NOT NULL"
        if isinstance(why, Reason) and not self.explains:
            refused = f"coalesce(CASE WHEN {_LIVE} THEN {why.refused} ELSE false END, true)"
        else:
            reason = SqlText(why.message) if isinstance(why, Reason) else why
            query = query.select(*kept, *map(SqlText, tried), compute_once(reason, REASON, _LIVE))
        state = SqlText(f"if({refused}, {-self.step}, {STATE})")
        verdict = SqlText(f"if({refused}, {self._make_nack(code, message)}, {VERDICT})") if self.explains else None
        names = (*self.names, *[name for name in put if name not in self.names])
        data = [_rename(put.get(name, name), name) for name in names]
        query = query.select(*self._list_hidden_columns(state, verdict), *data)
        untouched = self.untouched and put.keys().isdisjoint(self._read)
        small = self.small - put.keys()
        return replace(self, query=query, names=names, small=small, untouched=untouched, judged=True)

    def without_poison(self) -> Rows:
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

    def add_note(self, note: Column) -> Rows:
        """Add a note beside each live row. Spark computes it once.

        `attempt` may use it as the column `note`. It is stored with the rows' verdicts.
        """
        query = self.query.select(*self._list_columns(), compute_once(note, self.note, _LIVE))
        return replace(self, query=query, kept=(*self.kept, self.note))

    def in_order(self) -> tuple[Rows, Column]:
        """Return the same rows, and a column that rises in the order in which they were read.

        `add_note` must follow. Only rows that explain have that order; see `Stage.needs_places`.
        """
        if not self.explains:
            return self, F.lit(0)
        query, arrival = self._with_arrival()
        return replace(self, query=query), arrival

    def _with_arrival(self) -> tuple[Query, Column]:
        """Return the query, and a column that increases in the order in which rows were read."""
        if not self.explains:
            raises = F.raise_error(F.lit("these rows have no time at which they were read"))
            return self.query, compute_once(raises, when=_LIVE)
        inside = F.col(PLACE)["block"], F.col(PLACE)["row"]
        if len(self.parts) == 1:
            return self.query, F.struct(*inside)
        ranks = self.frame.sparkSession.createDataFrame(list(enumerate(self.parts)), f"{RANK} bigint, {PART} string")
        ranked = self.frame.join(F.broadcast(ranks), F.col(PLACE)["part"] == F.col(PART), "left")
        return Query.of(ranked), F.struct(F.col(RANK), *inside)

    def aside(self, when: Column | None, on_error: str) -> Rows:
        """Set aside the rows for which the condition is not true.

        The stage neither evaluates nor judges them. `rejoin` returns them.
        """
        concerns = SqlText("true") if when is None else _require_truth(when)
        query = self.query.select("*", compute_once(concerns, KEPT, _LIVE))
        state = SqlText(f"if({_LIVE} AND NOT coalesce({KEPT}, false), {RESTING}, {STATE})")
        stood = compute_once(make_struct(self.names), ASIDE)
        query = query.select(*self._list_hidden_columns(state), stood, *self._list_data_columns())
        return replace(self, query=query, kept=(*self.kept, ASIDE), on_error=on_error)

    def rejoin(self, before: Rows) -> Rows:
        """Return the rows that `aside` set aside to the others, unchanged by the stage.

        `on_error` decides about rows that the stage refused. With `keep` a row is as before the stage, but columns
        whose type changed have their new value.
        """
        refused, rests = f"{STATE} = {-self.step}", f"{STATE} = {RESTING}"
        becomes = {"keep": "0", "discard": str(self.step)}.get(self.on_error, STATE)
        state = SqlText(f"CASE WHEN {rests} THEN 0 WHEN {refused} THEN {becomes} ELSE {STATE} END")
        drops = self.on_error == "keep" or (self.on_error == "discard" and not self.keeps_filtered)
        verdict = SqlText(f"if({refused}, NULL, {VERDICT})" if drops else VERDICT) if self.explains else None
        rests = f"({rests} OR {refused})" if self.on_error == "keep" else rests
        rows = replace(self, kept=tuple(name for name in self.kept if name != ASIDE), on_error="nack")
        hidden = rows._list_hidden_columns(state, verdict)  # noqa: SLF001 -- of the same class
        filters = (*self.filters, self.step) if self.on_error == "discard" else self.filters
        query = self.query.select(*hidden, *self._restore_columns(rests, before))
        return replace(rows, query=query, filters=filters)

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

    def beside(self, table: DataFrame, on: Mapping[str, str]) -> Rows:
        """Join each row with the row of `table` that has the same keys, or with NULLs if there is none.

        `on` maps a column of the rows to a column of the table. NULL equals nothing. The table has each key at most
        once, and has one row if `on` is empty. Its names begin with `HIDDEN`. Only `attempt`, which must follow, can
        use them.
        """
        meets = [self.column(own) == F.col(theirs) for own, theirs in on.items()]
        return self.with_frame(self.frame.join(table, functools.reduce(operator.and_, meets, F.lit(True)), "left"))

    def ask_claims(self, needed: str, columns: Collection[str]) -> Rows:
        """Make the query raise `LARGE` if the condition, in SQL, is true for a live row.

        Wherry then processes the batch again with `claims`. If the query does not raise, `columns` are `small`.
        """
        small = () if ASIDE in self.kept else columns
        raises = f"if({_LIVE} AND ({needed}), CAST(raise_error('{LARGE}') AS BOOLEAN), {_ONCE})"
        return replace(self, query=self.query.where(raises), small=self.small.union(small))

    def keep_as_read(self) -> Rows:
        """Make the DLQ keep the rows as they are now as the rows that were read.

        The rows have the columns that were read, with the same types.
        """
        if not self.explains:
            return self
        now = compute_once(SqlText(f"if({_LIVE}, {make_struct(self.names)}, {ORIGINAL})"), ORIGINAL)
        names = [*(name for name in self._list_hidden_columns() if name != ORIGINAL), *self._list_data_columns()]
        return replace(self, query=self.query.select(now, *names))

    def change(self, statement: Callable[[DataFrame], DataFrame]) -> Rows:
        """Replace the rows with the rows of the statement. Only stages with `changes_rows` may use this."""
        changed = statement(self.materialise(self))
        placed = place_rows(changed) if self.explains else changed
        new = Rows.begin(placed, tuple(changed.columns), self.labels, self.materialise, explains=self.explains)
        return replace(
            self,
            query=new.query,
            names=new.names,
            original_schema=new.original_schema,
            untouched=True,
            kept=(),
            judged=False,
            filters=(),
            small=frozenset(),
            parts=("",),
        )

    def _make_nack(self, code: str, message: str) -> str:
        """Return SQL for a verdict without the row as it was read; `complete_verdicts` adds that."""
        row = row_schema = "NULL"
        if not self.untouched or self.names != tuple(self._read):
            schema = self.schema
            row = encode_payload({name: quote_name(name) for name in self.names}, schema)
            row_schema = quote_text(schema.json())
        who = [quote_text(name) if name is not None else "NULL" for name in (self.stage, self.destination)]
        return _make_nack_sql((*who, code, message, row, row_schema, "NULL", "NULL"))

    def complete_verdicts(self) -> Rows:
        """Return the same rows, with both rows in every verdict: as it was read, and as the stage got it.

        Stages leave out what is the same for all of them, so that the plan describes the row that was read once.
        """
        if not self.explains or not (self.judged or (self.filters and self.keeps_filtered)):
            return self
        given, schema = f"{VERDICT}.original", quote_text(self.original_schema)
        encoded = encode_struct("" if self.untouched else ORIGINAL, self.original_schema)
        query = self.query.select(
            "*", compute_once(SqlText(encoded), _AS_READ, f"{VERDICT}.stage IS NOT NULL AND {given} IS NULL")
        )
        parts = {
            "row": f"coalesce({VERDICT}.row, {_AS_READ})",
            "row_schema": f"coalesce({VERDICT}.row_schema, {schema})",
            "original": f"coalesce({given}, {_AS_READ})",
            "original_schema": f"coalesce({VERDICT}.original_schema, {schema})",
        }
        whole = _make_nack_sql([parts.get(name, f"{VERDICT}.{name}") for name in _NACK_FIELDS])
        names = [name for name in self._list_hidden_columns() if name != VERDICT]
        verdict = SqlText(f"if({VERDICT} IS NULL, NULL, {whole})").name(VERDICT)
        return replace(self, query=query.select(verdict, *names, *self._list_data_columns()))

    @property
    def _read(self) -> Sequence[str]:
        return _parse_schema(self.original_schema).names if self.original_schema else ()

    def _list_hidden_columns(self, state: SqlText | None = None, verdict: SqlText | None = None) -> list[SqlText]:
        changed = {STATE: state, VERDICT: verdict}
        names = (PLACE, STATE, VERDICT, ORIGINAL, *self.kept) if self.explains else (STATE, *self.kept)
        return [compute_once(new, name) if (new := changed.get(name)) is not None else SqlText(name) for name in names]

    def _list_data_columns(self) -> list[SqlText]:
        return [SqlText(quote_name(name)) for name in self.names]

    def _list_columns(self, state: SqlText | None = None, verdict: SqlText | None = None) -> list[SqlText]:
        return [*self._list_hidden_columns(state, verdict), *self._list_data_columns()]


def place_rows(frame: DataFrame) -> DataFrame:
    """Return the rows with a distinct `PLACE` each, in Spark's order."""
    place = "named_struct('part', '', 'block', 0L, 'row', monotonically_increasing_id())"
    return frame.withColumn(PLACE, F.expr(place))


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


_AS_READ = HIDDEN + "as_read"
"""The row as it was read, as text."""
_NACK_FIELDS = ("stage", "destination", "code", "message", "row", "row_schema", "original", "original_schema")
_LIVE = f"{STATE} = 0"
_ONCE = "spark_partition_id() >= 0"
"""A condition that is always true, but that Spark treats as changing from run to run."""


def _rename(column: str, name: str) -> SqlText:
    """Return a column under another name, or unchanged under its own."""
    own = SqlText(quote_name(column))
    return own if column == name else compute_once(own, name)


def _is_expression(column: Expression | str) -> TypeGuard[Expression]:
    return isinstance(column, SqlText) or not isinstance(column, str)


def _make_nack_sql(parts: Sequence[str]) -> str:
    """Return SQL for a nack of its fields, in order."""
    fields = ", ".join(f"'{name}', {part}" for name, part in zip(_NACK_FIELDS, parts, strict=True))
    return f"CAST(named_struct({fields}) AS {NACK})"


def _require_truth(condition: Expression) -> Expression:
    """Return the condition in a form that Spark cannot analyse if it is no boolean, for example text."""
    if isinstance(condition, SqlText):
        return SqlText(f"if({condition}, true, false)")
    return F.call_function("if", condition, F.lit(True), F.lit(False))
