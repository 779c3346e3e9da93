"""A nack: a row refused, with the reason, and the row as it stood before that and as it was read, as text.

A row as JSON text that a person can read and Spark can turn back into the very same row.

Plain JSON carries most of it. What it cannot carry is written so that it can: a map whose keys are not text is a
list of entries, and text that is not valid UTF-8 (or begins with the character NUL) is NUL and then its bytes in
base64. Inside a VARIANT only what JSON knows survives: dates come back as text, decimals as numbers.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, TypeAlias

from origins.lazy import F, T
from origins.schema import walk_types
from origins.secret import EXCERPT

if TYPE_CHECKING:
    from pyspark.sql import Column


DLQ_COLUMNS = (
    "id string, pipeline string, origin string, lane string, number bigint, plan string, run string, stage string, "
    "destination string, delivered_to array<string>, code string, message string, row string, row_schema string, "
    "original string, original_schema string, part string, position bigint, nacked_at timestamp, definition string, "
    "replays string"
)
"""The columns of a DLQ; `destinations/docs/dlq.md` says what each holds."""
REFUSED = "_wherry_refused"
"""The column in which an origin refuses a row that it could not read: `struct<code, message, raw>`, all text,
NULL for a good row. `raw` is what was read, as it was found."""

REASON = "struct<code string, message string>"
NACK = (
    "struct<stage string, destination string, code string, message string, "
    "row string, row_schema string, original string, original_schema string>"
)
RAW = '{"type":"struct","fields":[{"name":"raw","type":"string","nullable":true,"metadata":{}}]}'
"""The schema of what is kept of a row that its origin could not read."""


def make_reason(code: str, message: Column) -> Column:
    """Why a row is refused: a code for machines and a message that names the column and the value."""
    return F.struct(F.lit(code).alias("code"), message.alias("message"))


def show_value(value: Column) -> Column:
    """The value as it stands in a message: in quotes, cut if it is long; NULL without them."""
    whole = F.coalesce(F.make_valid_utf8(value.try_cast("string")), F.lit("this value"))
    cut = F.when(F.length(whole) > EXCERPT, F.concat(F.substring(whole, 1, EXCERPT), F.lit("…"))).otherwise(whole)
    return F.when(value.isNull(), F.lit("NULL")).otherwise(F.concat(F.lit("'"), cut, F.lit("'")))


if TYPE_CHECKING:
    Coder: TypeAlias = Callable[[Column, T.DataType], Column]


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


def encode_payload(columns: Mapping[str, Column], schema: T.StructType) -> Column:
    """The columns as one JSON object; `schema` gives their types, by name."""
    fields = [_encode_value(columns[field.name], field.dataType).alias(field.name) for field in schema]
    return F.to_json(F.struct(*fields), _WRITING)


def restore(text: Column, schema: T.StructType) -> Column:
    """The struct of which `encode_payload` made the text; NULL for NULL. The query raises on text that is no such
    row."""
    parsed = F.from_json(text, _encoded_type(schema), _READING)  # type: ignore[arg-type]
    if _is_plain(schema):
        return parsed
    # Taken apart field by field, the text would be parsed anew for each; a lambda binds what was parsed once.
    return F.transform(F.array(parsed), lambda row: _decode_value(row, schema))[0]


def find_field(name: str, before: T.StructType) -> T.StructField | None:
    """The column of this name in any case of letters, in the schema that a row had."""
    return next((field for field in before if field.name.lower() == name.lower()), None)


def convert_value(field: T.StructField, before: T.StructType, row: Column) -> Column:
    """The column of a row that had another schema; NULL where the row had no such column."""
    old = find_field(field.name, before)
    if old is None:
        return F.lit(None).cast(field.dataType)
    value = row[old.name]
    return value if old.dataType == field.dataType else value.try_cast(field.dataType)


def describe_misfit(field: T.StructField, before: T.StructType, row: Column) -> Column | None:
    """Why a value cannot be converted; NULL where it can. None for a column that needs no conversion."""
    old = find_field(field.name, before)
    if old is None or old.dataType == field.dataType:
        return None
    value = row[old.name]
    kind = field.dataType.simpleString()
    message = F.concat(
        F.lit(f"column {field.name}: "),
        show_value(value),
        F.lit(f" is not {'an' if kind[0] in 'aeiou' else 'a'} {kind}"),
    )
    return F.when(value.isNotNull() & value.try_cast(field.dataType).isNull(), message)


def make_refusal(why: Column, raw: Column) -> Column:
    """The value of `REFUSED` for this reason; NULL where the reason is empty."""
    refusal = F.struct(F.lit("PARSE").alias("code"), why.alias("message"), raw.alias("raw"))
    return F.when(why != "", refusal)


def parse_columns(columns: str) -> T.StructType:
    """The schema of columns such as `DLQ_COLUMNS`, without Spark."""
    kinds: Mapping[str, T.DataType] = {
        "string": T.StringType(),
        "bigint": T.LongType(),
        "timestamp": T.TimestampType(),
        "array<string>": T.ArrayType(T.StringType()),
    }
    named = [column.split(" ", 1) for column in columns.split(", ")]
    return T.StructType([T.StructField(name, kinds[kind]) for name, kind in named])


def _is_plain(kind: T.DataType) -> bool:
    """Whether values of this type come back out of JSON as they went in."""
    return not any(isinstance(inner, T.StringType | T.MapType) for _, inner in walk_types(kind))


def _encode_value(value: Column, kind: T.DataType) -> Column:
    if isinstance(kind, T.StringType):
        as_bytes = F.concat(F.lit(_NUL), F.base64(value.cast("binary")))
        says_itself = F.is_valid_utf8(value) & ~value.startswith(_NUL)
        return F.when(says_itself, value).when(value.isNotNull(), as_bytes)
    if isinstance(kind, T.MapType):
        entries = _encode_value(F.map_entries(value), _entry_type(kind))
        return F.map_from_entries(entries) if isinstance(kind.keyType, T.StringType) else entries
    return _code_parts(value, kind, _encode_value)


def _decode_value(value: Column, kind: T.DataType) -> Column:
    if isinstance(kind, T.StringType):
        from_bytes = F.unbase64(F.substring(value, 2, 2**31 - 1)).cast("string")
        return F.when(value.startswith(_NUL), from_bytes).otherwise(value)
    if isinstance(kind, T.MapType):
        entries = F.map_entries(value) if isinstance(kind.keyType, T.StringType) else value
        return F.map_from_entries(_decode_value(entries, _entry_type(kind)))
    return _code_parts(value, kind, _decode_value)


def _encoded_type(kind: T.DataType) -> T.DataType:
    """The type that a value has in the JSON text."""
    if isinstance(kind, T.StructType):
        return T.StructType([T.StructField(field.name, _encoded_type(field.dataType)) for field in kind])
    if isinstance(kind, T.ArrayType):
        return T.ArrayType(_encoded_type(kind.elementType))
    if isinstance(kind, T.MapType) and isinstance(kind.keyType, T.StringType):
        return T.MapType(kind.keyType, _encoded_type(kind.valueType))
    return _encoded_type(_entry_type(kind)) if isinstance(kind, T.MapType) else kind


def _entry_type(kind: T.MapType) -> T.ArrayType:
    return T.ArrayType(T.StructType([T.StructField("key", kind.keyType), T.StructField("value", kind.valueType)]))


def _code_parts(value: Column, kind: T.DataType, coder: Coder) -> Column:
    """The value with every part of it coded; itself where JSON carries it as it is."""
    if _is_plain(kind):
        return value
    if isinstance(kind, T.ArrayType):
        element = kind.elementType
        return F.transform(value, lambda each: coder(each, element))
    assert isinstance(kind, T.StructType)
    fields = [
        coder(part, field.dataType).alias(field.name)
        for part, field in zip(_list_fields(value, kind), kind, strict=True)
    ]
    return F.when(value.isNotNull(), F.struct(*fields))


def _list_fields(value: Column, kind: T.StructType) -> list[Column]:
    """The fields of a struct, found by place where their names differ only in the case of letters."""
    if len({name.lower() for name in kind.names}) == len(kind):
        return [value.getField(name) for name in kind.names]
    numbered = T.StructType([T.StructField(f"_{i}", field.dataType) for i, field in enumerate(kind)])
    return [value.cast(numbered).getField(name) for name in numbered.names]
