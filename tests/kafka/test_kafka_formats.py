"""Avro, Protobuf and CSV become columns, and a value that does not fit is refused with a reason."""

from __future__ import annotations

import datetime as dt
import json
import os
import re
import subprocess
import sys
import uuid
from collections.abc import Mapping
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from google.protobuf import descriptor_pb2, wrappers_pb2
from pyspark import cloudpickle
from pyspark.sql import types as T

from destinations.kafka.kafka import Kafka as KafkaDestination
from origins.errors import OriginError
from origins.kafka.avro import AvroCoding
from origins.kafka.formats import (
    BatchDecoder,
    Coding,
    NoColumns,
    RowEncoder,
    Unreadable,
    decode_values,
    list_misfits,
    make_fit,
)
from origins.kafka.kafka import Kafka
from origins.kafka.protobuf import ProtobufCoding
from origins.kafka.rows import make_array, send_by_value
from origins.spark_versions import make_arrow_schema
from tests.kafka.registry import LATER, ORDER, describe_messages, encode_avro

UTC = dt.timezone.utc
EVERY = {
    "type": "record",
    "name": "Every",
    "fields": [
        {"name": "long", "type": ["null", "long"]},
        {"name": "wide", "type": ["int", "long", "null"]},
        {"name": "float", "type": "float"},
        {"name": "bytes", "type": "bytes"},
        {"name": "yes", "type": "boolean"},
        {"name": "state", "type": {"type": "enum", "name": "State", "symbols": ["NEW", "SENT"]}},
        {"name": "before", "type": "State"},
        {"name": "items", "type": {"type": "array", "items": ["null", "int"]}},
        {"name": "tags", "type": {"type": "map", "values": "string"}},
        {
            "name": "inner",
            "type": ["null", {"type": "record", "name": "Inner", "fields": [{"name": "x", "type": "int"}]}],
        },
        {"name": "day", "type": {"type": "int", "logicalType": "date"}},
        {"name": "clock", "type": {"type": "int", "logicalType": "time-millis"}},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-micros"}},
        {"name": "local", "type": {"type": "long", "logicalType": "local-timestamp-micros"}},
        {"name": "price", "type": {"type": "bytes", "logicalType": "decimal", "precision": 10, "scale": 2}},
        {"name": "id", "type": {"type": "string", "logicalType": "uuid"}},
    ],
}
ROW = {
    "long": None, "wide": 1 << 40, "float": 1.5, "bytes": b"\xff", "yes": True, "state": "SENT", "before": "NEW",
    "items": [1, None], "tags": {"k": "v"}, "inner": {"x": 1}, "day": dt.date(2026, 1, 1), "clock": dt.time(0, 0, 1),
    "at": dt.datetime(1900, 1, 1, tzinfo=UTC), "local": dt.datetime(2026, 1, 1), "price": Decimal("1.25"),
    "id": uuid.UUID(int=5),
}  # fmt: skip
AS_READ = {**ROW, "clock": 1000, "tags": [("k", "v")], "id": "00000000-0000-0000-0000-000000000005"}
MESSAGES = ProtobufCoding(descriptors=describe_messages(), message="shop.Order")
ORDERS = AvroCoding(schemas={0: (json.dumps(ORDER),)}, header=False)


def read_value(coding: Coding, value: bytes | None, **columns: pa.DataType) -> tuple[dict[str, Any], str | None]:
    """Return the columns of a value, and the reason if it is refused."""
    kinds = pa.schema(columns) if columns else list_kinds(coding)
    found, (why,) = decode_values(coding, [value], kinds)
    arrays = [make_array(each, of.type) for each, of in zip(found, kinds, strict=True)]
    assert arrays == [pa.array(each, of.type) for each, of in zip(found, kinds, strict=True)]
    return {of.name: array[0].as_py() for of, array in zip(kinds, arrays, strict=True)}, why


def list_kinds(coding: Coding) -> pa.Schema:
    """Return the columns that a schema gives by default."""
    return make_arrow_schema(T.StructType.fromJson(dict(coding.list_columns())))


def test_every_type_of_avro_has_a_column() -> None:
    """Values are read back unchanged. A time of day becomes a number, and an enum its name."""
    coding = AvroCoding(schemas={0: (json.dumps(EVERY),)}, header=False)
    value = encode_avro(EVERY, ROW)
    assert coding.open_writer()(ROW) == value
    assert read_value(coding, value) == (AS_READ, None)


