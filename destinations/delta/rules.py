"""Whether rows fit a Delta table, before one is read; and what its metadata demands of each: NOT NULL, CHECK,
lengths."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from destinations.delta.schema import find_misfits, list_lacking, list_lacking_parts
from destinations.demands import Rule
from origins.errors import get_raised_words, has_condition, list_spark_errors
from origins.names import quote_name
from origins.schema import sql_type
from stages.expressions import list_columns, put_for

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.types import DataType, StructField, StructType

    from destinations.delta.options import DeltaOptions


_LENGTH = "__CHAR_VARCHAR_TYPE_STRING"
_DEFAULT = "CURRENT_DEFAULT"


@dataclass(frozen=True, kw_only=True)
class DeclaredTable:
    """A table as its metadata declares it; columns are named in small letters."""

    schema: StructType
    checks: Mapping[str, str]
    """The conditions of its constraints, by their names."""
    generated: Mapping[str, str]
    """The expressions of its generated columns."""
    identities: Mapping[str, bool]
    """The columns that it counts itself, and whether rows may bring values for them."""


def make_rules(table: DeclaredTable, rows: StructType, *, updates: bool) -> list[Rule]:
    """What the table demands of rows that fit it.

    With `updates` a column that rows do not bring keeps what it has, so a constraint on it cannot be judged; nor can
    one on a struct of which rows bring a part.
    """
    filled = _list_filled_columns(table, rows, updates)
    brought = [field for field in table.schema if field.name.lower() not in filled]
    found = [
        _not_null_rule(path)
        for field in table.schema
        if _find_column(rows, field)
        for path in _list_required_paths(field)
    ]
    found += [_length_rule(field, sql) for field in brought if (sql := _fits_length_sql(field)) is not None]
    names = {field.name.lower(): field.name for field in brought}
    for name, expression in table.generated.items():
        value = _put_values(expression, filled)
        if name in names and value is not None:
            says = f"column {names[name]} differs from what the table generates ({expression})"
            shows = [names[name], *_format_columns(expression, names)]
            found.append(Rule(code="GENERATED", holds=f"{quote_name(name)} <=> {value}", says=says, shows=shows))
    for name, condition in table.checks.items():
        holds = _put_values(condition, filled)
        if holds is not None:
            says = f"constraint {name} ({condition}) does not hold"
            found.append(Rule(code="CHECK", holds=holds, says=says, shows=_format_columns(condition, names)))
    return found


def _list_filled_columns(table: DeclaredTable, rows: StructType, updates: bool) -> Mapping[str, str | None]:
    """By column that rows do not bring whole, what the table will have there, as SQL; None where that is not known."""
    filled: dict[str, str | None] = {}
    for there in table.schema:
        name, mine = there.name.lower(), _find_column(rows, there)
        if mine is not None and list_lacking_parts(mine.dataType, there.dataType):
            filled[name] = None
        if mine is None and name not in table.generated:
            known = not updates and name not in table.identities
            value = f"cast(({there.metadata.get(_DEFAULT, 'NULL')}) as {sql_type(there.dataType)})"
            filled[name] = value if known else None
    for there in table.schema:
        if _find_column(rows, there) is None and there.name.lower() in table.generated:
            filled[there.name.lower()] = _put_values(table.generated[there.name.lower()], filled)
    return filled


def _put_values(sql: str, filled: Mapping[str, str | None]) -> str | None:
    """The expression over the columns that rows bring; None when it asks for one that is not known."""
    known: dict[str, str] = {}
    for name in list_columns(sql):
        value = filled.get(name, "")
        if value is None:
            return None
        if value:
            known[name] = value
    return f"({put_for(sql, known)})"


def _find_column(rows: StructType, there: StructField) -> StructField | None:
    return next((field for field in rows if field.name.lower() == there.name.lower()), None)


def _format_columns(sql: str, names: Mapping[str, str]) -> list[str]:
    return [names[name] for name in list_columns(sql) if name in names]


def _list_required_paths(field: StructField) -> Iterator[Sequence[str]]:
    """The paths of the fields that are never NULL, through structs; Delta allows none inside arrays and maps."""
    from pyspark.sql.types import StructType

    if not field.nullable:
        yield [field.name]
    if isinstance(field.dataType, StructType):
        for inner in field.dataType:
            yield from ([field.name, *path] for path in _list_required_paths(inner))


def _not_null_rule(path: Sequence[str]) -> Rule:
    says = f"column {'.'.join(path)} is NULL, but the table needs a value in every row (NOT NULL)"
    return Rule(code="NOT_NULL", holds=f"{'.'.join(map(quote_name, path))} IS NOT NULL", says=says)


def _length_rule(field: StructField, holds: str) -> Rule:
    says = f"column {field.name} is too long for {field.metadata[_LENGTH]}"
    return Rule(code="LENGTH", holds=holds, says=says, shows=[field.name])


def _fits_length_sql(field: StructField) -> str | None:
    """The condition under which a column's texts are not too long; None when any length will do."""
    from pyspark.sql.types import DataType

    declared = field.metadata.get(_LENGTH)
    return None if declared is None else _fits_sql(quote_name(field.name), DataType.fromDDL(declared))


