"""Values that are messages in Protobuf.

This code also runs in Spark's Python workers, and is sent there by value. So it uses nothing else of Wherry.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from typing import TYPE_CHECKING, Any

from origins.kafka.formats import (
    BROKEN,
    Coding,
    Fields,
    Fit,
    Micros,
    NoColumns,
    Unreadable,
    cut_error,
    make_list,
    make_map,
    make_struct,
    show_value,
    to_moment,
)

if TYPE_CHECKING:
    from google.protobuf.descriptor import Descriptor, FieldDescriptor
    from google.protobuf.message import Message


@dataclass(frozen=True, kw_only=True)
class ProtobufCoding(Coding):
    """Values that are messages of one type in Protobuf."""

    descriptors: bytes = field(repr=False)
    """A `FileDescriptorSet` with all imports."""
    message: str

    def open(self) -> Callable[[bytes], Fields]:
        from google.protobuf import message_factory
        from google.protobuf.message import DecodeError

        kind = self._find_type()
        made, read = message_factory.GetMessageClass(kind), _make_message_reader(kind, {})

        def decode(value: bytes) -> Fields:
            try:
                message = made.FromString(value)
                if not message.IsInitialized():
                    raise ValueError("a required field is missing")
                found: Fields = read(message)
            except (DecodeError, *BROKEN) as error:
                raise Unreadable(f"the value is not a {self.message} in Protobuf") from error
            return found

        return decode

    def open_writer(self) -> Callable[[Fields], bytes]:
        from google.protobuf import message_factory
        from google.protobuf.message import EncodeError

        kind = message_factory.GetMessageClass(self._find_type())

        def encode(fields: Fields) -> bytes:
            message = kind()
            try:
                _write_message(message, fields)
                return bytes(message.SerializeToString(deterministic=True))
            except (EncodeError, *BROKEN) as error:
                raise Unreadable(f"the row does not fit the message {self.message}: {cut_error(error)}") from error

        return encode

    def list_columns(self) -> Mapping[str, Any]:
        return _find_message_type(self._find_type(), ())

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
    return make_struct(
        (each.name, _find_field_type(each, within), _has_label(each, "required")) for each in message.fields
    )


def _find_field_type(of: FieldDescriptor, inside: tuple[str, ...]) -> Any:
    from google.protobuf.descriptor_pb2 import FieldDescriptorProto

    kind = of.message_type
    if kind is None:
        found: Any = _PROTOBUF[FieldDescriptorProto.Type.Name(of.type).removeprefix("TYPE_").lower()]
    elif kind.GetOptions().map_entry:
        key, value = (_find_field_type(kind.fields_by_name[name], inside) for name in ("key", "value"))
        return make_map(key, value)
    elif kind.full_name == _TIMESTAMP:
        found = "timestamp"
    elif kind.full_name in _WRAPPERS:
        found = _find_field_type(kind.fields_by_name["value"], inside)
    else:
        found = _find_message_type(kind, inside)
    return make_list(found) if _has_label(of, "repeated") else found


def _has_label(of: FieldDescriptor, label: str) -> bool:
    """Return whether a field is `repeated` or `required`. Before protobuf 6, fields have a number for that."""
    known = getattr(of, f"is_{label}", None)
    return bool(of.label == getattr(of, f"LABEL_{label.upper()}") if known is None else known)


def _make_message_reader(message: Descriptor, known: dict[str, Fit]) -> Fit:
    """Return a function that returns the fields of a message, with None for an optional field that is missing.

    `known` has the functions for messages that were made before, because a message may contain itself.
    """
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
    if _has_label(of, "repeated"):
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
        return _read_timestamp
    if of.message_type.full_name in _WRAPPERS:
        return lambda value: value.value
    return _make_message_reader(of.message_type, known)


def _read_timestamp(value: Any) -> Micros:
    if not 0 <= value.nanos < 1_000_000_000:
        raise ValueError(f"a timestamp has {value.nanos} nanoseconds")
    return Micros(value.seconds * 1_000_000 + value.nanos // 1_000)


def _write_message(message: Message, fields: Fields) -> None:
    """Set these fields. Raise ValueError for a field that the message does not have, or whose value does not fit."""
    known = message.DESCRIPTOR.fields_by_name
    for name, value in fields.items():
        if name not in known:
            raise ValueError(f"the message {message.DESCRIPTOR.full_name} has no field {name}")
        if value is None:
            continue
        one = known[name].containing_oneof
        other = message.WhichOneof(one.name) if one is not None else None
        if other is not None:
            raise ValueError(f"{name}: only one of {other} and {name} can have a value")
        try:
            _write_field(message, known[name], value)
        except BROKEN as error:
            raise ValueError(f"{name}: {error}") from error


def _write_field(message: Message, of: FieldDescriptor, value: Any) -> None:
    there, kind = getattr(message, of.name), of.message_type
    if kind is not None and kind.GetOptions().map_entry:
        inner = kind.fields_by_name["value"]
        for key, each in value.items():
            name = _write_scalar(kind.fields_by_name["key"], key)
            if inner.message_type is not None:
                _write_part(there[name], each)
            else:
                there[name] = _write_scalar(inner, each)
    elif _has_label(of, "repeated"):
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
    if value is None:
        raise ValueError(_NO_NULL)
    if name == _TIMESTAMP:
        moment = to_moment(value)
        _write_message(message, {"seconds": moment // 1_000_000, "nanos": moment % 1_000_000 * 1_000})
    elif name in _WRAPPERS:
        _write_message(message, {"value": value})
    else:
        _write_message(message, value)


def _write_scalar(of: FieldDescriptor, value: Any) -> Any:
    if value is None:
        raise ValueError(_NO_NULL)
    if of.enum_type is not None and isinstance(value, str):
        if value in of.enum_type.values_by_name:
            return of.enum_type.values_by_name[value].number
        if not value.isdecimal():
            raise ValueError(f"{show_value(value)} is no name of the enum {of.enum_type.name}")
        return int(value)
    return int(value) if isinstance(value, Decimal) else value


_NO_NULL = "an array and a map cannot hold NULL"
