"""Rows and Delta tables: the columns that a table is made with, and why rows do not fit one that is there."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from typing import TYPE_CHECKING

from origins.files.changes import is_wider
from origins.names import quote_name
from origins.schema import sql_type

if TYPE_CHECKING:
    from pyspark.sql.types import DataType, StructField, StructType

_NEED_MAPPING = set(" ,;{}()\n\t=")
"""Characters that Delta has in a column's name only where names are mapped."""


def format_columns(schema: StructType) -> str:
    """The columns of a table for these rows, as `CREATE TABLE` takes them; each may be NULL."""
    return ", ".join(f"{quote_name(field.name)} {sql_type(field.dataType)}" for field in schema)


def needs_mapping(kind: DataType) -> bool:
    """Whether Parquet lacks a name somewhere in the type."""
    return any(_NEED_MAPPING & set(field.name) for field in _inner_fields(kind))


def list_impossible(rows: StructType) -> list[str]:
    """Why no Delta table can have these columns, each with the way out."""
    from pyspark.sql.types import CalendarIntervalType, DayTimeIntervalType, NullType, YearMonthIntervalType

    problems = [] if len(rows) else ["the rows have no columns; a stage before this destination removed all of them"]
    spelled = Counter(field.name.lower() for field in rows)
    for field in rows:
        kinds = [field.dataType, *_inner_types(field.dataType)]
        if spelled[field.name.lower()] > 1:
            problems.append(f"{field.name}: another column differs only in upper and lower case; rename one of them")
        if any(isinstance(kind, NullType) for kind in kinds):
            problems.append(
                f"{field.name}: it is NULL in all rows and has no type; set one, {_cast_hint(field, 'string')}"
            )
        if any(isinstance(k, CalendarIntervalType | DayTimeIntervalType | YearMonthIntervalType) for k in kinds):
            problems.append(f"{field.name}: Delta has no intervals; keep it as text, {_cast_hint(field, 'string')}")
    return problems


def find_misfits(rows: StructType, table: StructType, name: str) -> dict[str, str]:
    """By column, why these rows do not fit the table called `name`, each with the way out.

    Names that differ in the case of letters are one; the order does not matter.
    """
    there = {field.name.lower(): field for field in table}
    problems = {}
    for field in rows:
        target = there.get(field.name.lower())
        if target is None:
            problems[field.name] = (
                f"{field.name}: the table has no such column; leave it out, drop: "
                f"[{_yaml_name(field.name)}], or add it, "
                f"ALTER TABLE {name} ADD COLUMNS ({quote_name(field.name)} {sql_type(field.dataType)})"
            )
        elif not _is_same_type(field.dataType, target.dataType):
            wanted = sql_type(target.dataType)
            have = sql_type(field.dataType)
            problems[field.name] = (
                f"{field.name}: the rows have {have}, the table {wanted}; {_cast_hint(field, wanted)}"
            )
    return problems


def list_lacking(rows: StructType, table: StructType, within: str = "") -> list[str]:
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
            missing += list_lacking(mine or StructType(), field.dataType, f"{within}{field.name}.")
    return missing


def list_lacking_parts(rows: DataType, table: DataType) -> list[str]:
    """The fields of structs, however deep, that the table has and the rows have not."""
    from pyspark.sql.types import ArrayType, MapType, StructType

    if isinstance(rows, StructType) and isinstance(table, StructType):
        mine = {field.name.lower(): field.dataType for field in rows}
        inner = ((f.name, mine.get(f.name.lower()), f.dataType) for f in table)
        return [
            path
            for name, own, kind in inner
            for path in ([name] if own is None else [f"{name}.{part}" for part in list_lacking_parts(own, kind)])
        ]
    if isinstance(rows, ArrayType) and isinstance(table, ArrayType):
        return list_lacking_parts(rows.elementType, table.elementType)
    if isinstance(rows, MapType) and isinstance(table, MapType):
        return list_lacking_parts(rows.keyType, table.keyType) + list_lacking_parts(rows.valueType, table.valueType)
    return []


