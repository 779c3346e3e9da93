"""Rows and Delta tables: the columns that a table is made with, and why rows do not fit one that is there."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from typing import TYPE_CHECKING

from origins.names import quoted
from origins.schema import sql_type

if TYPE_CHECKING:
    from pyspark.sql.types import DataType, StructField, StructType

_NEED_MAPPING = set(" ,;{}()\n\t=")
"""Characters that Delta has in a column's name only where names are mapped."""


def columns(schema: StructType) -> str:
    """The columns of a table for these rows, as `CREATE TABLE` takes them; each may be NULL."""
    return ", ".join(f"{quoted(field.name)} {sql_type(field.dataType)}" for field in schema)


def needs_mapping(kind: DataType) -> bool:
    """Whether a name somewhere in the type is one that Parquet does not have."""
    return any(_NEED_MAPPING & set(field.name) for field in _fields(kind))


def impossible(rows: StructType) -> list[str]:
    """Why no Delta table can have these columns, each with the way out."""
    from pyspark.sql.types import CalendarIntervalType, DayTimeIntervalType, NullType, YearMonthIntervalType

    problems = [] if len(rows) else ["the rows have no columns; a stage before this destination took all of them"]
    spelled = Counter(field.name.lower() for field in rows)
    for field in rows:
        kinds = [field.dataType, *_kinds(field.dataType)]
        if spelled[field.name.lower()] > 1:
            problems.append(f"{field.name}: another column differs only in the case of letters; rename one of them")
        if any(isinstance(kind, NullType) for kind in kinds):
            problems.append(
                f"{field.name}: it is NULL in all rows and has no type; give it one, {_cast(field, 'string')}"
            )
        if any(isinstance(k, CalendarIntervalType | DayTimeIntervalType | YearMonthIntervalType) for k in kinds):
            problems.append(f"{field.name}: Delta has no intervals; keep it as text, {_cast(field, 'string')}")
    return problems


def misfits(rows: StructType, table: StructType, name: str) -> dict[str, str]:
    """By column, why these rows do not fit the table called `name`, each with the way out.

    Names that differ in the case of letters are one; the order does not matter.
    """
    there = {field.name.lower(): field for field in table}
    problems = {}
    for field in rows:
        target = there.get(field.name.lower())
        if target is None:
            problems[field.name] = (
                f"{field.name}: the table has no such column; leave it out, drop: [{_yaml(field.name)}], or add it, "
                f"ALTER TABLE {name} ADD COLUMNS ({quoted(field.name)} {sql_type(field.dataType)})"
            )
        elif not _same(field.dataType, target.dataType):
            wanted = sql_type(target.dataType)
            have = sql_type(field.dataType)
            problems[field.name] = f"{field.name}: the rows have {have}, the table {wanted}; {_cast(field, wanted)}"
    return problems


def lacking(rows: StructType, table: StructType, within: str = "") -> list[str]:
    """The columns that the table wants in every row and that these rows do not have, those inside structs too."""
    from pyspark.sql.types import StructType

    have = {field.name.lower(): field.dataType for field in rows}
    missing = []
    for field in table:
        mine = have.get(field.name.lower())
        if mine is None and "CURRENT_DEFAULT" in field.metadata:
            continue
        if mine is None and not field.nullable:
            missing.append(within + field.name)
        elif isinstance(field.dataType, StructType) and (mine is None or isinstance(mine, StructType)):
            missing += lacking(mine or StructType(), field.dataType, f"{within}{field.name}.")
    return missing


def parts_lacking(rows: DataType, table: DataType) -> list[str]:
    """The fields of structs, however deep, that the table has and the rows have not."""
    from pyspark.sql.types import ArrayType, MapType, StructType

    if isinstance(rows, StructType) and isinstance(table, StructType):
        mine = {field.name.lower(): field.dataType for field in rows}
        inner = ((f.name, mine.get(f.name.lower()), f.dataType) for f in table)
        return [
            path
            for name, own, kind in inner
            for path in ([name] if own is None else [f"{name}.{part}" for part in parts_lacking(own, kind)])
        ]
    if isinstance(rows, ArrayType) and isinstance(table, ArrayType):
        return parts_lacking(rows.elementType, table.elementType)
    if isinstance(rows, MapType) and isinstance(table, MapType):
        return parts_lacking(rows.keyType, table.keyType) + parts_lacking(rows.valueType, table.valueType)
    return []


def _same(rows: DataType, table: DataType) -> bool:
    """Whether values of the one type are values of the other; a struct may lack fields that the table has."""
    from pyspark.sql.types import ArrayType, MapType, StructType

    if isinstance(rows, StructType) and isinstance(table, StructType):
        there = {field.name.lower(): field.dataType for field in table}
        return all(f.name.lower() in there and _same(f.dataType, there[f.name.lower()]) for f in rows)
    if isinstance(rows, ArrayType) and isinstance(table, ArrayType):
        return _same(rows.elementType, table.elementType)
    if isinstance(rows, MapType) and isinstance(table, MapType):
        return _same(rows.keyType, table.keyType) and _same(rows.valueType, table.valueType)
    return rows == table


def _kinds(kind: DataType) -> Iterator[DataType]:
    """The types inside a type, however deep."""
    from pyspark.sql.types import ArrayType, MapType, StructType

    inside: list[DataType] = []
    if isinstance(kind, StructType):
        inside = [field.dataType for field in kind]
    if isinstance(kind, ArrayType):
        inside = [kind.elementType]
    if isinstance(kind, MapType):
        inside = [kind.keyType, kind.valueType]
    for each in inside:
        yield each
        yield from _kinds(each)


def _fields(kind: DataType) -> Iterator[StructField]:
    """The fields of all structs inside a type."""
    from pyspark.sql.types import StructType

    for each in [kind, *_kinds(kind)]:
        if isinstance(each, StructType):
            yield from each


def _cast(field: StructField, kind: str) -> str:
    return f"cast: {{{_yaml(field.name)}: {json.dumps(kind)}}}"


def _yaml(name: str) -> str:
    """The name as YAML and JSON both read it."""
    plain = name.isidentifier() and name.lower() not in ("null", "true", "false")
    return name if plain else json.dumps(name, ensure_ascii=False)
