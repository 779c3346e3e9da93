"""The messages of gRPC, made from the table of operations, and the `.proto` file that describes them to clients.

A field of a Struct has the number of its place, from 1. A field that may be null has presence, and so has a field of a
question whose default is not zero. A list or a map that may be null is in a message of its own. A field of the type
`Any` is a text of JSON, in which integers of any size are exact.
"""

from __future__ import annotations

import functools
import textwrap
from collections.abc import Iterator, Sequence
from typing import Any

import msgspec
from google.protobuf.descriptor_pb2 import DescriptorProto, FieldDescriptorProto, FileDescriptorProto
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message import DecodeError
from google.protobuf.message_factory import GetMessageClass
from google.protobuf.unknown_fields import UnknownFieldSet
from msgspec import inspect

from runners.definitions.kinds import read_docs
from runners.service.operation import ENCODER, Ask, Invalid, Operation, Reply
from runners.service.operations import OPERATIONS

PACKAGE = "wherry.v1"
SERVICE = f"{PACKAGE}.Wherry"
_SCALARS: dict[type, tuple[str, int]] = {
    inspect.StrType: ("string", FieldDescriptorProto.TYPE_STRING),
    inspect.LiteralType: ("string", FieldDescriptorProto.TYPE_STRING),
    inspect.AnyType: ("string", FieldDescriptorProto.TYPE_STRING),
    inspect.IntType: ("int64", FieldDescriptorProto.TYPE_INT64),
    inspect.FloatType: ("double", FieldDescriptorProto.TYPE_DOUBLE),
    inspect.BoolType: ("bool", FieldDescriptorProto.TYPE_BOOL),
}
"""The name and the number in protobuf of each type without parts."""
_ZERO = (None, msgspec.NODEFAULT, "", 0)
"""The defaults for which a message needs no presence. 0 is also 0.0 and false."""
_NAMES = {number: name for name, number in _SCALARS.values()}
_HEAD = """\
// The API of `wherry serve` over gRPC. Wherry makes this file from its table of operations.
//
// Send a token with each call, as metadata: `authorization: Bearer TOKEN`. A call that changes something also needs
// `idempotency-key`, such as a new UUID. A repeated call with the same key gets the first answer.
//
// The status of a refused call says why. The trailing metadata `problem` has the same as JSON, with a code and a hint.
"""


class Converter:
    """Turns the questions of one operation from protobuf to Structs, and its answers to protobuf."""

    def __init__(self, operation: Operation) -> None:
        self._ask, self._answer = operation.ask, operation.answer
        find = make_pool().FindMessageTypeByName
        self._question_class, self._answer_class = (
            GetMessageClass(find(f"{PACKAGE}.{kind.__name__}")) for kind in (self._ask, self._answer)
        )

    def read_question(self, data: bytes) -> Ask:
        """Return the question in these bytes. Raise `Invalid` if a value is wrong, or a field is not known."""
        try:
            message = self._question_class.FromString(data)
        except DecodeError as error:
            raise Invalid(f"The request is no message {self._ask.__name__}.") from error
        for unknown in UnknownFieldSet(message):
            raise Invalid(
                f"{self._ask.__name__} has no field with the number {unknown.field_number}.",
                hint="The file /wherry.proto of this server has the fields that it knows.",
            )
        try:
            return msgspec.convert(_unpack(_find_fields(self._ask), message), self._ask)
        except msgspec.ValidationError as error:
            raise Invalid(f"{error}.") from error

    def write_answer(self, answer: Reply | msgspec.Raw) -> bytes:
        """Return the bytes of an answer, which may be encoded as JSON already."""
        value = msgspec.json.decode(ENCODER.encode(answer))
        data: bytes = self._answer_class(**_pack(inspect.type_info(self._answer), value)).SerializeToString()
        return data


def _unpack(fields: Sequence[inspect.Field], message: Any) -> dict[str, Any]:
    """Return the fields of a question that were given, and those whose default is zero."""
    given = {}
    for field in fields:
        name = field.encode_name
        if message.DESCRIPTOR.fields_by_name[name].has_presence and not message.HasField(name):
            continue
        value = getattr(message, name)
        if isinstance(field.type, inspect.ListType):
            value = list(value)
        elif isinstance(field.type, inspect.DictType):
            value = dict(value)
        elif isinstance(field.type, inspect.AnyType):
            value = _read_json(value, name)
        given[name] = value
    return given


