"""Values that Spark would change without a word: how they are read so that it shows, and how it is seen.

Decimals are read with all the digits that there is room for, and so none is rounded. A decimal of 38 digits has no
finer type. A `tinyint` is read as `smallint`, for JSON's parser takes 200 for -56. Neither are those inside maps, which
SQL does not compare, looked at. A number that is too large for a float becomes infinite, and casts from text cut off
control characters.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from origins.names import HIDDEN, quoted, text
from origins.schema import sql_type

if TYPE_CHECKING:
    from pyspark.sql.types import DataType, StructType

_DIGITS = 38
CONTROL = r"[\x00-\x08\x0e-\x1f\x7f]"
"""A pattern for the control characters that casts cut off beside white space."""
INFINITE = r"(?i)inf"
"""A pattern for text that says itself that it is infinite."""
_AS_THEY_ARE = ("string", "binary", "variant", "char", "varchar")
"""The types whose values keep control characters."""


def finer(kind: DataType) -> DataType:
    """The type with which a value is read that is to have this one: as large, and as fine as may be."""
    from pyspark.sql.types import ArrayType, ByteType, DecimalType, ShortType, StructType

    if isinstance(kind, DecimalType):
        return DecimalType(_DIGITS, _DIGITS - kind.precision + kind.scale)
    if isinstance(kind, ByteType):
        return ShortType()
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


def is_changed(value: str, kind: str, typed: str) -> str:
    """SQL that is true for text of which a cast to this type made something else (`typed`), and not NULL."""
    name = kind.lower().partition("(")[0].strip()
    if name in _AS_THEY_ARE:
        return "false"
    last = f"substring({value}, -1)"
    ends = f"{value} < '!' or {last} < '!' or {last} > '~'"
    is_cut = f"({ends}) and {value} rlike {text(CONTROL)}"
    if name not in ("float", "real", "double"):
        return f"({is_cut})"
    return f"({is_infinite(typed)} and not {value} rlike {text(INFINITE)} or {is_cut})"


def is_infinite(value: str) -> str:
    """SQL that is true for a float that is; NULL for NULL."""
    return f"abs({value}) = double('Infinity')"


def any_inside(value: str, kind: DataType, found: Callable[[str, DataType], str], depth: int = 0) -> str:
    """SQL that is true where something is `found` of a value without parts inside this one: SQL, or "false"."""
    from pyspark.sql.types import ArrayType, MapType, StructType

    if isinstance(kind, StructType):
        each = (any_inside(f"{value}.{quoted(field.name)}", field.dataType, found, depth) for field in kind)
        return " or ".join(f"({one})" for one in each if one != "false") or "false"
    if isinstance(kind, ArrayType | MapType):
        element = kind.elementType if isinstance(kind, ArrayType) else kind.valueType
        name = f"{HIDDEN}inside_{depth}"
        inner = any_inside(name, element, found, depth + 1)
        values = value if isinstance(kind, ArrayType) else f"map_values({value})"
        return "false" if inner == "false" else f"coalesce(exists({values}, {name} -> {inner}), false)"
    return found(value, kind)
