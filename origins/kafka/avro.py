"""Values in Avro, with or without the id of their schema.

This code also runs in Spark's Python workers, and is sent there by value. So it uses nothing else of Wherry.
"""

from __future__ import annotations

import io
import json
import struct
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from origins.kafka.avro_reader import make_avro_reader
from origins.kafka.formats import (
    BROKEN,
    Coding,
    Fields,
    NoColumns,
    Unreadable,
    cut_error,
    make_list,
    make_map,
    make_struct,
    show_value,
)

_MOST_DIGITS = 38
"""The most digits of a decimal in Spark."""
_MAGIC = 0
_HEADER, _SIZE = ">BI", 5
"""The format of Confluent's header, and its size."""


@dataclass(frozen=True, kw_only=True)
class AvroCoding(Coding):
    """Values in Avro: records of one schema, or records with the id of their schema in Confluent's header."""

    schemas: Mapping[int, Sequence[str]] = field(hash=False)
    """The schemas by id, each after the schemas that it refers to. Without a header, the only id is 0."""
    header: bool

    def open(self) -> Callable[[bytes], Fields]:
        readers: dict[int, Callable[[bytes], Any] | str] = {}

        def decode(value: bytes) -> Fields:
            number, body = self._split(value) if self.header else (0, value)
            if number not in self.schemas:
                raise Unreadable(f"the registry had no schema with id {number} when the batch was planned")
            of = f"schema {number}" if self.header else "its schema"
            if number not in readers:
                readers[number] = self._open_reader(number)
            read = readers[number]
            if isinstance(read, str):
                raise Unreadable(f"{of} cannot be read: {read}")
            try:
                found = read(body)
            except BROKEN as error:
                raise Unreadable(f"the value is not Avro of {of}: {cut_error(error)}") from error
            if not isinstance(found, dict):
                raise Unreadable(f"expected a record of {of}, got {show_value(found)}")
            return found

        return decode

    def open_writer(self) -> Callable[[Fields], bytes]:
        """Return a function that writes a value with the last of the schemas."""
        import fastavro

        number = list(self.schemas)[-1]
        schema, _ = _parse_avro(self.schemas[number])
        has_uuid = any('"uuid"' in text for text in self.schemas[number])
        header = struct.pack(_HEADER, _MAGIC, number) if self.header else b""

        def encode(fields: Fields) -> bytes:
            stream, value = io.BytesIO(header), dict(fields)
            stream.seek(len(header))
            try:
                fastavro.validation.validate(value, schema)  # the writer does not check the size of an int
                fastavro.schemaless_writer(stream, schema, value, strict_allow_default=True)
                if has_uuid:  # the writer accepts any text as a UUID
                    stream.seek(len(header))
                    fastavro.schemaless_reader(stream, schema, None)
            except (fastavro.validation.ValidationError, *BROKEN) as error:
                raise Unreadable(f"the row does not fit the Avro schema: {cut_error(error)}") from error
            return stream.getvalue()

        return encode

    def list_columns(self) -> Mapping[str, Any]:
        """Return the columns of the last schema."""
        schema, named = _parse_avro(self.schemas[list(self.schemas)[-1]])
        columns = _find_avro_type(schema, named, ())
        if not isinstance(columns, dict) or columns["type"] != "struct":
            raise NoColumns("expected a record, got another type")
        return columns

    def _open_reader(self, number: int) -> Callable[[bytes], Any] | str:
        """Return a function that reads values of this schema, or why the schema cannot be read."""
        try:
            return make_avro_reader(*_parse_avro(self.schemas[number]))
        except BROKEN as error:
            return cut_error(error)

    @staticmethod
    def _split(value: bytes) -> tuple[int, bytes]:
        """Return the id of the schema, and the value after the header."""
        if len(value) < _SIZE:
            raise Unreadable(f"expected Confluent's header of {_SIZE} bytes, got {len(value)} bytes in all")
        magic, number = struct.unpack_from(_HEADER, value)
        if magic != _MAGIC:
            raise Unreadable(f"expected the magic byte 0, got {magic}")
        return number, value[_SIZE:]


def _parse_avro(texts: Sequence[str]) -> tuple[Any, Mapping[str, Any]]:
    """Return the last of these schemas, which may refer to the earlier ones, and all named schemas.

    Raise `NoColumns`.
    """
    import fastavro

    named: dict[str, Any] = {}
    parsed = None
    try:
        for text in texts:
            parsed = fastavro.parse_schema(json.loads(text), named_schemas=named)
    except (fastavro.schema.SchemaParseException, *BROKEN) as error:
        raise NoColumns(f"expected an Avro schema ({type(error).__name__}: {error})") from error
    return parsed, named


_AVRO = {
    "boolean": "boolean",
    "int": "integer",
    "long": "long",
    "float": "float",
    "double": "double",
    "bytes": "binary",
    "fixed": "binary",
    "string": "string",
    "enum": "string",
}
_LOGICAL = {
    ("int", "date"): "date",
    ("int", "time-millis"): "integer",
    ("long", "time-micros"): "long",
    ("long", "timestamp-millis"): "timestamp",
    ("long", "timestamp-micros"): "timestamp",
    ("long", "local-timestamp-millis"): "timestamp_ntz",
    ("long", "local-timestamp-micros"): "timestamp_ntz",
}


def _find_avro_type(schema: Any, named: Mapping[str, Any], inside: tuple[str, ...]) -> Any:
    """Return the Spark type of values of this schema, as JSON. `inside` are the records around it."""
    if isinstance(schema, list):
        kinds = [each for each in schema if each != "null"]
        found = [_find_avro_type(each, named, inside) for each in kinds]
        if found and all(each in ("integer", "long") for each in found):
            return max(found, key=("integer", "long").index)
        if len(found) != 1:
            raise NoColumns(f"a column cannot have a union of {len(found)} types")
        return found[0]
    if isinstance(schema, str):
        if schema == "null":
            raise NoColumns("a column cannot have the type null")
        return _AVRO[schema] if schema in _AVRO else _find_avro_type(named[schema], named, inside)
    kind, logical = schema["type"], schema.get("logicalType")
    if not isinstance(kind, str):
        return _find_avro_type(kind, named, inside)
    if logical == "decimal" and kind in ("bytes", "fixed"):
        precision = schema.get("precision")
        if precision is None or precision > _MOST_DIGITS:
            raise NoColumns(f"a column needs a decimal with a precision of 1 to {_MOST_DIGITS}, got {precision}")
        return f"decimal({precision},{schema.get('scale', 0)})"
    if kind == "record":
        name = schema["name"]
        if name in inside:
            raise NoColumns(f"the record {name} holds itself")
        return make_struct(
            (each["name"], _find_avro_type(each["type"], named, (*inside, name)), "default" not in each)
            for each in schema["fields"]
        )
    if kind == "array":
        return make_list(_find_avro_type(schema["items"], named, inside))
    if kind == "map":
        return make_map("string", _find_avro_type(schema["values"], named, inside))
    return _LOGICAL.get((kind, logical), _AVRO[kind]) if kind in _AVRO else _find_avro_type(kind, named, inside)
