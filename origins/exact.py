"""Decimals that are read with all the digits that there is room for, so that none is rounded in silence.

A decimal of 38 digits has no finer type. Neither are those inside maps, which SQL does not compare, looked at.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from origins.schema import sql_type

if TYPE_CHECKING:
    from pyspark.sql.types import DataType, StructType

_DIGITS = 38


def finer(kind: DataType) -> DataType:
    """The type with which a value is read that is to have this one: as large, and as fine as may be."""
    from pyspark.sql.types import ArrayType, DecimalType, StructType

    if isinstance(kind, DecimalType):
        return DecimalType(_DIGITS, _DIGITS - kind.precision + kind.scale)
    if isinstance(kind, ArrayType):
        return ArrayType(finer(kind.elementType), kind.containsNull)
    return finer_columns(kind) if isinstance(kind, StructType) else kind


def finer_columns(schema: StructType) -> StructType:
    """The schema with the `finer` type of each column."""
    from pyspark.sql.types import StructField, StructType

    return StructType([StructField(each.name, finer(each.dataType), each.nullable, each.metadata) for each in schema])


def is_finer(kind: DataType) -> bool:
    """Whether values of this type are read with another."""
    return finer(kind) != kind


def exact(value: str, kind: DataType) -> str:
    """SQL for a value that was read with the `finer` type; NULL if it is another one with its own."""
    if not is_finer(kind):
        return value
    typed, read = f"try_cast({value} as {sql_type(kind)})", sql_type(finer(kind))
    return f"if(try_cast({typed} as {read}) = {value}, {typed}, null)"


def is_inexact(value: str, kind: DataType) -> str:
    """SQL that is true where there is a value, and `exact` gives none."""
    return f"({value} is not null and {exact(value, kind)} is null)" if is_finer(kind) else "false"
