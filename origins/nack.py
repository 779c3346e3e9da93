"""A nack: a refused row with the reason, and with the row as text, both as its stage got it and as the origin read it.

The row is JSON text that a person can read and that Spark can turn back into exactly the same row. Plain JSON can
represent most values. The others are encoded: a map whose keys are not text is a list of entries. Text that is not
valid UTF-8 (or begins with the character NUL) is NUL followed by its bytes in base64. Inside a VARIANT only JSON's
types survive: dates come back as text, decimals as numbers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TypeAlias

from origins.lazy import Column, F, T
from origins.names import HIDDEN, quote_in_hex, quote_map, quote_text
from origins.schema import get_sql_type, walk_types
from origins.secret import EXCERPT

DLQ_COLUMNS = (
    "id string, pipeline string, origin string, lane string, number bigint, plan string, run string, stage string, "
    "destination string, delivered_to array<string>, code string, message string, row string, row_schema string, "
    "original string, original_schema string, part string, position bigint, nacked_at timestamp, definition string, "
    "replays string"
)
"""The columns of a DLQ. `destinations/docs/dlq.md` describes each."""
REFUSED = "_wherry_refused"
"""The column in which an origin refuses a row that it could not read: `struct<code, message, raw>`, all text.

It is NULL for a good row. `raw` is the row as the origin found it.
"""

REASON = "struct<code string, message string>"
NACK = (
    "struct<stage string, destination string, code string, message string, "
    "row string, row_schema string, original string, original_schema string>"
)
RAW = '{"type":"struct","fields":[{"name":"raw","type":"string","nullable":true,"metadata":{}}]}'
"""The schema of the text that is kept of a row that its origin could not read."""


def make_reason(code: str, message: Column) -> Column:
    """Return the reason of a refusal: a code for programs, and a message that names the column and the value."""
    return F.struct(F.lit(code).alias("code"), message.alias("message"))


def show_value(value: Column) -> Column:
    """Return the value for a message: in quotes, and shortened if it is long. NULL has no quotes."""
    whole = F.coalesce(F.make_valid_utf8(value.try_cast("string")), F.lit("this value"))
    cut = F.when(F.length(whole) > EXCERPT, F.concat(F.substring(whole, 1, EXCERPT), F.lit("…"))).otherwise(whole)
    return F.when(value.isNull(), F.lit("NULL")).otherwise(F.concat(F.lit("'"), cut, F.lit("'")))


def show_text_sql(before: str, text: str, after: str) -> str:
    """Return SQL for a message: `before`, the text in quotes and shortened if it is long, and `after`."""
    begin, cut, whole = (quote_text(each) for each in (before + "'", "…'" + after, "'" + after))
    return f"concat({begin}, left({text}, {EXCERPT}), if(char_length({text}) > {EXCERPT}, {cut}, {whole}))"


def join_messages_sql(messages: Iterable[str]) -> str:
    """Return SQL for these messages as one; empty if all are NULL. Their bytes become text."""
    return f"make_valid_utf8(concat_ws('; ', {', '.join(messages)}))"


_FORMATS = {
    "dateFormat": "yyyy-MM-dd",
    "timestampFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSSXXX",
    "timestampNTZFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSS",
    "timeZone": "UTC",
    "locale": "en-US",
}
_WRITING = {**_FORMATS, "ignoreNullFields": "false"}
_READING = {**_FORMATS, "mode": "FAILFAST", "columnNameOfCorruptRecord": "_wherry_corrupt"}
_NUL = quote_in_hex("\0")
_EACH = HIDDEN + "each_"
"""The prefix of the variables of lambdas."""
Coder: TypeAlias = "Callable[[str, T.DataType, int], str]"
"""A function that returns SQL for a value, given SQL for it, its type, and the number of lambdas around it."""


def encode_payload(columns: Mapping[str, str], schema: T.StructType) -> str:
    """Return SQL for columns, each given as SQL, as one JSON object. `schema` gives their types by name.

    All columns with text are coded by one function, so that a plan with many of them stays small.
    """
    texts = {each.name: each.dataType for each in schema if isinstance(each.dataType, T.StringType)}
    coded = {name: f"{_EACH}0[{number}]" for number, name in enumerate(texts)}
    fields = [
        f"{quote_text(each.name)}, {coded.get(each.name) or _encode_value(columns[each.name], each.dataType, 1)}"
        for each in schema
    ]
    row = f"to_json(named_struct({', '.join(fields)}), {quote_map(_WRITING)})"
    if not texts:
        return row
    plain = [
        columns[name] if kind == T.StringType() else f"cast({columns[name]} as string)" for name, kind in texts.items()
    ]
    coding = f"transform(array({', '.join(plain)}), {_EACH}1 -> {_encode_value(f'{_EACH}1', T.StringType())})"
    return f"transform(array({coding}), {_EACH}0 -> {row})[0]"


def restore(text: str, schema: T.StructType) -> str:
    """Return SQL for the struct from which `encode_payload` made this text, given as SQL; NULL for NULL.

    The query raises an error if the text is not such a row.
    """
    parsed = f"from_json({text}, {quote_text(_get_encoded_type(schema).json())}, {quote_map(_READING)})"
    if _is_plain(schema):
        return parsed
    # If each field were decoded separately, each would parse the text again. A lambda binds the parsed value once.
    return f"transform(array({parsed}), {_EACH}0 -> {_decode_value(f'{_EACH}0', schema, 1)})[0]"


def find_field(name: str, before: T.StructType) -> T.StructField | None:
    """Return the column of this name, in upper or lower case, in the schema that a row had."""
    return next((field for field in before if field.name.lower() == name.lower()), None)


def convert_value(field: T.StructField, before: T.StructType, row: Column) -> Column:
    """Return the column of a row that had another schema; NULL if the row had no such column."""
    old = find_field(field.name, before)
    if old is None:
        return F.lit(None).cast(field.dataType)
    value = row[old.name]
    return value if old.dataType == field.dataType else value.try_cast(field.dataType)


def describe_misfit(field: T.StructField, before: T.StructType, row: Column) -> Column | None:
    """Return why a value cannot be converted; NULL if it can. Return None for a column that needs no conversion."""
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
    """Return the value of `REFUSED` for this reason; NULL if the reason is empty."""
    refusal = F.struct(F.lit("PARSE").alias("code"), why.alias("message"), raw.alias("raw"))
    return F.when(why != "", refusal)


def parse_columns(columns: str) -> T.StructType:
    """Return the schema of columns such as `DLQ_COLUMNS`, without Spark."""
    kinds: Mapping[str, T.DataType] = {
        "string": T.StringType(),
        "bigint": T.LongType(),
        "timestamp": T.TimestampType(),
        "array<string>": T.ArrayType(T.StringType()),
    }
    named = [column.split(" ", 1) for column in columns.split(", ")]
    return T.StructType([T.StructField(name, kinds[kind]) for name, kind in named])


def _is_plain(kind: T.DataType) -> bool:
    """Return whether values of this type are the same after a round trip through JSON."""
    return not any(isinstance(inner, T.StringType | T.MapType) for _, inner in walk_types(kind))


def _encode_value(value: str, kind: T.DataType, depth: int = 0) -> str:
    if isinstance(kind, T.StringType):
        as_bytes = f"concat({_NUL}, base64(cast({value} as binary)))"
        return f"coalesce(if(startswith({value}, {_NUL}), NULL, try_validate_utf8({value})), {as_bytes})"
    if isinstance(kind, T.MapType):
        entries = _encode_value(f"map_entries({value})", _get_entry_type(kind), depth)
        return f"map_from_entries({entries})" if isinstance(kind.keyType, T.StringType) else entries
    return _code_parts(value, kind, _encode_value, depth)


def _decode_value(value: str, kind: T.DataType, depth: int) -> str:
    if isinstance(kind, T.StringType):
        return f"if(startswith({value}, {_NUL}), cast(unbase64(substring({value}, 2)) as string), {value})"
    if isinstance(kind, T.MapType):
        entries = f"map_entries({value})" if isinstance(kind.keyType, T.StringType) else value
        return f"map_from_entries({_decode_value(entries, _get_entry_type(kind), depth)})"
    return _code_parts(value, kind, _decode_value, depth)


def _get_encoded_type(kind: T.DataType) -> T.DataType:
    """Return the type of a value in the JSON text."""
    if isinstance(kind, T.StructType):
        return T.StructType([T.StructField(field.name, _get_encoded_type(field.dataType)) for field in kind])
    if isinstance(kind, T.ArrayType):
        return T.ArrayType(_get_encoded_type(kind.elementType))
    if isinstance(kind, T.MapType) and isinstance(kind.keyType, T.StringType):
        return T.MapType(kind.keyType, _get_encoded_type(kind.valueType))
    return _get_encoded_type(_get_entry_type(kind)) if isinstance(kind, T.MapType) else kind


def _get_entry_type(kind: T.MapType) -> T.ArrayType:
    return T.ArrayType(T.StructType([T.StructField("key", kind.keyType), T.StructField("value", kind.valueType)]))


def _code_parts(value: str, kind: T.DataType, coder: Coder, depth: int) -> str:
    """Return the value with each of its parts coded; the value itself if JSON can represent it unchanged."""
    if _is_plain(kind):
        return value
    if isinstance(kind, T.ArrayType):
        return f"transform({value}, {_EACH}{depth} -> {coder(f'{_EACH}{depth}', kind.elementType, depth + 1)})"
    assert isinstance(kind, T.StructType)
    fields = [
        f"{quote_text(field.name)}, {coder(part, field.dataType, depth)}"
        for part, field in zip(_list_fields(value, kind), kind, strict=True)
    ]
    return f"if({value} is null, null, named_struct({', '.join(fields)}))"


def _list_fields(value: str, kind: T.StructType) -> list[str]:
    """Return the fields of a struct, by position if two names differ only in upper and lower case."""
    if len({name.lower() for name in kind.names}) == len(kind):
        return [f"{value}[{quote_text(name)}]" for name in kind.names]
    numbered = T.StructType([T.StructField(f"_{i}", field.dataType) for i, field in enumerate(kind)])
    return [f"cast({value} as {get_sql_type(numbered)})['{name}']" for name in numbered.names]
