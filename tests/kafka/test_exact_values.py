"""A value in Avro or Protobuf arrives exactly as it was written, or it is refused alone."""

from __future__ import annotations

import datetime as dt
import io
import json
import struct
from decimal import Decimal
from typing import Any

import fastavro
import pyarrow as pa
import pytest
from google.protobuf import descriptor_pb2
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql import types as T

from origins.kafka.avro import AvroCoding
from origins.kafka.formats import Coding, decode_values
from origins.kafka.protobuf import ProtobufCoding
from origins.spark_versions import make_arrow_schema


def make_coding(kind: Any) -> AvroCoding:
    """Return the coding of a record with one field `x` of this type."""
    record = {"type": "record", "name": "R", "fields": [{"name": "x", "type": kind}]}
    return AvroCoding(schemas={0: (json.dumps(record),)}, header=False)


def read_all(coding: Coding, values: list[bytes], kind: pa.DataType | None = None) -> tuple[list[Any], list[bool]]:
    """Return the column `x` of these values, and for each value whether it is refused."""
    kinds = make_arrow_schema(T.StructType.fromJson(dict(coding.list_columns())))
    if kind is not None:
        kinds = pa.schema({"x": kind})
    (column,), whys = decode_values(coding, values, kinds)
    return pa.array(column, kinds.field("x").type).to_pylist(), [why is not None for why in whys]


def write_whole(value: int) -> bytes:
    """Return a whole number as Avro writes it."""
    zigzag, written = (value << 1) ^ (value >> 127), bytearray()
    while zigzag > 127:
        written.append(zigzag & 127 | 128)
        zigzag >>= 7
    return bytes([*written, zigzag])


def write_decimal(unscaled: int, size: int) -> bytes:
    """Return a decimal's bytes behind their number."""
    return write_whole(size) + unscaled.to_bytes(size, "big", signed=True)


PRICE = {"type": "bytes", "logicalType": "decimal", "precision": 4, "scale": 2}
ENUM = {"type": "enum", "name": "E", "symbols": ["A", "B"]}
UUID = {"type": "string", "logicalType": "uuid"}
CAPITALS = "6BA7B810-9DAD-11D1-80B4-00C04FD430C8"
MILLIS = {"type": "int", "logicalType": "time-millis"}
MICROS = {"type": "long", "logicalType": "time-micros"}
DAY = {"type": "int", "logicalType": "date"}
MOMENT = {"type": "long", "logicalType": "timestamp-micros"}
LOCAL = {"type": "long", "logicalType": "local-timestamp-millis"}
EMPTY = {"type": "record", "name": "Empty", "fields": []}
LIST = {"type": "array", "items": "int"}
BLANKS = {"type": "array", "items": EMPTY}
MAP = {"type": "map", "values": "int"}
FIXED = {"type": "fixed", "name": "F", "size": 3}

EXACT: dict[str, tuple[Any, bytes, Any]] = {
    "the largest int": ("int", write_whole(2**31 - 1), 2**31 - 1),
    "the smallest int": ("int", write_whole(-(2**31)), -(2**31)),
    "the largest long": ("long", write_whole(2**63 - 1), 2**63 - 1),
    "the smallest long": ("long", write_whole(-(2**63)), -(2**63)),
    "a float": ("float", struct.pack("<f", 0.1), struct.unpack("<f", struct.pack("<f", 0.1))[0]),
    "a double": ("double", struct.pack("<d", 0.1), 0.1),
    "true": ("boolean", b"\1", True),
    "text beyond U+FFFF": ("string", write_whole(4) + "😀".encode(), "😀"),
    "a decimal": (PRICE, write_decimal(-1234, 2), Decimal("-12.34")),
    "a decimal with a byte too many": (PRICE, write_decimal(5, 3), Decimal("0.05")),
    "a uuid in capitals": (UUID, write_whole(36) + CAPITALS.encode(), CAPITALS),
    "the last millisecond of a day": (MILLIS, write_whole(86_399_999), 86_399_999),
    "the last microsecond of a day": (MICROS, write_whole(86_399_999_999), 86_399_999_999),
    "the first date": (DAY, write_whole(-719_162), dt.date(1, 1, 1)),
    "the last date": (DAY, write_whole(2_932_896), dt.date(9999, 12, 31)),
    "a moment before 1970": (MOMENT, write_whole(-1), dt.datetime(1969, 12, 31, 23, 59, 59, 999999, dt.timezone.utc)),
    "a local moment": (LOCAL, write_whole(1), dt.datetime(1970, 1, 1, 0, 0, 0, 1000)),
    "an array in two blocks": (LIST, b"\2\2\1\2\4\0", [1, 2]),
    "an empty array": (LIST, b"\0", []),
    "a map": (MAP, b"\2\2a\4\0", [("a", 2)]),
    "a union": (["null", "int"], b"\2\4", 2),
    "NULL": (["null", "int"], b"\0", None),
    "fixed bytes": (FIXED, b"abc", b"abc"),
    "few items without bytes": (BLANKS, b"\4\0", [{}, {}]),
}  # fmt: skip


