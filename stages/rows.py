"""The rows of one batch on their way through the stages. Each row has a state, and keeps it.

Rows that explain keep a verdict beside every row, so that Wherry can decide the whole batch before it delivers a row.
Others have only the state. If no row was refused, one write both decides and delivers the batch. Authors of stages
use `Rows`. The functions are for Wherry, and for tests of stages.
"""

from __future__ import annotations

import functools
import json
import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import TYPE_CHECKING, TypeAlias, TypeGuard, overload

from origins.batch import JSON
from origins.gone import describe_gone
from origins.lazy import Column, DataFrame, F, T, pyspark
from origins.nack import NACK, RAW, REFUSED, encode_payload
from origins.names import HIDDEN, quote_name, quote_text
from origins.origin import PLACE
from origins.schema import walk_types
from stages.bisection import MARK
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
LIVE = f"{STATE} = 0"
"""Whether a row is live, in SQL."""
ONCE = "spark_partition_id() >= 0"
"""A condition that is always true, but that Spark treats as changing from run to run."""
ASIDE = HIDDEN + "aside"
"""The row before the current stage, if rows may skip it."""
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

    @property
    def schema(self) -> T.StructType:
        """Return the columns that a stage sees, with their types."""
        columns = {each.name: each for each in self.query.schema}
        return T.StructType([columns[name] for name in self.names])

    def column(self, name: str) -> Column:
        """Return a column by its name, in upper or lower case. The name may have any characters."""
        return F.col(quote_name(self.spell_name(name)))

    def spell_name(self, name: str) -> str:
        """Return the name as the rows spell it, or the name itself if the rows have no such column."""
        return next((own for own in self.names if own.lower() == name.lower()), name)

    def sql(self, sql: str) -> Expression:
        """Return a SQL expression over the columns, with the values of the batch's labels.

        It is text, which Spark gets in one call with all others, unless only Spark can say what is wrong with it.
        """
        text = put_in(sql, self.labels)
        enclosed = None if self.one_by_one else enclose(text)
        return enclosed or F.expr(text)

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
            compute_once(of, name, LIVE) if _is_expression(of) else _rename(str(of), name)
            for name, of in columns.items()
        ]
        query = self.query.select(*list_hidden_columns(self), *chosen)
        untouched = self.untouched and stay.issuperset(self._read)
        return replace(self, query=query, names=tuple(columns), small=small, untouched=untouched)

    def filter(self, condition: Expression) -> Rows:
        """Keep the rows for which the condition is true.

        All other rows, including those with NULL, count as filtered.
        """
        query = self.query.select("*", compute_once(require_truth(condition), KEPT, LIVE))
        return self._filter_by(query, f"NOT coalesce({KEPT}, false)")

    def latest(self, keys: Sequence[str], sequence: Expression | None) -> Rows:
        """Keep, of all rows with the same `keys`, the row with the highest `sequence`. The others count as filtered.

        NULL is the lowest `sequence`. If rows have the same `sequence`, their content decides. A row with a NULL among
        its keys equals no other row, and stays.

        Without `sequence` the row that was read last stays. Only rows that explain know that; see `Stage.needs_places`.
        """
        own = F.col(PLACE) if self.explains else F.monotonically_increasing_id()
        all_given = functools.reduce(operator.and_, [self.column(key).isNotNull() for key in keys])
        by: Expression
        if sequence is not None:
            query, by, ties = self.query, compute_once(sequence, SEQUENCE, LIVE), order_by_content(self.schema)
        elif self.explains:
            rows, arrival = self.in_order()
            query, by, ties = rows.query, arrival.alias(SEQUENCE), []
        else:
            raises = F.raise_error(F.lit("these rows have no time at which they were read"))
            query, by, ties = self.query, compute_once(raises, SEQUENCE, LIVE), []
        apart = F.when(~(self.live & all_given), own).alias(APART)
        query = query.select(*list_columns(self), apart, by)
        window = pyspark.sql.Window.partitionBy(*[self.column(key) for key in keys], APART)
        rank = F.row_number().over(window.orderBy(F.desc_nulls_last(SEQUENCE), *ties))
        return self._filter_by(query.select("*", rank.alias(KEPT)), f"{KEPT} > 1")

    def _filter_by(self, query: Query, drops: str) -> Rows:
        """Return the rows of this query. The current stage filters the live rows for which the condition is true."""
        state = SqlText(f"if({LIVE} AND {drops}, {self.step}, {STATE})")
        query = query.select(*list_columns(self, state))
        if self.keeps_filtered and self.explains:
            verdict = SqlText(f"if({STATE} = {self.step}, {self._make_nack('NULL', 'NULL')}, {VERDICT})")
            query = query.select(*list_columns(self, verdict=verdict))
        return replace(self, query=query, filters=(*self.filters, self.step))

    def refuse(self, why: Expression) -> Rows:
        """Refuse the rows for which `why` (`origins.nack.make_reason`) is not NULL. They reach no later stage."""
        return self.attempt({}, why, {})

    def attempt(self, tried: Mapping[str, Expression], why: Expression | Reason, put: Mapping[str, str]) -> Rows:
        """Compute `tried` once for each row, and refuse the rows for which `why` is not NULL, or has a message.

        The names of `tried` begin with `HIDDEN`. `why` may use them, and they are dropped afterwards. `put` maps a
        column, old or new, to the name in `tried` that becomes its value. A refused row does not change.
        """
        kept = list_columns(self)
        query = self.query
        if tried:
            query = query.select(*kept, *[compute_once(column, name, LIVE) for name, column in tried.items()])
        if isinstance(why, Reason):
            code, message, refused = why.code, REASON, f"{REASON} <> ''"
        else:
            code, message, refused = f"{REASON}.code", f"{REASON}.message", f"{REASON} IS NOT NULL"
        if isinstance(why, Reason) and not self.explains:
            refused = f"coalesce(CASE WHEN {LIVE} THEN {why.refused} ELSE false END, true)"
        else:
            reason = SqlText(why.message) if isinstance(why, Reason) else why
            query = query.select(*kept, *map(SqlText, tried), compute_once(reason, REASON, LIVE))
        state = SqlText(f"if({refused}, {-self.step}, {STATE})")
        verdict = SqlText(f"if({refused}, {self._make_nack(code, message)}, {VERDICT})") if self.explains else None
        names = (*self.names, *[name for name in put if name not in self.names])
        data = [_rename(put.get(name, name), name) for name in names]
        query = query.select(*list_hidden_columns(self, state, verdict), *data)
        untouched = self.untouched and put.keys().isdisjoint(self._read)
        small = self.small - put.keys()
        return replace(self, query=query, names=names, small=small, untouched=untouched, judged=True)

    def add_note(self, note: Expression) -> Rows:
        """Add a note beside each live row. Spark computes it once.

        `attempt` may use it as the column `note`. It is stored with the rows' verdicts.
        """
        query = self.query.select(*list_columns(self), compute_once(note, self.note, LIVE))
        return replace(self, query=query, kept=(*self.kept, self.note))

    @property
    def note(self) -> str:
        """Return the column with the notes of the current stage."""
        return f"{NOTE}{self.step}"

    def in_order(self) -> tuple[Rows, Column]:
        """Return the same rows, and a column that rises in the order in which they were read.

        `add_note` must follow. Only rows that explain have that order; see `Stage.needs_places`.
        """
        if not self.explains:
            return self, F.lit(0)
        inside = F.col(PLACE)["block"], F.col(PLACE)["row"]
        if len(self.parts) == 1:
            return self, F.struct(*inside)
        ranks = self.frame.sparkSession.createDataFrame(list(enumerate(self.parts)), f"{RANK} bigint, {PART} string")
        ranked = self.frame.join(F.broadcast(ranks), F.col(PLACE)["part"] == F.col(PART), "left")
        return self.with_frame(ranked), F.struct(F.col(RANK), *inside)

    def beside(self, table: DataFrame, on: Mapping[str, str]) -> Rows:
        """Join each row with the row of `table` that has the same keys, or with NULLs if there is none.

        `on` maps a column of the rows to a column of the table. NULL equals nothing. The table has each key at most
        once, and has one row if `on` is empty. Its names begin with `HIDDEN`. Only `attempt`, which must follow, can
        use them.
        """
        meets = [self.column(own) == F.col(theirs) for own, theirs in on.items()]
        return self.with_frame(self.frame.join(table, functools.reduce(operator.and_, meets, F.lit(True)), "left"))

    def change(self, statement: Callable[[DataFrame], DataFrame]) -> Rows:
        """Replace the rows with the rows of the statement. Only stages with `changes_rows` may use this."""
        changed = statement(self.materialise(self))
        placed = place_rows(changed) if self.explains else changed
        new = make_rows(placed, tuple(changed.columns), self.labels, self.materialise, explains=self.explains)
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

    @property
    def live(self) -> Column:
        """Return a condition: whether the stage applies to the row."""
        return F.expr(LIVE)

    @property
    def frame(self) -> DataFrame:
        """Return all rows, with Wherry's hidden columns, as a lazy frame of Spark."""
        return self.query.frame

    def with_frame(self, frame: DataFrame) -> Rows:
        """Return these rows from another frame, which has all of them with all columns, and perhaps more columns."""
        return replace(self, query=Query.of(frame))

    def _make_nack(self, code: str, message: str) -> str:
        """Return SQL for a verdict without the row as it was read; `complete_verdicts` adds that."""
        row = row_schema = "NULL"
        if not self.untouched or self.names != tuple(self._read):
            schema = self.schema
            row = encode_payload({name: quote_name(name) for name in self.names}, schema)
            row_schema = quote_text(schema.json())
        who = [quote_text(name) if name is not None else "NULL" for name in (self.stage, self.destination)]
        return _make_nack_sql((*who, code, message, row, row_schema, "NULL", "NULL"))

    @property
    def _read(self) -> Sequence[str]:
        return _parse_schema(self.original_schema).names if self.original_schema else ()

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> object:
            """Raise an `AttributeError` that says what to use in place of an attribute that is gone."""
            if instead := describe_gone(f"Rows.{name}"):
                raise AttributeError(f"`Rows.{name}` {instead}")
            return super().__getattribute__(name)  # raises the error of a property again