def test_every_type_of_protobuf_has_a_column() -> None:
    """An optional field that is missing is NULL. A plain field has its default."""
    row = {
        "id": 1, "total": 2**64 - 1, "name": "x", "note": None, "state": "SENT", "items": [{"code": "a"}, {"code": ""}],
        "first": None, "tags": {"k": 1}, "at": dt.datetime(2026, 1, 1, tzinfo=UTC), "limit": 3, "key": b"\xff",
        "price": 1.5,
    }  # fmt: skip
    found, why = read_value(MESSAGES, MESSAGES.open_writer()(row))
    assert (found, why) == ({**row, "total": Decimal(2**64 - 1), "tags": [("k", 1)]}, None)
    empty, _ = read_value(MESSAGES, b"")
    assert (empty["id"], empty["note"], empty["limit"], empty["items"]) == (0, None, None, [])


def test_a_schema_may_refer_to_another_one() -> None:
    """As in a registry, the other schema comes first in the list."""
    inner = {"type": "record", "name": "Inner", "fields": [{"name": "x", "type": "int"}]}
    outer = {"type": "record", "name": "Outer", "fields": [{"name": "inner", "type": "Inner"}]}
    coding = AvroCoding(schemas={0: (json.dumps(inner), json.dumps(outer))}, header=False)
    assert read_value(coding, coding.open_writer()({"inner": {"x": 1}})) == ({"inner": {"x": 1}}, None)


def test_a_value_is_read_with_the_schema_of_its_id() -> None:
    """Fields without a column are ignored, and columns without a field are NULL."""
    coding = AvroCoding(schemas={1: (json.dumps(ORDER),), 2: (json.dumps(LATER),)}, header=True)
    old = encode_avro(ORDER, {"id": 1, "name": None}, 1)
    new = encode_avro(LATER, {"id": 2, "name": "x", "note": "n"}, 2)
    columns = {"id": pa.int32(), "note": pa.string()}
    assert read_value(coding, old, **columns) == ({"id": 1, "note": None}, None)
    assert read_value(coding, new, **columns) == ({"id": 2, "note": "n"}, None)
    assert replace(coding, schemas={1: (json.dumps(ORDER),)}).open_writer()({"id": 1, "name": None}) == old


@pytest.mark.parametrize(
    "kind", ["nothing", {"type": "bytes", "logicalType": "decimal", "precision": 2, "scale": 5}], ids=str
)
def test_a_schema_that_cannot_be_read_refuses_only_its_messages(kind: object) -> None:
    """Messages of the subject's other schemas are read."""
    bad = {"type": "record", "name": "Bad", "fields": [{"name": "id", "type": kind}]}
    coding = AvroCoding(schemas={1: (json.dumps(ORDER),), 2: (json.dumps(bad),)}, header=True)
    values = [b"\0\0\0\0\2\2", encode_avro(ORDER, {"id": 1, "name": None}, 1), b"\0\0\0\0\2\2"]
    (found,), whys = decode_values(coding, values, pa.schema({"id": pa.int32()}))
    assert found == [None, 1, None]
    assert whys[1] is None
    assert str(whys[0]).startswith("schema 2 cannot be read: ")
    assert whys[2] == whys[0]


@pytest.mark.parametrize(
    ("value", "why"),
    [
        (None, "the message has no value"),
        (b"\0\0", "expected Confluent's header of 5 bytes, got 2 bytes in all"),
        (b"\1\0\0\0\1\2\0", "expected the magic byte 0, got 1"),
        (b"\0\0\0\0\x09\2\0", "the registry had no schema with id 9 when the batch was planned"),
        (b"\0\0\0\0\1\2", "the value is not Avro of schema 1: the value ends early"),
        (b"\0\0\0\0\1\2\0\0\0", "the value is not Avro of schema 1: 2 more bytes follow"),
    ],
)
def test_an_invalid_value_is_refused_with_a_reason(value: bytes | None, why: str) -> None:
    """All its columns are NULL."""
    coding = AvroCoding(schemas={1: (json.dumps(ORDER),)}, header=True)
    assert read_value(coding, value) == ({"id": None, "name": None}, why)


