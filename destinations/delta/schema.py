"""The schemas of rows and Delta tables.

This module finds the columns of a new table, and the reasons why rows do not fit an existing table. It also finds what
the table's metadata demands of each row: NOT NULL, CHECK, lengths.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from destinations.delta.options import DeltaOptions
from destinations.destination import Rule
from origins.errors import get_raised_words, has_condition, list_spark_errors
from origins.files.changes import is_wider
from origins.lazy import F, SparkSession, T
from origins.names import quote_name
from origins.schema import get_sql_type, make_empty_frame
from stages.expressions import list_columns, put_for

_NEED_MAPPING = set(" ,;{}()\n\t=")
"""The characters that a column's name may have only if the table maps names."""


def format_columns(schema: T.StructType) -> str:
    """Return the columns of a table for these rows, as `CREATE TABLE` takes them. Each may be NULL."""
    return ", ".join(f"{quote_name(field.name)} {get_sql_type(field.dataType)}" for field in schema)


def needs_mapping(kind: T.DataType) -> bool:
    """Whether a name somewhere in the type is not possible in Parquet."""
    structs = (part for part in _list_types(kind) if isinstance(part, T.StructType))
    return any(_NEED_MAPPING.intersection(name) for struct in structs for name in struct.names)


def list_impossible(rows: T.StructType) -> list[str]:
    """Return why no Delta table can have these columns, each with a solution."""
    problems = [] if len(rows) else ["the rows have no columns; a stage before this destination removed all of them"]
    spelled = Counter(field.name.lower() for field in rows)
    for field in rows:
        kinds = [*_list_types(field.dataType)]
        if spelled[field.name.lower()] > 1:
            problems.append(f"{field.name}: another column differs only in upper and lower case; rename one of them")
        if any(isinstance(kind, T.NullType) for kind in kinds):
            problems.append(
                f"{field.name}: it is NULL in all rows and has no type; set one, {_cast_hint(field, 'string')}"
            )
        if any(isinstance(k, T.CalendarIntervalType | T.DayTimeIntervalType | T.YearMonthIntervalType) for k in kinds):
            problems.append(f"{field.name}: Delta has no intervals; keep it as text, {_cast_hint(field, 'string')}")
    return problems


def _find_misfits(rows: T.StructType, table: T.StructType, name: str) -> dict[str, str]:
    """Return why these rows do not fit the table called `name`, by column, each with a solution.

    Names that differ only in case are equal; the order does not matter.
    """
    there = {field.name.lower(): field for field in table}
    problems = {}
    for field in rows:
        target = there.get(field.name.lower())
        if target is None:
            problems[field.name] = (
                f"{field.name}: the table has no such column; leave it out, drop: "
                f"[{_spell_yaml_name(field.name)}], or add it, "
                f"ALTER TABLE {name} ADD COLUMNS ({quote_name(field.name)} {get_sql_type(field.dataType)})"
            )
        elif not _is_same_type(field.dataType, target.dataType):
            wanted, have = get_sql_type(target.dataType), get_sql_type(field.dataType)
            problems[field.name] = (
                f"{field.name}: the rows have {have}, the table {wanted}; {_cast_hint(field, wanted)}"
            )
    return problems


def _list_lacking(rows: T.StructType, table: T.StructType, within: str = "") -> list[str]:
    """Return the columns that the table needs in every row and that these rows lack, also inside structs."""
    have = {field.name.lower(): field.dataType for field in rows}
    missing = []
    for field in table:
        mine = have.get(field.name.lower())
        if mine is None and "CURRENT_DEFAULT" in field.metadata:
            continue
        if mine is None and not field.nullable:
            missing.append(within + field.name)
        elif isinstance(field.dataType, T.StructType) and (mine is None or isinstance(mine, T.StructType)):
            missing += _list_lacking(mine or T.StructType(), field.dataType, f"{within}{field.name}.")
    return missing


def _list_lacking_parts(rows: T.DataType, table: T.DataType) -> list[str]:
    """Return the fields of structs, at any depth, that the table has and the rows lack."""
    if isinstance(rows, T.StructType) and isinstance(table, T.StructType):
        mine = {field.name.lower(): field.dataType for field in rows}
        inner = ((f.name, mine.get(f.name.lower()), f.dataType) for f in table)
        return [
            path
            for name, own, kind in inner
            for path in ([name] if own is None else [f"{name}.{part}" for part in _list_lacking_parts(own, kind)])
        ]
    if isinstance(rows, T.ArrayType) and isinstance(table, T.ArrayType):
        return _list_lacking_parts(rows.elementType, table.elementType)
    if isinstance(rows, T.MapType) and isinstance(table, T.MapType):
        return _list_lacking_parts(rows.keyType, table.keyType) + _list_lacking_parts(rows.valueType, table.valueType)
    return []


