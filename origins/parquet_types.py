"""The types of a parquet file's columns beside those of the schema: what is missing, extra, wider or other."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from origins.growth import is_wider

if TYPE_CHECKING:
    from pyspark.sql.types import DataType


def differences(want: DataType, found: DataType, path: str = "") -> Iterator[tuple[str, str, str]]:
    """Where a type that was found is not as is wanted: the kind of change, the path, and what is said of it.

    Of what lies in a difference nothing is said. Names are matched whatever the case of their letters.
    """
    from pyspark.sql.types import ArrayType, MapType, StructType

    if isinstance(want, StructType) and isinstance(found, StructType):
        before = f"{path}." if path else ""
        there, known = ({field.name.lower(): field for field in kind} for kind in (found, want))
        for key, field in known.items():
            if key in there:
                yield from differences(field.dataType, there[key].dataType, before + field.name)
            else:
                yield "missing", before + field.name, before + field.name
        yield from (
            ("extra", before + field.name, before + field.name) for field in found if field.name.lower() not in known
        )
    elif isinstance(want, ArrayType) and isinstance(found, ArrayType):
        yield from differences(want.elementType, found.elementType, path)
    elif isinstance(want, MapType) and isinstance(found, MapType) and is_read_as(want.keyType, found.keyType):
        yield from differences(want.valueType, found.valueType, path)
    elif not is_read_as(want, found):
        said = f"{path} as {found.simpleString()} instead of {want.simpleString()}"
        yield "wider" if is_wider(found, want) else "other", path, said


def differs(want: DataType, found: DataType) -> bool:
    """Whether values of the one type cannot be read as the other, or not all of them."""
    return any(kind in ("wider", "other") for kind, _, _ in differences(want, found))


def is_read_as(want: DataType, found: DataType) -> bool:
    """Whether Spark's reader of parquet gives every value of the type that was found as the same one of the type that
    is wanted. Of types that are not known here it says so itself."""
    from pyspark.sql import types as T

    same = {
        (T.ByteType, T.DoubleType), (T.ShortType, T.DoubleType), (T.IntegerType, T.DoubleType),
        (T.DateType, T.TimestampNTZType), (T.TimestampNTZType, T.TimestampType), (T.TimestampType, T.TimestampNTZType),
        (T.BinaryType, T.StringType), (T.StringType, T.BinaryType), (T.StringType, T.StringType),
    }  # fmt: skip
    known = (
        *(T.NumericType, T.StringType, T.BinaryType, T.BooleanType, T.DateType, T.TimestampType, T.TimestampNTZType),
        *(T.ArrayType, T.MapType, T.StructType),
    )
    if not isinstance(want, known) or not isinstance(found, known):
        return True
    nested = (T.ArrayType, T.MapType, T.StructType)
    if isinstance(want, nested) or isinstance(found, nested):
        return False
    return want == found or (type(found), type(want)) in same or is_wider(want, found)
