"""A row as JSON text that a person can read and Spark can turn back into the very same row.

Plain JSON carries most of it. What it cannot carry is written so that it can: a map whose keys are not text is a
list of entries, and text that is not valid UTF-8 (or begins with the character NUL) is NUL and then its bytes in
base64. Inside a VARIANT only what JSON knows survives: dates come back as text, decimals as numbers.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from pyspark.sql import Column
    from pyspark.sql.types import ArrayType, DataType, MapType, StructType

    Coder: TypeAlias = Callable[[Column, DataType], Column]

_FORMATS = {
    "dateFormat": "yyyy-MM-dd",
    "timestampFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSSXXX",
    "timestampNTZFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSS",
    "timeZone": "UTC",
    "locale": "en-US",
}
_WRITING = {**_FORMATS, "ignoreNullFields": "false"}
_READING = {**_FORMATS, "mode": "FAILFAST", "columnNameOfCorruptRecord": "_wherry_corrupt"}
_NUL = "\0"


def payload(columns: Mapping[str, Column], schema: StructType) -> Column:
    """The columns as one JSON object; `schema` gives their types, by name."""
    from pyspark.sql import functions as F

    fields = [_written(columns[field.name], field.dataType).alias(field.name) for field in schema]
    return F.to_json(F.struct(*fields), _WRITING)


def restore(text: Column, schema: StructType) -> Column:
    """The struct of which `payload` made the text; NULL for NULL. The query raises on text that is no such row."""
    from pyspark.sql import functions as F

    parsed = F.from_json(text, _as_written(schema), _READING)  # type: ignore[arg-type]
    if _is_plain(schema):
        return parsed
    # Taken apart field by field, the text would be parsed anew for each; a lambda binds what was parsed once.
    return F.transform(F.array(parsed), lambda row: _read(row, schema))[0]


def _is_plain(kind: DataType) -> bool:
    """Whether values of this type come back out of JSON as they went in."""
    from pyspark.sql.types import ArrayType, MapType, StringType, StructType

    if isinstance(kind, StructType):
        return all(_is_plain(field.dataType) for field in kind)
    if isinstance(kind, ArrayType):
        return _is_plain(kind.elementType)
    return not isinstance(kind, StringType | MapType)


def _written(value: Column, kind: DataType) -> Column:
    from pyspark.sql import functions as F
    from pyspark.sql.types import MapType, StringType

    if isinstance(kind, StringType):
        as_bytes = F.concat(F.lit(_NUL), F.base64(value.cast("binary")))
        says_itself = F.is_valid_utf8(value) & ~value.startswith(_NUL)
        return F.when(says_itself, value).when(value.isNotNull(), as_bytes)
    if isinstance(kind, MapType):
        entries = _written(F.map_entries(value), _entries(kind))
        return F.map_from_entries(entries) if isinstance(kind.keyType, StringType) else entries
    return _inside(value, kind, _written)


def _read(value: Column, kind: DataType) -> Column:
    from pyspark.sql import functions as F
    from pyspark.sql.types import MapType, StringType

    if isinstance(kind, StringType):
        from_bytes = F.unbase64(F.substring(value, 2, 2**31 - 1)).cast("string")
        return F.when(value.startswith(_NUL), from_bytes).otherwise(value)
    if isinstance(kind, MapType):
        entries = F.map_entries(value) if isinstance(kind.keyType, StringType) else value
        return F.map_from_entries(_read(entries, _entries(kind)))
    return _inside(value, kind, _read)


def _as_written(kind: DataType) -> DataType:
    """The type that a value has in the JSON text."""
    from pyspark.sql.types import ArrayType, MapType, StringType, StructField, StructType

    if isinstance(kind, StructType):
        return StructType([StructField(field.name, _as_written(field.dataType)) for field in kind])
    if isinstance(kind, ArrayType):
        return ArrayType(_as_written(kind.elementType))
    if isinstance(kind, MapType) and isinstance(kind.keyType, StringType):
        return MapType(kind.keyType, _as_written(kind.valueType))
    return _as_written(_entries(kind)) if isinstance(kind, MapType) else kind


def _entries(kind: MapType) -> ArrayType:
    from pyspark.sql.types import ArrayType, StructField, StructType

    return ArrayType(StructType([StructField("key", kind.keyType), StructField("value", kind.valueType)]))


def _inside(value: Column, kind: DataType, coder: Coder) -> Column:
    """The value with every part of it coded; itself where JSON carries it as it is."""
    from pyspark.sql import functions as F
    from pyspark.sql.types import ArrayType, StructType

    if _is_plain(kind):
        return value
    if isinstance(kind, ArrayType):
        element = kind.elementType
        return F.transform(value, lambda each: coder(each, element))
    assert isinstance(kind, StructType)
    fields = [
        coder(part, field.dataType).alias(field.name) for part, field in zip(_parts(value, kind), kind, strict=True)
    ]
    return F.when(value.isNotNull(), F.struct(*fields))


def _parts(value: Column, kind: StructType) -> list[Column]:
    """The fields of a struct, found by place where their names differ only in the case of letters."""
    from pyspark.sql.types import StructField, StructType

    if len({name.lower() for name in kind.names}) == len(kind):
        return [value.getField(name) for name in kind.names]
    numbered = StructType([StructField(f"_{i}", field.dataType) for i, field in enumerate(kind)])
    return [value.cast(numbered).getField(name) for name in numbered.names]