def _fits_sql(value: str, kind: DataType, depth: int = 0) -> str | None:
    from pyspark.sql.types import ArrayType, CharType, MapType, StructType, VarcharType

    each = f"_wherry_{depth}"
    if isinstance(kind, CharType | VarcharType):
        return f"({value} IS NULL OR length({value}) <= {kind.length})"
    if isinstance(kind, StructType):
        parts = [_fits_sql(f"{value}.{quote_name(field.name)}", field.dataType, depth) for field in kind]
    elif isinstance(kind, ArrayType):
        inner = _fits_sql(each, kind.elementType, depth + 1)
        parts = [inner and f"({value} IS NULL OR forall({value}, {each} -> {inner}))"]
    elif isinstance(kind, MapType):
        parts = [
            _fits_sql(f"map_keys({value})", ArrayType(kind.keyType), depth),
            _fits_sql(f"map_values({value})", ArrayType(kind.valueType), depth),
        ]
    else:
        return None
    return " AND ".join(part for part in parts if part) or None


_ASKED = "WHERRY_ASKED"
"""What the error of a write says that got past the table's own checks."""


def list_misfits(spark: SparkSession, delta: DeltaOptions, rows: StructType, table: DeclaredTable) -> list[str]:
    """Why these rows cannot be written into the table, each with the way out."""
    problems = find_misfits(rows, table.schema, delta.sql_name)
    problems |= _find_counted_columns(delta, rows, table)
    if delta.mode == "merge":
        problems |= _find_partial_structs(rows, table.schema)
    wanted = list_lacking(rows, table.schema)
    fitting = [field for field in rows if field.name not in problems]
    own = {field.name for field in table.schema}  # what lies inside a struct no table fills by itself
    if wanted and (not own.issuperset(wanted) or not _table_fills(spark, delta.sql_name, fitting)):
        problems |= {
            name: f"{name}: the table needs a value in every row (NOT NULL); add it, with_columns: {{{name}: …}}"
            for name in wanted
        }
    return list(problems.values())


def list_unclear(spark: SparkSession, delta: DeltaOptions, rows: StructType) -> list[str]:
    """Why the destination's own conditions cannot be asked of such rows."""
    problems = []
    for option, condition in (("apply_as_deletes", delta.apply_as_deletes), ("where", delta.where)):
        if condition is not None:
            try:
                spark.createDataFrame([], rows).where(condition).isLocal()  # analyses, on Connect too
            except list_spark_errors() as error:
                problems.append(f"{option}: {str(error).splitlines()[0]}")
    return problems


def _find_counted_columns(delta: DeltaOptions, rows: StructType, table: DeclaredTable) -> dict[str, str]:
    """The columns that the table counts itself, where it takes no values for them."""
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


def _find_partial_structs(rows: StructType, table: StructType) -> dict[str, str]:
    """The structs of which rows bring a part: a merge can neither keep nor clear the rest."""
    there = {field.name.lower(): field.dataType for field in table}
    return {
        field.name: f"{field.name}: a merge needs the whole struct; the rows have no {', '.join(parts)} in it"
        for field in rows
        if field.name.lower() in there and (parts := list_lacking_parts(field.dataType, there[field.name.lower()]))
    }


def _table_fills(spark: SparkSession, table: str, fields: Sequence[StructField]) -> bool:
    """Whether the table itself gives the columns that these lack. It is asked by a write whose only row raises."""
    from pyspark.sql import functions as F

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
