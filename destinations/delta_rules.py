"""What a Delta table's own metadata demands of each row: NOT NULL, CHECK, lengths, generated columns."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from destinations.delta_schema import parts_lacking
from destinations.demands import Rule
from origins.names import quoted
from origins.schema import sql_type
from stages.expressions import columns_in, put_for

if TYPE_CHECKING:
    from pyspark.sql.types import DataType, StructField, StructType

_LENGTH = "__CHAR_VARCHAR_TYPE_STRING"
_DEFAULT = "CURRENT_DEFAULT"


@dataclass(frozen=True, kw_only=True)
class Declared:
    """A table as its metadata declares it; columns are named in small letters."""

    schema: StructType
    checks: Mapping[str, str]
    """The conditions of its constraints, by their names."""
    generated: Mapping[str, str]
    """The expressions of its generated columns."""
    identities: Mapping[str, bool]
    """The columns that it counts itself, and whether rows may bring values for them."""


def rules(table: Declared, rows: StructType, *, updates: bool) -> list[Rule]:
    """What the table demands of rows that fit it.

    With `updates` a column that rows do not bring keeps what it has, so a constraint on it cannot be judged; nor can
    one on a struct of which rows bring a part.
    """
    filled = _filled(table, rows, updates)
    brought = [field for field in table.schema if field.name.lower() not in filled]
    found = [_not_null(path) for field in table.schema if _column(rows, field) for path in _wanted(field)]
    found += [_length(field, sql) for field in brought if (sql := _fits_length(field)) is not None]
    names = {field.name.lower(): field.name for field in brought}
    for name, expression in table.generated.items():
        value = _put(expression, filled)
        if name in names and value is not None:
            says = f"column {names[name]} is not what the table generates there ({expression})"
            shows = [names[name], *_shown(expression, names)]
            found.append(Rule(code="GENERATED", holds=f"{quoted(name)} <=> {value}", says=says, shows=shows))
    for name, condition in table.checks.items():
        holds = _put(condition, filled)
        if holds is not None:
            says = f"constraint {name} ({condition}) does not hold"
            found.append(Rule(code="CHECK", holds=holds, says=says, shows=_shown(condition, names)))
    return found


def _filled(table: Declared, rows: StructType, updates: bool) -> Mapping[str, str | None]:
    """By column that rows do not bring whole, what the table will have there, as SQL; None where that is not known."""
    filled: dict[str, str | None] = {}
    for there in table.schema:
        name, mine = there.name.lower(), _column(rows, there)
        if mine is not None and parts_lacking(mine.dataType, there.dataType):
            filled[name] = None
        if mine is None and name not in table.generated:
            known = not updates and name not in table.identities
            value = f"cast(({there.metadata.get(_DEFAULT, 'NULL')}) as {sql_type(there.dataType)})"
            filled[name] = value if known else None
    for there in table.schema:
        if _column(rows, there) is None and there.name.lower() in table.generated:
            filled[there.name.lower()] = _put(table.generated[there.name.lower()], filled)
    return filled


def _put(sql: str, filled: Mapping[str, str | None]) -> str | None:
    """The expression over the columns that rows bring; None when it asks for one that is not known."""
    known: dict[str, str] = {}
    for name in columns_in(sql):
        value = filled.get(name, "")
        if value is None:
            return None
        if value:
            known[name] = value
    return f"({put_for(sql, known)})"


def _column(rows: StructType, there: StructField) -> StructField | None:
    return next((field for field in rows if field.name.lower() == there.name.lower()), None)


def _shown(sql: str, names: Mapping[str, str]) -> list[str]:
    return [names[name] for name in columns_in(sql) if name in names]


def _wanted(field: StructField) -> Iterator[Sequence[str]]:
    """The paths of the fields that are never NULL, through structs; Delta allows none inside arrays and maps."""
    from pyspark.sql.types import StructType

    if not field.nullable:
        yield [field.name]
    if isinstance(field.dataType, StructType):
        for inner in field.dataType:
            yield from ([field.name, *path] for path in _wanted(inner))


def _not_null(path: Sequence[str]) -> Rule:
    says = f"column {'.'.join(path)} is NULL, and the table wants it in every row (NOT NULL)"
    return Rule(code="NOT_NULL", holds=f"{'.'.join(map(quoted, path))} IS NOT NULL", says=says)


def _length(field: StructField, holds: str) -> Rule:
    says = f"column {field.name} is too long for {field.metadata[_LENGTH]}"
    return Rule(code="LENGTH", holds=holds, says=says, shows=[field.name])


def _fits_length(field: StructField) -> str | None:
    """The condition under which a column's texts are not too long; None when any length will do."""
    from pyspark.sql.types import DataType

    declared = field.metadata.get(_LENGTH)
    return None if declared is None else _fits(quoted(field.name), DataType.fromDDL(declared))


def _fits(value: str, kind: DataType, depth: int = 0) -> str | None:
    from pyspark.sql.types import ArrayType, CharType, MapType, StructType, VarcharType

    each = f"_wherry_{depth}"
    if isinstance(kind, CharType | VarcharType):
        return f"({value} IS NULL OR length({value}) <= {kind.length})"
    if isinstance(kind, StructType):
        parts = [_fits(f"{value}.{quoted(field.name)}", field.dataType, depth) for field in kind]
    elif isinstance(kind, ArrayType):
        inner = _fits(each, kind.elementType, depth + 1)
        parts = [inner and f"({value} IS NULL OR forall({value}, {each} -> {inner}))"]
    elif isinstance(kind, MapType):
        parts = [
            _fits(f"map_keys({value})", ArrayType(kind.keyType), depth),
            _fits(f"map_values({value})", ArrayType(kind.valueType), depth),
        ]
    else:
        return None
    return " AND ".join(part for part in parts if part) or None