def _is_same_type(rows: T.DataType, table: T.DataType) -> bool:
    """Whether the first type's values are values of the second type. A struct may lack fields that the table has."""
    if isinstance(rows, T.StructType) and isinstance(table, T.StructType):
        there = {field.name.lower(): field.dataType for field in table}
        return all(f.name.lower() in there and _is_same_type(f.dataType, there[f.name.lower()]) for f in rows)
    if isinstance(rows, T.ArrayType) and isinstance(table, T.ArrayType):
        return _is_same_type(rows.elementType, table.elementType)
    if isinstance(rows, T.MapType) and isinstance(table, T.MapType):
        return _is_same_type(rows.keyType, table.keyType) and _is_same_type(rows.valueType, table.valueType)
    return rows == table


def _list_types(kind: T.DataType) -> Iterator[T.DataType]:
    """Return the type, and all types inside it."""
    yield kind
    inside: list[T.DataType] = []
    if isinstance(kind, T.StructType):
        inside = [field.dataType for field in kind]
    if isinstance(kind, T.ArrayType):
        inside = [kind.elementType]
    if isinstance(kind, T.MapType):
        inside = [kind.keyType, kind.valueType]
    for part in inside:
        yield from _list_types(part)


def _cast_hint(field: T.StructField, kind: str) -> str:
    return f"cast: {{{_spell_yaml_name(field.name)}: {json.dumps(kind)}}}"


def _spell_yaml_name(name: str) -> str:
    """Return the name in a form that both YAML and JSON can read."""
    plain = name.isidentifier() and name.lower() not in ("null", "true", "false")
    return name if plain else json.dumps(name, ensure_ascii=False)


_WIDENS = "delta.enableTypeWidening"


def list_growth_statements(rows: T.StructType, table: T.StructType, name: str) -> list[str]:
    """Return the statements that make the table called `name` take such rows, as far as it can grow."""
    added = [f"{path} {get_sql_type(kind)}" for path, kind in _find_added(rows, table, "")]
    widened = list(_find_widened(rows, table, ""))
    statements = [f"ALTER TABLE {name} ADD COLUMNS ({', '.join(added)})"] if added else []
    if widened:
        statements.append(f"ALTER TABLE {name} SET TBLPROPERTIES ('{_WIDENS}' = 'true')")
    statements += [f"ALTER TABLE {name} ALTER COLUMN {path} TYPE {get_sql_type(kind)}" for path, kind in widened]
    return statements


def _find_added(rows: T.DataType, table: T.DataType, before: str) -> Iterator[tuple[str, T.DataType]]:
    if isinstance(rows, T.StructType) and isinstance(table, T.StructType):
        there = {field.name.lower(): field for field in table}
        yield from ((before + quote_name(f.name), f.dataType) for f in rows if f.name.lower() not in there)
    for path, mine, its in _pair_inner_types(rows, table, before):
        yield from _find_added(mine, its, f"{path}.")


def _find_widened(rows: T.DataType, table: T.DataType, before: str) -> Iterator[tuple[str, T.DataType]]:
    for path, mine, its in _pair_inner_types(rows, table, before):
        if is_wider(mine, its):
            yield path, mine
        yield from _find_widened(mine, its, f"{path}.")


def _pair_inner_types(rows: T.DataType, table: T.DataType, before: str) -> Iterator[tuple[str, T.DataType, T.DataType]]:
    """Return the pairs of inner types that both types have, with their paths in the table."""
    if isinstance(rows, T.StructType) and isinstance(table, T.StructType):
        mine = {field.name.lower(): field.dataType for field in rows}
        for field in table:
            if field.name.lower() in mine:
                yield before + quote_name(field.name), mine[field.name.lower()], field.dataType
    if isinstance(rows, T.ArrayType) and isinstance(table, T.ArrayType):
        yield f"{before}element", rows.elementType, table.elementType
    if isinstance(rows, T.MapType) and isinstance(table, T.MapType):
        yield f"{before}value", rows.valueType, table.valueType


