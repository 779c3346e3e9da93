"""Messages in Avro and Protobuf: bytes become fields, and fields become columns; and the way back.

This runs in Spark's Python workers too, and is sent there by value. So it uses nothing else of Wherry.
"""

from __future__ import annotations

import datetime
import io
import json
import struct
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Context, Decimal, Inexact, InvalidOperation
from typing import TYPE_CHECKING, Any, TypeAlias

if TYPE_CHECKING:
    import pyarrow as pa
    from google.protobuf.descriptor import Descriptor, FieldDescriptor
    from google.protobuf.message import Message

Fields: TypeAlias = "Mapping[str, Any]"
Fit: TypeAlias = "Callable[[Any], Any]"
MISSING = "the message has no value"
_MAGIC = 0
_HEADER, _SIZE = ">BI", 5
"""How Confluent's header is packed, and its size."""
_BROKEN = (
    ValueError, ArithmeticError, LookupError, TypeError, EOFError, AttributeError, RecursionError, MemoryError,
    struct.error,
)  # fmt: skip
"""What readers raise at bytes that are no value."""
_SHOWN, _LONGEST = 80, 300
_EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.timezone.utc)
_DAY = _EPOCH.date()
_MICROSECOND = datetime.timedelta(microseconds=1)


class Unreadable(ValueError):
    """A value is none of its format, or does not fit its columns."""


class NoColumns(ValueError):
    """A schema has something that no column can have."""


class Micros(int):
    """A moment, in microseconds since 1970."""


@dataclass(frozen=True, kw_only=True)
class AvroCoding:
    """Values in Avro: records of one schema, or each with the id of its schema in Confluent's header."""

    schemas: Mapping[int, Sequence[str]] = field(hash=False)
    """By id; each behind the schemas that it refers to. Without a header there is one, under 0."""
    header: bool

    def open(self) -> Callable[[bytes], Fields]:
        """A function that reads a value. It raises `Unreadable`."""
        import fastavro

        parsed = {number: _parse_avro(texts)[0] for number, texts in self.schemas.items()}

        def decode(value: bytes) -> Fields:
            number, body = self._split(value) if self.header else (0, value)
            if number not in parsed:
                raise Unreadable(f"the registry had no schema with id {number} when the batch was planned")
            of = f"schema {number}" if self.header else "its schema"
            stream = io.BytesIO(body)
            try:
                found = fastavro.schemaless_reader(stream, parsed[number], None)
            except _BROKEN as error:
                raise Unreadable(f"the value is not Avro of {of} ({type(error).__name__})") from error
            if left := len(body) - stream.tell():
                raise Unreadable(f"more stands behind the value of {of} (bytes: {left})")
            if not isinstance(found, dict):
                raise Unreadable(f"expected a record of {of}, got {_show(found)}")
            return found

        return decode

    def open_writer(self) -> Callable[[Fields], bytes]:
        """A function that writes a value with the last of the schemas. It raises `Unreadable` where the fields do not
        fit it."""
        import fastavro
        from fastavro.validation import ValidationError, validate

        number = list(self.schemas)[-1]
        schema, _ = _parse_avro(self.schemas[number])
        header = struct.pack(_HEADER, _MAGIC, number) if self.header else b""

        def encode(fields: Fields) -> bytes:
            stream, value = io.BytesIO(header), dict(fields)
            stream.seek(len(header))
            try:
                validate(value, schema)  # the writer does not look at how large an int is
                fastavro.schemaless_writer(stream, schema, value, strict_allow_default=True)
            except (ValidationError, *_BROKEN) as error:
                raise Unreadable(f"the row does not fit the Avro schema: {_cut(error)}") from error
            return stream.getvalue()

        return encode

    def list_columns(self) -> Mapping[str, Any]:
        """The columns of the last of its schemas, as Spark's JSON. Raises `NoColumns`."""
        schema, named = _parse_avro(self.schemas[list(self.schemas)[-1]])
        columns = _find_avro_type(schema, named, ())
        if not isinstance(columns, dict) or columns["type"] != "struct":
            raise NoColumns("expected a record, got another type")
        return columns

    def list_optional(self) -> Sequence[str]:
        """The fields of the last of its schemas that a row may lack."""
        schema, _ = _parse_avro(self.schemas[list(self.schemas)[-1]])
        return [each["name"] for each in schema["fields"] if "default" in each]

    @staticmethod
    def _split(value: bytes) -> tuple[int, bytes]:
        """The id of the schema, and the value behind the header."""
        if len(value) < _SIZE:
            raise Unreadable(f"expected Confluent's header of {_SIZE} bytes, got {len(value)} bytes in all")
        magic, number = struct.unpack_from(_HEADER, value)
        if magic != _MAGIC:
            raise Unreadable(f"expected the magic byte 0, got {magic}")
        return number, value[_SIZE:]