@pytest.mark.parametrize("value", [b"\xff\xff", b"\x1a\x02\xff\xfe", b"\0\0\0\0\1"])
def test_bytes_that_are_no_protobuf_are_refused(value: bytes) -> None:
    """The bytes are broken fields, text that is not UTF-8, or Confluent's header."""
    _, why = read_value(MESSAGES, value)
    assert why == "the value is not a shop.Order in Protobuf"


@pytest.mark.parametrize(
    ("kind", "value", "why"),
    [
        (pa.int8(), 200, "column x: '200' is not a tinyint"),
        (pa.int32(), "1", "column x: '1' is not an int"),
        (pa.int32(), True, "column x: 'True' is not an int"),
        (pa.bool_(), 1, "column x: '1' is not a boolean"),
        (pa.string(), 1, "column x: '1' is not a string"),
        (pa.string(), "\ud800", r"column x: '\ud800' is not a string"),
        (pa.binary(), "x", "column x: 'x' is not a binary"),
        (pa.float32(), 1e300, "column x: '1e+300' is not a float"),
        (pa.decimal128(4, 2), Decimal("1.005"), "column x: 'Decimal('1.005')' is not a decimal(4,2)"),
        (pa.decimal128(4, 2), 100, "column x: '100' is not a decimal(4,2)"),
        (pa.date32(), dt.datetime(2026, 1, 1), "column x: 'datetime.datetime(2026, 1, 1, 0, 0)' is not a date"),
        (pa.timestamp("us", "UTC"), 17, "column x: '17' is not a timestamp"),
        (pa.timestamp("us"), 17, "column x: '17' is not a timestamp_ntz"),
        (pa.list_(pa.int32()), [1, "a"], "column x.element: 'a' is not an int"),
        (pa.list_(pa.int32()), 1, "column x: '1' is not an array"),
        (pa.struct({"y": pa.int32()}), {"y": "a"}, "column x.y: 'a' is not an int"),
        (pa.map_(pa.string(), pa.int32()), {"a": "b"}, "column x.value: 'b' is not an int"),
    ],
)
def test_a_field_with_another_type_than_its_column_is_named(kind: pa.DataType, value: object, why: str) -> None:
    """The message has its value and the expected type."""
    with pytest.raises(Unreadable) as raised:
        make_fit(kind, "x")(value)
    assert str(raised.value) == why


NODE = {"type": "record", "name": "Node", "fields": [{"name": "next", "type": ["null", "Node"]}]}
EITHER = {"type": "record", "name": "Either", "fields": [{"name": "x", "type": ["int", "string"]}]}
NOTHING = {"type": "record", "name": "Nothing", "fields": [{"name": "x", "type": "null"}]}


def make_amount(**given: int) -> AvroCoding:
    """Return the coding of a record with a decimal that has these attributes."""
    kind = {"type": "bytes", "logicalType": "decimal", **given}
    record = {"type": "record", "name": "Amount", "fields": [{"name": "x", "type": kind}]}
    return AvroCoding(schemas={0: (json.dumps(record),)}, header=False)


@pytest.mark.parametrize(
    ("coding", "why"),
    [
        (AvroCoding(schemas={0: (json.dumps(NODE),)}, header=False), "the record Node holds itself"),
        (AvroCoding(schemas={0: (json.dumps(EITHER),)}, header=False), "a column cannot have a union of 2 types"),
        (AvroCoding(schemas={0: ('"int"',)}, header=False), "expected a record"),
        (AvroCoding(schemas={0: ("{",)}, header=False), "expected an Avro schema"),
        (make_amount(), "a column needs a decimal with a precision of 1 to 38, got None"),
        (make_amount(precision=50, scale=5), "a column needs a decimal with a precision of 1 to 38, got 50"),
        (AvroCoding(schemas={0: (json.dumps(NOTHING),)}, header=False), "a column cannot have the type null"),
        (ProtobufCoding(descriptors=b"x", message="A"), "expected descriptors from `protoc"),
        (ProtobufCoding(descriptors=describe_messages(), message="shop.Nod"), "shop.Item, shop.Node, shop.Order, got"),
        (ProtobufCoding(descriptors=describe_messages(), message="shop.Node"), "the message shop.Node holds itself"),
    ],
)
def test_a_schema_without_columns_has_a_reason(coding: Coding, why: str) -> None:
    """The columns can still be given, unless the schema cannot be read."""
    with pytest.raises(NoColumns, match=why):
        coding.list_columns()