_LENGTH = "__CHAR_VARCHAR_TYPE_STRING"
_DEFAULT = "CURRENT_DEFAULT"


@dataclass(frozen=True, kw_only=True)
class DeclaredTable:
    """A table as its metadata declares it. Column names are in lower case."""

    schema: T.StructType
    checks: Mapping[str, str]
    """The conditions of its constraints, by name."""
    generated: Mapping[str, str]
    identities: Mapping[str, bool]
    """The columns that the table numbers itself, with whether rows may have values for them."""


def make_rules(table: DeclaredTable, rows: T.StructType, *, updates: bool) -> list[Rule]:
    """Return what the table demands of rows that fit it.

    With `updates`, a column that the rows lack keeps its value, so a constraint on it cannot be checked. A constraint
    on a struct of which the rows have a part cannot be checked either.
    """
    filled = _list_filled_columns(table, rows, updates)
    brought = [field for field in table.schema if field.name.lower() not in filled]
    rules = []
    for path in [path for field in table.schema if _find_column(rows, field) for path in _list_required_paths(field)]:
        reason = f"column {'.'.join(path)} is NULL, but the table needs a value in every row (NOT NULL)"
        rules.append(Rule(code="NOT_NULL", holds=f"{'.'.join(map(quote_name, path))} IS NOT NULL", reason=reason))
    for field in brought:
        declared = field.metadata.get(_LENGTH)
        fits = None if declared is None else _fits_sql(quote_name(field.name), T.DataType.fromDDL(declared))
        if fits is not None:
            reason = f"column {field.name} is too long for {declared}"
            rules.append(Rule(code="LENGTH", holds=fits, reason=reason, shows=[field.name]))
    names = {field.name.lower(): field.name for field in brought}
    for name, expression in table.generated.items():
        value = _put_values(expression, filled)
        if name in names and value is not None:
            reason = f"column {names[name]} differs from what the table generates ({expression})"
            shows = [names[name], *_format_columns(expression, names)]
            rules.append(Rule(code="GENERATED", holds=f"{quote_name(name)} <=> {value}", reason=reason, shows=shows))
    for name, condition in table.checks.items():
        holds = _put_values(condition, filled)
        if holds is not None:
            reason = f"constraint {name} ({condition}) does not hold"
            rules.append(Rule(code="CHECK", holds=holds, reason=reason, shows=_format_columns(condition, names)))
    return rules


def _list_filled_columns(table: DeclaredTable, rows: T.StructType, updates: bool) -> Mapping[str, str | None]:
    """Return the value that the table will have in each column that the rows lack, as SQL; None if it is unknown.

    The value is also None for a struct of which the rows have a part.
    """
    filled: dict[str, str | None] = {}
    for there in table.schema:
        name, mine = there.name.lower(), _find_column(rows, there)
        if mine is not None and _list_lacking_parts(mine.dataType, there.dataType):
            filled[name] = None
        if mine is None and name not in table.generated:
            known = not updates and name not in table.identities
            value = f"cast(({there.metadata.get(_DEFAULT, 'NULL')}) as {get_sql_type(there.dataType)})"
            filled[name] = value if known else None
    for there in table.schema:
        if _find_column(rows, there) is None and there.name.lower() in table.generated:
            filled[there.name.lower()] = _put_values(table.generated[there.name.lower()], filled)
    return filled


def _put_values(sql: str, filled: Mapping[str, str | None]) -> str | None:
    """Return the expression with only columns that the rows have; None if it needs an unknown value."""
    known: dict[str, str] = {}
    for name in list_columns(sql):
        value = filled.get(name, "")
        if value is None:
            return None
        if value:
            known[name] = value
    return f"({put_for(sql, known)})"


def _find_column(rows: T.StructType, there: T.StructField) -> T.StructField | None:
    return next((field for field in rows if field.name.lower() == there.name.lower()), None)


def _format_columns(sql: str, names: Mapping[str, str]) -> list[str]:
    return [names[name] for name in list_columns(sql) if name in names]


def _list_required_paths(field: T.StructField) -> Iterator[Sequence[str]]:
    """Return the paths of the fields that are never NULL, also inside structs.

    Delta allows none inside arrays and maps.
    """
    if not field.nullable:
        yield [field.name]
    if isinstance(field.dataType, T.StructType):
        for inner in field.dataType:
            yield from ([field.name, *path] for path in _list_required_paths(inner))