@dataclass(frozen=True, kw_only=True)
class ProtobufCoding:
    """Values that are messages of one type in Protobuf."""

    descriptors: bytes = field(repr=False)
    """A `FileDescriptorSet`, with all that is imported."""
    message: str

    def open(self) -> Callable[[bytes], Fields]:
        """A function that reads a value. It raises `Unreadable`."""
        from google.protobuf import message_factory
        from google.protobuf.message import DecodeError

        kind = self._find_type()
        made, read = message_factory.GetMessageClass(kind), _make_message_reader(kind, {})

        def decode(value: bytes) -> Fields:
            try:
                found: Fields = read(made.FromString(value))
            except (DecodeError, *_BROKEN) as error:
                raise Unreadable(f"the value is not a {self.message} in Protobuf") from error
            return found

        return decode

    def open_writer(self) -> Callable[[Fields], bytes]:
        """A function that writes a message. It raises `Unreadable` where the fields do not fit it."""
        from google.protobuf import message_factory

        kind = message_factory.GetMessageClass(self._find_type())

        def encode(fields: Fields) -> bytes:
            message = kind()
            try:
                _write_message(message, fields)
                return bytes(message.SerializeToString(deterministic=True))
            except _BROKEN as error:
                raise Unreadable(f"the row does not fit the message {self.message}: {_cut(error)}") from error

        return encode

    def list_columns(self) -> Mapping[str, Any]:
        """The columns of the message, as Spark's JSON. Raises `NoColumns`."""
        return _find_message_type(self._find_type(), ())

    def list_optional(self) -> Sequence[str]:
        """All its fields: a message may lack each of them."""
        return [each.name for each in self._find_type().fields]

    def _find_type(self) -> Descriptor:
        from google.protobuf import descriptor_pb2, descriptor_pool
        from google.protobuf.message import DecodeError

        pool = descriptor_pool.DescriptorPool()
        try:
            files = descriptor_pb2.FileDescriptorSet.FromString(self.descriptors).file
            for each in files:
                pool.Add(each)
            return pool.FindMessageTypeByName(self.message)
        except (DecodeError, TypeError) as error:
            raise NoColumns(
                "expected descriptors from `protoc --include_imports --descriptor_set_out=FILE`, got other bytes, or "
                "some without their imports"
            ) from error
        except KeyError as error:
            own = [file for file in files if not file.package.startswith("google.")]
            known = sorted(f"{file.package}.{each.name}".strip(".") for file in own for each in file.message_type)
            raise NoColumns(f"expected one of the messages {', '.join(known)}, got {self.message}") from error


Coding: TypeAlias = "AvroCoding | ProtobufCoding"


def decode_values(
    coding: Coding, values: Sequence[bytes | None], kinds: pa.Schema
) -> tuple[list[list[Any]], list[str | None]]:
    """For each column its values, as `pyarrow.array` takes them; and for each message why it is refused, or None.

    Fields that have no column are left out. Columns without a field are NULL.
    """
    decode = coding.open()
    fits = [(each.name, make_fit(each.type, each.name)) for each in kinds]
    columns: list[list[Any]] = [[] for _ in fits]
    whys: list[str | None] = []
    for value in values:
        why, row = None, [None] * len(fits)
        try:
            if value is None:
                raise Unreadable(MISSING)
            found = decode(value)
            row = [fit(found.get(name)) for name, fit in fits]
        except Unreadable as error:
            why = str(error)
        whys.append(why)
        for column, each in zip(columns, row, strict=True):
            column.append(each)
    return columns, whys