def take_live(rows: Rows) -> DataFrame:
    """Return the live rows, with the columns that stages see."""
    live = rows.query.where(LIVE) if rows.judged or rows.filters else rows.query
    return live.select(*list_data_columns(rows)).frame


def make_rows(
    frame: DataFrame,
    names: tuple[str, ...],
    labels: Mapping[str, str | int | datetime],
    materialise: Callable[[Rows], DataFrame] = take_live,
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


def enter_stage(
    rows: Rows, stage: str, step: int, *, destination: str | None = None, pin: JSON = None, one_by_one: bool = False
) -> Rows:
    """Return the same rows before this stage, which has this number in the batch."""
    return replace(rows, stage=stage, step=step, destination=destination, pin=pin, one_by_one=one_by_one)


def take_clean(rows: Rows) -> DataFrame:
    """Return the rows of a clean batch, as `take_live` does. The first refused row makes the query raise `MARK`."""
    return take_live(stop_at_refused(rows))


def stop_at_refused(rows: Rows) -> Rows:
    """Return the same rows. The first refused row makes the query raise `MARK`."""
    if not rows.judged:
        return rows
    raises = f"if({STATE} < 0, CAST(raise_error('{MARK}') AS BOOLEAN), {ONCE})"
    return replace(rows, query=rows.query.where(raises))


def complete_verdicts(rows: Rows) -> Rows:
    """Return the same rows, with both rows in every verdict: as it was read, and as the stage got it.

    Stages leave out what is the same for all of them, so that the plan describes the row that was read once.
    """
    if not rows.explains or not (rows.judged or (rows.filters and rows.keeps_filtered)):
        return rows
    given, schema = f"{VERDICT}.original", quote_text(rows.original_schema)
    encoded = encode_struct("" if rows.untouched else ORIGINAL, rows.original_schema)
    query = rows.query.select(
        "*", compute_once(SqlText(encoded), _AS_READ, f"{VERDICT}.stage IS NOT NULL AND {given} IS NULL")
    )
    parts = {
        "row": f"coalesce({VERDICT}.row, {_AS_READ})",
        "row_schema": f"coalesce({VERDICT}.row_schema, {schema})",
        "original": f"coalesce({given}, {_AS_READ})",
        "original_schema": f"coalesce({VERDICT}.original_schema, {schema})",
    }
    whole = _make_nack_sql([parts.get(name, f"{VERDICT}.{name}") for name in _NACK_FIELDS])
    others = [name for name in list_columns(rows) if name != VERDICT]
    verdict = SqlText(f"if({VERDICT} IS NULL, NULL, {whole})").name(VERDICT)
    return replace(rows, query=query.select(verdict, *others))


def list_notes(rows: Rows) -> Sequence[str]:
    """Return the columns with the notes of stages."""
    return [name for name in rows.kept if name.startswith(NOTE)]


def list_hidden_columns(rows: Rows, state: SqlText | None = None, verdict: SqlText | None = None) -> list[SqlText]:
    """Return the columns that Wherry keeps with every row, perhaps with another state or verdict."""
    changed = {STATE: state, VERDICT: verdict}
    names = (PLACE, STATE, VERDICT, ORIGINAL, *rows.kept) if rows.explains else (STATE, *rows.kept)
    return [compute_once(new, name) if (new := changed.get(name)) is not None else SqlText(name) for name in names]


def list_data_columns(rows: Rows) -> list[SqlText]:
    """Return the columns that stages see."""
    return [SqlText(quote_name(name)) for name in rows.names]


def list_columns(rows: Rows, state: SqlText | None = None, verdict: SqlText | None = None) -> list[SqlText]:
    """Return both, the hidden columns first."""
    return [*list_hidden_columns(rows, state, verdict), *list_data_columns(rows)]


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
    condition = f"{when} AND {ONCE}" if when else ONCE
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


def require_truth(condition: Expression) -> Expression:
    """Return the condition in a form that Spark cannot analyse if it is no boolean, for example text."""
    if isinstance(condition, SqlText):
        return SqlText(f"if({condition}, true, false)")
    return F.call_function("if", condition, F.lit(True), F.lit(False))


def _parse_schema(text: str) -> T.StructType:
    return T.StructType.fromJson(json.loads(text))


_AS_READ = HIDDEN + "as_read"
"""The row as it was read, as text."""
_NACK_FIELDS = ("stage", "destination", "code", "message", "row", "row_schema", "original", "original_schema")


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