@pytest.mark.parametrize("coding", [ORDERS, MESSAGES])
def test_a_row_that_does_not_fit_is_not_written(coding: Coding) -> None:
    """The error states that the row does not fit."""
    with pytest.raises(Unreadable, match="the row does not fit"):
        coding.open_writer()({"id": "x"})
    with pytest.raises(Unreadable, match="the row does not fit"):
        coding.open_writer()({"id": 1, "name": None, "unknown": 1})


def describe_odd(syntax: str) -> bytes:
    """Return descriptors of a message `odd.Odd` with wrappers in an array, a choice and an enum. In proto2 a field is
    required.
    """
    kinds, found = descriptor_pb2.FieldDescriptorProto, descriptor_pb2.FileDescriptorSet()
    wrappers_pb2.DESCRIPTOR.CopyToProto(found.file.add())
    file = found.file.add(name="odd.proto", package="odd", syntax=syntax, dependency=["google/protobuf/wrappers.proto"])
    file.enum_type.add(name="Color").value.add(name="RED", number=0)
    message, one = file.message_type.add(name="Odd"), kinds.LABEL_OPTIONAL
    message.oneof_decl.add(name="choice")
    integer, wrapper = ".google.protobuf.Int32Value", kinds.TYPE_MESSAGE
    message.field.add(name="parts", number=1, type=wrapper, type_name=integer, label=kinds.LABEL_REPEATED)
    message.field.add(name="a", number=2, type=kinds.TYPE_STRING, label=one, oneof_index=0)
    message.field.add(name="b", number=3, type=kinds.TYPE_INT32, label=one, oneof_index=0)
    message.field.add(name="color", number=4, type=kinds.TYPE_ENUM, type_name=".odd.Color", label=one)
    needed = kinds.LABEL_REQUIRED if syntax == "proto2" else one
    message.field.add(name="size", number=5, type=kinds.TYPE_UINT64, label=needed)
    return bytes(found.SerializeToString())


PRICE = {
    "type": "record",
    "name": "Price",
    "fields": [
        {"name": "price", "type": {"type": "bytes", "logicalType": "decimal", "precision": 4, "scale": 2}},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}, "default": 0},
        {"name": "key", "type": ["null", {"type": "string", "logicalType": "uuid"}], "default": None},
        {"name": "ways", "type": {"type": "array", "items": "int"}, "default": []},
    ],
}
PRICES = AvroCoding(schemas={0: (json.dumps(PRICE),)}, header=False)
ODD = ProtobufCoding(descriptors=describe_odd("proto3"), message="odd.Odd")
NEEDY = ProtobufCoding(descriptors=describe_odd("proto2"), message="odd.Odd")


def encode_row(coding: Coding, kinds: Mapping[str, Any], row: Mapping[str, Any]) -> tuple[bytes | None, str | None]:
    """Return the value of a row with these Spark types, or the reason why it has none."""
    fields = [{"name": name, "type": kind, "nullable": True, "metadata": {}} for name, kind in kinds.items()]
    return RowEncoder(coding=coding, schema=json.dumps({"type": "struct", "fields": fields}))(row)


@pytest.mark.parametrize(
    ("coding", "kind", "value", "field", "as_read"),
    [
        (PRICES, "decimal(10,4)", Decimal("1.2500"), "price", Decimal("1.25")),
        (PRICES, "integer", 5, "price", Decimal("5.00")),
        (NEEDY, "decimal(22,2)", Decimal("7.00"), "size", Decimal(7)),
        (ODD, "decimal(20,0)", Decimal(2**64 - 1), "size", Decimal(2**64 - 1)),
        (ODD, "string", "7", "color", "7"),
    ],
)
def test_a_value_is_written_with_the_type_of_its_field(
    coding: Coding, kind: str, value: Any, field: str, as_read: Any
) -> None:
    """A number may have another type in Spark if its value stays the same."""
    found, why = encode_row(coding, {field: kind}, {field: value})
    assert why is None
    assert read_value(coding, found)[0][field] == as_read