@dataclass(frozen=True, kw_only=True)
class BatchDecoder:
    """Puts the decoded columns of messages beside those that came, and why a message is refused."""

    coding: Coding
    kinds: pa.Schema
    names: Sequence[str]
    """What the decoded columns are called."""
    why: str

    def decode(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """For `mapInArrow`."""
        import pyarrow as pa

        for batch in batches:
            columns, whys = decode_values(self.coding, batch.column("value").to_pylist(), self.kinds)
            decoded = [pa.array(each, of.type) for each, of in zip(columns, self.kinds, strict=True)]
            arrays = [*batch.columns, *decoded, pa.array(whys, pa.string())]
            yield pa.RecordBatch.from_arrays(arrays, names=[*batch.schema.names, *self.names, self.why])


@dataclass(kw_only=True)
class RowEncoder:
    """Gives the value of a message for a row, or why it has none: a function for Spark's workers."""

    coding: Coding
    schema: str
    """The columns of the row, as Spark's JSON."""
    _write: Callable[[Any], bytes] | None = None
    """Is made where the first row is."""

    def __call__(self, row: Any) -> tuple[bytes | None, str | None]:
        if row is None:
            return None, None
        if self._write is None:
            self._write = self._open()
        try:
            return self._write(row), None
        except Unreadable as error:
            return None, str(error)

    def _open(self) -> Callable[[Any], bytes]:
        from pyspark.sql.types import StructType

        plain, write = _make_plain(StructType.fromJson(json.loads(self.schema))), self.coding.open_writer()
        return lambda row: write(plain(row))


def _make_plain(kind: Any) -> Fit:
    """A function that gives a value of Spark's as writers take it: records as dictionaries, moments with UTC."""
    name = kind.typeName()
    if name == "struct":
        fields = [(each.name, _make_plain(each.dataType)) for each in kind.fields]
        return _unless_null(lambda row: {field: fit(row[field]) for field, fit in fields})
    if name == "array":
        element = _make_plain(kind.elementType)
        return _unless_null(lambda values: [element(each) for each in values])
    if name == "map":
        of = _make_plain(kind.valueType)
        return _unless_null(lambda entries: {key: of(each) for key, each in entries.items()})
    if name == "timestamp":
        return _unless_null(lambda moment: moment.astimezone(datetime.timezone.utc))
    if name == "binary":
        return _unless_null(bytes)
    return lambda value: value


def _unless_null(fit: Fit) -> Fit:
    return lambda value: None if value is None else fit(value)


def list_misfits(given: Any, wanted: Any, path: str = "") -> Iterator[str]:
    """Why values of one type cannot be written as another one; both as Spark's JSON has them. A phrase each."""
    kinds = [each["type"] if isinstance(each, Mapping) else each for each in (given, wanted)]
    if kinds == ["struct", "struct"]:
        there = {each["name"]: each["type"] for each in wanted["fields"]}
        for each in given["fields"]:
            inner = f"{path}.{each['name']}".strip(".")
            if each["name"] not in there:
                yield f"the schema has no field {inner}; drop the column"
            else:
                yield from list_misfits(each["type"], there[each["name"]], inner)
    elif kinds == ["array", "array"]:
        yield from list_misfits(given["elementType"], wanted["elementType"], f"{path}[]")
    elif kinds == ["map", "map"]:
        yield from list_misfits(given["keyType"], wanted["keyType"], f"{path} (key)")
        yield from list_misfits(given["valueType"], wanted["valueType"], f"{path} (value)")
    elif kinds[0] != kinds[1] and not _is_narrower(*map(str, kinds)):
        yield f"{path} is {kinds[0]}, and {kinds[1]} in the schema; change it with `cast`"


_WHOLE = ("byte", "short", "integer", "long")


def _is_narrower(given: str, wanted: str) -> bool:
    """Whether a value of one type may be one of the other; each value is looked at when it is written."""
    if wanted in ("integer", "long"):
        return given in _WHOLE
    if wanted.startswith("decimal"):
        return given in _WHOLE or given.startswith("decimal")
    return given == "float" and wanted == "double"


def _cut(error: Exception) -> str:
    """What an error says, in a line of some length."""
    text = " ".join(str(error).split())
    return text if len(text) <= _LONGEST else text[: _LONGEST - 1] + "…"


def make_fit(kind: pa.DataType, path: str) -> Fit:
    """A function that gives a field's value as one of this type. It raises `Unreadable`, and this raises `NoColumns`
    for a type that no field can have."""
    from pyarrow import types

    if types.is_struct(kind):
        inner = {each.name: make_fit(each.type, f"{path}.{each.name}") for each in kind}
        return _make_nested(
            path, "struct", Mapping, lambda value: {name: fit(value.get(name)) for name, fit in inner.items()}
        )
    if types.is_map(kind):
        key, item = make_fit(kind.key_type, f"{path}.key"), make_fit(kind.item_type, f"{path}.value")
        return _make_nested(path, "map", Mapping, lambda value: [(key(k), item(v)) for k, v in value.items()])
    if types.is_list(kind):
        element = make_fit(kind.value_type, f"{path}.element")
        return _make_nested(path, "array", list | tuple, lambda value: [element(each) for each in value])
    name, convert = _find_leaf(kind, path)

    def fit(value: Any) -> Any:
        if value is None:
            return None
        try:
            return convert(value)
        except (ValueError, ArithmeticError) as error:
            article = "an" if name[0] in "aeiou" else "a"
            raise Unreadable(f"column {path}: {_show(value)} is not {article} {name}") from error

    return fit


def _make_nested(path: str, name: str, of: Any, convert: Fit) -> Fit:
    def fit(value: Any) -> Any:
        if value is None:
            return None
        if not isinstance(value, of):
            raise Unreadable(f"column {path}: {_show(value)} is not {'an' if name == 'array' else 'a'} {name}")
        return convert(value)

    return fit


def _find_leaf(kind: pa.DataType, path: str) -> tuple[str, Fit]:
    """The name of a type without parts, and what gives a value of it or raises ValueError."""
    from pyarrow import types

    if types.is_signed_integer(kind):
        bits = kind.bit_width
        name = {8: "tinyint", 16: "smallint", 32: "int", 64: "bigint"}[bits]
        return name, lambda value: to_whole(value, bits)
    if types.is_floating(kind):
        return ("float", _to_single) if kind.bit_width == 32 else ("double", _to_float)
    if types.is_decimal(kind):
        precision, scale = kind.precision, kind.scale
        return f"decimal({precision},{scale})", lambda value: _to_decimal(value, precision, scale)
    if types.is_timestamp(kind):
        return ("timestamp", _to_moment) if kind.tz else ("timestamp_ntz", _to_local_moment)
    plain: Mapping[str, tuple[str, Fit]] = {
        "bool": ("boolean", _require(bool)),
        "string": ("string", _to_text),
        "binary": ("binary", _require(bytes)),
        "date32[day]": ("date", _to_day),
    }
    if str(kind) not in plain:
        raise NoColumns(f"column {path}: no field can have the type {kind}")
    return plain[str(kind)]


def _require(kind: type) -> Fit:
    def convert(value: Any) -> Any:
        if type(value) is not kind:
            raise ValueError
        return value

    return convert


def to_whole(value: Any, bits: int) -> int:
    """The value as a whole number of so many bits, and a time of day by its parts of a second. Raises ValueError."""
    if isinstance(value, datetime.time):
        moment = datetime.timedelta(
            hours=value.hour, minutes=value.minute, seconds=value.second, microseconds=value.microsecond
        )
        return moment // (_MICROSECOND if bits == 64 else _MICROSECOND * 1_000)
    if type(value) is not int or not -(1 << bits - 1) <= value < 1 << bits - 1:
        raise ValueError
    return value


def _to_float(value: Any) -> float:
    if type(value) not in (int, float):
        raise ValueError
    return float(value)


def _to_single(value: Any) -> float:
    return float(struct.unpack("<f", struct.pack("<f", _to_float(value)))[0])


def _to_decimal(value: Any, precision: int, scale: int) -> Decimal:
    if type(value) not in (int, Decimal):
        raise ValueError
    context = Context(prec=precision, traps=[Inexact, InvalidOperation])
    return context.quantize(Decimal(value), Decimal(1).scaleb(-scale, context))


def _to_text(value: Any) -> str:
    if not isinstance(value, str | uuid.UUID):
        raise ValueError
    text = str(value)
    text.encode()
    return text


def _to_day(value: Any) -> int:
    if not isinstance(value, datetime.date) or isinstance(value, datetime.datetime):
        raise ValueError
    return (value - _DAY).days


def _to_moment(value: Any) -> int:
    if isinstance(value, Micros):
        return int(value)
    if not isinstance(value, datetime.datetime) or value.tzinfo is None:
        raise ValueError
    return (value - _EPOCH) // _MICROSECOND


def _to_local_moment(value: Any) -> int:
    if not isinstance(value, datetime.datetime) or value.tzinfo is not None:
        raise ValueError
    return (value - _EPOCH.replace(tzinfo=None)) // _MICROSECOND


def _show(value: Any) -> str:
    text = (value if isinstance(value, str) else repr(value)).encode("utf-8", "backslashreplace").decode()
    return f"'{text[:_SHOWN]}…'" if len(text) > _SHOWN else f"'{text}'"


def _parse_avro(texts: Sequence[str]) -> tuple[Any, Mapping[str, Any]]:
    """The last of these schemas, which may refer to those before it; and all that have names. Raises `NoColumns`."""
    import fastavro
    from fastavro.schema import SchemaParseException

    named: dict[str, Any] = {}
    parsed = None
    try:
        for text in texts:
            parsed = fastavro.parse_schema(json.loads(text), named_schemas=named)
    except (SchemaParseException, *_BROKEN) as error:
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
    """The type of Spark's that values of this schema have, as JSON. `inside` are the records that it stands in."""
    if isinstance(schema, list):
        kinds = [each for each in schema if each != "null"]
        found = [_find_avro_type(each, named, inside) for each in kinds]
        if found and all(each in ("integer", "long") for each in found):
            return max(found, key=("integer", "long").index)
        if len(found) != 1:
            raise NoColumns(f"a union of {len(found)} types has no type of a column")
        return found[0]
    if isinstance(schema, str):
        return _AVRO[schema] if schema in _AVRO else _find_avro_type(named[schema], named, inside)
    kind, logical = schema["type"], schema.get("logicalType")
    if not isinstance(kind, str):
        return _find_avro_type(kind, named, inside)
    if logical == "decimal" and kind in ("bytes", "fixed"):
        return f"decimal({schema['precision']},{schema.get('scale', 0)})"
    if kind == "record":
        name = schema["name"]
        if name in inside:
            raise NoColumns(f"the record {name} holds itself")
        fields = [(each["name"], _find_avro_type(each["type"], named, (*inside, name))) for each in schema["fields"]]
        return _make_struct(fields)
    if kind == "array":
        return _make_list(_find_avro_type(schema["items"], named, inside))
    if kind == "map":
        return _make_map("string", _find_avro_type(schema["values"], named, inside))
    return _LOGICAL.get((kind, logical), _AVRO[kind]) if kind in _AVRO else _find_avro_type(kind, named, inside)


def _make_struct(fields: Sequence[tuple[str, Any]]) -> dict[str, Any]:
    made = [{"name": name, "type": kind, "nullable": True, "metadata": {}} for name, kind in fields]
    return {"type": "struct", "fields": made}


def _make_list(element: Any) -> dict[str, Any]:
    return {"type": "array", "elementType": element, "containsNull": True}


def _make_map(key: Any, value: Any) -> dict[str, Any]:
    return {"type": "map", "keyType": key, "valueType": value, "valueContainsNull": True}


_PROTOBUF = {
    "bool": "boolean", "int32": "integer", "sint32": "integer", "sfixed32": "integer", "uint32": "long",
    "fixed32": "long", "int64": "long", "sint64": "long", "sfixed64": "long", "uint64": "decimal(20,0)",
    "fixed64": "decimal(20,0)", "float": "float", "double": "double", "string": "string", "bytes": "binary",
    "enum": "string",
}  # fmt: skip
_TIMESTAMP = "google.protobuf.Timestamp"
_WRAPPERS = frozenset(
    f"google.protobuf.{name}Value"
    for name in ("Double", "Float", "Int64", "UInt64", "Int32", "UInt32", "Bool", "String", "Bytes")
)


def _find_message_type(message: Descriptor, inside: tuple[str, ...]) -> dict[str, Any]:
    if message.full_name in inside:
        raise NoColumns(f"the message {message.full_name} holds itself")
    within = (*inside, message.full_name)
    return _make_struct([(each.name, _find_field_type(each, within)) for each in message.fields])


def _find_field_type(of: FieldDescriptor, inside: tuple[str, ...]) -> Any:
    kind = of.message_type
    if kind is None:
        found: Any = _PROTOBUF[_get_kind(of)]
    elif kind.GetOptions().map_entry:
        key, value = (_find_field_type(kind.fields_by_name[name], inside) for name in ("key", "value"))
        return _make_map(key, value)
    elif kind.full_name == _TIMESTAMP:
        found = "timestamp"
    elif kind.full_name in _WRAPPERS:
        found = _find_field_type(kind.fields_by_name["value"], inside)
    else:
        found = _find_message_type(kind, inside)
    return _make_list(found) if of.is_repeated else found


def _get_kind(of: FieldDescriptor) -> str:
    """How a `.proto` file calls the type of a field."""
    from google.protobuf.descriptor import FieldDescriptor

    known = vars(FieldDescriptor)
    return str(next(name[5:].lower() for name in known if name.startswith("TYPE_") and getattr(of, name) == of.type))


def _make_message_reader(message: Descriptor, known: dict[str, Fit]) -> Fit:
    """A function that gives the fields of a message; None where one that may be missing is. `known` has the functions
    of messages that are made already: a message may hold itself."""
    name = message.full_name
    if name not in known:
        readers: list[tuple[str, Fit]] = []
        known[name] = lambda each: {field: read(each) for field, read in readers}
        readers += [(of.name, _make_field_reader(of, known)) for of in message.fields]
    return known[name]


def _make_field_reader(of: FieldDescriptor, known: dict[str, Fit]) -> Fit:
    name, kind = of.name, of.message_type
    if kind is not None and kind.GetOptions().map_entry:
        item = _make_value_reader(kind.fields_by_name["value"], known)

        def read_map(message: Any) -> Any:
            value = getattr(message, name)
            return {key: item(value[key]) for key in value}

        return read_map
    convert = _make_value_reader(of, known)
    if of.is_repeated:
        return lambda message: [convert(each) for each in getattr(message, name)]
    if of.has_presence:
        return lambda message: convert(getattr(message, name)) if message.HasField(name) else None
    return lambda message: convert(getattr(message, name))


def _make_value_reader(of: FieldDescriptor, known: dict[str, Fit]) -> Fit:
    if of.enum_type is not None:
        names = {number: each.name for number, each in of.enum_type.values_by_number.items()}
        return lambda value: names.get(value, str(value))
    if of.message_type is None:
        return lambda value: value
    if of.message_type.full_name == _TIMESTAMP:
        return lambda value: Micros(value.seconds * 1_000_000 + value.nanos // 1_000)
    if of.message_type.full_name in _WRAPPERS:
        return lambda value: value.value
    return _make_message_reader(of.message_type, known)


def _write_message(message: Message, fields: Fields) -> None:
    """Set these fields. Raises ValueError for one that the message does not have."""
    known = message.DESCRIPTOR.fields_by_name
    for name, value in fields.items():
        if name not in known:
            raise ValueError(f"the message {message.DESCRIPTOR.full_name} has no field {name}")
        if value is not None:
            _write_field(message, known[name], value)


def _write_field(message: Message, of: FieldDescriptor, value: Any) -> None:
    there, kind = getattr(message, of.name), of.message_type
    if kind is not None and kind.GetOptions().map_entry:
        inner = kind.fields_by_name["value"]
        for key, each in value.items():
            if inner.message_type is not None:
                _write_part(there[key], each)
            else:
                there[key] = _write_scalar(inner, each)
    elif of.is_repeated:
        for each in value:
            if kind is not None:
                _write_part(there.add(), each)
            else:
                there.append(_write_scalar(of, each))
    elif kind is not None:
        there.SetInParent()
        _write_part(there, value)
    else:
        setattr(message, of.name, _write_scalar(of, value))


def _write_part(message: Message, value: Any) -> None:
    name = message.DESCRIPTOR.full_name
    if name == _TIMESTAMP:
        moment = _to_moment(value)
        _write_message(message, {"seconds": moment // 1_000_000, "nanos": moment % 1_000_000 * 1_000})
    elif name in _WRAPPERS:
        _write_message(message, {"value": value})
    else:
        _write_message(message, value)


def _write_scalar(of: FieldDescriptor, value: Any) -> Any:
    if of.enum_type is not None and isinstance(value, str):
        return of.enum_type.values_by_name[value].number if value in of.enum_type.values_by_name else int(value)
    return int(value) if isinstance(value, Decimal) else value