def _fits_sql(value: str, kind: T.DataType, depth: int = 0) -> str | None:
    """Return the condition that no text in a value is too long; None if every length is allowed."""
    element = f"_wherry_{depth}"
    if isinstance(kind, T.CharType | T.VarcharType):
        return f"({value} IS NULL OR length({value}) <= {kind.length})"
    if isinstance(kind, T.StructType):
        parts = [_fits_sql(f"{value}.{quote_name(field.name)}", field.dataType, depth) for field in kind]
    elif isinstance(kind, T.ArrayType):
        inner = _fits_sql(element, kind.elementType, depth + 1)
        parts = [inner and f"({value} IS NULL OR forall({value}, {element} -> {inner}))"]
    elif isinstance(kind, T.MapType):
        parts = [
            _fits_sql(f"map_keys({value})", T.ArrayType(kind.keyType), depth),
            _fits_sql(f"map_values({value})", T.ArrayType(kind.valueType), depth),
        ]
    else:
        return None
    return " AND ".join(part for part in parts if part) or None


_ASKED = "WHERRY_ASKED"
"""The error of a trial write that passed the table's checks."""


def list_misfits(spark: SparkSession, delta: DeltaOptions, rows: T.StructType, table: DeclaredTable) -> list[str]:
    """Return why these rows cannot be written to the table, each with a solution."""
    problems = _find_misfits(rows, table.schema, delta.sql_name) | _find_counted_columns(delta, rows, table)
    if delta.mode == "merge":
        problems |= _find_partial_structs(rows, table.schema)
    wanted = _list_lacking(rows, table.schema)
    fitting = [field for field in rows if field.name not in problems]
    own = {field.name for field in table.schema}  # no table fills a field inside a struct by itself
    if wanted and (not own.issuperset(wanted) or not _does_table_fill(spark, delta.sql_name, fitting)):
        problems |= {
            name: f"{name}: the table needs a value in every row (NOT NULL); add it, with_columns: {{{name}: …}}"
            for name in wanted
        }
    return list(problems.values())


def list_unclear(spark: SparkSession, delta: DeltaOptions, rows: T.StructType) -> list[str]:
    """Return why the destination's conditions cannot be evaluated for such rows."""
    problems = []
    for option, condition in (("apply_as_deletes", delta.apply_as_deletes), ("where", delta.where)):
        if condition is not None:
            try:
                make_empty_frame(spark, rows).where(condition).isLocal()  # analyses, also on Connect
            except list_spark_errors() as error:
                problems.append(f"{option}: {str(error).splitlines()[0]}")
    return problems


def _find_counted_columns(delta: DeltaOptions, rows: T.StructType, table: DeclaredTable) -> dict[str, str]:
    """Return the columns that the table numbers itself and for which it takes no values."""
    problems = {}
    keys = {key.lower() for key in delta.keys}
    for name in [field.name for field in rows if field.name.lower() in table.identities]:
        if not table.identities[name.lower()]:
            problems[name] = f"{name}: the table generates it (GENERATED ALWAYS AS IDENTITY); drop: [{name}]"
        elif delta.mode == "merge" and name.lower() not in keys:
            problems[name] = (
                f"{name}: the table generates it (IDENTITY), and a merge cannot change it; except_column_list: [{name}]"
            )
    return problems


def _find_partial_structs(rows: T.StructType, table: T.StructType) -> dict[str, str]:
    """Return the structs of which rows have a part. A merge can neither keep nor clear the rest."""
    there = {field.name.lower(): field.dataType for field in table}
    return {
        field.name: f"{field.name}: a merge needs the whole struct; the rows have no {', '.join(parts)} in it"
        for field in rows
        if field.name.lower() in there and (parts := _list_lacking_parts(field.dataType, there[field.name.lower()]))
    }


def _does_table_fill(spark: SparkSession, table: str, fields: Sequence[T.StructField]) -> bool:
    """Whether the table itself fills the columns that these fields lack. A write whose only row raises tests it."""
    row = [F.raise_error(F.lit(_ASKED)).cast(field.dataType).alias(field.name) for field in fields]
    try:
        spark.range(1).select(*row).writeTo(table).append()
    except list_spark_errors() as error:
        if get_raised_words(error) == _ASKED:
            return True
        if not has_condition(error, "NOT_NULL"):
            raise
        return False
    raise AssertionError("a row that raises was written")