def _is_same_type(rows: DataType, table: DataType) -> bool:
    """Whether values of the one type are values of the other; a struct may lack fields that the table has."""
    from pyspark.sql.types import ArrayType, MapType, StructType

    if isinstance(rows, StructType) and isinstance(table, StructType):
        there = {field.name.lower(): field.dataType for field in table}
        return all(f.name.lower() in there and _is_same_type(f.dataType, there[f.name.lower()]) for f in rows)
    if isinstance(rows, ArrayType) and isinstance(table, ArrayType):
        return _is_same_type(rows.elementType, table.elementType)
    if isinstance(rows, MapType) and isinstance(table, MapType):
        return _is_same_type(rows.keyType, table.keyType) and _is_same_type(rows.valueType, table.valueType)
    return rows == table


def _inner_types(kind: DataType) -> Iterator[DataType]:
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
        yield from _inner_types(each)


def _inner_fields(kind: DataType) -> Iterator[StructField]:
    """The fields of all structs inside a type."""
    from pyspark.sql.types import StructType

    for each in [kind, *_inner_types(kind)]:
        if isinstance(each, StructType):
            yield from each


def _cast_hint(field: StructField, kind: str) -> str:
    return f"cast: {{{_yaml_name(field.name)}: {json.dumps(kind)}}}"


def _yaml_name(name: str) -> str:
    """The name as YAML and JSON both read it."""
    plain = name.isidentifier() and name.lower() not in ("null", "true", "false")
    return name if plain else json.dumps(name, ensure_ascii=False)


_WIDENS = "delta.enableTypeWidening"


def list_growth_statements(rows: StructType, table: StructType, name: str) -> list[str]:
    """The statements after which the table called `name` holds such rows, as far as it can grow into that."""
    added = [f"{path} {sql_type(kind)}" for path, kind in _find_added(rows, table, "")]
    widened = list(_find_widened(rows, table, ""))
    statements = [f"ALTER TABLE {name} ADD COLUMNS ({', '.join(added)})"] if added else []
    if widened:
        statements.append(f"ALTER TABLE {name} SET TBLPROPERTIES ('{_WIDENS}' = 'true')")
    statements += [f"ALTER TABLE {name} ALTER COLUMN {path} TYPE {sql_type(kind)}" for path, kind in widened]
    return statements


def _find_added(rows: DataType, table: DataType, before: str) -> Iterator[tuple[str, DataType]]:
    from pyspark.sql.types import StructType

    if isinstance(rows, StructType) and isinstance(table, StructType):
        there = {field.name.lower(): field for field in table}
        yield from ((before + quote_name(f.name), f.dataType) for f in rows if f.name.lower() not in there)
    for path, mine, its in _pair_inner_types(rows, table, before):
        yield from _find_added(mine, its, f"{path}.")


def _find_widened(rows: DataType, table: DataType, before: str) -> Iterator[tuple[str, DataType]]:
    for path, mine, its in _pair_inner_types(rows, table, before):
        if is_wider(mine, its):
            yield path, mine
        yield from _find_widened(mine, its, f"{path}.")


def _pair_inner_types(rows: DataType, table: DataType, before: str) -> Iterator[tuple[str, DataType, DataType]]:
    """What both types have inside, with its path in the table."""
    from pyspark.sql.types import ArrayType, MapType, StructType

    if isinstance(rows, StructType) and isinstance(table, StructType):
        mine = {field.name.lower(): field.dataType for field in rows}
        for field in table:
            if field.name.lower() in mine:
                yield before + quote_name(field.name), mine[field.name.lower()], field.dataType
    if isinstance(rows, ArrayType) and isinstance(table, ArrayType):
        yield f"{before}element", rows.elementType, table.elementType
    if isinstance(rows, MapType) and isinstance(table, MapType):
        yield f"{before}value", rows.valueType, table.valueType
