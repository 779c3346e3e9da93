"""Values of Avro, with Avro's own Java library as the measure: it is what Spark's reader of Avro uses."""

from __future__ import annotations

import io
import json
import math
import random
import struct
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import fastavro
import pyarrow as pa
import pytest
from pyspark.sql import types as T

from origins.kafka.avro import AvroCoding
from origins.kafka.formats import Days, LocalMicros, Micros, decode_values
from origins.spark_versions import make_arrow_schema

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

NODE = {
    "type": "record",
    "name": "Node",
    "fields": [
        {"name": "label", "type": "string"},
        {"name": "children", "type": {"type": "array", "items": "Node"}},
    ],
}
KIND = {"type": "enum", "name": "Kind", "symbols": ["A", "B", "C"]}
MD5 = {"type": "fixed", "name": "MD5", "size": 16}
INTEROP: dict[str, Any] = {
    "whole": "int",
    "big": "long",
    "text": "string",
    "flag": "boolean",
    "single": "float",
    "double": "double",
    "nothing": "null",
    "bytes": "bytes",
    "doubles": {"type": "array", "items": "double"},
    "named": {
        "type": "map",
        "values": {"type": "record", "name": "Foo", "fields": [{"name": "label", "type": "string"}]},
    },
    "union": ["boolean", "double", {"type": "array", "items": "bytes"}],
    "kind": KIND,
    "md5": MD5,
    "node": NODE,
    "maybe": ["null", "string"],
    "maybe_not": ["long", "null"],
    "kinds": {"type": "array", "items": "Kind"},
    "sums": {"type": "map", "values": ["null", "MD5"]},
    "lists": {"type": "array", "items": {"type": "array", "items": "int"}},
    "day": {"type": "int", "logicalType": "date"},
    "moment": {"type": "long", "logicalType": "timestamp-micros"},
    "millis": {"type": "long", "logicalType": "timestamp-millis"},
    "local": {"type": "long", "logicalType": "local-timestamp-micros"},
    "odd": {"type": "string", "logicalType": "unknown"},
}
"""Fields of every type, in the manner of Avro's interop files."""


def make_schema(fields: Mapping[str, Any]) -> str:
    named = [{"name": name, "type": kind} for name, kind in fields.items()]
    return json.dumps({"type": "record", "name": "Interop", "namespace": "org.wherry", "fields": named})


def make_row(chance: random.Random) -> dict[str, Any]:
    """Return a row of the fields, with rare and extreme values."""

    def text() -> str:
        return "".join(chance.choices(["a", "ä", "\0", "\uffff", "\U0001f600", "\n", '"'], k=chance.randrange(5)))

    def number() -> float:
        return chance.choice([0.0, -0.0, 0.1, 1e300, 5e-324, math.inf, -math.inf, chance.uniform(-1e6, 1e6)])

    def node(depth: int) -> dict[str, Any]:
        return {"label": text(), "children": [node(depth - 1) for _ in range(chance.randrange(3) if depth else 0)]}

    whole = chance.choice([0, -1, 1, -(2**31), 2**31 - 1, 63, 64, -64, -65])
    big = chance.choice([0, -1, -(2**63), 2**63 - 1, 2**32, -(2**32) - 1])
    return {
        "whole": whole,
        "big": big,
        "text": text(),
        "flag": chance.random() < 0.5,
        "single": struct.unpack("<f", struct.pack("<f", chance.uniform(-1e6, 1e6)))[0],
        "double": number(),
        "nothing": None,
        "bytes": chance.randbytes(chance.randrange(5)),
        "doubles": [number() for _ in range(chance.randrange(4))],
        "named": {text() + str(at): {"label": text()} for at in range(chance.randrange(3))},
        "union": chance.choice([True, number(), [b"", b"\xff"]]),
        "kind": chance.choice("ABC"),
        "md5": chance.randbytes(16),
        "node": node(3),
        "maybe": chance.choice([None, text()]),
        "maybe_not": chance.choice([None, big]),
        "kinds": chance.choices("ABC", k=chance.randrange(4)),
        "sums": {"a": None, "b": chance.randbytes(16)},
        "lists": [[whole] * chance.randrange(3) for _ in range(chance.randrange(3))],
        "day": chance.choice([-719_162, 2_932_896, 0, -1]),
        "moment": chance.choice([-62_135_596_800_000_000, 253_402_300_799_999_999, -1, 0]),
        "millis": chance.choice([-62_135_596_800_000, 253_402_300_799_999, -1, 0]),
        "local": chance.choice([-1, 0, 1_500]),
        "odd": text(),
    }


def write_rows(count: int, seed: int) -> list[bytes]:
    """Return rows as Avro, written without the logical types, so that numbers stay as they are."""
    plain = {
        name: kind["type"] if isinstance(kind, dict) and "logicalType" in kind else kind
        for name, kind in INTEROP.items()
    }
    schema, chance, written = fastavro.parse_schema(json.loads(make_schema(plain))), random.Random(seed), []
    for _ in range(count):
        stream = io.BytesIO()
        fastavro.schemaless_writer(stream, schema, make_row(chance))
        written.append(stream.getvalue())
    return written


