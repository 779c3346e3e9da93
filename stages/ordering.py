"""An order of rows by their content, so that the same rows always have the same order."""

from __future__ import annotations

from typing import TYPE_CHECKING

from origins.lazy import F, T
from origins.nack import encode_payload
from origins.names import quote_name
from origins.schema import walk_types

if TYPE_CHECKING:
    from pyspark.sql import Column


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
