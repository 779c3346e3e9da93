"""A server of a folder for tests, and its callers over gRPC and over REST."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from http import HTTPStatus
from http.client import HTTPConnection, HTTPResponse
from pathlib import Path
from typing import Any, TypeAlias
from urllib.parse import quote, urlencode

import grpc
import msgspec
from google.protobuf.message_factory import GetMessageClass
from msgspec import inspect

from runners.model.clock import Clock
from runners.pipeline import Pipeline
from runners.service.access.guard import Guard
from runners.service.access.tokens import Tokens
from runners.service.grpc_server import STATUSES, answer_over_grpc
from runners.service.operation import Operation
from runners.service.operations import OPERATIONS
from runners.service.protobuf import PACKAGE, SERVICE, make_pool
from runners.service.rest import make_app
from runners.service.service import Service
from runners.service.serving import ServerOptions, answer_over_http, make_service
from tests.manual_clock import ManualClock
from tests.runners.service.served import write_refused
from tests.scenarios.test_without_spark import PLAIN, write_file

OWN = "wherry_own"
"""The token of the owner."""
BY_NAME: Mapping[str, Operation] = {each.name: each for each in OPERATIONS}
Said: TypeAlias = tuple[grpc.StatusCode, Any]
"""The status of an answer in gRPC, and the answer or the problem as JSON."""


def make_folder(folder: Path) -> Path:
    """Return a folder with the pipelines `orders`, which has run, and `copies`, which has not.

    A file waits, and so do three refused rows.
    """
    folder.mkdir(exist_ok=True)
    write_file(folder, 1, 2, 3)
    (folder / "orders.yaml").write_text(PLAIN + 'schedule: {cron: "30 6 * * *"}\n')
    (folder / "copies.yaml").write_text(PLAIN.replace("orders", "copies"))
    Pipeline.load(folder / "orders.yaml").run()
    write_refused(folder, "orders", 3)
    write_file(folder, 4)
    return folder


@dataclass
class GrpcServed:
    """A server that answers, and the calls of its owner.

    Its guard has a clock of its own, so that a test can ask as often as it likes.
    """

    folder: Path
    service: Service
    guard: Guard
    rest: str
    """The address of REST."""
    address: str
    """The address of gRPC."""
    clock: ManualClock
    channel: grpc.Channel
    _keys: Iterator[int] = field(default_factory=lambda: iter(range(1_000_000)))

    def list_metadata(self, key: str | None = None, token: str | None = None) -> Sequence[tuple[str, str]]:
        """Return the metadata of a call. Without a key, it gets a new one."""
        chosen = f"key-{next(self._keys)}" if key is None else key
        return [("authorization", f"Bearer {OWN if token is None else token}"), ("idempotency-key", chosen)]

    def send(self, title: str, data: bytes, key: str | None = None, token: str | None = None, **given: Any) -> bytes:
        """Send bytes to a method, and return those of the answer."""
        self.clock.move(1.0)
        answer: bytes = self.channel.unary_unary(f"/{SERVICE}/{title}")(
            data, metadata=self.list_metadata(key, token), timeout=60, **given
        )
        return answer

    def watch(self, token: str | None = None, **question: Any) -> grpc.Call:
        """Begin a stream of happenings."""
        self.clock.move(1.0)
        begin = self.channel.unary_stream(f"/{SERVICE}/WatchEvents")
        data = write_question(BY_NAME["watch_events"], question)
        return begin(data, metadata=self.list_metadata(token=token), timeout=120)

    def ask(self, name: str, question: Mapping[str, Any], key: str | None = None, token: str | None = None) -> Said:
        """Ask over gRPC."""
        operation = BY_NAME[name]
        try:
            data = self.send(operation.title, write_question(operation, question), key, token)
        except grpc.RpcError as error:
            return error.code(), read_problem(error)
        return grpc.StatusCode.OK, read_answer(operation, data)

    def ask_rest(self, name: str, question: Mapping[str, Any], key: str | None = None) -> Said:
        """Ask over REST."""
        self.clock.move(1.0)
        operation = BY_NAME[name]
        beside = {each: value for each, value in question.items() if each not in [*operation.path_fields]}
        path = operation.path.format_map({each: quote(str(question.get(each, ""))) for each in operation.path_fields})
        query = "" if operation.changes else f"?{urlencode(_write_query(beside), doseq=True)}"
        body = json.dumps(beside) if operation.changes else ""
        with self.open_rest(f"{path}{query}", body, operation.method, self.list_metadata(key)) as response:
            answer = json.loads(response.read())
        return (grpc.StatusCode.OK if response.status < HTTPStatus.BAD_REQUEST else STATUSES[response.status]), answer

    @contextlib.contextmanager
    def open_rest(
        self, path: str, body: str = "", method: str = "GET", headers: Sequence[tuple[str, str]] = ()
    ) -> Iterator[HTTPResponse]:
        """Send a request to REST. The connection ends with the block."""
        with contextlib.closing(HTTPConnection(self.rest.removeprefix("http://"), timeout=60)) as connection:
            connection.request(method, path, body.encode(), {**dict(headers), "Content-Type": "application/json"})
            with connection.getresponse() as response:
                yield response


def _write_query(fields: Mapping[str, Any]) -> Mapping[str, Any]:
    return {name: json.dumps(value) if isinstance(value, bool) else value for name, value in fields.items()}


@contextlib.contextmanager
def serve(folder: Path, tls: tuple[Path, Path] | None = None) -> Iterator[GrpcServed]:
    """Serve a folder inside the block."""
    roots = [str(folder / name) for name in ("in", "out", "landing", "tables")]
    options = ServerOptions(directory=folder, port=0, at_once=2, definition_roots=roots, parameters=["DAY"])
    service, clock = make_service(options, Clock()), ManualClock()
    tokens = Tokens(file=folder / ".wherry/server/tokens.json", clock=clock, own=OWN)
    guard = Guard(tokens=tokens, clock=clock)
    with (
        answer_over_http(make_app(service, guard), options) as rest,
        answer_over_grpc(service, guard, "127.0.0.1", 0, tls) as address,
    ):
        try:
            with open_channel(address, tls) as channel:
                yield GrpcServed(folder, service, guard, rest, address, clock, channel)
        finally:
            service.happenings.end()
            service.tasks.end("the test ends")
            service.tasks.wait(60.0)


def open_channel(address: str, tls: tuple[Path, Path] | None) -> grpc.Channel:
    """Return a connection to a server. With `tls`, the client trusts only its certificate."""
    if tls is None:
        return grpc.insecure_channel(address)
    return grpc.secure_channel(address, grpc.ssl_channel_credentials(tls[0].read_bytes()))


def make_message(kind: type[msgspec.Struct], /, **fields: Any) -> Any:
    """Return a message of gRPC with these fields."""
    return GetMessageClass(make_pool().FindMessageTypeByName(f"{PACKAGE}.{kind.__name__}"))(**fields)


def write_question(operation: Operation, question: Mapping[str, Any]) -> bytes:
    """Return the bytes of a question. A field that may have any JSON has it as a text."""
    free = {each.encode_name for each in msgspec.structs.fields(operation.ask) if each.type is Any}
    texts = {name: json.dumps(value) if name in free else value for name, value in question.items()}
    data: bytes = make_message(operation.ask, **texts).SerializeToString()
    return data


def read_answer(operation: Operation, data: bytes) -> Any:
    """Return an answer of gRPC in the form that REST gives."""
    return _read_value(inspect.type_info(operation.answer), type(make_message(operation.answer)).FromString(data))


def _read_value(kind: inspect.Type, value: Any) -> Any:
    if isinstance(kind, inspect.AnyType):
        return json.loads(value)
    if isinstance(kind, inspect.UnionType):
        plain = next(each for each in kind.types if not isinstance(each, inspect.NoneType))
        parts = isinstance(plain, inspect.ListType | inspect.DictType)
        return _read_value(plain, value.values if parts else value)
    if isinstance(kind, inspect.StructType):
        return {
            each.encode_name: _read_value(each.type, getattr(value, each.encode_name))
            if not value.DESCRIPTOR.fields_by_name[each.encode_name].has_presence or value.HasField(each.encode_name)
            else None
            for each in kind.fields
        }
    if isinstance(kind, inspect.ListType):
        return [_read_value(kind.item_type, each) for each in value]
    if isinstance(kind, inspect.DictType):
        return {name: _read_value(kind.value_type, each) for name, each in value.items()}
    return value


def read_problem(error: grpc.RpcError) -> Any:
    """Return the problem of a refused call. Null if gRPC refused it by itself."""
    return json.loads(dict(error.trailing_metadata()).get("problem", "null"))
