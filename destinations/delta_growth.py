"""How a Delta table grows with the rows that reach it: columns, fields inside columns, wider types."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from origins.growth import is_wider
from origins.names import quoted
from origins.schema import sql_type

if TYPE_CHECKING:
    from pyspark.sql.types import DataType, StructType

_WIDENS = "delta.enableTypeWidening"


def growth(rows: StructType, table: StructType, name: str) -> list[str]:
    """The statements after which the table called `name` holds such rows, as far as it can grow into that."""
    added = [f"{path} {sql_type(kind)}" for path, kind in _added(rows, table, "")]
    widened = list(_widened(rows, table, ""))
    statements = [f"ALTER TABLE {name} ADD COLUMNS ({', '.join(added)})"] if added else []
    if widened:
        statements.append(f"ALTER TABLE {name} SET TBLPROPERTIES ('{_WIDENS}' = 'true')")
    statements += [f"ALTER TABLE {name} ALTER COLUMN {path} TYPE {sql_type(kind)}" for path, kind in widened]
    return statements


def _added(rows: DataType, table: DataType, before: str) -> Iterator[tuple[str, DataType]]:
    from pyspark.sql.types import StructType

    if isinstance(rows, StructType) and isinstance(table, StructType):
        there = {field.name.lower(): field for field in table}
        yield from ((before + quoted(f.name), f.dataType) for f in rows if f.name.lower() not in there)
    for path, mine, its in _inside(rows, table, before):
        yield from _added(mine, its, f"{path}.")


def _widened(rows: DataType, table: DataType, before: str) -> Iterator[tuple[str, DataType]]:
    for path, mine, its in _inside(rows, table, before):
        if is_wider(mine, its):
            yield path, mine
        yield from _widened(mine, its, f"{path}.")


def _inside(rows: DataType, table: DataType, before: str) -> Iterator[tuple[str, DataType, DataType]]:
    """What both types have inside, with its path in the table."""
    from pyspark.sql.types import ArrayType, MapType, StructType

    if isinstance(rows, StructType) and isinstance(table, StructType):
        mine = {field.name.lower(): field.dataType for field in rows}
        for field in table:
            if field.name.lower() in mine:
                yield before + quoted(field.name), mine[field.name.lower()], field.dataType
    if isinstance(rows, ArrayType) and isinstance(table, ArrayType):
        yield f"{before}element", rows.elementType, table.elementType
    if isinstance(rows, MapType) and isinstance(table, MapType):
        yield f"{before}value", rows.valueType, table.valueType
