"""An order of rows by what is in them, so that the same rows always stand in the same order."""

from __future__ import annotations

from typing import TYPE_CHECKING

from origins.nack import encode_payload
from origins.names import quote_name

if TYPE_CHECKING:
    from pyspark.sql import Column
    from pyspark.sql.types import DataType, StructType


def order_by_content(schema: StructType) -> list[Column]:
    """What to order rows of this schema by: only rows that are the same in everything stand side by side by chance."""
    from pyspark.sql import functions as F
    from pyspark.sql.types import StructType

    order = []
    for field in schema:
        value = F.col(quote_name(field.name))
        if not can_be_ordered(field.dataType):
            value = encode_payload({field.name: value}, StructType([field]))
        order.append(value.desc_nulls_last())
    return order


def can_be_ordered(kind: DataType) -> bool:
    """Whether Spark can say of two values of this type which is the higher one, and whether they are the same."""
    from pyspark.sql.types import ArrayType, CalendarIntervalType, MapType, StructType, VariantType

    if isinstance(kind, StructType):
        return all(can_be_ordered(field.dataType) for field in kind)
    if isinstance(kind, ArrayType):
        return can_be_ordered(kind.elementType)
    return not isinstance(kind, MapType | VariantType | CalendarIntervalType)