class JavaReader:
    """Avro's own library, which Spark has."""

    def __init__(self, spark: SparkSession, writer: str, reader: str) -> None:
        java: Any = spark.sparkContext._jvm
        written, wanted = (java.org.apache.avro.Schema.Parser().parse(text) for text in (writer, reader))
        self._decoders = java.org.apache.avro.io.DecoderFactory.get()
        self._reader: Any = java.org.apache.avro.generic.GenericDatumReader(written, wanted)

    def read(self, content: bytes) -> dict[str, Any]:
        """Return the fields of a value."""
        decoder = self._decoders.binaryDecoder(bytearray(content), None)
        record = self._reader.read(None, decoder)
        fields = {field.name(): self._convert(record.get(field.pos())) for field in record.getSchema().getFields()}
        if "single" in fields:  # its digits came as text
            fields["single"] = struct.unpack("<f", struct.pack("<f", fields["single"]))[0]
        if "millis" in fields:
            fields["millis"] *= 1_000
        return fields

    def _convert(self, value: Any) -> Any:
        kind = type(value).__name__
        if kind == "JavaList" or (kind == "JavaObject" and "GenericData$Array" in value.getClass().getName()):
            return [self._convert(value.get(at)) for at in range(value.size())]
        if kind == "JavaMap":
            return {str(entry.getKey()): self._convert(entry.getValue()) for entry in value.entrySet()}
        if kind != "JavaObject":
            return value
        name = value.getClass().getName().rpartition(".")[2]
        if name == "HeapByteBuffer":
            return bytes(value.array())
        if name == "GenericData$Fixed":
            return bytes(value.bytes())
        if name == "GenericData$Record":
            return {field.name(): self._convert(value.get(field.pos())) for field in value.getSchema().getFields()}
        return value.toString()


def find_form(value: Any) -> Any:
    """Return a value in a form in which -0 differs from 0, and maps from Arrow are maps."""
    if isinstance(value, float):
        return struct.pack("<d", value)
    if isinstance(value, Mapping):
        return {key: find_form(each) for key, each in value.items()}
    if isinstance(value, list):
        return [*map(find_form, value)]
    return int(value) if isinstance(value, Days | Micros | LocalMicros) else value


@pytest.mark.spark
def test_a_value_of_each_type_is_what_avro_reads(spark: SparkSession) -> None:
    """Records that hold themselves, unions, enums and fixed bytes are among them."""
    schema, rows = make_schema(INTEROP), write_rows(60, 1)
    java, own = JavaReader(spark, schema, schema), AvroCoding(schemas={0: (schema,)}, header=False).open()
    for row in rows:
        expected, found = java.read(row), dict(own(row))
        assert find_form(found) == find_form(expected)


EVOLVED: dict[str, tuple[Any, Any, list[Any]]] = {
    "int to long": ("int", "long", [0, -1, 2**31 - 1]),
    "int to double": ("int", "double", [0, -1, 2**31 - 1]),
    "float to double": ("float", "double", [0.5, -0.0, 2.0**100]),
    "long to double": ("long", "double", [2**53, 2**53 + 1]),
    "int to a union": ("int", ["null", "int"], [5]),
    "a union to int": (["null", "int"], "int", [5]),
    "an enum with more symbols": (KIND, {**KIND, "symbols": ["C", "B", "A", "D"]}, ["A", "C"]),
    "int to text": ("int", "string", [1]),
    "text to bytes": ("string", "bytes", ["a"]),
}
"""The type with which a value is written, the type of the column, and values."""


@pytest.mark.spark
@pytest.mark.parametrize("name", EVOLVED)
def test_a_value_of_an_older_schema_is_exact_or_refused(spark: SparkSession, name: str) -> None:
    """Where it fits, it is the value that Avro's schema resolution gives."""
    written, wanted, values = EVOLVED[name]
    old, new = make_schema({"x": written}), make_schema({"x": wanted})
    coding = AvroCoding(schemas={0: (old,)}, header=False)
    kinds = make_arrow_schema(T.StructType.fromJson(dict(AvroCoding(schemas={0: (new,)}, header=False).list_columns())))
    java = JavaReader(spark, old, new)
    for value in values:
        stream = io.BytesIO()
        fastavro.schemaless_writer(stream, fastavro.parse_schema(json.loads(old)), {"x": value})
        ((read,),), (why,) = decode_values(coding, [stream.getvalue()], kinds)
        if why is None:
            assert find_form(read) == find_form(java.read(stream.getvalue())["x"])
            assert read == value
        else:
            assert why.startswith("column x: ")
            assert value not in (0, -1, 5, 0.5)


def test_a_field_that_the_older_schema_lacks_is_null() -> None:
    """A column is NULL without a field, also where the newer schema has a default."""
    old = AvroCoding(schemas={0: (make_schema({"x": "int"}),)}, header=False)
    assert decode_values(old, [b"\2"], pa.schema({"x": pa.int32(), "y": pa.int32()})) == ([[1], [None]], [None])
