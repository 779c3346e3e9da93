"""A value of one type as a value of another, in SQL: what fits, and what does not."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from origins.exact import is_changed
from origins.names import HIDDEN, quoted, text
from origins.parquet_types import is_read_as
from origins.schema import sql_type

if TYPE_CHECKING:
    from pyspark.sql.types import DataType, MapType, StructType


@dataclass(frozen=True)
class Fit:
    """SQL for a value with the type that is wanted."""

    value: str
    """NULL, or with NULL in it, where something does not fit."""
    lost: str = "false"
    """True where the value does not fit, or a part of it; never NULL."""


def fit(value: str, found: DataType, want: DataType, depth: int = 0) -> Fit:
    """The value as it is wanted. It fits as the text of a CSV field would, if it then is the same number or time still;
    what lies in arrays, maps and structs part by part. As text, these are JSON."""
    from pyspark.sql.types import ArrayType, MapType, StringType, StructType

    if sql_type(found) == sql_type(want):
        return Fit(value)
    each = f"{HIDDEN}each_{depth}"
    if isinstance(found, StructType) and isinstance(want, StructType):
        return _struct(value, found, want, depth)
    if isinstance(found, ArrayType) and isinstance(want, ArrayType):
        inner = fit(each, found.elementType, want.elementType, depth + 1)
        return Fit(f"transform({value}, {each} -> {inner.value})", _any(value, each, inner))
    if isinstance(found, MapType) and isinstance(want, MapType) and is_read_as(want.keyType, found.keyType):
        return _map(value, found, want, each, depth)
    if isinstance(want, StringType):
        return Fit(as_text(value, found))
    if not _has_parts(found) and is_read_as(want, found):
        return Fit(f"cast({value} as {sql_type(want)})")
    return _scalar(value, found, want)


def as_text(value: str, kind: DataType) -> str:
    """The value as it stands in a message."""
    return f"to_json({value})" if _has_parts(kind) else f"cast({value} as string)"


def _scalar(value: str, found: DataType, want: DataType) -> Fit:
    from pyspark.sql.types import DoubleType, FloatType, StringType

    kind = sql_type(want)
    if _has_parts(found) or _has_parts(want) or not (isinstance(found, StringType) or _is_like(found, want)):
        return Fit(f"cast(null as {kind})", f"({value} is not null)")
    typed = f"try_cast({as_text(value, found)} as {kind})"
    if isinstance(found, StringType):
        changed = is_changed(value, kind, typed)
        return Fit(typed, f"({value} is not null and ({typed} is null or coalesce({changed}, false)))")
    short = isinstance(found, DoubleType) and isinstance(want, FloatType)  # 0.1 is another number in each of the two
    back = f"try_cast({f'cast({typed} as string)' if short else typed} as {sql_type(found)})"
    return Fit(typed, f"({value} is not null and not coalesce({back} = {value}, false))")


def _struct(value: str, found: StructType, want: StructType, depth: int) -> Fit:
    there = {field.name.lower(): field for field in found}
    parts, lost = [], ["false"]
    for field in want:
        own = there.get(field.name.lower())
        inner = Fit(f"cast(null as {sql_type(field.dataType)})")
        if own is not None:
            inner = fit(f"{value}.{quoted(own.name)}", own.dataType, field.dataType, depth)
        parts.append(f"{text(field.name)}, {inner.value}")
        lost += [inner.lost] if inner.lost != "false" else []
    return Fit(f"if({value} is null, null, named_struct({', '.join(parts)}))", f"({' or '.join(lost)})")


def _map(value: str, found: MapType, want: MapType, each: str, depth: int) -> Fit:
    inner = fit(each, found.valueType, want.valueType, depth + 1)
    values = f"transform_values({value}, ({HIDDEN}key_{depth}, {each}) -> {inner.value})"
    return Fit(f"cast({values} as {sql_type(want)})", _any(f"map_values({value})", each, inner))


def _any(values: str, each: str, inner: Fit) -> str:
    return f"coalesce(exists({values}, {each} -> {inner.lost}), false)" if inner.lost != "false" else "false"


def _has_parts(kind: DataType) -> bool:
    from pyspark.sql.types import ArrayType, MapType, StructType

    return isinstance(kind, ArrayType | MapType | StructType)


def _is_like(found: DataType, want: DataType) -> bool:
    """Whether both are numbers, or both times."""
    from pyspark.sql.types import DateType, NumericType, TimestampNTZType, TimestampType

    times = (DateType, TimestampType, TimestampNTZType)
    return any(isinstance(found, kinds) and isinstance(want, kinds) for kinds in ((NumericType,), times))