def _read_json(text: str, name: str) -> Any:
    try:
        return msgspec.json.decode(text) if text else None
    except (msgspec.DecodeError, RecursionError) as error:
        raise Invalid(f"{name}: expected a text of JSON. {error}.") from error


def _pack(kind: inspect.Type, value: Any) -> Any:
    """Return a value of JSON in the form that the constructor of a message takes."""
    if isinstance(kind, inspect.AnyType):
        return msgspec.json.encode(value).decode()
    if value is None:
        return None
    plain, nullable = _split(kind)
    if isinstance(plain, inspect.StructType):
        return {each.encode_name: _pack(each.type, value[each.encode_name]) for each in plain.fields}
    if isinstance(plain, inspect.ListType):
        packed: Any = [_pack(plain.item_type, each) for each in value]
    elif isinstance(plain, inspect.DictType):
        packed = {name: _pack(plain.value_type, each) for name, each in value.items()}
    else:
        return value
    return {"values": packed} if nullable else packed


@functools.cache
def make_pool() -> DescriptorPool:
    """Return the descriptions of all messages and of the service."""
    pool = DescriptorPool()
    pool.AddSerializedFile(make_file().SerializeToString())
    return pool


@functools.cache
def make_file() -> FileDescriptorProto:
    """Return the description of all messages and of the service."""
    file = FileDescriptorProto(name="wherry.proto", package=PACKAGE, syntax="proto3")
    service = file.service.add(name=SERVICE.rpartition(".")[2])
    for operation in OPERATIONS:
        service.method.add(
            name=operation.title,
            input_type=f".{PACKAGE}.{operation.ask.__name__}",
            output_type=f".{PACKAGE}.{operation.answer.__name__}",
            server_streaming=operation.streams or None,
        )
    for kind in _list_structs():
        asked = issubclass(kind, Ask)
        message = file.message_type.add(name=kind.__name__)
        for number, field in enumerate(_find_fields(kind), 1):
            presence = asked and (field.required or field.default not in _ZERO)
            _add_field(message, f".{PACKAGE}.{kind.__name__}", field.encode_name, number, field.type, presence=presence)
    return file


def _list_structs() -> Sequence[type[msgspec.Struct]]:
    """Return the types of all questions and answers, each before those of its fields."""
    found: dict[type[msgspec.Struct], None] = {}

    def add(kind: inspect.Type) -> None:
        plain, _ = _split(kind)
        if isinstance(plain, inspect.ListType):
            add(plain.item_type)
        elif isinstance(plain, inspect.DictType):
            add(plain.value_type)
        elif isinstance(plain, inspect.StructType) and plain.cls not in found:
            found[plain.cls] = None
            for field in plain.fields:
                add(field.type)

    for operation in OPERATIONS:
        add(inspect.type_info(operation.ask))
        add(inspect.type_info(operation.answer))
    return list(found)


def _find_fields(kind: type[msgspec.Struct]) -> Sequence[inspect.Field]:
    described = inspect.type_info(kind)
    assert isinstance(described, inspect.StructType)
    return described.fields


def _split(kind: inspect.Type) -> tuple[inspect.Type, bool]:
    """Return a type without null, and whether it has null."""
    if not isinstance(kind, inspect.UnionType):
        return kind, False
    (plain,) = (each for each in kind.types if not isinstance(each, inspect.NoneType))
    return plain, True


def _add_field(
    message: DescriptorProto, path: str, name: str, number: int, kind: inspect.Type, *, presence: bool = False
) -> None:
    """Add a field to the message with this path."""
    plain, nullable = _split(kind)
    field = message.field.add(name=name, number=number, label=FieldDescriptorProto.LABEL_OPTIONAL)
    parts = isinstance(plain, inspect.ListType | inspect.DictType)
    if parts and nullable:
        inner = message.nested_type.add(name=_capitalise(name))
        _add_field(inner, f"{path}.{inner.name}", "values", 1, plain)
        _set_message(field, f"{path}.{inner.name}")
    elif isinstance(plain, inspect.ListType):
        field.label = FieldDescriptorProto.LABEL_REPEATED
        _set_type(field, plain.item_type)
    elif isinstance(plain, inspect.DictType):
        field.label = FieldDescriptorProto.LABEL_REPEATED
        entry = message.nested_type.add(name=f"{_capitalise(name)}Entry")
        entry.options.map_entry = True
        _add_field(entry, "", "key", 1, plain.key_type)
        _add_field(entry, "", "value", 2, plain.value_type)
        _set_message(field, f"{path}.{entry.name}")
    else:
        _set_type(field, plain)
        if (nullable or presence) and field.type != FieldDescriptorProto.TYPE_MESSAGE:
            field.proto3_optional = True
            field.oneof_index = len(message.oneof_decl)
            message.oneof_decl.add(name=f"_{name}")