def test_a_time_in_the_year_9999_is_written() -> None:
    """This holds in every time zone of a worker."""
    last = dt.datetime(9999, 12, 31, 23, 59, 59, tzinfo=UTC)
    row = {"price": Decimal(1), "at": (last - dt.datetime(1970, 1, 1, tzinfo=UTC)) // dt.timedelta(microseconds=1)}
    found, why = encode_row(PRICES, {"price": "decimal(4,2)", "at": "timestamp"}, row)
    assert why is None
    assert read_value(PRICES, found)[0]["at"] == last


@pytest.mark.parametrize(
    ("coding", "kinds", "row", "reason"),
    [
        (PRICES, {"price": "decimal(10,0)"}, {"price": Decimal(1234)}, r"price: .*1234.* is not a decimal\(4,2\)"),
        (PRICES, {"price": "decimal(5,3)"}, {"price": Decimal("1.255")}, r"price: .* is not a decimal\(4,2\)"),
        (PRICES, {"price": "integer", "at": "timestamp"}, {"price": 1, "at": 1 << 62}, "at: .* is not a timestamp"),
        (PRICES, {"price": "integer", "key": "string"}, {"price": 1, "key": "abc"}, "does not fit the Avro schema"),
        (
            PRICES,
            {"price": "integer", "ways": {"type": "array", "elementType": "long", "containsNull": True}},
            {"price": 1, "ways": [1, 1 << 40]},
            r"ways\[\]: '1099511627776' is not an integer",
        ),
        (ODD, {"size": "decimal(20,2)"}, {"size": Decimal("1.75")}, r"size: .* is not a decimal\(20,0\)"),
        (ODD, {"size": "decimal(20,0)"}, {"size": Decimal(-1)}, "size: .*range"),
        (
            ODD,
            {"parts": {"type": "array", "elementType": "integer", "containsNull": True}},
            {"parts": [1, None]},
            "parts: an array and a map cannot hold NULL",
        ),
        (ODD, {"a": "string", "b": "integer"}, {"a": "x", "b": 7}, "b: only one of a and b can have a value"),
        (ODD, {"color": "string"}, {"color": "C"}, "color: 'C' is no name of the enum Color"),
        (NEEDY, {"size": "long"}, {"size": None}, "does not fit the message odd.Odd: .*size"),
    ],
)
def test_a_value_that_would_change_is_refused(
    coding: Coding, kinds: Mapping[str, Any], row: Mapping[str, Any], reason: str
) -> None:
    """The reason names the field."""
    found, why = encode_row(coding, kinds, row)
    assert found is None
    assert re.search(reason, why or "")


def test_columns_that_do_not_fit_are_named_with_what_to_do() -> None:
    """Fields of nested records are named too."""
    inner = {"type": "record", "name": "I", "fields": [{"name": "x", "type": "int"}, {"name": "y", "type": "string"}]}
    outer = {"type": "record", "name": "O", "fields": [{"name": "s", "type": inner}, {"name": "n", "type": "double"}]}
    coding = AvroCoding(schemas={0: (json.dumps(outer),)}, header=False)
    integer = T.IntegerType()
    given = T.StructType().add("s", T.StructType().add("x", integer)).add("N", integer).add("more", integer)
    assert list(list_misfits(given.jsonValue(), coding.list_columns())) == [
        "there is no column 's.y', which the schema needs",
        "N is called n in the schema; change the name with `rename`",
        "the schema has no field more; drop the column, or put the fields into a struct for `value`",
    ]
    assert list(list_misfits(T.StructType().add("a", T.StringType()).jsonValue(), NEEDY.list_columns())) == [
        "there is no column 'size', which the schema needs"
    ]


_WORKER = """
import pickle, sys
import pyarrow as pa
decode = pickle.loads(sys.stdin.buffer.read())
batch = pa.RecordBatch.from_pydict({"value": [bytes.fromhex(sys.argv[1]), None]})
(found,) = decode(iter([batch]))
print(found.to_pylist()[0]["id"], found.to_pylist()[1]["why"], "origins" in sys.modules)
"""


def test_a_worker_decodes_without_wherry(tmp_path: Path) -> None:
    """The function is sent with all that it needs, except `fastavro` and pyarrow."""
    kinds = pa.schema({"id": pa.int32()})
    send_by_value()
    decoder = BatchDecoder(coding=ORDERS, kinds=kinds, names=["id"], why="why")
    sent = cloudpickle.dumps(decoder.decode)  # type: ignore[no-untyped-call]
    value = encode_avro(ORDER, {"id": 7, "name": None})
    paths = [each for each in sys.path if "packages" in each and Path(each).is_dir()]
    done = subprocess.run(
        [sys.executable, "-c", _WORKER, value.hex()],
        input=sent,
        capture_output=True,
        check=True,
        cwd=tmp_path,
        env={"PYTHONPATH": os.pathsep.join(paths)},
    )
    assert done.stdout.decode().split("\n")[0] == "7 the message has no value False"


def make_kafka(**given: Any) -> Kafka:
    """Return an origin whose brokers do not exist."""
    return Kafka(**{"servers": "localhost:1", "topic": "orders", "format": "avro", **given})


URL = "http://localhost:1"


@pytest.mark.parametrize(
    ("given", "problem"),
    [
        ({}, "expected a schema_file or a registry for format: avro, got none"),
        ({"schema_file": "a", "registry": {"url": URL}}, "for format: avro, got both"),
        ({"format": "protobuf", "schema_file": "a"}, "expected a file of descriptors, and the message"),
        ({"format": "text", "schema_file": "a"}, "schema_file: expected with format: avro or protobuf only, got text"),
        ({"format": "protobuf", "schema_file": "a", "message": "b", "registry": {"url": URL}}, "registry: expected"),
        ({"registry": {"url": "x"}}, "expected a url such as https://registry:8081"),
        ({"registry": {"url": "http://ada:pw@host"}}, "without a user in it"),
        ({"registry": {"user": "ada", "url": URL}}, "registry: expected url, and with it username"),
        ({"registry": {"url": URL, "token": "a", "username": "b"}}, "expected a token or a username, got both"),
        ({"registry": {"url": URL}, "topic": None, "pattern": "a"}, "expected the columns, since several topics"),
        ({"schema_file": "a", "subjects": ["b"]}, "subjects: expected a list, beside a registry"),
        ({"format": "csv"}, "schema: expected the columns of format: csv"),
        ({"format": "csv", "schema": "id int", "format_options": {"multiLine": True}}, "expected none about lines"),
        ({"format": "csv", "schema": "id int", "format_options": {"mode": "x"}}, "'mode' cannot be set"),
        ({"format": "json", "schema": "id int", "format_options": {"sep": ";"}}, "expected with format: csv only"),
    ],
)
def test_invalid_options_of_a_format_are_refused(given: dict[str, Any], problem: str) -> None:
    """Each message has what was expected."""
    with pytest.raises(ValueError, match=problem):
        make_kafka(**given)


def test_a_schema_file_that_is_missing_is_named(tmp_path: Path) -> None:
    """The error has the path of the file."""
    origin = make_kafka(schema_file=str(tmp_path / "orders.avsc"))
    with pytest.raises(OriginError, match=r"cannot be read from .*orders.avsc: No such file"):
        origin.columns(None, None)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        ("{", "expected an Avro schema"),
        ('"string"', "expected a record, got another type"),
        ('{"type": "record", "name": "a", "fields": [{"name": "b", "type": "c"}]}', "expected an Avro schema"),
        (None, "No such file"),
    ],
)
def test_an_invalid_schema_file_is_named(content: str | None, problem: str, tmp_path: Path) -> None:
    """The destination raises the error. The hint names the option."""
    file = tmp_path / "orders.avsc"
    if content is not None:
        file.write_text(content)
    destination = KafkaDestination(servers="here:9092", topic="orders", format="avro", schema_file=str(file))
    with pytest.raises(OriginError, match=problem) as raised:
        destination.load_coding()
    assert "schema_file" in str(raised.value.hint)


@pytest.mark.parametrize("package", ["fastavro", "google.protobuf"])
def test_a_missing_package_of_a_format_is_named(package: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The error has the command that installs it."""
    file = tmp_path / "schema"
    file.write_text(json.dumps(ORDER))
    of = {"format": "avro"} if package == "fastavro" else {"format": "protobuf", "message": "shop.Order"}
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(OriginError, match=r"pip install 'wherry\[kafka\]'"):
        make_kafka(schema_file=str(file), **of).columns(None, None)  # type: ignore[arg-type]