@pytest.mark.parametrize("name", EXACT)
def test_a_value_of_avro_arrives_exactly(name: str) -> None:
    """The column has the value that Avro's specification gives these bytes."""
    kind, content, expected = EXACT[name]
    if kind == BLANKS:
        assert read_all(make_coding(kind), [content], pa.list_(pa.struct([]))) == ([expected], [False])
    else:
        assert read_all(make_coding(kind), [content]) == ([expected], [False])


REFUSED: dict[str, tuple[Any, bytes]] = {
    "an enum's index of -1": (ENUM, b"\1"),
    "an enum's index beyond the last": (ENUM, b"\4"),
    "a union's index of -1": (["null", "int"], b"\1"),
    "a union's index beyond the last": (["null", "int"], b"\4\2"),
    "a boolean of 2": ("boolean", b"\2"),
    "a boolean of 255": ("boolean", b"\xff"),
    "an int with more than 32 bits": ("int", write_whole(2**31)),
    "an int of six bytes": ("int", b"\x80\x80\x80\x80\x80\0"),
    "a long with more than 64 bits": ("long", b"\xff" * 9 + b"\3"),
    "a long of eleven bytes": ("long", b"\x80" * 10 + b"\0"),
    "a length below zero": ("string", b"\1"),
    "a length beyond the value": ("bytes", write_whole(2**40)),
    "a decimal beyond its precision": (PRICE, write_decimal(12345600, 4)),
    "a decimal without a byte": (PRICE, b"\0"),
    "a decimal of a thousand bytes": (PRICE, write_decimal(1, 1000)),
    "a uuid that is none": (UUID, b"\6abc"),
    "a time of day of -1": (MILLIS, b"\1"),
    "a time of day of 24 hours": (MICROS, write_whole(86_400_000_000)),
    "a date before the year 1": (DAY, write_whole(-719_163)),
    "a date after the year 9999": (DAY, write_whole(2_932_897)),
    "a moment after the year 9999": (MOMENT, write_whole(2**62)),
    "a local moment before the year 1": (LOCAL, write_whole(-(2**60))),
    "text that is not UTF-8": ("string", b"\2\xff"),
    "an array of ten million items in five bytes": (LIST, write_whole(10_000_000) + b"\0"),
    "ten million items without bytes": (BLANKS, write_whole(10_000_000) + b"\0"),
    "a thousand items without bytes": (BLANKS, write_whole(1_000) + b"\0"),
    "a block of another size": (LIST, b"\1\6\2\0"),
    "a key that stands twice in a map": (MAP, b"\4\2a\2\2a\4\0"),
    "a value that ends early": (FIXED, b"ab"),
    "bytes behind the value": (FIXED, b"abcd"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_a_value_that_avro_does_not_allow_is_refused_alone(name: str) -> None:
    """The values beside it arrive."""
    kind, content = REFUSED[name]
    record = {"type": "record", "name": "R", "fields": [{"name": "id", "type": "int"}, {"name": "x", "type": kind}]}
    union = {"type": "record", "name": "R", "fields": [{"name": "id", "type": "int"}]}
    coding = AvroCoding(schemas={1: (json.dumps(record),), 2: (json.dumps(union),)}, header=True)
    before, bad, after = b"\0\0\0\0\2\2", b"\0\0\0\0\1\4" + content, b"\0\0\0\0\2\6"
    (column,), whys = decode_values(coding, [before, bad, after], pa.schema({"id": pa.int32()}))
    assert (column[0], column[2]) == (1, 3)
    assert (whys[0], whys[2]) == (None, None)
    bare = make_coding(kind)
    kinds = pa.schema({"x": pa.list_(pa.struct([]))}) if kind == BLANKS else None
    assert read_all(bare, [content], kinds.field("x").type if kinds else None) == ([None], [True])


def test_a_decimal_of_an_older_schema_keeps_its_digits() -> None:
    """A value with more digits than its own schema allows fits a wider column."""
    assert read_all(make_coding(PRICE), [write_decimal(12345678, 4)], pa.decimal128(10, 2)) == (
        [Decimal("123456.78")],
        [False],
    )


def test_a_whole_number_that_no_double_has_is_refused() -> None:
    """A double column takes whole numbers that it can hold exactly."""
    values = [write_whole(2**53), write_whole(2**53 + 1)]
    assert read_all(make_coding("long"), values, pa.float64()) == ([2.0**53, None], [False, True])


ALL = {
    "type": "record",
    "name": "All",
    "fields": [
        {"name": "a", "type": ["null", "long"]},
        {"name": "b", "type": "string"},
        {"name": "c", "type": {"type": "array", "items": ["int", "string", {"type": "map", "values": "double"}]}},
        {"name": "d", "type": "bytes"},
        {"name": "e", "type": ENUM},
        {"name": "f", "type": "boolean"},
        {"name": "g", "type": FIXED},
    ],
}
ROWS = st.fixed_dictionaries(
    {
        "a": st.none() | st.integers(-(2**63), 2**63 - 1),
        "b": st.text(),
        "c": st.lists(
            st.integers(-(2**31), 2**31 - 1)
            | st.text()
            | st.dictionaries(st.text(), st.floats(allow_nan=False), max_size=3)
        ),
        "d": st.binary(),
        "e": st.sampled_from(["A", "B"]),
        "f": st.booleans(),
        "g": st.binary(min_size=3, max_size=3),
    }
)


@given(ROWS)
def test_a_row_that_fastavro_wrote_is_read_exactly(row: dict[str, Any]) -> None:
    """The reader returns each value that the writer got."""
    stream = io.BytesIO()
    fastavro.schemaless_writer(stream, fastavro.parse_schema(ALL), row)
    assert AvroCoding(schemas={0: (json.dumps(ALL),)}, header=False).open()(stream.getvalue()) == row


@given(st.binary(max_size=200))
def test_any_bytes_are_read_or_refused(content: bytes) -> None:
    """No other error comes, and nothing large is made of few bytes."""
    coding = AvroCoding(schemas={0: (json.dumps(ALL),)}, header=False)
    _, (why,) = decode_values(coding, [content], pa.schema({"f": pa.bool_()}))
    assert why is None or why.startswith("the value is not Avro of its schema: ")


def make_protobuf() -> ProtobufCoding:
    """Return the coding of a message with a timestamp, and of its required number."""
    stamp = descriptor_pb2.FileDescriptorProto(
        name="google/protobuf/timestamp.proto", package="google.protobuf", syntax="proto3"
    )
    kind = stamp.message_type.add(name="Timestamp")
    kind.field.add(name="seconds", number=1, type="TYPE_INT64", label="LABEL_OPTIONAL")
    kind.field.add(name="nanos", number=2, type="TYPE_INT32", label="LABEL_OPTIONAL")
    own = descriptor_pb2.FileDescriptorProto(name="own.proto", package="own", syntax="proto2")
    own.dependency.append(stamp.name)
    message = own.message_type.add(name="M")
    message.field.add(
        name="x", number=1, type="TYPE_MESSAGE", type_name=".google.protobuf.Timestamp", label="LABEL_OPTIONAL"
    )
    message.field.add(name="id", number=2, type="TYPE_INT32", label="LABEL_REQUIRED")
    files = descriptor_pb2.FileDescriptorSet(file=[stamp, own])
    return ProtobufCoding(descriptors=files.SerializeToString(), message="own.M")


def write_stamp(seconds: int, nanos: int) -> bytes:
    """Return a message with this timestamp and the number 1."""
    inner = b"\x08" + _write_varint(seconds % 2**64) + b"\x10" + _write_varint(nanos % 2**64)
    return b"\x0a" + bytes([len(inner)]) + inner + b"\x10\1"


def _write_varint(value: int) -> bytes:
    written = bytearray()
    while value > 127:
        written.append(value & 127 | 128)
        value >>= 7
    return bytes([*written, value])


STAMPS = {
    "after the year 9999": write_stamp(2**40, 0),
    "before the year 1": write_stamp(-(2**40), 0),
    "beyond 64 bits of microseconds": write_stamp(2**62, 0),
    "with too many nanoseconds": write_stamp(0, 1_000_000_000),
    "with nanoseconds below zero": write_stamp(0, -1),
    "without the required number": write_stamp(0, 0)[:-2],
}


@pytest.mark.parametrize("name", STAMPS)
def test_a_message_of_protobuf_that_cannot_be_kept_is_refused_alone(name: str) -> None:
    """The messages beside it arrive."""
    good = write_stamp(1, 2_000)
    read = dt.datetime(1970, 1, 1, 0, 0, 1, 2, dt.timezone.utc)
    found = read_all(make_protobuf(), [good, STAMPS[name], good], pa.timestamp("us", "UTC"))
    assert found == ([read, None, read], [False, True, False])