def _set_type(field: FieldDescriptorProto, kind: inspect.Type) -> None:
    if isinstance(kind, inspect.StructType):
        _set_message(field, f".{PACKAGE}.{kind.cls.__name__}")
    else:
        field.type = _SCALARS[type(kind)][1]


def _set_message(field: FieldDescriptorProto, path: str) -> None:
    field.type, field.type_name = FieldDescriptorProto.TYPE_MESSAGE, path


def _capitalise(name: str) -> str:
    return "".join(word.capitalize() for word in name.split("_"))


@functools.cache
def print_proto() -> str:
    """Return the text of the `.proto` file, from which clients in any language are made."""
    file = make_file()
    structs = {kind.__name__: kind for kind in _list_structs()}
    lines = [*_HEAD.splitlines(), "", 'syntax = "proto3";', "", f"package {PACKAGE};", ""]
    lines += [f"service {SERVICE.rpartition('.')[2]} {{"]
    for operation, method in zip(OPERATIONS, file.service[0].method, strict=True):
        right = f"Needs the right to {operation.right.name.lower()}."
        lines += _comment(f"{operation.summary} {right}", "  ")
        stream = "stream " if method.server_streaming else ""
        lines += [f"  rpc {method.name}({method.input_type[1:]}) returns ({stream}{method.output_type[1:]});"]
    lines += ["}"]
    for message in file.message_type:
        kind = structs[message.name]
        docs = read_docs(kind)
        lines += ["", *_comment(" ".join((kind.__doc__ or "").split()), ""), f"message {message.name} {{"]
        for described, field in zip(_find_fields(kind), message.field, strict=True):
            note = [docs.get(field.name, ""), *_describe_values(described, issubclass(kind, Ask))]
            lines += _print_field(message, field, "  ", " ".join(note).strip())
        lines += ["}"]
    return "\n".join(lines) + "\n"


def _describe_values(field: inspect.Field, asked: bool) -> Iterator[str]:
    """Yield sentences on the values that a field may have, and on its default."""
    if isinstance(field.type, inspect.AnyType):
        yield "A text of JSON."
    if isinstance(field.type, inspect.LiteralType):
        yield f"One of: {', '.join(str(each) for each in field.type.values if each)}."
    if asked and field.required:
        yield "Required."
    elif asked and field.default not in _ZERO:
        yield f"The default is {field.default}."


def _print_field(message: DescriptorProto, field: FieldDescriptorProto, indent: str, note: str = "") -> Iterator[str]:
    """Yield the lines of a field, behind those of the message that only this field has."""
    paths = {f".{message.name}.{each.name}": each for each in message.nested_type}
    inner = next((each for path, each in paths.items() if field.type_name.endswith(path)), None)
    if inner is not None and inner.options.map_entry:
        key, value = inner.field
        written = f"map<{_print_type(key)}, {_print_type(value)}>"
    else:
        written = _print_type(field)
        if inner is not None:
            yield f"{indent}message {inner.name} {{"
            for each in inner.field:
                yield from _print_field(inner, each, f"{indent}  ")
            yield f"{indent}}}"
            written = inner.name
        if field.label == FieldDescriptorProto.LABEL_REPEATED:
            written = f"repeated {written}"
        elif field.proto3_optional:
            written = f"optional {written}"
    yield from _comment(note, indent)
    yield f"{indent}{written} {field.name} = {field.number};"


def _print_type(field: FieldDescriptorProto) -> str:
    return _NAMES.get(field.type) or field.type_name.rpartition(".")[2]


def _comment(text: str, indent: str) -> Iterator[str]:
    return (f"{indent}// {line}" for line in textwrap.wrap(text, 117 - len(indent), break_long_words=False))
