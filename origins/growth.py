"""How a schema grows with the files: by columns, by fields inside columns, and to wider types."""

from __future__ import annotations

from typing import TYPE_CHECKING

from origins.changes import Changes

if TYPE_CHECKING:
    from pyspark.sql.types import DataType, StructType


def grown(schema: StructType, found: StructType, changes: Changes) -> StructType:
    """The schema with what was found in files beside it, as far as the policies say `evolve`.

    What it has keeps its place and its name; new columns and fields come behind. One that differs from a known one
    only in the case of letters is none.
    """
    grew = _grown(schema, found, changes)
    assert isinstance(grew, type(schema))
    return grew


def _grown(kind: DataType, found: DataType, changes: Changes) -> DataType:
    from pyspark.sql.types import ArrayType, MapType, StructField, StructType

    if isinstance(kind, StructType) and isinstance(found, StructType):
        there = {field.name: field.dataType for field in found}
        fields = [
            StructField(field.name, _grown(field.dataType, there.get(field.name, field.dataType), changes))
            for field in kind
        ]
        known = {field.name.lower() for field in kind}
        for field in found if changes.extra == "evolve" else ():
            if field.name.lower() not in known:
                known.add(field.name.lower())
                fields.append(StructField(field.name, field.dataType))
        return StructType(fields)
    if isinstance(kind, ArrayType) and isinstance(found, ArrayType):
        return ArrayType(_grown(kind.elementType, found.elementType, changes))
    if isinstance(kind, MapType) and isinstance(found, MapType):
        return MapType(kind.keyType, _grown(kind.valueType, found.valueType, changes))
    if changes.wider == "evolve" and is_wider(found, kind):
        return found
    return kind


def is_wider(wide: DataType, narrow: DataType) -> bool:
    """Whether every value of the narrow type is one of the wide type, and a Delta table can take it for the other."""
    from pyspark.sql.types import ByteType, DecimalType, DoubleType, FloatType, IntegerType, LongType, ShortType

    whole: list[type[DataType]] = [ByteType, ShortType, IntegerType, LongType]
    digits = dict(zip(whole, (3, 5, 10, 19), strict=True))
    if type(narrow) in digits and type(wide) in digits:
        return whole.index(type(wide)) > whole.index(type(narrow))
    if isinstance(wide, DecimalType):
        least = 20 if isinstance(narrow, LongType) else 10
        if type(narrow) in digits:
            return wide.precision - wide.scale >= least
        if not isinstance(narrow, DecimalType) or wide == narrow:
            return False
        return wide.scale >= narrow.scale and wide.precision - wide.scale >= narrow.precision - narrow.scale
    if isinstance(wide, DoubleType):
        return isinstance(narrow, FloatType)
    return False
