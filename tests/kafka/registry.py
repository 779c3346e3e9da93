"""A schema registry on this machine, with the part of Confluent's API for subjects and ids."""

from __future__ import annotations

import base64
import json
import re
import threading
from collections.abc import Iterator, Mapping, Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import unquote

import pytest

USER, PASSWORD = "ada", "registry-horse"


class Registry:
    """Schemas by subject and version. As with Confluent's registry, equal schemas have one id."""

    def __init__(self) -> None:
        self.schemas: dict[int, dict[str, Any]] = {}
        """The schemas by id."""
        self.versions: dict[str, list[int]] = {}
        """The ids of a subject's versions, starting with version 1."""
        self.secure = False
        """Whether the registry requires `USER` and `PASSWORD`."""
        self.deleted: set[tuple[str, int]] = set()
        """The deleted subjects and versions. Only a request for deleted ones gets them."""
        self.fails_with = 0
        """The status of all answers, unless it is 0."""
        self.missing_bytes = 0
        """How many bytes an answer is shorter than its header states."""
        self.asked: list[str] = []
        """The requested paths."""
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), _make_handler(self))
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def register(self, subject: str, schema: Any, **more: Any) -> int:
        """Add a version of a subject, and return its id. `more` has its kind, or its references."""
        known = {"schema": json.dumps(schema), **more}
        number = next((each for each, there in self.schemas.items() if there == known), len(self.schemas) + 1)
        self.schemas[number] = known
        self.versions.setdefault(subject, []).append(number)
        return number

    def find(self, path: str) -> tuple[int, Any]:
        """Return the status and the answer for a path."""
        self.asked.append(path)
        if match := re.fullmatch(r"/schemas/ids/(\d+)", path):
            known = self.schemas.get(int(match[1]))
            return (404, {"error_code": 40403}) if known is None else (200, known)
        if latest := re.fullmatch(r"/subjects/([^/]+)/versions/latest", path):
            subject = unquote(latest[1])
            there = range(1, len(self.versions.get(subject, ())) + 1)
            left = [number for number in there if (subject, number) not in self.deleted]
            return self._describe(subject, left[-1]) if left else (404, {"error_code": 40401})
        match = re.fullmatch(r"/subjects/([^/]+)/versions(?:/(\d+))?\?deleted=true", path)
        subject = unquote(match[1]) if match else ""
        if match is None or subject not in self.versions:
            return 404, {"error_code": 40401}
        ids = self.versions[subject]
        if match[2] is None:
            return 200, [*range(1, len(ids) + 1)]
        return self._describe(subject, int(match[2]))

    def _describe(self, subject: str, version: int) -> tuple[int, Any]:
        number = self.versions[subject][version - 1]
        return 200, {"subject": subject, "version": version, "id": number, **self.schemas[number]}

    def close(self) -> None:
        """Stop the server."""
        self._server.shutdown()
        self._server.server_close()


def _make_handler(registry: Registry) -> type[BaseHTTPRequestHandler]:
    expected = "Basic " + base64.b64encode(f"{USER}:{PASSWORD}".encode()).decode()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            refused = registry.secure and self.headers.get("Authorization") != expected
            status, answer = (401, {"error_code": 401}) if refused else registry.find(self.path)
            status = registry.fails_with or status
            body = json.dumps(answer).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/vnd.schemaregistry.v1+json")
            self.send_header("Content-Length", str(len(body) + registry.missing_bytes))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            """Log nothing."""

    return Handler


@pytest.fixture
def registry() -> Iterator[Registry]:
    """A registry for one test."""
    made = Registry()
    yield made
    made.close()


ORDER = {
    "type": "record",
    "name": "Order",
    "fields": [{"name": "id", "type": "int"}, {"name": "name", "type": ["null", "string"], "default": None}],
}
"""A schema of orders."""
LATER = {**ORDER, "fields": [*ORDER["fields"], {"name": "note", "type": "string"}]}
"""The schema of orders with one more field."""


def encode_avro(schema: Mapping[str, Any], row: Mapping[str, Any], number: int | None = None) -> bytes:
    """Encode a record as a producer does. With the number of a schema, add Confluent's header."""
    import io

    import fastavro

    stream = io.BytesIO()
    if number is not None:
        stream.write(b"\0" + number.to_bytes(4, "big"))
    fastavro.schemaless_writer(stream, fastavro.parse_schema(dict(schema)), dict(row))
    return stream.getvalue()


def describe_messages() -> bytes:
    """Return what `protoc --descriptor_set_out --include_imports` writes for a file with the message `shop.Order`."""
    from google.protobuf import descriptor_pb2, timestamp_pb2, wrappers_pb2

    kinds = descriptor_pb2.FieldDescriptorProto
    found = descriptor_pb2.FileDescriptorSet()
    for each in (timestamp_pb2, wrappers_pb2):
        each.DESCRIPTOR.CopyToProto(found.file.add())
    file = found.file.add(name="shop.proto", package="shop", syntax="proto3")
    file.dependency.extend(["google/protobuf/timestamp.proto", "google/protobuf/wrappers.proto"])
    file.enum_type.add(name="State").value.add(name="NEW", number=0)
    file.enum_type[0].value.add(name="SENT", number=1)
    item = file.message_type.add(name="Item")
    item.field.add(name="code", number=1, type=kinds.TYPE_STRING, label=kinds.LABEL_OPTIONAL)
    order = file.message_type.add(name="Order")
    entry = order.nested_type.add(name="TagsEntry")
    entry.options.map_entry = True
    entry.field.add(name="key", number=1, type=kinds.TYPE_STRING, label=kinds.LABEL_OPTIONAL)
    entry.field.add(name="value", number=2, type=kinds.TYPE_INT32, label=kinds.LABEL_OPTIONAL)
    for number, (name, kind, of, label) in enumerate(_list_fields(kinds), 1):
        field = order.field.add(name=name, number=number, type=kind, type_name=of, label=label)
        if name == "note":
            field.proto3_optional, field.oneof_index = True, 0
            order.oneof_decl.add(name="_note")
    node = file.message_type.add(name="Node")
    node.field.add(name="next", number=1, type=kinds.TYPE_MESSAGE, type_name=".shop.Node", label=kinds.LABEL_OPTIONAL)
    return bytes(found.SerializeToString())


def _list_fields(kinds: Any) -> Sequence[tuple[str, int, str | None, int]]:
    one, many, message = kinds.LABEL_OPTIONAL, kinds.LABEL_REPEATED, kinds.TYPE_MESSAGE
    return [
        ("id", kinds.TYPE_INT32, None, one),
        ("total", kinds.TYPE_UINT64, None, one),
        ("name", kinds.TYPE_STRING, None, one),
        ("note", kinds.TYPE_STRING, None, one),
        ("state", kinds.TYPE_ENUM, ".shop.State", one),
        ("items", message, ".shop.Item", many),
        ("first", message, ".shop.Item", one),
        ("tags", message, ".shop.Order.TagsEntry", many),
        ("at", message, ".google.protobuf.Timestamp", one),
        ("limit", message, ".google.protobuf.Int32Value", one),
        ("key", kinds.TYPE_BYTES, None, one),
        ("price", kinds.TYPE_DOUBLE, None, one),
    ]
